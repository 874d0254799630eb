//! Range deletes: prefixes all of whose keys are deleted.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::Bound;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use entresol_base::sync::RwLock;

use crate::run::PREFIXES_GONE_BYTES_MAX;
use crate::run::format::bytes::common_prefix;
use crate::types::Sequence;

/// A prefix, and the number of the write that deleted its keys.
pub(crate) type Gone = (Vec<u8>, Sequence);

/// Range deletes by prefix.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    all: RwLock<BTreeMap<Vec<u8>, Removals>>,
    /// True if there are any. Mostly there are none, and each lookup of a key asks.
    any: AtomicBool,
}

/// Range deletes with the same prefix, mostly one.
#[derive(Debug)]
struct Removals {
    last: Sequence,
    /// The earlier ones.
    others: Vec<Sequence>,
}

impl Removals {
    fn add(&mut self, sequence: Sequence) {
        self.others.push(self.last.min(sequence));
        self.last = self.last.max(sequence);
    }

    /// Returns the last one up to `at`.
    fn last_up_to(&self, at: Sequence) -> Option<Sequence> {
        if self.last <= at {
            return Some(self.last);
        }
        self.others.iter().copied().filter(|sequence| *sequence <= at).max()
    }
}

impl Prefixes {
    /// Creates a set of known range deletes.
    pub(crate) fn of(all: impl IntoIterator<Item = Gone>) -> Prefixes {
        let prefixes = Prefixes::default();
        all.into_iter().for_each(|(prefix, sequence)| prefixes.add(prefix, sequence));
        prefixes
    }

    /// Adds a range delete.
    pub(crate) fn add(&self, prefix: Vec<u8>, sequence: Sequence) {
        match self.all.write().entry(prefix) {
            Entry::Occupied(mut known) => known.get_mut().add(sequence),
            Entry::Vacant(place) => {
                place.insert(Removals { last: sequence, others: Vec::new() });
            }
        }
        self.any.store(true, Release);
    }

    /// Returns true if there are any range deletes.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// Returns all range deletes, in the order of their prefixes.
    pub(crate) fn all(&self) -> Vec<Gone> {
        let all = self.all.read();
        let each = all.iter().flat_map(|(prefix, Removals { last, others })| {
            std::iter::once(last).chain(others).map(move |sequence| (prefix.clone(), *sequence))
        });
        each.collect()
    }

    /// Returns the last range delete up to `at` that covers a key.
    ///
    /// Few prefixes are looked at, however many there are. Between a prefix of the key and the key
    /// itself, the order has only prefixes that begin with that one. The prefix that covers the key
    /// is therefore the last one up to the key, or the last one up to what that one has in common
    /// with the key, and so on.
    pub(crate) fn covering(&self, key: &[u8], at: Sequence) -> Option<Sequence> {
        if !self.any() {
            return None;
        }
        let all = self.all.read();
        let (mut covering, mut begin) = (None, key);
        let up_to = |begin| (Bound::Unbounded, Bound::Included(begin));
        while let Some((prefix, removals)) = all.range::<[u8], _>(up_to(begin)).next_back() {
            let shared = common_prefix(prefix, begin);
            begin = &begin[..shared];
            if shared == prefix.len() {
                covering = covering.max(removals.last_up_to(at));
                let Some((_, shorter)) = begin.split_last() else { break };
                begin = shorter;
            }
        }
        covering
    }

    /// Returns true if a range delete after `since` covers a key with this prefix, or may cover
    /// one.
    pub(crate) fn concerns(&self, prefix: &[u8], since: Sequence) -> bool {
        if !self.any() {
            return false;
        }
        if self.covering(prefix, Sequence::MAX) > Some(since) {
            return true;
        }
        let all = self.all.read();
        let from = all.range::<[u8], _>((Bound::Included(prefix), Bound::Unbounded));
        let mut longer = from.take_while(|(other, _)| other.starts_with(prefix));
        longer.any(|(_, removals)| removals.last > since)
    }
}

/// Distributes range deletes over runs, at most `most` to each. Returns one part for each run, the
/// newest first, of which only the first may be empty. A range delete that a later one covers is
/// left out.
pub(crate) fn for_runs(all: Vec<Gone>, most: u32) -> Vec<Vec<Gone>> {
    let mut all = newest(all);
    all.sort_unstable_by_key(|(_, sequence)| Reverse(*sequence));
    let (mut parts, mut part, mut bytes) = (Vec::new(), Vec::new(), 0);
    for (prefix, sequence) in all {
        if part.len() >= most as usize || bytes + prefix.len() > PREFIXES_GONE_BYTES_MAX {
            parts.push(std::mem::take(&mut part));
            bytes = 0;
        }
        bytes += prefix.len();
        part.push((prefix, sequence));
    }
    parts.push(part);
    parts
}

