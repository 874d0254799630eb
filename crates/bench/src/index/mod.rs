//! Indexes under load: in real time on memory of this machine, or in virtual time on a model that
//! counts every flush, fence and unit of the medium.
//!
//! A run loads an index with keys and then runs workloads one after the other, each on several
//! threads. Every result is compared with the contents that the workload knows.

mod model;
mod real;
mod report;
mod rounds;
mod subject;

use std::path::PathBuf;
use std::sync::Arc;

use entresol_base::ByteSize;
pub use entresol_index::Probing;
use entresol_index::{Pool, PoolOptions, Statistics};
use entresol_measure::BenchError;
pub use entresol_measure::index::{IndexName, Workload};
use entresol_measure::index::{Keys, failed, no_region};
use entresol_measure::popularity::Popularity;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;
use entresol_media::{Direct, MediumSpec, ModelName, machine};
use serde::Serialize;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// Indexes to measure, one after the other.
    pub indexes: Vec<IndexName>,
    /// Keys loaded before the workloads.
    pub keys: u64,
    /// Operations of each workload, all threads together.
    pub operations: u64,
    /// Workloads in order; each runs on the index that the previous one left.
    pub workloads: Vec<Workload>,
    /// Bytes of a node, or `None` for the index's default.
    pub node_bytes: Option<u64>,
    /// Medium of the index.
    pub medium: MediumSpec,
    /// Concurrent threads.
    pub threads: usize,
    /// Keys in a cache in DRAM in front of the index, as a share of the loaded ones; 0 means no
    /// cache.
    pub cache_fraction: f64,
    /// Way of probing that cache: before the search of the index, or in parallel with it.
    pub probing: Probing,
    /// Popularity of keys in look-ups.
    pub popularity: Popularity,
    /// Number of rounds.
    pub rounds: usize,
    /// Seed of keys and orders.
    pub seed: u64,
}

impl Default for IndexOptions {
    fn default() -> IndexOptions {
        IndexOptions {
            indexes: IndexName::PERSISTENT.to_vec(),
            keys: 1_000_000,
            operations: 500_000,
            workloads: Workload::ALL.to_vec(),
            node_bytes: None,
            medium: MediumSpec::Dram,
            threads: 1,
            cache_fraction: 0.0,
            probing: Probing::default(),
            popularity: Popularity::Uniform,
            rounds: 3,
            seed: 1,
        }
    }
}

/// Mean effect of one operation on the medium.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct PerOperation {
    /// Cache lines flushed.
    pub lines_flushed: f64,
    /// Calls of flush.
    pub flushes: f64,
    /// Fences that wait for flushes.
    pub drains: f64,
    /// Words of eight bytes stored.
    pub words_stored: f64,
    /// Bytes stored past the caches.
    pub bytes_streamed: f64,
    /// Loads that reached the region, cached or not.
    pub loads: f64,
    /// Units (XPLines of 256 bytes) that the medium read, for loads and for partial writes.
    pub units_read: f64,
    /// Units that the medium wrote.
    pub units_written: f64,
}

/// Result of one workload on one index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkResult {
    /// Workload of the result.
    pub workload: Workload,
    /// Operations of all threads together.
    pub operations: u64,
    /// Operations per second of all threads: by wall time, or by virtual time on a model.
    pub operations_s: Spread,
    /// Time of one operation: processor time of its thread, or virtual time on a model.
    pub ns: Spread,
    /// Median time of an operation in virtual time; `None` on real media.
    pub p50_ns: Option<f64>,
    /// 99th percentile of an operation's time in virtual time; `None` on real media.
    pub p99_ns: Option<f64>,
    /// Effect on the medium; `None` on real media.
    pub counts: Option<PerOperation>,
    /// Hit ratio of the cache; `None` without a cache or without look-ups.
    pub hit_ratio: Option<f64>,
}

/// Results of one index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexResult {
    /// Index of the result.
    pub index: IndexName,
    /// Time of an insert during the load, like [`WorkResult::ns`]; `None` on a model, where loading
    /// takes no time.
    pub load_ns: Option<Spread>,
    /// Time to reopen the pool and the index at the end, until a look-up is answered; `None` on a
    /// model and for an index that is not persistent.
    pub first_answer_ns: Option<Spread>,
    /// Structure at the end.
    pub shape: Shape,
    /// Results of the workloads, in order.
    pub workloads: Vec<WorkResult>,
}

/// Structure of an index, see [`Statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Keys in the index.
    pub keys: u64,
    /// Nodes on the medium.
    pub nodes: u64,
    /// Bytes on the medium.
    pub bytes: u64,
    /// Bytes in DRAM.
    pub volatile_bytes: u64,
    /// Levels of the index.
    pub height: u32,
}

impl From<Statistics> for Shape {
    fn from(found: Statistics) -> Shape {
        let Statistics { keys, nodes, bytes, volatile_bytes, height, .. } = found;
        Shape { keys, nodes, bytes, volatile_bytes, height }
    }
}

/// Results of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexResults {
    /// Medium as the user named it.
    pub medium: String,
    /// True if times are those of a model, in virtual time.
    pub is_virtual: bool,
    /// Keys that were loaded.
    pub keys: u64,
    /// Concurrent threads.
    pub threads: usize,
    /// Popularity of keys in look-ups.
    #[serde(rename = "distribution")]
    pub popularity: String,
    /// Keys in the cache as a share of the loaded ones.
    pub cache_fraction: f64,
    /// Number of rounds requested.
    pub rounds: usize,
    /// Seed of keys and orders.
    pub seed: u64,
    /// Results of the indexes.
    pub indexes: Vec<IndexResult>,
}

