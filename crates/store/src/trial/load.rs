//! Load at full rate on a simulated drive, to measure how long operations wait, and for what.
//!
//! Virtual time passes for the drive's work, and for a fixed processor time of each operation. The
//! computations of the store's own threads take no time. The result is therefore how long
//! operations wait for the drive, or for another thread that waits for it.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::clock::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_base::thread::{self, JoinHandle};
use entresol_base::world::{World, WorldOptions};
use entresol_media::ModelName;
use entresol_simulated::disk::{Disk, DiskOptions};
use serde::Serialize;

use crate::{CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, StallStatistics, StoreError};

/// Interval between calls of `go_on`.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Number of longest waits in the report.
const LONGEST_MAX: usize = 8;
/// Number of keys in a scan.
const SCAN_LEN: usize = 100;

/// Load, and the drive it runs on.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Seed for keys and sizes.
    pub seed: u64,
    /// Model of the drive.
    pub model: ModelName,
    /// Options of the store.
    pub options: KvdbOptions,
    /// Virtual time of the load.
    pub time: Duration,
    /// Threads that put.
    pub writers: u64,
    /// Number of keys that they put over and over.
    pub keys: u64,
    /// Bytes of a value. One in four values has a tenth of that, and lies beside its key.
    pub value_bytes: usize,
    /// Processor time of an operation.
    pub operation: Duration,
}

impl Load {
    /// Returns a load of two writers of 1000-byte values, with 424,000 operations a second
    /// together.
    #[must_use]
    pub fn of(seed: u64, model: ModelName, time: Duration) -> Load {
        Load {
            seed,
            model,
            options: KvdbOptions::default(),
            time,
            writers: 2,
            keys: 100_000,
            value_bytes: 1000,
            operation: Duration::from_nanos(4_700),
        }
    }
}

/// Kind of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Put of a value.
    Put,
    /// Read of a value.
    Get,
    /// Scan of a hundred keys.
    Scan,
    /// Sync.
    Sync,
}

impl Kind {
    const ALL: [Kind; 4] = [Kind::Put, Kind::Get, Kind::Scan, Kind::Sync];

    const fn name(self) -> &'static str {
        match self {
            Kind::Put => "put",
            Kind::Get => "get",
            Kind::Scan => "scan",
            Kind::Sync => "sync",
        }
    }
}

/// Operation that waited.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    /// Kind of the operation.
    pub kind: Kind,
    /// Begin of the operation, in virtual milliseconds.
    pub at_ms: f64,
    /// Time that it waited, in milliseconds.
    pub wait_ms: f64,
    /// Waits meanwhile, by the store's counters.
    pub causes: Vec<&'static str>,
}

/// Waits of all operations of a kind.
#[derive(Debug, Clone, Serialize)]
pub struct Waits {
    /// Kind of the operations.
    pub kind: Kind,
    /// Number of operations.
    pub count: u64,
    /// Median wait.
    pub p50_ms: f64,
    /// Longest wait of all but one operation in a thousand.
    pub p999_ms: f64,
    /// Longest wait.
    pub longest_ms: f64,
}

/// Outcome of a load.
#[derive(Debug, Clone, Serialize)]
pub struct LoadOutcome {
    /// Model of the drive.
    pub model: String,
    /// Virtual time in seconds.
    pub time_s: f64,
    /// Bytes of keys and values that were put.
    pub user_bytes: u64,
    /// Bytes that flushes wrote.
    pub flush_bytes: u64,
    /// Bytes that compactions wrote.
    pub compaction_bytes: u64,
    /// Waits by the kind of operation.
    pub kinds: Vec<Waits>,
    /// Longest waits, in descending order.
    pub longest: Vec<Wait>,
    /// Waits by their reasons, from the store's counters.
    pub stalls: StallStatistics,
}

impl LoadOutcome {
    /// Returns the longest wait of any operation.
    #[must_use]
    pub fn longest_ms(&self) -> f64 {
        self.longest.first().map_or(0.0, |wait| wait.wait_ms)
    }
}

