//! Eviction: expired and flushed segments first, then by policy. Merging keeps the items that are
//! read most often.
//!
//! After Segcache (Yang et al., NSDI 2021, section 3.4): segments of one class are merged
//! in the order of their age and the merged one joins the queue's end, so that the queue is a clock
//! whose hand passes every item, halving its frequency.

use std::sync::atomic::{Ordering, fence};

use entresol_base::{Seconds, thread};
use entresol_media::{Access, AccountHandle};

use crate::config::Eviction;
use crate::ops::Expiry;
use crate::record::{Head, NewRecord, UNIT, mark};
use crate::segment::{CLASSES, State};
use crate::shared::Shared;
use crate::shared::append::{Open, PAGE, Shard, pages_between};
use crate::statistics::count_shared;
use crate::values::{ValueAt, Values};

/// Segments merged into one when room is short.
const MERGE_SEGMENTS: usize = 4;
/// Maximum of segments merged into one when all of their live items fit.
const COMPACT_SEGMENTS_MAX: usize = 8;
/// Records whose index buckets are prefetched together.
const BATCH: usize = 16;

/// Segments to evict.
enum Victims {
    /// One whole segment.
    Whole(u32),
    /// Segments to merge: the least read items that do not fit into one are evicted.
    Merge(Vec<u32>),
}

/// Counts of the items of a segment, by their fate.
#[derive(Default)]
struct Tally {
    evicted: u64,
    evicted_unread: u64,
    expired: u64,
    expired_unread: u64,
    merged: u64,
    merged_bytes: u64,
}

impl Shared {
    /// Makes room for at least a part of a segment; returns false if there is nothing to evict.
    pub(crate) fn evict_one(&self, shard: &mut Shard, now: Seconds) -> bool {
        let Some(victims) = self.choose(&mut shard.random, now) else { return false };
        self.give_up(victims, &mut shard.account, now, Waiting::Never);
        true
    }

    /// Evicts a segment that could not be written to its medium.
    pub(crate) fn abandon(&self, id: u32) {
        self.segments.get(id).go_on(&[State::Writing], State::Sealed);
        self.evict_whole(id, Seconds(0));
    }

    fn give_up(
        &self,
        victims: Victims,
        account: &mut AccountHandle,
        now: Seconds,
        waiting: Waiting,
    ) {
        match victims {
            Victims::Whole(id) => self.evict_whole(id, now),
            Victims::Merge(ids) => self.merge(&ids, account, now, waiting),
        }
    }

    /// Frees segments without live items; returns true if it freed any.
    pub(crate) fn free_expired(&self, now: Seconds) -> bool {
        let ids: Vec<u32> = {
            let mut queues = self.queues.lock();
            let useless: Vec<u32> =
                queues.all_sealed().filter(|id| self.is_useless(*id, now)).collect();
            for id in &useless {
                let class = self.segments.get(*id).class.load(Ordering::Relaxed);
                queues.remove_sealed(class, *id);
            }
            useless
        };
        for id in &ids {
            self.evict_whole(*id, now);
        }
        !ids.is_empty()
    }

    /// Makes room before writers need it, once they have met the end of the quota, and evicts down
    /// to a lowered quota. Returns true if there is more to do.
    pub(crate) fn make_room_ahead(&self, now: Seconds) -> bool {
        const AHEAD_SEGMENTS: u64 = 2;
        let quota = self.segment_quota();
        let over = quota.used() > quota.limit() || self.dram.used() > self.dram.limit();
        let short = quota.left() < AHEAD_SEGMENTS * self.segment_bytes;
        let due = over || short && self.pressed.load(Ordering::Relaxed);
        if !due {
            if quota.left() > 2 * AHEAD_SEGMENTS * self.segment_bytes {
                self.pressed.store(false, Ordering::Relaxed);
            }
            return false;
        }
        let mut account = self.account.handle();
        let sequence = self.next_sequence.load(Ordering::Relaxed);
        let mut random = fastrand::Rng::with_seed(self.seed ^ sequence);
        let Some(victims) = self.choose(&mut random, now) else {
            // Only open segments are left; if the quota was lowered, they must go too.
            if over {
                for shard in &self.shards {
                    shard.lock().seal_all(self);
                }
            }
            return false;
        };
        self.give_up(victims, &mut account, now, Waiting::ForReads);
        true
    }

    fn is_useless(&self, id: u32, now: Seconds) -> bool {
        let segment = self.segments.get(id);
        segment.is_expired(now)
            || segment.live_items() == 0
            || segment.sequence.load(Ordering::SeqCst) < self.flushed_below()
    }

