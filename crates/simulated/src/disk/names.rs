//! Operations on the names of a simulated disk.

use std::io;
use std::panic::Location;
use std::path::Path;

use entresol_base::Place;
use entresol_media::block::BlockOptions;
use entresol_media::directory::{self, Entry, EntryKind};
use entresol_media::{FileError, PAGE_BYTES};

use super::entries::Change;
use super::fault::{Call, Failure};
use super::tree::{NodeId, Tree};
use super::{Effect, Machine};
use crate::crash::PointKind;

/// A directory of a simulated disk, with its path.
#[derive(Clone, Copy)]
pub(super) struct Inside<'a> {
    pub(super) node: NodeId,
    pub(super) path: &'a Path,
}

fn failed(doing: &'static str, path: &Path) -> impl Fn(io::Error) -> FileError {
    move |cause| FileError::Io { doing, path: path.into(), cause }
}

fn kind_of(tree: &Tree, node: NodeId) -> EntryKind {
    if tree.names(node).is_some() { EntryKind::Directory } else { EntryKind::File }
}

impl Machine {
    pub(super) fn list(&self, inside: Inside<'_>) -> Result<Vec<Entry>, FileError> {
        self.call(Call::Look, inside.path).map_err(failed("list", inside.path))?;
        let state = self.core.state();
        let names = state.tree.names(inside.node).into_iter().flat_map(|names| names.live());
        let names = names.filter(|(name, _)| !directory::is_unfinished(name));
        let entry = |(name, &node): (&String, &NodeId)| Entry {
            name: name.clone(),
            is_directory: kind_of(&state.tree, node) == EntryKind::Directory,
        };
        Ok(names.map(entry).collect())
    }

    fn named(&self, inside: Inside<'_>, name: &str) -> Option<(NodeId, EntryKind)> {
        let state = self.core.state();
        let node = state.tree.names(inside.node)?.get(name)?;
        Some((node, kind_of(&state.tree, node)))
    }

    pub(super) fn find(
        &self,
        inside: Inside<'_>,
        name: &str,
    ) -> Result<Option<EntryKind>, FileError> {
        let path = directory::path_of(inside.path, name)?;
        self.call(Call::Look, &path).map_err(failed("look at", &path))?;
        Ok(self.named(inside, name).map(|(_, kind)| kind))
    }

    /// Adds, moves or removes a name.
    fn change(&self, inside: Inside<'_>, change: Change, place: Place) {
        self.point(PointKind::Entry, place);
        self.core.state().tree.change(inside.node, change, self.power.tick());
    }

    pub(super) fn make_directory(
        &self,
        inside: Inside<'_>,
        name: &str,
    ) -> Result<NodeId, FileError> {
        let path = directory::path_of(inside.path, name)?;
        self.call(Call::Look, &path).map_err(failed("open", &path))?;
        match self.named(inside, name) {
            Some((node, EntryKind::Directory)) => return Ok(node),
            Some(_) => {
                let (found, wanted) = ("no directory", "another place");
                return Err(FileError::WrongType { path, found, wanted });
            }
            None => {}
        }
        self.call(Call::Create, &path).map_err(failed("make", &path))?;
        let node = self.core.state().tree.add_directory();
        self.change(inside, Change::Put(name.to_owned(), node), Location::caller());
        Ok(node)
    }

    pub(super) fn rename(
        &self,
        inside: Inside<'_>,
        from: &str,
        to: &str,
        place: Place,
    ) -> Result<(), FileError> {
        let path = directory::path_of(inside.path, from)?;
        directory::path_of(inside.path, to)?;
        self.call(Call::Rename, &path).map_err(failed("rename", &path))?;
        let Some((node, _)) = self.named(inside, from) else {
            return Err(FileError::NoFile { path });
        };
        if let Some((_, EntryKind::Directory)) = self.named(inside, to) {
            return Err(failed("rename", &path)(io::ErrorKind::IsADirectory.into()));
        }
        if from != to {
            let (from, to) = (from.to_owned(), to.to_owned());
            self.change(inside, Change::Rename { from, to, node }, place);
        }
        Ok(())
    }

