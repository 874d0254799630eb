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
//!
//! A value in pieces is passed on its own, by its first piece, which stands in the queue of its log
//! and is moved to the end of the main one without a copy. Its record stays when the segment that
//! the record is in is passed.

use std::sync::atomic::{Ordering, fence};

use entresol_base::Seconds;
use entresol_media::{Access, AccountHandle};

use crate::index::{Found, Heat, Pair};
use crate::ops::Expiry;
use crate::record::{Head, NewRecord, UNIT, mark};
use crate::segment::{Front, Kind, Log, State};
use crate::shared::append::{EVICTIONS_MAX, Hole, Open, Shard};
use crate::shared::balance::Trial;
use crate::shared::budget::Need;
use crate::shared::items::Items;
use crate::shared::writers::Writers;
use crate::statistics::{Counters, count_shared};
use crate::values::{ValueAt, Values};

/// Records whose index buckets are prefetched together.
const BATCH: usize = 16;
/// Evictions for one segment that keep every item that was read, at most, and their bytes. Further
/// ones keep half a segment, so that a writer's wait is bounded.
const SOFT_EVICTIONS_MAX: u64 = 64;
const SOFT_EVICTIONS_MIN: u64 = 4;
const SOFT_EVICTED_BYTES: u64 = 16 << 20;

/// Segment to evict.
#[derive(Clone, Copy)]
enum Victim {
    /// One without live items.
    Useless(u32),
    /// The oldest segment of a log.
    Oldest(u32),
    /// The oldest value in pieces of a log, and the sequence under which it was taken.
    Value(u32, u64),
}

/// An item that eviction passes.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    hash: u64,
    location: u64,
    found: Found,
    pub(crate) head: Head,
}

/// Counts of the items of a segment, by their fate.
#[derive(Default)]
pub(crate) struct Tally {
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
    /// Bytes that are left for the records of values in pieces that stay.
    lists_left: u64,
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
    /// True if DRAM is wanted for records whose values lie elsewhere: pieces have none of it.
    pub(crate) records: bool,
}

impl How {
    /// Returns the manner for a writer that wants a segment.
    pub(crate) fn for_segment(hard: bool) -> How {
        How { at_once: true, hard, over: false, records: false }
    }

    /// Returns the manner for a writer that wants DRAM.
    pub(crate) fn for_records(hard: bool) -> How {
        How { records: true, ..How::for_segment(hard) }
    }
}

impl Items {
    /// Makes room for at least a part of a segment; returns false if there is nothing to evict.
    pub(crate) fn evict_one(&self, shard: &mut Shard, now: Seconds, how: How) -> bool {
        let mut victim = self.choose(now, how);
        if let Some(Victim::Oldest(id)) = victim
            && how.at_once
            && self.has_kept(id, shard)
        {
            victim = self.choose(now, how);
            self.space.put_back(id);
        }
        let Some(victim) = victim else { return false };
        self.evict(victim, shard, now, how);
        true
    }

    /// Evicts a segment that could not be written to its medium.
    pub(crate) fn abandon(&self, id: u32) {
        self.space.records.segments.get(id).go_on(&[State::Writing], State::Sealed);
        self.evict_whole(id, Seconds(0));
    }

    fn evict(&self, victim: Victim, shard: &mut Shard, now: Seconds, how: How) {
        match victim {
            Victim::Value(id, sequence) => self.pass_value(id, sequence, shard, now, how),
            Victim::Oldest(id) => self.pass(id, shard, now, how),
            Victim::Useless(id) => self.evict_whole(id, now),
        }
    }

    /// Returns true if the item that a store depends on has its value in a segment of a block file,
    /// without which it cannot be copied: then others go first.
    fn has_kept(&self, id: u32, shard: &Shard) -> bool {
        let Some(hash) = shard.keep else { return false };
        let records = &self.space.records;
        let is_here = |at: u64| records.segment_of(at) == id && records.head(at).is_elsewhere();
        matches!(records.values, Values::File(_))
            && self.index.lock(hash).find(|at| is_here(at).then_some(())).is_some()
    }

    /// Evicts until the quota has a segment left, and those that evictions copy items into.
    pub(crate) fn make_room(&self, shard: &mut Shard, now: Seconds) {
        let soft = (SOFT_EVICTED_BYTES / self.space.records.segment_bytes)
            .clamp(SOFT_EVICTIONS_MIN, SOFT_EVICTIONS_MAX) as usize;
        for attempt in 0..soft + EVICTIONS_MAX {
            if self.space.budget.has_segment() {
                return;
            }
            self.space.budget.press();
            if !self.evict_one(shard, now, How::for_segment(attempt >= soft)) {
                return;
            }
        }
    }

