//! The indexes by name, and what they are compared with.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use entresol_base::suggest;
use entresol_base::sync::RwLock;
use entresol_index::{
    Direction, Flow, FpTree, FpTreeOptions, Index, IndexError, Persistent, Pool, SkipList,
    Statistics,
};
use entresol_media::Region;
use serde::{Serialize, Serializer};

use crate::error::BenchError;

/// An index with keys of eight bytes, whichever.
pub(crate) type AnyIndex = Arc<dyn Index<Key = u64>>;

/// The root at which an index on trial lies.
const ROOT: usize = 0;

/// An index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexName {
    /// Fingerprints; inner nodes in DRAM.
    FpTree,
    /// A sorted list under towers in DRAM.
    SkipList,
    /// The standard library's ordered map behind a lock, for comparison: keeps nothing.
    BTreeMap,
    /// The skip list of crossbeam, for comparison: keeps nothing.
    SkipMap,
}

impl IndexName {
    /// All of them.
    pub const ALL: [IndexName; 4] =
        [IndexName::FpTree, IndexName::SkipList, IndexName::BTreeMap, IndexName::SkipMap];

    /// Those that keep what they hold.
    pub const PERSISTENT: [IndexName; 2] = [IndexName::FpTree, IndexName::SkipList];

    /// Its name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            IndexName::FpTree => "fp-tree",
            IndexName::SkipList => "skip-list",
            IndexName::BTreeMap => "btree-map",
            IndexName::SkipMap => "skip-map",
        }
    }

    /// Whether it has threads of its own, so that only a world makes it repeatable.
    #[must_use]
    pub const fn has_threads(self) -> bool {
        false
    }

    /// Opens or makes it in a pool.
    ///
    /// # Errors
    /// What the index says.
    pub(crate) fn open<R: Region + 'static>(
        self,
        pool: &Arc<Pool<R>>,
        node_bytes: Option<u64>,
    ) -> Result<AnyIndex, BenchError> {
        if node_bytes.is_some() && !self.has_nodes() {
            let problem = format!("{self} has no nodes of a given size: leave --node-bytes out");
            return Err(BenchError::Usage(problem));
        }
        Ok(match self {
            IndexName::FpTree => any(FpTree::open(pool, ROOT, &FpTreeOptions::default()))?,
            IndexName::SkipList => any(SkipList::open(pool, ROOT, &()))?,
            IndexName::BTreeMap => Arc::new(StandardMap::default()),
            IndexName::SkipMap => Arc::new(CrossbeamMap::default()),
        })
    }

    /// Whether the bytes of its nodes can be chosen.
    const fn has_nodes(self) -> bool {
        false
    }
}

fn any<I: Index<Key = u64> + 'static>(
    opened: Result<I, IndexError>,
) -> Result<AnyIndex, BenchError> {
    Ok(Arc::new(opened.map_err(failed)?))
}

/// What an index says went wrong.
pub(crate) fn failed(error: IndexError) -> BenchError {
    BenchError::Failed(error.to_string())
}

impl fmt::Display for IndexName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Serialize for IndexName {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl FromStr for IndexName {
    type Err = String;

    fn from_str(text: &str) -> Result<IndexName, String> {
        let found = IndexName::ALL.into_iter().find(|index| index.name() == text);
        found.ok_or_else(|| {
            let names = IndexName::ALL.map(IndexName::name);
            let near = suggest::nearest(text, names);
            let near = near.map(|name| format!("; did you mean {name}?")).unwrap_or_default();
            format!("no such index; there are {}{near}", names.join(", "))
        })
    }
}

/// The standard library's map behind a lock.
#[derive(Default)]
struct StandardMap(RwLock<BTreeMap<u64, u64>>);

impl Index for StandardMap {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        let mut added = false;
        self.0.write().entry(*key).or_insert_with(|| {
            added = true;
            value
        });
        Ok(added)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        Ok(self.0.write().insert(*key, value))
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        Ok(self.0.read().get(key).copied())
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        Ok(self.0.write().remove(key))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let map = self.0.read();
        let from = from.cloned();
        let mut show = |(key, value): (&u64, &u64)| visit(key, *value) == Flow::On;
        match direction {
            Direction::Forward => map.range((from, Bound::Unbounded)).all(&mut show),
            Direction::Backward => map.range((Bound::Unbounded, from)).rev().all(&mut show),
        };
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        Ok(keys_only(self.0.read().len()))
    }
}

/// Crossbeam's skip list.
#[derive(Default)]
struct CrossbeamMap(SkipMap<u64, u64>);

impl Index for CrossbeamMap {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        let is_new = !self.0.contains_key(key);
        self.0.get_or_insert(*key, value);
        Ok(is_new)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        let before = self.get(key)?;
        self.0.insert(*key, value);
        Ok(before)
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        Ok(self.0.get(key).map(|entry| *entry.value()))
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        Ok(self.0.remove(key).map(|entry| *entry.value()))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let from = from.cloned();
        match direction {
            Direction::Forward => {
                self.0
                    .range((from, Bound::Unbounded))
                    .all(|entry| visit(entry.key(), *entry.value()) == Flow::On);
            }
            Direction::Backward => {
                self.0
                    .range((Bound::Unbounded, from))
                    .rev()
                    .all(|entry| visit(entry.key(), *entry.value()) == Flow::On);
            }
        }
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        Ok(keys_only(self.0.len()))
    }
}

fn keys_only(keys: usize) -> Statistics {
    let mut statistics = Statistics::default();
    statistics.keys = keys as u64;
    statistics
}
