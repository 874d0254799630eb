//! Measurement of stores under YCSB's workloads and RocksDB's `mixgraph`: in process, on a
//! directory, in a closed or an open loop.
//!
//! The store is accessed through [`Engine`], and the same loop measures other stores. Fields are
//! deliberately absent: a record is one key with one value, and an update writes all of it.
//! Overwrites alone show how much space a store takes beside what is live. Uniform reads of several
//! stores beside one writer are the load that RocksDB publishes for itself.

mod engine;
mod ours;
mod phase;
mod report;
mod result;
mod shards;
mod space;
mod worker;

use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::values::{CHECKED_VALUE_BYTES_MIN, ValueMaker};
pub use entresol_measure::ycsb::Workload;
use entresol_measure::ycsb::{KEY_BYTES_MIN, Names, Population, mixgraph};
use entresol_media::{ModelName, PmemMode, files};
use entresol_store::{KvdbOptions, MediaClass, Policy, check_outside};

pub use engine::{Engine, SpaceHeld, VolumeWritten};
pub use ours::Entresol;
pub use result::{
    CapacityResult, KindResult, VolumeResult, WorkloadResult, WriterResult, YcsbResult,
};
pub use space::{SpaceResult, SpaceSecond};

/// Options of a run.
#[derive(Debug, Clone)]
pub struct YcsbOptions {
    /// Name of the store in the report.
    pub engine: &'static str,
    /// Directory of the store. It must not exist if the store is loaded.
    pub directory: PathBuf,
    /// Drive that the directory is slowed down to.
    pub model: Option<ModelName>,
    /// Mode of persistent memory if the directory is on it; only for our store.
    pub pmem: Option<PmemMode>,
    /// Second volume for data that exceed the directory, which is then the fast volume; only for
    /// our store.
    pub capacity: Option<Capacity>,
    /// Classes of media for keys and values; only for our store.
    pub policy: Option<Policy>,
    /// Share of a class that values may use because they are read often, from 0 to 0.5; only for
    /// our store, by default its own choice.
    pub hot_share: Option<f64>,
    /// Workloads, in order.
    pub workloads: Vec<Workload>,
    /// Keys that are loaded.
    pub keys: u64,
    /// Operations of each workload except the load, all threads together.
    pub operations: u64,
    /// Time after which each workload except the load ends.
    pub duration: Option<Duration>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value; `mixgraph` draws its own.
    pub value_bytes: usize,
    /// Records of each scan of `e`; by default drawn uniformly from 1 to 100.
    pub scan_records: Option<usize>,
    /// Concurrent threads.
    pub threads: usize,
    /// Operations per second that fall due, in an open loop.
    pub rate_ops_s: Option<f64>,
    /// Writes per second that fall due beside each workload except the load: one more thread
    /// overwrites keys, each equally popular, until the workload ends.
    pub writer_ops_s: Option<f64>,
    /// Stores in directories of their own, to one of which each key belongs.
    pub shards: usize,
    /// Checks everything that is read, by a checksum and the key in each value. At the end the
    /// store is reopened and every key is read.
    pub verify: bool,
    /// Performs the store's postponed work after a workload that writes; it counts as part of the
    /// workload.
    pub settle: bool,
    /// True if a loaded store is kept after the run.
    pub keep: bool,
    /// Bytes of the store's cache; by default its own choice.
    pub cache_bytes: Option<ByteSize>,
    /// Bytes of memory that our store may use in total; by default its own choice.
    pub memory_bytes: Option<ByteSize>,
    /// Bytes that our store collects before it flushes them; by default its own choice.
    pub generation_bytes: Option<ByteSize>,
    /// Bytes on media per live byte above which our store makes room, and by which the space that
    /// the directories take is judged, by the second.
    pub space_bound: Option<f64>,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// Second volume of a store, of the class capacity.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// Directory of the volume. It must not exist if the store is loaded.
    pub directory: PathBuf,
    /// Drive that the directory is slowed down to.
    pub model: Option<ModelName>,
    /// Largest number of bytes that the store uses on its fast volume.
    pub fast_bytes_max: Option<ByteSize>,
}

/// Parameters for opening a store.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Directory of the store.
    pub directory: &'a Path,
    /// True if the store is created first.
    pub create: bool,
    /// Options of the run.
    pub options: &'a YcsbOptions,
}