    /// Frees segments without live items; returns true if it freed any.
    pub(crate) fn free_expired(&self, now: Seconds) -> bool {
        let below = self.space.flushes.below();
        if !self.space.vacancy.may_be_any(now, below) {
            return false;
        }
        let ids = {
            let mut queues = self.space.logs.queues.lock();
            self.space.vacancy.take_all(&mut queues, &self.space.records.segments, now, below)
        };
        for id in &ids {
            self.evict_whole(*id, now);
        }
        !ids.is_empty()
    }

    /// Makes room before writers need it, once they have met the end of the quota, and evicts down
    /// to a lowered quota. Returns true if there is more to do.
    pub(crate) fn make_room_ahead(&self, writers: &Writers, now: Seconds) -> bool {
        let need = self.space.budget.need();
        if need == Need::None {
            return false;
        }
        let over = need == Need::Over;
        let records = self.space.budget.lacks_records();
        let how = How { at_once: false, hard: over, over, records };
        let Some(victim) = self.choose(now, how) else {
            // Only open segments are left; if the quota was lowered, they must go too.
            if over {
                writers.seal_all(&self.space);
            }
            return false;
        };
        let mut upkeep = writers.upkeep.lock();
        self.evict(victim, &mut upkeep, now, how);
        true
    }

    /// Chooses a victim and takes it out of its queue.
    fn choose(&self, now: Seconds, how: How) -> Option<Victim> {
        let mut queues = self.space.logs.queues.lock();
        let (segments, below) = (&self.space.records.segments, self.space.flushes.below());
        if let Some(id) = self.space.vacancy.take_one(&mut queues, segments, now, below) {
            return Some(Victim::Useless(id));
        }
        Some(match self.space.logs.take_oldest(&mut queues, segments, !how.records)? {
            Front::Segment(_, id) => Victim::Oldest(id),
            Front::Leader(id) => {
                Victim::Value(id, segments.get(id).sequence.load(Ordering::SeqCst))
            }
        })
    }

    fn evict_whole(&self, id: u32, now: Seconds) {
        self.space.begin_eviction(id);
        let log = self.space.records.segments.get(id).kind().log();
        let mut tally = Tally::default();
        self.walk(id, |hash, location, _| self.let_go((hash, location), log, now, &mut tally));
        self.space.release_segment(id);
        count_shared(&self.counters.evicted_segments, 1);
        self.book(log, &tally);
    }

    /// Lets an item go, if it is still there.
    fn let_go(&self, (hash, location): (u64, u64), log: Log, now: Seconds, tally: &mut Tally) {
        let pair = self.index.lock(hash);
        if let Some(item) = self.item_at(&pair, hash, location) {
            self.hand_down(pair, &item, log, now, tally);
        }
    }

