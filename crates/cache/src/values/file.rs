//! Values on a block file: segments are filled in write buffers in DRAM, written by one thread, and
//! read back one value at a time. As in fatcache and memcached's extstore, recent values are served
//! from the buffers.
//!
//! A segment is written and read in pieces, one after the other: another tenant's read of the same
//! drive waits behind a piece, not behind a segment.
//!
//! A segment's values are in a buffer from its opening until it is written. A reader copies from
//! the buffer and then checks that it still belongs to the segment; a buffer is given back before
//! it is filled for another segment, so that a stale copy fails the check.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread::{self, JoinHandle};
use entresol_media::account::WholeBytes;
use entresol_media::block::{self, BlockFile, BlockOptions, IoBuffer, SlotPool};
use entresol_media::{Direct, RegionError};

use crate::config::plan::Plan;
use crate::error::{OpenError, ResizeError};
use crate::label::{LABEL_BYTES, Label};
use crate::segment::Segment;

/// Time that the writer sleeps at most without being woken.
const IDLE: Duration = Duration::from_millis(100);

/// Maximum bytes of one request for a part of a segment: enough for a drive's full bandwidth, and
/// half a millisecond of a SATA link.
pub(crate) const PIECE_BYTES: usize = 256 << 10;

/// The block file, its write buffers and their writer.
pub(crate) struct FileValues {
    pub(crate) file: Arc<dyn BlockFile>,
    segment_bytes: u64,
    buffers: Direct,
    /// Buffers for chunks of large values, which bypass the write buffers.
    chunks: Arc<SlotPool>,
    free: Mutex<Vec<u32>>,
    queue: Mutex<VecDeque<u32>>,
    wake: Condvar,
    writing: AtomicUsize,
    stopping: AtomicBool,
    writer: Mutex<Option<JoinHandle<()>>>,
}

impl FileValues {
    pub(crate) fn open(
        path: &Path,
        options: &BlockOptions,
        plan: &Plan,
    ) -> Result<Self, OpenError> {
        FileValues::over(block::open_block_file(path, options)?, plan)
    }

    /// Takes a file that the caller has opened.
    pub(crate) fn over(file: Arc<dyn BlockFile>, plan: &Plan) -> Result<Self, OpenError> {
        let &Plan { buffers, segment_bytes, .. } = plan;
        let chunk_bytes = plan.cut.chunk_max() as usize;
        let chunks = SlotPool::new(plan.chunk_buffers, chunk_bytes).map_err(|cause| {
            let bytes = u64::from(plan.chunk_buffers) * chunk_bytes as u64;
            RegionError::Reserve { bytes, cause }
        })?;
        Ok(FileValues {
            file,
            segment_bytes,
            buffers: Direct::anonymous(u64::from(buffers) * segment_bytes, false)?,
            chunks,
            free: Mutex::new((0..buffers).collect()),
            queue: Mutex::new(VecDeque::new()),
            wake: Condvar::new(),
            writing: AtomicUsize::new(0),
            stopping: AtomicBool::new(false),
            writer: Mutex::new(None),
        })
    }

