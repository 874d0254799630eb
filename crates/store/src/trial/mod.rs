//! Histories with crashes: what suites run.
//!
//! A history is carried out on a simulated disk in a simulated world. At every moment at which
//! something becomes durable, or could be seen to, the disk is opened as a crash might leave it,
//! and what the store holds then must be what it held after some beginning of the history: one that
//! has everything that was acknowledged before the last sync, or longer ago than the durability
//! interval. If only the process dies, or the store lies on persistent memory, it must have
//! everything that was acknowledged.
//!
//! In some each class of media is a drive of its own, of which one is slow or fails for a while, or
//! for ever, or is missing when the store is opened. What was refused then may have been written or
//! not; once a store has said that it writes nothing any more, nothing is acknowledged, until it is
//! opened again by another process, or after a power cut.
//!
//! In some histories several threads write, each keys of its own, of which all this must hold.
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
use entresol_media::crash::{ExploreOptions, Explorer, Nested, Power, Report};
use entresol_media::disk::Disk;

use crate::{Batch, Kvdb, KvdbOptions, StoreError};
use after::Shared;
use carry_out::{Scene, carry_out, draw_key};
use drives::Drives;

pub use arrange::Arrangement;
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

/// The `Kvs` of a history.
pub const NAMES: [&str; 2] = ["one", "two"];
const KEYS: u64 = 24;
/// What keys of the first writer begin with; those of the next one with the next letter.
const FIRST_WRITER: u8 = b'k';
/// Values beside their keys have at most so many bytes.
const INLINE_BYTES: u32 = 100;
/// So few removed prefixes are said by one run: a flush may write several, and a merge has to take
/// all.
const PREFIXES_PER_RUN: u32 = 6;
/// The most prefixes that are removed together.
const PREFIXES_TOGETHER: u64 = 20;

/// Something that is done to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes; several are a batch.
    Write(Vec<Change>),
    /// Writes in a transaction, which is given up if it is not to be committed.
    Transact(Vec<Change>, bool),
    /// Makes all durable.
    Sync,
    /// Flushes and compactions everything.
    Compact,
    /// Lets time pass, in milliseconds.
    Sleep(u64),
    /// Closes the store and opens it again.
    Reopen,
    /// Changes where data lie.
    Arrange(Arrangement),
    /// One of the drives, by its order, gets into trouble, or out of it.
    Trouble(u8, Trouble),
}

/// A change of one `Kvs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which `Kvs`.
    pub kvs: usize,
    /// Which key, or the beginning of all keys that go.
    pub key: Vec<u8>,
    /// What becomes of it.
    pub to: To,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// It gets a value.
    Value(Vec<u8>),
    /// It goes.
    Gone,
    /// It goes, with all that begin so.
    RangeDelete,
}

impl Op {
    /// Who does it: he to whom its keys belong.
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
            Op::Sleep(time) => write!(f, "sleep {time} ms"),
            Op::Reopen => write!(f, "reopen"),
            Op::Arrange(arrangement) => arrangement.fmt(f),
            Op::Trouble(drive, trouble) => write!(f, "drive {drive}: {trouble}"),
        }
    }
}

/// How a history is tried.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Decides everything.
    pub seed: u64,
    /// So many threads write.
    pub writers: u8,
    /// One recovery in so many is cut off by crashes itself; 0 is none.
    pub nested_one_in: u32,
    /// So many images are looked at, at each moment.
    pub images_max: u32,
    /// Whether the store lies on persistent memory: then whatever was acknowledged must be there.
    pub pmem: bool,
    /// Whether it has several volumes, of which the fastest are soon full.
    pub classes: bool,
    /// Whether each of the volumes is on a drive of its own, of which some get into trouble;
    /// without several volumes none do.
    pub troubles: bool,
    /// Whether prefixes are removed in numbers that one run cannot say.
    pub many_prefixes: bool,
}

/// What was met in histories, and how often: what drives in trouble, and many prefixes, led to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Met(pub BTreeMap<&'static str, u64>);

impl Met {
    /// Adds what was met elsewhere.
    pub fn add(&mut self, other: &Met) {
        for (what, times) in &other.0 {
            *self.0.entry(what).or_default() += times;
        }
    }

    /// How often something was met.
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
    /// The history of this seed, as it is usually tried.
    #[must_use]
    pub fn of(seed: u64) -> Trial {
        let writers = if (seed / 3).is_multiple_of(2) { 1 } else { 3 };
        let pmem = seed % 4 == 3;
        let classes = seed % 5 < 2;
        let troubles = classes && (seed / 5).is_multiple_of(2);
        // Trouble is drawn anew in each history: rather more of them than more images of each.
        let images_max = if troubles { 3 } else { 8 };
        let (nested_one_in, many_prefixes) = (16, seed % 7 < 2);
        Trial { seed, writers, nested_one_in, images_max, pmem, classes, troubles, many_prefixes }
    }

    /// A history.
    #[must_use]
    pub fn history(&self, len: usize) -> Vec<Op> {
        let mut rng = Rng::named(self.seed, "history");
        (0..len).map(|number| self.op(&mut rng, number as u8)).collect()
    }

    /// Carries out a history, with crashes all the way.
    ///
    /// # Errors
    /// If it cannot be carried out; what a crash must not leave is in the report.
    pub fn run(&self, ops: &[Op]) -> Result<Report, String> {
        self.run_until(ops, &Stop::new())
    }

    /// Carries out a history as [`run`](Trial::run) does, and breaks it off once an end is due.
    ///
    /// # Errors
    /// As [`run`](Trial::run).
    pub fn run_until(&self, ops: &[Op], stop: &Stop) -> Result<Report, String> {
        self.counted_until(ops, stop).map(|(report, _)| report)
    }

    /// The same, and answers what was met.
    ///
    /// # Errors
    /// As [`run`](Trial::run).
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

/// Mostly a prefix goes: a key by itself, or, as often, what no key begins with.
fn prefix_or_change(rng: &mut Rng, writer: u8, number: u8) -> Change {
    if rng.one_in(6) {
        return change(rng, writer, number);
    }
    // Mostly of one of them: one run has to say them all.
    let kvs = usize::from(rng.one_in(4));
    let mut key = draw_key(rng, writer);
    if rng.one_in(2) {
        key.push(b'a' + rng.below(4) as u8);
    }
    Change { kvs, key, to: To::RangeDelete }
}

/// A key of a writer.
fn key(writer: u8, number: u64) -> Vec<u8> {
    let mut key = format!("key{number:02}").into_bytes();
    key[0] = writer;
    key
}

/// How a store is opened that lies on a disk.
fn options_on(disk: &Disk) -> KvdbOptions {
    let pmem = disk.is_persistent_memory().then_some(PmemMode { assume_dax: false });
    // Images are made as often as a disk would be synced.
    let durability_interval = match pmem {
        Some(_) => Duration::from_millis(2),
        None => options().durability_interval,
    };
    KvdbOptions { pmem, durability_interval, ..options() }
}

/// The same where a history is carried out.
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

/// Makes changes to a store; several at once are a batch.
///
/// # Errors
/// If the store refuses them.
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
