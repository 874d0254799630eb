//! Three ways to memory for a cache: values in DRAM, in memory that the system pages to a drive,
//! and on a drive that the cache reads itself. One processor answers gets in virtual time.

use std::sync::Arc;

use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_base::{ByteSize, Clock, Picos};
use entresol_cache::media::{LABEL_BYTES, Medium, Share};
use entresol_cache::{Cache, Config, GetOptions, Lookup, PendingRead, Store, Stored, Worker};
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::Names;
use entresol_media::MediumSpec;
use entresol_media::block::{BlockOptions, IoBuffer};
use entresol_media::model::{BlockModel, ModelName};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};

use super::drive;
use super::load::Load;
use super::paging::{GetWrites, LinkedItems, Pager, PagerCounts, VALUE_BYTES};
use crate::clients::Processors;
use entresol_measure::host::Host;

/// Items: as many in each way, of which a shipped cache holds all.
pub(super) const ITEMS: u32 = 20_000;
/// Bytes of paged memory for each byte of the machine's.
pub(super) const MEMORY_ONE_IN: u64 = 4;
const KEY_BYTES: usize = 20;
/// Gets of each item on average before anything is measured in paged memory.
const WARM_UP_ROUNDS: u32 = 4;
/// Gets in flight of a cache that reads its drive itself, at most.
pub(super) const IN_FLIGHT: usize = 128;
/// Interval at which upkeep looks for work.
const UPKEEP: Picos = Picos::from_micros(100);

/// Place of values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// Values in DRAM.
    Dram,
    /// Values in memory that the system pages to a drive, under a number of threads.
    Paged { model: ModelName, writes: GetWrites, threads: usize },
    /// Values on a drive that the cache reads, with keys and metadata in DRAM.
    Own(ModelName),
}

/// Results of one load.
#[derive(Debug, Clone)]
pub(super) struct Served {
    /// Response times, from the arrival of a get.
    pub(super) times: Histogram,
    pub(super) per_second: f64,
}

/// Results of one way.
#[derive(Debug, Clone)]
pub(super) struct Ran {
    /// Bytes that gets have written to the cache's own drive.
    pub(super) written_by_gets: u64,
    /// Gets one after the other, as many as the processor can answer.
    pub(super) saturated: Served,
    /// Results of the loads below.
    pub(super) points: Vec<Served>,
    /// Counts of the pager, if there is one.
    pub(super) pager: Option<PagerCounts>,
    pub(super) gets: u64,
}

/// Measurement of a way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Measurement {
    pub(super) way: Way,
    /// Processor time of a get, the network's part with it.
    pub(super) cpu: Picos,
    /// Gets of each load.
    pub(super) gets: u64,
    pub(super) seed: u64,
}

/// Formats an error.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Arrivals of gets of random items.
struct Arrivals {
    due: Picos,
    /// Mean time between two arrivals; none if a get arrives as soon as a thread is free.
    gap: Option<Picos>,
    left: u64,
    rng: Rng,
}

impl Arrivals {
    /// Returns the arrival of the next get and its item.
    fn next(&mut self, now: Picos) -> Option<(Picos, u32)> {
        self.left = self.left.checked_sub(1)?;
        let item = self.rng.below(u64::from(ITEMS)) as u32;
        let Some(gap) = self.gap else { return Some((now, item)) };
        self.due = self.due.after(self.rng.poisson_gap(gap));
        Some((self.due, item))
    }
}

/// Machine with one processor, and the values.
struct Machine {
    world: World,
    processors: Arc<Processors>,
    cpu: Picos,
    values: Place,
}

enum Place {
    Cache(CacheOnDrive),
    Paged(Box<LinkedItems>),
}

/// Cache that ships, with its values in DRAM or on a drive.
struct CacheOnDrive {
    cache: Arc<Cache>,
    disk: Option<Disk>,
    names: Names,
    values: ValueMaker,
}

