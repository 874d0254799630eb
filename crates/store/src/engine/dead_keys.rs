//! Ranges of keys in which nothing lives, so that a walk need not pass what was deleted there.
//!
//! A queue is popped by a walk to its first key, which is then deleted. Its next walk would pass
//! all that were deleted before. So a walk that has passed many dead keys notes their range, and
//! later walks begin behind it. A put into the range ends the range there, before any reader can
//! see the put.
//!
//! **Order.** A range is noted from a snapshot, and puts that the snapshot does not show may be
//! under way. Each walk that may note a range therefore announces itself, best before it takes its
//! snapshot. From then on puts are kept in mind. If a write has got its number before that moment
//! and the snapshot does not show it, nothing is noted.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use entresol_base::sync::Mutex;
use entresol_base::{Seconds, mutation_site};
use entresol_index::Direction;

use crate::segment::record::{Draft, Kind};
use crate::types::{KvsId, Sequence};
use crate::wal::Log;

/// Dead keys that a walk passes before it notes their range.
pub(crate) const PASSED_MIN: u64 = 16;

/// Most ranges of a `Kvs` that are kept: a queue that is popped at both ends has two.
const RANGES_MAX: usize = 16;

/// The ranges that are known of each `Kvs`, once a walk has passed dead keys there.
#[derive(Debug, Default)]
pub(crate) struct DeadKeys {
    is_on: AtomicBool,
    all: Mutex<BTreeMap<KvsId, Watch>>,
}

#[derive(Debug, Default)]
struct Watch {
    /// Ranges, the one noted last at the end.
    ranges: Vec<DeadRange>,
    /// Number of walks that have announced themselves.
    looks: u64,
    /// Least and greatest key that were put since the last one did.
    put: Option<(Vec<u8>, Vec<u8>)>,
}

/// A range of keys in which nothing lives for snapshots from a write and a time on.
#[derive(Debug, Clone, PartialEq, Eq)]
struct DeadRange {
    from: Vec<u8>,
    /// Key at which it ends, if it does not reach to the last key.
    to: Option<Vec<u8>>,
    since: (Sequence, Seconds),
}

/// Announcement of a walk.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Look {
    number: u64,
    /// Number of the next write when the walk announced itself.
    next: Sequence,
}

/// Position of a walk: at a key (true) or behind it (false), in the direction of the walk.
pub(crate) type Bound<'a> = Option<(&'a [u8], bool)>;

/// Returns the least key behind another one.
fn behind(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

impl DeadRange {
    fn holds(&self, key: &[u8]) -> bool {
        self.from.as_slice() <= key && self.to.as_deref().is_none_or(|to| key < to)
    }

    fn is_empty(&self) -> bool {
        self.to.as_ref().is_some_and(|to| *to <= self.from)
    }

    fn covers(&self, other: &DeadRange) -> bool {
        let ends_behind = match (&self.to, &other.to) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(to), Some(others)) => to >= others,
        };
        self.from <= other.from && ends_behind
    }
}

impl DeadKeys {
    /// Watches a `Kvs` from now on.
    pub(crate) fn watch(&self, kvs: KvsId) {
        self.all.lock().entry(kvs).or_default();
        self.is_on.store(true, Relaxed);
    }

