//! Test of 001: one store and one set of clients, first on four drives of the class capacity alone,
//! then with a drive of the class staging beside them.

use std::sync::{Arc, Mutex, PoisonError};

use entresol_base::Picos;
use entresol_base::world::{World, WorldOptions};
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::{Names, Population, Workload};
use entresol_media::cost::Access;
use entresol_media::model::ModelName;
use entresol_media::model::block::{BlockParameters, StripedModel, Stripes};
use entresol_simulated::disk::{Disk, DiskOptions, PageCache};
use entresol_store::{
    Classes, Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, Policy, StoreError, Volume,
};

use crate::Settings;
use crate::clients::{CPU_SAID, Processors, Seen, Subject, Work, carry_out};

/// Records in the paper; each workload has as many operations.
const RECORDS_PUBLISHED: u64 = 2_000_000_000;
const DRAM_PUBLISHED: u64 = 256 << 30;
/// Capacity of the 9300 drive that the model describes; the paper does not state it.
const STAGING_PUBLISHED: u64 = 7_680_000_000_000;
pub(super) const CLIENTS: u32 = 96;
const CORES: usize = 28;
const KVS: &str = "ycsb";
const KEY_BYTES: usize = 23;
const VALUE_BYTES: usize = 1000;
/// Divisor of the DRAM that gives the size of a generation, which is whole MiB and at least one.
const GENERATION_PART: u64 = 8;
const MIB: u64 = 1 << 20;
/// Generations that may wait for their flush. Together with the one being written, they take less
/// than the half of the DRAM that belongs to the system.
const GENERATIONS_WAITING: u32 = 2;
/// Drives of the class capacity.
pub(super) const DRIVES: u32 = 4;
/// Workloads in YCSB's recommended order: the one that inserts comes last.
pub(super) const WORKLOADS: [Workload; 5] =
    [Workload::A, Workload::B, Workload::C, Workload::F, Workload::D];

/// Sizes of the test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Divisor of the paper's numbers.
    pub(super) one_to: u64,
    pub(super) records: u64,
    /// Operations of each workload.
    pub(super) operations: u64,
    pub(super) dram: u64,
    pub(super) staging: u64,
}

impl Size {
    pub(super) fn of(settings: &Settings) -> Size {
        Size::scaled(if settings.full_scale { 1_000 } else { 4_000 })
    }

    pub(super) fn scaled(one_to: u64) -> Size {
        let records = RECORDS_PUBLISHED / one_to;
        Size {
            one_to,
            records,
            operations: records,
            dram: DRAM_PUBLISHED / one_to,
            staging: STAGING_PUBLISHED / one_to,
        }
    }

    /// Returns the DRAM that the system has for pages of mapped files: half.
    fn page_cache(self) -> u64 {
        self.dram / 2
    }

    fn generation(self) -> u64 {
        (self.dram / GENERATION_PART / MIB * MIB).max(MIB)
    }

    /// Returns the store's options. The store may use three quarters of the DRAM but uses less than
    /// half. The remainder of its budget is for indexes and for memory that it does not count.
    fn options(self) -> KvdbOptions {
        let memory_bytes = self.dram / 4 * 3;
        KvdbOptions {
            memory_bytes,
            row_cache_bytes: memory_bytes / 10,
            segment_bytes: self.generation() / 2,
            generation_bytes: self.generation(),
            generations_waiting_max: GENERATIONS_WAITING,
            ..KvdbOptions::default()
        }
    }
}

/// Bytes that were written to the drives of each class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Written {
    pub(super) staging: u64,
    pub(super) capacity: u64,
}

impl Written {
    fn since(self, before: Written) -> Written {
        let (staging, capacity) = (self.staging - before.staging, self.capacity - before.capacity);
        Written { staging, capacity }
    }
}

/// Measurements of a workload.
#[derive(Debug, Clone)]
pub(super) struct Phase {
    pub(super) seen: Seen,
    pub(super) seconds: f64,
    /// Bytes written until the last reply.
    pub(super) written: Written,
    /// Bytes written until all tiering and compaction is done.
    pub(super) written_aged: Written,
    /// Seconds from the last reply until all tiering and compaction is done.
    pub(super) tiering_s: f64,
}

impl Phase {
    pub(super) fn per_second(&self) -> f64 {
        self.seen.operations as f64 / self.seconds
    }
}

/// Set-up of a run.
#[derive(Debug, Clone, Copy)]
pub(super) struct SetUp {
    /// Largest number of bytes on staging, if there is one.
    pub(super) staging: Option<u64>,
    pub(super) workloads: &'static [Workload],
    /// Class whose drives take no time, if a test asks what waiting for them costs.
    pub(super) free: Option<MediaClass>,
    /// Change of the drives' parameters, if a test asks what one of them costs.
    pub(super) drives: fn(&mut BlockParameters),
    /// Processors of the machine.
    pub(super) cores: usize,
}

