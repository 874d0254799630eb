//! Where blocks lie: in order, at random, or by a permutation that visits each once.

use std::ops::Range;

use super::{LINE_BYTES, Order, UNIT_BYTES};

/// The positions of successive blocks, the same for a measured medium and for a model of one.
///
/// Random blocks lie on a grid: blocks of a power of two on multiples of themselves, other
/// multiples of 256 bytes on those, all others anywhere on the grid of cache lines. It is what a
/// cost table assumes (NyxCache, figure 3).
#[derive(Debug, Clone)]
pub struct Positions {
    start: u64,
    grid: u64,
    /// Places on the grid at which a whole block fits.
    places: u64,
    order: Order,
    /// The state of the generator, or the number of the next block.
    state: u64,
}

impl Positions {
    /// Positions within `range`, beginning with block `first` in order, or as it seeds the
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
            // Neighbouring numbers must not give neighbouring sequences.
            Order::Random => (first + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15),
        };
        Positions { start: range.start, grid, places, order, state }
    }

    /// Where the next block begins.
    #[inline(always)]
    pub fn next_offset(&mut self) -> u64 {
        match self.order {
            Order::Sequential => {
                let place = self.state;
                self.state = if place + 1 == self.places { 0 } else { place + 1 };
                self.start + place * self.grid
            }
            Order::Random => {
                // A linear generator whose upper bits are used; two cycles a step matter here.
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

/// The place of a number below `count`, a power of two, in a fixed random order: each has one.
#[must_use]
pub fn permuted(number: u64, count: u64) -> u64 {
    debug_assert!(count.is_power_of_two() && number < count);
    let (bits, mask) = (count.ilog2(), count - 1);
    if bits < 2 {
        return number;
    }
    // Odd factors and shifts towards the right are undone by other such: nothing is lost.
    let mut x = number;
    for factor in [0x9e37_79b9_7f4a_7c15, 0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb_u64] {
        x = x.wrapping_mul(factor) & mask;
        x ^= x >> bits.div_ceil(2);
    }
    x
}
