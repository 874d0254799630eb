//! Open block files of this machine: the descriptor, its mode of access, and the blocking calls.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use entresol_base::mutants::{SiteKind, removed};
use entresol_base::{ByteSize, Place};
use rustix::fs::{AtFlags, FallocateFlags, OFlags, StatxFlags, fcntl_getfl, fcntl_setfl, statx};

use super::threads::{Pool, ThreadQueue};
use super::uring::RingQueue;
use super::{
    Alignment, Backend, BlockFile, Blocks, IoBuffer, IoQueue, IoRequest, check_depth,
    read_out_of_blocks, try_ring, write_copied,
};
use crate::access::Access;
use crate::ahead;
use crate::placement::{self, FileError, PAGE_BYTES, Prepared};
use crate::raw::buffer::BUFFER_ALIGNMENT;
use crate::raw::ring::Completion;
use crate::region::Direct;

/// Minimum block size. All disks' blocks are multiples of it. It also holds for files in the page
/// cache, so that a file can be moved between file systems.
const BLOCK_BYTES_MIN: u64 = 512;
/// Block size that is assumed for direct I/O if the file system reports none.
const BLOCK_BYTES_UNKNOWN: u64 = 4096;

/// An open file with its mode of access. Shared by all queues to it.
#[derive(Debug)]
pub(super) struct OpenFile {
    file: File,
    path: PathBuf,
    len: AtomicU64,
    alignment: Alignment,
    direct: bool,
}