/// State of one thread.
enum Hand<'a> {
    Cache { of: &'a CacheOnDrive, worker: Worker, key: Vec<u8>, out: Vec<u8> },
    Paged(&'a LinkedItems),
}

impl Machine {
    fn new(world: &World, measurement: &Measurement) -> Result<Machine, String> {
        let Measurement { way, cpu, seed, .. } = *measurement;
        let processors = Arc::new(Processors::new(world, 1));
        let values = match way {
            Way::Dram => Place::Cache(CacheOnDrive::new(world, None, seed)?),
            Way::Own(model) => Place::Cache(CacheOnDrive::new(world, Some(model), seed)?),
            Way::Paged { model, writes, .. } => {
                let bytes = LinkedItems::bytes(ITEMS) / MEMORY_ONE_IN;
                let pager = Pager::new(world, &processors, drive(model), bytes);
                let mut rng = world.rng("items");
                let items = LinkedItems::new(pager, ITEMS, writes, &mut rng);
                for _ in 0..ITEMS * WARM_UP_ROUNDS {
                    items.get(rng.below(u64::from(ITEMS)) as u32);
                }
                items.pager().set_timed();
                Place::Paged(Box::new(items))
            }
        };
        Ok(Machine { world: world.clone(), processors, cpu, values })
    }

    fn hand(&self) -> Hand<'_> {
        match &self.values {
            Place::Paged(items) => Hand::Paged(items),
            Place::Cache(of) => {
                let (key, out) = (Vec::new(), Vec::new());
                Hand::Cache { of, worker: of.cache.worker(), key, out }
            }
        }
    }

    fn get(&self, hand: &mut Hand<'_>, item: u32) -> Result<(), String> {
        match hand {
            Hand::Paged(items) => {
                self.processors.spend(self.cpu);
                items.get(item);
                Ok(())
            }
            Hand::Cache { of, worker, key, out } => {
                key.clear();
                out.clear();
                of.names.append(u64::from(item), key);
                let (hash, options) = (worker.hash(key), GetOptions::default());
                let found = worker.get(key, hash, self.world.seconds(), &options, out, |_, _| {});
                match found {
                    Lookup::Miss => Err(format!("item {item} was stored and is not there")),
                    Lookup::Hit(_) => {
                        self.processors.spend(self.cpu);
                        of.values.check(u64::from(item), out).map_err(text)
                    }
                    Lookup::Pending(read) => self.fetch(of, worker, &read, item),
                }
            }
        }
    }

    /// Reads a value from the drive; other gets have the processor meanwhile.
    fn fetch(
        &self,
        of: &CacheOnDrive,
        worker: &mut Worker,
        read: &PendingRead,
        item: u32,
    ) -> Result<(), String> {
        self.processors.spend(self.cpu.after(Host::NVME.submit));
        let file = of.cache.file().ok_or("a value lies on a file, and there is none")?;
        let mut buffer = IoBuffer::new(read.length);
        file.read_at(read.offset, &mut buffer).map_err(text)?;
        self.processors.spend(Host::NVME.complete);
        let failed = |failure| format!("item {item} cannot be read: {failure:?}");
        let range = worker.complete_read(read, &buffer).map_err(failed)?;
        of.values.check(u64::from(item), &buffer[range]).map_err(text)
    }

    /// Answers gets until none arrives.
    fn answer(&self, arrivals: &Mutex<Arrivals>) -> Result<Histogram, String> {
        let (mut hand, mut times) = (self.hand(), Histogram::new());
        loop {
            let next = arrivals.lock().next(self.world.now());
            let Some((due, item)) = next else { return Ok(times) };
            if due > self.world.now() {
                self.world.wait_until(due);
            }
            self.get(&mut hand, item)?;
            times.record(self.world.now().since(due).into());
        }
    }

    fn written(&self) -> u64 {
        match &self.values {
            Place::Cache(CacheOnDrive { disk: Some(disk), .. }) => disk.written_bytes(),
            _ => 0,
        }
    }
}

impl CacheOnDrive {
    /// Opens a cache, stores all items and waits until they are where they belong.
    fn new(world: &World, model: Option<ModelName>, seed: u64) -> Result<CacheOnDrive, String> {
        let bytes = (u64::from(ITEMS) * (VALUE_BYTES + 128) * 3 / 2).next_multiple_of(1 << 20);
        let disk = model.map(|model| {
            let sector = SectorSize::Small;
            let options = DiskOptions { model: Some(model), sector, ..DiskOptions::default() };
            Disk::new(world, options).map_err(text)
        });
        let disk = disk.transpose()?;
        let medium = match &disk {
            None => Medium::Dram,
            Some(disk) => {
                let options =
                    BlockOptions { create: Some(LABEL_BYTES + bytes), ..BlockOptions::default() };
                Medium::File(disk.root().open_block_file("values", &options).map_err(text)?)
            }
        };
        let dram = match model {
            None => 2 * bytes,
            Some(_) => 32 << 20,
        };
        let config = Config {
            medium: model.map_or(MediumSpec::Dram, MediumSpec::Model),
            workers: IN_FLIGHT + 1,
            huge_pages: false,
            seed: Some(seed),
            ..Config::dram(ByteSize(dram))
        };
        let bytes = if disk.is_some() { bytes } else { 0 };
        let share = Share { medium, bytes: ByteSize(bytes), segment_bytes: None };
        let clock = Arc::new(world.clone());
        let cache = Cache::open_on(config, vec![share], None, clock).map_err(text)?;
        let names = Names::new(KEY_BYTES, false).ok_or("keys are too short")?;
        let values = ValueMaker::new(VALUE_BYTES as usize, true, seed);
        let values = values.ok_or("values are too short")?;
        let made = CacheOnDrive { cache, disk, names, values };
        made.fill(world)?;
        Ok(made)
    }