impl fmt::Display for LoadOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: u64| bytes >> 20;
        let (user, flush, merge) =
            (mib(self.user_bytes), mib(self.flush_bytes), mib(self.compaction_bytes));
        writeln!(
            f,
            "{:.2} s of virtual time on {}: {user} MiB put, {flush} flushed, {merge} compacted",
            self.time_s, self.model
        )?;
        writeln!(
            f,
            "\n{:<6}{:>12}{:>12}{:>12}{:>12}",
            "", "count", "p50 ms", "p999 ms", "longest"
        )?;
        for Waits { kind, count, p50_ms, p999_ms, longest_ms } in &self.kinds {
            let name = kind.name();
            writeln!(f, "{name:<6}{count:>12}{p50_ms:>12.3}{p999_ms:>12.3}{longest_ms:>12.3}")?;
        }
        writeln!(f, "\n{:>10} {:<5}{:>10}  meanwhile somebody waited for", "at ms", "", "ms")?;
        for Wait { kind, at_ms, wait_ms, causes } in &self.longest {
            let (name, causes) = (kind.name(), causes.join(", "));
            writeln!(f, "{at_ms:>10.1} {name:<5}{wait_ms:>10.3}  {causes}")?;
        }
        Ok(())
    }
}

/// State that the threads of a load share.
struct Shared {
    world: World,
    load: Load,
    store: Kvdb,
    kvs: Kvs,
    is_over: AtomicBool,
}

/// Measurements of a thread.
#[derive(Default)]
struct Seen {
    times: [Histogram; Kind::ALL.len()],
    longest: Vec<Wait>,
}

type Done = Result<Seen, StoreError>;

/// Puts a store under a load, in a world of its own.
///
/// # Errors
/// Fails if the store fails, or if the model is one of memory.
pub fn load(load: Load) -> Result<LoadOutcome, String> {
    load_while(load, |_| ControlFlow::Continue(()))
}

