//! Cache whose values lie on a model of a device, in virtual time.
//!
//! The cache is the one that ships: its index, segments, eviction and upkeep run as in a server.
//! The time of its accesses to the medium is the model's. Its work in DRAM is charged by lines.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use entresol_base::clock::Picos;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_base::{ByteSize, Clock};
use entresol_cache::media::{LABEL_BYTES, Medium, Share, ValueRegion};
use entresol_cache::{Cache, Config, GetOptions, Lookup, PendingRead, Store, Stored, Worker};
use entresol_measure::BenchError;
use entresol_measure::index::{CPU_PER_OPERATION, DRAM_LINE, Device};
use entresol_media::block::IoBuffer;
use entresol_media::model::memory::{MediumCounts, Parameters};
use entresol_media::{BlockOptions, MediumKind, MediumSpec, ModelName, Observed};
use entresol_simulated::disk::{Disk, DiskOptions};

use super::cache_error;

/// Lines of DRAM that a get of an item touches one after the other: its bucket, and its key.
const LINES_OF_HIT: u64 = 2;
/// Line of DRAM that a get without an item touches: the bucket.
const LINES_OF_MISS: u64 = 1;
/// Lines of DRAM that a set touches: the bucket, the old item's key, and the new one.
const LINES_OF_SET: u64 = 3;
/// Interval at which upkeep looks for work.
const UPKEEP: Picos = Picos::from_millis(1);
/// Wait of a store while all write buffers are being written.
const BUSY: Picos = Picos::from_micros(20);
/// Name of the values' file on a model of a drive.
const FILE: &str = "values";

/// Sizes of a cache on a model.
#[derive(Debug, Clone)]
pub struct LabOptions {
    /// Model of the medium.
    pub model: ModelName,
    /// Bytes of the medium.
    pub medium_bytes: u64,
    /// Bytes of DRAM, for keys, tables and write buffers.
    pub dram_bytes: u64,
    /// Number of threads.
    pub workers: usize,
    /// Seed of the cache.
    pub seed: u64,
}

impl LabOptions {
    /// Returns sizes with room for `count` objects and half as much again, which overwriting them
    /// leaves dead for a while.
    #[must_use]
    pub fn with_room(model: ModelName, count: u64, (key, value): (usize, usize)) -> LabOptions {
        let medium_bytes = (count * (value as u64 + 16) * 3 / 2).next_multiple_of(1 << 20);
        let dram_bytes = 2 * count * (key as u64 + 64);
        LabOptions {
            model,
            medium_bytes: medium_bytes + (8 << 20),
            dram_bytes: dram_bytes + (64 << 20),
            workers: 1,
            seed: 1,
        }
    }
}

/// Device of a model.
enum Modelled {
    Memory(Arc<Device>),
    Drive,
}

/// A cache on a model of a device.
pub struct CacheLab {
    world: World,
    modelled: Modelled,
    cache: Arc<Cache>,
}

impl CacheLab {
    /// Opens an empty cache. The caller runs inside the world.
    ///
    /// # Errors
    /// Fails if the model is that of DRAM, or the cache cannot have these sizes.
    pub fn new(world: &World, options: &LabOptions) -> Result<CacheLab, BenchError> {
        let model = options.model;
        let medium = MediumSpec::Model(model);
        if medium.kind() == MediumKind::Dram {
            return Err(BenchError::Usage(format!(
                "{medium}: values in DRAM lie beside their keys: use dram, or one of {}",
                known_models()
            )));
        }
        let system = |source| BenchError::System { what: "a simulated medium", source };
        let Some(parameters) = Parameters::of(model) else {
            let disk = DiskOptions { model: Some(model), ..DiskOptions::default() };
            let disk = Disk::new(world, disk).map_err(system)?;
            let create = Some(LABEL_BYTES + options.medium_bytes);
            let file = BlockOptions { create, ..BlockOptions::default() };
            let file = disk.root().open_block_file(FILE, &file).map_err(cache_error)?;
            return CacheLab::over(world, options, Medium::File(file), Modelled::Drive);
        };
        let device = Device::new(world, parameters);
        let region = Observed::new(LABEL_BYTES + options.medium_bytes, Arc::clone(&device));
        let region = region.map_err(cache_error)?;
        CacheLab::on_region(world, options, Box::new(region), device)
    }

    /// Opens an empty cache on a region that `device` observes.
    ///
    /// # Errors
    /// Fails if the cache cannot have these sizes.
    pub fn on_region(
        world: &World,
        options: &LabOptions,
        region: Box<dyn ValueRegion>,
        device: Arc<Device>,
    ) -> Result<CacheLab, BenchError> {
        CacheLab::over(world, options, Medium::Region(region), Modelled::Memory(device))
    }

    fn over(
        world: &World,
        options: &LabOptions,
        medium: Medium,
        modelled: Modelled,
    ) -> Result<CacheLab, BenchError> {
        let config = Config {
            medium: MediumSpec::Model(options.model),
            workers: options.workers,
            huge_pages: false,
            seed: Some(options.seed),
            ..Config::dram(ByteSize(options.dram_bytes))
        };
        let share = Share { medium, bytes: ByteSize(options.medium_bytes), segment_bytes: None };
        let clock = Arc::new(world.clone());
        let cache = Cache::open_on(config, vec![share], None, clock).map_err(cache_error)?;
        Ok(CacheLab { world: world.clone(), modelled, cache })
    }

    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Returns the units that a model of memory has read and written; none for a drive.
    #[must_use]
    pub fn units(&self) -> Option<MediumCounts> {
        match &self.modelled {
            Modelled::Memory(device) => Some(device.counts()),
            Modelled::Drive => None,
        }
    }

