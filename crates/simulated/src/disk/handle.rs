//! Simulated directories and block files, as programs see them.

use std::fmt;
use std::io;
use std::panic::Location;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Place;
use entresol_base::{ByteSize, Picos};
use entresol_media::Access;
use entresol_media::Begun;
use entresol_media::FileError;
use entresol_media::block::BUFFER_ALIGNMENT;
use entresol_media::block::{
    self, Alignment, Backend, BlockFile, BlockOptions, Blocks, IoBuffer, IoQueue,
};
use entresol_media::directory::{self, Directory, DirectoryId, DirectoryLock, Entry, EntryKind};
use entresol_media::mapped::{MapOptions, MappedFile};

use super::file::File;
use super::mapped::DiskMapped;
use super::names::Inside;
use super::queue::DiskQueue;
use super::tree::NodeId;
use super::{Call, Machine, SectorSize};
use crate::crash::PointKind;

/// A directory of a simulated disk.
pub(super) struct DiskDirectory {
    machine: Arc<Machine>,
    node: NodeId,
    path: PathBuf,
}

impl DiskDirectory {
    pub(super) fn new(machine: &Arc<Machine>, node: NodeId, path: PathBuf) -> DiskDirectory {
        DiskDirectory { machine: Arc::clone(machine), node, path }
    }

    fn inside(&self) -> Inside<'_> {
        Inside { node: self.node, path: &self.path }
    }
}

impl fmt::Debug for DiskDirectory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskDirectory").field("path", &self.path).finish()
    }
}

impl Directory for DiskDirectory {
    fn path(&self) -> &Path {
        &self.path
    }

    fn id(&self) -> DirectoryId {
        let device = Arc::as_ptr(&self.machine) as usize as u64;
        DirectoryId { device, node: self.node }
    }

    fn open_block_file(
        &self,
        name: &str,
        options: &BlockOptions,
    ) -> Result<Arc<dyn BlockFile>, FileError> {
        let node = self.machine.open_node(self.inside(), name, options)?;
        let path = directory::path_of(&self.path, name)?;
        let machine = Arc::clone(&self.machine);
        let remarks = vec![REMARK.to_owned()];
        let (is_cached, begun) = (options.cached, Mutex::default());
        Ok(Arc::new(DiskFile { machine, node, path, remarks, is_cached, begun }))
    }

    fn map_file(&self, name: &str, options: &MapOptions) -> Result<Arc<dyn MappedFile>, FileError> {
        Ok(Arc::new(DiskMapped::open(&self.machine, self.inside(), name, options)?))
    }

    fn subdirectory(&self, name: &str) -> Result<Arc<dyn Directory>, FileError> {
        let node = self.machine.make_directory(self.inside(), name)?;
        let path = directory::path_of(&self.path, name)?;
        Ok(Arc::new(DiskDirectory::new(&self.machine, node, path)))
    }

    fn elsewhere(&self, path: &Path) -> Result<Arc<dyn Directory>, FileError> {
        self.machine.call(Call::Look, path).map_err(|cause| FileError::Io {
            doing: "open",
            path: path.into(),
            cause,
        })?;
        let inside = path.strip_prefix(super::PATH).ok().and_then(Path::to_str);
        let state = self.machine.core.state();
        let node = inside.and_then(|inside| state.tree.walk(inside));
        let node = node.filter(|node| state.tree.names(*node).is_some());
        drop(state);
        match node {
            Some(node) => Ok(Arc::new(DiskDirectory::new(&self.machine, node, path.into()))),
            None => Err(FileError::NoFile { path: path.into() }),
        }
    }

    fn list(&self) -> Result<Vec<Entry>, FileError> {
        self.machine.list(self.inside())
    }

