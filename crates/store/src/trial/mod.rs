//! Trials: histories with crashes, which the test suites run.
//!
//! A history runs on a simulated disk in a simulated world. Whenever something becomes durable, or
//! could be seen to, the disk is opened as a crash might leave it. The store must then hold the
//! state after some beginning of the history, which includes everything acknowledged before the
//! last sync, or longer ago than the durability interval. If only the process dies, or the store
//! lies on persistent memory, the state must include everything acknowledged.
//!
//! In some histories each class of media is a drive of its own. One of the drives is slow, or fails
//! for a while or for ever, or is missing when the store is opened. Writes refused by such a store
//! may have been written or not. Once a store has reported that it refuses all writes, it
//! acknowledges nothing until another process opens it, or until it is opened after a power cut.
//!
//! In some histories several threads write, each to keys of its own, and each under these rules.
//!
//! The store that a history leaves can also be damaged: [`Trial::run_damaged`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::PmemMode;
use entresol_simulated::crash::{ExploreOptions, Explorer, Nested, Power, Report};
use entresol_simulated::disk::Disk;

use crate::{Batch, Kvdb, KvdbOptions, StoreError};
use after::Shared;
pub use arrange::Arrangement;
pub use carry_out::is_of_trouble;
use carry_out::{Scene, carry_out, draw_key};
use drives::Drives;
pub use drives::{Failing, Trouble};
pub use expected::{State, apply, difference};

mod after;
mod arrange;
mod carry_out;
mod damage;
mod drives;
mod expected;
pub mod load;
#[cfg(test)]
mod scenes;

/// `Kvs` of a history.
pub const NAMES: [&str; 2] = ["one", "two"];
const KEYS: u64 = 24;
/// First byte of the first writer's keys. The next writer's keys begin with the next letter.
const FIRST_WRITER: u8 = b'k';
/// Largest value that lies beside its key, in bytes.
const INLINE_BYTES: u32 = 100;
/// Range deletes that one run holds. The number is so small that a flush may write several runs,
/// which a compaction has to take together.
const PREFIXES_PER_RUN: u32 = 6;
/// Largest number of range deletes in one operation.
const PREFIXES_TOGETHER: u64 = 20;

/// Operation of a history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Write; several changes are a batch.
    Write(Vec<Change>),
    /// Transaction, which is committed if the flag is true, and aborted otherwise.
    Transact(Vec<Change>, bool),
    /// Sync.
    Sync,
    /// Flush and compaction of everything.
    Compact,
    /// Flush of everything, and squeezing of every segment.
    Squeeze,
    /// Pause in milliseconds.
    Sleep(u64),
    /// Close, followed by an opening.
    Reopen,
    /// Change of the volumes or policies.
    Arrange(Arrangement),
    /// Begin or end of trouble with a drive, given by its index.
    Trouble(u8, Trouble),
}

/// Change of one `Kvs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Index of the `Kvs`.
    pub kvs: usize,
    /// Key, or prefix of a range delete.
    pub key: Vec<u8>,
    /// New state of the key.
    pub to: To,
}

/// New state of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// Put of a value.
    Value(Vec<u8>),
    /// Delete.
    Gone,
    /// Range delete of all keys with this prefix.
    RangeDelete,
}

impl Op {
    /// Returns the writer of the operation, which owns its keys.
    fn writer(&self) -> u8 {
        let changes = match self {
            Op::Write(changes) | Op::Transact(changes, _) => changes.as_slice(),
            _ => &[],
        };
        let first = changes.first().and_then(|change| change.key.first());
        first.copied().unwrap_or(FIRST_WRITER)
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write(changes) => {
                for (number, Change { kvs, key, to }) in changes.iter().enumerate() {
                    let key = String::from_utf8_lossy(key);
                    let begin = if number == 0 { "" } else { " and " };
                    let name = NAMES[*kvs];
                    match to {
                        To::Value(value) => {
                            let (first, bytes) = (value.first(), value.len());
                            write!(f, "{begin}put {name} {key} {bytes} bytes of {first:?}")?;
                        }
                        To::Gone => write!(f, "{begin}delete {name} {key}")?,
                        To::RangeDelete => write!(f, "{begin}delete-prefix {name} {key}")?,
                    }
                }
                Ok(())
            }
            Op::Transact(changes, commits) => {
                let end = if *commits { "commit" } else { "give up" };
                write!(f, "transaction: {}, {end}", Op::Write(changes.clone()))
            }
            Op::Sync => write!(f, "sync"),
            Op::Compact => write!(f, "compact"),
            Op::Squeeze => write!(f, "squeeze"),
            Op::Sleep(time) => write!(f, "sleep {time} ms"),
            Op::Reopen => write!(f, "reopen"),
            Op::Arrange(arrangement) => arrangement.fmt(f),
            Op::Trouble(drive, trouble) => write!(f, "drive {drive}: {trouble}"),
        }
    }
}

