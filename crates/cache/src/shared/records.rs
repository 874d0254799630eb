//! Records and values as bytes: the segments that they lie in, the locations by which slots name
//! them, and their tokens.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::Ordering;

use entresol_base::Seconds;
use entresol_base::checksum::{crc32c, crc32c_append};
use entresol_base::hash::KeyHasher;
use entresol_media::{Access, AccountHandle, Direct, RegionError};

use crate::config::plan::Plan;
use crate::index::Found;
use crate::ops::{Expiry, ItemMeta, Win};
use crate::pieces::{Cut, List, first_piece, value_len};
use crate::record::{Head, KEY_BYTES_MAX, NewRecord, UNIT, mark};
use crate::restart::closing::Closing;
use crate::segment::{Segment, Table, tokens_of};
use crate::shared::append::{Place, PlaceAhead};
use crate::values::{ValueAt, Values};

/// Bytes of records and values, and the segments that they lie in.
pub(crate) struct Records {
    pub(crate) arena: Direct,
    pub(crate) values: Values,
    pub(crate) segments: Table,
    pub(crate) segment_bytes: u64,
    pub(crate) value_bytes_max: u64,
    /// Largest value that is accepted and does not lie in pieces.
    pub(crate) whole_bytes_max: u64,
    /// Manner in which larger values are cut into pieces.
    pub(crate) cut: Cut,
    /// Binary logarithm of the distance between the starts of segments in the arena.
    stride_shift: u32,
    /// Binary logarithm of the same distance in units of locations.
    location_shift: u32,
    /// Nonzero if values lie elsewhere than in their records.
    elsewhere: u64,
    pub(crate) hasher: KeyHasher,
}

impl Records {
    pub(crate) fn new(plan: &Plan, values: Values, hasher: KeyHasher) -> Result<Self, RegionError> {
        Ok(Records {
            arena: Direct::anonymous(plan.arena_bytes, plan.arena_huge_pages)?,
            elsewhere: u64::from(values.is_elsewhere()),
            values,
            segments: Table::new(plan.segments_max),
            segment_bytes: plan.segment_bytes,
            value_bytes_max: plan.value_bytes_max,
            whole_bytes_max: plan.whole_bytes_max,
            cut: plan.cut,
            stride_shift: plan.stride_shift,
            location_shift: plan.stride_shift - UNIT.ilog2(),
            hasher,
        })
    }

    /// Returns true if an item of this size can be held at all.
    pub(crate) fn takes(&self, key: &[u8], value_len: usize) -> bool {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && value_len as u64 <= self.value_bytes_max
    }

    /// Returns true if an item of this size can be held, and its value does not lie in pieces.
    pub(crate) fn takes_whole(&self, key: &[u8], value_len: usize) -> bool {
        (1..=KEY_BYTES_MAX).contains(&key.len()) && value_len as u64 <= self.whole_bytes_max
    }

    /// Returns a number that is nonzero if values lie elsewhere than in their records.
    #[inline(always)]
    pub(crate) fn elsewhere(&self) -> u64 {
        self.elsewhere
    }

    /// Returns the offset in the arena at which a segment's records start.
    #[inline]
    pub(crate) fn base_of(&self, segment: u32) -> u64 {
        u64::from(segment) << self.stride_shift
    }

    /// Returns the offset on the medium at which a segment's values start.
    #[inline]
    pub(crate) fn medium_base_of(&self, segment: u32) -> u64 {
        self.values.data_start() + u64::from(segment) * self.segment_bytes
    }

    /// Returns the segment that holds a location.
    #[inline]
    pub(crate) fn segment_of(&self, location: u64) -> u32 {
        (location >> self.location_shift) as u32
    }

    /// Returns the metadata of the segment that holds a location.
    #[inline]
    pub(crate) fn segment_at(&self, location: u64) -> &Segment {
        self.segments.get(self.segment_of(location))
    }

    /// Reads the head of the record at a location.
    #[inline]
    pub(crate) fn head(&self, location: u64) -> Head {
        Head::load(&self.arena, location * UNIT, self.values.is_elsewhere())
    }

