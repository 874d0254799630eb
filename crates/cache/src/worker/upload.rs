//! Values that are written as they arrive: into their pieces, without a buffer that grows with
//! them.
//!
//! An unfinished value has the segments that its bytes so far take, out of the quota like any
//! other. It is no item: it becomes one when it is stored, and its segments are freed if it is
//! dropped. All unfinished values together take little more than half of the quota.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_base::checksum::crc32c_append;
use entresol_base::{Seconds, thread};
use entresol_media::Access;

use super::Worker;
use super::file_io::{FileIo, file_of};
use super::outgoing::Outgoing;
use crate::pieces::{Chunk, List};
use crate::shared::Shared;
use crate::worker::pin::Pin;

/// Part of the quota that unfinished values take at most, as a numerator and a denominator: one
/// value may take half of it.
const ARRIVING_SHARE: (u64, u64) = (5, 8);

/// A large value that is still arriving.
pub struct Upload {
    shared: Arc<Shared>,
    /// List of the value with the segments that it has so far, and the checksums of whole chunks.
    list: List,
    /// Bytes that will lie with the record.
    rest: Vec<u8>,
    written: u64,
    /// Checksum of the bytes of the chunk that is not whole yet.
    checksum: u32,
    /// Hash of the key of an item that is not evicted for it, and the segments that are kept.
    keep: Option<(u64, u32)>,
    /// Way of its chunks to a block file; none on other media.
    outgoing: Option<Box<Outgoing>>,
}

impl Upload {
    /// Returns the bytes of the whole value.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "a large value is never empty")]
    pub fn len(&self) -> usize {
        self.list.value_len as usize
    }

    /// Returns the bytes that have arrived.
    #[must_use]
    pub fn written(&self) -> usize {
        self.written as usize
    }

    /// Returns the bytes of memory that it takes beside its pieces.
    #[must_use]
    pub fn buffered_bytes(&self) -> usize {
        self.rest.capacity() + self.outgoing.as_ref().map_or(0, |it| it.buffered_bytes())
    }

    /// Returns the bytes that are still to come.
    #[must_use]
    pub fn missing(&self) -> usize {
        (self.list.value_len - self.written) as usize
    }

    /// Begins a value of so many bytes; `None` if such a value does not lie in pieces.
    pub(super) fn begin(
        shared: &Arc<Shared>,
        value_len: usize,
        keep: Option<(u64, u32)>,
    ) -> Option<Upload> {
        let (records, value_len) = (shared.records(), value_len as u64);
        if value_len <= records.whole_bytes_max || value_len > records.value_bytes_max {
            return None;
        }
        let list = List { value_len, segments: Vec::new(), checksums: Vec::new() };
        let (shared, rest, outgoing) =
            (Arc::clone(shared), Vec::new(), Outgoing::new(shared).map(Box::new));
        Some(Upload { shared, list, rest, written: 0, checksum: 0, keep, outgoing })
    }

