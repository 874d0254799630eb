//! Indexes under load: in real time on memory that is here, or in virtual time on a model, where
//! every flush, fence and unit of the medium is counted.
//!
//! A run loads an index with keys and then carries out workloads, one after the other, each on
//! some threads. All answers are held against what the workload knows must be there.

mod charged;
mod keys;
mod modelled;
mod real;
mod report;
mod rounds;
mod subjects;
mod work;

use std::path::PathBuf;
use std::sync::Arc;

use entresol_base::ByteSize;
pub use entresol_index::Probing;
use entresol_index::{Pool, PoolOptions, Statistics};
use entresol_media::{Direct, FileError, MediumSpec, ModelName, RegionError, machine};
use serde::Serialize;

use crate::error::BenchError;
use crate::popularity::Popularity;
use crate::progress::Progress;
use crate::statistics::Spread;

pub(crate) use charged::{CACHE_PROBE, Charged, DramLines};
pub use keys::Keys;
pub use modelled::CPU_PER_OPERATION;
pub(crate) use modelled::{Lab, OnModel, in_world};
pub use subjects::IndexName;
pub(crate) use subjects::{AnyIndex, failed};
pub(crate) use work::Worker;
pub use work::Workload;

/// What is measured.
#[derive(Debug, Clone)]
pub struct IndexOptions {
    /// Which indexes, one after the other.
    pub indexes: Vec<IndexName>,
    /// Keys that are loaded before.
    pub keys: u64,
    /// Operations of each workload, all threads together.
    pub operations: u64,
    /// Workloads, in this order, on the index that the one before has left.
    pub workloads: Vec<Workload>,
    /// Bytes of a node; none is the index's own choice.
    pub node_bytes: Option<u64>,
    /// What the index lies on.
    pub medium: MediumSpec,
    /// Threads that work at once.
    pub threads: usize,
    /// Keys that a cache in DRAM before the index holds, as a share of those loaded; 0 is no cache.
    pub cache_fraction: f64,
    /// Whether the index is searched while that cache is probed.
    pub probing: Probing,
    /// Which keys are looked for.
    pub popularity: Popularity,
    /// How often everything is run.
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

/// What one operation does to the medium, on average.
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
    /// Units that it wrote.
    pub units_written: f64,
}

/// One workload on one index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct WorkResult {
    /// Which workload.
    pub workload: Workload,
    /// Operations.
    pub operations: u64,
    /// Operations a second of all threads: wall time, or virtual time on a model.
    pub operations_s: Spread,
    /// Time of one operation: processor time of its thread, or virtual time on a model.
    pub ns: Spread,
    /// The median operation, in virtual time; none on real media.
    pub p50_ns: Option<f64>,
    /// One in a hundred takes longer, in virtual time; none on real media.
    pub p99_ns: Option<f64>,
    /// What it did to the medium; none on real media.
    pub counts: Option<PerOperation>,
    /// The cache's hits; none without a cache, or where nothing was looked for.
    pub hit_ratio: Option<f64>,
}

/// All that was measured of one index.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexResult {
    /// Which index.
    pub index: IndexName,
    /// Loading it, as [`WorkResult::ns`]; none on a model, where loading takes no time.
    pub load_ns: Option<Spread>,
    /// Opening the pool and the index again at the end, until a look-up is answered, by the clock;
    /// none on a model, and of what keeps nothing.
    pub first_answer_ns: Option<Spread>,
    /// What it consisted of at the end.
    pub shape: Shape,
    /// The workloads, in their order.
    pub workloads: Vec<WorkResult>,
}

/// What an index consists of, see [`Statistics`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Shape {
    /// Keys in it.
    pub keys: u64,
    /// Nodes on the medium.
    pub nodes: u64,
    /// Bytes on the medium.
    pub bytes: u64,
    /// Bytes in DRAM.
    pub volatile_bytes: u64,
    /// Levels.
    pub height: u32,
}

impl From<Statistics> for Shape {
    fn from(found: Statistics) -> Shape {
        let Statistics { keys, nodes, bytes, volatile_bytes, height, .. } = found;
        Shape { keys, nodes, bytes, volatile_bytes, height }
    }
}

/// All that was measured.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IndexResults {
    /// Where: the medium, and whether time is virtual.
    pub medium: String,
    /// Whether times are a model's, in virtual time.
    pub is_virtual: bool,
    /// Keys that were loaded.
    pub keys: u64,
    /// Threads.
    pub threads: usize,
    /// Which keys are looked for.
    #[serde(rename = "distribution")]
    pub popularity: String,
    /// Keys in the cache as a share of those loaded.
    pub cache_fraction: f64,
    /// How often everything was run.
    pub rounds: usize,
    /// Seed.
    pub seed: u64,
    /// The indexes.
    pub indexes: Vec<IndexResult>,
}

/// How many steps [`run_indexes`] reports.
#[must_use]
pub fn index_steps(options: &IndexOptions) -> u64 {
    (options.indexes.len() * options.rounds * (1 + options.workloads.len())) as u64
}

/// Measures every index.
///
/// # Errors
/// If the options do not fit together, the medium cannot be had, or an index answers wrongly.
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
            MediumSpec::Model(name) => modelled::run(options, index, *name, progress)?,
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

/// A file that stands in for persistent memory.
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
        "--threads must be from 1 to 1024".to_owned()
    } else if !(0.0..=1.0).contains(&options.cache_fraction) {
        "--cache-fraction must be from 0 to 1".to_owned()
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

/// Why a workload would have no keys left to look for or to remove, if that comes to pass.
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

/// Opens every index once, empty: what cannot be had is refused before anything is measured.
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

/// Why there is no region of the bytes that [`region_bytes`] came to, and what would make room.
fn no_region(error: RegionError) -> BenchError {
    let room = |bytes: u64, lacks: &str, cause: &std::io::Error, or: &str| {
        format!(
            "no room for the {} that the index may need {lacks}: {cause}; {or}, or give fewer \
             --keys or --operations",
            ByteSize(bytes)
        )
    };
    BenchError::Failed(match &error {
        RegionError::Reserve { bytes, cause } => {
            room(*bytes, "in memory", cause, "let this process reserve more (ulimit -v)")
        }
        RegionError::File(FileError::NoSpace { path, bytes, cause }) => {
            room(*bytes, &format!("in {}", path.display()), cause, "free some there")
        }
        _ => error.to_string(),
    })
}

impl IndexOptions {
    /// How many keys the cache holds.
    fn cache_entries(&self) -> usize {
        (self.keys as f64 * self.cache_fraction) as usize
    }

    /// More keys are never added by the workloads.
    fn added_most(&self) -> u64 {
        (self.workloads.len() as u64).saturating_mul(self.operations)
    }
}

/// The bytes of a region that surely holds the index at its largest.
fn region_bytes(options: &IndexOptions) -> u64 {
    ByteSize::mib(64).0 + (options.keys + options.added_most()) * 160
}

#[cfg(test)]
mod tests;
