//! One thread's handle on a cache, and its reads.
//!
//! A plain read takes no lock and waits for no other thread: it copies, then proves that the copy
//! is one whole item. A read that changes the item (touch, win, a token that a client will hold)
//! locks its buckets. So does a read of a value in pieces, but only until it has pinned the value:
//! a copy that long could neither be proven nor made under a lock.

mod file_io;
mod join;
mod number;
mod old;
mod outgoing;
mod pin;
mod pinned;
mod request;
mod reservation;
mod upload;
mod walk;
mod window;
mod write;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::checksum::crc32c;
use entresol_base::{Nanos, Seconds, mutation_site, thread};
use entresol_media::{Access, AccountHandle, Admission, IoBuffer};

use crate::index::Found;
use crate::ops::{
    Expiry, GetOptions, ItemMeta, KeyHash, Lookup, OldValue, PendingRead, ReadFailure, Store,
    StoreMode, Stored, Win,
};
use crate::record::{Head, UNIT, mark};
use crate::shared::Shared;
use crate::shared::space::Seen;
use crate::statistics::{Counters, count};
use crate::values::{ValueAt, Values};
use pin::Pin;

pub use file_io::FileIo;
pub use join::Join;
pub use pinned::{Damaged, Pinned};
pub use reservation::{Reservation, Reserved, StoredInPlace};
pub use upload::Upload;
pub use walk::Walk;

/// Staleness of an item's time of last access that a plain read tolerates.
const ACCESS_GRAIN_S: u32 = 60;

/// One thread's handle on a cache. All operations are on single items.
pub struct Worker {
    shared: Arc<Shared>,
    shard: usize,
    counters: Arc<Counters>,
    account: AccountHandle,
    /// Items added or removed that the index has not been told of yet.
    uncounted_items: i64,
    /// Copy of an old value while its successor is written.
    scratch: Vec<u8>,
    /// Bytes of values copied by write operations since `take_moved_bytes` was last called.
    moved_bytes: usize,
    /// Value that the last read has found, if the caller sends it from its place.
    pinned: Option<Box<Pinned>>,
    /// Large value that the last store has left unfinished.
    unfinished: Option<Box<Join>>,
}