    /// Chooses victims and takes them out of their queue.
    fn choose(&self, random: &mut fastrand::Rng, now: Seconds) -> Option<Victims> {
        let mut queues = self.queues.lock();
        let useless = queues.all_sealed().find(|id| self.is_useless(*id, now));
        let whole = match self.eviction {
            _ if useless.is_some() => useless,
            Eviction::Fifo => queues.all_sealed().min_by_key(|id| self.sequence_of(*id)),
            Eviction::Random => {
                let all = queues.all_sealed().count();
                (all > 0).then(|| queues.all_sealed().nth(random.usize(..all))).flatten()
            }
            Eviction::LeastUtilised => queues.all_sealed().min_by_key(|id| self.live_bytes_of(*id)),
            Eviction::Merge => {
                let ids = self.to_merge(&queues.sealed);
                if ids.len() > 1 {
                    for id in &ids {
                        let class = self.segments.get(*id).class.load(Ordering::Relaxed);
                        queues.remove_sealed(class, *id);
                    }
                    return Some(Victims::Merge(ids));
                }
                queues.all_sealed().min_by_key(|id| self.sequence_of(*id))
            }
        }?;
        queues.remove_sealed(self.segments.get(whole).class.load(Ordering::Relaxed), whole);
        Some(Victims::Whole(whole))
    }

    fn sequence_of(&self, id: u32) -> u64 {
        self.segments.get(id).sequence.load(Ordering::SeqCst)
    }

    fn live_bytes_of(&self, id: u32) -> u64 {
        self.segments.get(id).live_bytes()
    }

    /// Returns some hollow segments of a class whose live items fit into one; otherwise the oldest
    /// ones of the class that has the oldest of all.
    fn to_merge(&self, sealed: &[std::collections::VecDeque<u32>]) -> Vec<u32> {
        // The live items must fit into one segment with a tenth to spare, so that merging two frees
        // one.
        let room = self.segment_bytes / 10 * 9;
        let mut best: Vec<u32> = Vec::new();
        for queue in sealed.iter().take(CLASSES) {
            let mut by_live: Vec<(u64, u32)> =
                queue.iter().map(|id| (self.live_bytes_of(*id), *id)).collect();
            by_live.sort_unstable();
            let mut sum = 0;
            let fitting = by_live.iter().take(COMPACT_SEGMENTS_MAX).take_while(|(live, _)| {
                sum += live;
                sum <= room
            });
            let ids: Vec<u32> = fitting.map(|(_, id)| *id).collect();
            if ids.len() > best.len() {
                best = ids;
            }
        }
        if best.len() > 1 {
            return best;
        }
        let oldest = sealed
            .iter()
            .filter(|queue| queue.len() > 1)
            .min_by_key(|queue| queue.front().map(|id| self.sequence_of(*id)));
        oldest.map_or_else(Vec::new, |queue| queue.iter().take(MERGE_SEGMENTS).copied().collect())
    }

    /// Takes sole ownership of a segment that was taken out of its queue.
    fn begin_eviction(&self, id: u32) {
        let segment = self.segments.get(id);
        let ours = segment.change_state(State::Sealed, State::Evicting);
        let state = segment.state();
        assert!(ours, "segment {id} was in the queue of sealed ones, but is {state:?}");
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        while self.writing.iter().any(|writing| writing.is_into(id)) {
            thread::yield_now();
        }
    }

    fn evict_whole(&self, id: u32, now: Seconds) {
        self.begin_eviction(id);
        let mut tally = Tally::default();
        self.walk(id, |hash, location, head| {
            self.drop_item(hash, location, &head, now, &mut tally);
        });
        self.release_segment(id);
        count_shared(&self.counters.evicted_segments, 1);
        self.book(&tally);
    }

    /// Calls `visit` with the key's hash, the location and the head of each record that may live.
    pub(crate) fn walk(&self, id: u32, mut visit: impl FnMut(u64, u64, Head)) {
        let mut at = self.base_of(id);
        let end = at + u64::from(self.segments.get(id).used.load(Ordering::Acquire));
        let mut batch: Vec<(u64, u64, Head)> = Vec::with_capacity(BATCH);
        while at < end {
            batch.clear();
            while at < end && batch.len() < BATCH {
                let head = self.head(at / UNIT);
                if !head.has(mark::DEAD) {
                    let hash = self.rehash(at / UNIT);
                    self.index.prefetch(hash);
                    batch.push((hash, at / UNIT, head));
                }
                at += head.record_bytes();
            }
            assert!(at <= end, "the last record ends at {at}, its segment's records at {end}");
            for (hash, location, head) in batch.drain(..) {
                visit(hash, location, head);
            }
        }
        // Threads that marked the skipped records dead are done with the segment.
        fence(Ordering::Acquire);
    }

