//! Errors of indexes and their pools.

use std::io;

use entresol_base::ByteSize;

/// Reasons why an index cannot carry out an operation.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// The pool has no room left for a block.
    #[error(
        "the pool of {pool} is full: {bytes} were asked for{sweeping}; remove keys or make a \
         larger pool"
    )]
    Full {
        /// Bytes of the pool.
        pool: ByteSize,
        /// Bytes that were asked for.
        bytes: ByteSize,
        /// Remark that a sweep may yet find room, or nothing.
        sweeping: &'static str,
    },
    /// The value is reserved by indexes.
    #[error("the value {value:#x} is reserved: use 1 to {most:#x}")]
    Value {
        /// Value that was given.
        value: u64,
        /// Largest value: [`VALUE_MAX`](crate::VALUE_MAX).
        most: u64,
    },
    /// The key is too long.
    #[error("the key has {given} bytes, but at most {longest} fit: shorten it")]
    KeyTooLong {
        /// Bytes of the key.
        given: usize,
        /// Bytes of the longest key.
        longest: usize,
    },
    /// Too many keys have equal hash bits for a table to tell them apart.
    #[error(
        "no room for the key {key:#x}: too many keys have the same {bits} bits of their hashes; \
         make the table with another seed"
    )]
    Alike {
        /// Key that was given.
        key: u64,
        /// Number of hash bits by which the table tells keys apart.
        bits: u32,
    },
    /// The region holds no pool, or one that cannot be opened.
    #[error("the region of {region} {what}")]
    NoPool {
        /// Bytes of the region.
        region: ByteSize,
        /// Description of the region's contents, and advice.
        what: String,
    },
    /// The options of a new pool or index are impossible.
    #[error("{what}")]
    Options {
        /// Description of the option, and of values that would do.
        what: String,
    },
    /// A root leads to an index of another type.
    #[error(
        "root {root} of the pool leads to {found}, but {asked} was asked for: open it by its own \
         type, or give another root"
    )]
    OtherIndex {
        /// Number of the root.
        root: usize,
        /// Type that was found.
        found: String,
        /// Type that was to be opened.
        asked: String,
    },
    /// The region holds bytes that this index cannot have written.
    #[error("the index is damaged at {offset}: {what}; restore it or build it anew")]
    Damaged {
        /// Offset of the damage.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// A thread that the index needs has panicked; its message is in the log.
    #[error("the {thread} has panicked; open the index anew")]
    Stopped {
        /// Name of the thread.
        thread: &'static str,
    },
    /// Bytes that were flushed may not be durable.
    #[error("the region's bytes may not be durable: {0}; nothing written since can be trusted")]
    NotDurable(io::Error),
}

impl IndexError {
    /// Returns the error for damage at `offset`.
    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> IndexError {
        IndexError::Damaged { offset, what: what.into() }
    }
}
