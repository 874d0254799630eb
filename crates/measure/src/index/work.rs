//! Workloads: operations of a thread on an index, and the results that they must have.

use std::fmt;
use std::ops::{Bound, Range};
use std::str::FromStr;

use entresol_base::suggest;
use entresol_index::{Direction, Flow, Index};
use fastrand::Rng;
use serde::{Serialize, Serializer};

use super::Keys;
use super::subjects::failed;
use crate::error::BenchError;
use crate::popularity::{KeyChooser, Popularity};

/// Records that a scan visits.
const SCAN_LEN: u64 = 100;

/// Workload on an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Workload {
    /// Inserts new keys.
    Insert,
    /// Looks for keys that exist.
    Read,
    /// Looks for keys that do not exist.
    Absent,
    /// Changes values of keys that exist.
    Update,
    /// Visits a hundred records from a random key on.
    Scan,
    /// Removes the oldest keys, in the order of their insertion.
    Delete,
    /// Mix of three inserts, one removal and one look-up (W1 of 003).
    W1,
    /// Mix of one insert, one removal and three look-ups (W2 of 003).
    W2,
}

impl Workload {
    /// All workloads.
    pub const ALL: [Workload; 8] = [
        Workload::Insert,
        Workload::Read,
        Workload::Absent,
        Workload::Update,
        Workload::Scan,
        Workload::Delete,
        Workload::W1,
        Workload::W2,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Workload::Insert => "insert",
            Workload::Read => "read",
            Workload::Absent => "absent",
            Workload::Update => "update",
            Workload::Scan => "scan",
            Workload::Delete => "delete",
            Workload::W1 => "w1",
            Workload::W2 => "w2",
        }
    }
}

impl fmt::Display for Workload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for Workload {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl FromStr for Workload {
    type Err = String;

    fn from_str(text: &str) -> Result<Workload, String> {
        let found = Workload::ALL.into_iter().find(|workload| workload.name() == text);
        found.ok_or_else(|| suggest::unknown("workload", text, &Workload::ALL.map(Workload::name)))
    }
}

/// Worker of one thread with its part of the keys: every `of`-th key, which no other worker
/// changes. It occupies cache lines of its own, since threads would otherwise wait for each other's
/// draws; processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub struct Worker {
    keys: Keys,
    /// Number of this worker, and below it the number of workers.
    part: u64,
    of: u64,
    /// Numbers within the part whose keys are in the index.
    window: Range<u64>,
    /// Number of updates so far, which gives each a new value.
    updates: u64,
    rng: Rng,
    chooser: KeyChooser,
}

impl Worker {
    /// Creates the worker of part `part` of `of` for an empty index.
    pub fn new(seed: u64, (part, of): (u64, u64)) -> Worker {
        let rng = Rng::with_seed(seed ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let chooser = KeyChooser::new(Popularity::Uniform, 1);
        Worker { keys: Keys::new(seed), part, of, window: 0..0, updates: 0, rng, chooser }
    }

    /// Creates one of several workers that read and update any of the first `keys` keys of `seed`.
    /// It neither inserts nor removes keys.
    pub fn over(seed: u64, keys: u64, number: u64) -> Worker {
        let rng = Rng::with_seed(seed ^ (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut worker = Worker { rng, ..Worker::new(seed, (0, 1)) };
        worker.window = 0..keys;
        worker.choose(Popularity::Uniform);
        worker
    }

    /// Sets the popularity by which existing keys are chosen.
    pub fn choose(&mut self, popularity: Popularity) {
        self.chooser = KeyChooser::new(popularity, self.window.end - self.window.start);
    }

    /// Returns true if any of the worker's keys is in the index.
    pub fn has_keys(&self) -> bool {
        !self.window.is_empty()
    }

    /// Returns this worker's share of `operations` operations.
    pub fn share(&self, operations: u64) -> u64 {
        (operations + self.of - 1 - self.part) / self.of
    }

    fn number(&self, within: u64) -> u64 {
        within * self.of + self.part
    }

    /// Performs one operation.
    #[inline]
    pub fn step(
        &mut self,
        workload: Workload,
        index: &dyn Index<Key = u64>,
    ) -> Result<(), BenchError> {
        match workload {
            Workload::Insert => self.insert(index),
            Workload::Read => self.read(index),
            Workload::Absent => self.absent(index),
            Workload::Update => self.update(index),
            Workload::Scan => self.scan(index),
            Workload::Delete => self.delete(index),
            Workload::W1 => match self.rng.u8(..5) {
                0..3 => self.insert(index),
                3 => self.delete(index),
                _ => self.read(index),
            },
            Workload::W2 => match self.rng.u8(..5) {
                0 => self.insert(index),
                1 => self.delete(index),
                _ => self.read(index),
            },
        }
    }

    fn insert(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        let number = self.number(self.window.end);
        self.window.end += 1;
        let added = index.insert(&self.keys.key(number), Keys::value(number, 0)).map_err(failed)?;
        right(added, || format!("key {number} was new, but not added"))
    }

    fn chosen(&mut self) -> u64 {
        let count = self.window.end - self.window.start;
        let drawn = self.chooser.next(&mut self.rng);
        // The number of keys may have changed since the chooser was created.
        self.number(self.window.start + if drawn < count { drawn } else { drawn % count.max(1) })
    }

    fn read(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        let number = self.chosen();
        let found = index.get(&self.keys.key(number)).map_err(failed)?;
        let is_right = found.is_some_and(|value| Keys::is_value(value, number));
        right(is_right, || format!("key {number} has {found:?}"))
    }

    fn absent(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        let number = u64::MAX - self.rng.u64(..1 << 40);
        let found = index.get(&self.keys.key(number)).map_err(failed)?;
        right(found.is_none(), || format!("key {number} was never added, and has {found:?}"))
    }

    fn update(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        let number = self.chosen();
        self.updates += 1;
        let value = Keys::value(number, self.updates);
        let before = index.upsert(&self.keys.key(number), value).map_err(failed)?;
        let is_right = before.is_some_and(|value| Keys::is_value(value, number));
        right(is_right, || format!("key {number} had {before:?}"))
    }

    fn delete(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        if self.window.start == self.window.end {
            let problem = "no keys are left to remove: load more --keys".to_owned();
            return Err(BenchError::Usage(problem));
        }
        let number = self.number(self.window.start);
        self.window.start += 1;
        let before = index.remove(&self.keys.key(number)).map_err(failed)?;
        let is_right = before.is_some_and(|value| Keys::is_value(value, number));
        right(is_right, || format!("key {number} had {before:?}"))
    }

    fn scan(&mut self, index: &dyn Index<Key = u64>) -> Result<(), BenchError> {
        let number = self.chosen();
        let first = self.keys.key(number);
        let (mut shown, mut last, mut in_order) = (0, None, true);
        let shows = &mut |key: &u64, _value: u64| {
            in_order &= last.is_none_or(|last| last < *key) && *key >= first;
            last = Some(*key);
            shown += 1;
            if shown < SCAN_LEN { Flow::On } else { Flow::Stop }
        };
        index.range(Bound::Included(&first), Direction::Forward, shows).map_err(failed)?;
        right(in_order && shown > 0, || format!("a scan from key {number} is out of order"))
    }
}

fn right(is_right: bool, what: impl FnOnce() -> String) -> Result<(), BenchError> {
    if is_right { Ok(()) } else { Err(BenchError::Failed(what())) }
}
