//! A simulated disk with injected faults: files and directories of a simulated machine, in virtual
//! time.
//!
//! A [`Disk`] belongs to a [`World`]. Code written against [`Directory`] and
//! [`BlockFile`](entresol_media::BlockFile) runs on it unchanged, and meets events that are rare on
//! real disks:
//!
//! - **Power cuts.** The disk tracks, for each sector, length and name, the changes that are not
//!   durable yet ([`Unsettled`]), and yields any disk that a crash may leave. Sectors of 512 or
//!   4096 bytes are independent of each other, each wholly new or wholly old, so a write in flight
//!   may be torn between any two of them (one through a mapping also at a word within); length and
//!   bytes are independent; names are durable only after their directory's sync. A disk of
//!   [`SectorSize::Line`] is persistent memory: a thread's flush and drain make its lines durable.
//! - **Faults** ([`FaultPlan`]): the n-th call of a kind fails, once or from then on; failed syncs
//!   forget dirty data; full disks, flipped bits, stale sectors, misdirected reads and writes, slow
//!   calls.
//! - **Time.** With the model of a drive every call takes the drive's time, in virtual time: equal
//!   calls take equal picoseconds on every machine. Without a model calls take no time.
//!
//! Programs may rely on two properties of the disk, which are assumed of real ones: a write does
//! not harm the sectors beside it, and a sector is never half old.
//!
//! A read finds all writes, and a sync writes nothing back for others. Only writes to a mapped file
//! reach the drive when that is synced; reads of such a file take no time, except for pages that
//! are not in the [`PageCache`], if the machine has one. There is no other page cache. A read of a
//! [cached](entresol_media::BlockOptions::cached) file that is begun ahead is in memory once the
//! drive has done it, until it is read once.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Place;
use entresol_base::clock::Picos;
use entresol_base::mutants::{self, SiteKind};
use entresol_base::world::World;
use entresol_media::Access;
use entresol_media::directory::Directory;
use entresol_media::model::ModelName;
use entresol_media::model::block::{BlockParameters, StripedModel, Stripes};
use entresol_media::observe::LINE_BYTES;

use crate::crash::{PointKind, Power, Unsettled};

mod cached;
mod content;
mod entries;
mod fault;
mod file;
mod handle;
mod image;
mod mapped;
mod names;
mod queue;
mod tree;

pub use cached::PageCache;
pub use fault::{
    Call, Calls, CountdownError, Effect, Failure, Fault, FaultPlan, Odds, OneIn, Repeat, Struck,
    fail_every_call,
};

use fault::Faults;
use file::{File, Flight};
use tree::{NodeId, ROOT, Tree};

/// Unit that a crash leaves whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum SectorSize {
    /// 512 bytes, the smallest sector of any drive.
    Small,
    /// 4096 bytes, the sector of today's drives.
    #[default]
    Large,
    /// 64 bytes, a line of persistent memory under a file system. Its files can be mapped as such
    /// ([`MapOptions::pmem`](entresol_media::MapOptions::pmem)), and a crash leaves any words of
    /// these.
    Line,
}

impl SectorSize {
    /// Returns its bytes, of which requests are multiples.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            SectorSize::Small => 512,
            SectorSize::Large => 4096,
            SectorSize::Line => LINE_BYTES,
        }
    }
}

/// Capacity of a disk without a given one: a pebibyte.
const CAPACITY_MAX: u64 = 1 << 50;
/// Maximum bytes of a request to a drive, as of the time's NVMe drives.
const REQUEST_BYTES_MAX: usize = 128 << 10;
/// Number of requests in flight at a drive while a mapped file is synced.
const REQUESTS_MAX: usize = 8;
/// Path of the root directory.
const PATH: &str = "/disk";

/// Options of a simulated disk.
#[derive(Debug, Clone, Default)]
pub struct DiskOptions {
    /// Model of the drive, whose times the calls take; none takes no time.
    pub model: Option<ModelName>,
    /// Striping over several such drives.
    pub stripes: Stripes,
    /// Page cache of the machine for mapped files: missing pages are read from the drive. Without
    /// one all pages are in memory.
    pub cache: Option<PageCache>,
    /// Unit that a crash leaves whole.
    pub sector: SectorSize,
    /// Faults to inject.
    pub faults: FaultPlan,
    /// Power to which the disk is attached, together with the machine's other media.
    pub power: Power,
}

/// A simulated disk; clones share it.
#[derive(Clone)]
pub struct Disk(Arc<Machine>);