/// Result of the first attempt at a plain read.
enum AtOnce {
    Hit(ItemMeta),
    Miss,
    Unknown,
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, number: usize, counters: Arc<Counters>) -> Self {
        let account = shared.account.handle();
        let shard = number % shared.writers.shards.len();
        Worker {
            shared,
            shard,
            counters,
            account,
            uncounted_items: 0,
            scratch: Vec::new(),
            moved_bytes: 0,
            pinned: None,
            unfinished: None,
        }
    }

    /// Hashes a key; the result is passed to every operation on it.
    #[inline]
    #[must_use]
    pub fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.shared.records().hasher.hash(key))
    }

    /// Prefetches the key's bucket in the index.
    #[inline]
    pub fn prefetch(&self, hash: KeyHash) {
        self.shared.items.index.prefetch(hash.0);
    }

    /// Prefetches the record that the key's bucket names; worth it only once the bucket has
    /// arrived.
    #[inline]
    pub fn prefetch_record(&self, hash: KeyHash) {
        if let Some(location) = self.shared.items.index.guess(hash.0) {
            self.shared.records().arena.prefetch(location * UNIT);
            self.shared.records().arena.prefetch(location * UNIT + 64);
        }
    }

    /// Returns the bytes of values copied by write operations since the last call. An event loop
    /// uses it to share its thread fairly: one such operation can move a megabyte.
    #[inline]
    pub fn take_moved_bytes(&mut self) -> usize {
        std::mem::take(&mut self.moved_bytes)
    }

    /// Asks the tenant's account to admit an access.
    #[inline]
    pub fn admit(&mut self, now: Nanos) -> Admission {
        self.account.admit(now)
    }

    /// Looks an item up and appends it to `out`: calls `header` with the item's metadata, then
    /// appends the value's bytes, if they are wanted. A retry takes back the output of `header` and
    /// calls it again.
    #[inline]
    pub fn get(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &GetOptions,
        out: &mut Vec<u8>,
        mut header: impl FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Lookup {
        self.shared.space().check_flush(now);
        if options.is_plain() {
            match self.get_at_once(key, hash, now, options, out, &mut header) {
                AtOnce::Hit(meta) => Lookup::Hit(meta),
                AtOnce::Miss => Lookup::Miss,
                AtOnce::Unknown => self.get_plain(key, hash, now, options, out, &mut header),
            }
        } else {
            self.get_changing(key, hash, now, options, out, &mut header)
        }
    }

    /// Begins a value that is stored once it has arrived. `None` if a value of so many bytes does
    /// not lie in pieces.
    #[must_use]
    pub fn begin(&self, value_len: usize) -> Option<Upload> {
        Upload::begin(&self.shared, value_len, None)
    }

    /// Handles the common cases of a plain read in a cache whose values lie beside their keys: a
    /// live item at the first slot that bears its tag, and no such slot. All other cases have no
    /// effect and are left to `get_plain`.
    ///
    /// Written for few instructions, not for few lines: a processor looks some 300 of them ahead,
    /// and only the part of the next read that it can see overlaps with this one's wait for memory.
    #[inline(always)]
    fn get_at_once(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &GetOptions,
        out: &mut Vec<u8>,
        header: &mut impl FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> AtOnce {
        let shared = &*self.shared;
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        if !space.is_simple() {
            return AtOnce::Unknown;
        }
        let Some(probe) = items.index.probe(hash.0) else {
            if items.index.is_absent(hash.0) {
                count(&self.counters.misses, 1);
                return AtOnce::Miss;
            }
            return AtOnce::Unknown;
        };
        // The address of its second line is known before its head has arrived.
        records.arena.prefetch(probe.found.location() * UNIT + 64);
        let Some(head) = records.inline_head_of(probe.found.location(), key) else {
            return AtOnce::Unknown;
        };
        if options.win && head.has(mark::STALE) || head.has(mark::PIECES) {
            return AtOnce::Unknown;
        }
        let meta = records.meta_of_whole(&probe.found, &head, now);
        if meta.expiry.is_past(now) {
            return AtOnce::Unknown;
        }
        let start = out.len();
        header(&meta, out);
        thread::step();
        let whole =
            !options.value || records.arena.try_append_to(head.value_at(), head.value_len, out);
        if !whole || !probe.is_unchanged() {
            out.truncate(start);
            return AtOnce::Unknown;
        }
        if !options.no_bump {
            self.bump(probe.found, head, now);
        }
        count(&self.counters.hits, 1);
        self.account.charge(Access::Read, key.len() + head.value_len);
        AtOnce::Hit(meta)
    }

    #[cold]
    #[inline(never)]
    fn get_plain(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &GetOptions,
        out: &mut Vec<u8>,
        header: &mut impl FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Lookup {
        let start = out.len();
        loop {
            let (found, head) = match self.look(key, hash, now) {
                Seen::Live(found, head) => (found, head),
                seen => return self.missed(&seen),
            };
            // A reader that wins the item changes it.
            let wins = options.win && head.has(mark::STALE) && !head.has(mark::WIN_SENT);
            if wins || head.has(mark::PIECES) {
                return self.get_changing(key, hash, now, options, out, header);
            }
            let meta = self.shared.records().meta(&found, &head, now);
            header(&meta, out);
            let room = out.len()..out.len() + meta.value_len as usize;
            thread::step();
            let value = if options.value {
                self.shared.records().append_value(found.location(), &head, out)
            } else {
                ValueAt::Memory
            };
            if !self.shared.items.index.unchanged(&found) {
                out.truncate(start);
                continue;
            }
            if !options.no_bump {
                self.bump(found, head, now);
            }
            return self.deliver(value, key, hash, &found, meta, start, room, out);
        }
    }

    /// Hands out a value that was copied whole, or the read that will bring it.
    #[expect(clippy::too_many_arguments, reason = "the tail of both kinds of read")]
    fn deliver(
        &mut self,
        value: ValueAt,
        key: &[u8],
        hash: KeyHash,
        found: &Found,
        meta: ItemMeta,
        start: usize,
        room: Range<usize>,
        out: &mut Vec<u8>,
    ) -> Lookup {
        match value {
            ValueAt::Memory | ValueAt::Pmem { .. } => {
                if !value.is_intact(out.get(room).unwrap_or_default()) {
                    out.truncate(start);
                    self.drop_damaged(hash, found.location());
                    count(&self.counters.misses, 1);
                    return Lookup::Miss;
                }
                count(&self.counters.hits, 1);
                value.charge_read(&mut self.account, key.len(), meta.value_len as usize);
                Lookup::Hit(meta)
            }
            ValueAt::File { offset, checksum, segment, sequence } => {
                let place = (segment, sequence);
                Lookup::Pending(self.pending(offset, checksum, hash, found, meta, place))
            }
            ValueAt::Gone => {
                out.truncate(start);
                count(&self.counters.misses, 1);
                Lookup::Miss
            }
        }
    }

    fn pending(
        &mut self,
        offset: u64,
        checksum: u32,
        hash: KeyHash,
        found: &Found,
        meta: ItemMeta,
        (segment, sequence): (u32, u64),
    ) -> PendingRead {
        let alignment = self.shared.records().values.read_alignment();
        let start = offset - offset % alignment;
        let end = (offset + u64::from(meta.value_len)).next_multiple_of(alignment);
        let length = (end - start).max(alignment) as usize;
        count(&self.counters.file_reads, 1);
        self.account.charge(Access::Read, length);
        PendingRead {
            offset: start,
            length,
            meta,
            location: found.location(),
            segment,
            sequence,
            value_start: (offset - start) as usize,
            checksum,
            hash,
        }
    }

    /// Finds and checks the value of a pending read in the `data` that was read.
    ///
    /// # Errors
    /// When the segment was recycled in the meantime, or the bytes are damaged.
    pub fn complete_read(
        &mut self,
        read: &PendingRead,
        data: &[u8],
    ) -> Result<Range<usize>, ReadFailure> {
        let range = read.value_start..read.value_start + read.meta.value_len as usize;
        let intact = data.get(range.clone()).is_some_and(|value| {
            crc32c(value) == read.checksum || mutation_site!("a value from a file is checked")
        });
        let segment = self.shared.records().segments.get(read.segment);
        if segment.sequence.load(Ordering::SeqCst) != read.sequence {
            count(&self.counters.misses, 1);
            return Err(ReadFailure::Recycled);
        }
        if !intact {
            self.drop_damaged(read.hash, read.location);
            count(&self.counters.misses, 1);
            return Err(ReadFailure::Damaged);
        }
        count(&self.counters.hits, 1);
        Ok(range)
    }

    /// Finds the value of a pending read in the `data` that was read, whatever came of it. After a
    /// failure the item is dropped, so that no later request waits for it again.
    pub fn end_read(
        &mut self,
        read: &PendingRead,
        result: &std::io::Result<usize>,
        data: &[u8],
    ) -> Option<Range<usize>> {
        if !result.as_ref().is_ok_and(|bytes| *bytes >= read.length) {
            self.fail_read(read);
            return None;
        }
        self.complete_read(read, data.get(..read.length)?).ok()
    }

    /// Drops the item of a pending read that could not be carried out: its value is out of reach.
    pub fn fail_read(&mut self, read: &PendingRead) {
        let segment = self.shared.records().segments.get(read.segment);
        if segment.sequence.load(Ordering::SeqCst) == read.sequence {
            self.drop_damaged(read.hash, read.location);
        }
        count(&self.counters.misses, 1);
    }

    /// Carries out a read of an old value, and waits for it. Returns `None` if the value is out of
    /// reach; its item is gone then.
    #[cold]
    fn read_and_wait(&mut self, read: &PendingRead) -> Option<OldValue> {
        let shared = Arc::clone(&self.shared);
        let mut buffer = IoBuffer::new(read.length);
        let result = file_io::file_of(&shared)?.file.read_at(read.offset, &mut buffer);
        let value = self.end_read(read, &result, &buffer)?;
        Some(OldValue::new(read, buffer.get(value)?.to_vec()))
    }

    fn drop_damaged(&mut self, hash: KeyHash, location: u64) {
        count(&self.counters.damaged, 1);
        let shared = Arc::clone(&self.shared);
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        let pair = items.index.lock(hash.0);
        if let Some(found) = pair.find_location(location) {
            space.retire(location, &records.head(location), || pair.remove(&found));
            items.count_removed(&mut self.uncounted_items);
        }
    }

    /// Finds a key's record without a lock; a hit still has to be proven.
    #[inline]
    fn look(&self, key: &[u8], hash: KeyHash, now: Seconds) -> Seen {
        let shared = &*self.shared;
        let items = &shared.items;
        let space = shared.space();
        let records = shared.records();
        match items.index.find(hash.0, |location| records.head_of(location, key)) {
            Some((found, head)) => space.judge(found, head, now),
            None => Seen::Absent,
        }
    }

    #[inline]
    fn missed(&mut self, seen: &Seen) -> Lookup {
        count(&self.counters.misses, 1);
        match seen {
            Seen::Expired(..) => count(&self.counters.expired_on_read, 1),
            Seen::Flushed(..) => count(&self.counters.flushed_on_read, 1),
            Seen::Live(..) | Seen::Absent => {}
        }
        Lookup::Miss
    }

    /// Counts a read. The time of access in the record is updated only once it is off by
    /// memcached's own 60 seconds, since that takes the bucket's lock, which costs more than the
    /// read.
    #[inline(always)]
    fn bump(&mut self, found: Found, head: Head, now: Seconds) {
        let heat = found.heat();
        let space = self.shared.space();
        let young = space.logs.young.has(space.records.segment_of(found.location()));
        let warmer = heat.read(young);
        if warmer != heat {
            self.shared.items.index.set_heat(&found, warmer);
        }
        if head.last_access_s(now) >= ACCESS_GRAIN_S {
            self.note_access(found.bucket(), found.location(), now);
        }
    }

    /// Notes an access. It is given numbers only: a reference to the item would keep the item in
    /// memory on the way to every hit.
    #[cold]
    #[inline(never)]
    fn note_access(&self, (bucket_at, header): (u64, u64), location: u64, now: Seconds) {
        let shared = &*self.shared;
        let items = &shared.items;
        let _space = shared.space();
        let records = shared.records();
        let set_access = || records.head(location).set_access(&records.arena, now);
        items.index.try_locked(bucket_at, header, set_access);
    }

    fn get_changing(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        options: &GetOptions,
        out: &mut Vec<u8>,
        header: &mut impl FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Lookup {
        if options.touch == Some(Expiry::Immediately) {
            let untouched = GetOptions { touch: None, ..*options };
            let found = self.get_changing(key, hash, now, &untouched, out, header);
            if !matches!(found, Lookup::Miss) {
                self.touch_item(key, hash, now, Expiry::Immediately);
            }
            return found;
        }
        let start = out.len();
        let before = options.touch.and_then(|expiry| self.touch_item(key, hash, now, expiry));
        let shared = Arc::clone(&self.shared);
        let (items, space, records) = (&shared.items, shared.space(), shared.records());
        let pair = items.index.lock(hash.0);
        let seen = items.seen_in(&pair, key, now);
        let Seen::Live(found, head) = seen else {
            drop(pair);
            return match options.vivify {
                Some(expiry) => self.vivify(key, hash, now, expiry, options, out, header),
                None => self.missed(&seen),
            };
        };
        let mut meta = records.meta(&found, &head, now);
        if let Some(before) = before {
            meta.expiry = before.expiry;
            meta.fetched = before.fetched;
            meta.last_access_s = before.last_access_s;
        }
        if options.win {
            // A new expiry is what a recache compares with, although the reply shows the old one.
            let expiry = options.touch.unwrap_or(meta.expiry);
            meta.win = records.settle_win(&head, expiry, options.recache_below_s, now);
        }
        if options.cas {
            head.set_marks(&records.arena, mark::CAS_SEEN, 0);
            meta.cas = records.cas_of(found.location(), &head);
        }
        if !options.no_bump {
            head.set_access(&records.arena, now);
            let leader = records.leader_of_item(&head);
            let segment = leader.unwrap_or_else(|| records.segment_of(found.location()));
            items.index.set_heat(&found, found.heat().read(space.logs.young.has(segment)));
        }
        header(&meta, out);
        let room = out.len()..out.len() + meta.value_len as usize;
        let value = if !options.value {
            ValueAt::Memory
        } else if head.has(mark::PIECES) {
            let pin = Pin::take(&shared, found.location(), &head);
            drop(pair);
            if options.pin && !matches!(records.values, Values::Pmem(_)) {
                return self.hand_out(pin, key, hash, meta, start, out);
            }
            let value = self.append_pinned(hash, pin.as_ref(), out);
            return self.deliver(value, key, hash, &found, meta, start, room, out);
        } else {
            records.append_value(found.location(), &head, out)
        };
        drop(pair);
        self.deliver(value, key, hash, &found, meta, start, room, out)
    }

    /// Charges the read or write of a part of a large value on a block file.
    fn charge_file(&mut self, access: Access, bytes: usize) {
        if let Some(file) = file_io::file_of(&self.shared) {
            self.account.charge_part(access, bytes, file.piece());
        }
    }

    /// Keeps a value in pieces for `take_pinned`, unless its beginning is damaged.
    #[cold]
    fn hand_out(
        &mut self,
        pin: Option<Pin>,
        key: &[u8],
        hash: KeyHash,
        meta: ItemMeta,
        start: usize,
        out: &mut Vec<u8>,
    ) -> Lookup {
        let mut pinned = pin.map(|pin| Pinned::of(pin, hash));
        if let Some(damaged) = pinned.take_if(|it| it.check_to(1).is_err()) {
            self.drop_damaged_value(hash, damaged.pin());
        }
        if pinned.is_none() {
            out.truncate(start);
            count(&self.counters.misses, 1);
            return Lookup::Miss;
        }
        match &self.shared.records().values {
            Values::File(file) => {
                // It is a hit once its beginning has been read: see `end_opening`.
                count(&self.counters.file_reads, 1);
                self.account.charge_part(Access::Read, meta.value_len as usize, file.piece());
            }
            Values::Inline | Values::Pmem(_) => {
                count(&self.counters.hits, 1);
                self.account.charge(Access::Read, key.len() + meta.value_len as usize);
            }
        }
        self.pinned = pinned.map(Box::new);
        Lookup::Hit(meta)
    }

    /// Returns the large value that the last read has found under [`GetOptions::pin`], if it has.
    #[inline]
    pub fn take_pinned(&mut self) -> Option<Pinned> {
        self.pinned.take().map(|pinned| *pinned)
    }

    /// Counts a read whose value's beginning has been read from a block file, and checked. The item
    /// of one that is damaged is dropped, unless it has another value by now.
    pub fn end_opening(&mut self, pinned: &Pinned) {
        if pinned.is_damaged() {
            count(&self.counters.misses, 1);
            self.drop_damaged_pinned(pinned);
        } else {
            count(&self.counters.hits, 1);
        }
    }

    /// Drops the item of a value that [`Damaged`] was told of, unless it has another one by now.
    #[cold]
    pub fn drop_damaged_pinned(&mut self, damaged: &Pinned) {
        self.drop_damaged_value(damaged.hash(), damaged.pin());
    }

    /// Appends a value in pieces to `out`. An item whose value is damaged is dropped.
    #[cold]
    fn append_pinned(&mut self, hash: KeyHash, pin: Option<&Pin>, out: &mut Vec<u8>) -> ValueAt {
        match pin {
            Some(pin) if pin.append_to(out) => ValueAt::Memory,
            Some(pin) => {
                self.drop_damaged_value(hash, pin);
                ValueAt::Gone
            }
            None => ValueAt::Gone,
        }
    }

    /// Drops the item whose value in pieces is damaged, unless it has another value by now.
    fn drop_damaged_value(&mut self, hash: KeyHash, pin: &Pin) {
        count(&self.counters.damaged, 1);
        let shared = Arc::clone(&self.shared);
        let records = shared.records();
        let pair = shared.items.index.lock(hash.0);
        let location = records.segments.get(pin.leader()).owner();
        if let Some(found) = pair.find_location(location)
            && records.leader_of_item(&records.head(location)) == Some(pin.leader())
        {
            shared.space().retire(location, &records.head(location), || pair.remove(&found));
            shared.items.count_removed(&mut self.uncounted_items);
        }
    }

    /// Creates an empty item for a reader that missed and will fetch the value.
    #[expect(clippy::too_many_arguments, reason = "the tail of a read")]
    fn vivify(
        &mut self,
        key: &[u8],
        hash: KeyHash,
        now: Seconds,
        expiry: Expiry,
        options: &GetOptions,
        out: &mut Vec<u8>,
        header: &mut impl FnMut(&ItemMeta, &mut Vec<u8>),
    ) -> Lookup {
        let mut store = Store::set(b"");
        store.expiry = expiry;
        store.mode = StoreMode::Add;
        store.explicit_cas = options.explicit_cas;
        store.cas = options.cas;
        match self.store_marked(key, hash, now, &store, mark::WIN_SENT) {
            Stored::Stored { cas } => {
                let meta = ItemMeta {
                    flags: 0,
                    value_len: 0,
                    cas: if options.cas { cas } else { 0 },
                    expiry,
                    last_access_s: 0,
                    fetched: false,
                    stale: false,
                    win: Win::Won,
                };
                count(&self.counters.misses, 1);
                count(&self.counters.stores, 1);
                header(&meta, out);
                Lookup::Hit(meta)
            }
            // Another writer was quicker: there is an item now.
            Stored::NotStored => {
                let without = GetOptions { vivify: None, ..*options };
                self.get_changing(key, hash, now, &without, out, header)
            }
            _ => self.missed(&Seen::Absent),
        }
    }
}

/// Counts a store that is refused because its value could not be read or written.
#[cold]
fn refused(counter: &AtomicU64) -> Stored {
    count(counter, 1);
    Stored::NoMemory
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.shared.items.index.count(self.uncounted_items);
    }
}