impl SetUp {
    /// Creates a set-up of all workloads on the drives of the test.
    pub(super) fn of(staging: Option<u64>) -> SetUp {
        SetUp { staging, workloads: &WORKLOADS, free: None, drives: |_| {}, cores: CORES }
    }
}

/// Formats an error.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Simulated machine with a store.
struct Machine {
    world: World,
    processors: Arc<Processors>,
    population: Arc<Population>,
    options: KvdbOptions,
    seed: u64,
    volumes: Vec<Volume>,
    staging: Disk,
    capacity: Disk,
}

impl Machine {
    fn new(world: &World, size: Size, set_up: SetUp, seed: u64) -> Result<Machine, String> {
        let cache = Some(PageCache::new(size.page_cache()));
        let disk = |class, model, drives| {
            let stripes = Stripes { drives, ..Stripes::default() };
            let options = DiskOptions { stripes, cache: cache.clone(), ..DiskOptions::default() };
            match BlockParameters::of(model).filter(|_| set_up.free != Some(class)) {
                None => Disk::new(world, options).map_err(text),
                Some(mut drive) => {
                    (set_up.drives)(&mut drive);
                    Ok(Disk::on_drive(world, options, &drive))
                }
            }
        };
        let staging = disk(MediaClass::Staging, ModelName::Nvme9300, 1)?;
        let capacity = disk(MediaClass::Capacity, ModelName::Qlc5210, DRIVES)?;
        let place = |class, disk: &Disk, name, bytes_max| {
            let directory = disk.root().subdirectory(name).map_err(text)?;
            Ok::<Volume, String>(Volume { class, directory, bytes_max })
        };
        let mut volumes = Vec::new();
        if let Some(most) = set_up.staging {
            volumes.push(place(MediaClass::Staging, &staging, "staging", Some(most))?);
        }
        volumes.push(place(MediaClass::Capacity, &capacity, "capacity", None)?);
        let store = Kvdb::create_on(&volumes, size.options(), Arc::new(world.clone()));
        let store = store.map_err(text)?;
        make_kvs(&store, set_up).map_err(text)?;
        store.close().map_err(text)?;
        Ok(Machine {
            world: world.clone(),
            processors: Arc::new(Processors::new(world, set_up.cores)),
            population: Arc::new(Population::of(0)),
            options: size.options(),
            seed,
            volumes,
            staging,
            capacity,
        })
    }

    /// Opens the store for the next workload.
    fn open(&self) -> Result<(Kvdb, Arc<Subject>), String> {
        let directories: Vec<_> =
            self.volumes.iter().map(|place| place.directory.clone()).collect();
        let (home, others) = directories.split_first().ok_or("there is no volume")?;
        let clock = Arc::new(self.world.clone());
        let store = Kvdb::open_on(home.clone(), others, self.options, clock);
        let store = store.map_err(text)?;
        let subject = Subject {
            world: self.world.clone(),
            processors: self.processors.clone(),
            kvs: store.kvs(KVS).map_err(text)?,
            names: Names::new(KEY_BYTES, false).ok_or("keys are too short")?,
            values: ValueMaker::new(VALUE_BYTES, true, self.seed).ok_or("values are too short")?,
            population: self.population.clone(),
        };
        Ok((store, Arc::new(subject)))
    }

    fn written(&self) -> Written {
        let (staging, capacity) = (self.staging.written_bytes(), self.capacity.written_bytes());
        Written { staging, capacity }
    }

    /// Runs a workload, then all tiering and compaction that it left.
    fn run(&self, workload: Workload, operations: u64) -> Result<Phase, String> {
        let (store, subject) = self.open()?;
        let (begun, before) = (self.world.now(), self.written());
        let seen = carry_out(&subject, Work { workload, clients: CLIENTS, operations })?;
        store.sync().map_err(text)?;
        let (ended, written) = (self.world.now(), self.written().since(before));
        store.compact().map_err(text)?;
        let tiering_s = self.world.now().since(ended).as_secs_f64();
        let seconds = ended.since(begun).as_secs_f64();
        let written_aged = self.written().since(before);
        store.close().map_err(text)?;
        Ok(Phase { seen, seconds, written, written_aged, tiering_s })
    }
}

fn make_kvs(store: &Kvdb, set_up: SetUp) -> Result<Kvs, StoreError> {
    let (staging, capacity) = (Classes::STAGING, Classes::CAPACITY);
    let policy = match set_up.staging {
        Some(_) => Policy { old_values: capacity, ..Policy::all(staging) },
        None => Policy::all(capacity),
    };
    store.create_kvs(KVS, KvsOptions { policy, ..KvsOptions::default() })
}