/// Removes the range deletes that later ones cover.
fn newest(mut all: Vec<Gone>) -> Vec<Gone> {
    all.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    let mut kept: Vec<Gone> = Vec::new();
    // Indexes of kept range deletes whose prefixes the next one may begin with. Each of them begins
    // with the one before, and is newer.
    let mut within: Vec<usize> = Vec::new();
    for (prefix, sequence) in all {
        while within.last().is_some_and(|last| !prefix.starts_with(&kept[*last].0)) {
            within.pop();
        }
        if within.last().is_none_or(|last| kept[*last].1 < sequence) {
            within.push(kept.len());
            kept.push((prefix, sequence));
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use entresol_base::rng::Rng;

    use super::*;
    use crate::run::PREFIXES_GONE_MAX;

    const MOST: u32 = PREFIXES_GONE_MAX as u32;

    fn gone(prefix: &str, sequence: u64) -> Gone {
        (prefix.as_bytes().to_vec(), Sequence(sequence))
    }

    /// Compares with a look at each range delete, for prefixes of prefixes, and for keys that none
    /// covers.
    #[test]
    fn what_covers_a_key_is_found_by_order() {
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let draw = |rng: &mut Rng, least: u64| -> Vec<u8> {
                (0..least + rng.below(6)).map(|_| rng.below(3) as u8 * 127).collect()
            };
            let drawn: Vec<Gone> = (0..rng.below(40))
                .map(|_| (draw(&mut rng, 1), Sequence(1 + rng.below(30))))
                .collect();
            let prefixes = Prefixes::of(drawn.clone());
            let mut all = prefixes.all();
            all.sort_unstable();
            let mut sorted = drawn.clone();
            sorted.sort_unstable();
            assert_eq!(all, sorted);
            for _ in 0..20 {
                let (key, at) = (draw(&mut rng, 1), Sequence(rng.below(32)));
                let of_key = drawn.iter().filter(|(prefix, _)| key.starts_with(prefix));
                let sequences = of_key.map(|(_, sequence)| *sequence);
                let expected = sequences.filter(|sequence| *sequence <= at).max();
                assert_eq!(prefixes.covering(&key, at), expected, "{key:?} at {at:?}: {drawn:?}");
                let overlaps = |other: &[u8]| other.starts_with(&key) || key.starts_with(other);
                let concerns =
                    drawn.iter().any(|(other, sequence)| *sequence > at && overlaps(other));
                assert_eq!(prefixes.concerns(&key, at), concerns, "{key:?} at {at:?}: {drawn:?}");
            }
        }
    }

    #[test]
    fn a_prefix_that_is_gone_again_is_left_out() {
        let all = [("b", 9), ("ab", 3), ("a", 4), ("abc", 5), ("ab", 6), ("abc", 7), ("ac", 2)];
        let all = all.map(|(prefix, sequence)| gone(prefix, sequence)).to_vec();
        let expected = vec![gone("b", 9), gone("abc", 7), gone("ab", 6), gone("a", 4)];
        assert_eq!(for_runs(all, MOST), [expected]);
        assert_eq!(for_runs(Vec::new(), MOST), [Vec::new()], "a run may have none");
    }

    #[test]
    fn more_than_one_run_can_say_are_divided_the_newest_first() {
        let many = PREFIXES_GONE_MAX as u64 + 5;
        let numbered = |bytes: usize, number: u64| {
            let mut prefix = vec![0; bytes];
            prefix[..8].copy_from_slice(&number.to_be_bytes());
            (prefix, Sequence(number))
        };
        let parts = for_runs((0..many).map(|number| numbered(8, number)).collect(), MOST);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [PREFIXES_GONE_MAX, 5]);
        let sequences: Vec<_> =
            parts.concat().into_iter().map(|(_, sequence)| sequence.0).collect();
        assert!(sequences.iter().copied().eq((0..many).rev()));
        let long = (0..33).map(|number| numbered(64 << 10, number));
        let parts = for_runs(long.collect(), MOST);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [16, 16, 1]);
        let parts = for_runs((0..7).map(|number| numbered(8, number)).collect(), 3);
        assert_eq!(parts.iter().map(Vec::len).collect::<Vec<_>>(), [3, 3, 1]);
    }
}
