//! The machine on which a history runs: media and files that outlive the process.

use std::io::{self, Cursor, Read, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::rng::Rng;
use entresol_base::world::World;
use entresol_base::{ByteSize, ManualClock};
use entresol_media::model::memory::Parameters;
use entresol_media::{
    BlockOptions, Direct, Directory, FlushKind, MediumSpec, ModelName, Observed, RegionError,
};
use entresol_simulated::SimulatedMemory;
use entresol_simulated::disk::{Disk, DiskOptions, FaultPlan};

use super::{Kind, Trial};
use crate::label::LABEL_BYTES;
use crate::media::{Medium, RestartFiles, Share};
use crate::{Cache, Config, OpenError};

/// Bytes of a segment.
pub(super) const SEGMENT_BYTES: u64 = 64 << 10;
/// Fewest and most segments of a quota.
pub(super) const SEGMENTS: (u64, u64) = (16, 20);
/// Largest value that lies in pieces: half of the smallest quota.
pub(super) const LARGE_BYTES_MAX: u64 = 8 * SEGMENT_BYTES;
/// Bytes of DRAM where values lie elsewhere: two write buffers take an eighth.
const DRAM_BYTES: u64 = 16 * SEGMENT_BYTES;
const VALUES: &str = "values";
const SNAPSHOT: &str = "snapshot";
/// Bytes of the map's header, which the cache makes durable.
const MAP_HEADER_BYTES: u64 = 4096;

/// State that outlives a process.
#[derive(Clone)]
pub(super) struct Machine {
    pub(super) kind: Kind,
    /// Model of the medium of values.
    model: Option<ModelName>,
    pub(super) disk: Disk,
    /// Values in persistent memory.
    region: Option<Arc<Direct>>,
    map: Arc<Mutex<MapFile>>,
    /// Number of this boot.
    boot: u32,
    /// Segments of the quota at the next opening.
    pub(super) segments: u64,
    pub(super) workers: usize,
}

#[derive(Default)]
struct MapFile {
    bytes: Option<Arc<Direct>>,
    /// The map's bytes when it was last opened: any of them may be found after a power cut.
    durable: Vec<u8>,
    /// Number of lives drawn.
    lives: u64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Machine {
    /// Makes a machine on which no cache has run, in the running world.
    pub(super) fn new(trial: &Trial, world: &World) -> Result<Machine, String> {
        let &Trial { kind, model, threads, .. } = trial;
        let disk = Disk::new(world, disk_options(model)).map_err(|error| error.to_string())?;
        let region = match kind {
            Kind::Pmem => Some(direct(LABEL_BYTES + SEGMENTS.1 * SEGMENT_BYTES)?),
            Kind::Dram | Kind::File => None,
        };
        let map = Arc::default();
        let (segments, workers) = (SEGMENTS.0, threads.into());
        Ok(Machine { kind, model, disk, region, map, boot: 1, segments, workers })
    }

    /// Returns the machine as the death of the process leaves it now, for another world.
    pub(super) fn killed(&self, world: &World) -> Result<Machine, String> {
        let disk = self.disk.reopen(world, disk_options(self.model));
        let disk = disk.map_err(|error| error.to_string())?;
        self.with(disk, self.boot, |now, _| now)
    }

    /// Returns the machine as a power cut leaves it now.
    pub(super) fn cut(&self, world: &World, rng: &mut Rng) -> Result<Machine, String> {
        let disk = self.disk.random_image(rng).reopen(world, disk_options(self.model));
        let disk = disk.map_err(|error| error.to_string())?;
        self.with(disk, self.boot + 2, |now, old| if rng.one_in(2) { now } else { old })
    }

    fn with(
        &self,
        disk: Disk,
        boot: u32,
        mut choose: impl FnMut(u64, u64) -> u64,
    ) -> Result<Machine, String> {
        let region = self.region.as_ref().map(|region| copy(region)).transpose()?;
        let map = lock(&self.map);
        let bytes = map.bytes.as_ref().map(|bytes| copy(bytes)).transpose()?;
        if let Some(bytes) = &bytes {
            let words = map.durable.as_chunks::<8>().0;
            for (number, word) in words.iter().enumerate().skip(MAP_HEADER_BYTES as usize / 8) {
                let at = number as u64 * 8;
                let order = std::sync::atomic::Ordering::Relaxed;
                let now = bytes.load_u64(at, order);
                bytes.store_u64(at, choose(now, u64::from_le_bytes(*word)), order);
            }
        }
        let durable = bytes.as_ref().map(|bytes| contents(bytes)).unwrap_or_default();
        let map = Arc::new(Mutex::new(MapFile { bytes, durable, lives: map.lives }));
        Ok(Machine { disk, region, map, boot, ..self.clone() })
    }

    /// Opens the cache.
    pub(super) fn open(&self, clock: &Arc<ManualClock>) -> Result<Arc<Cache>, OpenError> {
        let spec = match self.kind {
            Kind::Dram => MediumSpec::Dram,
            Kind::Pmem => MediumSpec::Model(self.model.unwrap_or(ModelName::Aep)),
            Kind::File => MediumSpec::Model(self.model.unwrap_or(ModelName::OptaneSsd)),
        };
        let bytes = self.segments * SEGMENT_BYTES;
        let dram = if self.kind == Kind::Dram { bytes } else { DRAM_BYTES };
        let config = Config {
            medium: spec,
            medium_bytes: ByteSize(bytes),
            segment_bytes: Some(ByteSize(SEGMENT_BYTES)),
            value_bytes_max: Some(ByteSize(LARGE_BYTES_MAX)),
            workers: self.workers,
            huge_pages: false,
            seed: Some(11),
            ..Config::dram(ByteSize(dram))
        };
        let medium = match (self.kind, &self.region) {
            (Kind::Pmem, Some(region)) => {
                let (region, world) = (Arc::clone(region), World::current());
                match (self.model.and_then(Parameters::of), world) {
                    (Some(parameters), Some(world)) => {
                        let memory = SimulatedMemory::new(&world, parameters);
                        Medium::Region(Box::new(Observed::over(region, FlushKind::Clwb, memory)))
                    }
                    _ => Medium::Region(Box::new(Observed::over(region, FlushKind::Clwb, ()))),
                }
            }
            (Kind::File, _) => {
                let create = Some(LABEL_BYTES + bytes);
                let options = BlockOptions { create, grow: true, ..BlockOptions::default() };
                Medium::File(self.disk.root().open_block_file(VALUES, &options)?)
            }
            _ => Medium::Dram,
        };
        let share =
            Share { medium, bytes: ByteSize(bytes), segment_bytes: Some(ByteSize(SEGMENT_BYTES)) };
        let files = Arc::new(Files { machine: self.clone() });
        Cache::open_on(config, vec![share], Some(files), Arc::clone(clock) as _)
    }

    /// Damages the files of a process that has ended: one place of the map, or any of the others.
    pub(super) fn damage(&self, rng: &mut Rng) -> Result<String, String> {
        self.inject(FaultPlan::default());
        let map = lock(&self.map).bytes.clone();
        let text = |error: entresol_media::FileError| error.to_string();
        let root = self.disk.root();
        match rng.below(6) {
            0..3 => {
                let Some(map) = map else { return Ok("nothing".to_owned()) };
                let order = std::sync::atomic::Ordering::Relaxed;
                let of_header = rng.one_in(4);
                let len = if of_header { 104 } else { map.len() };
                let (mut at, mut bit) = (8 + rng.below(len - 8), rng.below(8));
                if !of_header && rng.below(4) > 0 {
                    // Most bits are clear; one that is set says more.
                    let is_set = |at: &u64| map.load_u8(*at, order) != 0;
                    let set: Vec<u64> = (MAP_HEADER_BYTES..map.len()).filter(is_set).collect();
                    at = rng.choose(&set).copied().unwrap_or(at);
                    bit = u64::from(map.load_u8(at, order).trailing_zeros() % 8);
                }
                let byte = map.load_u8(at, order);
                map.store_u8(at, byte ^ (1 << bit), order);
                Ok(format!("bit {bit} of byte {at} of the map"))
            }
            3 => {
                let Ok(mut bytes) = root.read(SNAPSHOT) else { return Ok("nothing".to_owned()) };
                if bytes.is_empty() || rng.one_in(4) {
                    bytes.truncate(rng.below(bytes.len() as u64 + 1) as usize);
                } else {
                    let at = rng.index(bytes.len());
                    bytes[at] ^= 1 << rng.below(8);
                }
                root.replace(SNAPSHOT, &bytes).map_err(text)?;
                Ok("the snapshot".to_owned())
            }
            _ => {
                let len = LABEL_BYTES + self.segments * SEGMENT_BYTES;
                for _ in 0..1 + rng.below(8) {
                    let (at, bit) = (rng.below(len), rng.below(8));
                    if let Some(region) = &self.region {
                        let order = std::sync::atomic::Ordering::Relaxed;
                        let byte = region.load_u8(at, order);
                        region.store_u8(at, byte ^ (1 << bit), order);
                    } else if self.kind == Kind::File {
                        // A file that is shorter stays as it is.
                        let _ = self.disk.flip(VALUES, at, bit as u8);
                    }
                }
                Ok("the values".to_owned())
            }
        }
    }

    /// Replaces the disk's faults.
    pub(super) fn inject(&self, plan: FaultPlan) {
        self.disk.inject(plan);
    }
}

/// Returns the options of a disk; of a model of memory it has none.
fn disk_options(model: Option<ModelName>) -> DiskOptions {
    DiskOptions { model: model.filter(|model| !model.is_memory()), ..DiskOptions::default() }
}

fn direct(bytes: u64) -> Result<Arc<Direct>, String> {
    Direct::anonymous(bytes, false).map(Arc::new).map_err(|error| error.to_string())
}

fn contents(bytes: &Direct) -> Vec<u8> {
    let mut copy = vec![0; bytes.len() as usize];
    bytes.read(0, &mut copy);
    copy
}

fn copy(from: &Direct) -> Result<Arc<Direct>, String> {
    let to = direct(from.len())?;
    to.write(0, &contents(from));
    Ok(to)
}

/// Restart directory of the machine.
struct Files {
    machine: Machine,
}

impl RestartFiles for Files {
    fn path(&self) -> &Path {
        Path::new(SNAPSHOT)
    }

    fn map(&self, bytes: u64, magic: [u8; 8]) -> Result<(Arc<Direct>, u64), RegionError> {
        let mut map = lock(&self.machine.map);
        let found = map.bytes.as_ref().map_or(0, |bytes| bytes.len());
        let opened = match &map.bytes {
            Some(there) if found >= bytes => Arc::clone(there),
            there => {
                let larger = Arc::new(Direct::anonymous(bytes, false)?);
                match there {
                    Some(there) => larger.write(0, &contents(there)),
                    None => larger.write(0, &magic),
                }
                larger
            }
        };
        map.durable = contents(&opened);
        map.bytes = Some(Arc::clone(&opened));
        Ok((opened, found))
    }

    fn read_map(&self, beginning: &mut [u8]) -> io::Result<()> {
        let map = lock(&self.machine.map);
        match &map.bytes {
            Some(there) if there.len() >= beginning.len() as u64 => {
                there.read(0, beginning);
                Ok(())
            }
            _ => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn has_snapshot(&self) -> bool {
        self.machine.disk.root().find(SNAPSHOT).is_ok_and(|found| found.is_some())
    }

    fn read_snapshot(&self) -> io::Result<Box<dyn Read + Send>> {
        let bytes = self.machine.disk.root().read(SNAPSHOT).map_err(io::Error::other)?;
        Ok(Box::new(Cursor::new(bytes)))
    }

    fn write_snapshot(&self) -> io::Result<Box<dyn Write + Send>> {
        Ok(Box::new(Snapshot { bytes: Vec::new(), directory: self.machine.disk.root() }))
    }

    fn sync_snapshot(&self) -> io::Result<()> {
        self.machine.disk.root().sync().map_err(io::Error::other)
    }

    fn remove_snapshot(&self) -> io::Result<()> {
        self.machine.disk.root().remove(SNAPSHOT).map_err(io::Error::other)
    }

    fn boot(&self) -> u32 {
        self.machine.boot
    }

    fn new_life(&self) -> u64 {
        let mut map = lock(&self.machine.map);
        map.lives += 1;
        map.lives
    }
}

/// Snapshot being written.
struct Snapshot {
    bytes: Vec<u8>,
    directory: Arc<dyn Directory>,
}

impl Write for Snapshot {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.directory.replace(SNAPSHOT, &self.bytes).map_err(io::Error::other)
    }
}
