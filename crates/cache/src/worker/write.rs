//! Stores, deletes, counting and touching.
//!
//! A new record is first written to a reserved place and then published under its buckets' lock,
//! where the condition is checked. A value that depends on the old item is computed from a copy of
//! it and published only if the item has not changed.

use std::sync::Arc;

use entresol_base::{Seconds, mutation_site};

use crate::index::Found;
use crate::ops::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, ItemMeta, KeyHash, OldValue, PendingRead,
    Store, StoreMode, Stored, Win,
};
use crate::record::{Head, NewRecord, mark};
use crate::shared::append::NoPlace;
use crate::shared::items::{Published, Refusal};
use crate::shared::records::Records;
use crate::shared::space::Seen;
use crate::statistics::count;
use crate::values::ValueAt;
use crate::worker::Worker;

/// Longest value, spaces included, that is parsed as a number.
const NUMBER_BYTES_MAX: usize = 1024;
/// Memory that is kept for copies of old values.
const SCRATCH_BYTES_MAX: usize = 4 << 20;
/// Digits of the largest number of 64 bits.
const DIGITS_MAX: usize = 20;

/// An item as it was read for an operation that depends on it.
struct OldItem {
    found: Found,
    marks: u32,
    meta: ItemMeta,
    cas: u64,
    head: Head,
}

/// Part of an old item that is wanted besides its metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Want {
    Nothing,
    Value,
    /// The value, if it is short enough to be a number.
    Number,
}

/// Result of reading an old item.
enum Old {
    Absent,
    /// A number was wanted, but the value is too long to be one. Holds the item's token.
    TooLong(u64),
    Present(OldItem),
    Pending(PendingRead),
}

