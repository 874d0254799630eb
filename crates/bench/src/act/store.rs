//! The load on our store: gets in an open loop beside the puts whose flushes and garbage collection
//! are the large requests of the tool.

use std::sync::Arc;

use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::{Picos, Stop};
use entresol_measure::values::ValueMaker;
use entresol_measure::ycsb::Names;
use entresol_store::{Kvdb, Kvs, KvsOptions};

use super::load::{INTERVALS, Interval, LATE_MAX, Load, Ran, Span};

/// Threads that put.
const WRITERS: usize = 64;
const KEY_BYTES: usize = 20;
const KVS: &str = "act";
/// Delay of a get that nothing but the generator's own thread has caused.
const LATE: Picos = Picos::from_micros(50);

/// Time in which the load runs: the system's, or a world's.
pub trait Time: Send + Sync {
    /// Returns the time.
    fn now(&self) -> Picos;
    /// Waits until a time.
    fn wait_until(&self, at: Picos);
    /// Takes the processor time of a request, where computing takes no time by itself.
    fn compute(&self, request: Request);
}

/// Request for the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Request {
    /// Reads the value of a key.
    Get,
    /// Writes a value of a key.
    Put,
}

/// Numbers of a store under load.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StoreLoad {
    /// Load of one multiple.
    pub load: Load,
    /// Records of the store.
    pub records: u64,
    /// Random puts before the load, so that garbage collection has begun.
    pub puts_before: u64,
    /// Length of an interval.
    pub interval: Interval,
    /// Pause before a run, in which the store does what the run before has left.
    pub rest: Picos,
    /// Seed of values, arrivals and orders.
    pub seed: u64,
}

/// Store under load.
pub struct OnStore {
    time: Box<dyn Time>,
    kvs: Kvs,
    names: Names,
    values: ValueMaker,
    numbers: StoreLoad,
    stop: Stop,
}