    /// Returns a handle for one simulated thread.
    #[must_use]
    pub fn hand(&self) -> Hand {
        let (world, cache) = (self.world.clone(), Arc::clone(&self.cache));
        Hand { worker: cache.worker(), world, cache, lines_of_hit: LINES_OF_HIT, out: Vec::new() }
    }

    /// Runs `work` on each hand in a simulated thread of its own, with the device timed and upkeep
    /// beside them. Returns the results in the order of the hands, and the time of the last.
    ///
    /// # Errors
    /// Fails if a thread panics.
    pub fn run<T: Send + 'static>(
        &self,
        hands: Vec<Hand>,
        work: impl Fn(usize, Hand) -> T + Send + Sync + 'static,
    ) -> Result<(Vec<T>, Picos), BenchError> {
        if let Modelled::Memory(device) = &self.modelled {
            device.set_timed(true);
        }
        let began = self.world.now();
        let work = Arc::new(work);
        let start = |(number, hand): (usize, Hand)| {
            let work = Arc::clone(&work);
            thread::spawn("worker", move || work(number, hand))
        };
        let threads: Vec<_> = hands.into_iter().enumerate().map(start).collect();
        let done = Arc::new(AtomicBool::new(false));
        let upkeep = self.upkeep(&done);
        let ended: Vec<_> = threads.into_iter().map(|thread| thread.join()).collect();
        let passed = self.world.now().since(began);
        done.store(true, Relaxed);
        let upkeep = upkeep.join();
        if let Modelled::Memory(device) = &self.modelled {
            device.set_timed(false);
        }
        let panicked = || BenchError::Failed("a simulated thread panicked".to_owned());
        upkeep.map_err(|_| panicked())?;
        let results: Result<Vec<T>, _> = ended.into_iter().collect();
        Ok((results.map_err(|_| panicked())?, passed))
    }

    fn upkeep(&self, done: &Arc<AtomicBool>) -> thread::JoinHandle<()> {
        let (world, cache, done) = (self.world.clone(), Arc::clone(&self.cache), Arc::clone(done));
        thread::spawn("upkeep", move || {
            while !done.load(Relaxed) {
                while cache.maintain(world.seconds()) {
                    thread::step();
                }
                world.wait_until(world.now().after(UPKEEP));
            }
        })
    }
}

/// One simulated thread's handle on a cache on a model.
pub struct Hand {
    world: World,
    cache: Arc<Cache>,
    worker: Worker,
    lines_of_hit: u64,
    out: Vec<u8>,
}

impl Hand {
    /// Returns the world.
    #[must_use]
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Charges gets as if keys did not lie in DRAM: the bucket is their only line there.
    #[must_use]
    pub fn without_keys_in_dram(self) -> Hand {
        Hand { lines_of_hit: LINES_OF_MISS, ..self }
    }

    /// Gets an item and returns true if there is one.
    ///
    /// # Errors
    /// Fails if the medium cannot be read.
    pub fn get(&mut self, key: &[u8]) -> Result<bool, BenchError> {
        let hash = self.worker.hash(key);
        self.out.clear();
        let (now, options) = (self.world.seconds(), GetOptions::default());
        self.world.spend(CPU_PER_OPERATION);
        let found = self.worker.get(key, hash, now, &options, &mut self.out, |_, _| {});
        let lines = if found == Lookup::Miss { LINES_OF_MISS } else { self.lines_of_hit };
        self.world.spend(Picos(lines * DRAM_LINE.0));
        match found {
            Lookup::Hit(_) => Ok(true),
            Lookup::Miss => Ok(false),
            Lookup::Pending(read) => self.fetch(&read),
        }
    }

    fn fetch(&mut self, read: &PendingRead) -> Result<bool, BenchError> {
        let Some(file) = self.cache.file() else { return Ok(false) };
        let mut buffer = IoBuffer::new(read.length);
        let system = |source| BenchError::System { what: "reading the medium", source };
        file.read_at(read.offset, &mut buffer).map_err(system)?;
        Ok(self.worker.complete_read(read, &buffer).is_ok())
    }

    /// Stores an item and returns true if it was accepted.
    pub fn set(&mut self, key: &[u8], value: &[u8]) -> bool {
        let hash = self.worker.hash(key);
        self.world.spend(Picos(CPU_PER_OPERATION.0 + LINES_OF_SET * DRAM_LINE.0));
        loop {
            let now = self.world.seconds();
            match self.worker.store(key, hash, now, &Store::set(value), None) {
                Stored::Busy => self.world.wait_until(self.world.now().after(BUSY)),
                stored => return matches!(stored, Stored::Stored { .. }),
            }
        }
    }
}

/// Names the models that a cache's values can lie on.
#[must_use]
pub fn known_models() -> String {
    let names = ModelName::ALL.into_iter();
    let names = names.filter(|&model| MediumSpec::Model(model).kind() != MediumKind::Dram);
    names.map(|model| format!("model:{model}")).collect::<Vec<_>>().join(", ")
}