    fn fill(&self, world: &World) -> Result<(), String> {
        let (mut worker, mut values) = (self.cache.worker(), self.values.clone());
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for item in 0..u64::from(ITEMS) {
            key.clear();
            value.clear();
            self.names.append(item, &mut key);
            values.append(item, &mut value);
            loop {
                let (hash, now) = (worker.hash(&key), world.seconds());
                match worker.store(&key, hash, now, &Store::set(&value), None) {
                    Stored::Stored { .. } => break,
                    Stored::Busy => self.upkeep(world),
                    refused => return Err(format!("item {item} is not stored: {refused:?}")),
                }
            }
        }
        // The writer has a second for the segments that are full.
        (0..10_000).for_each(|_| self.upkeep(world));
        Ok(())
    }

    fn upkeep(&self, world: &World) {
        self.cache.maintain(world.seconds());
        world.wait_until(world.now().after(UPKEEP));
    }
}

/// Answers the gets of one load.
fn serve(machine: &Arc<Machine>, threads: usize, load: Load, gets: u64) -> Result<Served, String> {
    let world = &machine.world;
    let begun = world.now();
    let (gap, threads) = match load {
        Load::Closed { depth } => (None, depth),
        Load::Open { per_second } => (Some(Picos((1e12 / per_second) as u64)), threads),
    };
    let rng = world.rng(&format!("gets {load:?}"));
    let arrivals = Arc::new(Mutex::new(Arrivals { due: begun, gap, left: gets, rng }));
    let answering: Vec<_> = (0..threads)
        .map(|_| {
            let (machine, arrivals) = (Arc::clone(machine), Arc::clone(&arrivals));
            thread::spawn("thread", move || machine.answer(&arrivals))
        })
        .collect();
    let mut times = Histogram::new();
    for thread in answering {
        times.merge(&thread.join().map_err(|_| "a thread has panicked")??);
    }
    let per_second = times.count() as f64 / world.now().since(begun).as_secs_f64();
    Ok(Served { times, per_second })
}

/// Measures a way with as many gets as it can answer, and then under the loads, in gets per second,
/// that follow from that.
pub(super) fn run(
    measurement: Measurement,
    loads: impl FnOnce(f64) -> Vec<f64> + 'static,
) -> Result<Ran, String> {
    let options = WorldOptions { steps_max: None, ..WorldOptions::seeded(measurement.seed) };
    let world = World::new(options);
    let within = world.clone();
    let ran = world.run(move || {
        let machine = Arc::new(Machine::new(&within, &measurement)?);
        let threads = match measurement.way {
            Way::Dram => 1,
            Way::Paged { threads, .. } => threads,
            Way::Own(_) => IN_FLIGHT,
        };
        let written = machine.written();
        let serve = |load| serve(&machine, threads, load, measurement.gets);
        let saturated = serve(Load::Closed { depth: threads })?;
        let loads = loads(saturated.per_second);
        let points: Result<Vec<Served>, String> =
            loads.into_iter().map(|per_second| serve(Load::Open { per_second })).collect();
        let points = points?;
        // Closing the cache writes its open segments, which is no part of a get.
        let written_by_gets = machine.written() - written;
        let pager = match &machine.values {
            Place::Paged(items) => Some(items.pager().counts()),
            Place::Cache(of) => {
                of.cache.close().map_err(text)?;
                None
            }
        };
        let gets = measurement.gets * (1 + points.len() as u64);
        Ok(Ran { written_by_gets, saturated, points, pager, gets })
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Measures the mean time of a page fault of a thread that does nothing else, in microseconds.
pub(super) fn fault_us(drive: BlockModel, seed: u64) -> Result<f64, String> {
    const FAULTS: u64 = 2_000;
    let world = World::new(WorldOptions { steps_max: None, ..WorldOptions::seeded(seed) });
    let within = world.clone();
    let ran = world.run(move || {
        let processors = Arc::new(Processors::new(&within, 1));
        let pager = Pager::new(&within, &processors, drive, 1 << 20);
        let mut rng = within.rng("faults");
        pager.set_timed();
        while pager.counts().faults < FAULTS {
            pager.touch(rng.below(SPAN_BYTES), 1, false);
        }
        let counts = pager.counts();
        counts.fault_time.as_secs_f64() * 1e6 / counts.faults as f64
    });
    ran.map_err(text)
}

/// Part of a drive over which faults are spread.
const SPAN_BYTES: u64 = 16 << 30;
