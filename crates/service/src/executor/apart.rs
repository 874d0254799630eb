//! Values that are not among the bytes of the replies: they are sent from memory of their own.

use std::ops::Range;

use entresol_cache::{Damaged, FileIo, Pinned};
use entresol_media::{IoBuffer, SendPart};

/// A value that is sent from memory of its own.
#[derive(Debug)]
pub(super) enum Apart {
    /// From its place in the cache, or from what is read of it part by part.
    Pinned(Pinned),
    /// From the buffer that a hole's read fills.
    Read(ReadValue),
}

/// Value of a hole, in the buffer that it was read into.
#[derive(Debug)]
pub(super) struct ReadValue {
    len: usize,
    /// Buffer, once it was read, and the range of the value in it.
    buffer: Option<(IoBuffer, Range<usize>)>,
}

impl ReadValue {
    /// Returns a value of so many bytes that is still to be read.
    pub(super) fn to_come(len: usize) -> ReadValue {
        ReadValue { len, buffer: None }
    }

    /// Takes what was read; returns false if it is no such value.
    fn fill(&mut self, buffer: IoBuffer, range: Range<usize>) -> bool {
        let is_whole = buffer.get(range.clone()).is_some_and(|value| value.len() == self.len);
        if is_whole {
            self.buffer = Some((buffer, range));
        }
        is_whole
    }

    fn range(&self, from: usize, len: usize) -> &[u8] {
        let value = self.buffer.as_ref().and_then(|(buffer, range)| buffer.get(range.clone()));
        debug_assert!(value.is_some(), "a value is sent that was not read");
        value.and_then(|value| value.get(from..from + len)).unwrap_or_default()
    }
}

impl Apart {
    pub(super) fn len(&self) -> usize {
        match self {
            Apart::Pinned(value) => value.len(),
            Apart::Read(bytes) => bytes.len,
        }
    }

    /// Returns the value in the cache; none if it was read into a buffer.
    pub(super) fn pinned(&self) -> Option<&Pinned> {
        match self {
            Apart::Pinned(value) => Some(value),
            Apart::Read(_) => None,
        }
    }

    /// Returns the value in the cache, as `pinned` does.
    pub(super) fn pinned_mut(&mut self) -> Option<&mut Pinned> {
        match self {
            Apart::Pinned(value) => Some(value),
            Apart::Read(_) => None,
        }
    }

    /// Takes what the read of a hole has brought; returns false if it is not the value.
    pub(super) fn fill(&mut self, buffer: IoBuffer, range: Range<usize>) -> bool {
        match self {
            Apart::Pinned(_) => false,
            Apart::Read(bytes) => bytes.fill(buffer, range),
        }
    }

    /// Returns the bytes of memory that it takes beside its place in the cache, also if the read
    /// that takes them has not begun.
    pub(super) fn buffered_bytes(&self) -> usize {
        match self {
            Apart::Pinned(value) => value.buffered_bytes(),
            Apart::Read(bytes) => {
                bytes.buffer.as_ref().map_or(bytes.len, |(buffer, _)| buffer.capacity())
            }
        }
    }

    pub(super) fn let_go(&mut self, sent: usize) {
        if let Apart::Pinned(value) = self {
            value.let_go(sent);
        }
    }

    /// Returns the bytes of the read without which nothing more of it can be sent.
    pub(super) fn wanted_bytes(&self) -> usize {
        self.pinned().map_or(0, Pinned::wanted_bytes)
    }

    pub(super) fn read_ahead(&mut self, spare: usize, out: &mut Vec<FileIo>) -> usize {
        self.pinned_mut().map_or(0, |value| value.read_ahead(spare, out))
    }

    /// Checks the value as far as `end`, and returns how far it was. What a hole's read has brought
    /// was checked when it came.
    pub(super) fn check_to(&mut self, end: usize) -> Result<usize, Damaged> {
        match self {
            Apart::Pinned(value) => value.check_to(end),
            Apart::Read(bytes) => Ok(bytes.len),
        }
    }

    pub(super) fn append_parts<'a>(
        &'a self,
        from: usize,
        len: usize,
        parts: &mut Vec<SendPart<'a>>,
    ) {
        match self {
            Apart::Pinned(value) => value.append_parts(from, len, parts),
            Apart::Read(bytes) => parts.push(SendPart::bytes(bytes.range(from, len))),
        }
    }

    pub(super) fn append_range(&self, from: usize, len: usize, out: &mut Vec<u8>) {
        match self {
            Apart::Pinned(value) => value.append_range(from, len, out),
            Apart::Read(bytes) => out.extend_from_slice(bytes.range(from, len)),
        }
    }
}
