//! Load on a server over its socket: throughput, response time and processor time.

mod address;
mod compare;
mod connection;
mod generator;
mod report;
mod result;
#[cfg(test)]
mod tests;
pub(crate) mod wire;

use std::sync::Barrier;
use std::time::Duration;

use entresol_base::{Clock, Nanos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::popularity::Popularity;
use entresol_measure::process;
use entresol_measure::progress::Progress;
use entresol_measure::values::{KeyMaker, ValueMaker};

use generator::{Generator, Tally};

pub use address::Address;
pub(crate) use address::BlockingStream;
pub use compare::{CompareOptions, Comparison, compare};
pub(crate) use report::latency_row;
pub use result::{CurvePoint, LatencySummary, LoadResult};
pub use wire::Dialect;

/// Largest number of connections. It is bounded, like threads and depth, to keep a typing error
/// harmless.
pub const CONNECTIONS_MAX: usize = 10_000;
/// Largest depth of a pipeline.
pub const DEPTH_MAX: usize = 1_024;
const PRELOAD_DEPTH: usize = 64;
const PROGRESS_STEP: Duration = Duration::from_millis(100);

/// Options of a load on one server.
#[derive(Debug, Clone)]
pub struct LoadOptions {
    /// Address of the server.
    pub address: Address,
    /// Dialect of the protocol.
    pub dialect: Dialect,
    /// Number of keys.
    pub keys: u64,
    /// Bytes of a key.
    pub key_bytes: usize,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Time to live of a stored value in seconds; 0 means no expiry.
    pub ttl_s: u32,
    /// Share of gets among the requests; the remaining ones are sets.
    pub get_share: f64,
    /// Popularity of keys.
    pub popularity: Popularity,
    /// Number of connections.
    pub connections: usize,
    /// Requests in flight per connection. A closed loop sends them in one write, and the next ones
    /// after all replies; for an open loop, this is an upper bound.
    pub depth: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Length of the measured phase.
    pub duration: Duration,
    /// Length of the warm-up.
    pub warm_up: Duration,
    /// Requests per second in an open loop; `None` is a closed loop.
    pub rate_ops_s: Option<f64>,
    /// Checks every value that is read.
    pub verify: bool,
    /// Stores every key once before the load.
    pub preload: bool,
    /// Process of the server, whose processor time is measured; found automatically on this
    /// machine.
    pub server_pid: Option<u32>,
    /// Seed of keys, operations and arrivals.
    pub seed: u64,
}

impl LoadOptions {
    /// Creates the default load: a million keys of 16 bytes, values of 100 bytes, nine gets to a
    /// set, 16 connections.
    #[must_use]
    pub fn new(address: Address) -> LoadOptions {
        LoadOptions {
            address,
            dialect: Dialect::Text,
            keys: 1_000_000,
            key_bytes: 16,
            value_bytes: 100,
            ttl_s: 0,
            get_share: 0.9,
            popularity: Popularity::Uniform,
            connections: 16,
            depth: 1,
            threads: 1,
            duration: Duration::from_secs(5),
            warm_up: Duration::from_secs(1),
            rate_ops_s: None,
            verify: false,
            preload: true,
            server_pid: None,
            seed: 1,
        }
    }

    fn makers(&self, seed: u64) -> Result<(KeyMaker, ValueMaker), BenchError> {
        let keys = KeyMaker::new(self.key_bytes, self.keys).ok_or_else(|| {
            BenchError::Usage(format!(
                "keys of {} bytes cannot tell {} keys apart (250 bytes at most): change --key-size",
                self.key_bytes, self.keys
            ))
        })?;
        let values = ValueMaker::new(self.value_bytes, self.verify, seed).ok_or_else(|| {
            let needed = entresol_measure::values::CHECKED_VALUE_BYTES_MIN;
            BenchError::Usage(format!(
                "--verify needs values of {needed} bytes: raise --value-size"
            ))
        })?;
        Ok((keys, values))
    }

    pub(crate) fn check(&self) -> Result<(), BenchError> {
        let problem = if self.keys == 0 {
            "--keys must be at least 1".to_owned()
        } else if !(0.0..=1.0).contains(&self.get_share) {
            format!("--get-share {} is not between 0 and 1", self.get_share)
        } else if !(1..=CONNECTIONS_MAX).contains(&self.connections) {
            format!("--connections must lie between 1 and {CONNECTIONS_MAX}")
        } else if !(1..=DEPTH_MAX).contains(&self.depth) {
            format!("--depth must lie between 1 and {DEPTH_MAX}")
        } else if self.threads == 0 || self.threads > self.connections {
            format!("--threads must lie between 1 and --connections ({})", self.connections)
        } else if self.rate_ops_s.is_some_and(|rate| !rate.is_finite() || rate <= 0.0) {
            "--rate must be greater than 0".to_owned()
        } else {
            self.makers(1)?;
            return Ok(());
        };
        Err(BenchError::Usage(problem))
    }

    /// Returns the number of connections of thread `thread`.
    fn connections_of(&self, thread: usize) -> usize {
        self.connections / self.threads + usize::from(thread < self.connections % self.threads)
    }
}

/// Preloads if requested, warms up, and measures.
///
/// # Errors
/// Fails if the options do not fit together, the server cannot be reached or fails, or a value is
/// wrong.
pub fn run_load(options: &LoadOptions, progress: &Progress) -> Result<LoadResult, BenchError> {
    options.check()?;
    let clock = SystemClock::new();
    if options.preload {
        progress.say("storing every key once");
        preload(options, &clock, progress.stop())?;
    }
    progress.say(&format!("load on {}", options.address));
    measure(options, &clock, progress)
}

/// Stores every key once over a few connections.
pub(crate) fn preload(
    options: &LoadOptions,
    clock: &SystemClock,
    stop: &Stop,
) -> Result<(), BenchError> {
    let deep = LoadOptions { depth: PRELOAD_DEPTH, ..options.clone() };
    let connections = options.connections.min(4);
    let mut generator = Generator::connect(&deep, clock, connections, options.seed, stop)?;
    let tally = generator.preload(0..options.keys)?;
    if stop.is_due() {
        return Err(BenchError::Interrupted { has_results: false });
    }
    if tally.refused > 0 {
        let address = options.address.to_string();
        let reply = format!("{} of {} preloading sets refused", tally.refused, tally.sets);
        return Err(BenchError::Reply { address, reply });
    }
    Ok(())
}

/// Measured phase of a load.
pub(crate) struct Measured {
    pub(crate) tally: Tally,
    pub(crate) began: Nanos,
    server_cpu_ns: Option<u64>,
}

fn measure(
    options: &LoadOptions,
    clock: &SystemClock,
    progress: &Progress,
) -> Result<LoadResult, BenchError> {
    let Measured { tally, began, server_cpu_ns } = measure_tally(options, clock, progress)?;
    Ok(LoadResult::new(options, &tally, began, server_cpu_ns))
}

/// Runs warm-up and measured phase on new connections. Each phase ends with its last reply; the
/// server's processor time between these two instants then belongs to the measured requests.
pub(crate) fn measure_tally(
    options: &LoadOptions,
    clock: &SystemClock,
    progress: &Progress,
) -> Result<Measured, BenchError> {
    let server_pid = options.server_pid.or_else(|| options.address.listener());
    let barrier = Barrier::new(options.threads + 1);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..options.threads)
            .map(|thread| {
                let barrier = &barrier;
                scope.spawn(move || run_thread(options, (clock, progress.stop()), barrier, thread))
            })
            .collect();
        barrier.wait(); // connected
        barrier.wait(); // warm
        let cpu_before = server_pid.map(process::process_cpu_ns).transpose();
        let began = clock.now();
        barrier.wait(); // begin
        show_progress(options, clock, progress, began);
        barrier.wait(); // every reply has arrived
        let cpu_after = server_pid.map(process::process_cpu_ns).transpose();
        let mut tally = Tally::default();
        let mut failure = None;
        for thread in threads {
            match thread.join() {
                Ok(Ok(part)) => tally.merge(&part),
                Ok(Err(error)) => failure = failure.or(Some(error)),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        if let Some(error) = failure {
            return Err(error);
        }
        let server_cpu_ns = match (cpu_before?, cpu_after?) {
            (Some(before), Some(after)) => Some(after.saturating_sub(before)),
            _ => None,
        };
        if tally.requests() == 0 && progress.is_stopped() {
            return Err(BenchError::Interrupted { has_results: false });
        }
        Ok(Measured { tally, began, server_cpu_ns })
    })
}

