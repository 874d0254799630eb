//! Mixing of the bits of a key: for hashes that are kept on a medium, so it can never change.

use std::hash::Hasher;

/// Spreads keys evenly and without collisions (the finaliser of SplitMix64, Steele, Lea and Flood
/// 2014).
#[inline]
pub(crate) const fn mix(key: u64) -> u64 {
    let key = (key ^ (key >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let key = (key ^ (key >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    key ^ (key >> 31)
}

/// Hasher of offsets in DRAM, which no client chooses.
#[derive(Debug, Default)]
pub(crate) struct Mixed(u64);

impl Hasher for Mixed {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    #[inline]
    fn write_u64(&mut self, word: u64) {
        self.0 = mix(self.0 ^ word);
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::mix;

    /// Hashes on a medium depend on these values.
    #[test]
    fn hashes_stay_what_they_are() {
        assert_eq!(mix(0), 0);
        assert_eq!(mix(1), 0x5692_161D_100B_05E5);
        assert_eq!(mix(u64::MAX), 0xB4D0_55FC_F2CB_BD7B);
    }
}
