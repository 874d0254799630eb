//! Eviction: expired and flushed segments first, then the oldest segment of one of the two logs.
//!
//! New items are appended to the small log, and those that are read there are copied to the main
//! one when eviction passes them; the others are let go and leave a ghost tag. A key whose tag is
//! still there is stored in the main log at once. The main log is a clock: an item that was read
//! since eviction last passed it is copied to the log's end.
//!
//! Small and main queue, ghosts and counts of two bits are S3-FIFO's (Yang et al., SOSP 2023); the
//! share of the small log follows the ghosts as in ARC (Megiddo, Modha, FAST 2003). Segments are
//! passed as a whole, after Segcache (Yang et al., NSDI 2021, section 3.4), so that items are only
//! ever copied from segment to segment.

use std::sync::atomic::{Ordering, fence};

use entresol_base::{Seconds, thread};
use entresol_media::{Access, AccountHandle};

use crate::config::Favour;
use crate::index::{Found, Heat};
use crate::ops::Expiry;
use crate::record::{Head, NewRecord, UNIT, mark};
use crate::segment::{Kind, Log, NEVER, Queues, State};
use crate::shared::Shared;
use crate::shared::append::{Open, PAGE, Shard, pages_between};
use crate::shared::balance::Trial;
use crate::statistics::count_shared;
use crate::values::{ValueAt, Values};

/// Records whose index buckets are prefetched together.
const BATCH: usize = 16;
/// Evictions between two searches for segments without live items: they need not wait for their
/// turn, but nothing tells of them.
const SEARCH_EVERY: u64 = 32;
/// Passes without a read that an item smaller than the mean outlives at most.
const PASSES_MAX: u8 = 3;
/// An item without a read stays up to this part of the mean size, halved by each pass.
const UNREAD_NUMERATOR: u64 = 72;
const UNREAD_DENOMINATOR: u64 = 100;
/// An item stays up to this many mean sizes for each read.
const READ_SIZES: u64 = 8;

/// Segment to evict.
#[derive(Clone, Copy)]
enum Victim {
    /// One without live items.
    Useless(u32),
    /// The oldest segment of a log.
    Oldest(u32),
}

/// Counts of the items of a segment, by their fate.
#[derive(Default)]
struct Tally {
    evicted: u64,
    evicted_unread: u64,
    evicted_bytes: u64,
    expired: u64,
    expired_unread: u64,
    merged: u64,
    merged_bytes: u64,
    /// Items of the small log: new ones, and those that the main log had let go.
    new: Trial,
    back: Trial,
}

/// A segment that eviction passes: items that stay are copied to the shard's open segment of the
/// main log.
struct Pass<'a> {
    shard: &'a mut Shard,
    kind: Kind,
    now: Seconds,
    how: How,
    /// Values of the segment, if they had to be read.
    values: Option<&'a [u8]>,
    /// Bytes of the items that stay at most.
    bytes_max: u64,
    tally: Tally,
}

/// Manner of an eviction.
#[derive(Clone, Copy)]
pub(crate) struct How {
    /// True if a writer is waiting, so that nothing may be read from a block file.
    pub(crate) at_once: bool,
    /// True if at most half of the segment may stay, so that room is made in any case.
    pub(crate) hard: bool,
    /// True if the quota was lowered: a segment for the items that stay is opened nevertheless,
    /// since the evicted one goes at once.
    pub(crate) over: bool,
}

impl Shared {
    /// Makes room for at least a part of a segment; returns false if there is nothing to evict.
    pub(crate) fn evict_one(&self, shard: &mut Shard, now: Seconds, hard: bool) -> bool {
        let Some(victim) = self.choose(now) else { return false };
        self.evict(victim, shard, now, How { at_once: true, hard, over: false });
        true
    }

    /// Evicts a segment that could not be written to its medium.
    pub(crate) fn abandon(&self, id: u32) {
        self.segments.get(id).go_on(&[State::Writing], State::Sealed);
        self.evict_whole(id, Seconds(0));
    }

