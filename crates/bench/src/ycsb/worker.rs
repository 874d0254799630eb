//! Worker of one thread: it draws requests, performs them, times them from their due time, and
//! checks their results.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use entresol_base::histogram::Histogram;
use entresol_base::{Clock, Nanos, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::{HARDLY_AWAKE, PoissonArrivals, wait_until, wake_in_time};
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::{Chooser, Kind, Names, Population, mixgraph};
use fastrand::Rng;

use super::{Engine, Workload, YcsbOptions};

/// Largest number of records of a scan in YCSB's E; the smallest is 1.
const SCAN_LEN_MAX: usize = 100;
/// Operations between two reports to the progress bar.
const TOLD_AT_ONCE: u64 = 1024;

/// Counts and times of one thread.
#[derive(Debug, Clone, Default)]
pub(super) struct Tally {
    pub(super) times: [Histogram; Kind::ALL.len()],
    /// Delays from the due time of each request until it was begun (open loop).
    pub(super) late: Histogram,
    pub(super) operations: u64,
    /// Reads of keys that were missing.
    pub(super) missing: u64,
    /// Bytes of keys and values that were put.
    pub(super) user_bytes: u64,
    /// Records that scans visited.
    pub(super) scanned: u64,
}

impl Tally {
    pub(super) fn merge(&mut self, other: &Tally) {
        self.times.iter_mut().zip(&other.times).for_each(|(own, other)| own.merge(other));
        self.late.merge(&other.late);
        self.operations += other.operations;
        self.missing += other.missing;
        self.user_bytes += other.user_bytes;
        self.scanned += other.scanned;
    }
}

/// State that the threads of one workload share.
pub(super) struct Shared<'a> {
    pub(super) options: &'a YcsbOptions,
    pub(super) workload: Workload,
    pub(super) population: &'a Population,
    pub(super) engine: &'a dyn Engine,
    pub(super) clock: &'a SystemClock,
    pub(super) done: AtomicU64,
    pub(super) is_over: AtomicBool,
}

/// Work of one thread.
#[derive(Debug, Clone, Copy)]
pub(super) struct Share {
    pub(super) operations: u64,
    pub(super) until: Option<Nanos>,
    pub(super) rate_ops_s: Option<f64>,
    pub(super) seed: u64,
}

/// Worker of one thread.
pub(super) struct Worker<'a> {
    shared: &'a Shared<'a>,
    names: Names,
    values: ValueMaker,
    chooser: Chooser,
    rng: Rng,
    tally: Tally,
    key: Vec<u8>,
    value: Vec<u8>,
    read: Vec<u8>,
    fault: Option<BenchError>,
    /// True for the writer beside a workload.
    is_beside: bool,
}