/// Parameters of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Seed that decides everything.
    pub seed: u64,
    /// Number of threads that write.
    pub writers: u8,
    /// Number of recoveries of which one is itself interrupted by crashes; 0 for none.
    pub nested_one_in: u32,
    /// Upper bound of the crash images checked at each moment.
    pub images_max: u32,
    /// True if the store lies on persistent memory: every acknowledged write must then survive.
    pub pmem: bool,
    /// True if the store has several volumes, the fastest of which soon fill.
    pub classes: bool,
    /// True if each volume is on a drive of its own, and some drives get into trouble. It has no
    /// effect without several volumes.
    pub troubles: bool,
    /// True if there are more range deletes than one run can hold.
    pub many_prefixes: bool,
    /// True if segments are squeezed often. It has no effect on persistent memory.
    pub squeezes: bool,
}

/// Counts of events in histories that drives in trouble, and many range deletes, led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met(pub BTreeMap<&'static str, u64>);

impl Met {
    /// Adds other counts.
    pub fn add(&mut self, other: &Met) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// Returns the count of an event.
    #[must_use]
    pub fn times(&self, what: &str) -> u64 {
        self.0.get(what).copied().unwrap_or_default()
    }
}

impl fmt::Display for Met {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(what, times)| writeln!(f, "{times:>10}  {what}"))
    }
}

impl Trial {
    /// Returns the usual trial of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Trial {
        let writers = if (seed / 3).is_multiple_of(2) { 1 } else { 3 };
        let pmem = seed % 4 == 3;
        let classes = seed % 5 < 2;
        let troubles = classes && (seed / 5).is_multiple_of(2);
        // Trouble is drawn anew in each history, so more histories find more than more images of
        // each.
        let images_max = if troubles { 3 } else { 8 };
        Trial {
            seed,
            writers,
            nested_one_in: 16,
            images_max,
            pmem,
            classes,
            troubles,
            many_prefixes: seed % 7 < 2,
            squeezes: seed % 9 < 3,
        }
    }

    /// Draws a history of `len` operations.
    #[must_use]
    pub fn history(&self, len: usize) -> Vec<Op> {
        let mut rng = Rng::named(self.seed, "history");
        (0..len).map(|number| self.op(&mut rng, number as u8)).collect()
    }

    /// Runs a history, with crashes all along.
    ///
    /// # Errors
    /// Fails if the history cannot be carried out. A state that no crash may leave is in the
    /// report.
    pub fn run(&self, ops: &[Op]) -> Result<Report, String> {
        self.run_until(ops, &Stop::new())
    }

    /// Runs a history as [`run`](Trial::run) does, and ends early once `stop` is due.
    ///
    /// # Errors
    /// Fails as [`run`](Trial::run) does.
    pub fn run_until(&self, ops: &[Op], stop: &Stop) -> Result<Report, String> {
        self.counted_until(ops, stop).map(|(report, _)| report)
    }

    /// Runs a history as [`run`](Trial::run) does. Also returns the counts of rare events.
    ///
    /// # Errors
    /// Fails as [`run`](Trial::run) does.
    pub fn run_and_count(&self, ops: &[Op]) -> Result<(Report, Met), String> {
        self.counted_until(ops, &Stop::new())
    }

    fn counted_until(&self, ops: &[Op], stop: &Stop) -> Result<(Report, Met), String> {
        let preemption = match self.seed % 3 {
            0 => Preemption::Never,
            1 => Preemption::OneIn(10),
            _ => Preemption::OneIn(100),
        };
        let options = WorldOptions { preemption, ..WorldOptions::seeded(self.seed) };
        let world = World::new(options);
        let (trial, ops, within, stop) = (*self, ops.to_vec(), world.clone(), stop.clone());
        let ran = world.run(move || trial.run_within(&within, &ops, &stop));
        ran.unwrap_or_else(|failure| Err(failure.to_string()))
    }

    fn run_within(&self, world: &World, ops: &[Op], stop: &Stop) -> Result<(Report, Met), String> {
        let power = Power::new();
        let drives = Drives::new(world, self, &power).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared::new(world, self.writers, drives.layout));
        let nested = Nested { one_in: self.nested_one_in, images_max: 4, depth_max: 2 };
        let Trial { seed, images_max, .. } = *self;
        let explore = ExploreOptions { seed, exhaustive_max: images_max, images_max, nested };
        let explorer = Explorer::until(shared.clone(), explore, stop);
        let scene = Arc::new(Scene::new(drives, power, shared, explorer));
        let wrong = carry_out(ops, &scene).map_err(|error| error.to_string());
        let report = scene.explorer.finish(&scene.machine().1);
        if report.failure.is_none() {
            wrong?;
        }
        Ok((report, scene.shared.met()))
    }

    fn op(&self, rng: &mut Rng, number: u8) -> Op {
        let writer = match self.writers {
            0 | 1 => FIRST_WRITER,
            writers => FIRST_WRITER + rng.below(writers.into()) as u8,
        };
        match rng.below(20) {
            0 => Op::Sync,
            1 if rng.one_in(4) => Op::Compact,
            1 | 12..=13 if self.squeezes => Op::Squeeze,
            2 if rng.one_in(3) => Op::Reopen,
            2 if self.classes => Op::Arrange(arrange::draw(rng, number)),
            3..=5 if self.troubles && self.classes && !rng.one_in(3) => {
                Op::Trouble(rng.below(6) as u8, Trouble::draw(rng))
            }
            3..=5 => Op::Sleep([1, 40, 101][rng.below(3) as usize]),
            6..=7 => {
                let changes = 1 + rng.below(5);
                Op::Write((0..changes).map(|_| change(rng, writer, number)).collect())
            }
            8..=9 => {
                let changes = 1 + rng.below(5);
                let changes = (0..changes).map(|_| change(rng, writer, number)).collect();
                Op::Transact(changes, !rng.one_in(4))
            }
            10..=11 if self.many_prefixes => {
                let changes = 1 + rng.below(PREFIXES_TOGETHER);
                let changes = (0..changes).map(|_| prefix_or_change(rng, writer, number)).collect();
                if rng.one_in(3) { Op::Transact(changes, true) } else { Op::Write(changes) }
            }
            _ => Op::Write(vec![change(rng, writer, number)]),
        }
    }
}

