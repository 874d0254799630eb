//! Block files: files on disks, read and written in aligned blocks past the page cache, one request
//! at a time or many in flight.
//!
//! A [`BlockFile`] is the file; an [`IoQueue`] lets one thread keep requests to it in flight. There
//! are two kinds of queue: one uses the kernel's io_uring, the other a pool of threads, for kernels
//! that refuse io_uring (in containers they usually do). They behave alike, and so does a simulated
//! disk; one suite of tests checks that, `crates/simulated/tests/alike`. No fallback is silent:
//! [`BlockFile::backend`] and [`BlockFile::remarks`] tell which kind is used, and why.

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Place};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::access::Access;
use crate::model::ModelName;
use crate::placement::{FileError, Placement};
pub use crate::raw::buffer::{BUFFER_ALIGNMENT, IoBuffer, SlotPool};
use crate::raw::ring::Completion;
pub use crate::raw::ring::{IoCompletion, IoRequest};
use crate::region::Direct;

mod local;
mod slow;
mod threads;
mod uring;

use local::{LocalFile, OpenFile};
use slow::SlowFile;
pub(crate) use slow::{Drive, SlowMapped};
use uring::RingQueue;

/// Maximum bytes of one request. The kernel's limit is just below 2 GiB.
pub const REQUEST_BYTES_MAX: usize = 1 << 30;
/// Maximum number of requests that one queue has in flight.
pub const QUEUE_DEPTH_MAX: usize = 4096;

/// Kind of queue that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum BackendChoice {
    /// io_uring if a trial read succeeds, else threads.
    #[default]
    Auto,
    /// io_uring, or an error.
    IoUring,
    /// Threads.
    Threads,
}

/// Error for a text that names no kind of queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not an I/O backend: write auto, io-uring or threads")]
pub struct ParseBackendError {
    text: String,
}

impl FromStr for BackendChoice {
    type Err = ParseBackendError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "auto" => Ok(BackendChoice::Auto),
            "io-uring" => Ok(BackendChoice::IoUring),
            "threads" => Ok(BackendChoice::Threads),
            _ => Err(ParseBackendError { text: text.to_owned() }),
        }
    }
}

impl fmt::Display for BackendChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            BackendChoice::Auto => "auto",
            BackendChoice::IoUring => "io-uring",
            BackendChoice::Threads => "threads",
        })
    }
}

impl Serialize for BackendChoice {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BackendChoice {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// Kind of queue that a file uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The kernel's io_uring.
    IoUring,
    /// Positioned reads and writes by a pool of threads.
    ThreadPool,
    /// A simulated disk, in virtual time.
    Simulated,
}

impl Backend {
    /// Returns its name in logs and statistics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Backend::IoUring => "io-uring",
            Backend::ThreadPool => "threads",
            Backend::Simulated => "simulated",
        }
    }
}

impl fmt::Display for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Units of which requests must be multiples.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of buffers in memory; every [`IoBuffer`] has it.
    pub memory: usize,
    /// Alignment of offsets and lengths in the file.
    pub offset: u64,
}

impl Alignment {
    /// Returns the offset and the bytes of the blocks that cover `len` bytes at `offset`.
    #[must_use]
    pub fn whole_blocks(self, offset: u64, len: usize) -> (u64, usize) {
        let begin = offset / self.offset * self.offset;
        let end = (offset + len as u64).next_multiple_of(self.offset);
        (begin, (end - begin) as usize)
    }
}