    pub(super) fn remove(
        &self,
        inside: Inside<'_>,
        name: &str,
        kind: EntryKind,
    ) -> Result<(), FileError> {
        let path = directory::path_of(inside.path, name)?;
        let failed = failed("remove", &path);
        self.call(Call::Remove, &path).map_err(&failed)?;
        match self.named(inside, name) {
            None => return Ok(()),
            Some((_, found)) if found != kind => {
                let kind = match kind {
                    EntryKind::File => io::ErrorKind::IsADirectory,
                    EntryKind::Directory => io::ErrorKind::NotADirectory,
                };
                return Err(failed(kind.into()));
            }
            Some((node, EntryKind::Directory)) => {
                let state = self.core.state();
                if state.tree.names(node).is_some_and(|names| !names.live().is_empty()) {
                    return Err(failed(io::ErrorKind::DirectoryNotEmpty.into()));
                }
            }
            Some(_) => {}
        }
        self.change(inside, Change::Remove(name.to_owned()), Location::caller());
        self.core.state().tree.forget_nameless();
        Ok(())
    }

    pub(super) fn read_small(&self, inside: Inside<'_>, name: &str) -> Result<Vec<u8>, FileError> {
        let path = directory::path_of(inside.path, name)?;
        let effect = self.begin(Call::Read, &path).map_err(failed("read", &path))?;
        let node = match self.named(inside, name) {
            None => return Err(FileError::NoFile { path }),
            Some((_, EntryKind::Directory)) => {
                return Err(failed("read", &path)(io::ErrorKind::IsADirectory.into()));
            }
            Some((node, EntryKind::File)) => node,
        };
        let bytes = self.core.state().tree.file(node).map_or(0, super::file::File::len);
        directory::check_small(&path, bytes)?;
        let mut content = vec![0; bytes as usize];
        self.read_all(node, &mut content, effect).map_err(failed("read", &path))?;
        Ok(content)
    }