impl Worker {
    /// Stores an item. `old` is the old value, if an earlier call asked for it.
    pub fn store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        old: Option<&OldValue>,
    ) -> Stored {
        self.shared.space().check_flush(now);
        let stored = match store.mode {
            StoreMode::Append | StoreMode::Prepend => self.extend(key, hash, now, store, old),
            StoreMode::Set | StoreMode::Add | StoreMode::Replace => {
                self.store_value(key, hash, now, store, 0)
            }
        };
        match stored {
            Stored::Stored { .. } => count(&self.counters.stores, 1),
            Stored::NoMemory => count(&self.counters.refused, 1),
            Stored::Busy => count(&self.counters.busy, 1),
            _ => {}
        }
        stored
    }

    /// Stores a value that does not depend on the old one, with marks of its own.
    pub(super) fn store_marked(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        marks: u32,
    ) -> Stored {
        self.store_value(key, hash, now, store, marks)
    }

    /// Does what `store_marked` does, as a part of its caller: each call that a result passes
    /// through costs a copy of it.
    #[inline(always)]
    fn store_value(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        marks: u32,
    ) -> Stored {
        if !self.shared.records().takes_whole(key, store.value.len()) {
            return self.store_large(key, hash, now, store, marks);
        }
        let record = new_record(key, now, store, marks);
        let condition = |seen: &Seen, records: &Records| condition(store, seen, records);
        let stored = self.write_if(key, hash, now, record, [store.value, b""], condition);
        if store.invalidate && stored == Stored::Exists {
            return self.store_stale(key, hash, now, store);
        }
        stored
    }

    /// Stores a value that lies in pieces, or refuses an item that is too large.
    #[cold]
    #[inline(never)]
    fn store_large(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        marks: u32,
    ) -> Stored {
        if !self.shared.records().takes(key, store.value.len()) {
            // An item that cannot be replaced must not go on being served.
            if store.mode == StoreMode::Set {
                self.delete(key, hash, now, &DeleteOptions::default(), None);
            }
            return Stored::TooLarge;
        }
        let record = new_record(key, now, store, marks);
        let condition = |seen: &Seen, records: &Records| condition(store, seen, records);
        let stored = self.write(key, hash, now, record, [store.value, b""], &condition);
        if store.invalidate && stored == Stored::Exists {
            return self.store_stale(key, hash, now, store);
        }
        stored
    }

    /// Stores a meta set with `I` under a token older than the item's: the value is taken, but the
    /// item keeps its expiry and is stale.
    fn store_stale(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> Stored {
        loop {
            let Old::Present(old) = self.read_old(key, hash, now, Want::Nothing, None) else {
                return Stored::NotFound;
            };
            if store.compare.is_none_or(|given| given == 0 || given >= old.cas) {
                return Stored::Exists;
            }
            let mut record = self.shared.records().successor(
                key,
                (&old.head, old.meta.expiry),
                store.value.len(),
                now,
            );
            record.client_flags = store.flags;
            record.cas = store.explicit_cas;
            record.marks |= mark::STALE | (old.marks & mark::WIN_SENT) | seen_mark(store.cas);
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(key, hash, now, record, [store.value, b""], &unchanged);
            if stored != Stored::NotStored {
                return stored;
            }
        }
    }

    /// Appends to a value, or prepends to it.
    fn extend(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        supplied: Option<&OldValue>,
    ) -> Stored {
        loop {
            let old = match self.read_old(key, hash, now, Want::Value, supplied) {
                Old::Present(old) => old,
                Old::Pending(read) => return Stored::Pending(read),
                Old::Absent if store.vivify => {
                    let create = Store { mode: StoreMode::Add, vivify: false, ..*store };
                    match self.store_marked(key, hash, now, &create, 0) {
                        Stored::NotStored => continue,
                        stored => return stored,
                    }
                }
                Old::Absent | Old::TooLong(_) => return Stored::NotStored,
            };
            if store.compare.is_some_and(|given| given != old.cas) {
                return Stored::Exists;
            }
            let before = std::mem::take(&mut self.scratch);
            let len = before.len() + store.value.len();
            let stored = if self.shared.records().takes(key, len) {
                let mut record =
                    self.shared.records().successor(key, (&old.head, old.meta.expiry), len, now);
                record.cas = store.explicit_cas;
                record.marks |= seen_mark(store.cas);
                let parts: [&[u8]; 2] = match store.mode {
                    StoreMode::Append => [&before, store.value],
                    _ => [store.value, &before],
                };
                let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
                self.write(key, hash, now, record, parts, &unchanged)
            } else {
                Stored::TooLarge
            };
            self.keep_scratch(before);
            if stored != Stored::NotStored {
                return stored;
            }
        }
    }

    /// Increments or decrements a decimal number. `old` as in `store`.
    pub fn arithmetic(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        arithmetic: &Arithmetic,
        supplied: Option<&OldValue>,
    ) -> Counted {
        self.shared.space().check_flush(now);
        loop {
            let old = match self.read_old(key, hash, now, Want::Number, supplied) {
                Old::Present(old) => old,
                Old::TooLong(cas) if arithmetic.compare.is_some_and(|given| given != cas) => {
                    return Counted::Exists;
                }
                Old::TooLong(_) => return Counted::NotNumeric,
                Old::Pending(read) => return Counted::Pending(read),
                Old::Absent => match self.create_number(key, hash, now, arithmetic) {
                    Some(counted) => return counted,
                    None => continue,
                },
            };
            // As in memcached, an empty value is reported before a token that does not match.
            if self.scratch.is_empty() {
                return Counted::NotNumeric;
            }
            if arithmetic.compare.is_some_and(|given| given != old.cas) {
                return Counted::Exists;
            }
            let Some(number) = parse_number(&self.scratch) else { return Counted::NotNumeric };
            let number = if arithmetic.down {
                number.saturating_sub(arithmetic.delta)
            } else {
                number.wrapping_add(arithmetic.delta)
            };
            let mut digits = [b' '; DIGITS_MAX];
            let written = write_number(number, &mut digits);
            // As in memcached, a number that grows shorter keeps its length, padded by spaces.
            let len = written.max(self.scratch.len().min(DIGITS_MAX));
            let mut record =
                self.shared.records().successor(key, (&old.head, old.meta.expiry), len, now);
            record.cas = arithmetic.explicit_cas;
            record.marks |= seen_mark(arithmetic.cas);
            if written <= self.scratch.len() {
                // As in memcached, a number of unchanged length keeps the marks of a stale item and
                // of its winner; one that grows is a new item.
                record.marks |= old.marks & (mark::STALE | mark::WIN_SENT);
            }
            if let Some(expiry) = arithmetic.touch {
                record.expiry = record_expiry(expiry, now);
            }
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            match self.write(key, hash, now, record, [&digits[..len], b""], &unchanged) {
                Stored::NotStored => {}
                Stored::Stored { cas } => {
                    let expiry = arithmetic.touch.unwrap_or(old.meta.expiry);
                    let meta = ItemMeta { cas, expiry, value_len: len as u32, ..old.meta };
                    return Counted::Value { number, meta };
                }
                Stored::Busy => return Counted::Busy,
                _ => return Counted::NoMemory,
            }
        }
    }

    /// Creates an item with a number; `None` if another thread has created it first.
    fn create_number(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        arithmetic: &Arithmetic,
    ) -> Option<Counted> {
        let Some((number, expiry)) = arithmetic.vivify else { return Some(Counted::NotFound) };
        let mut digits = [b' '; DIGITS_MAX];
        let written = write_number(number, &mut digits);
        let mut store = Store::set(&digits[..written]);
        store.expiry = expiry;
        store.mode = StoreMode::Add;
        store.explicit_cas = arithmetic.explicit_cas;
        match self.store_marked(key, hash, now, &store, seen_mark(arithmetic.cas)) {
            Stored::Stored { cas } => {
                count(&self.counters.stores, 1);
                let meta = ItemMeta {
                    flags: 0,
                    value_len: written as u32,
                    cas,
                    expiry,
                    last_access_s: 0,
                    fetched: false,
                    stale: false,
                    win: Win::None,
                };
                Some(Counted::Value { number, meta })
            }
            Stored::NotStored => None,
            Stored::Busy => Some(Counted::Busy),
            _ => Some(Counted::NoMemory),
        }
    }

    /// Deletes an item, or marks it stale, or drops its value. `old` as in `store`.
    pub fn delete(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &DeleteOptions,
        old: Option<&OldValue>,
    ) -> Deleted {
        self.shared.space().check_flush(now);
        if options.invalidate || options.remove_value {
            return self.invalidate(key, hash, now, options, old);
        }
        let shared = &*self.shared;
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        let pair = items.index.lock(hash.0);
        let seen = items.seen_in(&pair, key, now);
        let hole = match &seen {
            Seen::Absent => return Deleted::NotFound,
            Seen::Expired(found, head) | Seen::Flushed(found, head) | Seen::Live(found, head) => {
                let live = matches!(seen, Seen::Live(..));
                if live
                    && options.compare.is_some_and(|c| c != records.cas_of(found.location(), head))
                {
                    return Deleted::Exists;
                }
                space.retire(found.location(), head, || pair.remove(found))
            }
        };
        drop(pair);
        items.count_removed(&mut self.uncounted_items);
        if let (Some(hole), Some(mut shard)) = (hole, shared.writers.shards[self.shard].try_lock())
        {
            shard.remember(hole);
        }
        if !matches!(seen, Seen::Live(..)) {
            return Deleted::NotFound;
        }
        count(&self.counters.deletes, 1);
        Deleted::Deleted
    }

    fn invalidate(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &DeleteOptions,
        supplied: Option<&OldValue>,
    ) -> Deleted {
        loop {
            let want = if options.remove_value { Want::Nothing } else { Want::Value };
            let old = match self.read_old(key, hash, now, want, supplied) {
                Old::Absent | Old::TooLong(_) => return Deleted::NotFound,
                Old::Pending(read) => return Deleted::Pending(read),
                Old::Present(old) => old,
            };
            if options.compare.is_some_and(|given| given != old.cas) {
                return Deleted::Exists;
            }
            let value = std::mem::take(&mut self.scratch);
            let kept: &[u8] = if options.remove_value { b"" } else { &value };
            let mut record =
                self.shared.records().successor(key, (&old.head, old.meta.expiry), kept.len(), now);
            record.cas = options.explicit_cas;
            if options.remove_value {
                record.client_flags = 0;
                record.expiry = None;
            }
            if options.invalidate {
                record.marks |= mark::STALE;
                if let Some(expiry) = options.touch {
                    record.expiry = record_expiry(expiry, now);
                }
            }
            // A client that holds the old token must not be able to store under it.
            record.cas = record.cas.or(old.cas.checked_add(1));
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(key, hash, now, record, [kept, b""], &unchanged);
            self.keep_scratch(value);
            match stored {
                Stored::Stored { .. } => return Deleted::Deleted,
                Stored::NotStored => {}
                Stored::Busy => return Deleted::Busy,
                _ => return Deleted::NoMemory,
            }
        }
    }

    /// Gives an item a new expiry; `None` if there is none.
    pub fn touch(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        expiry: Expiry,
    ) -> Option<ItemMeta> {
        self.shared.space().check_flush(now);
        self.touch_item(key, hash, now, expiry)
    }

    /// Touches an item and returns it as it was before.
    pub(super) fn touch_item(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        expiry: Expiry,
    ) -> Option<ItemMeta> {
        let shared = Arc::clone(&self.shared);
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        loop {
            let pair = items.index.lock(hash.0);
            let Seen::Live(found, head) = items.seen_in(&pair, key, now) else { return None };
            let meta = records.meta(&found, &head, now);
            let new = match expiry {
                Expiry::Immediately => {
                    space.retire(found.location(), &head, || pair.remove(&found));
                    items.count_removed(&mut self.uncounted_items);
                    return Some(meta);
                }
                Expiry::Never => None,
                Expiry::At(second) => Some(second),
            };
            if head.has(mark::EXPIRY) {
                let location = found.location();
                let segment = records.segment_at(location);
                segment.extend_deadline(new);
                if !mutation_site!("a touched item is not restored as it was") {
                    space.forget_saved(location);
                }
                head.set_expiry(&records.arena, new);
                return Some(meta);
            }
            if new.is_none() {
                return Some(meta);
            }
            // The successor keeps the token that this record's place implies, so the place must
            // never be used again.
            head.set_marks(&records.arena, mark::CAS_SEEN, 0);
            drop(pair);
            // The record has no room for an expiry (only values in DRAM have such records).
            let Old::Present(old) = self.read_old(key, hash, now, Want::Value, None) else {
                return None;
            };
            let value = std::mem::take(&mut self.scratch);
            let mut record = records.successor(key, (&old.head, old.meta.expiry), value.len(), now);
            record.expiry = new;
            record.cas = Some(old.cas);
            record.marks |= old.marks & (mark::STALE | mark::WIN_SENT);
            record.last_access = Seconds(now.0.saturating_sub(old.meta.last_access_s));
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(key, hash, now, record, [&value, b""], &unchanged);
            self.keep_scratch(value);
            match stored {
                Stored::NotStored => {}
                Stored::Stored { .. } => return Some(old.meta),
                _ => return None,
            }
        }
    }

    /// Keeps the memory of a copy for the next one, unless it is that of a very large value.
    fn keep_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = if scratch.capacity() > SCRATCH_BYTES_MAX { Vec::new() } else { scratch };
    }

    /// Copies an item for an operation that depends on it; its value goes into `scratch`.
    fn read_old(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        want: Want,
        supplied: Option<&OldValue>,
    ) -> Old {
        let shared = Arc::clone(&self.shared);
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        self.scratch.clear();
        let pair = items.index.lock(hash.0);
        let Seen::Live(found, head) = items.seen_in(&pair, key, now) else { return Old::Absent };
        let location = found.location();
        let meta = records.meta(&found, &head, now);
        let cas = records.cas_of(location, &head);
        let old = OldItem { found, marks: head.marks, meta, cas, head };
        match want {
            Want::Nothing => return Old::Present(old),
            Want::Number if records.value_len(&head) > NUMBER_BYTES_MAX => {
                return Old::TooLong(cas);
            }
            Want::Number | Want::Value => {}
        }
        let value = records.append_value(location, &head, &mut self.scratch);
        match value {
            ValueAt::Memory | ValueAt::Pmem { .. } | ValueAt::Pieces { .. } => {
                if !value.is_intact(&self.scratch) {
                    count(&self.counters.damaged, 1);
                    space.retire(location, &head, || pair.remove(&found));
                    items.count_removed(&mut self.uncounted_items);
                    return Old::Absent;
                }
                value.charge_read(&mut self.account, 0, self.scratch.len());
                self.moved_bytes += self.scratch.len();
                Old::Present(old)
            }
            ValueAt::File { offset, checksum, segment, sequence } => {
                let same = |old: &&OldValue| old.location == location && old.sequence == sequence;
                if let Some(supplied) = supplied.filter(same) {
                    self.scratch.extend_from_slice(&supplied.bytes);
                    return Old::Present(old);
                }
                drop(pair);
                let place = (segment, sequence);
                Old::Pending(self.pending(offset, checksum, hash, &found, meta, 0..0, place))
            }
            ValueAt::Gone => Old::Absent,
        }
    }

    /// Writes a record and publishes it if the condition holds.
    fn write(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: &dyn Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        if record.value_len as u64 <= self.shared.records().whole_bytes_max {
            return self.write_if(key, hash, now, record, parts, condition);
        }
        self.moved_bytes += parts[0].len() + parts[1].len();
        let stored = self.write_in_pieces(hash, now, record, parts, condition);
        self.drop_unless_replaced(key, hash, now, &stored);
        stored
    }

    /// Drops an item that could not be replaced: as in memcached, it is not served any more.
    #[inline(always)]
    fn drop_unless_replaced(&mut self, key: &[u8], hash: KeyHash, now: Seconds, stored: &Stored) {
        if matches!(stored, Stored::NoMemory | Stored::TooLarge) {
            self.delete(key, hash, now, &DeleteOptions::default(), None);
        }
    }

    #[inline(always)]
    fn write_if(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: impl Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        self.moved_bytes += parts[0].len() + parts[1].len();
        let stored = self.try_write(hash, now, record, parts, condition);
        self.drop_unless_replaced(key, hash, now, &stored);
        stored
    }

    /// Writes a large value into pieces, and then publishes the record of their list.
    #[cold]
    #[inline(never)]
    fn write_in_pieces(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: &dyn Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        let shared = Arc::clone(&self.shared);
        let (space, records) = (shared.space(), shared.records());
        {
            // A store that will be refused must not evict anything.
            let pair = shared.items.index.lock(hash.0);
            let seen = shared.items.seen_in(&pair, record.key, now);
            if let Err(refusal) = condition(&seen, records) {
                return refusal.into();
            }
        }
        let mut slices = Vec::new();
        if !self.take_room(record.value_len, &mut slices, now) {
            space.free_slices(&slices);
            return Stored::NoMemory;
        }
        let list = records.write_pieces(&slices, parts, &mut self.account);
        let stored = self.publish_pieces(hash, now, record, &list, condition);
        let is_stored = matches!(stored, Stored::Stored { .. });
        if !is_stored && !mutation_site!("the pieces of a value that is refused are freed") {
            space.free_slices(&slices);
        }
        stored
    }

    /// Publishes the record of a value in pieces, with their list in the place of the value.
    fn publish_pieces(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        list: &[u8],
        condition: &dyn Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        let shared = Arc::clone(&self.shared);
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        let piece_bytes = record.value_len as u64;
        let marks = record.marks | mark::PIECES | mark::EXPIRY;
        let mut record = NewRecord { value_len: list.len(), marks, ..record };
        let mut shard = shared.writers.shards[self.shard].lock();
        loop {
            let place = match shard.reserve_for_pieces(items, &record, piece_bytes, hash.0, now) {
                Ok(place) => place,
                Err(NoPlace::Busy) => return Stored::Busy,
                Err(NoPlace::NoMemory) => return Stored::NoMemory,
                Err(NoPlace::TooLarge) => return Stored::TooLarge,
            };
            records.write_list(&place, &record, list);
            let head = records.head(place.location());
            let (cas, is_new) =
                match items.publish(&mut shard, hash, now, &record, &place, &condition) {
                    Published::Replaced { cas } => (cas, false),
                    Published::Inserted { cas } => (cas, true),
                    Published::Refused(refusal) => {
                        shard.give_up(space, &place);
                        return refusal.into();
                    }
                    Published::NeedsCas(cas) => {
                        shard.give_up(space, &place);
                        record.cas = Some(cas);
                        continue;
                    }
                };
            space.count_pieces(place.location(), &head, true);
            if is_new {
                items.count_added(&mut self.uncounted_items, &mut shard, &place, now);
            }
            shard.seal_heavy(space, space.heavy_slices());
            return Stored::Stored { cas };
        }
    }

    /// Takes slices for a value of so many bytes.
    fn take_room(&self, value_len: usize, slices: &mut Vec<u32>, now: Seconds) -> bool {
        let shared = &*self.shared;
        let wanted = shared.records().slices.for_value(value_len as u64);
        let shard = &shared.writers.shards[self.shard];
        shared.items.take_room(shard, wanted, slices, now)
            // What other threads have open may be all that is left to evict.
            || shared.writers.seal_heavy(shared.space())
                && shared.items.take_room(shard, wanted, slices, now)
    }

    #[inline(always)]
    fn try_write(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        mut record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: impl Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        let shared = &*self.shared;
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        items.index.prefetch(hash.0);
        space.logs.ghosts.prefetch(hash.0);
        let mut shard = shared.writers.shards[self.shard].lock();
        loop {
            let place = match shard.reserve(items, &record, hash.0, now) {
                Ok(place) => place,
                Err(NoPlace::Busy) => return Stored::Busy,
                Err(NoPlace::NoMemory) => return Stored::NoMemory,
                Err(NoPlace::TooLarge) => return Stored::TooLarge,
            };
            records.write_record(&place, &record, parts, &mut self.account);
            match items.publish(&mut shard, hash, now, &record, &place, &condition) {
                Published::Replaced { cas } => {
                    if place.is_hole() {
                        count(&self.counters.stores_in_holes, 1);
                    }
                    return Stored::Stored { cas };
                }
                Published::Inserted { cas } => {
                    items.count_added(&mut self.uncounted_items, &mut shard, &place, now);
                    return Stored::Stored { cas };
                }
                Published::Refused(refusal) => {
                    shard.give_up(space, &place);
                    return refusal.into();
                }
                Published::NeedsCas(cas) => {
                    shard.give_up(space, &place);
                    record.cas = Some(cas);
                }
            }
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.items.index.count(self.uncounted_items);
    }
}

