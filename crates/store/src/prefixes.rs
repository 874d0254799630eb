//! Prefixes all of whose keys are gone.

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};

use entresol_base::sync::RwLock;

use crate::entry::Sequence;
use crate::run::PREFIXES_GONE_BYTES_MAX;

/// A prefix, and the write that removed its keys.
pub(crate) type Gone = (Vec<u8>, Sequence);

/// Prefixes, each with the write that removed its keys.
#[derive(Debug, Default)]
pub(crate) struct Prefixes {
    all: RwLock<Vec<Gone>>,
    /// Whether there are any: mostly there are none, and each read of a key asks.
    any: AtomicBool,
}

impl Prefixes {
    /// Prefixes that are known already.
    pub(crate) fn of(all: Vec<Gone>) -> Prefixes {
        Prefixes { any: AtomicBool::new(!all.is_empty()), all: RwLock::new(all) }
    }

    /// Adds one.
    pub(crate) fn add(&self, prefix: &[u8], sequence: Sequence) {
        self.all.write().push((prefix.to_vec(), sequence));
        self.any.store(true, Release);
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.any.load(Acquire)
    }

    /// All of them.
    pub(crate) fn all(&self) -> Vec<Gone> {
        self.all.read().clone()
    }

    /// The last write not above `at` that removed this key with others.
    pub(crate) fn covering(&self, key: &[u8], at: Sequence) -> Option<Sequence> {
        if !self.any() {
            return None;
        }
        let all = self.all.read();
        let covering =
            all.iter().filter(|(prefix, sequence)| *sequence <= at && key.starts_with(prefix));
        covering.map(|(_, sequence)| *sequence).max()
    }

    /// Whether a write behind `since` removed a key that begins so, or may have.
    pub(crate) fn concerns(&self, prefix: &[u8], since: Sequence) -> bool {
        let overlaps = |other: &[u8]| other.starts_with(prefix) || prefix.starts_with(other);
        self.any()
            && self.all.read().iter().any(|(other, sequence)| *sequence > since && overlaps(other))
    }
}

/// Prefixes as runs can say them, each so many: one part for each run, the newest first, and none
/// but the first without a prefix. One that is gone again later, by itself or with a shorter one, is
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

/// Those that are not gone again later.
fn newest(mut all: Vec<Gone>) -> Vec<Gone> {
    all.sort_unstable_by(|one, other| one.0.cmp(&other.0).then(other.1.cmp(&one.1)));
    let mut kept: Vec<Gone> = Vec::new();
    // Those kept of which the next may be a continuation, each of the one before, and newer than
    // that one.
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
    use super::*;
    use crate::run::PREFIXES_GONE_MAX;

    const MOST: u32 = PREFIXES_GONE_MAX as u32;

    fn gone(prefix: &str, sequence: u64) -> Gone {
        (prefix.as_bytes().to_vec(), Sequence(sequence))
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
