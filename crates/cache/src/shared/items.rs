//! Items: the index that finds them and the space that they take. A record that was written is
//! published here, and the index grows and shrinks with their number.

use std::sync::atomic::Ordering;

use entresol_base::Seconds;

use crate::index::{BUCKET_BYTES, Found, Index, Pair};
use crate::ops::{KeyHash, Stored};
use crate::record::{Head, NewRecord, mark};
use crate::segment::State;
use crate::shared::append::{Hole, Place, Shard};
use crate::shared::budget::PAGE;
use crate::shared::evict::How;
use crate::shared::key_limit::KeyLimit;
use crate::shared::records::Records;
use crate::shared::space::{Seen, Space};
use crate::statistics::{Counters, count_shared};

/// Items added or removed by a worker before the index is told, if there is no limit of keys.
const COUNT_BATCH: i64 = 32;
/// Maximum of the buckets by which the table grows at once, since displacement found no slot.
const EARLY_GROWTH_MAX: u64 = 512;
/// Items that a writer drops for one that it adds, while there are more than the limit allows.
const DROPPED_FOR_NEW: u64 = 2;

/// All items of a cache.
pub(crate) struct Items {
    pub(crate) index: Index,
    pub(crate) space: Space,
    pub(crate) key_limit: KeyLimit,
    /// Counters of work on the shared state: evictions, expiry, merging.
    pub(crate) counters: Counters,
}

/// Reasons why a condition does not hold; small, since every store passes them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    NotStored,
    Exists,
    NotFound,
}

impl From<Refusal> for Stored {
    fn from(refusal: Refusal) -> Stored {
        match refusal {
            Refusal::NotStored => Stored::NotStored,
            Refusal::Exists => Stored::Exists,
            Refusal::NotFound => Stored::NotFound,
        }
    }
}

/// Result of publishing a record.
pub(crate) enum Published {
    /// The record replaced an item, live or not.
    Replaced {
        cas: u64,
    },
    Inserted {
        cas: u64,
    },
    /// The condition does not hold.
    Refused(Refusal),
    /// The new token would not be greater than one that a client holds: use this one.
    NeedsCas(u64),
}

impl Items {
    /// Looks a key up under its buckets' lock.
    pub(crate) fn seen_in(&self, pair: &Pair<'_>, key: &[u8], now: Seconds) -> Seen {
        match pair.find(|location| self.space.records.head_of(location, key)) {
            Some((found, head)) => self.space.judge(found, head, now),
            None => Seen::Absent,
        }
    }