impl OldItem {
    /// Checks the condition of a write that depends on this item; `NotStored` means «read it
    /// again».
    fn is_unchanged(&self, seen: &Seen, records: &Records) -> Result<(), Refusal> {
        const RELEVANT: u32 = 0xFF << 24 & !mark::CAS_SEEN;
        match seen {
            Seen::Live(found, head)
                if found.is_still(&self.found)
                    && head.marks & RELEVANT == self.marks & RELEVANT
                    && head.expiry(&records.arena) == self.meta.expiry =>
            {
                Ok(())
            }
            _ => Err(Refusal::NotStored),
        }
    }
}

/// Builds the record of a value that does not depend on an old one.
#[inline(always)]
fn new_record<'a>(key: &'a [u8], now: Seconds, store: &Store<'_>, marks: u32) -> NewRecord<'a> {
    NewRecord {
        key,
        value_len: store.value.len(),
        client_flags: store.flags,
        expiry: record_expiry(store.expiry, now),
        cas: store.explicit_cas,
        marks: marks | seen_mark(store.cas),
        last_access: now,
    }
}

/// Checks the conditions of set, add, replace and their comparing forms.
fn condition(store: &Store<'_>, seen: &Seen, records: &Records) -> Result<(), Refusal> {
    let Seen::Live(found, head) = seen else {
        return match store.mode {
            StoreMode::Set | StoreMode::Replace if store.compare.is_some() => {
                Err(Refusal::NotFound)
            }
            StoreMode::Replace => Err(Refusal::NotStored),
            _ => Ok(()),
        };
    };
    if store.mode == StoreMode::Add {
        return Err(Refusal::NotStored);
    }
    let differs = |given| given != records.cas_of(found.location(), head);
    if store.compare.is_some_and(differs) && !mutation_site!("a token of another item is refused") {
        return Err(Refusal::Exists);
    }
    Ok(())
}

