//! Seeded randomness: the same seed gives the same numbers on every machine, in every release.
//!
//! The generator is written out here (xoshiro256++, seeded by splitmix64) and not taken from a
//! package, because a seed printed by a failed run must still replay after an upgrade.
//! Logarithms come from `libm`: those of the platform differ in the last bit.

use std::ops::Range;

use crate::Picos;

/// A seeded stream of random numbers. Not for secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rng {
    state: [u64; 4],
}

impl Rng {
    /// Creates the stream of this seed. Neighbouring seeds give unrelated streams.
    #[must_use]
    pub fn new(seed: u64) -> Rng {
        let mut seed = seed;
        Rng { state: std::array::from_fn(|_| splitmix(&mut seed)) }
    }

    /// Creates the stream of this seed with this name. Drawing more from one stream never disturbs
    /// another.
    #[must_use]
    pub fn named(seed: u64, stream: &str) -> Rng {
        let mut hash = 0xcbf2_9ce4_8422_2325_u64;
        for byte in stream.bytes() {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
        }
        let mut seed = seed;
        Rng::new(splitmix(&mut seed) ^ splitmix(&mut hash))
    }

    /// Draws 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Draws a number below `end`, each as likely; 0 if `end` is 0.
    #[inline]
    pub fn below(&mut self, end: u64) -> u64 {
        let mut wide = u128::from(self.next_u64()) * u128::from(end);
        if (wide as u64) < end {
            let unfair = end.wrapping_neg() % end.max(1);
            while (wide as u64) < unfair {
                wide = u128::from(self.next_u64()) * u128::from(end);
            }
        }
        (wide >> 64) as u64
    }

    /// Draws an index below `len`; 0 if `len` is 0.
    #[inline]
    pub fn index(&mut self, len: usize) -> usize {
        self.below(len as u64) as usize
    }

    /// Draws a number of the range, each as likely; its start if it is empty.
    #[inline]
    pub fn range(&mut self, range: Range<u64>) -> u64 {
        range.start + self.below(range.end.saturating_sub(range.start))
    }

    /// Returns true once in `n` times on average; always for 0 and 1.
    #[inline]
    pub fn one_in(&mut self, n: u32) -> bool {
        self.below(u64::from(n)) == 0
    }

    /// Draws a number in [0, 1) with 53 random bits.
    #[inline]
    pub fn next_f64(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 * (1.0 / (1_u64 << 53) as f64)
    }

    /// Draws an exponentially distributed number with this mean.
    #[inline]
    pub fn exponential(&mut self, mean: f64) -> f64 {
        // 1 - next_f64() lies in (0, 1], so the logarithm is finite.
        -libm::log(1.0 - self.next_f64()) * mean
    }

    /// Draws the gap to the next event of a Poisson process whose gaps have this mean.
    #[inline]
    pub fn poisson_gap(&mut self, mean: Picos) -> Picos {
        Picos(self.exponential(mean.0 as f64) as u64)
    }

    /// Draws one of the items; none if there are none.
    pub fn choose<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    /// Brings the items into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }

    /// Fills the buffer with random bytes.
    pub fn fill(&mut self, bytes: &mut [u8]) {
        for chunk in bytes.chunks_mut(8) {
            let word = self.next_u64().to_le_bytes();
            chunk.copy_from_slice(&word[..chunk.len()]);
        }
    }
}

/// Steele, Lea and Flood's mixer: turns a counter into well-spread words.
fn splitmix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut word = *state;
    word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first outputs of the reference implementation for the state 1, 2, 3, 4.
        let mut rng = Rng { state: [1, 2, 3, 4] };
        let drawn: Vec<u64> = (0..4).map(|_| rng.next_u64()).collect();
        let expected = [41_943_041, 58_720_359, 3_588_806_011_781_223, 3_591_011_842_654_386];
        assert_eq!(drawn, expected);
    }

    #[test]
    fn a_seed_gives_the_same_numbers_for_ever() {
        let mut rng = Rng::named(42, "faults");
        let drawn = (rng.next_u64(), rng.below(1_000), rng.poisson_gap(Picos::from_micros(1)));
        assert_eq!(drawn, (5_651_159_110_416_444_879, 335, Picos(2_811_212)));
    }

    #[test]
    fn streams_and_seeds_are_independent() {
        let first = |mut rng: Rng| rng.next_u64();
        assert_ne!(first(Rng::named(1, "a")), first(Rng::named(1, "b")));
        assert_ne!(first(Rng::named(1, "a")), first(Rng::named(2, "a")));
        assert_ne!(first(Rng::new(1)), first(Rng::new(2)));
    }

    #[test]
    fn draws_are_within_bounds_and_reach_everything() {
        let mut rng = Rng::new(7);
        let mut seen = [0_u32; 5];
        for _ in 0..5_000 {
            seen[rng.index(5)] += 1;
            assert!((10..13).contains(&rng.range(10..13)));
            assert!((0.0..1.0).contains(&rng.next_f64()));
        }
        assert!(seen.iter().all(|count| (850..1_150).contains(count)), "{seen:?}");
        assert_eq!((rng.below(0), rng.range(4..4), rng.index(1)), (0, 4, 0));
        assert_eq!(rng.choose::<u8>(&[]), None);
    }

    #[test]
    fn gaps_have_the_mean_asked_for() {
        let mut rng = Rng::new(3);
        let mean = Picos::from_micros(20);
        let sum: u64 = (0..100_000).map(|_| rng.poisson_gap(mean).0).sum();
        let measured = sum as f64 / 100_000.0 / mean.0 as f64;
        assert!((measured - 1.0).abs() < 0.02, "{measured}");
    }

    #[test]
    fn a_shuffle_loses_nothing() {
        let mut items: Vec<u32> = (0..100).collect();
        Rng::new(1).shuffle(&mut items);
        assert!(items.windows(2).any(|pair| pair[0] > pair[1]));
        items.sort_unstable();
        assert!(items.into_iter().eq(0..100));
    }
}
