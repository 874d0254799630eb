//! Reads and writes of a block file that large values need. A caller with an event loop carries
//! them out beside its other work, and one without waits for them.

use std::sync::Arc;

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_media::{Access, BlockFile, IoBuffer};

use crate::pieces::{CHUNK_BYTES, Chunk};
use crate::shared::Shared;
use crate::values::Values;
use crate::values::file::FileValues;

/// A read or a write of a chunk of a large value, which looks for the result itself.
pub struct FileIo {
    access: Access,
    offset: u64,
    buffer: Option<IoBuffer>,
    flight: Arc<Flight>,
    /// Segments that are not used again before a write into them is over.
    _hold: Option<Arc<Hold>>,
}

/// Result of a read or a write, which may be still to come.
#[derive(Debug, Default)]
pub(super) struct Flight(Mutex<Landing>);

#[derive(Debug, Default)]
enum Landing {
    #[default]
    UnderWay,
    Failed,
    Done(IoBuffer),
}

/// Segments that are freed once no write into them is under way.
pub(super) struct Hold {
    shared: Arc<Shared>,
    segments: Mutex<Vec<u32>>,
}

impl FileIo {
    pub(super) fn new(
        access: Access,
        offset: u64,
        buffer: IoBuffer,
        hold: Option<Arc<Hold>>,
    ) -> (FileIo, Arc<Flight>) {
        let flight = Arc::<Flight>::default();
        let buffer = Some(buffer);
        (FileIo { access, offset, buffer, flight: Arc::clone(&flight), _hold: hold }, flight)
    }

    /// Returns the read of a chunk that lies in a segment.
    pub(super) fn read(
        shared: &Shared,
        segment: u32,
        chunk: &Chunk,
    ) -> Option<(FileIo, Arc<Flight>)> {
        let records = shared.records();
        let file = file_of(shared)?;
        let offset = records.piece_at(segment) + chunk.offset;
        let len = chunk.bytes.next_multiple_of(records.values.read_alignment() as usize);
        Some(FileIo::new(Access::Read, offset, file.chunk_buffer(len), None))
    }

    /// Returns the kind of access.
    #[must_use]
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns the offset in the block file.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.offset
    }

    /// Takes the buffer that is read into or written.
    #[must_use]
    pub fn take_buffer(&mut self) -> Option<IoBuffer> {
        self.buffer.take()
    }

    /// Hands in the result: the buffer and how many bytes were read or written.
    pub fn finish(self, buffer: IoBuffer, result: &std::io::Result<usize>) {
        let is_whole = result.as_ref().is_ok_and(|bytes| *bytes >= buffer.len());
        *self.flight.0.lock() = if is_whole { Landing::Done(buffer) } else { Landing::Failed };
    }

    /// Carries it out, and waits until it is over.
    pub fn carry_out(mut self, file: &dyn BlockFile) {
        thread::step();
        let Some(mut buffer) = self.buffer.take() else { return };
        let result = match self.access {
            Access::Write => file.write_at(self.offset, &buffer).map(|()| buffer.len()),
            _ => file.read_at(self.offset, &mut buffer),
        };
        self.finish(buffer, &result);
    }
}

impl Drop for FileIo {
    fn drop(&mut self) {
        let mut landing = self.flight.0.lock();
        if matches!(*landing, Landing::UnderWay) {
            *landing = Landing::Failed;
        }
    }
}

impl std::fmt::Debug for FileIo {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} at {}", self.access, self.offset)
    }
}

impl Flight {
    /// Returns true once it is over, well or not.
    pub(super) fn is_over(&self) -> bool {
        !matches!(*self.0.lock(), Landing::UnderWay)
    }

    /// Returns the buffer of one that is over; `None` if it has failed.
    pub(super) fn take(&self) -> Option<IoBuffer> {
        match std::mem::replace(&mut *self.0.lock(), Landing::Failed) {
            Landing::Done(buffer) => Some(buffer),
            Landing::UnderWay | Landing::Failed => None,
        }
    }
}

impl Hold {
    pub(super) fn new(shared: &Arc<Shared>) -> Arc<Hold> {
        Arc::new(Hold { shared: Arc::clone(shared), segments: Mutex::default() })
    }

    /// Leaves segments to be freed with the last write that is under way.
    pub(super) fn leave(&self, segments: Vec<u32>) {
        *self.segments.lock() = segments;
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        let segments = std::mem::take(&mut *self.segments.lock());
        self.shared.free_arriving(&segments);
    }
}

/// Returns the block file that values lie on, if they do.
pub(super) fn file_of(shared: &Shared) -> Option<&FileValues> {
    match &shared.records().values {
        Values::File(file) => Some(file),
        Values::Inline | Values::Pmem(_) => None,
    }
}

/// Returns the bytes of a chunk that lie before an offset in its piece.
pub(super) fn filled_of(chunk: &Chunk) -> usize {
    (chunk.offset % CHUNK_BYTES) as usize
}