/// Function that opens a store to be measured.
pub type Open<'a> = &'a dyn Fn(&Opening<'_>) -> Result<Box<dyn Engine>, BenchError>;

impl YcsbOptions {
    /// Returns true if the directories are created for the measurement and finally removed.
    #[must_use]
    pub fn is_temporary(&self) -> bool {
        self.workloads.first() == Some(&Workload::Load) && !self.keep
    }

    /// Returns the directories of the store.
    pub fn directories(&self) -> impl Iterator<Item = &Path> {
        let capacity = self.capacity.as_ref().map(|capacity| capacity.directory.as_path());
        iter::once(self.directory.as_path()).chain(capacity)
    }

    /// Returns the class of the directory.
    fn fast_class(&self) -> MediaClass {
        match (self.pmem, &self.capacity) {
            (Some(_), _) => MediaClass::Pmem,
            (None, Some(_)) => MediaClass::Staging,
            (None, None) => MediaClass::Capacity,
        }
    }

    fn is_mixgraph(&self) -> bool {
        self.workloads.contains(&Workload::Mixgraph)
    }

    /// Creates the makers of keys and values that all threads use.
    fn makers(&self) -> Result<(Names, ValueMaker), BenchError> {
        let names = Names::new(self.key_bytes, self.is_mixgraph()).ok_or_else(|| {
            usage(format!("keys of {} bytes: take {KEY_BYTES_MIN} to 250", self.key_bytes))
        })?;
        let most = if self.is_mixgraph() { mixgraph::VALUE_BYTES_MAX } else { self.value_bytes };
        let values = ValueMaker::new(most, self.verify, self.seed).ok_or_else(|| {
            usage(format!("values that can be verified have {CHECKED_VALUE_BYTES_MIN} bytes"))
        })?;
        Ok((names, values))
    }

    fn check(&self) -> Result<(), BenchError> {
        self.makers()?;
        let refuse = |what: &str| Err(usage(what.to_owned()));
        let others = [Workload::Load, Workload::Mixgraph];
        if self.is_mixgraph() && self.workloads.iter().any(|it| !others.contains(it)) {
            return refuse("mixgraph has keys and values of its own: run it with load only");
        }
        if self.space_bound.is_some_and(|bound| !(1.1..=100.0).contains(&bound)) {
            return refuse("the bound of the space is 1.1 to 100 bytes for each live byte");
        }
        if self.space_bound.is_some() && self.is_mixgraph() {
            return refuse("mixgraph draws its sizes, so what is live is not known: bound another");
        }
        if self.workloads.iter().skip(1).any(|it| *it == Workload::Load) {
            return refuse("load must come first, and only once");
        }
        if self.workloads.is_empty() || self.keys == 0 || self.operations == 0 || self.threads == 0
        {
            return refuse("give at least one workload, key, operation and thread");
        }
        if self.duration.is_some_and(|time| time.is_zero()) {
            return refuse("a duration of 0 measures nothing: give more, or leave it out");
        }
        let is_small = |bytes: ByteSize| bytes.0 < KvdbOptions::SEGMENT_BYTES_MIN;
        if self.engine == Entresol::NAME && self.generation_bytes.is_some_and(is_small) {
            return Err(usage(format!(
                "--generation is {} or more",
                ByteSize(KvdbOptions::SEGMENT_BYTES_MIN)
            )));
        }
        if self.scan_records == Some(0) {
            return refuse("a scan has at least one record");
        }
        if self.pmem.is_some() && self.model.is_some() {
            return refuse("a model slows down a disk, not persistent memory: leave one out");
        }
        if self.pmem.is_some() && self.engine != Entresol::NAME {
            return refuse("only our own store supports persistent memory: give a plain directory");
        }
        let has_classes =
            self.capacity.is_some() || self.policy.is_some() || self.hot_share.is_some();
        if has_classes && self.engine != Entresol::NAME {
            return refuse("only our own store supports classes of media: give one directory");
        }
        if self.hot_share.is_some_and(|share| !(0.0..=0.5).contains(&share)) {
            return refuse("the share of a class for hot values is 0 to 0.5");
        }
        if let Some(Capacity { directory, .. }) = &self.capacity
            && (directory.starts_with(&self.directory) || self.directory.starts_with(directory))
        {
            return refuse("one volume lies in the other: name two directories side by side");
        }
        if self.capacity.as_ref().is_some_and(|it| it.fast_bytes_max.is_some())
            && self.workloads.first() != Some(&Workload::Load)
        {
            return refuse("a volume is bounded when it is made: load, or leave the bound out");
        }
        if self.rates().any(|rate| !rate.is_finite() || rate <= 0.0) {
            return refuse("the rate of an open loop is more than 0 operations a second");
        }
        self.check_shards()
    }

    fn rates(&self) -> impl Iterator<Item = f64> {
        self.rate_ops_s.into_iter().chain(self.writer_ops_s)
    }

    fn check_shards(&self) -> Result<(), BenchError> {
        let scans = [Workload::E, Workload::Mixgraph];
        let what = match self.shards {
            1 => return Ok(()),
            0 => "give at least one shard",
            _ if self.workloads.iter().any(|it| scans.contains(it)) => {
                "e and mixgraph scan, for which one store must have all keys: leave --shards out"
            }
            _ if self.capacity.is_some() => "shards have one volume each: leave one of both out",
            _ => return Ok(()),
        };
        Err(usage(what.to_owned()))
    }

    /// Returns the options of one shard, which has its part of the memory.
    fn of_shard(&self) -> YcsbOptions {
        let part = |bytes: ByteSize| ByteSize(bytes.0 / self.shards as u64);
        YcsbOptions {
            cache_bytes: self.cache_bytes.map(part),
            memory_bytes: self.memory_bytes.map(part),
            ..self.clone()
        }
    }
}

fn usage(what: String) -> BenchError {
    BenchError::Usage(what)
}

/// Returns the number of steps of the progress bar.
#[must_use]
pub fn ycsb_steps(options: &YcsbOptions) -> u64 {
    let steps = |workload: &Workload| match workload {
        Workload::Load => options.keys,
        _ => options.operations,
    };
    options.workloads.iter().map(steps).sum()
}

/// Runs the workloads one after the other on one store.
///
/// # Errors
/// Fails if the options do not fit together, the store fails, or it gives a wrong result.
pub fn run_ycsb(
    options: &YcsbOptions,
    open: Open<'_>,
    progress: &Progress,
) -> Result<YcsbResult, BenchError> {
    options.check()?;
    let create = options.workloads.first() == Some(&Workload::Load);
    if create {
        make_new(options)?;
    }
    let result = on_directories(options, open, create, progress);
    // Otherwise it would be taken for one with all its keys, and keep the next run out.
    let is_in_part = match &result {
        Ok(result) => progress.is_stopped() && !result.is_loaded(options.keys),
        Err(error) => matches!(error, BenchError::Interrupted { .. }),
    };
    if options.is_temporary() || create && is_in_part {
        for directory in options.directories() {
            let error = |source| BenchError::File { path: directory.to_owned(), source };
            files::remove_tree(directory).map_err(error)?;
        }
    }
    result
}

/// Creates the directories, which must not exist yet. They may therefore be removed completely
/// later.
fn make_new(options: &YcsbOptions) -> Result<(), BenchError> {
    if let Some(directory) = options.directories().find(|directory| files::exists(directory)) {
        return Err(usage(format!(
            "{} exists already: give a directory that does not exist, or leave load out to use the \
             store in it",
            directory.display()
        )));
    }
    options.directories().try_for_each(|directory| {
        check_outside(directory).map_err(|error| usage(error.to_string()))?;
        let error = |source| BenchError::File { path: directory.to_owned(), source };
        files::create_directories(directory).map_err(error)
    })
}

fn on_directories(
    options: &YcsbOptions,
    open: Open<'_>,
    create: bool,
    progress: &Progress,
) -> Result<YcsbResult, BenchError> {
    let clock = SystemClock::new();
    let population = Population::of(if create { 0 } else { options.keys });
    let began = clock.now();
    let engine = shards::open(options, open, create)?;
    let open_s = clock.now().since(began).as_secs_f64();
    let medium = engine.medium();
    let mut workloads = Vec::with_capacity(options.workloads.len());
    for workload in &options.workloads {
        if progress.is_stopped() {
            break;
        }
        progress.say(&format!("{}: {workload}", options.engine));
        let phase = phase::Phase { options, workload: *workload, population: &population };
        workloads.push(phase.run(&*engine, &clock, progress)?);
    }
    let began = clock.now();
    engine.close()?;
    let close_s = clock.now().since(began).as_secs_f64();
    let mut keys_read_back = None;
    if options.verify && !progress.is_stopped() {
        progress.say(&format!("{}: every key is read", options.engine));
        let engine = shards::open(options, open, false)?;
        keys_read_back = Some(worker::read_back(options, &*engine, population.count())?);
        engine.close()?;
    }
    if workloads.is_empty() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    Ok(YcsbResult::new(options, medium, (open_s, close_s), workloads, keys_read_back))
}

#[cfg(test)]
mod tests;