    /// Announces a walk that may note a range, if its snapshot shows all writes that have begun.
    #[inline]
    pub(crate) fn announce(&self, kvs: KvsId, log: Option<&Log>) -> Option<Look> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let mut all = self.all.lock();
        let watch = all.get_mut(&kvs)?;
        watch.looks += 1;
        watch.put = None;
        Some(Look { number: watch.looks, next: log?.next_write() })
    }

    /// Keeps puts in mind before any reader can see them.
    #[inline]
    pub(crate) fn note_puts(&self, drafts: &[Draft<'_>]) {
        if self.is_on.load(Relaxed) && !mutation_site!("a put ends a range of dead keys") {
            self.note_each(drafts);
        }
    }

    #[cold]
    fn note_each(&self, drafts: &[Draft<'_>]) {
        let mut all = self.all.lock();
        for Draft { kvs, key, .. } in
            drafts.iter().filter(|draft| matches!(draft.kind, Kind::Put | Kind::PutUntil))
        {
            let Some(watch) = all.get_mut(kvs) else { continue };
            match &mut watch.put {
                Some((least, _)) if *key < least.as_slice() => *least = key.to_vec(),
                Some((_, greatest)) if *key > greatest.as_slice() => *greatest = key.to_vec(),
                Some(_) => {}
                None => watch.put = Some((key.to_vec(), key.to_vec())),
            }
            for range in watch.ranges.iter_mut().filter(|range| range.holds(key)) {
                range.to = Some(key.to_vec());
            }
            watch.ranges.retain(|range| !range.is_empty());
        }
    }

    /// Notes that a walk from a position to another one has passed dead keys only. The walk is that
    /// of a snapshot with writes up to `at`.
    pub(crate) fn note(
        &self,
        kvs: KvsId,
        (look, at, seconds): (Look, Sequence, Seconds),
        direction: Direction,
        (begin, end): (Bound<'_>, Option<&[u8]>),
    ) {
        let (mut from, mut to) = match direction {
            Direction::Forward => (least_of(begin), end.map(<[u8]>::to_vec)),
            Direction::Backward => (end.map(behind).unwrap_or_default(), above(begin)),
        };
        let mut all = self.all.lock();
        let Some(watch) = all.get_mut(&kvs) else { return };
        let is_sure = look.number == watch.looks && at.0 + 1 >= look.next.0;
        if !is_sure {
            return;
        }
        // Of what was put meanwhile, nothing may lie in the range.
        if let Some((least, greatest)) = &watch.put
            && greatest.as_slice() >= from.as_slice()
            && to.as_deref().is_none_or(|to| least.as_slice() < to)
        {
            match direction {
                Direction::Forward => to = Some(least.clone()),
                Direction::Backward => from = behind(greatest),
            }
        }
        let range = DeadRange { from, to, since: (at, seconds) };
        if range.is_empty() {
            return;
        }
        watch.ranges.retain(|known| !range.covers(known));
        if watch.ranges.len() == RANGES_MAX {
            watch.ranges.remove(0);
        }
        watch.ranges.push(range);
    }

    /// Returns the position at which a walk may go on that is at `bound`, if that lies in a range.
    /// `Some(None)` is the end of the walk.
    #[inline]
    pub(crate) fn jump(
        &self,
        kvs: KvsId,
        (at, seconds): (Sequence, Seconds),
        direction: Direction,
        bound: Bound<'_>,
    ) -> Option<Option<(Vec<u8>, bool)>> {
        if !self.is_on.load(Relaxed) {
            return None;
        }
        let all = self.all.lock();
        let ranges = all.get(&kvs)?.ranges.iter().rev();
        let mut known = ranges.filter(|range| range.since.0 <= at && range.since.1 <= seconds);
        match direction {
            Direction::Forward => {
                let least = least_of(bound);
                let range = known.find(|range| range.holds(&least))?;
                Some(range.to.clone().map(|to| (to, true)))
            }
            Direction::Backward => {
                let end = above(bound);
                let range = known.find(|range| match (&end, &range.to) {
                    (_, None) => end.as_ref().is_none_or(|end| *end > range.from),
                    (None, Some(_)) => false,
                    (Some(end), Some(to)) => *end > range.from && end <= to,
                })?;
                Some(Some((range.from.clone(), false)))
            }
        }
    }
}

/// Returns the least key of a forward walk from a position.
fn least_of(bound: Bound<'_>) -> Vec<u8> {
    match bound {
        None => Vec::new(),
        Some((key, true)) => key.to_vec(),
        Some((key, false)) => behind(key),
    }
}

/// Returns the key below which all keys of a backward walk from a position lie.
fn above(bound: Bound<'_>) -> Option<Vec<u8>> {
    bound.map(|(key, included)| if included { behind(key) } else { key.to_vec() })
}
