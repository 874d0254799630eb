//! Torture of a store by filling it: until there is no room, then a half is deleted, and what was
//! deleted must find room again, cycle by cycle, on a real file system.
//!
//! The ways to delete take turns: keys at random, prefixes, keys while a snapshot is held. Most
//! values have 1000 bytes, some lie beside their keys, and some are large.

use std::sync::Arc;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_measure::progress::Progress;
use entresol_measure::{BenchError, StorePlace};
use entresol_media::{LocalDirectory, files};
use entresol_store::{
    Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, StoreError, Volume, check_outside,
};
use serde::Serialize;

/// Percentage of the deleted bytes that must find room again.
const AGAIN_PERCENT_MIN: u64 = 90;
/// Factor that scatters numbers over keys. It is odd, so no two numbers have one key.
const SCATTER: u32 = 0x9e37_79b1;
/// Prefixes that keys begin with.
const PREFIXES: u32 = 256;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed that decides which keys are deleted.
    pub seed: u64,
    /// Location of the store, which must not exist yet.
    pub place: StorePlace,
    /// Quota of the store in bytes. On a smaller file system that is full before.
    pub bytes: u64,
    /// Number of cycles.
    pub cycles: u32,
}

/// Figures of a cycle.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Cycle {
    /// Bytes of values that were deleted.
    pub deleted_bytes: u64,
    /// Bytes of values that found room afterwards.
    pub again_bytes: u64,
    /// Bytes of values that live at the end.
    pub live_bytes: u64,
    /// Bytes of the store's files at the end.
    pub file_bytes: u64,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FillOutcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Bytes of values that the empty store had room for.
    pub filled_bytes: u64,
    /// Cycles that came to their end.
    pub cycles: Vec<Cycle>,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Description of the failure, if there is one.
    pub failure: Option<String>,
    /// True if there was no failure.
    pub pass: bool,
    /// True if the user interrupted the run.
    pub interrupted: bool,
}

/// A store that is filled, and what it must hold.
struct Filled {
    store: Kvdb,
    kvs: Kvs,
    seed: u64,
    next: u32,
    /// Numbers of the keys that live.
    live: Vec<u32>,
}

fn told(error: &StoreError) -> BenchError {
    if matches!(error, StoreError::Nested { .. }) {
        return BenchError::Usage(error.to_string());
    }
    BenchError::Engine { engine: "the store", what: error.to_string() }
}

fn key(number: u32) -> [u8; 12] {
    let scattered = number.wrapping_mul(SCATTER);
    let mut key = [0; 12];
    key[..4].copy_from_slice(&scattered.to_be_bytes());
    key[4..8].copy_from_slice(&number.to_be_bytes());
    key
}

fn value_bytes(number: u32) -> usize {
    match number % 64 {
        0 => 40_000,
        1..16 => 150,
        _ => 1000,
    }
}