/// Options for opening a block file.
#[derive(Debug, Clone, Default)]
pub struct BlockOptions {
    /// Creates the file with this many bytes, rounded up to 4 KiB and all of them allocated, if it
    /// does not exist or is empty. Without this it must exist.
    pub create: Option<u64>,
    /// Lengthens a file that is shorter than `create` instead of refusing it. No file is ever
    /// shortened.
    pub grow: bool,
    /// Leaves a new file to its first sync, and its name to the directory's: for files that count
    /// only once they are complete. Otherwise it is durable, with its length, once it is open.
    pub unsynced: bool,
    /// First eight bytes of the file. A new file gets them; a file that begins otherwise is refused
    /// and left alone. A block device may also begin with 4 KiB of zeroes.
    pub magic: Option<[u8; 8]>,
    /// Reads and writes through the page cache, which keeps recently written and often read data in
    /// memory that the kernel can reclaim. Otherwise they go past it if the file system allows
    /// that. Nothing is read ahead.
    pub cached: bool,
    /// Opens an existing file for reads only: it need not be writable, and no space is allocated
    /// for it. Writes fail.
    pub read_only: bool,
    /// Kind of queue to use.
    pub backend: BackendChoice,
    /// Drive model to which the file is slowed, in real time; slowed files of one folder share a
    /// drive. A simulated disk has a model of its own.
    pub model: Option<ModelName>,
}

/// A file that is read and written in blocks. Offsets and lengths are multiples of
/// [`BlockFile::alignment`]; nothing is written beyond the end.
pub trait BlockFile: Send + Sync + fmt::Debug {
    /// Fills the buffer from `offset` and returns how many bytes were read: fewer than asked for
    /// only at the end of the file. Blocks the thread.
    ///
    /// # Errors
    /// If the request is not aligned, or the disk fails.
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize>;

    /// Appends `len` bytes at `offset` to `out`, neither of which needs to be aligned, and returns
    /// how many were read: fewer only at the end of the file. Blocks the thread.
    ///
    /// # Errors
    /// If the disk fails; then nothing is appended.
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        read_out_of_blocks(self, offset, len, out)
    }

    /// Appends `len` bytes at `offset` to `out` if that needs no wait for the disk and the file has
    /// all of them, and returns true then. Otherwise, if the file is read through the page cache,
    /// the disk begins to read, so that a later [`read_out`](BlockFile::read_out) waits less, and
    /// several reads can be under way at once. A failure is reported by `read_out`, not by this.
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let _ = (offset, len, out);
        false
    }

    /// Writes all of the buffer at `offset`. Blocks the thread. The bytes survive the death of the
    /// process, and after [`BlockFile::sync_at`] that of the machine.
    ///
    /// # Errors
    /// If the request is not aligned or reaches beyond the end, or the disk fails.
    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()>;

    /// Writes the `len` bytes at `from` of a region at `offset`, as [`BlockFile::write_at`] writes
    /// a buffer; a local file needs no copy of them.
    ///
    /// # Errors
    /// Those of [`BlockFile::write_at`].
    fn write_from(&self, offset: u64, region: &Direct, from: u64, len: usize) -> io::Result<()> {
        write_copied(self, offset, region, from, len)
    }

    /// Implements `<dyn BlockFile>::sync`.
    ///
    /// # Errors
    /// If the disk fails.
    fn sync_at(&self, place: Place) -> io::Result<()>;

    /// Returns the file's bytes.
    fn len(&self) -> u64;

    /// Returns true if the file has no bytes, which never happens.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the file's length; added bytes are allocated and read as zero.
    ///
    /// # Errors
    /// If there is no room, or the file is a device.
    fn set_len(&self, bytes: u64) -> Result<(), FileError>;

    /// Returns the space of these bytes to the file system; they read as zero afterwards. On a file
    /// system that cannot do so zeroes are written. Allocate them by [`BlockFile::allocate`] before
    /// writing them again.
    ///
    /// # Errors
    /// If the request is not aligned, or the disk fails.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Allocates the space of discarded bytes, so that writes to them cannot fail for lack of
    /// space.
    ///
    /// # Errors
    /// If there is no room.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError>;

    /// Returns the units of which offsets, lengths and buffers must be multiples.
    fn alignment(&self) -> Alignment;

    /// Returns true if requests go past the page cache.
    fn is_direct(&self) -> bool;

    /// Returns the kind of queue that the file uses.
    fn backend(&self) -> Backend;

    /// Returns remarks for the operator's log: every respect in which the file is served by less
    /// than the best means, and why.
    fn remarks(&self) -> &[String];

    /// Returns the file's path.
    fn path(&self) -> &Path;

    /// Returns a buffer of `len` bytes for requests to this file. A queue's own buffers may be
    /// faster.
    fn buffer(&self, len: usize) -> IoBuffer {
        IoBuffer::new(len)
    }

    /// Makes a queue with which one thread can have `depth` requests in flight.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>>;

    /// Makes a queue that polls the disk for completions instead of being interrupted: waiting
    /// burns the processor, and its descriptor never becomes readable. For measuring.
    ///
    /// # Errors
    /// If requests do not go through io_uring past the page cache, or the kernel refuses.
    fn polled_queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        let _ = depth;
        Err(io::Error::new(io::ErrorKind::Unsupported, "only disks behind io_uring are polled"))
    }
}

