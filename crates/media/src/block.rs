//! Block files: files on disks that are read and written in aligned blocks past the page cache,
//! one at a time or many in flight.
//!
//! A [`BlockFile`] is the file; an [`IoQueue`] is one thread's way of having requests to it in
//! flight. There are two kinds of queue, one through the kernel's io_uring and one over a few
//! threads for kernels that refuse it (containers usually do); they behave alike, and one suite of
//! tests holds them to it. Nothing is silent: which kind serves, and why, is in
//! [`BlockFile::backend`] and [`BlockFile::remarks`].

use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::panic::Location;
use std::path::Path;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::cost::Access;
use crate::crash::Place;
use crate::model::ModelName;
use crate::placement::{FileError, Placement};
pub use crate::raw::buffer::{IoBuffer, SlotPool};
use crate::raw::ring::{Completion, Ring};

mod local;
mod slow;
mod threads;

use local::LocalFile;
pub(crate) use local::OpenFile;
use slow::SlowFile;
pub(crate) use slow::{Drive, SlowMapped};

/// The most that one request moves. The kernel's limit is just below 2 GiB.
pub const REQUEST_BYTES_MAX: usize = 1 << 30;
/// The most requests that one queue has in flight.
pub const QUEUE_DEPTH_MAX: usize = 4096;

/// Which kind of queue is wanted.
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

/// Why a text names no kind of queue.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is no way to do file I/O: write auto, io-uring or threads")]
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

/// Which kind of queue serves a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Backend {
    /// The kernel's io_uring.
    IoUring,
    /// Positioned reads and writes by a few threads.
    ThreadPool,
    /// A simulated disk ([`crate::disk`]), in virtual time.
    Simulated,
}

impl Backend {
    /// The word for it in logs and statistics.
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

/// What requests must be multiples of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Alignment {
    /// Where buffers begin; every [`IoBuffer`] does.
    pub memory: usize,
    /// Offsets and lengths in the file.
    pub offset: u64,
}

/// How a block file is opened.
#[derive(Debug, Clone, Default)]
pub struct BlockOptions {
    /// Make the file with this many bytes, rounded up to 4 KiB and all of them allocated, if it
    /// does not exist or is empty. Without this it must exist.
    pub create: Option<u64>,
    /// Lengthen a file that is shorter than `create`, instead of refusing it. It is never
    /// shortened.
    pub grow: bool,
    /// The first eight bytes of every file that is ours: a new file gets them, and a file that
    /// begins otherwise is left alone and refused. A block device may also begin with 4 KiB of
    /// zeroes.
    pub magic: Option<[u8; 8]>,
    /// Read and write through the system's cache of files, which has what was written last and
    /// what is read often in memory that the system takes back when it needs it; otherwise past
    /// it, where the file system lets one. Nothing is read ahead.
    pub cached: bool,
    /// The file exists and is only read: it need not be writable, and none of its space is
    /// allocated. Whoever writes to it gets an error.
    pub read_only: bool,
    /// Which kind of queue serves it.
    pub backend: BackendChoice,
    /// The drive that it is slowed to, in real time; slowed files of one folder share one. A
    /// simulated disk has one of its own.
    pub model: Option<ModelName>,
}

/// A file that is read and written in blocks. Offsets and lengths are multiples of
/// [`BlockFile::alignment`]; nothing is written beyond the end.
pub trait BlockFile: Send + Sync + fmt::Debug {
    /// Fills the buffer from `offset` and answers how many bytes there were: fewer than asked for
    /// at the file's end only. Blocks the thread.
    ///
    /// # Errors
    /// If the request is not aligned, or the disk fails.
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize>;