    /// Reads a file's first bytes. A short read is an error, since half of a small file is no file,
    /// and half of its magic must not count as another program's.
    fn read_all(&self, node: NodeId, to: &mut [u8], effect: Option<Effect>) -> io::Result<()> {
        let moved = self.start_read(node, 0, to, effect);
        self.wait(moved.done);
        let read = moved.result?;
        if read < to.len() {
            let text = format!("{read} of {} bytes were read; read it again", to.len());
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, text));
        }
        Ok(())
    }

    /// Replaces a file as a real directory does: a file beside it is written and synced, takes the
    /// name, and the directory is synced.
    pub(super) fn replace(
        &self,
        inside: Inside<'_>,
        name: &str,
        bytes: &[u8],
    ) -> Result<(), FileError> {
        let path = directory::path_of(inside.path, name)?;
        directory::check_small(&path, bytes.len() as u64)?;
        let unfinished = directory::unfinished(name);
        let result = self.write_unfinished(inside, &unfinished, &path, bytes).and_then(|node| {
            self.call(Call::Rename, &path)?;
            if let Some((_, EntryKind::Directory)) = self.named(inside, name) {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            let (from, to) = (unfinished.clone(), name.to_owned());
            self.change(inside, Change::Rename { from, to, node }, Location::caller());
            Ok(())
        });
        if let Err(cause) = result {
            if self.named(inside, &unfinished).is_some() && !self.core.world().crashed() {
                self.change(inside, Change::Remove(unfinished), Location::caller());
            }
            return Err(FileError::write(&path, bytes.len() as u64, cause));
        }
        self.sync_names(inside.node, inside.path, Location::caller())
            .map_err(failed("sync", inside.path))
    }

    /// Appends to a file that ends at `end`. Its last sector is written again, with what it had.
    pub(super) fn append(
        &self,
        inside: Inside<'_>,
        name: &str,
        (end, bytes): (u64, &[u8]),
        place: Place,
    ) -> Result<(), FileError> {
        let path = directory::path_of(inside.path, name)?;
        directory::check_small(&path, end.saturating_add(bytes.len() as u64))?;
        self.call(Call::Look, &path).map_err(failed("open", &path))?;
        let Some((node, EntryKind::File)) = self.named(inside, name) else {
            return Err(FileError::NoFile { path });
        };
        let found = self.core.state().tree.file(node).map_or(0, super::file::File::len);
        directory::check_end(&path, found, end)?;
        let written = self.write_behind(node, &path, end, bytes);
        written.map_err(|cause| FileError::write(&path, bytes.len() as u64, cause))?;
        self.sync_file(node, &path, place).map_err(failed("sync", &path))
    }

    /// Writes as many bytes as there is room for.
    fn write_behind(&self, node: NodeId, path: &Path, end: u64, bytes: &[u8]) -> io::Result<()> {
        let effect = self.begin(Call::Write, path)?;
        self.point(PointKind::Write, Location::caller());
        let state = self.core.state();
        let room = usize::try_from(state.room()).unwrap_or(usize::MAX);
        let (fit, rest) = bytes.split_at(bytes.len().min(room));
        let begin = end / state.tree.sector * state.tree.sector;
        let mut all = vec![0; (end - begin) as usize];
        state.tree.file(node).map(|file| file.read(begin, &mut all));
        drop(state);
        all.extend_from_slice(fit);
        self.write(node, begin, &all, effect)?;
        let (len, order) = (end + fit.len() as u64, self.power.tick());
        self.core.state().tree.resize(node, |file| file.set_len(len, order));
        if rest.is_empty() { Ok(()) } else { Err(Failure::NoSpace.error()) }
    }

    fn write_unfinished(
        &self,
        inside: Inside<'_>,
        unfinished: &str,
        path: &Path,
        bytes: &[u8],
    ) -> io::Result<NodeId> {
        self.call(Call::Create, path)?;
        self.core.state().reserve(bytes.len() as u64)?;
        let node = self.core.state().tree.add_file(bytes.len() as u64, self.power.tick());
        self.change(inside, Change::Put(unfinished.to_owned(), node), Location::caller());
        let effect = self.begin(Call::Write, path)?;
        self.point(PointKind::Write, Location::caller());
        self.write(node, 0, bytes, effect)?;
        self.sync_file(node, path, Location::caller())?;
        Ok(node)
    }

    /// Finds or makes a block file, and opens it.
    pub(super) fn open_node(
        &self,
        inside: Inside<'_>,
        name: &str,
        options: &BlockOptions,
    ) -> Result<NodeId, FileError> {
        let path = directory::path_of(inside.path, name)?;
        self.call(Call::Look, &path).map_err(failed("open", &path))?;
        match self.named(inside, name) {
            None => self.make_file(inside, name, &path, options),
            Some((_, EntryKind::Directory)) => {
                let (found, wanted) = ("a directory", "a regular file");
                Err(FileError::WrongType { path, found, wanted })
            }
            Some((node, EntryKind::File)) => {
                if !self.core.state().tree.open(node) {
                    return Err(FileError::Locked { path });
                }
                let adopted = self.adopt(node, &path, options);
                if adopted.is_err() {
                    self.core.state().tree.close(node);
                }
                adopted.map(|()| node)
            }
        }
    }

    /// Makes a file. Unless it is to stay unsynced, its length and its first bytes are durable
    /// before it gets its name.
    fn make_file(
        &self,
        inside: Inside<'_>,
        name: &str,
        path: &Path,
        options: &BlockOptions,
    ) -> Result<NodeId, FileError> {
        let Some(bytes) = options.create else {
            return Err(FileError::NotFound { path: path.into() });
        };
        let node = self.core.state().tree.add_file(0, self.power.tick());
        self.core.state().tree.open(node);
        let made = self.fill(node, path, bytes, options).and_then(|()| {
            self.call(Call::Create, path).map_err(failed("make", path))?;
            self.change(inside, Change::Put(name.to_owned(), node), Location::caller());
            Ok(node)
        });
        if made.is_err() {
            self.core.state().tree.abandon(node);
        }
        made
    }

    /// Gives a new, empty or growing file its length, and makes that durable if it should be.
    fn fill(
        &self,
        node: NodeId,
        path: &Path,
        bytes: u64,
        options: &BlockOptions,
    ) -> Result<(), FileError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let before = self.core.state().tree.file(node).map_or(0, super::file::File::len);
        self.set_len(node, path, bytes)?;
        if let (Some(magic), 0) = (options.magic, before) {
            let effect = self.begin(Call::Write, path).map_err(failed("write", path))?;
            self.write(node, 0, &magic, effect).map_err(failed("write", path))?;
        }
        if options.unsynced {
            return Ok(());
        }
        self.sync_file(node, path, Location::caller()).map_err(failed("sync", path))
    }

    /// Checks that an existing file is ours and long enough.
    fn adopt(&self, node: NodeId, path: &Path, options: &BlockOptions) -> Result<(), FileError> {
        let len = self.core.state().tree.file(node).map_or(0, super::file::File::len);
        if let Some(magic) = options.magic.filter(|_| len > 0) {
            let mut head = [0; 8];
            let head = &mut head[..len.min(8) as usize];
            let effect = self.begin(Call::Read, path).map_err(failed("read", path))?;
            self.read_all(node, head, effect).map_err(failed("read", path))?;
            if head != magic {
                return Err(FileError::Foreign { path: path.into() });
            }
        }
        let needed = options.create.map_or(0, |bytes| bytes.next_multiple_of(PAGE_BYTES));
        if len > 0 && len >= needed {
            return Ok(());
        }
        match options.create {
            Some(bytes) if options.grow || len == 0 => {
                let filled = self.fill(node, path, bytes, options);
                if filled.is_err() && !self.core.world().crashed() {
                    let order = self.power.tick();
                    self.core.state().tree.resize(node, |file| file.set_len(len, order));
                }
                filled
            }
            Some(_) => Err(FileError::TooSmall { path: path.into(), found: len, needed }),
            None => Err(FileError::TooSmall { path: path.into(), found: 0, needed: PAGE_BYTES }),
        }
    }

    /// Locks a directory, and removes unfinished replacements.
    pub(super) fn lock_names(&self, inside: Inside<'_>) -> Result<(), FileError> {
        self.call(Call::Look, inside.path).map_err(failed("lock", inside.path))?;
        let unfinished: Vec<String> = {
            let mut state = self.core.state();
            if !state.tree.lock(inside.node) {
                return Err(FileError::Locked { path: inside.path.into() });
            }
            let names = state.tree.names(inside.node).into_iter();
            let names = names.flat_map(|names| names.live().keys());
            names.filter(|name| directory::is_unfinished(name)).cloned().collect()
        };
        for name in unfinished {
            self.change(inside, Change::Remove(name), Location::caller());
        }
        Ok(())
    }

    pub(super) fn set_len(&self, node: NodeId, path: &Path, bytes: u64) -> Result<(), FileError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        let refused = |cause| FileError::allocation(path, bytes, cause);
        self.call(Call::Allocate, path).map_err(refused)?;
        let mut state = self.core.state();
        let before = state.tree.file(node).map_or(0, super::file::File::len);
        state.reserve(bytes.saturating_sub(before)).map_err(refused)?;
        let order = self.power.tick();
        state.tree.resize(node, |file| file.set_len(bytes, order));
        Ok(())
    }
}