// Behind a vtable `#[track_caller]` yields the trait's own line; hence this beside the trait.
impl dyn BlockFile {
    /// Makes all completed writes and the file's length durable. Blocks the thread. Writes that a
    /// queue has in flight are not covered.
    ///
    /// # Errors
    /// If the disk fails. Then no write since the last success can be trusted, whatever a later
    /// sync returns.
    #[track_caller]
    pub fn sync(&self) -> io::Result<()> {
        self.sync_at(Location::caller())
    }
}

/// One thread's requests to a file. Dropping it carries out and waits for everything that was
/// submitted, so that no write is lost and no buffer is freed while it is in use.
pub trait IoQueue: Send {
    /// Accepts a request, which starts at the next [`IoQueue::kick`] or wait. A request that is not
    /// aligned, or writes beyond the end, is accepted and completes with an error.
    ///
    /// # Errors
    /// Returns the request itself if as many are in flight as the queue is deep.
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest>;

    /// Starts all submitted requests at once.
    ///
    /// # Errors
    /// If the kernel refuses for now; the requests stay submitted and can be kicked again.
    fn kick(&mut self) -> io::Result<()>;

    /// Moves all completions, in any order, to the end of `out`. Never waits.
    fn reap(&mut self, out: &mut Vec<IoCompletion>);

    /// Starts all submitted requests and waits until there is a completion to reap, nothing is in
    /// flight, or `timeout` has passed. It may return early.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// A descriptor that becomes readable when there is something to reap, and stays so until it is
    /// reaped. It may become so once more for what was reaped already, and once early for what a
    /// slowed file has served and holds back. (Not on a simulated disk: no thread can wait for a
    /// descriptor in virtual time.)
    fn event(&self) -> BorrowedFd<'_>;

    /// Returns the number of that descriptor, which belongs to the queue.
    fn event_fd(&self) -> RawFd {
        self.event().as_raw_fd()
    }

    /// Returns the number of requests that were submitted and not reaped.
    fn in_flight(&self) -> usize;

    /// Returns a buffer of `len` bytes, if possible one that is registered with the kernel. It
    /// holds zeroes, or old bytes of this queue's requests.
    fn buffer(&self, len: usize) -> IoBuffer;
}

/// Blocks of a file, by which implementations of [`BlockFile`] check their requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Blocks {
    /// Units of which requests are multiples.
    pub alignment: Alignment,
    /// Length of the file.
    pub file_bytes: u64,
}

impl Blocks {
    /// Refuses a request that the file cannot serve.
    ///
    /// # Errors
    /// If the request has no bytes or too many, is not aligned, or writes behind the end.
    pub fn check_request(self, access: Access, offset: u64, bytes: usize) -> io::Result<()> {
        if bytes == 0 || bytes > REQUEST_BYTES_MAX {
            return Err(invalid(format!("a request for {bytes} bytes")));
        }
        self.check_range(access, offset, ByteSize(bytes as u64))
    }

    /// Refuses a range that is not of whole blocks, and a write behind the end.
    ///
    /// # Errors
    /// If it is one of these.
    pub fn check_range(self, access: Access, offset: u64, bytes: ByteSize) -> io::Result<()> {
        let Blocks { alignment: Alignment { offset: block, .. }, file_bytes } = self;
        let ByteSize(bytes) = bytes;
        if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
            return Err(invalid(format!("{bytes} bytes at {offset} are no blocks of {block}")));
        }
        let end = offset.saturating_add(bytes);
        if access == Access::Write && end > file_bytes {
            return Err(invalid(format!("a write up to {end} in a file of {file_bytes} bytes")));
        }
        Ok(())
    }
}