    /// Appends `len` bytes at `offset` to `out`, neither of which needs to be aligned, and answers
    /// how many there were, which are fewer at the file's end only. Blocks the thread.
    ///
    /// # Errors
    /// If the disk fails; then nothing is appended.
    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        read_out_of_blocks(self, offset, len, out)
    }

    /// The same if nobody has to wait for the disk, and says whether that is so and all were there.
    /// If not, and the file is read through the system's cache, the disk begins to read, and who
    /// calls [`read_out`](BlockFile::read_out) later waits less; so several reads can be under way
    /// at once. Of a failure that tells, and not this.
    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        let _ = (offset, len, out);
        false
    }

    /// Writes all of the buffer at `offset`. Blocks the thread. The bytes survive the death of the
    /// process; after [`BlockFile::sync_at`] that of the machine.
    ///
    /// # Errors
    /// If the request is not aligned or reaches beyond the end, or the disk fails.
    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()>;

    /// What `<dyn BlockFile>::sync` does.
    ///
    /// # Errors
    /// As there.
    fn sync_at(&self, place: Place) -> io::Result<()>;

    /// The file's bytes.
    fn len(&self) -> u64;

    /// Whether the file has no bytes, which it never has.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Changes the file's length; what is added is allocated and reads zero.
    ///
    /// # Errors
    /// If there is no room, or the file is a device.
    fn set_len(&self, bytes: u64) -> Result<(), FileError>;

    /// Returns the space of these bytes to the file system; they read zero afterwards. A file
    /// system that cannot do so keeps it, and they are written with zeroes. Before they are written
    /// again they should be allocated by [`BlockFile::allocate`].
    ///
    /// # Errors
    /// If the request is not aligned, or the disk fails.
    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()>;

    /// Allocates the space of bytes that were discarded, so that writing them cannot fail for want
    /// of it.
    ///
    /// # Errors
    /// If there is no room.
    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError>;

    /// What offsets, lengths and buffers must be multiples of.
    fn alignment(&self) -> Alignment;

    /// Whether requests go past the page cache.
    fn is_direct(&self) -> bool;

    /// Which kind of queue serves the file.
    fn backend(&self) -> Backend;

    /// What the operator should know of how the file is served: whatever is not the best that this
    /// program can do, and why. For the log.
    fn remarks(&self) -> &[String];

    /// The file's path.
    fn path(&self) -> &Path;

    /// A buffer of `len` bytes for requests to this file. That of a queue may be faster there.
    fn buffer(&self, len: usize) -> IoBuffer {
        IoBuffer::new(len)
    }

    /// A queue with which one thread can have `depth` requests in flight.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>>;

    /// A queue that polls the disk for completions instead of being interrupted: waiting burns the
    /// processor, and its descriptor never becomes readable. For measuring.
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
    /// Makes everything durable whose writing was complete before, and the file's length. Blocks
    /// the thread. Writes that a queue has in flight are not part of it.
    ///
    /// # Errors
    /// If the disk fails: then nothing written since the last success can be trusted, whatever a
    /// later sync says.
    #[track_caller]
    pub fn sync(&self) -> io::Result<()> {
        self.sync_at(Location::caller())
    }
}

/// A read or write to be done.
#[derive(Debug)]
pub struct IoRequest {
    /// Which of the two.
    pub access: Access,
    /// Where in the file.
    pub offset: u64,
    /// Where the bytes come from or go to, and how many.
    pub buffer: IoBuffer,
    /// What comes back with the completion.
    pub token: u64,
}

/// A read or write that was done.
#[derive(Debug)]
pub struct IoCompletion {
    /// What was given with the request.
    pub token: u64,
    /// The bytes moved: for a write all of them, for a read fewer at the file's end only.
    pub result: io::Result<usize>,
    /// The request's buffer.
    pub buffer: IoBuffer,
}

/// One thread's requests to a file. On drop everything that was submitted is carried out and waited
/// for, so that no write is lost and no buffer freed while it is in use.
pub trait IoQueue: Send {
    /// Accepts a request; nothing happens before the next [`IoQueue::kick`] (or wait). A request
    /// that is not aligned, or writes beyond the end, is accepted and completes with an error.
    ///
    /// # Errors
    /// The request itself, if as many are in flight as the queue is deep.
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest>;

    /// Starts what was submitted, all at once.
    ///
    /// # Errors
    /// If the kernel refuses for now; what was submitted is still there, to be kicked again.
    fn kick(&mut self) -> io::Result<()>;

    /// Moves what has completed, in any order, to the end of `out`. Never waits.
    fn reap(&mut self, out: &mut Vec<IoCompletion>);

    /// Starts what was submitted and waits until there is something to reap, nothing in flight, or
    /// `timeout` has passed. It may return early.
    ///
    /// # Errors
    /// If the kernel refuses.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()>;

    /// A descriptor that becomes readable when there is something to reap, and stays so until it is
    /// reaped. It may become so once more for what was reaped already, and once early for what a
    /// slowed file has served and holds back. (Not on a simulated disk: nobody can wait for a
    /// descriptor in virtual time.)
    fn event(&self) -> BorrowedFd<'_>;

    /// The number of that descriptor; it belongs to the queue.
    fn event_fd(&self) -> RawFd {
        self.event().as_raw_fd()
    }

