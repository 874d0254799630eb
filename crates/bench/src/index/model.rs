//! Indexes on a model of memory, in virtual time, with counts of every flush, fence and unit.

use entresol_base::world::World;
use entresol_measure::BenchError;
use entresol_measure::index::{IndexName, Lab, failed, in_world};
use entresol_measure::progress::Progress;
use entresol_media::model::memory::{MediumCounts, Parameters};
use entresol_media::{Counts, ModelName};

use super::rounds::{Modelled, Round, results};
use super::subject::{Subject, hit_ratio};
use super::{IndexOptions, IndexResult, PerOperation, Shape, region_bytes};

/// Measures one index.
pub(super) fn run(
    options: &IndexOptions,
    name: IndexName,
    model: ModelName,
    progress: &Progress,
) -> Result<IndexResult, BenchError> {
    let parameters = Parameters::of(model).ok_or_else(|| {
        BenchError::Usage(format!("model:{model} is no model of memory in this version"))
    })?;
    let mut rounds = vec![Vec::new(); options.workloads.len()];
    let mut shape = Shape::default();
    for round in 0..options.rounds as u64 {
        if progress.is_stopped() {
            break;
        }
        let seed = options.seed.wrapping_add(round);
        let (options, progress) = (options.clone(), progress.clone());
        let (found, of_workloads) = in_world(seed, move |world| {
            one_round(world, &options, name, parameters, seed, &progress)
        })?;
        shape = found;
        for (rounds, found) in rounds.iter_mut().zip(of_workloads) {
            rounds.push(found);
        }
    }
    let workloads = results(options, rounds);
    Ok(IndexResult { index: name, load_ns: None, first_answer_ns: None, shape, workloads })
}

fn one_round(
    world: &World,
    options: &IndexOptions,
    name: IndexName,
    parameters: Parameters,
    seed: u64,
    progress: &Progress,
) -> Result<(Shape, Vec<Round>), BenchError> {
    progress.say(&format!("{name}: loading"));
    let lab = Lab::new(world, parameters, region_bytes(options))?;
    let subject = Subject::open(name, options, lab.pool(), Some(world))?;
    let index = &subject.index;
    let mut workers = lab.load(index, (seed, options.threads), options.keys)?;
    progress.advance(1);
    let mut rounds = Vec::new();
    for &workload in &options.workloads {
        if progress.is_stopped() {
            break;
        }
        progress.say(&format!("{name}: {workload}"));
        workers.iter_mut().for_each(|worker| worker.choose(options.popularity));
        let cache = subject.cache_counts();
        let measured = lab.measure(index, &mut workers, workload, options.operations)?;
        rounds.push(Round {
            operations_s: measured.operations_s(),
            ns: measured.ns(),
            modelled: Some(Modelled {
                p50_ns: measured.share_ns(0.5),
                p99_ns: measured.share_ns(0.99),
                counts: per_operation(&measured.counts, &measured.medium, options.operations),
            }),
            hit_ratio: hit_ratio(cache, subject.cache_counts()),
        });
        progress.advance(1);
    }
    Ok((index.statistics().map_err(failed)?.into(), rounds))
}

fn per_operation(counts: &Counts, medium: &MediumCounts, operations: u64) -> PerOperation {
    let of = |count: u64| count as f64 / operations as f64;
    PerOperation {
        lines_flushed: of(counts.lines_flushed),
        flushes: of(counts.flushes),
        drains: of(counts.drains),
        words_stored: of(counts.words_stored),
        bytes_streamed: of(counts.bytes_streamed),
        loads: of(counts.loads),
        units_read: of(medium.units_read + medium.units_read_to_write),
        units_written: of(medium.units_written),
    }
}