/// Appends `len` bytes at `offset` of a file to `out`, reading whole blocks.
fn read_out_of_blocks<F: BlockFile + ?Sized>(
    file: &F,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<usize> {
    let (begin, bytes) = file.alignment().whole_blocks(offset, len);
    let mut buffer = file.buffer(bytes);
    let read = file.read_at(begin, &mut buffer)?;
    let skip = (offset - begin) as usize;
    let found = buffer.get(skip..read.min(skip + len)).unwrap_or_default();
    out.extend_from_slice(found);
    Ok(found.len())
}

/// Implements [`BlockFile::write_from`] by a copy.
fn write_copied<F: BlockFile + ?Sized>(
    file: &F,
    offset: u64,
    region: &Direct,
    from: u64,
    len: usize,
) -> io::Result<()> {
    let mut buffer = file.buffer(len);
    region.read(from, &mut buffer);
    file.write_at(offset, &buffer)
}

/// Refuses a queue whose depth is zero or too large.
///
/// # Errors
/// If it is.
pub fn check_depth(depth: usize) -> io::Result<()> {
    if depth == 0 || depth > QUEUE_DEPTH_MAX {
        let most = QUEUE_DEPTH_MAX;
        return Err(invalid(format!("a queue of {depth} requests; 1 to {most} are possible")));
    }
    Ok(())
}

fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

/// Opens or makes a block file, locked against other processes for as long as it is open.
///
/// # Errors
/// If the file cannot be had as asked for; nothing is changed, made or left behind then.
pub fn open_block_file(
    path: &Path,
    options: &BlockOptions,
) -> Result<Arc<dyn BlockFile>, FileError> {
    let slow = |cause| FileError::Io { doing: "slow down", path: path.into(), cause };
    let drive = options.model.map(|model| Drive::of(path, model)).transpose().map_err(slow)?;
    open_on(path, options, drive.as_ref())
}

/// Opens or makes a block file, slowed to a drive that other files may share.
pub(crate) fn open_on(
    path: &Path,
    options: &BlockOptions,
    drive: Option<&Arc<Drive>>,
) -> Result<Arc<dyn BlockFile>, FileError> {
    let placement = Placement {
        create: options.create,
        grow: options.grow,
        magic: options.magic,
        device: true,
        read_only: options.read_only,
    };
    let prepared = placement.prepare(path)?;
    let mut remarks = Vec::new();
    let file = OpenFile::new(path, &prepared, options.cached, &mut remarks)?;
    let backend = match options.backend {
        BackendChoice::Auto => None,
        BackendChoice::Threads => Some(Backend::ThreadPool),
        BackendChoice::IoUring => {
            let failed = |cause| FileError::IoUring { path: path.into(), cause };
            try_ring(&file).map_err(failed)?;
            Some(Backend::IoUring)
        }
    };
    let kept = if options.unsynced { prepared.keep_unsynced() } else { prepared.keep() };
    let file = Arc::new(file.kept(kept?));
    let file: Arc<dyn BlockFile> = Arc::new(LocalFile::new(file, backend, remarks));
    Ok(match drive {
        None => file,
        Some(drive) => Arc::new(SlowFile::new(file, Arc::clone(drive))),
    })
}

/// Finds out by a real read if io_uring works for this file: some systems allow rings but refuse
/// reads through them.
fn try_ring(file: &OpenFile) -> io::Result<()> {
    let mut ring = RingQueue::new(Arc::new(file.duplicate()?), 1, Completion::Interrupt)?;
    let buffer = ring.buffer(file.alignment().offset as usize);
    let request = IoRequest { access: Access::Read, offset: 0, buffer, token: 0 };
    let mut done = Vec::new();
    ring.submit(request).map_err(|_| io::ErrorKind::WouldBlock)?;
    while done.is_empty() {
        ring.wait(None)?;
        ring.reap(&mut done);
    }
    done.into_iter().try_for_each(|completion| completion.result.map(drop))
}

#[cfg(test)]
mod tests;
