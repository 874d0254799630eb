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
use entresol_media::{Access, BlockFile, BlockOptions, IoBuffer, IoRequest};
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
    pub(super) leveled: Leveled,
}

/// Compactions of a leveled tree beside the writer, as far as the drive sees them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Leveled {
    /// Bytes that they write for ten that are put; they read as many. None run if this is 0.
    pub(super) written_for_ten: u64,
    /// Bytes that one thread writes in a second.
    pub(super) thread_bytes_s: u64,
    /// Bytes that a thread hands to the drive at once.
    pub(super) burst: u64,
}

/// Bytes of one of their requests: what Linux reads ahead, and what a P3600 takes at most.
const PIECE: u64 = 128 << 10;
/// Bytes of a file that they write.
const COMPACTED: u64 = 64 << 20;
/// Time that a point takes at least if they run.
const POINT: Picos = Picos(1_000_000_000_000);

/// Compactions under way.
struct Compactions {
    files: Vec<Arc<dyn BlockFile>>,
    burst: u64,
    /// Mean time in which each thread has read and written a piece.
    period: Picos,
}

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

    /// Reads random keys, so many and for so long at least, and returns the response times.
    fn read(&self, count: u64, least: Picos, mut rng: Rng) -> Result<Histogram, String> {
        let mut times = Histogram::new();
        let until = self.world.now().after(least);
        let (mut key, mut value) = (Vec::new(), Vec::new());
        while times.count() < count || self.world.now() < until {
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
    /// Prepares as many threads as it takes.
    fn new(disk: &Disk, leveled: Leveled) -> Result<Compactions, String> {
        let Leveled { written_for_ten, thread_bytes_s, burst } = leveled;
        let bytes_s = written_for_ten * UPDATES_S * (KEY_BYTES + VALUE_BYTES) as u64 / 10;
        let threads = bytes_s.div_ceil(thread_bytes_s);
        let period = Picos(PIECE * threads * 1_000_000_000_000 / bytes_s);
        let options = BlockOptions { create: Some(COMPACTED), ..BlockOptions::default() };
        let files = (0..threads)
            .map(|it| disk.root().open_block_file(&format!("compacted-{it}"), &options))
            .collect::<Result<_, _>>()
            .map_err(text)?;
        Ok(Compactions { files, burst, period })
    }

    /// Reads one piece after the other and hands over what it has written in bursts, until
    /// `is_over` is set.
    fn run(&self, world: &World, number: usize, is_over: &AtomicBool) -> Result<(), String> {
        let file = &self.files[number];
        let pieces = self.burst / PIECE;
        let mut queue = Arc::clone(file).queue(pieces as usize).map_err(text)?;
        let mut piece = IoBuffer::new(PIECE as usize);
        // Threads hand over at different times.
        let apart = self.period.0 * pieces / self.files.len() as u64;
        let (mut due, mut read) = (world.now().after(Picos(apart * number as u64)), 0);
        let (mut done, mut rng) = (Vec::new(), world.rng(&format!("compaction {number}")));
        while !is_over.load(Relaxed) {
            if due > world.now() {
                world.wait_until(due);
            }
            // Threads are not in step: their distances are drawn from 0 to twice the mean.
            due = due.after(Picos(rng.below(2 * self.period.0)));
            file.read_at(read * PIECE % COMPACTED, &mut piece).map_err(text)?;
            read += 1;
            if read % pieces > 0 {
                continue;
            }
            while queue.in_flight() > 0 {
                queue.wait(None).map_err(text)?;
                queue.reap(&mut done);
            }
            for written in read - pieces..read {
                let (offset, buffer) = (written * PIECE % COMPACTED, queue.buffer(PIECE as usize));
                let write = IoRequest { access: Access::Write, offset, buffer, token: written };
                queue.submit(write).map_err(|_| "the queue is full")?;
            }
            queue.kick().map_err(text)?;
            done.drain(..).try_for_each(|it| it.result.map(drop)).map_err(text)?;
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
    let compacting = stores.compactions.as_ref().filter(|_| has_writer);
    let least = compacting.map_or(Picos::ZERO, |_| POINT);
    let compacting: Vec<_> = (0..compacting.map_or(0, |all| all.files.len()))
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
            thread::spawn("reader", move || stores.read(each, least, rng))
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
        let leveled = Some(differs.leveled).filter(|it| it.written_for_ten > 0);
        let stores = Stores {
            world: within.clone(),
            processors: Processors::new(&within, CORES),
            own: differs.own,
            compactions: leveled.map(|it| Compactions::new(&disk, it)).transpose()?,
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
        stores.read(KEYS / 5, Picos::ZERO, within.rng("first"))?;
        let all = |has_writer| -> Result<Vec<Point>, String> {
            THREADS.iter().map(|&threads| point(&stores, threads, has_writer)).collect()
        };
        let (reading, beside) = (all(false)?, all(true)?);
        opened.into_iter().try_for_each(|store| store.close().map_err(text))?;
        Ok(Curves { reading, beside })
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
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
