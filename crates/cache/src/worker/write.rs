//! Stores, deletes, counting and touching.
//!
//! A new record is first written to a reserved place and then published under its buckets' lock,
//! where the condition is checked. A value that depends on the old item is computed from a copy of
//! it and published only if the item has not changed.

use std::sync::Arc;

use entresol_base::checksum::{crc32c, crc32c_append};
use entresol_base::{Seconds, mutation_site};
use entresol_media::AccountHandle;

use crate::index::{Found, Pair};
use crate::ops::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, ItemMeta, KeyHash, OldValue, PendingRead,
    Store, StoreMode, Stored, Win,
};
use crate::record::{Head, KEY_BYTES_MAX, NewRecord, mark};
use crate::shared::Shared;
use crate::shared::append::{Hole, NoPlace, Place, Shard};
use crate::statistics::{count, count_shared};
use crate::values::ValueAt;
use crate::worker::{Seen, Worker};

/// Items added or removed before the index is told.
const COUNT_BATCH: i64 = 32;
/// Longest value, spaces included, that is parsed as a number.
const NUMBER_BYTES_MAX: usize = 1024;
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

/// Result of publishing a record.
enum Published {
    /// The record replaced an item, live or not.
    Replaced {
        cas: u64,
    },
    Inserted {
        cas: u64,
    },
    /// The condition does not hold.
    Refused(Stored),
    /// The new token would not be greater than one that a client holds: use this one.
    NeedsCas(u64),
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
        self.shared.check_flush(now);
        let stored = match store.mode {
            StoreMode::Append | StoreMode::Prepend => self.extend(key, hash, now, store, old),
            StoreMode::Set | StoreMode::Add | StoreMode::Replace => {
                self.store_marked(key, hash, now, store, 0)
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
        if !self.shared.takes(key, store.value.len()) {
            // An item that cannot be replaced must not go on being served.
            if store.mode == StoreMode::Set {
                self.delete(key, hash, now, &DeleteOptions::default(), None);
            }
            return Stored::TooLarge;
        }
        let record = NewRecord {
            key,
            value_len: store.value.len(),
            client_flags: store.flags,
            expiry: record_expiry(store.expiry, now),
            cas: store.explicit_cas,
            marks: marks | seen_mark(store.cas),
            last_access: now,
        };
        let condition = |seen: &Seen, shared: &Shared| condition(store, seen, shared);
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
            let mut record = self.shared.successor(key, &old, store.value.len(), now);
            record.client_flags = store.flags;
            record.cas = store.explicit_cas;
            record.marks |= mark::STALE | (old.marks & mark::WIN_SENT) | seen_mark(store.cas);
            let unchanged = |seen: &Seen, shared: &Shared| old.is_unchanged(seen, shared);
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
            let stored = if self.shared.takes(key, len) {
                let mut record = self.shared.successor(key, &old, len, now);
                record.cas = store.explicit_cas;
                record.marks |= seen_mark(store.cas);
                let parts: [&[u8]; 2] = match store.mode {
                    StoreMode::Append => [&before, store.value],
                    _ => [store.value, &before],
                };
                let unchanged = |seen: &Seen, shared: &Shared| old.is_unchanged(seen, shared);
                self.write(key, hash, now, record, parts, &unchanged)
            } else {
                Stored::TooLarge
            };
            self.scratch = before;
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
        self.shared.check_flush(now);
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
            let mut record = self.shared.successor(key, &old, len, now);
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
            let unchanged = |seen: &Seen, shared: &Shared| old.is_unchanged(seen, shared);
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
        self.shared.check_flush(now);
        if options.invalidate || options.remove_value {
            return self.invalidate(key, hash, now, options, old);
        }
        let shared = &*self.shared;
        let pair = shared.index.lock(hash.0);
        let seen = shared.seen_in(&pair, key, now);
        let hole = match &seen {
            Seen::Absent => return Deleted::NotFound,
            Seen::Expired(found, head) | Seen::Flushed(found, head) | Seen::Live(found, head) => {
                let live = matches!(seen, Seen::Live(..));
                if live
                    && options.compare.is_some_and(|c| c != shared.cas_of(found.location(), head))
                {
                    return Deleted::Exists;
                }
                shared.retire(found.location(), head, || pair.remove(found))
            }
        };
        drop(pair);
        self.uncounted_items -= 1;
        if let (Some(hole), Some(mut shard)) = (hole, shared.shards[self.shard].try_lock()) {
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
            let mut record = self.shared.successor(key, &old, kept.len(), now);
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
            record.cas = record.cas.or(Some(old.cas + 1));
            let unchanged = |seen: &Seen, shared: &Shared| old.is_unchanged(seen, shared);
            let stored = self.write(key, hash, now, record, [kept, b""], &unchanged);
            self.scratch = value;
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
        self.shared.check_flush(now);
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
        loop {
            let pair = shared.index.lock(hash.0);
            let Seen::Live(found, head) = shared.seen_in(&pair, key, now) else { return None };
            let meta = shared.meta(&found, &head, now);
            let new = match expiry {
                Expiry::Immediately => {
                    shared.retire(found.location(), &head, || pair.remove(&found));
                    self.uncounted_items -= 1;
                    return Some(meta);
                }
                Expiry::Never => None,
                Expiry::At(second) => Some(second),
            };
            if head.has(mark::EXPIRY) {
                let location = found.location();
                let segment = shared.segments.get(shared.segment_of(location));
                segment.extend_deadline(new);
                if !mutation_site!("a touched item is not restored as it was") {
                    shared.forget_saved(location);
                }
                head.set_expiry(&shared.arena, new);
                return Some(meta);
            }
            if new.is_none() {
                return Some(meta);
            }
            // The successor keeps the token that this record's place implies, so the place must
            // never be used again.
            head.set_marks(&shared.arena, mark::CAS_SEEN, 0);
            drop(pair);
            // The record has no room for an expiry (only values in DRAM have such records).
            let Old::Present(old) = self.read_old(key, hash, now, Want::Value, None) else {
                return None;
            };
            let value = std::mem::take(&mut self.scratch);
            let mut record = shared.successor(key, &old, value.len(), now);
            record.expiry = new;
            record.cas = Some(old.cas);
            record.marks |= old.marks & (mark::STALE | mark::WIN_SENT);
            record.last_access = Seconds(now.0.saturating_sub(old.meta.last_access_s));
            let unchanged = |seen: &Seen, shared: &Shared| old.is_unchanged(seen, shared);
            let stored = self.write(key, hash, now, record, [&value, b""], &unchanged);
            self.scratch = value;
            match stored {
                Stored::NotStored => {}
                Stored::Stored { .. } => return Some(old.meta),
                _ => return None,
            }
        }
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
        self.scratch.clear();
        let pair = shared.index.lock(hash.0);
        let Seen::Live(found, head) = shared.seen_in(&pair, key, now) else { return Old::Absent };
        let location = found.location();
        let meta = shared.meta(&found, &head, now);
        let cas = shared.cas_of(location, &head);
        let old = OldItem { found, marks: head.marks, meta, cas, head };
        match want {
            Want::Nothing => return Old::Present(old),
            Want::Number if head.value_len > NUMBER_BYTES_MAX => return Old::TooLong(cas),
            Want::Number | Want::Value => {}
        }
        let value = shared.append_value(location, &head, &mut self.scratch);
        match value {
            ValueAt::Memory | ValueAt::Pmem { .. } => {
                if value.checksum().is_some_and(|expected| crc32c(&self.scratch) != expected) {
                    count(&self.counters.damaged, 1);
                    shared.retire(location, &head, || pair.remove(&found));
                    self.uncounted_items -= 1;
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
        condition: &dyn Fn(&Seen, &Shared) -> Result<(), Stored>,
    ) -> Stored {
        self.moved_bytes += parts[0].len() + parts[1].len();
        let stored = self.try_write(hash, now, record, parts, condition);
        if matches!(stored, Stored::NoMemory | Stored::TooLarge) {
            // As in memcached, an item that could not be replaced is not served any more.
            self.delete(key, hash, now, &DeleteOptions::default(), None);
        }
        stored
    }

    fn try_write(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        mut record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: &dyn Fn(&Seen, &Shared) -> Result<(), Stored>,
    ) -> Stored {
        let shared = &*self.shared;
        shared.index.prefetch(hash.0);
        shared.ghosts.prefetch(hash.0);
        let mut shard = shared.shards[self.shard].lock();
        loop {
            let place = match shard.reserve(shared, &record, hash.0, now) {
                Ok(place) => place,
                Err(NoPlace::Busy) => return Stored::Busy,
                Err(NoPlace::NoMemory) => return Stored::NoMemory,
                Err(NoPlace::TooLarge) => return Stored::TooLarge,
            };
            shared.write_record(&place, &record, parts, &mut self.account);
            match shared.publish(&mut shard, hash, now, &record, &place, condition) {
                Published::Replaced { cas } => {
                    if place.is_hole() {
                        count(&self.counters.stores_in_holes, 1);
                    }
                    return Stored::Stored { cas };
                }
                Published::Inserted { cas } => {
                    self.uncounted_items += 1;
                    if self.uncounted_items >= COUNT_BATCH {
                        shared.index.count(std::mem::take(&mut self.uncounted_items));
                        shared.grow_index(&mut shard, now);
                    }
                    return Stored::Stored { cas };
                }
                Published::Refused(stored) => {
                    shard.give_up(shared, &place);
                    return stored;
                }
                Published::NeedsCas(cas) => {
                    shard.give_up(shared, &place);
                    record.cas = Some(cas);
                }
            }
        }
    }
}

impl Shared {
    /// Points a slot at a record that was written, if the condition holds.
    fn publish(
        &self,
        shard: &mut Shard,
        hash: KeyHash,
        now: Seconds,
        record: &NewRecord<'_>,
        place: &Place,
        condition: &dyn Fn(&Seen, &Shared) -> Result<(), Stored>,
    ) -> Published {
        let location = place.location();
        let cas = record.cas.unwrap_or_else(|| self.implied_cas(place.sequence, location));
        // Most stores replace an item that is found at once: then only one bucket is locked, before
        // the wait for the old record begins.
        if let Some(one) = self.index.lock_probed(hash.0)
            && let Some(head) = self.head_of(one.found().location(), record.key)
        {
            let seen = self.judge(*one.found(), head, now);
            return match self.may_replace(&seen, record, place, condition) {
                Err(refused) => refused,
                Ok(_) => {
                    let old = one.found().location();
                    let hole = self.retire(old, &head, || one.replace(location));
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
                    let hole = self.retire(found.location(), &head, replace);
                    drop(pair);
                    self.finish_replacing(shard, place, hole);
                    return Published::Replaced { cas };
                }
                Ok(None) if pair.insert(location, place.heat) => {
                    shard.commit(self, place);
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
    fn may_replace(
        &self,
        seen: &Seen,
        record: &NewRecord<'_>,
        place: &Place,
        condition: &dyn Fn(&Seen, &Shared) -> Result<(), Stored>,
    ) -> Result<Option<(Found, Head)>, Published> {
        let implied = self.implied_cas(place.sequence, place.location());
        condition(seen, self).map_err(Published::Refused)?;
        let (Seen::Live(found, head) | Seen::Expired(found, head) | Seen::Flushed(found, head)) =
            *seen
        else {
            return Ok(None);
        };
        if head.has(mark::CAS) || head.has(mark::CAS_SEEN) {
            let cas = self.cas_of(found.location(), &head);
            if record.cas.is_none() && implied <= cas {
                return Err(Published::NeedsCas(cas + 1));
            }
            // A client that holds a token of this item must find all later ones greater, even those
            // that no client asks for.
            self.head(place.location()).set_marks(&self.arena, mark::CAS_SEEN, 0);
        }
        Ok(Some((found, head)))
    }

    fn finish_replacing(&self, shard: &mut Shard, place: &Place, hole: Option<Hole>) {
        shard.commit(self, place);
        if let Some(hole) = hole {
            // Its first line has just been read; the next record of this size will fill it.
            self.arena.prefetch(hole.at + 64);
            shard.remember(hole);
        }
    }

    /// Frees a slot in one of the key's buckets, if need be by dropping the coldest item there.
    fn make_slot(&self, hash: KeyHash) {
        if self.index.make_room(hash.0, &|at| self.fetch(at), &|at| self.rehash(at)) {
            return;
        }
        let pair = self.index.lock(hash.0);
        if let Some(found) = pair.coldest() {
            let head = self.head(found.location());
            self.retire(found.location(), &head, || pair.remove(&found));
            self.index.count(-1);
            count_shared(&self.counters.displaced_out, 1);
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.index.count(self.uncounted_items);
    }
}

impl OldItem {
    /// Checks the condition of a write that depends on this item; `NotStored` means «read it
    /// again».
    fn is_unchanged(&self, seen: &Seen, shared: &Shared) -> Result<(), Stored> {
        const RELEVANT: u32 = 0xFF << 24 & !mark::CAS_SEEN;
        match seen {
            Seen::Live(found, head)
                if found.is_still(&self.found)
                    && head.marks & RELEVANT == self.marks & RELEVANT
                    && head.expiry(&shared.arena) == self.meta.expiry =>
            {
                Ok(())
            }
            _ => Err(Stored::NotStored),
        }
    }
}

impl Shared {
    /// Returns true if an item of this size can be held at all.
    fn takes(&self, key: &[u8], value_len: usize) -> bool {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && value_len as u64 <= self.value_bytes_max
    }

    /// Builds the record that takes an item's place: equal flags and expiry, no marks.
    fn successor<'a>(
        &self,
        key: &'a [u8],
        old: &OldItem,
        value_len: usize,
        now: Seconds,
    ) -> NewRecord<'a> {
        let expiry = match old.meta.expiry {
            Expiry::At(second) => Some(second),
            Expiry::Never | Expiry::Immediately => None,
        };
        NewRecord {
            key,
            value_len,
            client_flags: old.head.client_flags(&self.arena),
            expiry,
            cas: None,
            marks: 0,
            last_access: now,
        }
    }

    /// Writes a whole record to its place, unpublished.
    fn write_record(
        &self,
        place: &Place,
        record: &NewRecord<'_>,
        parts: [&[u8]; 2],
        account: &mut AccountHandle,
    ) {
        let elsewhere = self
            .values
            .is_elsewhere()
            .then(|| (place.value_offset, crc32c_append(crc32c(parts[0]), parts[1])));
        let inline_at = record.write(&self.arena, place.at, elsewhere);
        self.write_value(place, inline_at, parts, account);
    }

    /// Looks a key up under its buckets' lock.
    pub(super) fn seen_in(&self, pair: &Pair<'_>, key: &[u8], now: Seconds) -> Seen {
        match pair.find(|location| self.head_of(location, key)) {
            Some((found, head)) => self.judge(found, head, now),
            None => Seen::Absent,
        }
    }
}

/// Checks the conditions of set, add, replace and their comparing forms.
fn condition(store: &Store<'_>, seen: &Seen, shared: &Shared) -> Result<(), Stored> {
    let Seen::Live(found, head) = seen else {
        return match store.mode {
            StoreMode::Set | StoreMode::Replace if store.compare.is_some() => Err(Stored::NotFound),
            StoreMode::Replace => Err(Stored::NotStored),
            _ => Ok(()),
        };
    };
    if store.mode == StoreMode::Add {
        return Err(Stored::NotStored);
    }
    let differs = |given| given != shared.cas_of(found.location(), head);
    if store.compare.is_some_and(differs) && !mutation_site!("a token of another item is refused") {
        return Err(Stored::Exists);
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
