//! Positions of blocks: in order, at random, or by a permutation that visits each once.

use std::ops::Range;

use super::{LINE_BYTES, Order, UNIT_BYTES};

/// Positions of successive blocks, for a measured medium and for a model of one.
///
/// Random blocks lie on a grid: blocks of a power of two on multiples of their size, other
/// multiples of 256 bytes on multiples of 256, all others anywhere on the grid of cache lines. A
/// cost table assumes this (NyxCache, figure 3).
#[derive(Debug, Clone)]
pub struct Positions {
    start: u64,
    grid: u64,
    /// Number of grid positions at which a whole block fits.
    places: u64,
    order: Order,
    /// State of the generator, or number of the next block.
    state: u64,
}

impl Positions {
    /// Makes positions within `range`. `first` is the number of the first block, or seeds the
    /// generator.
    ///
    /// # Panics
    /// If no block fits.
    #[must_use]
    pub fn new(range: Range<u64>, order: Order, block_bytes: usize, first: u64) -> Positions {
        let bytes = range.end - range.start;
        let block = block_bytes as u64;
        let grid = match order {
            Order::Sequential => block,
            Order::Random if block_bytes <= LINE_BYTES => LINE_BYTES as u64,
            Order::Random if block_bytes.is_power_of_two() => block,
            Order::Random if block_bytes.is_multiple_of(UNIT_BYTES) => UNIT_BYTES as u64,
            Order::Random => LINE_BYTES as u64,
        };
        assert!(block > 0 && bytes >= block, "a block of {block} bytes in {bytes}");
        let places = (bytes - block) / grid + 1;
        let state = match order {
            Order::Sequential => first % places,
            // Adjacent numbers must not give similar sequences.
            Order::Random => (first + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        Positions { start: range.start, grid, places, order, state }
    }

    /// Returns the next block's offset.
    #[inline(always)]
    pub fn next_offset(&mut self) -> u64 {
        match self.order {
            Order::Sequential => {
                let place = self.state;
                self.state = if place + 1 == self.places { 0 } else { place + 1 };
                self.start + place * self.grid
            }
            Order::Random => {
                // A linear congruential generator whose upper bits are used; two cycles a step
                // matter here.
                self.state = self
                    .state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let place = (u128::from(self.state) * u128::from(self.places)) >> 64;
                self.start + place as u64 * self.grid
            }
        }
    }
}

/// Maps a number below `count`, a power of two, to its place in a fixed random permutation.
#[must_use]
pub fn permuted(number: u64, count: u64) -> u64 {
    debug_assert!(count.is_power_of_two() && number < count);
    let (bits, mask) = (count.ilog2(), count - 1);
    if bits < 2 {
        return number;
    }
    // Odd factors and right shifts can be undone, so that the map is one to one.
    let mut x = number;
    for factor in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb_u64] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> bits.div_ceil(2);
    }
    x
}
