//! Draws of keys, the set of existing keys, and the form of keys and values.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use fastrand::Rng;

use super::mixgraph::KeyRanges;
use super::workload::{Request, Workload};
use crate::popularity::{KeyChooser, LatestChooser, Popularity, THETA_DEFAULT};
use crate::values::KeyMaker;

/// Length of the shortest key; shorter ones leave too few distinct keys.
pub const KEY_BYTES_MIN: usize = 8;

/// Names of keys by their numbers: in the order of the numbers, or scattered like YCSB's hashed
/// names.
#[derive(Debug, Clone)]
pub struct Names {
    maker: KeyMaker,
    /// Mask of the bits that a name can express, or `None` for ordered names.
    mask: Option<u64>,
}

impl Names {
    /// Creates names of this many bytes; none if they are too short or too long.
    #[must_use]
    pub fn new(key_bytes: usize, ordered: bool) -> Option<Names> {
        let maker = KeyMaker::new(key_bytes, 1 << 32).filter(|_| key_bytes >= KEY_BYTES_MIN)?;
        let mask = u64::MAX >> (64 - 4 * key_bytes.min(16));
        Some(Names { maker, mask: (!ordered).then_some(mask) })
    }

    /// Appends the name of a key to `out`.
    #[inline]
    pub fn append(&self, number: u64, out: &mut Vec<u8>) {
        let number = self.mask.map_or(number, |mask| scatter(number, mask));
        self.maker.append(number, out);
    }
}

/// Scatters numbers one to one within the mask, since odd products and shifted exclusive-ors are
/// invertible.
#[inline]
fn scatter(mut number: u64, mask: u64) -> u64 {
    let file_move = mask.count_ones().div_ceil(2);
    for multiplier in [0x9e37_79b9_7f4a_7c15_u64, 0xbf58_476d_1ce4_e5b9] {
        number = number.wrapping_mul(multiplier).wrapping_add(0x2545_f491) & mask;
        number ^= number >> file_move;
    }
    number
}

/// Existing keys. They are numbered from 0, and those below a bound have been inserted.
#[derive(Debug)]
pub struct Population {
    next: AtomicU64,
    /// Bound below which every key was acknowledged.
    present: AtomicU64,
    /// Keys acknowledged out of order, above that bound.
    ahead: Mutex<BinaryHeap<Reverse<u64>>>,
}

impl Population {
    /// Creates a population of the first `count` keys.
    #[must_use]
    pub fn of(count: u64) -> Population {
        let (next, present) = (AtomicU64::new(count), AtomicU64::new(count));
        Population { next, present, ahead: Mutex::default() }
    }

    /// Returns the number of keys that can be requested.
    pub fn count(&self) -> u64 {
        self.present.load(Acquire)
    }

    /// Returns the number of a new key.
    pub fn take(&self) -> u64 {
        self.next.fetch_add(1, Relaxed)
    }

    /// Records that a key was inserted.
    pub fn inserted(&self, number: u64) {
        let mut ahead = self.ahead.lock().unwrap_or_else(PoisonError::into_inner);
        ahead.push(Reverse(number));
        let mut present = self.present.load(Relaxed);
        while ahead.peek() == Some(&Reverse(present)) {
            ahead.pop();
            present += 1;
        }
        self.present.store(present, Release);
    }
}

/// Draws existing keys.
#[derive(Debug, Clone)]
pub enum Chooser {
    /// Every key is equally popular.
    Uniform,
    /// Zipf's law, popular keys scattered over all.
    Zipfian(KeyChooser),
    /// Zipf's law, from the newest key to the oldest.
    Latest(LatestChooser),
    /// Ranges of neighbouring keys.
    Ranges(KeyRanges),
}

impl Chooser {
    /// Creates a chooser among `keys` keys, to which at most `inserts` will be added. It expects at
    /// most as many inserts as there are keys. A phase that ends by time may allow any number of
    /// operations, and many keys that never come would flatten the distribution of the existing
    /// ones.
    pub fn new(workload: Workload, keys: u64, inserts: u64, seed: u64) -> Chooser {
        match workload.request() {
            // Like YCSB, this draws from the expected number of keys and repeats the draw if the
            // key does not exist yet. Popular keys then remain popular.
            Request::Zipfian => {
                let zipf = Popularity::Zipf { theta: THETA_DEFAULT };
                Chooser::Zipfian(KeyChooser::new(zipf, keys + inserts.min(keys)))
            }
            Request::Uniform => Chooser::Uniform,
            Request::Latest => Chooser::Latest(LatestChooser::new(THETA_DEFAULT)),
            Request::Ranges => Chooser::Ranges(KeyRanges::new(keys, seed)),
        }
    }

    /// Draws the number of a key out of `present` keys.
    #[inline]
    pub fn next(&mut self, present: u64, rng: &mut Rng) -> u64 {
        match self {
            Chooser::Uniform => rng.u64(0..present.max(1)),
            Chooser::Zipfian(zipf) => loop {
                let number = zipf.next(rng);
                if number < present {
                    return number;
                }
            },
            Chooser::Latest(latest) => latest.next(present, rng),
            Chooser::Ranges(ranges) => ranges.next(rng),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_different_and_scattered_or_in_order() {
        for key_bytes in [8, 11, 16, 48] {
            for ordered in [false, true] {
                let names = Names::new(key_bytes, ordered).expect("long enough");
                let name = |number| {
                    let mut out = Vec::new();
                    names.append(number, &mut out);
                    out
                };
                let all: Vec<_> = (0..20_000).map(name).collect();
                assert!(all.iter().all(|name| name.len() == key_bytes));
                assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
                let up = all.windows(2).filter(|pair| pair[0] < pair[1]).count();
                match ordered {
                    true => assert_eq!(up, all.len() - 1),
                    false => assert!((6_000..14_000).contains(&up), "{key_bytes}: {up}"),
                }
            }
        }
        assert!(Names::new(7, false).is_none() && Names::new(251, true).is_none());
    }

    #[test]
    fn keys_exist_once_all_before_them_do() {
        let population = Population::of(10);
        assert_eq!((population.take(), population.take(), population.take()), (10, 11, 12));
        population.inserted(11);
        assert_eq!(population.count(), 10);
        population.inserted(10);
        assert_eq!(population.count(), 12);
        population.inserted(12);
        assert_eq!(population.count(), 13);
    }

    #[test]
    fn only_keys_that_exist_are_asked_for() {
        let mut rng = Rng::with_seed(1);
        for workload in [
            Workload::A,
            Workload::D,
            Workload::E,
            Workload::Overwrite,
            Workload::OverwriteZipf,
            Workload::Mixgraph,
        ] {
            let mut chooser = Chooser::new(workload, 1000, 200, 1);
            for _ in 0..100_000 {
                assert!(chooser.next(1000, &mut rng) < 1000, "{workload}");
            }
        }
    }

    #[test]
    fn some_keys_are_popular_however_many_inserts_are_allowed() {
        let mut rng = Rng::with_seed(1);
        let mut chooser = Chooser::new(Workload::E, 1000, 1_000_000_000, 1);
        let mut counts = [0_u32; 1000];
        for _ in 0..100_000 {
            counts[chooser.next(1000, &mut rng) as usize] += 1;
        }
        counts.sort_unstable();
        let popular: u32 = counts[900..].iter().sum();
        assert!(
            popular > 50_000,
            "the most popular tenth was asked for {popular} of 100,000 times"
        );
    }
}