/// Formats an error.
fn text(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Arrivals of gets or puts of random records.
struct Arrivals {
    due: Picos,
    gap: Picos,
    end: Picos,
    rng: Rng,
    records: u64,
}

impl Arrivals {
    /// Returns the next arrival and its record.
    fn next(&mut self) -> Option<(Picos, u64)> {
        self.due = self.due.after(self.rng.poisson_gap(self.gap));
        (self.due < self.end).then(|| (self.due, self.rng.below(self.records)))
    }
}

/// Gets of a thread.
struct Gets {
    intervals: Vec<Histogram>,
    late: u64,
}

impl OnStore {
    /// Makes a `Kvs` in a new store and fills it: all records, then random ones until garbage
    /// collection has begun. Ends early, with a part of it, if `stop` asks for it.
    ///
    /// # Errors
    /// If the store fails.
    pub fn fill(
        store: &Kvdb,
        numbers: StoreLoad,
        time: Box<dyn Time>,
        stop: &Stop,
    ) -> Result<OnStore, String> {
        let StoreLoad { records, puts_before, seed, load, .. } = numbers;
        let on = OnStore {
            time,
            kvs: store.create_kvs(KVS, KvsOptions::default()).map_err(text)?,
            names: Names::new(KEY_BYTES, false).ok_or("keys are too short")?,
            values: ValueMaker::new(load.record_bytes as usize, true, seed)
                .ok_or("values are too short")?,
            numbers,
            stop: stop.clone(),
        };
        let (mut values, mut rng) = (on.values.clone(), Rng::named(seed, "before"));
        let all = (0..records).chain((0..puts_before).map(|_| rng.below(records)));
        for record in all.take_while(|_| !stop.is_due()) {
            on.put(record, &mut values)?;
        }
        Ok(on)
    }

    fn put(&self, record: u64, values: &mut ValueMaker) -> Result<(), String> {
        let (mut key, mut value) = (Vec::new(), Vec::new());
        self.names.append(record, &mut key);
        values.append(record, &mut value);
        self.kvs.put(&key, &value).map(drop).map_err(text)
    }

    /// Waits for a request to fall due, and returns true if the thread had to.
    fn await_due(&self, due: Picos) -> bool {
        let waits = due > self.time.now();
        if waits {
            self.time.wait_until(due);
        }
        waits
    }

    /// Answers the gets of a queue, whose response times go to the intervals of their arrivals.
    fn read(&self, arrivals: &Mutex<Arrivals>, span: Span) -> Result<Gets, String> {
        let mut gets = Gets { intervals: vec![Histogram::new(); INTERVALS as usize], late: 0 };
        let (mut key, mut value) = (Vec::new(), Vec::new());
        loop {
            let next = arrivals.lock().next().filter(|_| !self.stop.is_due());
            let Some((due, record)) = next else { return Ok(gets) };
            let waited = self.await_due(due);
            gets.late += u64::from(waited && self.time.now().since(due) > LATE);
            key.clear();
            value.clear();
            self.names.append(record, &mut key);
            self.time.compute(Request::Get);
            if !self.kvs.get_into(&key, &mut value).map_err(text)? {
                return Err(format!("record {record} was put and is not there"));
            }
            gets.intervals[span.interval(due)].record(self.time.now().since(due).into());
            self.values.check(record, &value).map_err(text)?;
        }
    }

    /// Makes puts, and returns the response times of those that arrive in the last interval.
    fn write(&self, arrivals: &Mutex<Arrivals>, last: Picos) -> Result<Histogram, String> {
        let (mut values, mut times) = (self.values.clone(), Histogram::new());
        loop {
            let next = arrivals.lock().next().filter(|_| !self.stop.is_due());
            let Some((due, record)) = next else { return Ok(times) };
            self.await_due(due);
            self.time.compute(Request::Put);
            self.put(record, &mut values)?;
            if due >= last {
                times.record(self.time.now().since(due).into());
            }
        }
    }

    fn arrivals(&self, stream: &str, per_second: f64, span: Span) -> Arc<Mutex<Arrivals>> {
        Arc::new(Mutex::new(Arrivals {
            due: span.begun,
            gap: Picos((1e12 / per_second) as u64),
            end: span.end(),
            rng: Rng::named(self.numbers.seed, stream),
            records: self.numbers.records,
        }))
    }
}

/// Runs a multiple of the load after a rest. Returns `None` if it was ended.
///
/// # Errors
/// If the store fails, or a record is not what was put.
pub fn run(on: &Arc<OnStore>, multiple: f64) -> Result<Option<Ran>, String> {
    let StoreLoad { load, interval, rest, .. } = on.numbers;
    on.time.wait_until(on.time.now().after(rest));
    let per_second = load.small_per_second * multiple;
    let span = Span { begun: on.time.now(), length: interval.length(per_second) };
    let puts = on.arrivals("puts", load.puts_per_second() * multiple, span);
    let writers = (0..WRITERS).map(|_| {
        let (on, arrivals) = (Arc::clone(on), Arc::clone(&puts));
        thread::spawn("writer", move || on.write(&arrivals, span.last()))
    });
    let writers: Vec<_> = writers.collect();
    let mut readers = Vec::new();
    for queue in 0..load.queues {
        let rate = per_second / load.queues as f64;
        let arrivals = on.arrivals(&format!("queue {queue}"), rate, span);
        for _ in 0..load.threads {
            let (on, arrivals) = (Arc::clone(on), Arc::clone(&arrivals));
            readers.push(thread::spawn("reader", move || on.read(&arrivals, span)));
        }
    }
    let mut intervals = vec![Histogram::new(); INTERVALS as usize];
    let mut late = 0;
    for reader in readers {
        let gets = reader.join().map_err(|_| "a reader has panicked")??;
        intervals.iter_mut().zip(&gets.intervals).for_each(|(all, one)| all.merge(one));
        late += gets.late;
    }
    let mut puts = Histogram::new();
    for writer in writers {
        puts.merge(&writer.join().map_err(|_| "a writer has panicked")??);
    }
    if on.stop.is_due() {
        return Ok(None);
    }
    let late_max_us = span.end().since(span.begun).as_secs_f64() * LATE_MAX * 1e6;
    let gets: u64 = intervals.iter().map(Histogram::count).sum();
    Ok(Some(Ran {
        intervals,
        kept_up: puts.percentile_us(50.0) <= late_max_us,
        late: late as f64 / gets.max(1) as f64,
    }))
}
