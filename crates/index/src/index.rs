//! The traits of indexes: operations that all of them offer.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use entresol_media::Region;

use crate::{IndexError, Pool};

/// Largest value: indexes reserve the two highest bits.
pub const VALUE_MAX: u64 = (1 << 62) - 1;

/// Refuses values that indexes reserve.
pub(crate) fn check_value(value: u64) -> Result<(), IndexError> {
    match value {
        1..=VALUE_MAX => Ok(()),
        _ => Err(IndexError::Value { value, most: VALUE_MAX }),
    }
}

/// Refuses node sizes that are not whole lines or not in a range.
pub(crate) fn check_node_bytes(
    node_bytes: u64,
    range: RangeInclusive<u64>,
) -> Result<(), IndexError> {
    if range.contains(&node_bytes) && node_bytes.is_multiple_of(64) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    let what = format!(
        "nodes of {node_bytes} bytes are not supported: use a multiple of 64 from {least} to {most}"
    );
    Err(IndexError::Options { what })
}

/// Direction in which a range is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Ascending, from the least key.
    Forward,
    /// Descending, from the greatest key.
    Backward,
}

/// Decision of a visitor about the rest of a walk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// Goes on to the next record.
    On,
    /// Ends the walk.
    Stop,
}

/// Sizes and counters of an index.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Nodes on the medium.
    pub nodes: u64,
    /// Bytes of nodes, and of records outside of nodes.
    pub bytes: u64,
    /// Bytes in DRAM.
    pub volatile_bytes: u64,
    /// Levels from the root to the leaves; 1 if there is nothing above the leaves.
    pub height: u32,
    /// Number of keys.
    pub keys: u64,
    /// Splits since the index was opened.
    pub splits: u64,
    /// Nodes compacted in place since the index was opened.
    pub compactions: u64,
    /// Nodes freed since the index was opened.
    pub merges: u64,
}

/// A map from keys to values that keeps what it acknowledged.
///
/// When a call that changes the index returns, the change is durable; one that a crash interrupts
/// is found done or not begun. Results of `get` and `range` are durable, too: no crash takes them
/// back. Values go from 1 to [`VALUE_MAX`]; several keys may have equal values.
pub trait Index: Send + Sync {
    /// Type of a key: `u64` if all have eight bytes, `[u8]` if they are of any length.
    type Key: Ord + ToOwned + ?Sized;

    /// Adds a key unless it is there; returns true if it was added.
    ///
    /// # Errors
    /// If there is no room, the key or the value cannot be kept, or damage is found.
    fn insert(&self, key: &Self::Key, value: u64) -> Result<bool, IndexError>;

    /// Sets the value of a key, adding the key if it is absent; returns its old value.
    ///
    /// # Errors
    /// If there is no room, the key or the value cannot be kept, or damage is found.
    fn upsert(&self, key: &Self::Key, value: u64) -> Result<Option<u64>, IndexError>;

    /// Returns the value of a key.
    ///
    /// # Errors
    /// If damage is found.
    fn get(&self, key: &Self::Key) -> Result<Option<u64>, IndexError>;

    /// Removes a key; returns its old value.
    ///
    /// # Errors
    /// If damage is found.
    fn remove(&self, key: &Self::Key) -> Result<Option<u64>, IndexError>;

    /// Passes records to `visit` in the order of their keys, beginning at `from`, until `visit`
    /// stops the walk. A record that is added or removed meanwhile may be passed or not; every
    /// other record is passed once.
    ///
    /// # Errors
    /// If damage is found.
    fn range(
        &self,
        from: Bound<&Self::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&Self::Key, u64) -> Flow,
    ) -> Result<(), IndexError>;

    /// Passes values as `range` does, but without keys: for callers that reach the record through
    /// its value.
    ///
    /// # Errors
    /// If damage is found.
    fn range_values(
        &self,
        from: Bound<&Self::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.range(from, direction, &mut |_, value| visit(value))
    }

    /// Computes sizes and counters by a walk over the whole index.
    ///
    /// # Errors
    /// If damage is found.
    fn statistics(&self) -> Result<Statistics, IndexError>;
}

impl<I: Index + ?Sized> Index for Arc<I> {
    type Key = I::Key;

    fn insert(&self, key: &I::Key, value: u64) -> Result<bool, IndexError> {
        (**self).insert(key, value)
    }

    fn upsert(&self, key: &I::Key, value: u64) -> Result<Option<u64>, IndexError> {
        (**self).upsert(key, value)
    }

    fn get(&self, key: &I::Key) -> Result<Option<u64>, IndexError> {
        (**self).get(key)
    }

    fn remove(&self, key: &I::Key) -> Result<Option<u64>, IndexError> {
        (**self).remove(key)
    }

    fn range(
        &self,
        from: Bound<&I::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&I::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        (**self).range(from, direction, visit)
    }

    fn range_values(
        &self,
        from: Bound<&I::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), IndexError> {
        (**self).range_values(from, direction, visit)
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        (**self).statistics()
    }
}

/// An index that lies in a pool.
pub trait Persistent<R: Region>: Index + Sized {
    /// Options for making an index.
    type Options: Clone + Default + Send + Sync;

    /// Opens the index at this root of the pool, after a crash or not, or makes an empty one if the
    /// root is 0. May return before all parts in DRAM are rebuilt: the rest is rebuilt by
    /// operations that need it, or in the background.
    ///
    /// # Errors
    /// If the options are impossible, the root leads to an index of another type, there is no room,
    /// or damage is found.
    fn open(pool: &Arc<Pool<R>>, root: usize, options: &Self::Options) -> Result<Self, IndexError>;

    /// Passes every block that the index occupies in the pool to `visit`, while other threads use
    /// the index. A block that is occupied all the time is passed at least once.
    ///
    /// # Errors
    /// If damage is found.
    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError>;
}