impl<'a> Worker<'a> {
    /// Creates the writer beside a workload.
    pub(super) fn beside(shared: &'a Shared<'a>, seed: u64) -> Result<Worker<'a>, BenchError> {
        let count = shared.population.count();
        let chooser = Chooser::new(Workload::Overwrite, count, 0, shared.options.seed);
        Ok(Worker { chooser, is_beside: true, ..Worker::new(shared, seed)? })
    }

    pub(super) fn new(shared: &'a Shared<'a>, seed: u64) -> Result<Worker<'a>, BenchError> {
        let Shared { options, workload, .. } = *shared;
        let (names, values) = options.makers()?;
        let inserts = (options.operations as f64 * workload.insert_share() * 2.0) as u64;
        // All threads share the same popular keys.
        let chooser = Chooser::new(workload, shared.population.count(), inserts, options.seed);
        Ok(Worker {
            shared,
            names,
            values,
            chooser,
            rng: Rng::with_seed(seed),
            tally: Tally::default(),
            key: Vec::new(),
            value: Vec::new(),
            read: Vec::new(),
            fault: None,
            is_beside: false,
        })
    }

    /// Runs its share, or less if the time is over or another thread has failed.
    pub(super) fn work(mut self, share: Share) -> Result<Tally, BenchError> {
        let Shared { clock, is_over, .. } = self.shared;
        let mut now = clock.now();
        let mut arrivals = share.rate_ops_s.map(|rate| {
            wake_in_time();
            PoissonArrivals::new(now, rate, share.seed)
        });
        for number in 0..share.operations {
            if share.until.is_some_and(|until| now >= until) || is_over.load(Relaxed) {
                break;
            }
            let due = match &mut arrivals {
                None => now,
                Some(arrivals) => {
                    let due = wait(clock, arrivals);
                    self.tally.late.record(clock.now().since(due));
                    due
                }
            };
            let kind = match self.is_beside {
                true => Kind::Update,
                false => self.shared.workload.kind(&mut self.rng),
            };
            self.carry_out(kind)?;
            now = clock.now();
            self.tally.times[kind as usize].record(now.since(due));
            self.tally.operations += 1;
            if (number + 1).is_multiple_of(TOLD_AT_ONCE) && !self.is_beside {
                self.shared.done.fetch_add(TOLD_AT_ONCE, Relaxed);
            }
        }
        if !self.is_beside {
            self.shared.done.fetch_add(self.tally.operations % TOLD_AT_ONCE, Relaxed);
        }
        Ok(self.tally)
    }

    #[inline]
    fn carry_out(&mut self, kind: Kind) -> Result<(), BenchError> {
        if kind == Kind::Insert {
            let number = self.shared.population.take();
            self.put(number)?;
            self.shared.population.inserted(number);
            return Ok(());
        }
        let number = self.chooser.next(self.shared.population.count(), &mut self.rng);
        match kind {
            Kind::Read => self.get(number),
            Kind::Scan => self.scan(number),
            Kind::ReadModifyWrite => {
                self.get(number)?;
                self.put(number)
            }
            Kind::Update | Kind::Insert => self.put(number),
        }
    }

    fn name(&mut self, number: u64) {
        self.key.clear();
        self.names.append(number, &mut self.key);
    }

    fn put(&mut self, number: u64) -> Result<(), BenchError> {
        self.name(number);
        let bytes = match self.shared.options.is_mixgraph() {
            true => mixgraph::value_bytes(&mut self.rng),
            false => self.values.value_bytes(),
        };
        self.value.clear();
        self.values.append_of(number, bytes, &mut self.value);
        self.shared.engine.put(&self.key, &self.value)?;
        self.tally.user_bytes += (self.key.len() + self.value.len()) as u64;
        Ok(())
    }

    fn get(&mut self, number: u64) -> Result<(), BenchError> {
        self.name(number);
        self.read.clear();
        let found = self.shared.engine.get(&self.key, &mut self.read)?;
        self.tally.missing += u64::from(!found);
        if !self.shared.options.verify {
            return Ok(());
        }
        if !found {
            return Err(wrong(&self.key, "it was put, but is missing".to_owned()));
        }
        let checked = self.values.check_any(number, &self.read);
        checked.map_err(|fault| wrong(&self.key, fault.to_string()))
    }

    fn scan(&mut self, number: u64) -> Result<(), BenchError> {
        let most = match (self.shared.workload, self.shared.options.scan_records) {
            (Workload::Mixgraph, _) => mixgraph::scan_len(&mut self.rng),
            (_, Some(records)) => records,
            (_, None) => self.rng.usize(1..=SCAN_LEN_MAX),
        };
        self.name(number);
        let Worker { shared, names, values, key, read, fault, .. } = self;
        let mut shown = 0;
        let mut from = key.clone();
        shared.engine.scan(key, most, &mut |key, value| {
            shown += 1;
            if shared.options.verify && fault.is_none() {
                *fault = misplaced(&from, shown == 1, key)
                    .or_else(|| foreign(names, values, (key, value), read));
                from.clear();
                from.extend_from_slice(key);
            }
        })?;
        self.tally.scanned += shown;
        self.fault.take().map_or(Ok(()), Err)
    }
}

/// Returns an error if a scan visits a key out of order.
fn misplaced(from: &[u8], is_first: bool, key: &[u8]) -> Option<BenchError> {
    let follows = if is_first { key >= from } else { key > from };
    (!follows).then(|| {
        let after = String::from_utf8_lossy(from);
        wrong(key, format!("a scan shows it after {after}, which is out of order"))
    })
}

/// Returns an error if a value does not belong to its key.
fn foreign(
    names: &Names,
    values: &ValueMaker,
    (key, value): (&[u8], &[u8]),
    name: &mut Vec<u8>,
) -> Option<BenchError> {
    let owner = value.first_chunk().map_or(0, |number| u64::from_le_bytes(*number));
    if let Err(fault) = values.check_any(owner, value) {
        return Some(wrong(key, fault.to_string()));
    }
    name.clear();
    names.append(owner, name);
    (name.as_slice() != key).then(|| wrong(key, format!("its value belongs to key number {owner}")))
}

fn wrong(key: &[u8], problem: String) -> BenchError {
    BenchError::WrongValue { key: String::from_utf8_lossy(key).into_owned(), problem }
}

/// Waits for the next request and returns its due time.
fn wait(clock: &SystemClock, arrivals: &mut PoissonArrivals) -> Nanos {
    loop {
        wait_until(clock, arrivals.due(), HARDLY_AWAKE);
        if let Some(due) = arrivals.take(clock.now()) {
            return due;
        }
    }
}

/// Reads every key in the order of the numbers and checks its value.
pub(super) fn read_back(
    options: &YcsbOptions,
    engine: &dyn Engine,
    keys: u64,
) -> Result<u64, BenchError> {
    let (names, values) = options.makers()?;
    let (mut key, mut value) = (Vec::new(), Vec::new());
    for number in 0..keys {
        key.clear();
        value.clear();
        names.append(number, &mut key);
        if !engine.get(&key, &mut value)? {
            return Err(wrong(&key, "it was put, but is missing after reopening".to_owned()));
        }
        values.check_any(number, &value).map_err(|fault| wrong(&key, fault.to_string()))?;
    }
    Ok(keys)
}