/// Returns the mark of a record whose token a client will know.
fn seen_mark(told: bool) -> u32 {
    if told { mark::CAS_SEEN } else { 0 }
}

/// Returns the expiry that a record keeps; a time already past becomes the present second.
fn record_expiry(expiry: Expiry, now: Seconds) -> Option<Seconds> {
    match expiry {
        Expiry::Never => None,
        Expiry::At(second) => Some(second),
        Expiry::Immediately => Some(now),
    }
}

/// Parses a decimal number as memcached does: after any spaces, up to its end or another space.
fn parse_number(value: &[u8]) -> Option<u64> {
    let value = value.trim_ascii_start();
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let ends = value.get(digits).is_none_or(u8::is_ascii_whitespace);
    if digits == 0 || digits > DIGITS_MAX || !ends {
        return None;
    }
    value[..digits].iter().try_fold(0_u64, |number, digit| {
        number.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
    })
}

fn write_number(number: u64, digits: &mut [u8; DIGITS_MAX]) -> usize {
    let text = number.to_string();
    digits[..text.len()].copy_from_slice(text.as_bytes());
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_memcached_reads_them() {
        assert_eq!(parse_number(b"007"), Some(7));
        assert_eq!(parse_number(b"18446744073709551615"), Some(u64::MAX));
        for text in ["9 ", " 9", "9 1", "9\r\n"] {
            assert_eq!(parse_number(text.as_bytes()), Some(9), "{text}");
        }
        for text in ["", " ", "9a", "-1", "18446744073709551616", "a9"] {
            assert_eq!(parse_number(text.as_bytes()), None, "{text}");
        }
    }
}
