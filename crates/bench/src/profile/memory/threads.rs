//! Number of threads that a measurement needs.

use entresol_measure::BenchError;
use entresol_media::model::ModelName;
use entresol_media::probe::{Fences, Order, StoreMethod, Task, Touch};

use super::model::ModelMemory;
use super::{MemorySubject, Scope};
use crate::profile::figure::Figure;

/// Least default number of threads of a model: the sixteen of the papers.
const MODEL_THREADS: usize = 16;
/// Largest number of threads of a model.
const MODEL_THREADS_MAX: usize = 256;
/// Least gain in some rate that justifies twice as many threads.
const WORTH_MORE: f64 = 0.02;
/// Sizes at which numbers of threads are compared: a line, the unit of persistent memory, a page.
const COMPARED_BYTES: [usize; 3] = [64, 256, 4096];

/// Returns the number of simulated threads that keeps every one of the models busy: twice as many
/// raise no rate of random reads or writes.
pub(in crate::profile) fn saturating(models: &[ModelName]) -> Result<usize, BenchError> {
    let mut most = MODEL_THREADS;
    for &name in models {
        let mut model = ModelMemory::new(name)?;
        let mut rates = small_rates(&mut model, most)?;
        while most < MODEL_THREADS_MAX {
            let more = small_rates(&mut model, 2 * most)?;
            if rates.iter().zip(&more).all(|(rate, more)| *more <= rate * (1.0 + WORTH_MORE)) {
                break;
            }
            (most, rates) = (2 * most, more);
        }
    }
    Ok(most)
}

/// Returns the random reads and writes per nanosecond of `threads` threads, for each compared size.
fn small_rates(model: &mut ModelMemory, threads: usize) -> Result<Vec<f64>, BenchError> {
    let touches = [Touch::Read, Touch::Write(StoreMethod::Streaming, Fences::EachBlock)];
    let loads = COMPARED_BYTES.into_iter().flat_map(|block_bytes| {
        touches.map(|touch| Task { touch, order: Order::Random, block_bytes })
    });
    loads
        .map(|task| {
            let rates = model.sample(&vec![task; threads])?;
            Ok(rates.iter().map(|rate| rate.blocks as f64 / rate.elapsed_ns.max(1.0)).sum())
        })
        .collect()
}

/// Returns the number of threads with the highest bandwidth, summed over the compared sizes as
/// shares of the best.
pub(in crate::profile) fn best_threads(figures: &[Figure], name: &str, scope: &Scope) -> usize {
    let figure = figures.iter().find(|figure| figure.name == name);
    let at = |position: usize, bytes: usize| {
        let series = figure.and_then(|figure| figure.series.get(position));
        series.and_then(|series| series.at(bytes as f64)).unwrap_or(0.0)
    };
    let positions = 0..scope.threads.len();
    let best = |bytes: usize| positions.clone().map(|p| at(p, bytes)).fold(0.0, f64::max);
    let best = COMPARED_BYTES.map(best);
    let score = |position: usize| -> f64 {
        let sizes = COMPARED_BYTES.iter().zip(&best).filter(|(_, best)| **best > 0.0);
        sizes.map(|(&bytes, best)| at(position, bytes) / best).sum()
    };
    let winner = positions.clone().max_by(|&a, &b| score(a).total_cmp(&score(b)));
    winner.and_then(|position| scope.threads.get(position)).copied().unwrap_or(1)
}
