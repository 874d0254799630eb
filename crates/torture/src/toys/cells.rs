//! Toy cells: a word for each key, in a line of its own, written and read by any number of threads.
//!
//! A value is durable before a reader continues with it. Otherwise the reader could act on a value
//! that a crash takes back.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_media::Region;

use super::Plant;

const LINE_BYTES: u64 = 64;

/// Toy cells in a region.
pub(in super::super) struct Cells<R> {
    region: Arc<R>,
    plant: Option<Plant>,
}

impl<R> Clone for Cells<R> {
    fn clone(&self) -> Cells<R> {
        Cells { region: self.region.clone(), plant: self.plant }
    }
}

impl<R: Region> Cells<R> {
    pub(in super::super) fn new(region: Arc<R>, plant: Option<Plant>) -> Cells<R> {
        Cells { region, plant }
    }

    fn at(&self, key: u64) -> u64 {
        key % (self.region.len() / LINE_BYTES) * LINE_BYTES
    }

    /// Writes a value; it is durable on return.
    pub(in super::super) fn put(&self, key: u64, value: u64) {
        let at = self.at(key);
        self.region.store_u64(at, value, Release);
        if self.plant != Some(Plant::MissingFlush) {
            self.region.flush(at, 8);
        }
        if self.plant != Some(Plant::MissingFence) {
            self.region.drain();
        }
    }

    /// Reads a value; it is durable on return.
    pub(in super::super) fn get(&self, key: u64) -> u64 {
        let at = self.at(key);
        let value = self.region.load_u64(at, Acquire);
        if self.plant != Some(Plant::VisibleBeforeDurable) {
            self.region.flush(at, 8);
            self.region.drain();
        }
        value
    }

    /// Reads a value, durable or not.
    pub(in super::super) fn peek(&self, key: u64) -> u64 {
        self.region.load_u64(self.at(key), Acquire)
    }
}
