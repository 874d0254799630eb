//! Gets from eight stores on one drive, over threads, for figures 9 and 10 of 004.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::Names;
use entresol_media::model::ModelName;
use entresol_media::{BlockFile, BlockOptions, IoBuffer};
use entresol_simulated::disk::{Disk, DiskOptions, PageCache};
use entresol_store::{Kvdb, KvdbOptions, Kvs, KvsOptions};

use crate::Settings;
use crate::clients::{CPU_GET, CPU_PUT, CPU_SAID, Processors};

/// Thread counts: chosen; one of them is [`CORES`].
pub(super) const THREADS: [usize; 7] = [1, 4, 8, 16, 24, 32, 48];
pub(super) const CORES: usize = 24;
const STORES: usize = 8;
/// Number of keys: the paper's 200 million, 1:400.
const KEYS: u64 = 500_000;
const ONE_TO: u64 = 400;
const KEY_BYTES: usize = 20;
/// Bytes of the paper's values of 800 bytes after compression; our store does not compress.
const VALUE_BYTES: usize = 400;
/// Updates per second of the writer.
const UPDATES_S: u64 = 80_000;
/// Gets per thread and point; above [`THREADS_WHOLE`] threads the total stays.
const GETS: u64 = 2_500;
const THREADS_WHOLE: u64 = 16;
/// Bytes of the page cache: few enough that gets reach the drive, as in the paper.
const PAGE_CACHE: u64 = 16 << 20;

/// Results at one number of threads.
#[derive(Debug, Clone)]
pub(super) struct Point {
    pub(super) per_second: f64,
    pub(super) times: Histogram,
}

/// Results of one drive for each number of threads: reading alone, and beside the writer.
#[derive(Debug)]
pub(super) struct Curves {
    pub(super) reading: Vec<Point>,
    pub(super) beside: Vec<Point>,
}

/// Results of both drives.
#[derive(Debug)]
pub(super) struct Drives {
    pub(super) optane: Curves,
    pub(super) nand: Curves,
}

/// Difference of a run from ours, if a test asks what it costs.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Beside {
    /// Processor time of a get beside [`CPU_GET`].
    pub(super) own: Picos,
    /// Bytes that compactions read, and that they write, for each one that is put.
    pub(super) compacted: u64,
}

/// Compactions of a leveled tree, as far as the drive sees them.
struct Compactions {
    file: Arc<dyn BlockFile>,
    /// Bytes a second that they read, and that they write.
    bytes_s: u64,
}

/// Threads that compact at the same time, and bytes that they write at once: `bytes_per_sync`.
const COMPACTING: u64 = 16;
const BURST: u64 = 8 << 20;
/// Bytes of a request to the drive.
const PIECE: u64 = 128 << 10;
const SCRATCH: u64 = 128 << 20;

/// Stores, and the state that their clients share.
struct Stores {
    world: World,
    processors: Processors,
    own: Picos,
    compactions: Option<Compactions>,
    kvs: Vec<Kvs>,
    names: Names,
    values: ValueMaker,
}

/// Formats an error.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 512 << 10,
        generation_bytes: 512 << 10,
        generations_waiting_max: 2,
        // The memory holds all keys; values are read from the drive.
        memory_bytes: 10 << 20,
        row_cache_bytes: 0,
        ..KvdbOptions::default()
    }
}

impl Stores {
    fn put(&self, number: u64, values: &mut ValueMaker) -> Result<(), String> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.names.append(number, &mut key);
        values.append(number, &mut value);
        self.processors.spend(CPU_PUT);
        self.kvs[number as usize % STORES].put(&key, &value).map(drop).map_err(text)
    }

    /// Reads random keys and returns the response times.
    fn read(&self, count: u64, mut rng: Rng) -> Result<Histogram, String> {
        let mut times = Histogram::new();
        let (mut key, mut value) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let number = rng.below(KEYS);
            key.clear();
            value.clear();
            self.names.append(number, &mut key);
            let begun = self.world.now();
            self.processors.spend(CPU_GET.after(self.own));
            let found = self.kvs[number as usize % STORES].get_into(&key, &mut value);
            times.record(self.world.now().since(begun).into());
            if !found.map_err(text)? {
                return Err(format!("key {number} was put and is not there"));
            }
            self.values.check(number, &value).map_err(text)?;
        }
        Ok(times)
    }

    /// Updates random keys, each at its due time, until `is_over` is set.
    fn update(&self, is_over: &AtomicBool, mut rng: Rng) -> Result<(), String> {
        let mut values = self.values.clone();
        let mut due = self.world.now();
        while !is_over.load(Relaxed) {
            self.put(rng.below(KEYS), &mut values)?;
            due = due.after(Picos(1_000_000_000_000 / UPDATES_S));
            if due > self.world.now() {
                self.world.wait_until(due);
            }
        }
        Ok(())
    }
}

