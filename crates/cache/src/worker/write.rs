//! Stores, deletes, counting and touching.
//!
//! A new record is first written to a reserved place and then published under its buckets' lock,
//! where the condition is checked. A value that depends on the old item is computed from a copy of
//! it and published only if the item has not changed.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_base::{Seconds, mutation_site, thread};

use crate::ops::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, ItemMeta, KeyHash, OldValue, Store,
    StoreMode, Stored, Win,
};
use crate::pieces::List;
use crate::record::{NewRecord, mark};
use crate::shared::append::NoPlace;
use crate::shared::items::{Published, Refusal};
use crate::shared::records::Records;
use crate::shared::space::Seen;
use crate::statistics::count;
use crate::values::ValueAt;
use crate::worker::join::{Copied, Join};
use crate::worker::number::{DIGITS_MAX, parse_number, write_number};
use crate::worker::old::{Old, OldItem, Want};
use crate::worker::pin::Pin;
use crate::worker::request::{condition, new_record, record_expiry, seen_mark};
use crate::worker::upload::Upload;
use crate::worker::{Worker, refused};

/// Longest value, spaces included, that is parsed as a number.
const NUMBER_BYTES_MAX: usize = 1024;
/// Memory that is kept for copies of old values.
const SCRATCH_BYTES_MAX: usize = 4 << 20;
/// Looks for room for a large value, where nothing can be evicted, before a store is refused.
const WAITS_MAX: usize = 1000;

/// Condition under which a record is published.
type Condition<'a> = dyn Fn(&Seen, &Records) -> Result<(), Refusal> + 'a;