    fn drop_item(&self, hash: u64, location: u64, head: &Head, now: Seconds, tally: &mut Tally) {
        let pair = self.index.lock(hash);
        let Some(found) = pair.find_location(location) else { return };
        // Marks may have changed since the head was read; under the lock they are final.
        let head_now = self.head(location);
        let expired = head.expiry(&self.arena).is_past(now) || self.is_flushed(location);
        let unread = u64::from(!found.heat().is_read());
        if expired {
            tally.expired += 1;
            tally.expired_unread += unread;
        } else {
            tally.evicted += 1;
            tally.evicted_unread += unread;
        }
        self.retire(location, &head_now, || pair.remove(&found));
    }

    fn book(&self, tally: &Tally) {
        let gone = tally.evicted + tally.expired;
        self.index.count(-i64::try_from(gone).unwrap_or(i64::MAX));
        count_shared(&self.counters.evicted_items, tally.evicted);
        count_shared(&self.counters.evicted_unread_items, tally.evicted_unread);
        count_shared(&self.counters.expired_items, tally.expired);
        count_shared(&self.counters.expired_unread_items, tally.expired_unread);
        count_shared(&self.counters.merged_items, tally.merged);
        count_shared(&self.counters.merged_bytes, tally.merged_bytes);
    }

    fn merge(&self, ids: &[u32], account: &mut AccountHandle, now: Seconds, waiting: Waiting) {
        let class = self.segments.get(ids[0]).class.load(Ordering::Relaxed);
        let plan = self.plan_merge(ids);
        let (taken, given) = (plan.segments, ids.len());
        assert!((1..=given).contains(&taken), "{taken} of {given} segments are to be merged");
        self.put_back(&ids[plan.segments..], class);
        let ids = &ids[..plan.segments];
        // Values on a block file have to be read first, and no writer may wait for that.
        let waits = matches!((&self.values, waiting), (Values::File(_), Waiting::Never));
        let target = if waits || plan.keeps_nothing {
            None
        } else {
            self.try_open_segment(class).ok().flatten()
        };
        let Some(mut target) = target else {
            self.put_back(&ids[1..], class);
            return self.evict_whole(ids[0], now);
        };
        for id in ids {
            self.begin_eviction(*id);
            let mut tally = Tally::default();
            let read = self.read_values(*id, account);
            self.walk(*id, |hash, location, head| {
                let values = read.as_deref();
                let keep = Keep { least: plan.least, target: &mut target, values };
                if !self.keep_item(hash, location, now, keep, account, &mut tally) {
                    self.drop_item(hash, location, &head, now, &mut tally);
                }
            });
            self.release_segment(*id);
            count_shared(&self.counters.merged_segments, 1);
            self.book(&tally);
        }
        self.seal(target.id);
    }

    /// Reads the values of a segment from a block file; other media need no such read.
    fn read_values(&self, id: u32, account: &mut AccountHandle) -> Option<Vec<u8>> {
        let Values::File(file) = &self.values else { return None };
        let whole = self.segment_bytes as usize;
        account.charge_part(Access::Read, whole, file.piece());
        file.read_segment(self.medium_base_of(id)).ok()
    }

    /// Returns segments that a merge did not need to the front of their queue.
    fn put_back(&self, ids: &[u32], class: u8) {
        let mut queues = self.queues.lock();
        for id in ids.iter().rev() {
            let state = self.segments.get(*id).state();
            assert!(state == State::Sealed, "segment {id} goes back to its queue as {state:?}");
            queues.sealed[class as usize].push_front(*id);
        }
    }

    /// Decides how many of these segments to merge, and the lowest frequency of items that stay. It
    /// is all segments and all items if they fit; otherwise as few segments as fill half a segment
    /// with items read since the hand last passed. More would only be emptied too early.
    fn plan_merge(&self, ids: &[u32]) -> MergePlan {
        let live: u64 = ids.iter().map(|id| self.live_bytes_of(*id)).sum();
        if live <= self.segment_bytes / 10 * 9 {
            return MergePlan { segments: ids.len(), least: 0, keeps_nothing: false };
        }
        let mut bytes_by_frequency = [0_u64; 128];
        let mut segments = 0;
        let mut read = 0;
        for id in ids {
            self.add_frequencies(*id, &mut bytes_by_frequency);
            segments += 1;
            read = bytes_by_frequency[1..].iter().sum();
            if read == 0 || segments > 1 && read > self.segment_bytes / 2 {
                break;
            }
        }
        let mut least = 1;
        let mut sum = 0;
        for frequency in (1..=127_u8).rev() {
            sum += bytes_by_frequency[usize::from(frequency)];
            if sum > self.segment_bytes {
                least = frequency;
                break;
            }
        }
        MergePlan { segments, least, keeps_nothing: read == 0 }
    }

