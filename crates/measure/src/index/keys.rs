//! Keys derived from numbers: random and distinct.

/// Keys of a run. Number `n` has the same key wherever the same seed is used.
#[derive(Debug, Clone, Copy)]
pub struct Keys {
    seed: u64,
}

impl Keys {
    /// Largest count of numbers whose values identify their key.
    pub const MOST: u64 = NUMBER_MASK;

    /// Creates the keys of this seed.
    #[must_use]
    pub fn new(seed: u64) -> Keys {
        Keys { seed: seed.wrapping_mul(0xD6E8_FEB8_6659_FD93) }
    }

    /// Returns a uniform key of 64 bits. The function is invertible (it is the finalizer of
    /// SplitMix64, Steele et al. 2014); different numbers therefore have different keys.
    #[inline]
    #[must_use]
    pub fn key(self, number: u64) -> u64 {
        let mut word = number.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(self.seed);
        word = (word ^ word >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ word >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ word >> 31
    }

    /// Returns a value of a key. It encodes which of the key's values it is, from 0, and the number
    /// of the key, which identifies the key to a reader.
    #[inline]
    #[must_use]
    pub fn value(number: u64, which: u64) -> u64 {
        (which & WHICH_MASK) << NUMBER_BITS | (number + 1) & NUMBER_MASK
    }

    /// Returns true if `value` is one of the values of the key of number `number`.
    #[inline]
    #[must_use]
    pub fn is_value(value: u64, number: u64) -> bool {
        value & NUMBER_MASK == Keys::value(number, 0)
    }
}

const NUMBER_BITS: u32 = 40;
const NUMBER_MASK: u64 = (1 << NUMBER_BITS) - 1;
const WHICH_MASK: u64 = (1 << 20) - 1;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn no_two_keys_are_alike_and_they_spread() {
        let keys = Keys::new(7);
        let drawn: HashSet<u64> = (0..100_000).map(|number| keys.key(number)).collect();
        assert_eq!(drawn.len(), 100_000);
        let low = drawn.iter().filter(|&&key| key < u64::MAX / 4).count();
        assert!((24_000..26_000).contains(&low), "{low}");
    }
}
