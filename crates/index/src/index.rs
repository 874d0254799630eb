//! What every index can do.

use std::ops::{Bound, RangeInclusive};
use std::sync::Arc;

use entresol_media::Region;

use crate::{IndexError, Pool};

/// The largest value: the two highest bits are the indexes' own.
pub const VALUE_MAX: u64 = (1 << 62) - 1;

/// Refuses values that mean something else to an index.
pub(crate) fn check_value(value: u64) -> Result<(), IndexError> {
    match value {
        1..=VALUE_MAX => Ok(()),
        _ => Err(IndexError::Value { value, most: VALUE_MAX }),
    }
}

/// Refuses nodes that are not whole lines, or not of a size in a range.
pub(crate) fn check_node_bytes(
    node_bytes: u64,
    range: RangeInclusive<u64>,
) -> Result<(), IndexError> {
    if range.contains(&node_bytes) && node_bytes.is_multiple_of(64) {
        return Ok(());
    }
    let (least, most) = (range.start(), range.end());
    let what = format!(
        "nodes of {node_bytes} bytes cannot be had: use a multiple of 64 from {least} to {most}"
    );
    Err(IndexError::Options { what })
}

/// Which way a range is walked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Direction {
    /// From the least key up.
    Forward,
    /// From the greatest key down.
    Backward,
}

/// Whether a walk goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// To the next record.
    On,
    /// No further.
    Stop,
}

/// What an index consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Statistics {
    /// Nodes on the medium.
    pub nodes: u64,
    /// Their bytes, and those of records apart from nodes.
    pub bytes: u64,
    /// Bytes in DRAM.
    pub volatile_bytes: u64,
    /// Levels from the root to the leaves; 1 where there is nothing above them.
    pub height: u32,
    /// Keys.
    pub keys: u64,
    /// Splits since it was opened.
    pub splits: u64,
    /// Nodes made compact in place since it was opened.
    pub compactions: u64,
    /// Nodes given back since it was opened.
    pub merges: u64,
}

/// A map from keys to values that keeps what it acknowledged.
///
/// When a call that changes something returns, the change is durable; one that a crash interrupts
/// is found done or not begun. What `get` and `range` show is durable, too: no crash takes it back.
/// Values go from 1 to [`VALUE_MAX`]; two keys may have the same.
pub trait Index: Send + Sync {
    /// A key: `u64` where all have eight bytes, `[u8]` where they are of any length.
    type Key: Ord + ToOwned + ?Sized;

    /// Adds a key unless it is there; says whether it was added.
    ///
    /// # Errors
    /// If there is no room, the key or the value cannot be kept, or damage is found.
    fn insert(&self, key: &Self::Key, value: u64) -> Result<bool, IndexError>;

    /// Gives a key a value, whether or not it is there; says which it had.
    ///
    /// # Errors
    /// If there is no room, the key or the value cannot be kept, or damage is found.
    fn upsert(&self, key: &Self::Key, value: u64) -> Result<Option<u64>, IndexError>;

    /// The value of a key.
    ///
    /// # Errors
    /// If damage is found.
    fn get(&self, key: &Self::Key) -> Result<Option<u64>, IndexError>;

    /// Removes a key; says which value it had.
    ///
    /// # Errors
    /// If damage is found.
    fn remove(&self, key: &Self::Key) -> Result<Option<u64>, IndexError>;

    /// Shows records in the order of their keys, beginning at `from`, until `visit` stops it. A
    /// record that is added or removed meanwhile is shown or not; every other one once.
    ///
    /// # Errors
    /// If damage is found.
    fn range(
        &self,
        from: Bound<&Self::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&Self::Key, u64) -> Flow,
    ) -> Result<(), IndexError>;

    /// The same without the keys, for whom the values lead to what he wants.
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

    /// What it consists of; walks all of it.
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
    /// What can be chosen when one is made.
    type Options: Clone + Default + Send + Sync;

    /// Opens the index whose root is in this slot of the pool, after a crash or not, or makes an
    /// empty one if the slot is 0. May answer before everything is as it was: what is still to be
    /// rebuilt is rebuilt by those who need it, or behind their backs.
    ///
    /// # Errors
    /// If the options cannot be had, the slot leads to an index of another type, there is no room,
    /// or damage is found.
    fn open(pool: &Arc<Pool<R>>, root: usize, options: &Self::Options) -> Result<Self, IndexError>;

    /// Shows every block that it occupies in the pool, while others go on using it. A block that
    /// was there all the time is shown at least once.
    ///
    /// # Errors
    /// If damage is found.
    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError>;
}
