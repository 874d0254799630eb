//! Stores under YCSB's workloads and RocksDB's `mixgraph`: in process, on a directory, in a closed
//! or an open loop.
//!
//! What is measured stands behind [`Engine`], so that other stores are measured by the same loop.
//! Deliberately absent: fields. A record is one key with one value, and an update writes all of it.

mod draw;
mod engine;
mod mixgraph;
mod ours;
mod phase;
mod report;
mod result;
mod worker;
mod workload;

use std::iter;
use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_media::{ModelName, PmemMode, files};
use entresol_store::{MediaClass, Policy};

use crate::error::BenchError;
use crate::progress::Progress;
use crate::values::{CHECKED_VALUE_BYTES_MIN, ValueMaker};
use draw::KEY_BYTES_MIN;

pub(crate) use draw::{Chooser, Names, Population};
pub use engine::{Engine, VolumeWritten};
pub use ours::Entresol;
pub use result::{CapacityResult, KindResult, VolumeResult, WorkloadResult, YcsbResult};
pub(crate) use workload::Kind;
pub use workload::Workload;

/// What is measured.
#[derive(Debug, Clone)]
pub struct YcsbOptions {
    /// The store's name, for the report.
    pub engine: &'static str,
    /// Where the store is. If it is loaded, nothing may be there yet.
    pub directory: PathBuf,
    /// The drive that the directory is slowed to.
    pub model: Option<ModelName>,
    /// The directory lies on persistent memory; our store only.
    pub pmem: Option<PmemMode>,
    /// Where the store keeps what the directory is too small for, which is then its fast place; our
    /// store only.
    pub capacity: Option<Capacity>,
    /// On which classes of media keys and values lie; our store only.
    pub policy: Option<Policy>,
    /// The share of a class of media that values may take because they are read often, 0 to 0.5;
    /// our store only, and its own choice if none.
    pub hot_share: Option<f64>,
    /// Workloads, in this order.
    pub workloads: Vec<Workload>,
    /// Keys that are loaded.
    pub keys: u64,
    /// Operations of each workload but loading, all threads together.
    pub operations: u64,
    /// Each workload but loading ends after this time, whatever has been done.
    pub duration: Option<Duration>,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value; `mixgraph` draws its own.
    pub value_bytes: usize,
    /// Records of each scan of `e`; 1 to 100 if none, each number as likely.
    pub scan_records: Option<usize>,
    /// Threads that work at once.
    pub threads: usize,
    /// Open loop: so many operations a second fall due.
    pub rate_ops_s: Option<f64>,
    /// Values carry their key and a checksum, and all that is read is checked; at the end the store
    /// is opened again and every key is read.
    pub verify: bool,
    /// After a workload that writes, the store does what it has put off; this counts as the
    /// workload's.
    pub settle: bool,
    /// Whether what was loaded stays when the run ends.
    pub keep: bool,
    /// Bytes of the store's cache; its own choice if none.
    pub cache_bytes: Option<ByteSize>,
    /// Bytes of memory that our store may take for everything; its own choice if none.
    pub memory_bytes: Option<ByteSize>,
    /// Bytes that our store collects before it flushes them; its own choice if none.
    pub generation_bytes: Option<ByteSize>,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// A second place of a store, of the class capacity.
#[derive(Debug, Clone)]
pub struct Capacity {
    /// Where it is. If the store is loaded, nothing may be there yet.
    pub directory: PathBuf,
    /// The drive that it is slowed to.
    pub model: Option<ModelName>,
    /// The most bytes that the store takes in its fast place, beside this one.
    pub fast_bytes_max: Option<ByteSize>,
}

/// What is opened.
#[derive(Debug, Clone, Copy)]
pub struct Opening<'a> {
    /// Where.
    pub directory: &'a Path,
    /// Whether it must be made first.
    pub create: bool,
    /// How.
    pub options: &'a YcsbOptions,
}

/// Opens a store that is to be measured.
pub type Open<'a> = &'a dyn Fn(&Opening<'_>) -> Result<Box<dyn Engine>, BenchError>;

impl YcsbOptions {
    /// The directories that are made, and removed in the end.
    fn directories(&self) -> impl Iterator<Item = &Path> {
        let capacity = self.capacity.as_ref().map(|capacity| capacity.directory.as_path());
        iter::once(self.directory.as_path()).chain(capacity)
    }

    /// The class of the directory.
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

    /// What all threads' keys and values look like.
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
        if self.workloads.iter().skip(1).any(|it| *it == Workload::Load) {
            return refuse("load must come first, and only once");
        }
        if self.workloads.is_empty() || self.keys == 0 || self.operations == 0 || self.threads == 0
        {
            return refuse("give at least one workload, key, operation and thread");
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
        if self.rate_ops_s.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            return refuse("the rate of an open loop is more than 0 operations a second");
        }
        Ok(())
    }
}

fn usage(what: String) -> BenchError {
    BenchError::Usage(what)
}

/// Steps of the progress bar.
#[must_use]
pub fn ycsb_steps(options: &YcsbOptions) -> u64 {
    let steps = |workload: &Workload| match workload {
        Workload::Load => options.keys,
        _ => options.operations,
    };
    options.workloads.iter().map(steps).sum()
}

/// Runs the workloads, one after the other, on one store.
///
/// # Errors
/// If options do not fit together, the store fails, or it answers wrongly.
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
    if create && !options.keep {
        for directory in options.directories() {
            let error = |source| BenchError::File { path: directory.to_owned(), source };
            files::remove_tree(directory).map_err(error)?;
        }
    }
    result
}

/// Makes the directories, which must not be there: so they may be removed as a whole afterwards.
fn make_new(options: &YcsbOptions) -> Result<(), BenchError> {
    if let Some(directory) = options.directories().find(|directory| files::exists(directory)) {
        return Err(usage(format!(
            "{} exists already: give a directory that does not exist, or leave load out to use the \
             store in it",
            directory.display()
        )));
    }
    options.directories().try_for_each(|directory| {
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
    let directory = options.directory.as_path();
    let population = Population::of(if create { 0 } else { options.keys });
    let began = clock.now();
    let engine = open(&Opening { directory, create, options })?;
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
        let engine = open(&Opening { directory, create: false, options })?;
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
