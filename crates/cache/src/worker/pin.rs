//! Pins: values in pieces that are read without a lock, while their items may go.

use std::sync::Arc;

use entresol_base::checksum::crc32c;
use entresol_base::{mutation_site, thread};
use entresol_media::SendPart;

use super::file_io::{FileIo, Flight, file_of};
use crate::pieces::{Chunk, List};
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

    /// Returns the number of the value's pieces.
    pub(super) fn pieces(&self) -> u32 {
        self.list.segments.len() as u32
    }

    /// Returns the bytes of the value.
    pub(super) fn len(&self) -> usize {
        self.list.value_len as usize
    }

    /// Returns true if its pieces lie on a block file, and have to be read first.
    pub(super) fn is_on_file(&self) -> bool {
        file_of(&self.shared).is_some()
    }

    /// Returns the chunk that holds a byte of the value.
    pub(super) fn chunk_of(&self, at: usize) -> Option<Chunk> {
        self.shared.records().cut.chunk_of(self.list.value_len, at as u64)
    }

    /// Returns the read that brings a chunk from a block file; `None` for one that needs none.
    pub(super) fn read(&self, chunk: &Chunk) -> Option<(FileIo, Arc<Flight>)> {
        let segment = *self.list.segments.get(chunk.piece?)?;
        FileIo::read(&self.shared, segment, chunk)
    }

    /// Returns true if these are the bytes of a chunk.
    pub(super) fn is_intact(&self, chunk: &Chunk, bytes: &[u8]) -> bool {
        let number = self.shared.records().cut.chunk_number(chunk.at);
        self.list.checksums.get(number) == Some(&crc32c(bytes))
            || mutation_site!("the pieces of a value from a file are checked")
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
            None => crc32c(self.in_rest(at as u64, chunk.bytes)),
        };
        (checksum == *expected).then_some(at + chunk.bytes)
    }

    /// Iterates over the pieces that hold a range of the value: each with its segment, the offset
    /// in it, and the bytes there.
    fn in_pieces(&self, mut at: u64, len: usize) -> impl Iterator<Item = (u32, u64, usize)> {
        let segment_bytes = self.shared.records().segment_bytes;
        let end = (at + len as u64).min(self.rest_at());
        std::iter::from_fn(move || {
            let offset = at % segment_bytes;
            let bytes = end.saturating_sub(at).min(segment_bytes - offset);
            let id = *self.list.segments.get((at / segment_bytes) as usize)?;
            at += bytes;
            (bytes > 0).then_some((id, offset, bytes as usize))
        })
    }

    /// Returns the bytes of a range of the value that lie in its rest.
    pub(super) fn in_rest(&self, at: u64, len: usize) -> &[u8] {
        let start = at.saturating_sub(self.rest_at()) as usize;
        let end = (at + len as u64).saturating_sub(self.rest_at()) as usize;
        self.rest.get(start..end).unwrap_or_default()
    }

    /// Returns the offset of the rest in the value.
    pub(super) fn rest_at(&self) -> u64 {
        self.list.value_len - self.rest.len() as u64
    }

    /// Appends the parts that hold a range of a value in DRAM.
    pub(super) fn append_parts<'a>(&'a self, at: u64, len: usize, parts: &mut Vec<SendPart<'a>>) {
        let records = self.shared.records();
        let part =
            |(id, offset, bytes)| records.arena.send_part(records.base_of(id) + offset, bytes);
        parts.extend(self.in_pieces(at, len).map(part));
        let rest = self.in_rest(at, len);
        parts.extend((!rest.is_empty()).then(|| SendPart::bytes(rest)));
    }

    /// Appends the value to `out`, and waits for a block file; returns false if it is damaged.
    pub(super) fn append_to(&self, out: &mut Vec<u8>) -> bool {
        let start = out.len();
        out.reserve(self.len());
        while out.len() - start < self.len() {
            if !self.append_chunk((out.len() - start) as u64, out) {
                return false;
            }
        }
        true
    }

    /// Appends the value from a byte on, up to the end of the chunk that holds it, and waits for a
    /// block file; returns false if the chunk is damaged.
    pub(super) fn append_chunk(&self, at: u64, out: &mut Vec<u8>) -> bool {
        let cut = self.shared.records().cut;
        let Some(chunk) = cut.chunk_of(self.list.value_len, at) else { return false };
        let Some(checksum) = self.list.checksums.get(cut.chunk_number(at)) else { return false };
        thread::step();
        let start = out.len();
        let is_inside = match self.read(&chunk) {
            Some((io, flight)) => self.append_read(&chunk, io, &flight, out),
            None => self.append_range(chunk.at, chunk.bytes, out),
        };
        let is_intact = crc32c(&out[start..]) == *checksum
            || mutation_site!("the pieces of a value are checked");
        out.drain(start..out.len().min(start + (at - chunk.at) as usize));
        is_inside && is_intact
    }

    /// Reads a chunk from a block file, waits for it, and appends it, unchecked.
    fn append_read(&self, chunk: &Chunk, io: FileIo, flight: &Flight, out: &mut Vec<u8>) -> bool {
        let Some(file) = file_of(&self.shared) else { return false };
        io.carry_out(&*file.file);
        let Some(buffer) = flight.take() else { return false };
        out.extend_from_slice(buffer.get(..chunk.bytes).unwrap_or_default());
        true
    }

    /// Appends a part of a value in memory, unchecked.
    pub(super) fn append_range(&self, at: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let records = self.shared.records();
        let mut pieces = self.in_pieces(at, len);
        let is_inside =
            pieces.all(|(id, offset, bytes)| records.append_piece(id, offset, bytes, out));
        out.extend_from_slice(self.in_rest(at, len));
        is_inside
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
