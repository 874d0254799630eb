//! Pins: values in pieces that are read without a lock, while their items may go.

use std::sync::Arc;

use entresol_base::checksum::crc32c;
use entresol_base::{mutation_site, thread};

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

    /// Returns the first piece of the value.
    pub(super) fn leader(&self) -> u32 {
        self.list.segments[0]
    }

    /// Returns the bytes of the value.
    pub(super) fn len(&self) -> usize {
        self.list.value_len as usize
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
    fn append_range(&self, mut at: u64, mut len: usize, out: &mut Vec<u8>) -> bool {
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
