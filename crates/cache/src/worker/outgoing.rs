//! Chunks of a large value on their way to a block file: past the write buffers, each as soon as it
//! is whole. Of one value a bounded number is under way.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use entresol_media::{Access, IoBuffer, receive};

use super::file_io::{FileIo, Flight, Hold, file_of, filled_of};
use crate::pieces::{CHUNK_BYTES, Chunk};
use crate::shared::Shared;

/// Chunks of one value that are being written at most: enough for a drive's full bandwidth.
const WRITES_MAX: usize = 4;

/// Chunks of a value that arrives.
pub(super) struct Outgoing {
    hold: Arc<Hold>,
    /// Beginning of the chunk that is not whole yet.
    chunk: Option<IoBuffer>,
    /// Writes that the caller has not taken yet.
    requests: Vec<FileIo>,
    flights: Vec<Arc<Flight>>,
    has_failed: bool,
}

impl Outgoing {
    /// Makes the way to a block file; `None` if values lie elsewhere.
    pub(super) fn new(shared: &Arc<Shared>) -> Option<Outgoing> {
        file_of(shared)?;
        let hold = Hold::new(shared);
        let (requests, flights) = (Vec::new(), Vec::new());
        Some(Outgoing { hold, chunk: None, requests, flights, has_failed: false })
    }

    /// Returns the bytes of memory that chunks take.
    pub(super) fn buffered_bytes(&self) -> usize {
        let written = self.flights.len() * CHUNK_BYTES as usize;
        self.chunk.as_ref().map_or(0, IoBuffer::capacity) + written
    }

    fn look(&mut self) {
        let has_failed = &mut self.has_failed;
        self.flights.retain(|flight| {
            let is_over = flight.is_over();
            if is_over && flight.take().is_none() {
                *has_failed = true;
            }
            !is_over
        });
    }

    /// Returns true if as many chunks are under way as may be.
    pub(super) fn is_full(&mut self) -> bool {
        self.look();
        self.flights.len() >= WRITES_MAX
    }

    /// Returns true if no chunk is under way.
    pub(super) fn is_settled(&mut self) -> bool {
        self.look();
        self.flights.is_empty()
    }

    /// Returns true if a chunk could not be written.
    pub(super) fn has_failed(&mut self) -> bool {
        self.look();
        self.has_failed
    }

    /// Moves the writes that are to be carried out to `out`.
    pub(super) fn take_requests(&mut self, out: &mut Vec<FileIo>) {
        out.append(&mut self.requests);
    }

    /// Returns the room for the rest of a chunk.
    fn room(&mut self, shared: &Shared, chunk: &Chunk) -> Option<&mut [u8]> {
        let filled = filled_of(chunk);
        if self.chunk.is_none() {
            let alignment = shared.records().values.read_alignment() as usize;
            let whole = (filled + chunk.bytes).next_multiple_of(alignment);
            let mut buffer = file_of(shared)?.chunk_buffer(whole);
            // What lies behind a value's end was another one's, perhaps of another tenant.
            buffer[filled + chunk.bytes..].fill(0);
            self.chunk = Some(buffer);
        }
        self.chunk.as_mut()?.get_mut(filled..filled + chunk.bytes)
    }

    /// Copies the next bytes of a chunk.
    pub(super) fn copy(&mut self, shared: &Shared, chunk: &Chunk, bytes: &[u8]) {
        if let Some(room) = self.room(shared, chunk).and_then(|room| room.get_mut(..bytes.len())) {
            room.copy_from_slice(bytes);
        }
    }

    /// Receives the next bytes of a chunk from a socket, and passes them to `checksum`.
    pub(super) fn receive(
        &mut self,
        shared: &Shared,
        chunk: &Chunk,
        most: usize,
        socket: BorrowedFd<'_>,
        checksum: impl FnOnce(&[u8]),
    ) -> io::Result<usize> {
        let room = self.room(shared, chunk).and_then(|room| room.get_mut(..most.min(chunk.bytes)));
        let Some(room) = room else { return Err(io::ErrorKind::InvalidInput.into()) };
        let received = receive(socket, room)?;
        checksum(&room[..received]);
        Ok(received)
    }

    /// Sends a chunk on its way that is whole now; `chunk` is its end. Returns the bytes that are
    /// written.
    pub(super) fn send(&mut self, shared: &Shared, segment: u32, chunk: &Chunk) -> usize {
        let Some(buffer) = self.chunk.take() else { return 0 };
        let start = chunk.offset - filled_of(chunk) as u64;
        let (offset, len) = (shared.records().piece_at(segment) + start, buffer.len());
        let hold = Some(Arc::clone(&self.hold));
        let (request, flight) = FileIo::new(Access::Write, offset, buffer, hold);
        self.requests.push(request);
        self.flights.push(flight);
        len
    }

    /// Leaves the segments of a value that is given up.
    pub(super) fn leave(&self, segments: Vec<u32>) {
        self.hold.leave(segments);
    }
}