/// A disk and its power. The power refers to the disk's [`Core`] only, so there is no cycle.
struct Machine {
    core: Arc<Core>,
    power: Power,
}

/// The part of a disk that a crash concerns.
struct Core {
    /// World in which it was made. An image belongs to the world that opens it, so that recovery
    /// leaves no trace in the history under test.
    world: World,
    image: bool,
    /// Cache of mapped pages, with the disk's number in it.
    cache: Option<(PageCache, u32)>,
    state: Mutex<State>,
}

struct State {
    tree: Tree,
    faults: Faults,
    model: Option<StripedModel>,
    /// Time at which the drive has finished all writes so far.
    busy_until: Picos,
    /// Bytes written to the drive.
    written: u64,
}

impl Disk {
    /// Makes an empty disk.
    ///
    /// # Errors
    /// If the model is one of memory.
    pub fn new(world: &World, options: DiskOptions) -> io::Result<Disk> {
        Disk::with(world, options.clone(), Tree::new(options.sector.bytes()))
    }

    /// Makes an empty disk on a drive of these parameters, instead of the model of the options.
    #[must_use]
    pub fn on_drive(world: &World, options: DiskOptions, drive: &BlockParameters) -> Disk {
        let model = Some(StripedModel::new(drive, options.stripes));
        let tree = Tree::new(options.sector.bytes());
        Disk::timed(world, options, model, tree)
    }

    fn with(world: &World, options: DiskOptions, tree: Tree) -> io::Result<Disk> {
        let model = match options.model {
            None => None,
            Some(name) => {
                let parameters = BlockParameters::of(name).ok_or_else(|| {
                    let text = format!("{name} is a model of memory, not of a disk");
                    io::Error::new(io::ErrorKind::InvalidInput, text)
                })?;
                Some(StripedModel::new(&parameters, options.stripes))
            }
        };
        Ok(Disk::timed(world, options, model, tree))
    }

    fn timed(world: &World, options: DiskOptions, model: Option<StripedModel>, tree: Tree) -> Disk {
        let faults = Faults::new(options.faults);
        let state = State { tree, faults, model, busy_until: Picos(0), written: 0 };
        Disk::assemble(world, options.power, state, options.cache, false)
    }

    /// Makes a disk without times or faults.
    fn of_tree(world: &World, power: &Power, tree: Tree) -> Disk {
        let faults = Faults::new(FaultPlan::default());
        Disk::assemble(
            world,
            power.clone(),
            State { tree, faults, model: None, busy_until: Picos(0), written: 0 },
            None,
            true,
        )
    }

    fn assemble(
        world: &World,
        power: Power,
        state: State,
        cache: Option<PageCache>,
        image: bool,
    ) -> Disk {
        let cache = cache.map(|cache| {
            let number = cache.take_disk();
            (cache, number)
        });
        let state = Mutex::new(state);
        let core = Arc::new(Core { world: world.clone(), image, cache, state });
        power.attach(Arc::clone(&core) as Arc<dyn Unsettled>);
        Disk(Arc::new(Machine { core, power }))
    }

    /// Returns the root directory.
    #[must_use]
    pub fn root(&self) -> Arc<dyn Directory> {
        Arc::new(handle::DiskDirectory::new(&self.0, ROOT, PathBuf::from(PATH)))
    }

    /// Replaces the fault plan, and counts calls anew.
    pub fn inject(&self, plan: FaultPlan) {
        self.0.core.state().faults = Faults::new(plan);
    }

    /// Returns the number of calls under the current plan.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.0.core.state().faults.calls()
    }

    /// Returns the number of faults injected under the current plan.
    #[must_use]
    pub fn struck_count(&self) -> u64 {
        self.0.core.state().faults.struck_count()
    }

    /// Returns the first thousand faults injected under the current plan, for a report.
    #[must_use]
    pub fn struck(&self) -> Vec<Struck> {
        self.0.core.state().faults.struck().to_vec()
    }

    /// Returns true if its files can be mapped as persistent memory.
    #[must_use]
    pub fn is_persistent_memory(&self) -> bool {
        self.0.core.state().tree.sector == SectorSize::Line.bytes()
    }

    /// Returns the bytes that files take.
    #[must_use]
    pub fn used_bytes(&self) -> u64 {
        self.0.core.state().tree.used
    }

    /// Returns the bytes written to the drive so far, without names and small files.
    #[must_use]
    pub fn written_bytes(&self) -> u64 {
        self.0.core.state().written
    }

    /// Returns the names and bytes of everything as programs see it, directories with a trailing
    /// slash and no bytes: for comparing disks.
    #[must_use]
    pub fn contents(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.core.state().tree.contents()
    }

    /// Flips one bit of a file at rest, which may be open.
    ///
    /// # Errors
    /// If the file does not exist, or is shorter.
    pub fn flip(&self, path: &str, byte: u64, bit: u8) -> io::Result<()> {
        let mut state = self.0.core.state();
        let node = state.tree.walk(path).ok_or(io::ErrorKind::NotFound)?;
        match state.tree.file_mut(node) {
            Some(file) if byte < file.len() => {
                file.flip(byte, bit);
                Ok(())
            }
            _ => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl fmt::Debug for Disk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let used = self.used_bytes();
        f.debug_struct("Disk").field("used", &used).field("calls", &self.calls()).finish()
    }
}

