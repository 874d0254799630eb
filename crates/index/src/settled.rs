//! Which nodes are durable as they are seen.
//!
//! A process that was killed leaves stores that the next one sees, though they were never flushed:
//! a power failure later takes them back, after somebody has been told of them, or has built on
//! them. So a node that was written in an earlier opening of the pool is flushed by whoever is the
//! first to touch it. One bit in DRAM for each node says that this was done; in a pool that was
//! just made nobody asks.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_media::{Direct, Region};

use crate::root::durable;
use crate::{IndexError, Pool};

/// See the head of the file.
#[derive(Debug)]
pub(crate) struct Settled {
    bits: Direct,
    node_bytes: u64,
    are_all: AtomicBool,
}

impl Settled {
    /// For nodes of this size anywhere in the pool.
    pub(crate) fn new<R: Region>(pool: &Pool<R>, node_bytes: u64) -> Result<Settled, IndexError> {
        // Address space only, until nodes are touched.
        let bits = Direct::anonymous(pool.region().len() / node_bytes / 8 + 8, false);
        let bits = bits.map_err(|error| IndexError::Options { what: error.to_string() })?;
        Ok(Settled { bits, node_bytes, are_all: AtomicBool::new(pool.openings() == 1) })
    }

    /// The word and the bit of a node: no two nodes have the same.
    #[inline]
    fn place(&self, node: u64) -> (u64, u64) {
        let number = node / self.node_bytes;
        (number / 64 * 8, 1 << (number % 64))
    }

    /// Whether a node is durable as it is seen.
    #[inline]
    pub(crate) fn has(&self, node: u64) -> bool {
        if self.are_all.load(Acquire) {
            return true;
        }
        let (word, bit) = self.place(node);
        self.bits.load_u64(word, Acquire) & bit != 0
    }

    /// A node was written in this opening.
    #[inline]
    pub(crate) fn add(&self, node: u64) {
        if !self.are_all.load(Relaxed) {
            let (word, bit) = self.place(node);
            self.bits.fetch_or_u64(word, bit, Release);
        }
    }

    /// All nodes that there are have been added.
    pub(crate) fn add_all(&self) {
        self.are_all.store(true, Release);
    }

    /// Makes a node durable as it is seen. Nobody writes to it meanwhile.
    #[cold]
    pub(crate) fn settle<R: Region>(&self, region: &R, node: u64) -> Result<(), IndexError> {
        region.persist(node, self.node_bytes as usize);
        durable(region)?;
        self.add(node);
        Ok(())
    }
}
