//! Mapped files of a simulated disk.
//!
//! A write has two parts, the first or the last of its words before the others, cut at a place
//! drawn from its time; a word of eight bytes is never torn. Until it is persisted, a crash leaves
//! each sector in any of the states through which it went: without the write, with one part, or
//! with both, always including earlier writes to it. A persist covers the sectors of its range and
//! no others, takes the drive's time for the dirty ones, and is a crash point; writes are none.
//! Other simulated threads run before an access and in the middle of a write, so that they see its
//! first part.
//!
//! A write that is not durable takes up to two sectors of memory for each sector that it touches.
//!
//! **On persistent memory** a sector is a line, and the first part of a write is a random subset of
//! each line's words. A line is written back as a whole, so that a crash leaves it in one of the
//! states through which it went, by all writers. Each write is flushed by its writer; a persist
//! makes durable the lines that *the calling thread* flushed before, in the state in which it
//! flushed them, anywhere in the file. On real memory other threads' streaming stores and fences
//! may make more durable; programs must not rely on that.

use std::cmp;
use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use entresol_base::Place;
use entresol_base::mutants::{SiteKind, removed};
use entresol_base::{Picos, thread};
use entresol_media::Access;
use entresol_media::block::BlockOptions;
use entresol_media::directory;
use entresol_media::mapped::{self, MapOptions, MappedFile, MappedKind};
use entresol_media::{FileError, PAGE_BYTES};

use super::cached::{self, PageName};
use super::file::File;
use super::names::Inside;
use super::tree::NodeId;
use super::{Call, Machine, REQUEST_BYTES_MAX, REQUESTS_MAX, SectorSize};
use crate::crash::PointKind;

const WORD_BYTES: u64 = 8;

/// A mapped file of a simulated disk.
pub(super) struct DiskMapped {
    machine: Arc<Machine>,
    node: NodeId,
    path: PathBuf,
    bytes: u64,
    is_pmem: bool,
    /// First failure of a sync, after which none succeeds.
    failure: OnceLock<io::ErrorKind>,
}

impl DiskMapped {
    /// Maps the file of this name.
    pub(super) fn open(
        machine: &Arc<Machine>,
        inside: Inside<'_>,
        name: &str,
        options: &MapOptions,
    ) -> Result<DiskMapped, FileError> {
        let path = directory::path_of(inside.path, name)?;
        let is_pmem = options.pmem.is_some();
        if is_pmem && machine.core.state().tree.sector != SectorSize::Line.bytes() {
            let text = "a simulated disk is persistent memory only if its sectors are lines";
            let cause = io::Error::new(io::ErrorKind::Unsupported, text);
            return Err(FileError::Io { doing: "map", path, cause });
        }
        let MapOptions { create, magic, .. } = *options;
        let block_options = BlockOptions { create, magic, ..BlockOptions::default() };
        let node = machine.open_node(inside, name, &block_options)?;
        let found = machine.core.state().tree.file(node).map_or(0, File::len);
        let bytes = found / PAGE_BYTES * PAGE_BYTES;
        // Closes the file when it is dropped, also by an error below.
        let (machine, failure) = (Arc::clone(machine), OnceLock::new());
        let file = DiskMapped { machine, node, path: path.clone(), bytes, is_pmem, failure };
        if bytes == 0 {
            return Err(FileError::TooSmall { path, found, needed: PAGE_BYTES });
        }
        let missing = |file: &File| file.missing(0, bytes);
        if file.machine.core.state().tree.file(node).is_some_and(|file| missing(file) > 0) {
            file.machine.allocate(node, &path, 0, bytes)?;
        }
        Ok(file)
    }

    /// Lets other threads run, and returns false if the machine has crashed.
    #[track_caller]
    fn step(&self) -> bool {
        let world = self.machine.core.world();
        world.step();
        !world.crashed()
    }

    /// Reads the missing pages of a range from the drive, and waits for them.
    #[track_caller]
    fn fetch(&self, offset: u64, len: u64) {
        let done = self.begin(offset, len);
        self.machine.wait(done);
    }