    /// Moves the writes that its chunks need to `out`. Until some of them are over it may take no
    /// more bytes, and it is stored once all are.
    pub fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        if let Some(outgoing) = &mut self.outgoing {
            outgoing.take_requests(out);
        }
    }

    /// Carries out those writes, and waits for them.
    pub fn carry_out(&mut self) {
        let mut requests = Vec::new();
        self.take_requests(&mut requests);
        self.carry_out_all(requests);
    }

    pub(super) fn carry_out_all(&self, requests: Vec<FileIo>) {
        if let Some(file) = file_of(&self.shared) {
            requests.into_iter().for_each(|it| it.carry_out(&*file.file));
        }
    }

    /// Returns true if it takes no more bytes until a write is over.
    #[must_use]
    pub fn is_full(&mut self) -> bool {
        self.outgoing.as_mut().is_some_and(|it| it.is_full())
    }

    /// Returns true if no write is under way.
    #[must_use]
    pub fn is_settled(&mut self) -> bool {
        self.outgoing.as_mut().is_none_or(|it| it.is_settled())
    }

    /// Returns true if it has to wait for a write: to take more bytes, or to be stored.
    #[must_use]
    pub fn waits_for_file(&mut self) -> bool {
        if self.missing() > 0 { self.is_full() } else { !self.is_settled() }
    }

    /// Returns true if a write has failed: it cannot be stored.
    #[must_use]
    pub fn has_failed(&mut self) -> bool {
        self.outgoing.as_mut().is_some_and(|it| it.has_failed())
    }

    /// Writes the next bytes; returns how many. They are fewer if the quota has no room for more,
    /// or other values that arrive have all of what such values may take, or too many of its writes
    /// are under way.
    #[must_use]
    pub fn write(&mut self, worker: &mut Worker, bytes: &[u8], now: Seconds) -> usize {
        let mut left = bytes.get(..self.missing()).unwrap_or(bytes);
        let before = self.written;
        while let Some(chunk) = self.next_chunk().filter(|_| !left.is_empty()) {
            thread::step();
            let (now_written, after) = left.split_at(left.len().min(chunk.bytes));
            match chunk.piece {
                Some(_) if self.is_full() => break,
                Some(piece) if !self.has_piece(worker, piece, now) => break,
                Some(piece) => match &mut self.outgoing {
                    Some(outgoing) => outgoing.copy(&self.shared, &chunk, now_written),
                    None => {
                        let (id, records) = (self.list.segments[piece], self.shared.records());
                        records.write_piece(id, chunk.offset, now_written, &mut worker.account);
                    }
                },
                None => self.rest.extend_from_slice(now_written),
            }
            self.checksum = crc32c_append(self.checksum, now_written);
            self.count_written(worker, &chunk, now_written.len());
            left = after;
        }
        let written = (self.written - before) as usize;
        worker.moved_bytes += written;
        written
    }

    /// Receives the next bytes, at most so many, from a socket into their place. `None` if they
    /// have none that a socket can write to: then they are to be written.
    pub fn receive(
        &mut self,
        worker: &mut Worker,
        socket: BorrowedFd<'_>,
        most: usize,
        now: Seconds,
    ) -> Option<io::Result<usize>> {
        let shared = Arc::clone(&self.shared);
        let records = shared.records();
        let chunk = self.next_chunk()?;
        let piece = chunk.piece?;
        let is_mapped = records.values.is_elsewhere() && self.outgoing.is_none();
        if is_mapped || self.is_full() || !self.has_piece(worker, piece, now) {
            return None;
        }
        if let Some(outgoing) = &mut self.outgoing {
            let add = |bytes: &[u8]| self.checksum = crc32c_append(self.checksum, bytes);
            let received = outgoing.receive(&shared, &chunk, most, socket, add);
            if let Ok(bytes) = received {
                self.count_written(worker, &chunk, bytes);
            }
            return Some(received);
        }
        let (id, most) = (self.list.segments[piece], chunk.bytes.min(most));
        let received = records.receive_piece(id, chunk.offset, most, socket, &mut worker.account);
        if let Ok(bytes) = received {
            self.checksum = records.checksum_piece(id, chunk.offset, bytes, self.checksum);
            self.count_written(worker, &chunk, bytes);
        }
        Some(received)
    }

    fn next_chunk(&self) -> Option<Chunk> {
        self.shared.records().cut.chunk_from(self.list.value_len, self.written)
    }

    fn count_written(&mut self, worker: &mut Worker, chunk: &Chunk, bytes: usize) {
        self.written += bytes as u64;
        if bytes < chunk.bytes {
            return;
        }
        self.list.checksums.push(std::mem::take(&mut self.checksum));
        let piece = chunk.piece.and_then(|piece| self.list.segments.get(piece));
        if let (Some(id), Some(outgoing)) = (piece, &mut self.outgoing) {
            let written = outgoing.send(&self.shared, *id, chunk);
            worker.charge_file(Access::Write, written);
        }
    }

    /// Returns true if its next byte has a place, or gets one.
    pub(super) fn has_place(&mut self, worker: &Worker, now: Seconds) -> bool {
        let piece = self.next_chunk().and_then(|chunk| chunk.piece);
        piece.is_none_or(|piece| self.has_piece(worker, piece, now))
    }

    /// Returns true if the value has this piece, which is its last or the next one.
    fn has_piece(&mut self, worker: &Worker, piece: usize, now: Seconds) -> bool {
        piece < self.list.segments.len() || self.take_piece(worker, now)
    }

    /// Takes a segment, if unfinished values may have one more and the quota has room for all that
    /// are missing: a value that has to wait for those evicts nothing meanwhile.
    #[cold]
    fn take_piece(&mut self, worker: &Worker, now: Seconds) -> bool {
        let shared = Arc::clone(&self.shared);
        let space = shared.space();
        let (numerator, denominator) = ARRIVING_SHARE;
        let most = space.budget.segments() * numerator / denominator;
        let before = shared.arriving_segments.fetch_add(1, Ordering::Relaxed);
        let whole = shared.records().cut.parts(self.list.value_len).0;
        let (items, taken) = (&shared.items, &mut self.list.segments);
        let wanted = taken.len() + 1;
        let (keep, kept) = self.keep.unzip();
        let is_taken = before < most
            && space.can_hold(whole - taken.len() as u64, kept.unwrap_or(0).into())
            && shared.writers.take_room(items, worker.shard, wanted, keep, now, taken);
        if !is_taken {
            shared.arriving_segments.fetch_sub(1, Ordering::Relaxed);
        }
        is_taken
    }

    /// Returns the list of a value that is whole, and its rest. Its pieces are linked, and belong
    /// to the caller.
    pub(super) fn finish(mut self) -> (List, Vec<u8>) {
        debug_assert!(self.is_settled(), "{self:?} are stored while they are written");
        let segments = self.uncounted_segments();
        self.shared.space().link_pieces(&segments);
        // A restart trusts a record, so the value must be durable before it.
        self.shared.records().drain_pieces();
        let checksums = std::mem::take(&mut self.list.checksums);
        let list = List { value_len: self.list.value_len, segments, checksums };
        (list, std::mem::take(&mut self.rest))
    }

    /// Returns a value that is whole and no item, to be read.
    pub(super) fn into_pin(self) -> Pin {
        let shared = Arc::clone(&self.shared);
        let (list, rest) = self.finish();
        Pin::of_no_item(shared, list, rest)
    }

    fn uncounted_segments(&mut self) -> Vec<u32> {
        let segments = std::mem::take(&mut self.list.segments);
        self.shared.arriving_segments.fetch_sub(segments.len() as u64, Ordering::Relaxed);
        segments
    }
}

impl std::fmt::Debug for Upload {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} of {} bytes", self.written, self.list.value_len)
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let segments = std::mem::take(&mut self.list.segments);
        match &self.outgoing {
            Some(outgoing) => outgoing.leave(segments),
            None => self.shared.free_arriving(&segments),
        }
    }
}