impl Worker {
    /// Stores an item. `old` is the old value, if an earlier call asked for it. A large value waits
    /// for a while for room that others hold.
    #[inline]
    pub fn store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        old: Option<&OldValue>,
    ) -> Stored {
        let mut stored = self.begin_store(key, hash, now, store, old);
        if matches!(stored, Stored::Unfinished) {
            stored = self.finish_store(key, hash, now, store);
        }
        stored
    }

    /// Stores a value that has arrived, in the place of that of `store`; it waits like `store`.
    pub fn store_upload(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        mut upload: Upload,
    ) -> Stored {
        upload.carry_out();
        match self.begin_store_upload(key, hash, now, store, upload) {
            Stored::Unfinished => self.finish_store(key, hash, now, store),
            stored => stored,
        }
    }

    /// Copies a large value part by part, and waits for room.
    #[cold]
    fn finish_store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> Stored {
        let shared = Arc::clone(&self.shared);
        let (mut turn, mut waits) = (None, 0);
        while let Some(mut join) = self.take_unfinished() {
            join.carry_out();
            if turn.is_none() {
                let pieces = shared.records().cut.parts(join.len() as u64).0;
                turn = Some(shared.writers.wait_for_turn(shared.space(), pieces as usize));
            }
            waits = if join.lacks_room() { waits + 1 } else { 0 };
            if waits > WAITS_MAX {
                break;
            }
            if waits > 0 {
                thread::yield_now();
            }
            match self.go_on(key, hash, now, store, join) {
                Stored::Unfinished => {}
                stored => return stored,
            }
        }
        self.end_store(key, hash, now, store, &Stored::NoMemory);
        Stored::NoMemory
    }

    /// Stores an item like [`Worker::store`], but copies no large value and waits for nothing:
    /// `Unfinished` asks for [`Worker::go_on`].
    pub fn begin_store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        old: Option<&OldValue>,
    ) -> Stored {
        self.shared.space().check_flush(now);
        let stored = match store.mode {
            StoreMode::Append | StoreMode::Prepend => self.extend(key, hash, now, store, None, old),
            StoreMode::Set | StoreMode::Add | StoreMode::Replace => {
                self.store_value(key, hash, now, store, 0)
            }
        };
        self.end_store(key, hash, now, store, &stored);
        stored
    }

    /// Stores a value that has arrived like [`Worker::store_upload`], but copies no large value and
    /// waits for nothing: `Unfinished` asks for [`Worker::go_on`].
    pub fn begin_store_upload(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        mut upload: Upload,
    ) -> Stored {
        debug_assert!(upload.missing() == 0, "{upload:?} have arrived");
        self.shared.space().check_flush(now);
        let stored = match store.mode {
            _ if !self.shared.records().takes(key, upload.len()) => Stored::TooLarge,
            _ if upload.has_failed() => refused(&self.counters.write_errors),
            StoreMode::Append | StoreMode::Prepend => {
                self.extend_by_upload(key, hash, now, store, upload)
            }
            StoreMode::Set | StoreMode::Add | StoreMode::Replace => {
                let (list, rest) = upload.finish();
                let stored = self.publish_new(key, hash, now, store, (&list, &rest));
                self.free_unless_stored(&list, stored)
            }
        };
        self.end_store(key, hash, now, store, &stored);
        stored
    }

    /// Takes the large value that the last store has left unfinished.
    #[must_use]
    pub fn take_unfinished(&mut self) -> Option<Box<Join>> {
        self.unfinished.take()
    }

    /// Copies the next part of a large value that a store has left unfinished, and stores it once
    /// it is whole. Key and store are those of before.
    #[cold]
    pub fn go_on(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        mut join: Box<Join>,
    ) -> Stored {
        self.shared.space().check_flush(now);
        let stored = match join.copy_part(self, store, now) {
            Copied::Some => {
                self.unfinished = Some(join);
                return Stored::Unfinished;
            }
            Copied::Whole => join.publish(self, key, hash, now, store),
            Copied::OldIsDamaged => {
                if let Some(pin) = join.old.as_ref().and_then(|old| old.pin.as_ref()) {
                    self.drop_damaged_value(hash, pin);
                }
                self.extend(key, hash, now, store, join.added, None)
            }
            Copied::IsDamaged => refused(&self.counters.damaged),
            Copied::Failed => refused(&self.counters.write_errors),
        };
        self.end_store(key, hash, now, store, &stored);
        stored
    }

    /// Counts a store by its outcome, and drops an item that it could not replace.
    #[inline(always)]
    pub(super) fn end_store(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        stored: &Stored,
    ) {
        match stored {
            Stored::Stored { .. } => count(&self.counters.stores, 1),
            Stored::NoMemory | Stored::TooLarge => {
                self.end_refused(key, hash, now, store, stored);
            }
            Stored::Busy => count(&self.counters.busy, 1),
            _ => {}
        }
    }

    /// Ends a store for which there is no room. As in memcached, an item that a plain set could not
    /// replace is not served any more, and every other store leaves the item as it was.
    #[cold]
    fn end_refused(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        stored: &Stored,
    ) {
        if *stored == Stored::NoMemory {
            count(&self.counters.refused, 1);
        }
        if store.mode == StoreMode::Set && store.compare.is_none() {
            self.delete(key, hash, now, &DeleteOptions::default(), None);
        }
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
            return self.store_large(key, hash, now, store);
        }
        let record = new_record(key, now, store, marks);
        let condition = |seen: &Seen, records: &Records| condition(store, seen, records);
        let stored = self.write_if(hash, now, record, [store.value, b""], condition);
        if store.invalidate && stored == Stored::Exists {
            let write = |worker: &mut Worker, record: NewRecord<'_>, unchanged: &Condition<'_>| {
                worker.write(hash, now, record, [store.value, b""], unchanged)
            };
            return self.store_stale(key, hash, now, store, store.value.len(), write);
        }
        stored
    }

    /// Begins to store a value that lies in pieces, or refuses an item that is too large.
    #[cold]
    #[inline(never)]
    fn store_large(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
    ) -> Stored {
        let shared = Arc::clone(&self.shared);
        let (items, records) = (&shared.items, shared.records());
        if !records.takes(key, store.value.len()) {
            return Stored::TooLarge;
        }
        let keep = {
            // A store that will be refused must not evict anything.
            let pair = items.index.lock(hash.0);
            let seen = items.seen_in(&pair, key, now);
            match condition(store, &seen, records) {
                Err(Refusal::Exists) if store.invalidate => {}
                Err(refusal) => return refusal.into(),
                Ok(()) => {}
            }
            match &seen {
                Seen::Live(_, head) if store.depends() => {
                    let leader = records.leader_of_item(head);
                    Some((hash.0, leader.map_or(0, |id| records.segments.get(id).pieces())))
                }
                _ => None,
            }
        };
        Join::begin(self, store.value.len(), keep, (None, Vec::new()), None)
    }

    /// Stores a meta set with `I` under a token older than the item's: the value, of so many bytes,
    /// is taken, but the item keeps its expiry and is stale. `write` publishes a record under a
    /// condition.
    #[cold]
    fn store_stale(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        value_len: usize,
        mut write: impl FnMut(&mut Worker, NewRecord<'_>, &Condition<'_>) -> Stored,
    ) -> Stored {
        loop {
            let Old::Present(old) = self.read_old(key, hash, now, (Want::Nothing, value_len), None)
            else {
                return Stored::NotFound;
            };
            if store.compare.is_none_or(|given| given == 0 || given >= old.cas) {
                return Stored::Exists;
            }
            let records = self.shared.records();
            let mut record = records.successor(key, (&old.head, old.meta.expiry), value_len, now);
            record.client_flags = store.flags;
            record.cas = store.explicit_cas;
            record.marks |= mark::STALE | (old.marks & mark::WIN_SENT) | seen_mark(store.cas);
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = write(self, record, &unchanged);
            if stored != Stored::NotStored {
                return stored;
            }
        }
    }

    /// Appends a value that has arrived, or prepends it.
    #[cold]
    fn extend_by_upload(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        upload: Upload,
    ) -> Stored {
        if !store.vivify {
            return self.extend(key, hash, now, store, Some(upload.into_pin()), None);
        }
        // Where there is no item, the value stays in its place.
        let create = Store { mode: StoreMode::Add, vivify: false, ..*store };
        let (list, rest) = upload.finish();
        match self.publish_new(key, hash, now, &create, (&list, &rest)) {
            Stored::NotStored => {
                let added = Pin::of_no_item(Arc::clone(&self.shared), list, rest);
                self.extend(key, hash, now, store, Some(added), None)
            }
            stored => self.free_unless_stored(&list, stored),
        }
    }

    /// Appends to a value, or prepends to it: the value of `store`, or one that has arrived.
    pub(super) fn extend(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        added: Option<Pin>,
        supplied: Option<&OldValue>,
    ) -> Stored {
        let more = added.as_ref().map_or(store.value.len(), Pin::len);
        let mut read_here = None;
        loop {
            let supplied = read_here.as_ref().or(supplied);
            let old = match self.read_old(key, hash, now, (Want::Value, more), supplied) {
                Old::Present(old) => old,
                Old::Pending(read) if added.is_none() => return Stored::Pending(read),
                Old::Pending(read) => {
                    // A value that has arrived is not kept for another call.
                    read_here = self.read_and_wait(&read);
                    continue;
                }
                Old::Absent if store.vivify && added.is_some() => {
                    return Join::begin(self, more, None, (None, Vec::new()), added);
                }
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
            let len = old.pin.as_ref().map_or(before.len(), Pin::len) + more;
            if !self.shared.records().takes(key, len) {
                self.keep_scratch(before);
                return Stored::TooLarge;
            }
            if len as u64 > self.shared.records().whole_bytes_max {
                let keep = Some((hash.0, old.pin.as_ref().map_or(0, Pin::pieces)));
                return Join::begin(self, len, keep, (Some(old), before), added);
            }
            let record = self.extended(key, now, store, &old, len);
            let parts = if store.mode == StoreMode::Append {
                [&*before, store.value]
            } else {
                [store.value, &before]
            };
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(hash, now, record, parts, &unchanged);
            self.keep_scratch(before);
            if stored != Stored::NotStored {
                return stored;
            }
        }
    }

    /// Returns the record of a value that was appended to or prepended to, and has so many bytes
    /// now.
    pub(super) fn extended<'a>(
        &self,
        key: &'a [u8],
        now: Seconds,
        store: &Store<'_>,
        old: &OldItem,
        len: usize,
    ) -> NewRecord<'a> {
        let records = self.shared.records();
        let record = records.successor(key, (&old.head, old.meta.expiry), len, now);
        NewRecord {
            // The old record may have moved meanwhile.
            client_flags: old.meta.flags,
            cas: store.explicit_cas,
            marks: record.marks | seen_mark(store.cas),
            ..record
        }
    }

    /// Publishes a value that lies in its place under the conditions of its store.
    #[cold]
    pub(super) fn publish_new(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        store: &Store<'_>,
        value: (&List, &[u8]),
    ) -> Stored {
        let value_len = value.0.value_len as usize;
        let record = NewRecord { value_len, ..new_record(key, now, store, 0) };
        let condition = |seen: &Seen, records: &Records| condition(store, seen, records);
        let keep = store.depends().then_some(hash.0);
        let stored = self.publish_list(hash, now, (record, keep), value, &condition);
        if store.invalidate && stored == Stored::Exists {
            let write = |worker: &mut Worker, record: NewRecord<'_>, unchanged: &Condition<'_>| {
                worker.publish_list(hash, now, (record, keep), value, unchanged)
            };
            return self.store_stale(key, hash, now, store, value_len, write);
        }
        stored
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
            let old = match self.read_old(key, hash, now, (Want::Number, 0), supplied) {
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
            match self.write(hash, now, record, [&digits[..len], b""], &unchanged) {
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
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
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
            if !options.remove_value
                && let Some(deleted) = self.invalidate_large(key, hash, now, options)
            {
                return deleted;
            }
            let want = if options.remove_value { Want::Nothing } else { Want::Value };
            let old = match self.read_old(key, hash, now, (want, 0), supplied) {
                Old::Absent | Old::TooLong(_) => return Deleted::NotFound,
                Old::Pending(read) => return Deleted::Pending(read),
                // It has just come.
                Old::Present(old) if old.pin.is_some() && !options.remove_value => continue,
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
            record.cas =
                record.cas.or_else(|| Some(self.shared.space().flushes.take_token(old.cas)));
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(hash, now, record, [kept, b""], &unchanged);
            self.keep_scratch(value);
            match stored {
                Stored::Stored { .. } => return Deleted::Deleted,
                Stored::NotStored => {}
                Stored::Busy => return Deleted::Busy,
                _ => {
                    // A value that was to be marked stale must not be served as a fresh one.
                    self.delete(key, hash, now, &DeleteOptions::default(), None);
                    return Deleted::NoMemory;
                }
            }
        }
    }

    /// Marks an item stale whose value lies in pieces: in place, since its record has room for
    /// another token. `None` if there is no such item.
    fn invalidate_large(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &DeleteOptions,
    ) -> Option<Deleted> {
        let shared = Arc::clone(&self.shared);
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        let pair = items.index.lock(hash.0);
        let Seen::Live(found, head) = items.seen_in(&pair, key, now) else { return None };
        if !head.has(mark::PIECES) {
            return None;
        }
        let location = found.location();
        let cas = records.cas_of(location, &head);
        if options.compare.is_some_and(|given| given != cas) {
            return Some(Deleted::Exists);
        }
        space.forget_saved(location);
        let cas = options.explicit_cas.unwrap_or_else(|| space.flushes.take_token(cas));
        head.set_cas(&records.arena, cas);
        if let Some(expiry) = options.touch {
            let expiry = record_expiry(expiry, now);
            records.segment_at(location).extend_deadline(expiry);
            head.set_expiry(&records.arena, expiry);
        }
        head.set_marks(&records.arena, mark::STALE | mark::CAS_SEEN, mark::WIN_SENT);
        head.set_access(&records.arena, now);
        items.index.set_heat(&found, found.heat().inherited());
        Some(Deleted::Deleted)
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
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
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
            let Old::Present(old) = self.read_old(key, hash, now, (Want::Value, 0), None) else {
                return None;
            };
            if old.pin.is_some() {
                // Another item has come, and its record has room.
                continue;
            }
            let value = std::mem::take(&mut self.scratch);
            let mut record = records.successor(key, (&old.head, old.meta.expiry), value.len(), now);
            record.expiry = new;
            record.cas = Some(old.cas);
            record.marks |= old.marks & (mark::STALE | mark::WIN_SENT);
            record.last_access = Seconds(now.0.saturating_sub(old.meta.last_access_s));
            let unchanged = |seen: &Seen, records: &Records| old.is_unchanged(seen, records);
            let stored = self.write(hash, now, record, [&value, b""], &unchanged);
            self.keep_scratch(value);
            match stored {
                Stored::NotStored => {}
                Stored::Stored { .. } => return Some(old.meta),
                _ => {
                    // It would outlive the expiry that it was to have.
                    self.delete(key, hash, now, &DeleteOptions::default(), None);
                    return None;
                }
            }
        }
    }

    /// Keeps the memory of a copy for the next one, unless it is that of a very large value.
    fn keep_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = if scratch.capacity() > SCRATCH_BYTES_MAX { Vec::new() } else { scratch };
    }

    /// Copies an item for an operation that depends on it, and that adds so many bytes to the part
    /// it wants; its value goes into `scratch`, or is pinned if it lies in pieces.
    fn read_old(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        (want, more): (Want, usize),
        supplied: Option<&OldValue>,
    ) -> Old {
        let shared = Arc::clone(&self.shared);
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        self.scratch.clear();
        let pair = items.index.lock(hash.0);
        let Seen::Live(found, head) = items.seen_in(&pair, key, now) else { return Old::Absent };
        let location = found.location();
        let meta = records.meta(&found, &head, now);
        let cas = records.cas_of(location, &head);
        let mut old = OldItem { found, marks: head.marks, meta, cas, head, pin: None, fixed: None };
        if want == Want::Number && records.value_len(&head) > NUMBER_BYTES_MAX {
            return Old::TooLong(cas);
        }
        if head.has(mark::PIECES) {
            old.pin = Pin::take(&shared, location, &head);
            return if old.pin.is_some() { Old::Present(old) } else { Old::Absent };
        }
        let kept = if want == Want::Value { head.value_len } else { 0 };
        if (kept + more) as u64 > records.whole_bytes_max {
            // While a large value is written, so much may change in the bucket that its version
            // proves nothing; but no other item comes to a place whose token is known.
            head.set_marks(&records.arena, mark::CAS_SEEN, 0);
            old.fixed = Some(records.segment_at(location).sequence.load(Ordering::SeqCst));
        }
        if want == Want::Nothing {
            return Old::Present(old);
        }
        let value = records.append_value(location, &head, &mut self.scratch);
        match value {
            ValueAt::Memory | ValueAt::Pmem { .. } => {
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
                Old::Pending(self.pending(offset, checksum, hash, &found, meta, place))
            }
            ValueAt::Gone => Old::Absent,
        }
    }

    /// Writes a record and publishes it if the condition holds.
    fn write(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: &Condition<'_>,
    ) -> Stored {
        self.write_if(hash, now, record, parts, condition)
    }

    #[inline(always)]
    fn write_if(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        record: NewRecord<'_>,
        parts: [&[u8]; 2],
        condition: impl Fn(&Seen, &Records) -> Result<(), Refusal>,
    ) -> Stored {
        self.moved_bytes += parts[0].len() + parts[1].len();
        self.try_write(hash, now, record, parts, condition)
    }

    /// Frees the pieces of a value that was refused. Returns the outcome of its store.
    pub(super) fn free_unless_stored(&mut self, list: &List, stored: Stored) -> Stored {
        let is_stored = matches!(stored, Stored::Stored { .. });
        if !is_stored && !mutation_site!("the pieces of a value that is refused are freed") {
            self.shared.space().free_pieces(&list.segments);
        }
        stored
    }

    /// Publishes the record of a value in pieces, with their list and the value's rest.
    pub(super) fn publish_list(
        &mut self,
        hash: KeyHash,
        now: Seconds,
        (record, keep): (NewRecord<'_>, Option<u64>),
        (list, rest_bytes): (&List, &[u8]),
        condition: &Condition<'_>,
    ) -> Stored {
        let shared = Arc::clone(&self.shared);
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        let rest = records.cut.parts(list.value_len).1;
        let piece_bytes = list.value_len - rest;
        let in_record = if records.keeps_rests() { rest } else { 0 };
        let value_len = (records.cut.list_bytes(list.value_len) + in_record) as usize;
        let marks = record.marks | mark::PIECES | mark::EXPIRY;
        let mut record = NewRecord { value_len, marks, ..record };
        let leader = records.segments.get(list.segments[0]);
        let mut shard = shared.writers.shards[self.shard].lock();
        loop {
            // Such a record carries its token, so that it can be marked stale in place.
            let written = NewRecord { cas: record.cas.or(Some(0)), ..record };
            shard.keep = keep;
            let place = shard.reserve_for_pieces(items, &written, (piece_bytes, rest), hash.0, now);
            shard.keep = None;
            let place = match place {
                Ok(place) => place,
                Err(NoPlace::Busy) => return Stored::Busy,
                Err(NoPlace::NoMemory) => return Stored::NoMemory,
                Err(NoPlace::TooLarge) => return Stored::TooLarge,
            };
            let implied = records.implied_cas(place.sequence, place.location());
            let written = NewRecord { cas: record.cas.or(Some(implied)), ..record };
            records.write_list(&place, &written, list, rest_bytes, &mut self.account);
            leader.set_owner(place.location());
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
            let segment = records.segments.get(place.segment);
            segment.add_live_pieces(piece_bytes);
            space.queue_value(list.segments[0], segment.kind().log());
            shard.keep_head(space, place.slot, place.location());
            if is_new {
                items.count_added(&mut self.uncounted_items, &mut shard, &place, now);
            }
            return Stored::Stored { cas };
        }
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
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
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