    /// Adds the bytes of a segment's live items to the totals of their frequencies.
    fn add_frequencies(&self, id: u32, bytes_by_frequency: &mut [u64; 128]) {
        self.walk(id, |hash, location, head| {
            let is_it = |at| (at == location).then_some(());
            if let Some((found, ())) = self.index.find(hash, is_it) {
                let value = if self.values.is_elsewhere() { head.value_len as u64 } else { 0 };
                bytes_by_frequency[usize::from(found.heat().frequency())] +=
                    head.record_bytes() + value;
            }
        });
    }

    /// Copies an item into the target, if it is read often enough and there is room.
    fn keep_item(
        &self,
        hash: u64,
        location: u64,
        now: Seconds,
        keep: Keep<'_>,
        account: &mut AccountHandle,
        tally: &mut Tally,
    ) -> bool {
        let pair = self.index.lock(hash);
        let Some(found) = pair.find_location(location) else { return true };
        let head = self.head(location);
        if found.heat().frequency() < keep.least
            || head.expiry(&self.arena).is_past(now)
            || self.is_flushed(location)
        {
            return false;
        }
        let bytes = self.carry(location, &head, keep.target, keep.values, account);
        let Some((new_location, bytes)) = bytes else { return false };
        let heat = found.heat().cooled();
        self.retire(location, &head, || pair.replace(&found, new_location, heat));
        tally.merged += 1;
        tally.merged_bytes += bytes;
        true
    }

    /// Copies a record, and its value if that lies elsewhere, to the end of an open segment.
    fn carry(
        &self,
        location: u64,
        head: &Head,
        target: &mut Open,
        values: Option<&[u8]>,
        account: &mut AccountHandle,
    ) -> Option<(u64, u64)> {
        let mut key = [0_u8; 255];
        let key = &mut key[..head.key_len];
        self.arena.read(head.key_at(), key);
        let expiry = match head.expiry(&self.arena) {
            Expiry::At(second) => Some(second),
            _ => None,
        };
        // A token that a client may hold must survive the move.
        let cas =
            (head.has(mark::CAS) || head.has(mark::CAS_SEEN)).then(|| self.cas_of(location, head));
        let record = NewRecord {
            key,
            value_len: head.value_len,
            client_flags: head.client_flags(&self.arena),
            expiry,
            cas,
            marks: head.marks & (mark::STALE | mark::WIN_SENT | mark::CAS_SEEN),
            last_access: Seconds(head.marks & 0xFF_FFFF),
        };
        let elsewhere = self.values.is_elsewhere();
        let record_bytes = record.record_bytes(elsewhere);
        let value_bytes = if elsewhere { head.value_len as u64 } else { 0 };
        let place = target.next_place(self, record_bytes, value_bytes)?;
        if elsewhere {
            let pages = pages_between(target.record_used(), record_bytes);
            let mut value = Vec::new();
            let (offset, checksum) = head.place(&self.arena);
            let at = self.append_value(location, head, &mut value);
            match (&at, values) {
                (ValueAt::Memory | ValueAt::Pmem { .. }, _) => {}
                (ValueAt::File { .. }, Some(values)) => {
                    let start = offset as usize;
                    value.extend_from_slice(values.get(start..start + head.value_len)?);
                }
                _ => return None,
            }
            // A damaged value stays damaged, and is detected when it is read.
            self.dram.force(pages * PAGE);
            record.write(&self.arena, place.at, Some((place.value_offset, checksum)));
            at.charge_read(account, 0, value.len());
            self.write_value(&place, 0, [&value, b""], account);
        } else {
            let value_at = record.write(&self.arena, place.at, None);
            self.arena.copy_within(head.value_at(), value_at, head.value_len);
            account.charge(Access::Read, record_bytes as usize);
            account.charge(Access::Write, record_bytes as usize);
        }
        target.advance(self, &place);
        self.segments.get(target.id).extend_deadline(expiry);
        Some((place.location(), record_bytes + value_bytes))
    }
}

/// Decisions about one merge.
#[derive(Debug, Clone, Copy)]
struct MergePlan {
    /// Number of segments to merge.
    segments: usize,
    /// Lowest frequency of items that stay.
    least: u8,
    /// True if no item stays, so that the first segment can be evicted as it is.
    keeps_nothing: bool,
}

/// Target of the items that stay, and their lowest frequency.
struct Keep<'a> {
    least: u8,
    target: &'a mut Open,
    /// Values of the source segment, if they had to be read.
    values: Option<&'a [u8]>,
}

/// Waits that making room may include.
#[derive(Clone, Copy)]
enum Waiting {
    /// None: a writer is waiting itself.
    Never,
    /// Reads of a block file.
    ForReads,
}