    /// Requests that were submitted and not reaped.
    fn in_flight(&self) -> usize;

    /// A buffer of `len` bytes, one that the kernel knows already if there is one left.
    fn buffer(&self, len: usize) -> IoBuffer;
}

/// Refuses a request that no file of this length and alignment serves.
pub(crate) fn check_request(
    alignment: Alignment,
    file_bytes: u64,
    access: Access,
    offset: u64,
    bytes: usize,
) -> io::Result<()> {
    if bytes == 0 || bytes > REQUEST_BYTES_MAX {
        return Err(invalid(format!("a request for {bytes} bytes")));
    }
    check_range(alignment, file_bytes, access, offset, bytes as u64)
}

/// Refuses a range that is not of whole blocks, or lies behind the end where it must not.
pub(crate) fn check_range(
    alignment: Alignment,
    file_bytes: u64,
    access: Access,
    offset: u64,
    bytes: u64,
) -> io::Result<()> {
    let block = alignment.offset;
    if !offset.is_multiple_of(block) || !bytes.is_multiple_of(block) {
        return Err(invalid(format!("{bytes} bytes at {offset} are no blocks of {block}")));
    }
    let end = offset.saturating_add(bytes);
    if access == Access::Write && end > file_bytes {
        return Err(invalid(format!("a write up to {end} in a file of {file_bytes} bytes")));
    }
    Ok(())
}

/// Appends `len` bytes at `offset` of a file to `out`, of which whole blocks are read.
fn read_out_of_blocks<F: BlockFile + ?Sized>(
    file: &F,
    offset: u64,
    len: usize,
    out: &mut Vec<u8>,
) -> io::Result<usize> {
    let (begin, bytes) = whole_blocks(file.alignment(), offset, len);
    let mut buffer = file.buffer(bytes);
    let read = file.read_at(begin, &mut buffer)?;
    let skip = (offset - begin) as usize;
    let found = buffer.get(skip..read.min(skip + len)).unwrap_or_default();
    out.extend_from_slice(found);
    Ok(found.len())
}

/// Where the blocks begin that `len` bytes at `offset` lie in, and their bytes.
pub(crate) fn whole_blocks(alignment: Alignment, offset: u64, len: usize) -> (u64, usize) {
    let begin = offset / alignment.offset * alignment.offset;
    let end = (offset + len as u64).next_multiple_of(alignment.offset);
    (begin, (end - begin) as usize)
}

/// Refuses a queue that is too deep, or has no depth.
pub(crate) fn check_depth(depth: usize) -> io::Result<()> {
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

/// Opens or makes a block file, slowed to a drive that it may share with others.
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
    let backend = choose(&file, options.backend, &mut remarks)?;
    let file = Arc::new(file.kept(prepared.keep()?));
    let file: Arc<dyn BlockFile> = Arc::new(LocalFile::new(file, backend, remarks));
    Ok(match drive {
        None => file,
        Some(drive) => Arc::new(SlowFile::new(file, Arc::clone(drive))),
    })
}

/// Finds out by a real read whether io_uring serves this file: rings can often be made where
/// reading through them is refused.
fn choose(
    file: &OpenFile,
    choice: BackendChoice,
    remarks: &mut Vec<String>,
) -> Result<Backend, FileError> {
    if choice == BackendChoice::Threads {
        return Ok(Backend::ThreadPool);
    }
    let trial = || -> io::Result<()> {
        let mut ring = Ring::new(Arc::new(file.duplicate()?), 1, Completion::Interrupt)?;
        let buffer = ring.buffer(file.alignment().offset as usize);
        let request = IoRequest { access: Access::Read, offset: 0, buffer, token: 0 };
        let mut done = Vec::new();
        ring.submit(request).map_err(|_| io::ErrorKind::WouldBlock)?;
        while done.is_empty() {
            ring.wait(None)?;
            ring.reap(&mut done);
        }
        done.into_iter().try_for_each(|completion| completion.result.map(drop))
    };
    match (trial(), choice) {
        (Ok(()), _) => Ok(Backend::IoUring),
        (Err(cause), BackendChoice::IoUring) => {
            Err(FileError::IoUring { path: file.path().into(), cause })
        }
        (Err(cause), _) => {
            remarks.push(format!("io_uring is refused here ({cause}): a pool of threads serves"));
            Ok(Backend::ThreadPool)
        }
    }
}

#[cfg(test)]
mod tests;
