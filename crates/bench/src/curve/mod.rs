//! Response time at load: the curve of a cache, a store, a server or a raw medium, in an open loop,
//! from a small part of what saturates it to nearly all (Platform storage performance with 3D
//! XPoint, section IV).
//!
//! Queue depth is deliberately absent: it is an outcome, and a faster system has less of it at an
//! equal load.

mod cache;
mod raw;
mod report;
mod result;
mod server;
mod store;
mod subject;
mod threads;

use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_base::{ByteSize, Stop};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;

pub use result::{CurveResult, Point, SystemResult};
pub use subject::CurveSubject;

/// Loads in per cent of saturation, denser where curves bend.
pub const LOADS_PERCENT: [u32; 11] = [5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 95];
/// Most systems that one run can measure.
const SYSTEMS_MAX: usize = 2;

/// Options of a run.
#[derive(Debug, Clone)]
pub struct CurveOptions {
    /// Systems that are measured, by turns.
    pub subjects: Vec<CurveSubject>,
    /// Bytes of a block of a raw medium, or of a value.
    pub size: ByteSize,
    /// Share of reads; the remaining requests are writes.
    pub read_share: f64,
    /// Keys of a cache, a store or a server.
    pub keys: u64,
    /// Threads that call a cache or a store, or connections to a server.
    pub clients: usize,
    /// Length of one load, and of the measurement of saturation.
    pub duration: Duration,
    /// Times that each load is run; their response times are taken together.
    pub rounds: usize,
    /// Bytes of a file that is made for a raw medium.
    pub file_size: ByteSize,
    /// Seed of orders and arrivals.
    pub seed: u64,
}

/// Results of one load.
#[derive(Debug, Clone, Default)]
pub(crate) struct Loaded {
    /// Response times from when a request was due.
    times: Histogram,
    /// 99th percentile of the delay by which the generator itself began requests.
    late_p99_us: f64,
    /// Requests that fell due.
    due: u64,
    /// Length of the load, in which requests fell due.
    time_s: f64,
    /// Time until the last result.
    seconds: f64,
    /// Requests a second that were to fall due.
    offered: f64,
}

impl Loaded {
    /// Returns true if so large a share of what fell due was answered at the rate at which it did.
    fn kept_up(&self, share: f64) -> bool {
        let achieved = self.times.count() as f64 / self.seconds.max(1e-9);
        achieved >= self.due as f64 / self.time_s.max(1e-9) * share
    }
}

/// System under load.
pub(crate) trait System {
    /// Returns the most requests a second that it answers.
    fn saturation(&mut self, time: Duration, stop: &Stop) -> Result<f64, BenchError>;

    /// Runs an open loop of so many requests a second on average.
    fn load(&mut self, per_second: f64, time: Duration, stop: &Stop) -> Result<Loaded, BenchError>;

    /// Describes the system and its clients.
    fn describe(&self) -> String;

    /// Stops the system and removes what was made for it.
    fn close(self: Box<Self>) -> Result<(), BenchError>;
}

fn usage<T>(what: &str) -> Result<T, BenchError> {
    Err(BenchError::Usage(what.to_owned()))
}

impl CurveOptions {
    fn check(&self) -> Result<(), BenchError> {
        if !(1..=SYSTEMS_MAX).contains(&self.subjects.len()) {
            return usage("give one system to measure, or two");
        }
        if !(0.0..=1.0).contains(&self.read_share) {
            return usage("the share of reads is 0 to 1");
        }
        if self.keys == 0 || self.clients == 0 || self.rounds == 0 || self.size.0 == 0 {
            return usage("give at least one key, client, round and byte");
        }
        if self.duration < Duration::from_millis(50) {
            return usage("a load takes at least 50ms");
        }
        Ok(())
    }

    /// Returns the seed of a client.
    fn seed_of(&self, client: usize) -> u64 {
        self.seed.wrapping_mul(1_000_003).wrapping_add(client as u64)
    }
}

/// Returns the number of loads.
#[must_use]
pub fn curve_steps(options: &CurveOptions) -> u64 {
    (options.subjects.len() * options.rounds * (LOADS_PERCENT.len() + 1)) as u64
}

/// Measurements of a system so far.
struct Measured {
    system: Box<dyn System>,
    saturations: Vec<f64>,
    /// Loads, each with its rounds.
    loads: Vec<Vec<Loaded>>,
}

impl Measured {
    fn saturation(&self) -> Spread {
        Spread::of(&self.saturations)
    }
}

/// Finds the saturation of each system, then measures its response times at parts of it.
///
/// # Errors
/// Fails if the options do not fit together, or a system fails.
pub fn run_curve(options: &CurveOptions, progress: &Progress) -> Result<CurveResult, BenchError> {
    options.check()?;
    let mut all = Vec::new();
    for subject in &options.subjects {
        progress.say(&format!("curve: preparing {subject}"));
        let system = subject.open(options, progress)?;
        let loads = vec![Vec::new(); LOADS_PERCENT.len()];
        all.push(Measured { system, saturations: Vec::new(), loads });
    }
    let measured = measure(options, &mut all, progress);
    let mut systems = Vec::new();
    for (subject, measured) in options.subjects.iter().zip(all) {
        let description = measured.system.describe();
        if measured.loads.iter().any(|rounds| !rounds.is_empty()) {
            let saturation = measured.saturation();
            let found = (saturation, &measured.loads[..]);
            systems.push(SystemResult::new(subject.to_string(), description, found));
        }
        measured.system.close()?;
    }
    measured?;
    match systems.is_empty() {
        true => Err(BenchError::Interrupted { has_results: false }),
        false => Ok(CurveResult::new(options, systems)),
    }
}

/// Measures by turns; the system that begins alternates.
fn measure(
    options: &CurveOptions,
    all: &mut [Measured],
    progress: &Progress,
) -> Result<(), BenchError> {
    let stop = progress.stop();
    let mut turn = 0;
    let mut by_turns = |all: &mut [Measured],
                        what: &str,
                        each: &mut dyn FnMut(&mut Measured) -> Result<(), BenchError>|
     -> Result<bool, BenchError> {
        progress.say(what);
        let count = all.len();
        for number in 0..count {
            each(&mut all[(number + turn) % count])?;
            if stop.is_due() {
                return Ok(false);
            }
            progress.advance(1);
        }
        turn += 1;
        Ok(true)
    };
    for _ in 0..options.rounds {
        let mut each = |it: &mut Measured| {
            it.saturations.push(it.system.saturation(options.duration, stop)?);
            Ok(())
        };
        if !by_turns(all, "curve: saturation", &mut each)? {
            return Ok(());
        }
    }
    for _ in 0..options.rounds {
        for (number, percent) in LOADS_PERCENT.into_iter().enumerate() {
            let mut each = |it: &mut Measured| {
                let per_second = it.saturation().median * f64::from(percent) / 100.0;
                match it.system.load(per_second, options.duration, stop) {
                    // A load that was ended says little: those before it are shown.
                    _ if stop.is_due() => {}
                    Ok(loaded) => it.loads[number].push(Loaded { offered: per_second, ..loaded }),
                    Err(error) => return Err(error),
                }
                Ok(())
            };
            if !by_turns(all, &format!("curve: {percent}% of saturation"), &mut each)? {
                return Ok(());
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