impl OpenFile {
    /// Switches the file to direct I/O if the file system supports it, unless it is to be cached.
    pub(super) fn new(
        path: &Path,
        prepared: &Prepared,
        cached: bool,
        remarks: &mut Vec<String>,
    ) -> Result<OpenFile, FileError> {
        let io = |doing| move |cause| FileError::Io { doing, path: path.into(), cause };
        let file = prepared.file().try_clone().map_err(io("open"))?;
        let direct = match if cached { Ok(false) } else { set_direct(&file).map(|()| true) } {
            Ok(direct) => direct,
            Err(cause) => {
                remarks.push(format!(
                    "direct I/O is refused here ({cause}): reads and writes go through the page \
                     cache"
                ));
                false
            }
        };
        if cached {
            // If the kernel ignores the advice, it reads more than is needed.
            let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::Random);
        }
        let alignment = alignment(&file, direct).map_err(io("look at"))?;
        if alignment.memory > BUFFER_ALIGNMENT || alignment.offset > PAGE_BYTES {
            let text = format!("its disk wants blocks of {} bytes", alignment.offset);
            let cause = io::Error::new(io::ErrorKind::Unsupported, text);
            return Err(io("use")(cause));
        }
        let len = AtomicU64::new(prepared.len() / alignment.offset * alignment.offset);
        Ok(OpenFile { file, path: path.into(), len, alignment, direct })
    }

    /// Returns this file with the descriptor under which it was kept. Descriptors of one opening
    /// share their flags, so direct I/O stays on.
    pub(super) fn kept(self, file: File) -> OpenFile {
        OpenFile { file, ..self }
    }

    pub(super) fn duplicate(&self) -> io::Result<OpenFile> {
        let file = self.file.try_clone()?;
        let len = AtomicU64::new(self.len());
        Ok(OpenFile { file, path: self.path.clone(), len, ..*self })
    }

    pub(super) fn alignment(&self) -> Alignment {
        self.alignment
    }

    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    /// Refuses a request that may not be carried out.
    pub(super) fn check(&self, request: &IoRequest) -> io::Result<()> {
        self.check_call(request.access, request.offset, &request.buffer)
    }

    fn check_call(&self, access: Access, offset: u64, buffer: &IoBuffer) -> io::Result<()> {
        self.blocks().check_request(access, offset, buffer.len())
    }

    fn blocks(&self) -> Blocks {
        Blocks { alignment: self.alignment, file_bytes: self.len() }
    }

    /// Carries out one request, blocking the thread.
    pub(super) fn perform(
        &self,
        access: Access,
        offset: u64,
        buffer: &mut IoBuffer,
    ) -> io::Result<usize> {
        self.check_call(access, offset, buffer)?;
        match access {
            Access::Write => self.file.write_all_at(buffer, offset).map(|()| buffer.len()),
            Access::Read => self.read(offset, buffer),
        }
    }

    /// Fills a buffer as far as one system call does.
    fn read(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.file.read_at(buffer, offset) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl AsRawFd for OpenFile {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

fn set_direct(file: &File) -> io::Result<()> {
    let flags = fcntl_getfl(file)?;
    fcntl_setfl(file, flags | OFlags::DIRECT)?;
    // Some file systems accept the flag and refuse the reads.
    match file.read_at(&mut IoBuffer::new(PAGE_BYTES as usize), 0) {
        Ok(_) => Ok(()),
        Err(error) => {
            fcntl_setfl(file, flags)?;
            Err(error)
        }
    }
}

fn alignment(file: &File, direct: bool) -> io::Result<Alignment> {
    let memory = BUFFER_ALIGNMENT;
    if !direct {
        return Ok(Alignment { memory, offset: BLOCK_BYTES_MIN });
    }
    let known = statx(file, "", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)?;
    let told = known.stx_mask & StatxFlags::DIOALIGN.bits() != 0 && known.stx_dio_offset_align != 0;
    if !told {
        return Ok(Alignment { memory, offset: BLOCK_BYTES_UNKNOWN });
    }
    let memory = memory.max(known.stx_dio_mem_align as usize);
    Ok(Alignment { memory, offset: u64::from(known.stx_dio_offset_align).max(BLOCK_BYTES_MIN) })
}

/// A block file on a disk of this machine.
#[derive(Debug)]
pub(super) struct LocalFile {
    file: Arc<OpenFile>,
    /// Backend that was asked for by name.
    named: Option<Backend>,
    /// Remarks of the opening.
    opened: Vec<String>,
    /// Backend of the queues. Most files are read and written by calls alone, and trying a ring
    /// takes longer than opening a file.
    chosen: OnceLock<Chosen>,
    /// Threads that serve all queues, started for the first one.
    pool: Mutex<Option<Arc<Pool>>>,
}

/// Backend of a file, with all remarks on the file.
#[derive(Debug)]
struct Chosen {
    backend: Backend,
    remarks: Vec<String>,
}

impl LocalFile {
    pub(super) fn new(
        file: Arc<OpenFile>,
        named: Option<Backend>,
        opened: Vec<String>,
    ) -> LocalFile {
        LocalFile { file, named, opened, chosen: OnceLock::new(), pool: Mutex::new(None) }
    }

    /// Returns the backend: io_uring if a read through it succeeds, unless one was named.
    fn chosen(&self) -> &Chosen {
        self.chosen.get_or_init(|| {
            let mut remarks = self.opened.clone();
            let backend = self.named.unwrap_or_else(|| match try_ring(&self.file) {
                Ok(()) => Backend::IoUring,
                Err(cause) => {
                    remarks.push(format!(
                        "io_uring is refused here ({cause}): a pool of threads is used"
                    ));
                    Backend::ThreadPool
                }
            });
            Chosen { backend, remarks }
        })
    }

    fn pool(&self) -> io::Result<Arc<Pool>> {
        let mut pool = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        match &*pool {
            Some(pool) => Ok(Arc::clone(pool)),
            None => Ok(Arc::clone(pool.insert(Pool::start(&self.file)?))),
        }
    }
}

impl BlockFile for LocalFile {
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize> {
        self.file.perform(Access::Read, offset, buffer)
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<usize> {
        if self.file.direct {
            return read_out_of_blocks(self, offset, len, out);
        }
        let before = out.len();
        out.resize(before + len, 0);
        let read = self.file.read(offset, &mut out[before..]);
        out.truncate(before + read.as_ref().map_or(0, |read| *read));
        read
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        !self.file.direct && ahead::try_read(&self.file.file, offset, len, out)
    }

    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()> {
        self.file.check_call(Access::Write, offset, buffer)?;
        self.file.file.write_all_at(buffer, offset)
    }

    fn write_from(&self, offset: u64, region: &Direct, from: u64, len: usize) -> io::Result<()> {
        if !from.is_multiple_of(self.file.alignment.memory as u64) {
            return write_copied(self, offset, region, from, len);
        }
        self.file.blocks().check_request(Access::Write, offset, len)?;
        region.mapping().write_to(self.file.file.as_fd(), offset, from, len)
    }

    fn sync_at(&self, place: Place) -> io::Result<()> {
        if removed(SiteKind::Sync, place) {
            return Ok(());
        }
        self.file.file.sync_data()
    }

    fn len(&self) -> u64 {
        self.file.len()
    }

    fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        let path = self.path();
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let before = self.len();
        if bytes > before {
            if let Err(cause) = placement::allocate(&self.file.file, before, bytes - before) {
                // The added space is taken back; the first error tells why.
                let _ = self.file.file.set_len(before);
                return Err(FileError::allocation(path, bytes, cause));
            }
        } else {
            // The new end is published first, so that no writer writes behind it.
            self.file.len.store(bytes, Ordering::Release);
            let io = |cause| FileError::Io { doing: "shorten", path: path.into(), cause };
            if let Err(cause) = self.file.file.set_len(bytes) {
                self.file.len.store(before, Ordering::Release);
                return Err(io(cause));
            }
        }
        self.file.len.store(bytes, Ordering::Release);
        Ok(())
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        const ZEROES: usize = 1 << 20;
        if bytes == 0 {
            return Ok(());
        }
        self.file.blocks().check_range(Access::Write, offset, ByteSize(bytes))?;
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        if rustix::fs::fallocate(&self.file.file, hole, offset, bytes).is_ok() {
            return Ok(());
        }
        let mut zeroes = IoBuffer::new(ZEROES);
        let mut at = offset;
        while at < offset + bytes {
            zeroes.set_len((offset + bytes - at).min(ZEROES as u64) as usize);
            self.write_at(at, &zeroes)?;
            at += zeroes.len() as u64;
        }
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError> {
        let (path, end) = (self.path(), offset.saturating_add(bytes));
        if bytes == 0 || end > self.len() {
            return Ok(());
        }
        placement::allocate(&self.file.file, offset, bytes)
            .map_err(|cause| FileError::allocation(path, bytes, cause))
    }

    fn alignment(&self) -> Alignment {
        self.file.alignment
    }

    fn is_direct(&self) -> bool {
        self.file.direct
    }

    fn backend(&self) -> Backend {
        self.chosen().backend
    }

    fn remarks(&self) -> &[String] {
        &self.chosen().remarks
    }

    fn path(&self) -> &Path {
        &self.file.path
    }

    fn polled_queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        if self.backend() != Backend::IoUring || !self.file.direct {
            let text = "only requests through io_uring past the page cache are polled for";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        let depth = depth.clamp(1, super::QUEUE_DEPTH_MAX);
        Ok(Box::new(RingQueue::new(Arc::clone(&self.file), depth, Completion::Polling)?))
    }

    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        check_depth(depth)?;
        match self.backend() {
            Backend::IoUring => {
                let file = Arc::clone(&self.file);
                Ok(Box::new(RingQueue::new(file, depth, Completion::Interrupt)?))
            }
            _ => Ok(Box::new(ThreadQueue::new(self.pool()?, depth)?)),
        }
    }
}