    /// Returns the head of the record at a location, perhaps torn, if its key is this one.
    #[inline(always)]
    pub(crate) fn head_of(&self, location: u64, key: &[u8]) -> Option<Head> {
        let head = self.head(location);
        let matches = head.key_len == key.len() && self.arena.equals(head.key_at(), key);
        matches.then_some(head)
    }

    /// Does what `head_of` does in a cache whose values lie in their records.
    #[inline(always)]
    pub(crate) fn inline_head_of(&self, location: u64, key: &[u8]) -> Option<Head> {
        let head = Head::load(&self.arena, location * UNIT, false);
        let matches = head.key_len == key.len() && self.arena.equals(head.key_at(), key);
        matches.then_some(head)
    }

    /// Returns an item's metadata except for its token.
    pub(crate) fn meta(&self, found: &Found, head: &Head, now: Seconds) -> ItemMeta {
        let value_len = self.value_len(head) as u32;
        ItemMeta { value_len, ..self.meta_of_whole(found, head, now) }
    }

    /// Returns the metadata of an item whose value does not lie in pieces, except for its token.
    #[inline(always)]
    pub(crate) fn meta_of_whole(&self, found: &Found, head: &Head, now: Seconds) -> ItemMeta {
        ItemMeta {
            flags: head.client_flags(&self.arena),
            value_len: head.value_len as u32,
            cas: 0,
            expiry: head.expiry(&self.arena),
            last_access_s: head.last_access_s(now),
            fetched: found.heat().is_read(),
            stale: head.has(mark::STALE),
            win: if head.has(mark::WIN_SENT) { Win::AlreadySent } else { Win::None },
        }
    }

    /// Decides under the bucket's lock which reader fetches the item anew.
    pub(crate) fn settle_win(
        &self,
        head: &Head,
        expiry: Expiry,
        recache_below_s: Option<u32>,
        now: Seconds,
    ) -> Win {
        if head.has(mark::WIN_SENT) {
            return Win::AlreadySent;
        }
        let runs_short = match (expiry, recache_below_s) {
            (Expiry::At(at), Some(below)) => at.0.saturating_sub(now.0) < below,
            _ => false,
        };
        if runs_short || head.has(mark::STALE) {
            head.set_marks(&self.arena, mark::WIN_SENT, 0);
            return Win::Won;
        }
        Win::None
    }

    /// Returns the token of the record at a location: an explicit one, or the one that its place
    /// implies.
    pub(crate) fn cas_of(&self, location: u64, head: &Head) -> u64 {
        head.explicit_cas(&self.arena).unwrap_or_else(|| {
            let sequence = self.segment_at(location).sequence.load(Ordering::SeqCst);
            self.implied_cas(sequence, location)
        })
    }

    /// Returns the token that a place implies; a segment's later lives give greater ones.
    pub(crate) fn implied_cas(&self, sequence: u64, location: u64) -> u64 {
        let offset = (location * UNIT) & ((1 << self.stride_shift) - 1);
        tokens_of(sequence).start | (offset / UNIT)
    }

    /// Prefetches the record at a location, if there is one.
    pub(crate) fn fetch(&self, location: u64) {
        self.arena.prefetch(location.wrapping_mul(UNIT));
    }

    /// Hashes the key of the record at a location.
    pub(crate) fn rehash(&self, location: u64) -> u64 {
        // Where all records are alike, the key is found in fewer steps.
        if self.elsewhere == 0 {
            self.hash_of(&Head::load(&self.arena, location * UNIT, false))
        } else {
            self.hash_of(&self.head(location))
        }
    }

    #[inline(always)]
    fn hash_of(&self, head: &Head) -> u64 {
        let mut key = [0_u8; 255];
        let key = &mut key[..head.key_len.min(255)];
        self.arena.read(head.key_at(), key);
        self.hasher.hash(key)
    }

    /// Returns the bytes of an item's value.
    #[inline]
    pub(crate) fn value_len(&self, head: &Head) -> usize {
        if head.has(mark::PIECES) { self.whole_len(head) as usize } else { head.value_len }
    }

    /// Returns the bytes of a value in pieces.
    #[cold]
    fn whole_len(&self, head: &Head) -> u64 {
        value_len(&self.arena, head)
    }