    /// Calls `visit` with the key's hash, the location and the head of each record that may live.
    pub(crate) fn walk(&self, id: u32, mut visit: impl FnMut(u64, u64, Head)) {
        let mut at = self.space.records.base_of(id);
        let end = at + u64::from(self.space.records.segments.get(id).used.load(Ordering::Acquire));
        let mut batch: Vec<(u64, u64, Head)> = Vec::with_capacity(BATCH);
        while at < end {
            batch.clear();
            while at < end && batch.len() < BATCH {
                let head = self.space.records.head(at / UNIT);
                if !head.has(mark::DEAD) {
                    let hash = self.space.records.rehash(at / UNIT);
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
        head.expiry(&self.space.records.arena).is_past(now) || self.space.is_flushed(location)
    }

    /// Returns the item at a location, if the index still names it.
    #[inline]
    pub(crate) fn item_at(&self, pair: &Pair<'_>, hash: u64, location: u64) -> Option<Item> {
        let found = pair.find_location(location)?;
        // Marks may have changed since the head was read; under the lock they are final.
        Some(Item { hash, location, found, head: self.space.records.head(location) })
    }

    /// Ends the stay of an item on its medium, under the lock of its buckets. Every eviction ends
    /// here. There is one medium, so the item is let go; its key is remembered if it was alive.
    /// Returns its room.
    #[inline]
    pub(crate) fn hand_down(
        &self,
        pair: Pair<'_>,
        item: &Item,
        from: Log,
        now: Seconds,
        tally: &mut Tally,
    ) -> Option<Hole> {
        let Item { hash, location, found, head } = item;
        // Once the record is dead, its segment may be in another life.
        let bytes = self.space.records.item_bytes(head);
        let from = if head.has(mark::PIECES) { self.space.log_of(*location, head) } else { from };
        let is_dead = self.is_dead(*location, head, now);
        let hole = self.space.retire(*location, head, || pair.remove(found));
        drop(pair);
        let unread = u64::from(!found.heat().is_read());
        if is_dead {
            tally.expired += 1;
            tally.expired_unread += unread;
        } else {
            tally.evicted += 1;
            tally.evicted_unread += unread;
            tally.evicted_bytes += bytes;
            self.space.logs.ghosts.put(*hash, from);
        }
        hole
    }

    /// Counts the items of a log that went and stayed.
    pub(crate) fn book(&self, log: Log, tally: &Tally) {
        let gone = tally.gone();
        self.index.count(-i64::try_from(gone).unwrap_or(i64::MAX));
        self.space.logs.balance.book(log, tally.evicted_bytes, &tally.new, &tally.back);
        count_shared(&self.counters.evicted_items, tally.evicted);
        count_shared(&self.counters.evicted_unread_items, tally.evicted_unread);
        count_shared(&self.counters.expired_items, tally.expired);
        count_shared(&self.counters.expired_unread_items, tally.expired_unread);
        count_shared(&self.counters.merged_items, tally.merged);
        count_shared(&self.counters.merged_bytes, tally.merged_bytes);
    }

    /// Copies the items of a segment that stay, lets the others go, and frees the segment. Values
    /// on a block file would have to be read first, and no writer may wait for that: then only the
    /// records of values in pieces stay.
    fn pass(&self, id: u32, shard: &mut Shard, now: Seconds, how: How) {
        self.space.logs.prepare_ghosts(&self.index, &self.space.budget);
        self.space.begin_eviction(id);
        let is_on_file = matches!(self.space.records.values, Values::File(_));
        let waits = is_on_file && how.at_once;
        let read = (!waits).then(|| self.read_values(id, &mut shard.account)).flatten();
        let kind = self.space.records.segments.get(id).kind();
        let lists_only = is_on_file && read.is_none();
        let used = u64::from(self.space.records.segments.get(id).used.load(Ordering::Relaxed));
        let bytes_max = match how.hard {
            true if how.records => used / 2,
            true => self.space.records.segment_bytes / 2,
            false => u64::MAX,
        };
        let values = read.as_deref();
        let tally = Tally::default();
        // If the records' DRAM is wanted, not all of them may be such that always stay.
        let lists_left = if how.records { used / 2 } else { u64::MAX };
        let mut pass = Pass { shard, kind, now, how, values, bytes_max, lists_left, tally };
        self.walk(id, |hash, location, head| {
            if lists_only && !head.has(mark::PIECES) {
                self.let_go((hash, location), kind.log(), now, &mut pass.tally);
            } else {
                self.pass_item(hash, location, &mut pass);
            }
        });
        let tally = pass.tally;
        // No one asks for admission by this handle: what was moved becomes the tenant's debt here.
        shard.account.settle();
        self.space.release_segment(id);
        let is_merged = !waits || tally.merged > 0;
        let Counters { merged_segments, evicted_segments, .. } = &self.counters;
        count_shared(if is_merged { merged_segments } else { evicted_segments }, 1);
        self.book(kind.log(), &tally);
    }

    /// Puts a value in pieces to the end of the main log, or lets its item go.
    fn pass_value(&self, id: u32, sequence: u64, shard: &mut Shard, now: Seconds, how: How) {
        self.space.logs.prepare_ghosts(&self.index, &self.space.budget);
        let leader = self.space.records.segments.get(id);
        let log = leader.kind().log();
        let mut tally = Tally::default();
        loop {
            let location = leader.owner();
            // If the item has died, this may be anything; then no slot names it.
            let hash = self.space.records.rehash(location);
            let pair = self.index.lock(hash);
            if leader.sequence.load(Ordering::SeqCst) != sequence {
                return;
            }
            if leader.owner() != location {
                continue;
            }
            let Some(item) = self.item_at(&pair, hash, location) else { return };
            let (found, head) = (item.found, &item.head);
            if self.space.records.leader_of_item(head) != Some(id) {
                // Its item is about to end, and another one is in the place of the record already.
                return;
            }
            let bytes = self.space.records.item_bytes(head);
            let heat = found.heat();
            // A lowered quota does not hurry: each pass takes some of the heat.
            let stays = (!how.hard || how.over)
                && self.space.logs.stays(log, heat, bytes)
                && !self.is_dead(location, head, now);
            if shard.keep == Some(hash) {
                self.space.requeue_value(id, log);
            } else if stays {
                self.space.requeue_value(id, Log::Main);
                let heat = if log == Log::Small { heat.settled() } else { heat.passed() };
                self.index.set_heat(&found, heat);
                tally.merged += 1;
                tally.try_out(log, found.heat());
            } else {
                tally.try_out(log, heat);
                self.hand_down(pair, &item, log, now, &mut tally);
            }
            break;
        }
        self.book(log, &tally);
    }

    /// Copies an item to the main log, or lets it go.
    fn pass_item(&self, hash: u64, location: u64, pass: &mut Pass<'_>) {
        let log = pass.kind.log();
        let slots = pass.shard.slots_of(pass.kind.in_main());
        // The second attempt is with a new segment.
        for may_open in [true, false] {
            let pair = self.index.lock(hash);
            let Some(item) = self.item_at(&pair, hash, location) else { return };
            let Item { found, head, .. } = item;
            let heat = found.heat();
            let stays = self.may_stay(&item, log, pass);
            if stays {
                let (account, open) = (&mut pass.shard.account, &mut pass.shard.open);
                let copy = slots.into_iter().find_map(|slot| {
                    let target = open[slot].as_mut()?;
                    let copied = self.carry(location, &head, target, pass.values, account)?;
                    Some((slot, copied))
                });
                if let Some((slot, (new_location, bytes))) = copy {
                    self.settle(&pair, &item, log, new_location);
                    drop(pair);
                    pass.tally.merged += 1;
                    pass.tally.merged_bytes += bytes;
                    if head.has(mark::PIECES) {
                        pass.shard.keep_head(&self.space, Some(slot), new_location);
                    } else {
                        pass.tally.try_out(log, found.heat());
                    }
                    return;
                }
                drop(pair);
                if may_open && self.replace_target(slots, pass) {
                    continue;
                }
                return self.pass_dropped(hash, location, pass);
            }
            pass.tally.try_out(log, heat);
            self.hand_down(pair, &item, log, pass.now, &mut pass.tally);
            return;
        }
    }

    /// Returns true if an item of a segment stays, as far as there is room. That of a value in
    /// pieces is judged when its value is passed: here its record is all that there is to gain.
    #[inline]
    fn may_stay(&self, item: &Item, log: Log, pass: &mut Pass<'_>) -> bool {
        let Item { hash, location, found, head } = item;
        if self.is_dead(*location, head, pass.now) {
            return false;
        }
        if pass.shard.keep == Some(*hash) {
            return true;
        }
        let bytes = head.record_bytes() + self.space.records.bytes_elsewhere(head);
        if pass.tally.merged_bytes + bytes > pass.bytes_max {
            return false;
        }
        if !head.has(mark::PIECES) {
            return self.space.logs.stays(log, found.heat(), bytes);
        }
        let fits = head.record_bytes() <= pass.lists_left;
        pass.lists_left -= if fits { head.record_bytes() } else { 0 };
        fits
    }

    /// Points an item's slot at the copy of its record, under the lock of its buckets.
    fn settle(&self, pair: &Pair<'_>, item: &Item, log: Log, new_location: u64) {
        let Item { location, found, head, .. } = item;
        let heat = found.heat();
        let heat = match self.space.records.leader_of_item(head) {
            Some(leader) => {
                self.space.records.segments.get(leader).set_owner(new_location);
                heat
            }
            None if log == Log::Small => heat.settled(),
            None => heat.passed(),
        };
        self.space.retire_moved(*location, head, || pair.replace(found, new_location, heat));
    }

    /// Lets an item go that would have stayed, but for which there is no room.
    #[cold]
    fn pass_dropped(&self, hash: u64, location: u64, pass: &mut Pass<'_>) {
        let pair = self.index.lock(hash);
        let Some(item) = self.item_at(&pair, hash, location) else { return };
        let log = pass.kind.log();
        pass.tally.try_out(log, item.found.heat());
        self.hand_down(pair, &item, log, pass.now, &mut pass.tally);
    }

    /// Opens another segment to copy items to, and seals one for that if need be.
    fn replace_target(&self, slots: [usize; 2], pass: &mut Pass<'_>) -> bool {
        let slot = pass.shard.vacate(&self.space, slots);
        let kind = pass.kind.in_main();
        pass.shard.open[slot] = self.space.try_open_segment(kind, pass.how.over).ok().flatten();
        pass.shard.open[slot].is_some()
    }

    /// Reads the values of a segment from a block file; other media need no such read.
    fn read_values(&self, id: u32, account: &mut AccountHandle) -> Option<Vec<u8>> {
        let Values::File(file) = &self.space.records.values else { return None };
        let whole = self.space.records.segment_bytes as usize;
        account.charge_part(Access::Read, whole, file.piece());
        file.read_segment(self.space.records.medium_base_of(id)).ok()
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
        self.space.records.arena.read(head.key_at(), key);
        let expiry = match head.expiry(&self.space.records.arena) {
            Expiry::At(second) => Some(second),
            _ => None,
        };
        // A token that a client may hold must survive the move.
        let cas = (head.has(mark::CAS) || head.has(mark::CAS_SEEN))
            .then(|| self.space.records.cas_of(location, head));
        let record = NewRecord {
            key,
            value_len: head.value_len,
            client_flags: head.client_flags(&self.space.records.arena),
            expiry,
            cas,
            marks: kept_marks(head),
            last_access: Seconds(head.marks & 0xFF_FFFF),
        };
        let elsewhere = head.has_place();
        let record_bytes = record.record_bytes(elsewhere);
        let value_bytes = self.space.records.bytes_elsewhere(head);
        let place = target.next_place(&self.space, record_bytes, value_bytes)?;
        if elsewhere {
            let mut value = Vec::new();
            let (offset, checksum) = head.place(&self.space.records.arena);
            let at = self.append_elsewhere(location, head, &mut value);
            match (&at, values) {
                (ValueAt::Memory | ValueAt::Pmem { .. }, _) => {}
                (ValueAt::File { .. }, Some(values)) => {
                    let start = offset as usize;
                    value.extend_from_slice(values.get(start..start + head.value_len)?);
                }
                _ => return None,
            }
            // A damaged value stays damaged, and is detected when it is read.
            self.space.budget.force_pages(target.record_used(), record_bytes);
            let arena = &self.space.records.arena;
            let list_at = record.write(arena, place.at, Some((place.value_offset, checksum)));
            if head.has(mark::PIECES) {
                arena.copy_within(head.list_at(), list_at, head.value_len);
            }
            at.charge_read(account, 0, value.len());
            self.space.records.write_value(&place, 0, [&value, b""], account);
        } else {
            let value_at = record.write(&self.space.records.arena, place.at, None);
            self.space.records.arena.copy_within(head.value_at(), value_at, head.value_len);
            account.charge(Access::Read, record_bytes as usize);
            account.charge(Access::Write, record_bytes as usize);
        }
        target.advance(&self.space, &place);
        let segment = self.space.records.segments.get(target.id);
        segment.add_live_pieces(self.space.records.bytes_in_pieces(head));
        segment.extend_deadline(expiry);
        Some((place.location(), record_bytes + value_bytes))
    }

    /// Appends a value that lies elsewhere, or the rest of one in pieces, to `out`.
    fn append_elsewhere(&self, location: u64, head: &Head, out: &mut Vec<u8>) -> ValueAt {
        let records = &self.space.records;
        if !head.has(mark::PIECES) {
            return records.append_value(location, head, out);
        }
        if records.keeps_rests() {
            return ValueAt::Memory;
        }
        match records.list_of(head) {
            Some(list) if records.append_rest(location, head, &list, out) => ValueAt::Memory,
            _ => ValueAt::Gone,
        }
    }
}

/// Returns the marks that a record keeps when it moves.
fn kept_marks(head: &Head) -> u32 {
    let mut kept = mark::STALE | mark::WIN_SENT | mark::CAS_SEEN;
    if head.has(mark::PIECES) {
        // Such a record always has room for an expiry.
        kept |= mark::PIECES | mark::EXPIRY;
    }
    head.marks & kept
}

impl Tally {
    /// Returns the number of items that were let go.
    fn gone(&self) -> u64 {
        self.evicted + self.expired
    }

    /// Counts an item that leaves the small log.
    fn try_out(&mut self, log: Log, heat: Heat) {
        if log == Log::Small {
            let trial = if heat.is_back() { &mut self.back } else { &mut self.new };
            trial.count(heat.count() > 0);
        }
    }
}
