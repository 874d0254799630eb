//! The file of a run while it is written: front to back, in large pieces, each byte once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_media::{BlockFile, BlockOptions, Directory, IoBuffer};

use crate::cache::block::{BlockCache, PageId, PageKind};
use crate::error::StoreError;
use crate::types::{Mark, PAGE_BYTES, RunNumber};

use crate::run::format::block::Address;
use crate::run::format::ends::{MAGIC, mark_behind};

/// One part in so many of the free room may be taken before it is needed. A compaction that makes
/// room on a full disk needs nearly all of it for other files.
const FREE_PART: u64 = 8;

/// A file that is being written, and is removed if it is dropped before it is complete.
#[derive(Debug)]
pub(in crate::run) struct Output {
    directory: Arc<dyn Directory>,
    name: String,
    number: RunNumber,
    file: Option<Arc<dyn BlockFile>>,
    path: PathBuf,
    buffer: IoBuffer,
    /// Bytes of the buffer that are to be written.
    filled: usize,
    /// Offset in the file at which they go.
    offset: u64,
    /// Mark of the pages that were appended.
    mark: Mark,
    /// Cache for blocks that are likely to be read.
    cache: Option<Arc<BlockCache>>,
    /// Counter of the bytes of files that are being written, and those of this one in it.
    counted: Option<(Arc<AtomicU64>, u64)>,
    complete: bool,
}

impl Output {
    pub(in crate::run) fn create(
        directory: &Arc<dyn Directory>,
        name: String,
        number: RunNumber,
        write_bytes: usize,
    ) -> Result<Output, StoreError> {
        if directory.find(&name)?.is_some() {
            let what = format!("{} exists already", directory.path().join(&name).display());
            return Err(StoreError::Internal { what });
        }
        let free = directory.free_bytes().map_or(u64::MAX, |bytes| bytes / FREE_PART);
        let is_small = free < write_bytes as u64;
        let options = BlockOptions {
            create: Some(if is_small { PAGE_BYTES } else { write_bytes } as u64),
            unsynced: true,
            magic: Some(MAGIC),
            ..BlockOptions::default()
        };
        let file = directory.open_block_file(&name, &options)?;
        let buffer = file.buffer(write_bytes);
        let (directory, path) = (Arc::clone(directory), file.path().to_owned());
        Ok(Output {
            directory,
            name,
            number,
            file: Some(file),
            path,
            buffer,
            filled: 0,
            offset: 0,
            mark: Mark::NONE,
            cache: None,
            counted: None,
            complete: false,
        })
    }

    /// Puts blocks into a cache as well, as far as it has room for them.
    pub(in crate::run) fn cache_in(&mut self, pages: &Arc<BlockCache>) {
        self.cache = Some(Arc::clone(pages));
    }

    /// Counts the bytes of the file as long as it is being written.
    pub(in crate::run) fn count_in(&mut self, counter: &Arc<AtomicU64>) {
        self.counted = Some((Arc::clone(counter), 0));
        self.count(self.file.as_ref().map_or(0, |file| file.len()));
    }

    fn count(&mut self, bytes: u64) {
        if let Some((counter, before)) = &mut self.counted {
            counter.fetch_add(bytes, Relaxed);
            counter.fetch_sub(*before, Relaxed);
            *before = bytes;
        }
    }

    /// Puts a block into the cache that is about to be appended.
    pub(in crate::run) fn cache(
        &self,
        Address { run, page }: Address,
        kind: PageKind,
        block: &[u8],
    ) {
        if let Some(pages) = &self.cache {
            pages.offer(PageId { run, page }, kind, block);
        }
    }

    pub(in crate::run) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the address of the next block.
    pub(in crate::run) fn address(&self) -> Address {
        let page = (self.offset + self.filled as u64) / PAGE_BYTES as u64;
        Address { run: self.number, page }
    }

    /// Returns the mark of all pages so far.
    pub(in crate::run) fn mark(&self) -> Mark {
        self.mark
    }

    /// Appends whole pages.
    pub(in crate::run) fn append(&mut self, mut pages: &[u8]) -> Result<(), StoreError> {
        self.mark = mark_behind(self.mark, pages);
        while !pages.is_empty() {
            let room = self.buffer.len() - self.filled;
            let (now, later) = pages.split_at(pages.len().min(room));
            self.buffer[self.filled..self.filled + now.len()].copy_from_slice(now);
            self.filled += now.len();
            pages = later;
            if self.filled == self.buffer.len() {
                self.write()?;
            }
        }
        Ok(())
    }

    /// Makes durable what was appended, and then the last page, which proves that everything is
    /// there. Returns the file, to be read.
    pub(in crate::run) fn finish(mut self, last: &[u8]) -> Result<Arc<dyn BlockFile>, StoreError> {
        self.write()?;
        let end = self.offset + last.len() as u64;
        self.file()?.set_len(end)?;
        self.count(end);
        let file = self.file()?;
        file.sync().map_err(|cause| self.failed("sync", cause))?;
        self.append(last)?;
        self.write()?;
        let file = Arc::clone(self.file()?);
        file.sync().map_err(|cause| self.failed("sync", cause))?;
        self.complete = true;
        Ok(file)
    }

    fn write(&mut self) -> Result<(), StoreError> {
        if self.filled == 0 {
            return Ok(());
        }
        let end = self.offset + self.filled as u64;
        if end > self.file()?.len() {
            self.file()?.set_len(end)?;
        }
        self.count(self.file()?.len());
        let whole = self.buffer.len();
        self.buffer.set_len(self.filled);
        let file = self.file()?;
        let written = file.write_at(self.offset, &self.buffer);
        written.map_err(|cause| self.failed("write", cause))?;
        self.buffer.set_len(whole);
        self.offset += self.filled as u64;
        self.filled = 0;
        Ok(())
    }

    fn file(&self) -> Result<&Arc<dyn BlockFile>, StoreError> {
        let gone = || StoreError::Internal { what: "a run is written after its end".to_owned() };
        self.file.as_ref().ok_or_else(gone)
    }

    fn failed(&self, doing: &'static str, cause: std::io::Error) -> StoreError {
        StoreError::Io { doing, path: self.path.clone(), offset: self.offset, cause }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.file = None;
        self.count(0);
        if !self.complete {
            if let Some(pages) = &self.cache {
                pages.forget(self.number);
            }
            // No manifest names the file. If it cannot be removed here, it is removed when the
            // store is next opened.
            let _ = self.directory.remove(&self.name);
        }
    }
}