fn change(rng: &mut Rng, writer: u8, number: u8) -> Change {
    let kvs = rng.below(NAMES.len() as u64) as usize;
    let key = draw_key(rng, writer);
    match rng.below(16) {
        0 => Change { kvs, key: key[..4].to_vec(), to: To::RangeDelete },
        1..=3 => Change { kvs, key, to: To::Gone },
        _ => {
            let bytes = [0, 8, 90, 101, 900, 3000, 9000][rng.below(7) as usize];
            Change { kvs, key, to: To::Value(vec![number; bytes + rng.below(9) as usize]) }
        }
    }
}

/// Draws mostly a range delete: of a single key, or, as often, of a prefix without keys.
fn prefix_or_change(rng: &mut Rng, writer: u8, number: u8) -> Change {
    if rng.one_in(6) {
        return change(rng, writer, number);
    }
    // Most range deletes are of the same `Kvs`, since they have to fill its runs.
    let kvs = usize::from(rng.one_in(4));
    let mut key = draw_key(rng, writer);
    if rng.one_in(2) {
        key.push(b'a' + rng.below(4) as u8);
    }
    Change { kvs, key, to: To::RangeDelete }
}

/// Key `number` of a writer.
fn key(writer: u8, number: u64) -> Vec<u8> {
    let mut key = format!("key{number:02}").into_bytes();
    key[0] = writer;
    key
}

/// Returns the options for a store on a disk.
fn options_on(disk: &Disk) -> KvdbOptions {
    let pmem = disk.is_persistent_memory().then_some(PmemMode { assume_dax: false });
    // Memtable images are written as often as a disk would be synced.
    let durability_interval = match pmem {
        Some(_) => Duration::from_millis(2),
        None => options().durability_interval,
    };
    KvdbOptions { pmem, durability_interval, ..options() }
}

/// Adapts options to histories.
fn of_history(options: KvdbOptions) -> KvdbOptions {
    KvdbOptions { range_deletes_per_run_max: PREFIXES_PER_RUN, ..options }
}

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
        memory_bytes: 2 << 20,
        ..KvdbOptions::default()
    }
}

/// Makes changes to a store; several changes are a batch.
///
/// # Errors
/// Fails if the store refuses them.
pub fn write(store: &Kvdb, changes: &[Change]) -> Result<(), StoreError> {
    let kvs = NAMES.map(|name| store.kvs(name));
    let [one, two] = kvs;
    let kvs = [one?, two?];
    if let [Change { kvs: of, key, to }] = changes {
        let kvs = &kvs[*of];
        let written = match to {
            To::Value(value) => kvs.put(key, value),
            To::Gone => kvs.delete(key),
            To::RangeDelete => kvs.delete_prefix(key),
        };
        return written.map(drop);
    }
    let mut batch = Batch::new();
    for Change { kvs: of, key, to } in changes {
        match to {
            To::Value(value) => batch.put(&kvs[*of], key, value)?,
            To::Gone => batch.delete(&kvs[*of], key)?,
            To::RangeDelete => batch.delete_prefix(&kvs[*of], key)?,
        };
    }
    store.write(&batch).map(drop)
}