    /// Starts reading the missing pages, and returns the time at which all of them are in memory.
    fn begin(&self, offset: u64, len: u64) -> Picos {
        let world = self.machine.core.world();
        let (now, mut done) = (world.now(), Picos(0));
        let (Some((cache, disk)), false) = (&self.machine.core.cache, self.is_pmem) else {
            return done;
        };
        if world.crashed() {
            return done;
        }
        let name = |page| PageName { disk: *disk, node: self.node, page };
        for page in offset / cached::PAGE_BYTES..(offset + len).div_ceil(cached::PAGE_BYTES) {
            let ready = cache.touch(name(page)).unwrap_or_else(|| {
                let at = page * cached::PAGE_BYTES;
                let bytes = cached::PAGE_BYTES as usize;
                let mut state = self.machine.core.state();
                let ready = state.device_time(self.node, Access::Read, at, bytes, now, None);
                cache.expect(name(page), ready);
                ready
            });
            done = done.max(ready);
        }
        done
    }

    /// Notes that written pages are in memory.
    fn keep(&self, offset: u64, len: u64) {
        let Some((cache, disk)) = &self.machine.core.cache else { return };
        for page in offset / cached::PAGE_BYTES..(offset + len).div_ceil(cached::PAGE_BYTES) {
            cache.write(PageName { disk: *disk, node: self.node, page });
        }
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        let order = self.machine.power.tick();
        if let Some(file) = self.machine.core.state().tree.file_mut(self.node) {
            file.write_within(order, offset, bytes);
        }
    }

    /// Writes to persistent memory, and flushes the lines.
    fn write_lines(&self, offset: u64, bytes: &[u8]) {
        if self.step() {
            let order = self.machine.power.tick();
            if let Some(file) = self.machine.core.state().tree.file_mut(self.node) {
                file.write_drawn(order, offset, bytes);
            }
        }
        if self.step() {
            self.put(offset, bytes);
            self.flush_lines(offset, bytes.len() as u64);
        }
    }

    fn flush_lines(&self, offset: u64, len: u64) {
        let (sectors, thread) = (self.sectors(offset, len), thread::current_id());
        if let Some(file) = self.machine.core.state().tree.file_mut(self.node) {
            file.flush(sectors, thread);
        }
    }

    fn drain(&self, place: Place) -> io::Result<()> {
        if removed(SiteKind::Sync, place) {
            return Ok(());
        }
        if !self.step() {
            return Err(io::Error::other("the simulated machine has crashed"));
        }
        let thread = thread::current_id();
        let has_flushed = |file: &File| file.has_flushed(thread);
        let is_waited_for = self.machine.core.state().tree.file(self.node).is_some_and(has_flushed);
        match is_waited_for {
            true => self.machine.point(PointKind::Drain, place),
            false => self.machine.power.pass(PointKind::Drain, place),
        }
        if let Some(file) = self.machine.core.state().tree.file_mut(self.node) {
            file.drain(thread);
        }
        Ok(())
    }

    fn copy(&self, offset: u64, out: &mut [u8]) {
        if let Some(file) = self.machine.core.state().tree.file(self.node) {
            file.read(offset, out);
        }
    }

    /// Returns the sectors of a range.
    fn sectors(&self, offset: u64, len: u64) -> Range<u64> {
        let sector = self.machine.core.state().tree.sector;
        offset / sector..(offset + len).div_ceil(sector)
    }
}

/// Returns a write's two parts in the order in which they become visible, cut at the beginning of a
/// word of the file; the second is empty if there is only one word.
fn parts(order: u64, offset: u64, bytes: &[u8]) -> [(u64, &[u8]); 2] {
    let end = offset + bytes.len() as u64;
    let (first, last) = (offset / WORD_BYTES + 1, end.div_ceil(WORD_BYTES));
    if first >= last {
        return [(offset, bytes), (end, &[])];
    }
    let drawn = order.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 32;
    let cut = (first + (drawn >> 1) % (last - first)) * WORD_BYTES;
    let (head, tail) = bytes.split_at((cut - offset) as usize);
    let (head, tail) = ((offset, head), (cut, tail));
    if drawn & 1 == 0 { [head, tail] } else { [tail, head] }
}

impl MappedFile for DiskMapped {
    fn len(&self) -> u64 {
        self.bytes
    }