    /// Points a slot at a record that was written, if the condition holds.
    #[inline]
    pub(crate) fn publish(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        now: Seconds,
        record: &NewRecord<'_>,
        place: &Place,
        condition: &impl Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Published {
        let location = place.location();
        let cas =
            record.cas.unwrap_or_else(|| self.space.records.implied_cas(place.sequence, location));
        // Most stores replace an item that is found at once: then only one bucket is locked, before
        // the wait for the old record begins.
        if let Some(one) = self.index.lock_probed(hash.0)
            && let Some(head) = self.space.records.head_of(one.found().location(), record.key)
        {
            let seen = self.space.judge(*one.found(), head, now);
            return match self.may_replace(&seen, record, place, condition) {
                Err(refused) => refused,
                Ok(_) => {
                    let old = one.found().location();
                    let hole = self.space.retire(old, &head, || one.replace(location));
                    drop(one);
                    self.finish_replacing(shard, place, hole);
                    Published::Replaced { cas }
                }
            };
        }
        loop {
            let pair = self.index.lock(hash.0);
            let seen = self.seen_in(&pair, record.key, now);
            match self.may_replace(&seen, record, place, condition) {
                Err(refused) => return refused,
                Ok(Some((found, head))) => {
                    let heat = found.heat().inherited();
                    let replace = || pair.replace(&found, location, heat);
                    let hole = self.space.retire(found.location(), &head, replace);
                    drop(pair);
                    self.finish_replacing(shard, place, hole);
                    return Published::Replaced { cas };
                }
                Ok(None) if pair.insert(location, place.heat) => {
                    shard.commit(&self.space, place);
                    return Published::Inserted { cas };
                }
                Ok(None) => {
                    drop(pair);
                    self.make_slot(hash);
                }
            }
        }
    }

    /// Returns the item to replace, if there is one and the condition holds.
    #[inline(always)]
    fn may_replace(
        &self,
        seen: &Seen,
        record: &NewRecord<'_>,
        place: &Place,
        condition: &impl Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Result<Option<(Found, Head)>, Published> {
        let implied = self.space.records.implied_cas(place.sequence, place.location());
        condition(seen, &self.space.records).map_err(Published::Refused)?;
        let (Seen::Live(found, head) | Seen::Expired(found, head) | Seen::Flushed(found, head)) =
            *seen
        else {
            return Ok(None);
        };
        if head.has(mark::CAS) || head.has(mark::CAS_SEEN) {
            let cas = self.space.records.cas_of(found.location(), &head);
            if record.cas.is_none() && implied <= cas {
                return Err(Published::NeedsCas(self.space.flushes.take_token(cas)));
            }
            // A client that holds a token of this item must find all later ones greater, even those
            // that no client asks for.
            self.space.records.head(place.location()).set_marks(
                &self.space.records.arena,
                mark::CAS_SEEN,
                0,
            );
        }
        Ok(Some((found, head)))
    }

    fn finish_replacing(&self, shard: &mut Shard, place: &Place, hole: Option<Hole>) {
        shard.commit(&self.space, place);
        if let Some(hole) = hole {
            // Its first line has just been read; the next record of this size will fill it.
            self.space.records.arena.prefetch(hole.at + 64);
            shard.remember(hole);
        }
    }

    /// Frees a slot in one of the key's buckets, if need be by dropping the coldest item there.
    fn make_slot(&self, hash: KeyHash) {
        if self.displace_for(hash.0) {
            return;
        }
        let pair = self.index.lock(hash.0);
        if let Some(found) = pair.coldest() {
            let head = self.space.records.head(found.location());
            self.space.retire(found.location(), &head, || pair.remove(&found));
            self.index.count(-1);
            count_shared(&self.counters.displaced_out, 1);
        }
    }

    /// Frees a slot in one of the key's buckets by displacement. If the hashes of the items that
    /// are left are not spread evenly and it fails, the table grows before its time, while DRAM is
    /// left for it. Returns false if all of that was in vain.
    pub(crate) fn displace_for(&self, hash: u64) -> bool {
        let records = &self.space.records;
        let mut steps = 1;
        while !self.index.make_room(hash, &|at| records.fetch(at), &|at| records.rehash(at)) {
            if steps > EARLY_GROWTH_MAX || !(0..steps).all(|_| self.grow_once(|| false)) {
                return false;
            }
            steps *= 2;
        }
        true
    }

    /// Counts an item that a worker has added at `place`; those that it has not told the index of
    /// are `uncounted`. The table grows if it is too full, and other items go if there are too
    /// many.
    #[inline(always)]
    pub(crate) fn count_added(
        &self,
        uncounted: &mut i64,
        shard: &mut Shard,
        place: &Place,
        now: Seconds,
    ) {
        *uncounted += 1;
        if *uncounted >= COUNT_BATCH || self.key_limit.get().is_some() {
            self.tell_index(uncounted, shard, place, now);
        }
    }

    #[inline(never)]
    fn tell_index(&self, uncounted: &mut i64, shard: &mut Shard, place: &Place, now: Seconds) {
        self.index.count(std::mem::take(uncounted));
        self.grow_index(shard, now);
        self.key_limit.keep(self, DROPPED_FOR_NEW, Some(place.location()), now, |hole| {
            shard.remember(hole);
        });
    }

    /// Counts an item that a worker has removed.
    #[inline]
    pub(crate) fn count_removed(&self, uncounted: &mut i64) {
        *uncounted -= 1;
        if *uncounted <= -COUNT_BATCH || self.key_limit.get().is_some() {
            self.index.count(std::mem::take(uncounted));
        }
    }

    /// Grows the table while it is too full and DRAM is left or can be freed.
    pub(crate) fn grow_index(&self, shard: &mut Shard, now: Seconds) {
        while self.index.wants_growth()
            && self.grow_once(|| self.evict_one(shard, now, self.for_table()))
        {}
    }

    /// Grows the table by a bucket; returns false if it must not grow. Without DRAM for it, `free`
    /// is to free some.
    fn grow_once(&self, free: impl FnOnce() -> bool) -> bool {
        let budget = &self.space.budget;
        let full = self.index.bytes() + BUCKET_BYTES > budget.table_bytes();
        let taken = !full || budget.take_table() || free() && budget.take_table();
        let records = &self.space.records;
        taken && self.index.grow(&|at| records.fetch(at), &|at| records.rehash(at))
    }

    /// Returns the manner of an eviction for the table: where values lie elsewhere, records alone
    /// have DRAM.
    fn for_table(&self) -> How {
        if self.space.records.values.is_elsewhere() {
            How::for_records(true)
        } else {
            How::for_segment(true)
        }
    }

    /// Gives back memory of the table that a shrunken cache no longer needs.
    pub(crate) fn shrink_index(&self, steps_max: usize) -> bool {
        let mut shrunk = false;
        for _ in 0..steps_max {
            let records = &self.space.records;
            if !self.index.wants_shrinking()
                || !self.index.shrink(&|at| records.fetch(at), &|at| records.rehash(at))
            {
                break;
            }
            shrunk = true;
        }
        if shrunk {
            self.index.trim();
            self.space.budget.trim_table(self.index.bytes());
        }
        shrunk
    }

    /// Asserts, while no writer runs, that quotas count what segments and the table take up, and
    /// that a segment counts what is in it.
    pub(crate) fn debug_assert_adds_up(&self) {
        if !cfg!(debug_assertions) {
            return;
        }
        let (mut segments, mut records) = (0, 0);
        let (high_water, in_use) = {
            let queues = self.space.logs.queues.lock();
            (queues.high_water(), queues.in_use)
        };
        let mut in_logs = [0; 2];
        for id in 0..high_water {
            let segment = self.space.records.segments.get(id);
            let (state, live) = (segment.state(), segment.live_items());
            if state == State::Free {
                continue;
            }
            if matches!(state, State::Piece | State::Leader) {
                segments += self.space.records.segment_bytes;
                continue;
            }
            assert!(state == State::Sealed, "everything was sealed, but segment {id} is {state:?}");
            in_logs[segment.kind().log() as usize] += 1;
            segments += self.space.records.segment_bytes;
            records += u64::from(segment.used.load(Ordering::Relaxed)).next_multiple_of(PAGE);
            let mut found = 0;
            self.walk(id, |_, _, _| found += 1);
            assert!(found == live, "segment {id} counts {live} items and has {found}");
        }
        assert!(in_logs == in_use, "the logs have {in_logs:?} segments, {in_use:?} are counted");
        self.space.budget.assert_adds_up(segments, records, self.space.logs.ghosts.bytes());
    }
}