    pub(crate) fn access(&self) -> &'static str {
        match (self.file.backend(), self.file.is_direct()) {
            (block::Backend::IoUring, true) => "io-uring, direct",
            (block::Backend::IoUring, false) => "io-uring, page cache",
            (block::Backend::ThreadPool, true) => "threads, direct",
            (block::Backend::ThreadPool, false) => "threads, page cache",
            (block::Backend::Simulated, _) => "simulated",
        }
    }

    /// Lengthens the file to hold this many bytes of segments.
    pub(crate) fn provide(&self, bytes: u64) -> Result<(), ResizeError> {
        if self.file.len() < LABEL_BYTES + bytes {
            self.file.set_len(LABEL_BYTES + bytes)?;
        }
        Ok(())
    }

    pub(crate) fn read_alignment(&self) -> u64 {
        self.file.alignment().offset
    }

    pub(crate) fn label(&self) -> Option<Label> {
        let mut block = IoBuffer::new(LABEL_BYTES as usize);
        self.file.read_at(0, &mut block).ok()?;
        block.first_chunk().map(Label::decode)
    }

    pub(crate) fn write_label(&self, label: &Label) -> std::io::Result<()> {
        let mut block = IoBuffer::new(LABEL_BYTES as usize);
        block[..Label::BYTES].copy_from_slice(&label.encode());
        self.file.write_at(0, &block)?;
        self.file.sync()
    }

    /// Reads a whole segment.
    pub(crate) fn read_segment(&self, at: u64) -> std::io::Result<Vec<u8>> {
        let mut segment = vec![0; self.segment_bytes as usize];
        let mut buffer = IoBuffer::new(self.piece().0);
        let mut at = at;
        for piece in segment.chunks_mut(PIECE_BYTES) {
            buffer.set_len(piece.len());
            if self.file.read_at(at, &mut buffer)? < piece.len() {
                return Err(std::io::ErrorKind::UnexpectedEof.into());
            }
            piece.copy_from_slice(&buffer);
            at += piece.len() as u64;
        }
        Ok(segment)
    }

    /// Returns the bytes of segments that the file has room for.
    pub(crate) fn capacity_bytes(&self) -> u64 {
        self.file.len().saturating_sub(LABEL_BYTES)
    }

    /// Returns a buffer for a chunk of a large value. It holds old bytes.
    pub(crate) fn chunk_buffer(&self, len: usize) -> IoBuffer {
        self.chunks.buffer(len).unwrap_or_else(|| IoBuffer::new(len))
    }

    /// Returns the bytes of one request for a part of a segment.
    pub(crate) fn piece(&self) -> WholeBytes {
        WholeBytes(PIECE_BYTES.min(self.segment_bytes as usize))
    }

    /// Takes a free buffer for a segment that is being opened.
    pub(crate) fn take_buffer(&self) -> Option<u32> {
        self.free.lock().pop()
    }

    /// Frees a segment's buffer, if it has one.
    pub(crate) fn give_back_buffer(&self, segment: &Segment) {
        let buffer = segment.buffer.swap(0, Ordering::AcqRel);
        if buffer != 0 {
            let mut free = self.free.lock();
            let all = self.buffers.len() / self.segment_bytes;
            debug_assert!(!free.contains(&(buffer - 1)), "buffer {} was freed twice", buffer - 1);
            assert!((free.len() as u64) < all, "a buffer was freed, but all {all} are free");
            free.push(buffer - 1);
        }
    }

    fn buffer_at(&self, buffer: u32, offset: u64) -> u64 {
        u64::from(buffer - 1) * self.segment_bytes + offset
    }

    /// Returns true if a segment's values are in a buffer.
    pub(crate) fn has_buffer(&self, segment: &Segment) -> bool {
        segment.buffer.load(Ordering::Acquire) != 0
    }

    /// Clears the buffer of a segment behind its values: other segments' were there.
    pub(crate) fn clear_behind(&self, segment: &Segment, values: u64) {
        let buffer = segment.buffer.load(Ordering::Acquire);
        self.buffers.zero(self.buffer_at(buffer, values), self.segment_bytes - values);
    }

    /// Writes bytes of a segment from its buffer to the file.
    pub(crate) fn write_out(
        &self,
        at: u64,
        segment: &Segment,
        offset: u64,
        len: usize,
    ) -> std::io::Result<()> {
        let buffer = segment.buffer.load(Ordering::Acquire);
        self.file.write_from(at, &self.buffers, self.buffer_at(buffer, offset), len)
    }

    /// Writes bytes into an open segment's buffer.
    pub(crate) fn write_buffered(&self, segment: &Segment, offset: u64, bytes: &[u8]) {
        let buffer = segment.buffer.load(Ordering::Acquire);
        debug_assert!(buffer != 0, "an open segment has a buffer");
        debug_assert!(
            offset + bytes.len() as u64 <= self.segment_bytes,
            "{} bytes at {offset} reach into another segment's buffer",
            bytes.len()
        );
        self.buffers.write(self.buffer_at(buffer, offset), bytes);
    }

    /// Returns where the byte at an offset of an open segment is buffered.
    pub(crate) fn buffered(&self, segment: &Segment, offset: u64) -> (&Direct, u64) {
        let buffer = segment.buffer.load(Ordering::Acquire);
        debug_assert!(buffer != 0, "an open segment has a buffer");
        (&self.buffers, self.buffer_at(buffer, offset))
    }

    /// Appends bytes of a segment to `out`, if they are still in a buffer.
    pub(crate) fn append_buffered(
        &self,
        segment: &Segment,
        offset: u64,
        len: usize,
        out: &mut Vec<u8>,
    ) -> bool {
        let buffer = segment.buffer.load(Ordering::Acquire);
        if buffer == 0 || offset + len as u64 > self.segment_bytes {
            return false;
        }
        let start = out.len();
        self.buffers.append_to(self.buffer_at(buffer, offset), len, out);
        fence(Ordering::Acquire);
        let kept = segment.buffer.load(Ordering::Relaxed) == buffer;
        if !kept {
            out.truncate(start);
        }
        kept
    }

    /// Returns true while segments are being written to the file.
    pub(crate) fn is_writing(&self) -> bool {
        self.writing.load(Ordering::SeqCst) > 0
    }

    /// Hands a full segment to the writer.
    pub(crate) fn write_soon(&self, id: u32) {
        self.writing.fetch_add(1, Ordering::SeqCst);
        self.queue.lock().push_back(id);
        self.wake.notify_one();
    }

    /// Counts a segment that was handed to the writer as dealt with.
    pub(crate) fn finish(&self, id: u32) {
        let before = self.writing.fetch_sub(1, Ordering::SeqCst);
        assert!(before > 0, "segment {id} was written, but none was counted as on its way");
    }

    /// Starts the writer, which runs `write` until the cache ends.
    pub(crate) fn start(
        &self,
        tenant: &str,
        write: impl FnOnce() + Send + 'static,
    ) -> Result<(), OpenError> {
        let writer = thread::try_spawn(&format!("{tenant}-writer"), write)
            .map_err(|cause| OpenError::Thread { tenant: tenant.to_owned(), cause })?;
        *self.writer.lock() = Some(writer);
        Ok(())
    }

    /// Stops the writer once it has written everything handed to it.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::SeqCst);
        self.wake.notify_all();
        let writer = self.writer.lock().take();
        if let Some(writer) = writer
            && !writer.thread().is_current()
        {
            // A writer that panicked returns nothing of use.
            let _ = writer.join();
        }
    }

    /// Waits for the next segment to write; `None` when the writer is to end.
    pub(crate) fn next(&self) -> Option<Option<u32>> {
        let mut queue = self.queue.lock();
        if queue.is_empty() && !self.stopping.load(Ordering::SeqCst) {
            self.wake.wait_timeout(&mut queue, IDLE);
        }
        match queue.pop_front() {
            None if self.stopping.load(Ordering::SeqCst) => None,
            id => Some(id),
        }
    }
}