impl Core {
    fn world(&self) -> World {
        match World::current() {
            Some(opener) if self.image => opener,
            _ => self.world.clone(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Never held while a simulated thread waits; the state is consistent after every statement.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of a call that moves bytes.
struct Moved {
    result: io::Result<usize>,
    /// Time at which it is complete.
    done: Picos,
    /// The write, for [`Machine::finish`] once the program learns of its completion.
    flight: Option<Flight>,
}

impl Machine {
    /// Begins a call: other threads may run, and a fault may be injected. A call to a machine that
    /// has crashed does nothing.
    #[track_caller]
    fn begin(&self, call: Call, path: &Path) -> io::Result<Option<Effect>> {
        self.core.world().step();
        if self.core.world().crashed() {
            return Err(io::Error::other("the simulated machine has crashed"));
        }
        Ok(self.core.state().faults.strike(call, || path.display().to_string()))
    }

    /// Begins a call that changes nothing of its own if it fails.
    #[track_caller]
    fn call(&self, call: Call, path: &Path) -> io::Result<()> {
        match self.begin(call, path)? {
            Some(Effect::Fail(failure)) => Err(failure.error()),
            Some(Effect::Slow(by)) => {
                self.core.world().wait_until(self.core.world().now().after(by));
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Waits until that time, unless it has passed.
    fn wait(&self, until: Picos) {
        if until > self.core.world().now() {
            self.core.world().wait_until(until);
        }
    }

    /// Reports a crash point.
    fn point(&self, kind: PointKind, place: Place) {
        if kind != PointKind::Write || self.power.is_watched() {
            self.power.point(kind, place);
        }
    }

    /// Reads without waiting for the drive.
    fn start_read(
        &self,
        node: NodeId,
        offset: u64,
        to: &mut [u8],
        effect: Option<Effect>,
    ) -> Moved {
        let now = self.core.world().now();
        let mut state = self.core.state();
        let done = state.device_time(node, Access::Read, offset, to.len(), now, effect);
        let result = state.read(node, offset, to, effect);
        Moved { result, done, flight: None }
    }

    /// Reads bytes that the drive was asked for before, which are available at `done`.
    fn end_read(
        &self,
        node: NodeId,
        offset: u64,
        to: &mut [u8],
        effect: Option<Effect>,
        done: Picos,
    ) -> Moved {
        let more = if let Some(Effect::Slow(by)) = effect { by } else { Picos(0) };
        let done = done.max(self.core.world().now()).after(more);
        let result = self.core.state().read(node, offset, to, effect);
        Moved { result, done, flight: None }
    }

    /// Writes without waiting for the drive: the bytes are visible at once, and complete after
    /// [`Machine::finish`].
    fn start_write(
        &self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
        effect: Option<Effect>,
    ) -> Moved {
        let (now, order) = (self.core.world().now(), self.power.tick());
        let mut state = self.core.state();
        let done = state.device_time(node, Access::Write, offset, bytes.len(), now, effect);
        let Some(flight) = state.tree.file_mut(node).map(|file| file.begin(order)) else {
            return Moved { result: Err(io::ErrorKind::NotFound.into()), done, flight: None };
        };
        let result = state.write(node, offset, bytes, effect, flight).map(|()| bytes.len());
        Moved { result, done, flight: Some(flight) }
    }

    /// Notes that the program knows of a write's completion.
    fn finish(&self, node: NodeId, flight: Flight) {
        if let Some(file) = self.core.state().tree.file_mut(node) {
            file.finish(flight);
        }
    }

    /// Writes, and waits for completion.
    fn write(
        &self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
        effect: Option<Effect>,
    ) -> io::Result<()> {
        let moved = self.start_write(node, offset, bytes, effect);
        self.wait(moved.done);
        if let Some(flight) = moved.flight {
            self.finish(node, flight);
        }
        moved.result.map(drop)
    }

    /// Makes a file's bytes durable.
    fn sync_file(&self, node: NodeId, path: &Path, place: Place) -> io::Result<()> {
        self.sync_sectors(node, path, None, place)
    }

    /// Makes a file's bytes and length durable. Of a mapped file it covers these sectors only,
    /// which are written to the drive now.
    fn sync_sectors(
        &self,
        node: NodeId,
        path: &Path,
        mapped: Option<Range<u64>>,
        place: Place,
    ) -> io::Result<()> {
        if mutants::removed(SiteKind::Sync, place) {
            return Ok(());
        }
        let order = self.power.tick();
        let sectors = mapped.clone().unwrap_or(0..u64::MAX);
        let cut = self.core.state().tree.file(node).map(|file| file.cut(order, sectors));
        let Some(cut) = cut else {
            return Ok(());
        };
        if let Some(sectors) = mapped {
            self.write_back(node, &sectors);
        }
        let effect = self.begin(Call::Sync, path)?;
        self.wait_for_drive(effect);
        if let Some(Effect::Fail(failure)) = effect {
            let mut state = self.core.state();
            let readable = !state.faults.plan.forget_on_failed_sync;
            if let (Failure::Io, Some(file)) = (failure, state.tree.file_mut(node)) {
                file.lose(&cut, readable);
            }
            return Err(failure.error());
        }
        self.point(PointKind::Sync, place);
        if let Some(file) = self.core.state().tree.file_mut(node) {
            file.settle(&cut);
        }
        Ok(())
    }

    /// Makes a directory's names durable.
    fn sync_names(&self, node: NodeId, path: &Path, place: Place) -> io::Result<()> {
        if mutants::removed(SiteKind::DirectorySync, place) {
            return Ok(());
        }
        let cut = self.power.tick();
        let effect = self.begin(Call::DirectorySync, path)?;
        self.wait_for_drive(effect);
        if let Some(Effect::Fail(failure)) = effect {
            if let (Failure::Io, Some(names)) = (failure, self.core.state().tree.names_mut(node)) {
                names.lose(cut);
            }
            return Err(failure.error());
        }
        self.point(PointKind::DirectorySync, place);
        let mut state = self.core.state();
        if let Some(names) = state.tree.names_mut(node) {
            names.settle(cut);
        }
        state.tree.forget_nameless();
        Ok(())
    }

    /// Waits until the drive has finished all earlier writes, after which a sync ends.
    fn wait_for_drive(&self, effect: Option<Effect>) {
        let busy_until = self.core.state().busy_until;
        let more = if let Some(Effect::Slow(by)) = effect { by } else { Picos(0) };
        self.wait(busy_until.max(self.core.world().now()).after(more));
    }
}

impl State {
    /// Returns the time at which a request submitted now is complete.
    fn device_time(
        &mut self,
        node: NodeId,
        access: Access,
        offset: u64,
        bytes: usize,
        now: Picos,
        effect: Option<Effect>,
    ) -> Picos {
        let base = self.tree.file(node).map_or(0, |file| file.device_offset);
        if access == Access::Write {
            self.written += bytes as u64;
        }
        let done = match &mut self.model {
            Some(model) => submit(model, now, access, base + offset, bytes),
            None => now,
        };
        let more = if let Some(Effect::Slow(by)) = effect { by } else { Picos(0) };
        let done = done.after(more);
        if access == Access::Write {
            self.busy_until = self.busy_until.max(done);
        }
        done
    }

    fn read(
        &mut self,
        node: NodeId,
        offset: u64,
        to: &mut [u8],
        effect: Option<Effect>,
    ) -> io::Result<usize> {
        let State { tree, faults, .. } = self;
        let sector = tree.sector;
        let Some(file) = tree.file(node) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut from = offset;
        match effect {
            Some(Effect::Fail(failure)) => return Err(failure.error()),
            Some(Effect::Flip) => {
                let bytes = file.len().saturating_sub(offset).min(to.len() as u64);
                let byte = offset + faults.below(bytes);
                let bit = faults.below(8) as u8;
                if let Some(file) = tree.file_mut(node).filter(|_| bytes > 0) {
                    file.flip(byte, bit);
                }
            }
            Some(Effect::Misdirect) => {
                from = elsewhere(faults, file.len(), sector, offset, to.len() as u64);
            }
            _ => {}
        }
        let Some(file) = tree.file(node) else { return Err(io::ErrorKind::NotFound.into()) };
        let read = file.read(from, to);
        if effect == Some(Effect::Short) {
            let sectors = (read as u64).div_ceil(sector);
            return Ok(((faults.below(sectors) * sector) as usize).min(read));
        }
        Ok(read)
    }

    fn write(
        &mut self,
        node: NodeId,
        offset: u64,
        bytes: &[u8],
        effect: Option<Effect>,
        flight: Flight,
    ) -> io::Result<()> {
        let sector = self.tree.sector;
        let sectors = (bytes.len() as u64).div_ceil(sector);
        let len = self.tree.file(node).map_or(0, File::len);
        match effect {
            Some(Effect::Fail(failure)) => Err(failure.error()),
            Some(Effect::Short) => {
                let kept = (self.faults.below(sectors) * sector) as usize;
                self.put(node, offset, &bytes[..kept], flight)?;
                Err(io::ErrorKind::WriteZero.into())
            }
            Some(Effect::LoseSector) => {
                let lost = (self.faults.below(sectors) * sector) as usize;
                self.put(node, offset, &bytes[..lost], flight)?;
                let rest = (lost + sector as usize).min(bytes.len());
                self.put(node, offset + rest as u64, &bytes[rest..], flight)
            }
            Some(Effect::Misdirect) => {
                let to = elsewhere(&mut self.faults, len, sector, offset, bytes.len() as u64);
                self.put(node, to, bytes, flight)
            }
            Some(Effect::Flip) if !bytes.is_empty() => {
                self.put(node, offset, bytes, flight)?;
                let byte = offset + self.faults.below(bytes.len() as u64);
                let bit = self.faults.below(8) as u8;
                if let Some(file) = self.tree.file_mut(node) {
                    file.flip(byte, bit);
                }
                Ok(())
            }
            _ => self.put(node, offset, bytes, flight),
        }
    }

    /// Stores as many bytes as there is room for.
    fn put(&mut self, node: NodeId, offset: u64, bytes: &[u8], flight: Flight) -> io::Result<()> {
        let room = self.room();
        let sector = self.tree.sector;
        let Some(file) = self.tree.file(node) else { return Err(io::ErrorKind::NotFound.into()) };
        let mut fits = bytes.len() as u64;
        if file.missing(offset, fits) > room {
            while file.missing(offset, fits) > room {
                fits = (fits - 1) / sector * sector;
            }
        }
        self.tree.resize(node, |file| {
            file.allocate(offset, fits.next_multiple_of(sector));
            file.write(flight, offset, &bytes[..fits as usize]);
        });
        if fits < bytes.len() as u64 {
            return Err(Failure::NoSpace.error());
        }
        Ok(())
    }

    /// Returns how many more bytes files may take.
    fn room(&self) -> u64 {
        self.faults.plan.capacity.unwrap_or(CAPACITY_MAX).saturating_sub(self.tree.used)
    }

    /// Fails if there is no room.
    fn reserve(&self, bytes: u64) -> io::Result<()> {
        if bytes > self.room() { Err(Failure::NoSpace.error()) } else { Ok(()) }
    }
}

/// Submits a request to a drive. A large one is split, as kernels do, into pieces that are
/// submitted at once, so that the drive sees contiguous writes.
fn submit(
    model: &mut StripedModel,
    now: Picos,
    access: Access,
    mut offset: u64,
    mut bytes: usize,
) -> Picos {
    let mut done = now;
    loop {
        let piece = bytes.min(REQUEST_BYTES_MAX);
        done = done.max(model.submit(now, access, offset, piece as u32));
        offset += piece as u64;
        bytes -= piece;
        if bytes == 0 {
            return done;
        }
    }
}

/// Returns another place in the file for as many bytes, if there is one.
fn elsewhere(faults: &mut Faults, len: u64, sector: u64, offset: u64, bytes: u64) -> u64 {
    let places = (len.saturating_sub(bytes)) / sector + 1;
    let here = offset / sector;
    let to = faults.below(places.saturating_sub(1));
    match places {
        0 | 1 => offset,
        // The right place is left out, so that a fault does occur.
        _ if to >= here => (to + 1).min(places - 1) * sector,
        _ => to * sector,
    }
}

#[cfg(test)]
mod tests;