    /// Returns the list in the record of a value in pieces, unless the record is damaged.
    #[cold]
    pub(crate) fn list_of(&self, head: &Head) -> Option<List> {
        List::load(&self.arena, head, self.cut)
    }

    /// Returns the first piece of a value in pieces.
    #[cold]
    pub(crate) fn leader_of(&self, head: &Head) -> u32 {
        first_piece(&self.arena, head)
    }

    /// Returns the first piece of an item's value, if that lies in pieces.
    #[inline]
    pub(crate) fn leader_of_item(&self, head: &Head) -> Option<u32> {
        head.has(mark::PIECES).then(|| self.leader_of(head))
    }

    /// Returns the bytes of an item's record and value.
    #[inline]
    pub(crate) fn item_bytes(&self, head: &Head) -> u64 {
        head.record_bytes() + self.bytes_beside(head)
    }

    /// Returns the bytes of a value that do not lie in its record.
    #[inline]
    pub(crate) fn bytes_beside(&self, head: &Head) -> u64 {
        self.bytes_elsewhere(head) + self.bytes_in_pieces(head)
    }

    /// Returns the bytes of a value that lie in pieces.
    #[inline]
    pub(crate) fn bytes_in_pieces(&self, head: &Head) -> u64 {
        if !head.has(mark::PIECES) {
            return 0;
        }
        let value_len = self.whole_len(head);
        value_len - self.cut.parts(value_len).1
    }

    /// Returns the bytes of a value that lie neither in its record nor in pieces.
    #[inline]
    pub(crate) fn bytes_elsewhere(&self, head: &Head) -> u64 {
        if head.is_elsewhere() {
            head.value_len as u64
        } else if head.has_place() && !self.keeps_rests() {
            self.cut.parts(self.whole_len(head)).1
        } else {
            0
        }
    }

    /// Returns true if the medium is large enough for a segment.
    pub(crate) fn is_on_medium(&self, id: u32) -> bool {
        match &self.values {
            Values::Inline => true,
            Values::Pmem(pmem) => (u64::from(id) + 1) * self.segment_bytes <= pmem.capacity_bytes(),
            Values::File(file) => (u64::from(id) + 1) * self.segment_bytes <= file.capacity_bytes(),
        }
    }

    /// Returns true if what is no piece of a large value lies in its record, and not where other
    /// values do.
    pub(crate) fn keeps_rests(&self) -> bool {
        !matches!(self.values, Values::Pmem(_))
    }

    /// Returns the offset of a piece, in the arena or on the medium of values elsewhere.
    pub(crate) fn piece_at(&self, id: u32) -> u64 {
        match &self.values {
            Values::Inline => self.base_of(id),
            Values::Pmem(_) | Values::File(_) => self.medium_base_of(id),
        }
    }

    /// Writes bytes into a piece.
    pub(crate) fn write_piece(
        &self,
        id: u32,
        offset: u64,
        bytes: &[u8],
        account: &mut AccountHandle,
    ) {
        let at = self.piece_at(id) + offset;
        match &self.values {
            _ if bytes.is_empty() => {}
            Values::Inline => {
                self.arena.write(at, bytes);
                account.charge(Access::Write, bytes.len());
            }
            Values::Pmem(pmem) => {
                pmem.write(at, bytes);
                account.charge_units(Access::Write, at, bytes.len());
            }
            Values::File(_) => debug_assert!(false, "chunks are written to a file as a whole"),
        }
    }

    /// Receives bytes from a socket into a piece, where values lie in DRAM.
    pub(crate) fn receive_piece(
        &self,
        id: u32,
        offset: u64,
        len: usize,
        socket: BorrowedFd<'_>,
        account: &mut AccountHandle,
    ) -> io::Result<usize> {
        let received = self.arena.receive(socket, self.base_of(id) + offset, len)?;
        account.charge(Access::Write, received);
        Ok(received)
    }

    /// Returns true if values can be written to a reserved place in parts, as they arrive.
    pub(crate) fn takes_parts(&self) -> bool {
        !matches!(self.values, Values::Pmem(_))
    }