impl Compactions {
    /// Reads and writes one thread's part of each burst, until `is_over` is set.
    fn run(&self, world: &World, number: u64, is_over: &AtomicBool) -> Result<(), String> {
        let period = Picos(BURST * 1_000_000_000_000 / self.bytes_s);
        let mut piece = IoBuffer::new(PIECE as usize);
        let (mut due, mut at) = (world.now(), number * (SCRATCH / COMPACTING));
        let end = at + SCRATCH / COMPACTING;
        while !is_over.load(Relaxed) {
            for _ in 0..BURST / PIECE / COMPACTING {
                self.file.read_at(at, &mut piece).map_err(text)?;
                self.file.write_at(at, &piece).map_err(text)?;
                at += PIECE;
                if at == end {
                    at -= SCRATCH / COMPACTING;
                }
            }
            due = due.after(period);
            if due > world.now() {
                world.wait_until(due);
            }
        }
        Ok(())
    }
}

/// Runs `threads` readers, alone or beside the writer.
fn point(stores: &Arc<Stores>, threads: usize, has_writer: bool) -> Result<Point, String> {
    let world = &stores.world;
    let rng = |who: &str| world.rng(&format!("{who} of {threads} {has_writer}"));
    let is_over = Arc::new(AtomicBool::new(false));
    let writer = has_writer.then(|| {
        let (stores, is_over, rng) = (stores.clone(), is_over.clone(), rng("writer"));
        thread::spawn("writer", move || stores.update(&is_over, rng))
    });
    let compacting: Vec<_> = (0..COMPACTING)
        .filter(|_| has_writer && stores.compactions.is_some())
        .map(|number| {
            let (stores, is_over) = (stores.clone(), is_over.clone());
            thread::spawn("compaction", move || {
                let all = stores.compactions.as_ref();
                all.map_or(Ok(()), |it| it.run(&stores.world, number, &is_over))
            })
        })
        .collect();
    let begun = world.now();
    let each = (GETS * THREADS_WHOLE / (threads as u64).max(THREADS_WHOLE)).max(1);
    let readers: Vec<_> = (0..threads)
        .map(|number| {
            let (stores, rng) = (stores.clone(), rng(&format!("reader {number}")));
            thread::spawn("reader", move || stores.read(each, rng))
        })
        .collect();
    let mut times = Histogram::new();
    for reader in readers {
        times.merge(&reader.join().map_err(|_| "a reader has panicked")??);
    }
    let per_second = times.count() as f64 / world.now().since(begun).as_secs_f64();
    is_over.store(true, Relaxed);
    if let Some(writer) = writer {
        writer.join().map_err(|_| "the writer has panicked")??;
    }
    for thread in compacting {
        thread.join().map_err(|_| "a compaction has panicked")??;
    }
    Ok(Point { per_second, times })
}