/// Loads a store and runs the workloads one after the other.
pub(super) fn run(size: Size, set_up: SetUp, seed: u64) -> Result<Vec<Phase>, String> {
    let options = WorldOptions { steps_max: None, ..WorldOptions::seeded(seed) };
    let world = World::new(options);
    let within = world.clone();
    let ran = world.run(move || {
        let machine = Machine::new(&within, size, set_up, seed)?;
        let mut phases = vec![machine.run(Workload::Load, size.records)?];
        for workload in set_up.workloads {
            phases.push(machine.run(*workload, size.operations)?);
        }
        Ok(phases)
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Returns the bytes per second at which drives of a model accept one stream of writes.
pub(super) fn stream_rate(model: ModelName, drives: u32) -> f64 {
    const PIECE: u32 = 128 << 10;
    const PIECES: usize = 16 << 10;
    const UNDER_WAY: usize = 32;
    let Some(parameters) = BlockParameters::of(model) else { return 0.0 };
    let mut drives = StripedModel::new(&parameters, Stripes { drives, ..Stripes::default() });
    let mut done = vec![Picos::ZERO; UNDER_WAY];
    for number in 0..PIECES {
        // Requests come in order of time, each when an earlier one is done.
        let at = done[number % UNDER_WAY];
        let offset = number as u64 * u64::from(PIECE);
        done[number % UNDER_WAY] = drives.submit(at, Access::Write, offset, PIECE);
    }
    let last = done.into_iter().fold(Picos::ZERO, Picos::max);
    PIECES as f64 * f64::from(PIECE) / last.as_secs_f64()
}

/// Results of both set-ups.
#[derive(Debug)]
pub(super) struct Runs {
    size: Size,
    /// Load, followed by the workloads.
    alone: Vec<Phase>,
    staged: Vec<Phase>,
}

/// Results of one workload in both set-ups.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pair<'a> {
    pub(super) alone: &'a Phase,
    pub(super) staged: &'a Phase,
}

impl Pair<'_> {
    /// Returns the figure with staging divided by the one without.
    pub(super) fn ratio(&self, of: impl Fn(&Phase) -> f64) -> f64 {
        of(self.staged) / of(self.alone)
    }
}

impl Runs {
    pub(super) fn of(&self, workload: Workload) -> Pair<'_> {
        let place = WORKLOADS.iter().position(|it| *it == workload).map_or(0, |place| place + 1);
        Pair { alone: &self.alone[place], staged: &self.staged[place] }
    }

    /// Describes the scenario in sentences.
    pub(super) fn scenario(&self) -> Vec<String> {
        let Size { one_to, records, operations, dram, staging } = self.size;
        let options = self.size.options();
        let size = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
        vec![
            format!(
                "{records} records of {VALUE_BYTES} B with keys of {KEY_BYTES} B (the paper's 2 G, \
                 1:{one_to}), {operations} operations in each workload, \
                 {CLIENTS} clients in a closed loop on {CORES} processors, {} of DRAM \
                 (1:{one_to}).",
                size(dram)
            ),
            format!(
                "The class capacity is {DRIVES} drives of the model qlc-5210, striped by 64 \
                 KiB; staging \
                 is one nvme-9300 of {} (chosen: 7.68 TB, 1:{one_to}). The policies are \
                 capacity-only, and as in the paper one that puts old values on capacity although \
                 there is room on staging; store, clients and seed are the same.",
                size(staging)
            ),
            format!(
                "Chosen: the store may use {} of DRAM, {} of it for the row cache, and the system \
                 holds {} of mapped pages; generations of {}, {GENERATIONS_WAITING} of which may \
                 wait, in segments of {}; durable within 100 ms.",
                size(options.memory_bytes),
                size(options.row_cache_bytes),
                size(self.size.page_cache()),
                size(options.generation_bytes),
                size(options.segment_bytes),
            ),
            "Each workload opens the store anew, ends with a sync, and is followed by all the \
             tiering and compaction that it has left, which is no part of its time. YCSB's order: \
             load, A, B, C, F, D."
                .to_owned(),
            CPU_SAID.to_owned(),
        ]
    }
}

/// Most recent run, which four entries share.
static LAST: Mutex<Option<(u64, Size, Ran)>> = Mutex::new(None);

/// Results of both set-ups, or the error.
type Ran = Arc<Result<Runs, String>>;

/// Returns the results of both set-ups; they are run unless the last run had the same settings.
pub(super) fn runs(settings: &Settings) -> Ran {
    let size = Size::of(settings);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, of, runs)) = &*last
        && (*seed, *of) == (settings.seed, size)
    {
        return Arc::clone(runs);
    }
    let both = || {
        let alone = run(size, SetUp::of(None), settings.seed)?;
        let staged = run(size, SetUp::of(Some(size.staging)), settings.seed)?;
        Ok(Runs { size, alone, staged })
    };
    let runs = Arc::new(both());
    *last = Some((settings.seed, size, Arc::clone(&runs)));
    runs
}