/// Puts a store under a load as [`load`] does, until `go_on` ends it. Now and then `go_on` receives
/// the virtual time that has passed.
///
/// # Errors
/// Fails as [`load`] does.
pub fn load_while(
    load: Load,
    go_on: impl Fn(Duration) -> ControlFlow<()> + Send + 'static,
) -> Result<LoadOutcome, String> {
    let world = World::new(WorldOptions::seeded(load.seed));
    let within = world.clone();
    let ran = world.run(move || run(&within, load, &go_on));
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

fn run(
    world: &World,
    load: Load,
    go_on: &dyn Fn(Duration) -> ControlFlow<()>,
) -> Result<LoadOutcome, String> {
    let options = DiskOptions { model: Some(load.model), ..DiskOptions::default() };
    let disk = Disk::new(world, options).map_err(|error| error.to_string())?;
    let failed = |error: StoreError| error.to_string();
    let clock = Arc::new(world.clone());
    let store = Kvdb::create(disk.root(), load.options, clock).map_err(failed)?;
    let kvs = store.create_kvs("load", KvsOptions::default()).map_err(failed)?;
    let (world, is_over) = (world.clone(), AtomicBool::new(false));
    let shared = Arc::new(Shared { world, load, store, kvs, is_over });
    let spawn = |name: &str, number: u64, work: fn(&Shared, Rng) -> Done| {
        let shared = shared.clone();
        let rng = Rng::named(load.seed, &format!("{name} {number}"));
        thread::spawn(name, move || work(&shared, rng))
    };
    let mut threads: Vec<JoinHandle<Done>> =
        (0..load.writers).map(|number| spawn("writer", number, put_on)).collect();
    threads.push(spawn("reader", 0, read_on));
    threads.push(spawn("syncer", 0, sync_on));
    let mut passed = Duration::ZERO;
    while passed < load.time && go_on(passed).is_continue() {
        let step = LOOK_EVERY.min(load.time - passed);
        thread::sleep(step);
        passed += step;
    }
    shared.is_over.store(true, Relaxed);
    let mut seen = Seen::default();
    for thread in threads {
        let done = thread.join().map_err(|_| "a thread panicked".to_owned())?;
        seen.add(done.map_err(failed)?);
    }
    let outcome = seen.outcome(&shared).map_err(failed)?;
    drop(shared);
    Ok(outcome)
}

fn put_on(shared: &Shared, mut rng: Rng) -> Done {
    let mut seen = Seen::default();
    let value = vec![7; shared.load.value_bytes];
    while !shared.is_over.load(Relaxed) {
        let key = rng.below(shared.load.keys).to_be_bytes();
        let bytes = if rng.one_in(4) { value.len() / 10 } else { value.len() };
        seen.time(shared, Kind::Put, || shared.kvs.put(&key, &value[..bytes]).map(drop))?;
    }
    Ok(seen)
}

fn read_on(shared: &Shared, mut rng: Rng) -> Done {
    let mut seen = Seen::default();
    while !shared.is_over.load(Relaxed) {
        let key = rng.below(shared.load.keys).to_be_bytes();
        if !rng.one_in(100) {
            seen.time(shared, Kind::Get, || shared.kvs.get(&key).map(drop))?;
            continue;
        }
        seen.time(shared, Kind::Scan, || {
            let mut cursor = shared.kvs.cursor(CursorOptions::default())?;
            cursor.seek(&key);
            for _ in 0..SCAN_LEN {
                if cursor.next()?.is_none() {
                    break;
                }
            }
            Ok(())
        })?;
    }
    Ok(seen)
}

fn sync_on(shared: &Shared, _rng: Rng) -> Done {
    let mut seen = Seen::default();
    while !shared.is_over.load(Relaxed) {
        seen.time(shared, Kind::Sync, || shared.store.sync())?;
        thread::sleep(Duration::from_millis(20));
    }
    Ok(seen)
}

impl Seen {
    /// Runs an operation and records its wait.
    fn time(
        &mut self,
        shared: &Shared,
        kind: Kind,
        operation: impl FnOnce() -> Result<(), StoreError>,
    ) -> Result<(), StoreError> {
        let (before, stalls) = (shared.world.now(), shared.store.stalls());
        operation()?;
        let waited = shared.world.now().0 - before.0;
        if let Some(times) = self.times.get_mut(kind as usize) {
            times.record(Duration::from_nanos(waited / 1000));
        }
        let wait_ms = waited as f64 / 1e9;
        if self.longest.len() < LONGEST_MAX || self.longest.iter().any(|it| it.wait_ms < wait_ms) {
            let causes = causes(&stalls, &shared.store.stalls());
            let at_ms = before.0 as f64 / 1e9;
            self.longest.push(Wait { kind, at_ms, wait_ms, causes });
            self.shorten();
        }
        shared.world.spend(Picos(shared.load.operation.as_nanos() as u64 * 1000));
        Ok(())
    }

    fn shorten(&mut self) {
        self.longest.sort_by(|one, other| other.wait_ms.total_cmp(&one.wait_ms));
        self.longest.truncate(LONGEST_MAX);
    }

    fn add(&mut self, other: Seen) {
        self.times.iter_mut().zip(&other.times).for_each(|(times, more)| times.merge(more));
        self.longest.extend(other.longest);
        self.shorten();
    }

    fn outcome(self, shared: &Shared) -> Result<LoadOutcome, StoreError> {
        let statistics = shared.store.statistics()?;
        let written = statistics.media.first().map(|medium| medium.written).unwrap_or_default();
        let ms = |times: &Histogram, percentile| times.percentile_us(percentile) / 1000.0;
        let kinds = Kind::ALL.into_iter().zip(&self.times).map(|(kind, times)| Waits {
            kind,
            count: times.count(),
            p50_ms: ms(times, 50.0),
            p999_ms: ms(times, 99.9),
            longest_ms: times.max_us() / 1000.0,
        });
        Ok(LoadOutcome {
            model: shared.load.model.to_string(),
            time_s: shared.world.now().0 as f64 / 1e12,
            user_bytes: written.user_bytes,
            flush_bytes: written.flush_bytes,
            compaction_bytes: written.compaction_bytes + written.collected_bytes,
            kinds: kinds.collect(),
            longest: self.longest,
            stalls: statistics.stalls,
        })
    }
}

/// Names the counters that have grown.
fn causes(before: &StallStatistics, after: &StallStatistics) -> Vec<&'static str> {
    let StallStatistics { slope, wall, sync, memtable_image, segments_made_late, .. } = before;
    let grown = [
        ("flushing (a little)", after.slope.count > slope.count),
        ("flushing (until it was done)", after.wall.count > wall.count),
        ("a sync", after.sync.count > sync.count),
        ("a memtable image", after.memtable_image.count > memtable_image.count),
        ("a segment", after.segments_made_late > *segments_made_late),
    ];
    let grown = grown.into_iter().filter(|(_, is_grown)| *is_grown).map(|(cause, _)| cause);
    let causes: Vec<_> = grown.collect();
    if causes.is_empty() { vec!["the drive, or a lock"] } else { causes }
}