    /// Writes a part of a value, from byte `from` of it on, to a reserved place.
    pub(crate) fn write_part(
        &self,
        to: &PlaceAhead,
        from: u64,
        bytes: &[u8],
        account: &mut AccountHandle,
    ) {
        let at = to.value_at + from;
        match &self.values {
            Values::Inline => self.arena.write(at, bytes),
            Values::File(file) => {
                file.write_buffered(self.segments.get(to.place.segment), at, bytes);
            }
            Values::Pmem(_) => debug_assert!(false, "it takes no parts"),
        }
        self.charge_part(bytes.len(), account);
    }

    /// Receives a part of a value, of at most `most` bytes, from a socket into a reserved place.
    /// Returns its bytes, and the checksum that follows `before`.
    pub(crate) fn receive_part(
        &self,
        to: &PlaceAhead,
        (from, most): (u64, usize),
        socket: BorrowedFd<'_>,
        before: u32,
        account: &mut AccountHandle,
    ) -> io::Result<(usize, u32)> {
        let at = to.value_at + from;
        let (region, at) = match &self.values {
            Values::Inline => (&self.arena, at),
            Values::File(file) => file.buffered(self.segments.get(to.place.segment), at),
            Values::Pmem(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        let received = region.receive(socket, at, most)?;
        let is_checked = self.values.is_elsewhere();
        let checksum = if is_checked { region.checksum(at, received, before) } else { 0 };
        self.charge_part(received, account);
        Ok((received, checksum))
    }

    /// Copies so many bytes of a value out of a reserved place.
    pub(crate) fn read_parts(&self, to: &PlaceAhead, len: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(len);
        let (region, at) = match &self.values {
            Values::File(file) => file.buffered(self.segments.get(to.place.segment), to.value_at),
            Values::Inline | Values::Pmem(_) => (&self.arena, to.value_at),
        };
        region.append_to(at, len, &mut value);
        value
    }

    /// Charges bytes that were written to a reserved place: the writers of a segment of a block
    /// file pay as they fill it.
    fn charge_part(&self, bytes: usize, account: &mut AccountHandle) {
        match &self.values {
            Values::File(file) => account.charge_part(Access::Write, bytes, file.piece()),
            Values::Inline | Values::Pmem(_) => account.charge(Access::Write, bytes),
        }
    }

    /// Returns the checksum of bytes in a piece, where values lie in DRAM, that follow others with
    /// this checksum.
    pub(crate) fn checksum_piece(&self, id: u32, offset: u64, len: usize, before: u32) -> u32 {
        self.arena.checksum(self.base_of(id) + offset, len, before)
    }

    /// Waits until what was written into pieces is durable: a restart trusts a record, so its
    /// value must be durable before it.
    pub(crate) fn drain_pieces(&self) {
        if let Values::Pmem(pmem) = &self.values {
            pmem.drain();
        }
    }

    /// Appends bytes of a piece to `out`.
    pub(crate) fn append_piece(&self, id: u32, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let at = self.piece_at(id) + offset;
        match &self.values {
            Values::Inline => self.arena.try_append_to(at, len, out),
            Values::Pmem(pmem) => pmem.append_to(at, len, out),
            Values::File(_) => false,
        }
    }

    /// Appends the rest of a value in pieces to `out`, under the lock of its buckets.
    pub(crate) fn append_rest(
        &self,
        location: u64,
        head: &Head,
        list: &List,
        out: &mut Vec<u8>,
    ) -> bool {
        let rest = self.cut.parts(list.value_len).1 as usize;
        match &self.values {
            _ if rest == 0 => true,
            Values::Inline | Values::File(_) => {
                let at = head.list_at() + self.cut.list_bytes(list.value_len);
                self.arena.try_append_to(at, rest, out)
            }
            Values::Pmem(pmem) => {
                let (offset, _) = head.place(&self.arena);
                let base = self.medium_base_of(self.segment_of(location));
                pmem.append_to(base + u64::from(offset), rest, out)
            }
        }
    }

    /// Appends the value of an item, which does not lie in pieces, to `out`, or returns its place
    /// on the block file.
    #[inline]
    pub(crate) fn append_value(&self, location: u64, head: &Head, out: &mut Vec<u8>) -> ValueAt {
        match &self.values {
            Values::Inline => {
                if head.value_at() + head.value_len as u64 > self.arena.len() {
                    return ValueAt::Gone;
                }
                self.arena.append_to(head.value_at(), head.value_len, out);
                ValueAt::Memory
            }
            Values::Pmem(pmem) => {
                let (offset, checksum) = head.place(&self.arena);
                let at = self.medium_base_of(self.segment_of(location)) + u64::from(offset);
                if !pmem.append_to(at, head.value_len, out) {
                    return ValueAt::Gone;
                }
                ValueAt::Pmem { offset: at, checksum }
            }
            Values::File(file) => {
                let id = self.segment_of(location);
                let segment = self.segments.get(id);
                let (offset, checksum) = head.place(&self.arena);
                let sequence = segment.sequence.load(Ordering::SeqCst);
                if file.append_buffered(segment, u64::from(offset), head.value_len, out) {
                    return ValueAt::Memory;
                }
                let offset = self.medium_base_of(id) + u64::from(offset);
                ValueAt::File { offset, checksum, segment: id, sequence }
            }
        }
    }

    /// Writes a whole record to its place, unpublished.
    pub(crate) fn write_record(
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

    /// Writes the record of a value in pieces, and its rest, to their places, unpublished.
    #[cold]
    pub(crate) fn write_list(
        &self,
        place: &Place,
        record: &NewRecord<'_>,
        list: &List,
        rest: &[u8],
        account: &mut AccountHandle,
    ) {
        let elsewhere = self.values.is_elsewhere().then(|| (place.value_offset, crc32c(rest)));
        let list_at = record.write(&self.arena, place.at, elsewhere);
        list.store(&self.arena, list_at);
        let rest_at = list_at + self.cut.list_bytes(list.value_len);
        if matches!(self.values, Values::File(_)) {
            self.arena.write(rest_at, rest);
        } else {
            self.write_value(place, rest_at, [rest, b""], account);
        }
    }

    /// Writes a value, in one or two parts, to its place.
    pub(crate) fn write_value(
        &self,
        place: &Place,
        inline_at: u64,
        parts: [&[u8]; 2],
        account: &mut AccountHandle,
    ) {
        let [first, second] = parts;
        match &self.values {
            Values::Inline => {
                self.arena.write(inline_at, first);
                if !second.is_empty() {
                    self.arena.write(inline_at + first.len() as u64, second);
                }
                account.charge(Access::Write, place.record_bytes as usize);
            }
            Values::Pmem(pmem) => {
                let at = self.medium_base_of(place.segment) + u64::from(place.value_offset);
                pmem.write(at, first);
                if !second.is_empty() {
                    pmem.write(at + first.len() as u64, second);
                }
                pmem.drain();
                account.charge_units(Access::Write, at, first.len() + second.len());
            }
            Values::File(file) => {
                let segment = self.segments.get(place.segment);
                let offset = u64::from(place.value_offset);
                file.write_buffered(segment, offset, first);
                if !second.is_empty() {
                    file.write_buffered(segment, offset + first.len() as u64, second);
                }
                // The segment will be written once it is full. Its writers pay as they fill it, so
                // that a limit holds up these writers and not, much later, another one.
                account.charge_part(Access::Write, first.len() + second.len(), file.piece());
            }
        }
    }

    /// Builds the record that takes an item's place: equal flags and expiry, no marks.
    pub(crate) fn successor<'a>(
        &self,
        key: &'a [u8],
        (head, expiry): (&Head, Expiry),
        value_len: usize,
        now: Seconds,
    ) -> NewRecord<'a> {
        let expiry = match expiry {
            Expiry::At(second) => Some(second),
            Expiry::Never | Expiry::Immediately => None,
        };
        NewRecord {
            key,
            value_len,
            client_flags: head.client_flags(&self.arena),
            expiry,
            cas: None,
            marks: 0,
            last_access: now,
        }
    }

    /// Copies a segment's records as they are now.
    pub(crate) fn closing(&self, id: u32) -> Closing {
        let segment = self.segments.get(id);
        let used = segment.used.load(Ordering::Acquire) as usize;
        let mut records = Vec::with_capacity(used);
        self.arena.append_to(self.base_of(id), used, &mut records);
        Closing {
            sequence: segment.sequence.load(Ordering::SeqCst),
            class: segment.kind().as_u8(),
            value_used: segment.value_used.load(Ordering::Acquire),
            records,
        }
    }
}