/// Runs all numbers of threads on a drive.
pub(super) fn curves(model: ModelName, differs: Beside, seed: u64) -> Result<Curves, String> {
    let world = World::new(WorldOptions { steps_max: None, ..WorldOptions::seeded(seed) });
    let within = world.clone();
    let ran = world.run(move || {
        let cache = Some(PageCache::new(PAGE_CACHE));
        let options = DiskOptions { model: Some(model), cache, ..DiskOptions::default() };
        let disk = Disk::new(&within, options).map_err(text)?;
        load(&within, &disk, seed)?;
        let opened = open(&within, &disk)?;
        let stores = Stores {
            world: within.clone(),
            processors: Processors::new(&within, CORES),
            own: differs.own,
            compactions: compactions(&disk, differs.compacted)?,
            kvs: opened
                .iter()
                .map(|store| store.kvs(KVS))
                .collect::<Result<_, _>>()
                .map_err(text)?,
            names: Names::new(KEY_BYTES, false).ok_or("keys are too short")?,
            values: ValueMaker::new(VALUE_BYTES, true, seed).ok_or("values are too short")?,
        };
        let stores = Arc::new(stores);
        // A first round of reads brings the keys into memory.
        stores.read(KEYS / 5, within.rng("first"))?;
        let all = |has_writer| -> Result<Vec<Point>, String> {
            THREADS.iter().map(|&threads| point(&stores, threads, has_writer)).collect()
        };
        let (reading, beside) = (all(false)?, all(true)?);
        opened.into_iter().try_for_each(|store| store.close().map_err(text))?;
        Ok(Curves { reading, beside })
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Prepares compactions that write so many bytes for each one that is put.
fn compactions(disk: &Disk, compacted: u64) -> Result<Option<Compactions>, String> {
    if compacted == 0 {
        return Ok(None);
    }
    let options = BlockOptions { create: Some(SCRATCH), ..BlockOptions::default() };
    let file = disk.root().open_block_file("compacted", &options).map_err(text)?;
    let bytes_s = compacted * UPDATES_S * (KEY_BYTES + VALUE_BYTES) as u64;
    Ok(Some(Compactions { file, bytes_s }))
}

const KVS: &str = "keys";

fn open(world: &World, disk: &Disk) -> Result<Vec<Kvdb>, String> {
    let open = |number: usize| {
        let directory = disk.root().subdirectory(&format!("store-{number}")).map_err(text)?;
        Kvdb::open(directory, options(), Arc::new(world.clone())).map_err(text)
    };
    (0..STORES).map(open).collect()
}

/// Creates the stores with every key once and compacts them.
fn load(world: &World, disk: &Disk, seed: u64) -> Result<(), String> {
    let names = Names::new(KEY_BYTES, false).ok_or("keys are too short")?;
    let mut values = ValueMaker::new(VALUE_BYTES, true, seed).ok_or("values are too short")?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for store in 0..STORES {
        let directory = disk.root().subdirectory(&format!("store-{store}")).map_err(text)?;
        let made = Kvdb::create(directory, options(), Arc::new(world.clone())).map_err(text)?;
        let kvs = made.create_kvs(KVS, KvsOptions::default()).map_err(text)?;
        for number in (store as u64..KEYS).step_by(STORES) {
            key.clear();
            value.clear();
            names.append(number, &mut key);
            values.append(number, &mut value);
            kvs.put(&key, &value).map_err(text)?;
        }
        made.compact().map_err(text)?;
        made.close().map_err(text)?;
    }
    Ok(())
}

/// Most recent run, which both figures share.
static LAST: Mutex<Option<(u64, Ran)>> = Mutex::new(None);

/// Results of both drives, or the error.
type Ran = Arc<Result<Drives, String>>;

/// Returns the results of both drives; they are run unless the last run had the same seed.
pub(super) fn drives(settings: &Settings) -> Ran {
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, drives)) = &*last
        && *seed == settings.seed
    {
        return Arc::clone(drives);
    }
    let both = || {
        let of = |model| curves(model, Beside::default(), settings.seed);
        Ok(Drives { optane: of(ModelName::OptaneSsd)?, nand: of(ModelName::NandP3600)? })
    };
    let drives = Arc::new(both());
    *last = Some((settings.seed, Arc::clone(&drives)));
    drives
}

pub(super) fn scenario() -> Vec<String> {
    vec![
        format!(
            "{STORES} of our stores on one drive of the models optane-ssd and nand-p3600, \
             {KEYS} keys of \
             {KEY_BYTES} B together (the paper's 200 M, 1:{ONE_TO}), values of {VALUE_BYTES} B, \
             what its \
             800 B take compressed; {CORES} processors. All threads read random keys; then \
             beside one \
             writer of {UPDATES_S} updates a second."
        ),
        format!(
            "Chosen: {THREADS:?} threads, {GETS} gets each (parted among more than \
             {THREADS_WHOLE}); \
             keys are held in memory and values are not, so a get is one read of the drive; 16 \
             MiB of \
             pages for what was written last. How far the drives are filled is no part of the \
             models."
        ),
        CPU_SAID.to_owned(),
    ]
}