    fn evict(&self, victim: Victim, shard: &mut Shard, now: Seconds, how: How) {
        // Values on a block file have to be read first, and no writer may wait for that.
        let waits = matches!(self.values, Values::File(_)) && how.at_once;
        match victim {
            Victim::Oldest(id) if !waits => self.pass(id, shard, now, how),
            Victim::Oldest(id) | Victim::Useless(id) => self.evict_whole(id, now),
        }
    }

    /// Frees segments without live items; returns true if it freed any.
    pub(crate) fn free_expired(&self, now: Seconds) -> bool {
        let ids: Vec<u32> = {
            let mut queues = self.queues.lock();
            let useless: Vec<u32> =
                queues.all_sealed().filter(|id| self.is_useless(*id, now)).collect();
            for id in &useless {
                queues.remove_sealed(self.segments.get(*id).kind(), *id);
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
        /// Part of the DRAM quota that is free when writers are not pressed.
        const DRAM_SHARE: u64 = 64;
        let quota = self.segment_quota();
        let over = quota.used() > quota.limit() || self.dram.used() > self.dram.limit();
        let ahead = AHEAD_SEGMENTS * self.segment_bytes;
        let short = quota.left() < ahead;
        let due = over || short && self.pressed.load(Ordering::Relaxed);
        if !due {
            let dram_left =
                !self.values.is_elsewhere() || self.dram.left() > self.dram.limit() / DRAM_SHARE;
            if quota.left() > 2 * ahead && dram_left {
                self.pressed.store(false, Ordering::Relaxed);
            }
            return false;
        }
        let Some(victim) = self.choose(now) else {
            // Only open segments are left; if the quota was lowered, they must go too.
            if over {
                for shard in self.all_shards() {
                    shard.lock().seal_all(self);
                }
            }
            return false;
        };
        let mut upkeep = self.upkeep.lock();
        self.evict(victim, &mut upkeep, now, How { at_once: false, hard: over, over });
        true
    }

    fn is_useless(&self, id: u32, now: Seconds) -> bool {
        let segment = self.segments.get(id);
        segment.is_expired(now)
            || segment.live_items() == 0
            || segment.sequence.load(Ordering::SeqCst) < self.flushed_below()
    }

    /// Chooses a victim and takes it out of its queue.
    fn choose(&self, now: Seconds) -> Option<Victim> {
        let mut queues = self.queues.lock();
        if let Some(id) = self.find_useless(&mut queues, now) {
            queues.remove_sealed(self.segments.get(id).kind(), id);
            return Some(Victim::Useless(id));
        }
        let [small, main] = [Log::Small, Log::Main]
            .map(|log| queues.fronts(log).min_by_key(|(_, id)| self.sequence_of(*id)));
        let excess = queues.in_use[0] > self.balance.share_of(queues.used());
        let (kind, id) = if excess { small.or(main) } else { main.or(small) }?;
        queues.remove_sealed(kind, id);
        Some(Victim::Oldest(id))
    }

    /// Finds a segment without live items. A search passes all segments, so there is one only when
    /// a segment may have expired, after a flush, and every now and then.
    fn find_useless(&self, queues: &mut Queues, now: Seconds) -> Option<u32> {
        queues.evictions += 1;
        let due = queues.next_deadline <= now.0
            || self.flushed_below() != 0
            || queues.evictions.is_multiple_of(SEARCH_EVERY);
        if !due {
            return None;
        }
        let useless = queues.all_sealed().find(|id| self.is_useless(*id, now));
        if useless.is_none() {
            let deadlines = queues.all_sealed().map(|id| {
                let deadline = self.segments.get(id).deadline.load(Ordering::Relaxed);
                if deadline == NEVER { u32::MAX } else { deadline }
            });
            queues.next_deadline = deadlines.min().unwrap_or(u32::MAX);
        }
        useless
    }

    fn sequence_of(&self, id: u32) -> u64 {
        self.segments.get(id).sequence.load(Ordering::SeqCst)
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
        let log = self.segments.get(id).kind().log();
        let mut tally = Tally::default();
        self.walk(id, |hash, location, _| {
            let pair = self.index.lock(hash);
            let Some(found) = pair.find_location(location) else { return };
            // Marks may have changed since the head was read; under the lock they are final.
            let head = self.head(location);
            self.retire(location, &head, || pair.remove(&found));
            drop(pair);
            self.let_go(hash, location, &found, &head, log, now, &mut tally);
        });
        self.release_segment(id);
        count_shared(&self.counters.evicted_segments, 1);
        self.book(log, &tally);
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

    fn is_dead(&self, location: u64, head: &Head, now: Seconds) -> bool {
        head.expiry(&self.arena).is_past(now) || self.is_flushed(location)
    }

    /// Counts an item that was removed from the index, and remembers its key if it was alive.
    #[expect(clippy::too_many_arguments, reason = "the tail of both kinds of eviction")]
    fn let_go(
        &self,
        hash: u64,
        location: u64,
        found: &Found,
        head: &Head,
        log: Log,
        now: Seconds,
        tally: &mut Tally,
    ) {
        let unread = u64::from(!found.heat().is_read());
        if self.is_dead(location, head, now) {
            tally.expired += 1;
            tally.expired_unread += unread;
        } else {
            tally.evicted += 1;
            tally.evicted_unread += unread;
            tally.evicted_bytes += self.item_bytes(head);
            self.ghosts.put(hash, log);
        }
    }

    /// Returns the bytes of an item's record and value.
    fn item_bytes(&self, head: &Head) -> u64 {
        let value = if self.values.is_elsewhere() { head.value_len as u64 } else { 0 };
        head.record_bytes() + value
    }

    fn book(&self, log: Log, tally: &Tally) {
        let gone = tally.evicted + tally.expired;
        self.index.count(-i64::try_from(gone).unwrap_or(i64::MAX));
        self.balance.book(log, tally.evicted_bytes, &tally.new, &tally.back);
        count_shared(&self.counters.evicted_items, tally.evicted);
        count_shared(&self.counters.evicted_unread_items, tally.evicted_unread);
        count_shared(&self.counters.expired_items, tally.expired);
        count_shared(&self.counters.expired_unread_items, tally.expired_unread);
        count_shared(&self.counters.merged_items, tally.merged);
        count_shared(&self.counters.merged_bytes, tally.merged_bytes);
    }

    /// Copies the items of a segment that stay, lets the others go, and frees the segment.
    fn pass(&self, id: u32, shard: &mut Shard, now: Seconds, how: How) {
        self.prepare_ghosts();
        self.begin_eviction(id);
        let read = self.read_values(id, &mut shard.account);
        let kind = self.segments.get(id).kind();
        // Without their values none of the items can be copied.
        let lost = matches!(self.values, Values::File(_)) && read.is_none();
        let bytes_max = match (lost, how.hard) {
            (true, _) => 0,
            (false, true) => self.segment_bytes / 2,
            (false, false) => u64::MAX,
        };
        let values = read.as_deref();
        let tally = Tally::default();
        let mut pass = Pass { shard, kind, now, how, values, bytes_max, tally };
        self.walk(id, |hash, location, _| self.pass_item(hash, location, &mut pass));
        let tally = pass.tally;
        self.release_segment(id);
        count_shared(&self.counters.merged_segments, 1);
        self.book(kind.log(), &tally);
    }

    /// Copies an item to the main log, or lets it go.
    fn pass_item(&self, hash: u64, location: u64, pass: &mut Pass<'_>) {
        let log = pass.kind.log();
        let slots = pass.shard.slots_of(pass.kind.in_main());
        // The second attempt is with a new segment.
        for may_open in [true, false] {
            let pair = self.index.lock(hash);
            let Some(found) = pair.find_location(location) else { return };
            // Marks may have changed since the head was read; under the lock they are final.
            let head = self.head(location);
            let bytes = self.item_bytes(&head);
            let heat = found.heat();
            let stays = self.stays(log, heat, bytes)
                && pass.tally.merged_bytes + bytes <= pass.bytes_max
                && !self.is_dead(location, &head, pass.now);
            if stays {
                let (account, open) = (&mut pass.shard.account, &mut pass.shard.open);
                let copy = slots.into_iter().find_map(|slot| {
                    self.carry(location, &head, open[slot].as_mut()?, pass.values, account)
                });
                if let Some((new_location, bytes)) = copy {
                    let heat = if log == Log::Small { heat.settled() } else { heat.passed() };
                    self.retire(location, &head, || pair.replace(&found, new_location, heat));
                    pass.tally.merged += 1;
                    pass.tally.merged_bytes += bytes;
                    pass.tally.try_out(log, found.heat());
                    return;
                }
                drop(pair);
                if may_open && self.replace_target(slots, pass) {
                    continue;
                }
                return self.pass_dropped(hash, location, pass);
            }
            self.retire(location, &head, || pair.remove(&found));
            drop(pair);
            pass.tally.try_out(log, heat);
            self.let_go(hash, location, &found, &head, log, pass.now, &mut pass.tally);
            return;
        }
    }

    /// Lets an item go that would have stayed, but for which there is no room.
    #[cold]
    fn pass_dropped(&self, hash: u64, location: u64, pass: &mut Pass<'_>) {
        let pair = self.index.lock(hash);
        let Some(found) = pair.find_location(location) else { return };
        let head = self.head(location);
        self.retire(location, &head, || pair.remove(&found));
        drop(pair);
        let log = pass.kind.log();
        pass.tally.try_out(log, found.heat());
        self.let_go(hash, location, &found, &head, log, pass.now, &mut pass.tally);
    }

    /// Opens another segment to copy items to, and seals one for that if need be.
    fn replace_target(&self, slots: [usize; 2], pass: &mut Pass<'_>) -> bool {
        let slot = pass.shard.vacate(self, slots);
        let kind = pass.kind.in_main();
        pass.shard.open[slot] = self.try_open_segment(kind, pass.how.over).ok().flatten();
        pass.shard.open[slot].is_some()
    }

    /// Returns true if an item of so many bytes stays when eviction passes it.
    fn stays(&self, log: Log, heat: Heat, bytes: u64) -> bool {
        let count = u64::from(heat.count());
        let mean = self.balance.mean_bytes();
        if self.favour == Favour::Bytes || mean == 0 {
            return count > 0;
        }
        if count > 0 {
            return bytes <= READ_SIZES * count * mean;
        }
        // The mark of an item that is back stands beside the count of passes, which only the main
        // log keeps.
        let passes = if log == Log::Main { heat.passes() } else { 0 };
        passes < PASSES_MAX && (bytes << passes) * UNREAD_DENOMINATOR <= UNREAD_NUMERATOR * mean
    }

    /// Reads the values of a segment from a block file; other media need no such read.
    fn read_values(&self, id: u32, account: &mut AccountHandle) -> Option<Vec<u8>> {
        let Values::File(file) = &self.values else { return None };
        let whole = self.segment_bytes as usize;
        account.charge_part(Access::Read, whole, file.piece());
        file.read_segment(self.medium_base_of(id)).ok()
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

impl Tally {
    /// Counts an item that leaves the small log.
    fn try_out(&mut self, log: Log, heat: Heat) {
        if log == Log::Small {
            let trial = if heat.is_back() { &mut self.back } else { &mut self.new };
            trial.count(heat.count() > 0);
        }
    }
}