/// Returns the number of steps that [`run_indexes`] reports.
#[must_use]
pub fn index_steps(options: &IndexOptions) -> u64 {
    (options.indexes.len() * options.rounds * (1 + options.workloads.len())) as u64
}

/// Measures every index.
///
/// # Errors
/// Fails if the options do not fit together, the medium is not available, or an index gives a wrong
/// result.
pub fn run_indexes(
    options: &IndexOptions,
    progress: &Progress,
) -> Result<IndexResults, BenchError> {
    check(options)?;
    check_indexes(options)?;
    let mut indexes = Vec::new();
    for &index in &options.indexes {
        if progress.is_stopped() {
            break;
        }
        indexes.push(match &options.medium {
            MediumSpec::Dram => real::run(options, index, None, progress)?,
            MediumSpec::Pmem { path, assume_dax } => {
                let place = Place { path: path.clone(), assume_dax: *assume_dax };
                real::run(options, index, Some(&place), progress)?
            }
            MediumSpec::Model(name) => model::run(options, index, *name, progress)?,
            medium => return Err(BenchError::Usage(no_memory(medium))),
        });
    }
    indexes.retain(|index| !index.workloads.is_empty());
    if indexes.is_empty() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok(IndexResults {
        medium: options.medium.to_string(),
        is_virtual: matches!(options.medium, MediumSpec::Model(_)),
        keys: options.keys,
        threads: options.threads,
        popularity: options.popularity.to_string(),
        cache_fraction: options.cache_fraction,
        rounds: options.rounds,
        seed: options.seed,
        indexes,
    })
}

/// File that stands in for persistent memory.
struct Place {
    path: PathBuf,
    assume_dax: bool,
}

fn no_memory(medium: &MediumSpec) -> String {
    let models = ModelName::ALL.into_iter().filter(|name| name.is_memory());
    let models: Vec<&str> = models.map(ModelName::name).collect();
    let models = models.join(", model:");
    format!("an index lies in memory, not on {medium}: give dram, pmem:PATH or model:{models}")
}

fn check(options: &IndexOptions) -> Result<(), BenchError> {
    let is_memory = match &options.medium {
        MediumSpec::Dram | MediumSpec::Pmem { .. } => true,
        MediumSpec::Model(name) => name.is_memory(),
        _ => false,
    };
    let problem = if !is_memory {
        no_memory(&options.medium)
    } else if options.keys == 0 || options.operations == 0 || options.rounds == 0 {
        "--keys, --operations and --rounds must be at least 1".to_owned()
    } else if options.threads == 0 || options.threads > 1024 {
        "--threads goes from 1 to 1024".to_owned()
    } else if !(0.0..=1.0).contains(&options.cache_fraction) {
        "--cache-fraction goes from 0 to 1".to_owned()
    } else if options.cache_fraction > 0.0 && options.cache_entries() == 0 {
        let (fraction, keys) = (options.cache_fraction, options.keys);
        format!("--cache-fraction {fraction} of {keys} keys is none: give more of either")
    } else if options.keys.saturating_add(options.added_most()) > Keys::MOST {
        format!("--keys, and --operations for each workload, must come to {} at most", Keys::MOST)
    } else if options.operations < options.threads as u64 {
        format!("--operations must be at least --threads ({})", options.threads)
    } else if region_bytes(options) > machine::memory_bytes() {
        format!(
            "{} keys and what {} workloads may add need about {}, and this machine has {}: give \
             fewer --keys or --operations",
            options.keys,
            options.workloads.len(),
            ByteSize(region_bytes(options)),
            ByteSize(machine::memory_bytes())
        )
    } else if options.probing == Probing::Parallel && options.cache_entries() == 0 {
        "--probing is of the cache before an index: give a --cache-fraction".to_owned()
    } else {
        match keys_run_out(options) {
            None => return Ok(()),
            Some(problem) => problem,
        }
    };
    Err(BenchError::Usage(problem))
}

/// Describes a workload that would have too few keys to look for or to remove, if there is one.
fn keys_run_out(options: &IndexOptions) -> Option<String> {
    let (mut left, threads) = (options.keys, options.threads as u64);
    for &workload in &options.workloads {
        let needed = match workload {
            Workload::Delete => options.operations,
            Workload::Insert | Workload::Absent => 0,
            _ => threads,
        };
        if left < needed {
            return Some(format!(
                "{workload} needs {needed} keys, and {left} are left then, of {} that are loaded: \
                 give more --keys, fewer --operations or another order of workloads",
                options.keys
            ));
        }
        match workload {
            Workload::Insert => left += options.operations,
            Workload::Delete => left -= options.operations,
            _ => {}
        }
    }
    None
}

/// Opens every index once, empty, to refuse unavailable ones before the measurement.
fn check_indexes(options: &IndexOptions) -> Result<(), BenchError> {
    for index in &options.indexes {
        let region = Direct::anonymous(ByteSize::mib(8).0, false);
        let region = Arc::new(region.map_err(no_region)?);
        let pool = Pool::create(region, PoolOptions::default()).map_err(failed)?;
        let opened = index.open(&Arc::new(pool), options.node_bytes);
        opened.map_err(|error| BenchError::Usage(format!("{index}: {error}")))?;
    }
    Ok(())
}

impl IndexOptions {
    /// Returns the number of keys in the cache.
    fn cache_entries(&self) -> usize {
        (self.keys as f64 * self.cache_fraction) as usize
    }

    /// Returns an upper bound of the keys that the workloads add.
    fn added_most(&self) -> u64 {
        (self.workloads.len() as u64).saturating_mul(self.operations)
    }
}

/// Returns the size of a region that holds the index at its largest.
fn region_bytes(options: &IndexOptions) -> u64 {
    ByteSize::mib(64).0 + (options.keys + options.added_most()) * 160
}

#[cfg(test)]
mod tests;
