//! Threads that call a system in this process, one request at a time each.

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_base::{Clock, Nanos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::{AWAKE, PoissonArrivals, wait_until};
use entresol_measure::values::{KeyMaker, ValueMaker};
use fastrand::Rng;

use super::{CurveOptions, Loaded};

/// Bytes of a key.
pub(super) const KEY_BYTES: usize = 16;
/// Requests between two looks at the wish to end.
const AT_ONCE: u64 = 64;

/// Client of a system, used by one thread.
pub(super) trait Client: Send {
    /// Reads the value of a key. Returns false if there is none.
    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError>;

    /// Writes a value of a key.
    fn set(&mut self, key: &[u8], value: &[u8]) -> Result<(), BenchError>;
}

/// Clients with their requests.
pub(super) struct Threads<C> {
    all: Vec<Caller<C>>,
    missing: u64,
}

/// Client of a thread, with what it draws its requests from.
struct Caller<C> {
    client: C,
    keys: KeyMaker,
    values: ValueMaker,
    rng: Rng,
    key_count: u64,
    read_share: f64,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Measurements of a thread.
#[derive(Default)]
struct Called {
    times: Histogram,
    late: Histogram,
    due: u64,
    missing: u64,
    /// Time until the last result.
    seconds: f64,
}

impl<C: Client> Threads<C> {
    /// Fills a system by the first client, and prepares the threads.
    pub(super) fn filled(
        clients: Vec<C>,
        options: &CurveOptions,
        stop: &Stop,
    ) -> Result<Threads<C>, BenchError> {
        let mut all = Vec::new();
        for (number, client) in clients.into_iter().enumerate() {
            all.push(Caller::new(client, options, number)?);
        }
        if let Some(first) = all.first_mut() {
            for number in (0..options.keys).take_while(|_| !stop.is_due()) {
                first.set(number)?;
            }
        }
        Ok(Threads { all, missing: 0 })
    }

    /// Runs all threads as fast as they are answered.
    pub(super) fn saturation(&mut self, time: Duration, stop: &Stop) -> Result<f64, BenchError> {
        let loaded = self.run(None, time, stop)?;
        Ok(loaded.times.count() as f64 / loaded.seconds.max(1e-9))
    }

    /// Runs an open loop, divided among the threads.
    pub(super) fn load(
        &mut self,
        per_second: f64,
        time: Duration,
        stop: &Stop,
    ) -> Result<Loaded, BenchError> {
        self.run(Some(per_second / self.all.len() as f64), time, stop)
    }

    /// Returns the number of gets that found nothing.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    fn run(
        &mut self,
        rate: Option<f64>,
        time: Duration,
        stop: &Stop,
    ) -> Result<Loaded, BenchError> {
        let clock = SystemClock::new();
        let called = std::thread::scope(|scope| {
            let threads = self.all.iter_mut().map(|caller| {
                let clock = &clock;
                scope.spawn(move || caller.call(time, rate, clock, stop))
            });
            let threads: Vec<_> = threads.collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, _>| match thread.join() {
                Ok(called) => called,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            threads.into_iter().map(join).collect::<Result<Vec<Called>, BenchError>>()
        })?;
        let (mut loaded, mut late) = (Loaded::default(), Histogram::new());
        for one in called {
            loaded.times.merge(&one.times);
            late.merge(&one.late);
            loaded.due += one.due;
            self.missing += one.missing;
            loaded.seconds = loaded.seconds.max(one.seconds);
        }
        loaded.late_p99_us = late.percentile_us(99.0);
        loaded.time_s = time.as_secs_f64();
        Ok(loaded)
    }
}

impl<C: Client> Caller<C> {
    fn new(client: C, options: &CurveOptions, number: usize) -> Result<Caller<C>, BenchError> {
        let seed = options.seed_of(number);
        let bytes = usize::try_from(options.size.0).unwrap_or(usize::MAX);
        let too_many = || BenchError::Usage(format!("{} keys are too many", options.keys));
        let too_short = || BenchError::Usage("values are too short".to_owned());
        Ok(Caller {
            client,
            keys: KeyMaker::new(KEY_BYTES, options.keys).ok_or_else(too_many)?,
            values: ValueMaker::new(bytes, false, seed).ok_or_else(too_short)?,
            rng: Rng::with_seed(seed),
            key_count: options.keys,
            read_share: options.read_share,
            key: Vec::new(),
            value: Vec::new(),
        })
    }

    fn set(&mut self, number: u64) -> Result<(), BenchError> {
        self.key.clear();
        self.value.clear();
        self.keys.append(number, &mut self.key);
        self.values.append(number, &mut self.value);
        self.client.set(&self.key, &self.value)
    }

    fn get(&mut self, number: u64) -> Result<bool, BenchError> {
        self.key.clear();
        self.keys.append(number, &mut self.key);
        self.client.get(&self.key)
    }

    /// Makes requests until the end: as they fall due, or one after another.
    fn call(
        &mut self,
        time: Duration,
        rate: Option<f64>,
        clock: &SystemClock,
        stop: &Stop,
    ) -> Result<Called, BenchError> {
        let mut called = Called::default();
        // Each thread has its own start, so that one that the system starts late makes requests.
        let begun = clock.now();
        let end = begun.after(time);
        let seed = self.rng.u64(..);
        let mut arrivals = rate.map(|rate| PoissonArrivals::new(begun, rate, seed));
        // An open loop that cannot keep up is given up after four times its length.
        let limit = end.after(time * 3);
        let mut now = begun;
        for number in 0_u64.. {
            let is_over = number.is_multiple_of(AT_ONCE) && stop.is_due();
            let due = match &mut arrivals {
                None => now,
                Some(arrivals) => arrivals.take(Nanos(u64::MAX)).unwrap_or(end),
            };
            if due >= end || now >= limit || is_over {
                break;
            }
            if due > now {
                wait_until(clock, due, AWAKE);
                called.late.record(clock.now().since(due));
            }
            called.due += 1;
            let key = self.rng.u64(..self.key_count);
            if self.rng.f64() < self.read_share {
                called.missing += u64::from(!self.get(key)?);
            } else {
                self.set(key)?;
            }
            now = clock.now();
            called.times.record(now.since(due));
            called.seconds = now.since(begun).as_secs_f64();
        }
        Ok(called)
    }
}
