//! What can go wrong with an index or its pool.

use std::io;

use entresol_base::ByteSize;

/// Why an index cannot do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum IndexError {
    /// No room is left for a block.
    #[error(
        "the pool of {pool} is full: {bytes} were asked for{sweeping}; remove keys or make a \
         larger pool"
    )]
    Full {
        /// How large the pool is.
        pool: ByteSize,
        /// What was asked for.
        bytes: ByteSize,
        /// Whether a sweep may yet find room.
        sweeping: &'static str,
    },
    /// A value that means something else to an index.
    #[error("the value {value:#x} cannot be kept: values go from 1 to {most:#x}")]
    Value {
        /// The value.
        value: u64,
        /// [`VALUE_MAX`](crate::VALUE_MAX).
        most: u64,
    },
    /// A key that is too long.
    #[error("a key of {given} bytes; the longest is {longest}")]
    KeyTooLong {
        /// Its bytes.
        given: usize,
        /// The most that there can be.
        longest: usize,
    },
    /// So many keys have the same bits of their hashes that a table cannot tell them apart.
    #[error(
        "no room for the key {key:#x}: too many keys have the same {bits} bits of their hashes; \
         make the table with another seed"
    )]
    Alike {
        /// The key.
        key: u64,
        /// How many bits a table tells keys apart by.
        bits: u32,
    },
    /// The region holds no pool, or one that cannot be opened.
    #[error("the region of {region} {what}")]
    NoPool {
        /// How large the region is.
        region: ByteSize,
        /// What is there instead, and what to do.
        what: String,
    },
    /// What was asked of a pool or an index when it was made cannot be had.
    #[error("{what}")]
    Options {
        /// What, and what would do.
        what: String,
    },
    /// A root leads to an index of another type.
    #[error(
        "root {root} of the pool leads to {found}, and {asked} was asked for: open it as what it \
         is, or give another root"
    )]
    OtherIndex {
        /// Which root.
        root: usize,
        /// What is there.
        found: String,
        /// What was to be opened.
        asked: String,
    },
    /// What lies in the region cannot have been written by this index.
    #[error("the index is damaged at {offset}: {what}; restore it or build it anew")]
    Damaged {
        /// Where.
        offset: u64,
        /// What is there.
        what: String,
    },
    /// A thread that an index needs has panicked; what it said stands in the log.
    #[error("the {thread} has panicked; open the index anew")]
    Stopped {
        /// What the thread was.
        thread: &'static str,
    },
    /// Something that was flushed may not be durable.
    #[error("the region's bytes may not be durable: {0}; nothing written since can be trusted")]
    NotDurable(io::Error),
}

impl IndexError {
    /// Damage found at `offset`.
    pub(crate) fn damaged(offset: u64, what: impl Into<String>) -> IndexError {
        IndexError::Damaged { offset, what: what.into() }
    }
}
