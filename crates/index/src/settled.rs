//! Nodes whose visible contents are durable.
//!
//! A killed process leaves stores that the next one sees, though they were never flushed: a power
//! failure later takes them back, after a client was told of them, or has built on them. So the
//! first thread that touches a node from an earlier opening of the pool flushes it. One bit in DRAM
//! for each node says that this was done; in a pool that was just made no check is needed.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_media::{Direct, Region};

use crate::root::durable;
use crate::{IndexError, Pool};

/// A bit for each node; see the head of the file.
#[derive(Debug)]
pub(crate) struct Settled {
    bits: Direct,
    node_bytes: u64,
    are_all: AtomicBool,
}

impl Settled {
    /// Makes the bits for nodes of this size anywhere in the pool.
    pub(crate) fn new<R: Region>(pool: &Pool<R>, node_bytes: u64) -> Result<Settled, IndexError> {
        // Address space only, until nodes are touched.
        let bits = Direct::anonymous(pool.region().len() / node_bytes / 8 + 8, false);
        let bits = bits.map_err(|error| IndexError::Options { what: error.to_string() })?;
        Ok(Settled { bits, node_bytes, are_all: AtomicBool::new(pool.openings() == 1) })
    }

    /// Returns the word and the bit of a node: no two nodes share them.
    #[inline]
    fn place(&self, node: u64) -> (u64, u64) {
        let number = node / self.node_bytes;
        (number / 64 * 8, 1 << (number % 64))
    }

    /// Returns true if a node's visible contents are durable.
    #[inline]
    pub(crate) fn has(&self, node: u64) -> bool {
        if self.are_all.load(Acquire) {
            return true;
        }
        let (word, bit) = self.place(node);
        self.bits.load_u64(word, Acquire) & bit != 0
    }

    /// Marks a node that was written in this opening.
    #[inline]
    pub(crate) fn add(&self, node: u64) {
        if !self.are_all.load(Relaxed) {
            let (word, bit) = self.place(node);
            self.bits.fetch_or_u64(word, bit, Release);
        }
    }

    /// Marks all nodes at once: every one of them has been added.
    pub(crate) fn add_all(&self) {
        self.are_all.store(true, Release);
    }

    /// Makes a node's visible contents durable. No thread writes to it meanwhile.
    #[cold]
    pub(crate) fn settle<R: Region>(&self, region: &R, node: u64) -> Result<(), IndexError> {
        region.persist(node, self.node_bytes as usize);
        durable(region)?;
        self.add(node);
        Ok(())
    }
}