    fn kind(&self) -> MappedKind {
        if self.is_pmem { MappedKind::Dax } else { MappedKind::File }
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        mapped::assert_inside(self, offset, bytes.len() as u64);
        if self.is_pmem {
            return self.write_lines(offset, bytes);
        }
        self.keep(offset, bytes.len() as u64);
        for (offset, part) in parts(self.machine.power.tick(), offset, bytes) {
            if !part.is_empty() && self.step() {
                self.put(offset, part);
            }
        }
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        mapped::assert_inside(self, offset, out.len() as u64);
        self.step();
        self.fetch(offset, out.len() as u64);
        self.copy(offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        mapped::assert_inside(self, offset, len as u64);
        let before = out.len();
        out.resize(before + len, 0);
        self.read(offset, &mut out[before..]);
    }

    fn read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> io::Result<()> {
        if !self.is_pmem {
            self.machine.call(Call::Read, &self.path)?;
        }
        self.append_to(offset, len, out);
        Ok(())
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        mapped::assert_inside(self, offset, len as u64);
        self.step();
        let is_there = self.begin(offset, len as u64) <= self.machine.core.world().now();
        if is_there {
            let before = out.len();
            out.resize(before + len, 0);
            self.copy(offset, &mut out[before..]);
        }
        is_there
    }

    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.compare(offset, bytes.len(), bytes).is_eq()
    }

    fn compare(&self, offset: u64, len: usize, bytes: &[u8]) -> cmp::Ordering {
        mapped::assert_inside(self, offset, len as u64);
        self.step();
        self.fetch(offset, len as u64);
        mapped::compare(offset, len, bytes, |offset, out| self.copy(offset, out))
    }

    fn flush_at(&self, offset: u64, len: u64, place: Place) {
        mapped::assert_inside(self, offset, len);
        if self.is_pmem && !removed(SiteKind::Flush, place) && self.step() {
            self.flush_lines(offset, len);
        }
    }

    fn persist_at(&self, offset: u64, len: u64, place: Place) -> io::Result<()> {
        mapped::assert_inside(self, offset, len);
        if self.is_pmem {
            return self.drain(place);
        }
        if let Some(&kind) = self.failure.get() {
            return Err(io::Error::new(kind, "an earlier sync of this file failed"));
        }
        if len == 0 {
            return Ok(());
        }
        let sectors = self.sectors(offset, len);
        let synced = self.machine.sync_sectors(self.node, &self.path, Some(sectors), place);
        if let Some((cache, disk)) = &self.machine.core.cache {
            let end = (offset + len).div_ceil(cached::PAGE_BYTES);
            cache.written_back(*disk, self.node, offset / cached::PAGE_BYTES..end);
        }
        synced.inspect_err(|error| {
            // Only the first failure is kept, which caused the others.
            let _ = self.failure.set(error.kind());
        })
    }

    fn path(&self) -> &Path {
        &self.path
    }
}

impl Machine {
    /// Allocates the space that a range lacks.
    pub(super) fn allocate(
        &self,
        node: NodeId,
        path: &Path,
        offset: u64,
        bytes: u64,
    ) -> Result<(), FileError> {
        let failed = |cause| FileError::allocation(path, bytes, cause);
        self.call(Call::Allocate, path).map_err(failed)?;
        let mut state = self.core.state();
        let missing = state.tree.file(node).map_or(0, |file| file.missing(offset, bytes));
        state.reserve(missing).map_err(failed)?;
        state.tree.resize(node, |file| file.allocate(offset, bytes));
        Ok(())
    }

    /// Writes the dirty sectors among these to the drive, with a limited number of requests in
    /// flight.
    pub(super) fn write_back(&self, node: NodeId, sectors: &Range<u64>) {
        let world = self.core.world();
        if world.crashed() || self.core.state().model.is_none() {
            return;
        }
        let sector = self.core.state().tree.sector;
        let piece = (REQUEST_BYTES_MAX as u64 / sector).max(1);
        let new_runs = |file: &File| file.new_runs(sectors);
        let runs = self.core.state().tree.file(node).map_or_else(Vec::new, new_runs);
        let mut under_way = VecDeque::new();
        for run in runs {
            for first in run.clone().step_by(piece as usize) {
                if under_way.len() == REQUESTS_MAX {
                    self.wait(under_way.pop_front().unwrap_or_default());
                }
                let bytes = ((first + piece).min(run.end) - first) * sector;
                let (now, at) = (world.now(), first * sector);
                let mut state = self.core.state();
                let done = state.device_time(node, Access::Write, at, bytes as usize, now, None);
                under_way.push_back(done);
            }
        }
    }
}

impl Drop for DiskMapped {
    fn drop(&mut self) {
        if let Some((cache, disk)) = &self.machine.core.cache {
            cache.forget(*disk, self.node);
        }
        self.machine.core.state().tree.close(self.node);
    }
}

impl fmt::Debug for DiskMapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskMapped").field("path", &self.path).finish()
    }
}
