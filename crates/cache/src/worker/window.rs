//! Chunks of a value on a block file that were read, or are being read, ahead of its sending.

use std::collections::VecDeque;
use std::sync::Arc;

use entresol_media::{IoBuffer, SendPart};

use super::file_io::{FileIo, Flight};
use super::pin::Pin;
use crate::pieces::Chunk;

/// Chunks that are in memory or being read at most: one is sent while others come.
const CHUNKS_MAX: usize = 4;

/// Window of a value, which moves from its beginning to its end.
#[derive(Default)]
pub(super) struct Window {
    loads: VecDeque<Load>,
    /// Offset behind the last chunk that was asked for.
    next: usize,
}

struct Load {
    chunk: Chunk,
    flight: Arc<Flight>,
    /// Bytes that have come and are those that were stored.
    buffer: Option<IoBuffer>,
}

impl Window {
    /// Returns the bytes of memory that it takes.
    pub(super) fn bytes(&self) -> usize {
        self.loads.iter().map(|load| load.chunk.bytes).sum()
    }

    /// Lets go the chunks before a byte.
    pub(super) fn let_go(&mut self, sent: usize) {
        while self.loads.front().is_some_and(|load| load.chunk.end() <= sent) {
            self.loads.pop_front();
        }
    }

    /// Returns the next chunk to ask for. The rest of a value, which is its end, is in memory.
    fn next_chunk(&self, pin: &Pin) -> Option<Chunk> {
        pin.chunk_of(self.next).filter(|chunk| chunk.piece.is_some())
    }

    /// Returns the bytes of the chunk without which nothing can be sent; 0 if one is here or on its
    /// way.
    pub(super) fn wanted_bytes(&self, pin: &Pin) -> usize {
        if !self.loads.is_empty() {
            return 0;
        }
        self.next_chunk(pin).map_or(0, |chunk| chunk.bytes)
    }

    /// Asks for that chunk, and for so many bytes of further ones; returns the bytes of all.
    pub(super) fn ask(&mut self, pin: &Pin, spare: usize, out: &mut Vec<FileIo>) -> usize {
        let (mut asked, most) = (0, self.wanted_bytes(pin).saturating_add(spare));
        while self.loads.len() < CHUNKS_MAX {
            let next = self.next_chunk(pin).filter(|chunk| asked + chunk.bytes <= most);
            let Some(chunk) = next else { break };
            let Some((io, flight)) = pin.read(&chunk) else { break };
            self.next = chunk.end();
            asked += chunk.bytes;
            self.loads.push_back(Load { chunk, flight, buffer: None });
            out.push(io);
        }
        asked
    }

    /// Checks the chunk that begins at a byte, if it has come. Returns `None` if it has not, and
    /// false if it is damaged.
    pub(super) fn check(&mut self, pin: &Pin, at: usize) -> Option<bool> {
        let load = self.loads.iter_mut().find(|load| load.chunk.at as usize == at)?;
        if load.buffer.is_none() && load.flight.is_over() {
            let Some(buffer) = load.flight.take() else { return Some(false) };
            let bytes = buffer.get(..load.chunk.bytes).unwrap_or_default();
            if !pin.is_intact(&load.chunk, bytes) {
                return Some(false);
            }
            load.buffer = Some(buffer);
        }
        load.buffer.is_some().then_some(true)
    }

    /// Calls `take` with each part of a range that is here, in order.
    fn each_part<'a>(&'a self, from: usize, len: usize, mut take: impl FnMut(&'a [u8])) {
        for load in &self.loads {
            let at = load.chunk.at as usize;
            let (start, end) = (from.max(at), (from + len).min(load.chunk.end()));
            if let Some(buffer) = load.buffer.as_ref().filter(|_| start < end) {
                take(buffer.get(start - at..end - at).unwrap_or_default());
            }
        }
    }

    /// Appends the parts of a range, which must have been checked.
    pub(super) fn append_parts<'a>(&'a self, from: usize, len: usize, out: &mut Vec<SendPart<'a>>) {
        self.each_part(from, len, |bytes| out.push(SendPart::bytes(bytes)));
    }

    /// Appends a range, which must have been checked, to `out`.
    pub(super) fn append_range(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        self.each_part(from, len, |bytes| out.extend_from_slice(bytes));
    }
}
