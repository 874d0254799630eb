//! Pins: values in pieces that are read without a lock, while their items may go.

use std::sync::Arc;

use entresol_base::checksum::crc32c;
use entresol_base::{mutation_site, thread};
use entresol_media::SendPart;

use crate::pieces::List;
use crate::record::Head;
use crate::shared::Shared;

/// A value in pieces that is not freed before this is dropped, whatever becomes of its item.
pub(super) struct Pin {
    shared: Arc<Shared>,
    list: List,
    rest: Vec<u8>,
}

/// A part of a value that is to be written.
#[derive(Clone, Copy)]
pub(super) enum Part<'a> {
    Bytes(&'a [u8]),
    /// The value of another item.
    Pinned(&'a Pin),
}

impl Pin {
    /// Pins an item's value, under the lock of its buckets; `None` if its record is damaged. The
    /// value's rest, which is less than half of a segment, is copied.
    pub(super) fn take(shared: &Arc<Shared>, location: u64, head: &Head) -> Option<Pin> {
        let records = shared.records();
        let list = records.list_of(head)?;
        let mut rest = Vec::new();
        if !records.append_rest(location, head, &list, &mut rest) {
            return None;
        }
        records.segments.get(records.leader_of(head)).pin();
        Some(Pin { shared: Arc::clone(shared), list, rest })
    }

    /// Pins a value that no item has, and whose pieces are linked: it is freed with the pin.
    pub(super) fn of_no_item(shared: Arc<Shared>, list: List, rest: Vec<u8>) -> Pin {
        let pin = Pin { shared, list, rest };
        pin.shared.records().segments.get(pin.leader()).mark_dead();
        pin
    }

    /// Returns the first piece of the value.
    pub(super) fn leader(&self) -> u32 {
        self.list.segments[0]
    }

    /// Returns the bytes of the value.
    pub(super) fn len(&self) -> usize {
        self.list.value_len as usize
    }

    /// Returns the bytes of the value's rest.
    pub(super) fn rest_len(&self) -> usize {
        self.rest.len()
    }

    /// Returns true if its item has gone or has another value.
    pub(super) fn is_orphan(&self) -> bool {
        self.shared.records().segments.get(self.leader()).is_dead()
    }

    /// Checks the chunk of a value in DRAM that begins at a byte. Returns the byte behind it, or
    /// `None` if it is damaged.
    pub(super) fn check_chunk(&self, at: usize) -> Option<usize> {
        let records = self.shared.records();
        let chunk = records.cut.chunk_from(self.list.value_len, at as u64)?;
        let expected = self.list.checksums.get(records.cut.chunk_number(at as u64))?;
        let checksum = match chunk.piece.and_then(|piece| self.list.segments.get(piece)) {
            Some(&id) => records.checksum_piece(id, chunk.offset, chunk.bytes, 0),
            None => {
                let start = at - (self.len() - self.rest.len());
                crc32c(self.rest.get(start..start + chunk.bytes)?)
            }
        };
        (checksum == *expected).then_some(at + chunk.bytes)
    }

    /// Appends the parts that hold a range of a value in DRAM.
    pub(super) fn append_parts<'a>(
        &'a self,
        mut at: u64,
        mut len: usize,
        parts: &mut Vec<SendPart<'a>>,
    ) {
        let records = self.shared.records();
        let rest_at = self.list.value_len - self.rest.len() as u64;
        while len > 0 && at < rest_at {
            let inside = at % records.segment_bytes;
            let bytes = (len as u64).min(records.segment_bytes - inside).min(rest_at - at);
            let id = self.list.segments[(at / records.segment_bytes) as usize];
            let (offset, bytes) = (records.base_of(id) + inside, bytes as usize);
            parts.push(records.arena.send_part(offset, bytes));
            at += bytes as u64;
            len -= bytes;
        }
        let start = at.saturating_sub(rest_at) as usize;
        if let Some(rest) = self.rest.get(start..start + len).filter(|rest| !rest.is_empty()) {
            parts.push(SendPart::bytes(rest));
        }
    }

    /// Appends the value to `out`; returns false if it is damaged.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) -> bool {
        out.reserve(self.len());
        self.each_chunk(out, |_| ())
    }

    /// Returns true if the value is not damaged.
    pub(super) fn is_intact(&self) -> bool {
        self.each_chunk(&mut Vec::new(), Vec::clear)
    }

    /// Appends chunk by chunk to `out`, calls `next` behind each, and checks them.
    fn each_chunk(&self, out: &mut Vec<u8>, next: impl Fn(&mut Vec<u8>)) -> bool {
        let chunks = self.shared.records().cut.chunks(self.list.value_len);
        chunks.zip(&self.list.checksums).all(|(chunk, checksum)| {
            thread::step();
            let start = out.len();
            let is_inside = self.append_range(chunk.at, chunk.bytes, out);
            let is_intact = crc32c(&out[start..]) == *checksum
                || mutation_site!("the pieces of a value are checked");
            next(out);
            is_inside && is_intact
        })
    }

    /// Appends a part of the value, unchecked.
    pub(super) fn append_range(&self, mut at: u64, mut len: usize, out: &mut Vec<u8>) -> bool {
        let records = self.shared.records();
        let rest_at = self.list.value_len - self.rest.len() as u64;
        while len > 0 && at < rest_at {
            let offset = at % records.segment_bytes;
            let bytes = (len as u64).min(records.segment_bytes - offset).min(rest_at - at);
            let piece = (at / records.segment_bytes) as usize;
            let Some(id) = self.list.segments.get(piece) else { return false };
            if !records.append_piece(*id, offset, bytes as usize, out) {
                return false;
            }
            at += bytes;
            len -= bytes as usize;
        }
        let start = at.saturating_sub(rest_at) as usize;
        let Some(rest) = self.rest.get(start..start + len) else { return len == 0 };
        out.extend_from_slice(rest);
        true
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.shared.space().unpin(self.leader());
    }
}

impl Part<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Part::Bytes(bytes) => bytes.len(),
            Part::Pinned(pin) => pin.len(),
        }
    }
}

/// Returns bytes of a value that has two parts, in one or two slices. A part that does not lie in
/// one place is copied into `buffer`.
pub(super) fn bytes_of<'a>(
    parts: &'a [Part<'_>; 2],
    at: u64,
    len: usize,
    buffer: &'a mut Vec<u8>,
) -> [&'a [u8]; 2] {
    let first = parts[0].len();
    let (start, end) = (at as usize, at as usize + len);
    let in_first = start.min(first)..end.min(first);
    let in_second = start.max(first) - first..end.max(first) - first;
    if let [Part::Bytes(one), Part::Bytes(two)] = parts {
        return [&one[in_first], &two[in_second]];
    }
    buffer.clear();
    for (part, range) in parts.iter().zip([in_first, in_second]) {
        match part {
            Part::Bytes(bytes) => buffer.extend_from_slice(&bytes[range]),
            Part::Pinned(pin) => {
                // The bytes were checked before, and nothing changes those of a pinned value.
                pin.append_range(range.start as u64, range.len(), buffer);
            }
        }
    }
    [buffer, b""]
}
