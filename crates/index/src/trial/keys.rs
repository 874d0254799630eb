//! Keys of histories, and their numbers.

use std::collections::BTreeMap;
use std::sync::OnceLock;

/// A key that histories can be made of.
pub trait TrialKey: Ord + ToOwned<Owned: Ord> {
    /// Returns the key with this number, which is below [`KEYS`]. Different numbers have different
    /// keys.
    fn nth(number: u64) -> Self::Owned;

    /// Returns the number of the key; `None` if it has none.
    fn number(&self) -> Option<u64>;
}

/// Number of keys that histories can be made of.
pub const KEYS: u64 = 4096;

impl TrialKey for u64 {
    /// Returns the least key, the greatest, then neighbours of one another.
    fn nth(number: u64) -> u64 {
        match number {
            0 => 0,
            1 => u64::MAX,
            _ => number * 3,
        }
    }

    fn number(&self) -> Option<u64> {
        let number = if *self == u64::MAX { 1 } else { self / 3 };
        (u64::nth(number) == *self).then_some(number)
    }
}

impl TrialKey for [u8] {
    /// Returns the empty key, short ones, ones with a long common beginning, ones that are each
    /// other's beginnings, and zeroes.
    fn nth(number: u64) -> Vec<u8> {
        match number % 4 {
            _ if number == 0 => Vec::new(),
            0 => format!("{number}").into_bytes(),
            1 => format!("all of these begin alike, for more than a word/{number:05}").into_bytes(),
            2 => vec![b'x'; (number / 4 + 1) as usize],
            _ => [&[0; 7][..], &number.to_be_bytes(), &[0][..]].concat(),
        }
    }

    fn number(&self) -> Option<u64> {
        static NUMBERS: OnceLock<BTreeMap<Vec<u8>, u64>> = OnceLock::new();
        let numbers =
            NUMBERS.get_or_init(|| (0..KEYS).map(|number| (<[u8]>::nth(number), number)).collect());
        numbers.get(self).copied()
    }
}