/// Returns true for about half of all numbers, in an order that a seed decides.
fn is_chosen(number: u32, seed: u64) -> bool {
    let mixed = (u64::from(number) ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed >> 63 == 0
}

fn sum(numbers: &[u32]) -> u64 {
    numbers.iter().map(|number| value_bytes(*number) as u64).sum()
}

impl Filled {
    fn create(settings: &Settings) -> Result<Filled, StoreError> {
        let Settings { place, bytes, seed, .. } = settings;
        let options = KvdbOptions { pmem: place.pmem, ..KvdbOptions::default() };
        let class = if place.pmem.is_some() { MediaClass::Pmem } else { MediaClass::Capacity };
        check_outside(&place.path)?;
        let directory = Arc::new(LocalDirectory::open(&place.path)?);
        let volume = Volume { class, directory, bytes_max: Some(*bytes) };
        let store = Kvdb::create_on(&[volume], options, Arc::new(SystemClock::new()));
        let store = store.inspect_err(|_| {
            // It is empty, and the error tells why.
            let _ = files::remove_directory(&place.path);
        })?;
        let kvs = store.create_kvs("fill", KvsOptions::default())?;
        Ok(Filled { store, kvs, seed: *seed, next: 0, live: Vec::new() })
    }

    /// Puts keys until there is no room, or until the user interrupts it. Returns the bytes put.
    fn fill(&mut self, progress: &Progress) -> Result<u64, StoreError> {
        let mut bytes = 0;
        loop {
            let number = self.next;
            let value = vec![number as u8; value_bytes(number)];
            match self.kvs.put(&key(number), &value) {
                Ok(_) => bytes += value.len() as u64,
                Err(error) if error.is_no_room() => return Ok(bytes),
                Err(error) => return Err(error),
            }
            self.live.push(number);
            self.next += 1;
            if number.is_multiple_of(4096) && progress.is_stopped() {
                return Ok(bytes);
            }
        }
    }

    /// Deletes about half of all keys. Returns their bytes.
    fn delete_half(&mut self, cycle: u32) -> Result<u64, StoreError> {
        let seed = self.seed ^ u64::from(cycle) << 40;
        let by_prefix = cycle % 3 == 1;
        let prefix = |number: u32| u32::from(key(number)[0]);
        let is_deleted = |number: u32| match by_prefix {
            true => is_chosen(prefix(number), seed),
            false => is_chosen(number, seed),
        };
        let all = std::mem::take(&mut self.live);
        let (deleted, live): (Vec<_>, Vec<_>) = all.into_iter().partition(|it| is_deleted(*it));
        self.live = live;
        if by_prefix {
            let mut prefixes = (0..PREFIXES).filter(|prefix| is_chosen(*prefix, seed));
            prefixes.try_for_each(|it| self.kvs.delete_prefix(&[it as u8]).map(drop))?;
        } else {
            deleted.iter().try_for_each(|it| self.kvs.delete(&key(*it)).map(drop))?;
        }
        Ok(sum(&deleted))
    }

    /// Deletes a half, and fills the store again.
    fn cycle(&mut self, cycle: u32, progress: &Progress) -> Result<Cycle, StoreError> {
        let snapshot = if cycle % 3 == 2 { Some(self.store.snapshot()?) } else { None };
        let deleted_bytes = self.delete_half(cycle)?;
        if snapshot.is_some() {
            // What the snapshot holds may leave no room for this.
            match self.store.compact() {
                Err(error) if !error.is_no_room() => return Err(error),
                _ => drop(snapshot),
            }
        }
        self.store.compact()?;
        let again_bytes = self.fill(progress)?;
        let space = self.store.statistics()?.media.first().map(|it| it.space).unwrap_or_default();
        let file_bytes = space.log_bytes + space.run_bytes + space.value_bytes;
        Ok(Cycle { deleted_bytes, again_bytes, live_bytes: sum(&self.live), file_bytes })
    }

    /// Reads everything that must be there. Returns what is wrong.
    fn look(&self) -> Result<Option<String>, StoreError> {
        for &number in &self.live {
            let found = self.kvs.get(&key(number))?;
            if found != Some(vec![number as u8; value_bytes(number)]) {
                return Ok(Some(format!("key number {number} is not as it was written")));
            }
        }
        let mut cursor = self.kvs.cursor(entresol_store::CursorOptions {
            keys_only: true,
            ..entresol_store::CursorOptions::default()
        })?;
        let mut keys = 0;
        while cursor.next()?.is_some() {
            keys += 1;
        }
        let live = self.live.len();
        Ok((keys != live).then(|| format!("{keys} keys are shown, and {live} were written")))
    }
}

/// Fills a store, and deletes and fills again, cycle by cycle.
///
/// # Errors
/// Fails if the store fails otherwise than for lack of room.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<FillOutcome, BenchError> {
    let clock = SystemClock::new();
    let start = clock.now();
    let mut filled = Filled::create(settings).map_err(|it| told(&it))?;
    let mut outcome =
        FillOutcome { subject: "store fill", seed: settings.seed, ..FillOutcome::default() };
    outcome.filled_bytes = filled.fill(progress).map_err(|it| told(&it))?;
    for cycle in 0..settings.cycles {
        if progress.is_stopped() {
            break;
        }
        let done = match filled.cycle(cycle, progress) {
            Ok(done) => done,
            Err(error) => {
                outcome.failure = Some(format!("cycle {cycle}: {error}"));
                break;
            }
        };
        outcome.cycles.push(done);
        progress.advance(1);
        progress.say(&format!("{} live", ByteSize(done.live_bytes)));
        let is_enough = done.again_bytes * 100 >= done.deleted_bytes * AGAIN_PERCENT_MIN;
        if !is_enough && !progress.is_stopped() {
            let (deleted, again) = (ByteSize(done.deleted_bytes), ByteSize(done.again_bytes));
            let what = format!("cycle {cycle}: {deleted} were deleted, and {again} found room");
            outcome.failure = Some(what);
            break;
        }
    }
    if outcome.failure.is_none() && !progress.is_stopped() {
        outcome.failure = filled.look().map_err(|it| told(&it))?;
    }
    filled.store.close().map_err(|it| told(&it))?;
    outcome.elapsed_s = clock.now().since(start).as_secs_f64();
    outcome.pass = outcome.failure.is_none();
    outcome.interrupted = progress.stop().is_asked();
    Ok(outcome)
}

impl std::fmt::Display for FillOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
        writeln!(f, "{:<28} {:>14.1}", "MiB of values at first", mib(self.filled_bytes))?;
        writeln!(f, "cycle  MiB deleted  written again  live  files")?;
        for (number, cycle) in self.cycles.iter().enumerate() {
            writeln!(
                f,
                "{number:>5} {:>12.1} {:>14.1} {:>5.0} {:>6.0}",
                mib(cycle.deleted_bytes),
                mib(cycle.again_bytes),
                mib(cycle.live_bytes),
                mib(cycle.file_bytes),
            )?;
        }
        self.failure.as_ref().map_or(Ok(()), |what| writeln!(f, "\nfailed: {what}"))
    }
}
