//! Indexes by name, with the maps that they are compared with.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Bound;
use std::str::FromStr;
use std::sync::Arc;

use crossbeam_skiplist::SkipMap;
use entresol_base::suggest;
use entresol_base::sync::RwLock;
use entresol_index::keys::Inline;
use entresol_index::{
    Direction, FastFair, FastFairOptions, Flow, FpTree, FpTreeOptions, HybridIndex,
    HybridIndexPlus, HybridOptions, HybridPlusOptions, Index, IndexError, Ods, OdsOptions,
    Persistent, Pool, SkipList, Statistics, SvTree, WbTree, WbTreeOptions,
};
use entresol_media::Region;
use serde::{Serialize, Serializer};

use crate::error::BenchError;

/// Any index with keys of eight bytes.
pub type AnyIndex = Arc<dyn Index<Key = u64>>;

/// Root of the pool at which an index is stored.
const ROOT: usize = 0;

/// Name of an index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum IndexName {
    /// FAST and FAIR: sorted nodes with shifts.
    FastFair,
    /// One-direction shift tree: sorted nodes with holes.
    Ods,
    /// This library's own tree: self-validating leaves, inner nodes in DRAM.
    SvTree,
    /// wB+-tree: unsorted nodes with a bitmap and a slot array.
    WbTree,
    /// FP-Tree: leaves with fingerprints, inner nodes in DRAM.
    FpTree,
    /// Sorted list under towers in DRAM.
    SkipList,
    /// Hash table on the medium, tree in DRAM.
    HybridIndex,
    /// FAST and FAIR on the medium, hash table in DRAM.
    HybridIndexPlus,
    /// Ordered map of the standard library behind a lock, for comparison; not persistent.
    BTreeMap,
    /// Skip list of crossbeam, for comparison; not persistent.
    SkipMap,
}

impl IndexName {
    /// All indexes.
    pub const ALL: [IndexName; 10] = [
        IndexName::FastFair,
        IndexName::Ods,
        IndexName::SvTree,
        IndexName::WbTree,
        IndexName::FpTree,
        IndexName::SkipList,
        IndexName::HybridIndex,
        IndexName::HybridIndexPlus,
        IndexName::BTreeMap,
        IndexName::SkipMap,
    ];

    /// Persistent indexes.
    pub const PERSISTENT: [IndexName; 8] = [
        IndexName::FastFair,
        IndexName::Ods,
        IndexName::SvTree,
        IndexName::WbTree,
        IndexName::FpTree,
        IndexName::SkipList,
        IndexName::HybridIndex,
        IndexName::HybridIndexPlus,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            IndexName::FastFair => "fast-fair",
            IndexName::Ods => "ods",
            IndexName::SvTree => "sv-tree",
            IndexName::WbTree => "wb-tree",
            IndexName::FpTree => "fp-tree",
            IndexName::SkipList => "skip-list",
            IndexName::HybridIndex => "hybrid-index",
            IndexName::HybridIndexPlus => "hybrid-index-plus",
            IndexName::BTreeMap => "btree-map",
            IndexName::SkipMap => "skip-map",
        }
    }

    /// Returns true if the index has threads of its own; its runs then repeat only in a world.
    #[must_use]
    pub const fn has_threads(self) -> bool {
        matches!(self, IndexName::HybridIndex | IndexName::HybridIndexPlus)
    }

    /// Opens the index in a pool, or creates it.
    ///
    /// # Errors
    /// Returns the error of the index.
    pub fn open<R: Region + 'static>(
        self,
        pool: &Arc<Pool<R>>,
        node_bytes: Option<u64>,
    ) -> Result<AnyIndex, BenchError> {
        match self {
            IndexName::FastFair => {
                let mut options = FastFairOptions::default();
                choose(&mut options.node_bytes, node_bytes);
                open::<R, FastFair<R>>(pool, &options)
            }
            IndexName::Ods => {
                let mut options = OdsOptions::default();
                choose(&mut options.node_bytes, node_bytes);
                open::<R, Ods<R>>(pool, &options)
            }
            IndexName::SvTree => match node_bytes.unwrap_or(256) {
                256 => open::<R, SvTree<R, Inline, 4>>(pool, &Inline),
                512 => open::<R, SvTree<R, Inline, 8>>(pool, &Inline),
                1024 => open::<R, SvTree<R, Inline, 16>>(pool, &Inline),
                given => Err(BenchError::Usage(format!(
                    "nodes of {given} bytes cannot be had: use 256, 512 or 1024"
                ))),
            },
            IndexName::WbTree => {
                let options =
                    node_bytes.map_or(Ok(WbTreeOptions::default()), WbTreeOptions::of_bytes);
                open::<R, WbTree<R>>(pool, &options.map_err(failed)?)
            }
            IndexName::FpTree => {
                let options =
                    node_bytes.map_or(Ok(FpTreeOptions::default()), FpTreeOptions::of_bytes);
                open::<R, FpTree<R>>(pool, &options.map_err(failed)?)
            }
            IndexName::HybridIndexPlus => {
                let mut options = HybridPlusOptions::<FastFairOptions>::default();
                choose(&mut options.tree.node_bytes, node_bytes);
                open::<R, HybridIndexPlus<FastFair<R>>>(pool, &options)
            }
            _ if node_bytes.is_some() => {
                let problem = "it has no nodes of a size to choose: leave --node-bytes out, or \
                               name other indexes by --index";
                Err(BenchError::Usage(problem.to_owned()))
            }
            IndexName::SkipList => open::<R, SkipList<R>>(pool, &()),
            IndexName::HybridIndex => open::<R, HybridIndex<R>>(pool, &HybridOptions::default()),
            IndexName::BTreeMap => Ok(Arc::new(StandardMap::default())),
            IndexName::SkipMap => Ok(Arc::new(CrossbeamMap::default())),
        }
    }
}

/// Sets the bytes of a node if they are given. A number beyond `u32` becomes the maximum, which the
/// index refuses.
fn choose(node_bytes: &mut u32, given: Option<u64>) {
    if let Some(given) = given {
        *node_bytes = u32::try_from(given).unwrap_or(u32::MAX);
    }
}

fn open<R, I>(pool: &Arc<Pool<R>>, options: &I::Options) -> Result<AnyIndex, BenchError>
where
    R: Region,
    I: Persistent<R, Key = u64> + 'static,
{
    Ok(Arc::new(I::open(pool, ROOT, options).map_err(failed)?))
}

/// Converts an error of an index.
#[must_use]
pub fn failed(error: IndexError) -> BenchError {
    match error {
        IndexError::Options { .. } => BenchError::Usage(error.to_string()),
        _ => BenchError::Failed(error.to_string()),
    }
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
        found.ok_or_else(|| suggest::unknown("index", text, &IndexName::ALL.map(IndexName::name)))
    }
}

/// Map of the standard library behind a lock.
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

/// Skip list of crossbeam.
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