    fn find(&self, name: &str) -> Result<Option<EntryKind>, FileError> {
        self.machine.find(self.inside(), name)
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, FileError> {
        self.machine.read_small(self.inside(), name)
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<(), FileError> {
        self.machine.replace(self.inside(), name, bytes)
    }

    fn append_at(&self, name: &str, end: u64, bytes: &[u8], place: Place) -> Result<(), FileError> {
        self.machine.append(self.inside(), name, (end, bytes), place)
    }

    fn rename_at(&self, from: &str, to: &str, place: Place) -> Result<(), FileError> {
        self.machine.rename(self.inside(), from, to, place)
    }

    fn remove(&self, name: &str) -> Result<(), FileError> {
        self.machine.remove(self.inside(), name, EntryKind::File)
    }

    fn remove_subdirectory(&self, name: &str) -> Result<(), FileError> {
        self.machine.remove(self.inside(), name, EntryKind::Directory)
    }

    fn sync_at(&self, place: Place) -> Result<(), FileError> {
        let doing = |cause| FileError::Io { doing: "sync", path: self.path.clone(), cause };
        self.machine.sync_names(self.node, &self.path, place).map_err(doing)
    }

    fn lock(&self) -> Result<DirectoryLock, FileError> {
        self.machine.lock_names(self.inside())?;
        Ok(DirectoryLock::new(Unlock { machine: Arc::clone(&self.machine), node: self.node }))
    }

    fn free_bytes(&self) -> Result<u64, FileError> {
        Ok(self.machine.core.state().room())
    }
}

/// Releases a directory's lock.
struct Unlock {
    machine: Arc<Machine>,
    node: NodeId,
}

impl Drop for Unlock {
    fn drop(&mut self) {
        self.machine.core.state().tree.unlock(self.node);
    }
}

const REMARK: &str = "this is a simulated disk; nothing is kept";

/// A block file of a simulated disk.
pub(super) struct DiskFile {
    pub(super) machine: Arc<Machine>,
    pub(super) node: NodeId,
    path: PathBuf,
    remarks: Vec<String>,
    /// True if reads that are begun ahead stay in memory until they are read.
    is_cached: bool,
    begun: Mutex<Begun<Picos>>,
}

impl Drop for DiskFile {
    fn drop(&mut self) {
        self.machine.core.state().tree.close(self.node);
    }
}

impl fmt::Debug for DiskFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DiskFile").field("path", &self.path).finish()
    }
}

impl DiskFile {
    pub(super) fn check(&self, access: Access, offset: u64, len: usize) -> io::Result<()> {
        self.blocks().check_request(access, offset, len)
    }

    fn blocks(&self) -> Blocks {
        Blocks { alignment: self.alignment(), file_bytes: self.len() }
    }

    /// Locks the reads that are under way and not waited for.
    fn begun(&self) -> MutexGuard<'_, Begun<Picos>> {
        // Never held while a simulated thread waits.
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BlockFile for DiskFile {
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize> {
        self.check(Access::Read, offset, buffer.len())?;
        let effect = self.machine.begin(Call::Read, &self.path)?;
        let begun = self.begun().take(offset, buffer.len() as u64);
        let moved = match begun {
            Some(done) => self.machine.end_read(self.node, offset, buffer, effect, done),
            None => self.machine.start_read(self.node, offset, buffer, effect),
        };
        self.machine.wait(moved.done);
        moved.result
    }

    /// Takes the drive's time now; the bytes, and any fault, are determined when they are read.
    fn try_read_out(&self, offset: u64, len: usize, _out: &mut Vec<u8>) -> bool {
        let world = self.machine.core.world();
        world.step();
        let (begin, bytes) = self.alignment().whole_blocks(offset, len);
        if !self.is_cached
            || world.crashed()
            || self.check(Access::Read, begin, bytes).is_err()
            || self.begun().find(begin, bytes as u64).is_some()
        {
            return false;
        }
        let now = world.now();
        let mut state = self.machine.core.state();
        let done = state.device_time(self.node, Access::Read, begin, bytes, now, None);
        drop(state);
        self.begun().add(begin, bytes as u64, done);
        false
    }

    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()> {
        self.check(Access::Write, offset, buffer.len())?;
        let effect = self.machine.begin(Call::Write, &self.path)?;
        self.machine.point(PointKind::Write, Location::caller());
        self.machine.write(self.node, offset, buffer, effect)
    }

    fn sync_at(&self, place: Place) -> io::Result<()> {
        self.machine.sync_file(self.node, &self.path, place)
    }

    fn len(&self) -> u64 {
        let alignment = self.alignment().offset;
        let len = self.machine.core.state().tree.file(self.node).map_or(0, File::len);
        len / alignment * alignment
    }

    fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        self.machine.set_len(self.node, &self.path, bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        self.blocks().check_range(Access::Write, offset, ByteSize(bytes))?;
        self.machine.call(Call::Allocate, &self.path)?;
        let order = self.machine.power.tick();
        let mut state = self.machine.core.state();
        state.tree.resize(self.node, |file| file.discard(offset, bytes, order));
        Ok(())
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError> {
        if bytes == 0 || offset.saturating_add(bytes) > self.len() {
            return Ok(());
        }
        self.machine.allocate(self.node, &self.path, offset, bytes)
    }

    fn alignment(&self) -> Alignment {
        // A file system's blocks are no smaller on persistent memory either.
        let offset = self.machine.core.state().tree.sector.max(SectorSize::Small.bytes());
        Alignment { memory: BUFFER_ALIGNMENT, offset }
    }

    fn is_direct(&self) -> bool {
        true
    }

    fn backend(&self) -> Backend {
        Backend::Simulated
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn path(&self) -> &Path {
        &self.path
    }

    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        block::check_depth(depth)?;
        Ok(Box::new(DiskQueue::new(self, depth)?))
    }
}
