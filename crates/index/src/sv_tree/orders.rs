//! Order of each leaf's slots when it was last sorted: eight bytes in DRAM for each leaf.
//!
//! It is a hint that is not kept up to date: its user checks it against the leaf. Leaves of more
//! than 15 slots have none.

use std::sync::atomic::Ordering::Relaxed;

use entresol_media::{Direct, RegionError};

/// Numbers of up to 15 slots in the order of their keys, and their count.
#[derive(Debug, Clone, Copy)]
pub(super) struct Order(u64);

impl Order {
    /// Packs the numbers; an empty order if there are more slots than fit.
    pub(super) fn of(numbers: impl ExactSizeIterator<Item = usize>) -> Order {
        let len = numbers.len();
        if len > 15 {
            return Order(0);
        }
        let places = numbers.enumerate();
        Order(places.fold(len as u64, |word, (place, number)| {
            word | (number as u64 & 15) << (4 + 4 * place)
        }))
    }

    #[inline]
    pub(super) fn len(self) -> usize {
        (self.0 & 15) as usize
    }

    #[inline]
    pub(super) fn number(self, place: usize) -> usize {
        (self.0 >> (4 + 4 * place) & 15) as usize
    }
}

/// Orders of a tree's leaves.
#[derive(Debug)]
pub(super) struct Orders {
    words: Option<Direct>,
    leaf_bytes: u64,
}

impl Orders {
    /// Makes room for leaves of this size anywhere in a region.
    pub(super) fn new(region_bytes: u64, leaf_bytes: u64) -> Result<Orders, RegionError> {
        // Address space only, until leaves are walked over.
        let words = match leaf_bytes {
            ..=256 => Some(Direct::anonymous(region_bytes / leaf_bytes * 8 + 8, false)?),
            _ => None,
        };
        Ok(Orders { words, leaf_bytes })
    }

    /// Returns the order that a leaf had, or an empty one if it is not known.
    #[inline]
    pub(super) fn get(&self, leaf: u64) -> Order {
        let word = self.words.as_ref().map(|it| it.load_u64(leaf / self.leaf_bytes * 8, Relaxed));
        Order(word.unwrap_or(0))
    }

    #[inline]
    pub(super) fn set(&self, leaf: u64, order: Order) {
        if let Some(words) = &self.words {
            words.store_u64(leaf / self.leaf_bytes * 8, order.0, Relaxed);
        }
    }
}