/// Runs one generator. A thread that fails still reaches every barrier; otherwise the other threads
/// would wait forever.
fn run_thread(
    options: &LoadOptions,
    (clock, stop): (&SystemClock, &Stop),
    barrier: &Barrier,
    thread: usize,
) -> Result<Tally, BenchError> {
    let seed = options.seed.wrapping_mul(1_000_003).wrapping_add(thread as u64);
    let connections = options.connections_of(thread);
    let mut generator = Generator::connect(options, clock, connections, seed, stop);
    barrier.wait();
    let mut phase = |duration: Duration, seed: u64| {
        let Ok(generator) = &mut generator else { return Ok(Tally::default()) };
        let until = clock.now().after(duration);
        match options.rate_ops_s {
            None => generator.closed_loop(until),
            Some(rate) => generator.open_loop(until, rate / options.threads as f64, seed),
        }
    };
    let warm = if options.warm_up.is_zero() {
        Ok(Tally::default())
    } else {
        phase(options.warm_up, seed ^ 0x5eed)
    };
    barrier.wait();
    barrier.wait();
    let tally = if warm.is_ok() { phase(options.duration, seed) } else { Ok(Tally::default()) };
    barrier.wait();
    warm?;
    generator.map(|_| ())?;
    tally
}

fn show_progress(options: &LoadOptions, clock: &SystemClock, progress: &Progress, began: Nanos) {
    let mut shown = Duration::ZERO;
    while shown < options.duration && !progress.is_stopped() {
        std::thread::sleep(PROGRESS_STEP.min(options.duration - shown));
        let passed = clock.now().since(began).min(options.duration);
        progress.advance((passed.saturating_sub(shown)).as_millis() as u64);
        shown = passed;
    }
}
