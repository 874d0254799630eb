//! The tool's load: its two definitions, the limits of response times, and the search for the
//! largest multiple that keeps them.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use serde::Serialize;

/// Intervals of a run that are judged apart.
pub const INTERVALS: u64 = 2;
/// Bytes of a large request.
pub const LARGE_BYTES: u32 = 128 << 10;
/// Share of a run within which half of the writes of its last interval must be done. A medium that
/// stalls writers for a while catches up, and one that cannot keep up falls ever further behind.
pub const LATE_MAX: f64 = 0.01;

/// Version of the tool whose load is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Definition {
    /// Baseline of Platform storage performance with 3D XPoint (2017).
    #[default]
    Paper,
    /// Baseline of the tool's versions since 2018.
    Current,
}

impl Definition {
    const ALL: [Definition; 2] = [Definition::Paper, Definition::Current];

    /// Returns the name as it is written.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Definition::Paper => "paper",
            Definition::Current => "current",
        }
    }

    /// Returns the load of one multiple on a machine with `processors`.
    #[must_use]
    pub fn load(self, processors: usize) -> Load {
        match self {
            // 1.536 MB/s of large reads, and of large writes.
            Definition::Paper => Load {
                small_per_second: 1_000.0,
                small_bytes: 1_536,
                large_per_second: 1_536_000.0 / f64::from(LARGE_BYTES),
                record_bytes: 1_536,
                queues: 8,
                threads: 8,
            },
            // 1,000 writes a second of records of 1,500 B, which are stored in units of 16 B and
            // read in units of 512 B. Defragmentation at a threshold of 50% doubles the writes, and
            // reads as much as is written. Each processor has five threads, which take what is due.
            Definition::Current => Load {
                small_per_second: 2_000.0,
                small_bytes: 1_536,
                large_per_second: 2.0 * 1_000.0 * 1_504.0 / f64::from(LARGE_BYTES),
                record_bytes: 1_504,
                queues: 1,
                threads: 5 * processors.max(1),
            },
        }
    }
}

impl fmt::Display for Definition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Definition {
    type Err = String;

    fn from_str(text: &str) -> Result<Definition, String> {
        let found = Definition::ALL.into_iter().find(|it| it.name() == text);
        found.ok_or_else(|| "use paper or current".to_owned())
    }
}

/// Load of one multiple.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Load {
    /// Small reads a second, whose response times are judged.
    pub small_per_second: f64,
    /// Bytes of a small read.
    pub small_bytes: u32,
    /// Large reads a second, and as many large writes.
    pub large_per_second: f64,
    /// Bytes of a record of a store.
    pub record_bytes: u32,
    /// Queues of small reads.
    pub queues: usize,
    /// Threads that take reads from a queue, one at a time each.
    pub threads: usize,
}

impl Load {
    /// Returns the puts a second of a store. With as many bytes of live records that garbage
    /// collection moves, they are the large writes, and what it reads is as much again: a store
    /// that collects what is half dead reads two bytes for each that it moves.
    #[must_use]
    pub fn puts_per_second(&self) -> f64 {
        self.large_per_second * f64::from(LARGE_BYTES) / 2.0 / f64::from(self.record_bytes)
    }
}

/// Limits of response times in microseconds at the 95th, 99th and 99.9th percentile.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Name in reports.
    pub name: &'static str,
    /// Limits in the order of the percentiles.
    pub us: [f64; 3],
}

impl Limits {
    /// Percentiles that are judged.
    pub const PERCENTS: [f64; 3] = [95.0, 99.0, 99.9];
    /// Limits of the tool.
    pub const STANDARD: Limits = Limits { name: "standard", us: [1_000.0, 8_000.0, 64_000.0] };
    /// Limits that the paper tightens.
    pub const TIGHT: Limits = Limits { name: "tight", us: [128.0, 8_000.0, 64_000.0] };
    /// Both.
    pub const ALL: [Limits; 2] = [Limits::STANDARD, Limits::TIGHT];

    /// Returns true if response times keep the limits.
    #[must_use]
    pub fn hold(self, response: &Histogram) -> bool {
        let mut pairs = Limits::PERCENTS.iter().zip(self.us);
        pairs.all(|(percent, most)| response.percentile_us(*percent) <= most)
    }
}

/// Length of an interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Interval {
    /// Time in which so many small reads arrive, on average.
    Reads(u64),
    /// Time, whatever the multiple.
    Time(Duration),
}

impl Interval {
    /// Returns the length at a number of small reads a second.
    #[must_use]
    pub fn length(self, per_second: f64) -> Picos {
        match self {
            Interval::Reads(reads) => Picos((reads as f64 / per_second * 1e12) as u64),
            Interval::Time(time) => Picos::from_nanos(time.as_nanos() as u64),
        }
    }

    /// Returns the number of small reads, on average.
    #[must_use]
    pub fn reads(self, per_second: f64) -> u64 {
        match self {
            Interval::Reads(reads) => reads,
            Interval::Time(time) => (time.as_secs_f64() * per_second) as u64,
        }
    }
}

/// Begin of a run, and the length of its intervals.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) begun: Picos,
    pub(super) length: Picos,
}

impl Span {
    pub(super) fn end(self) -> Picos {
        self.begun.after(Picos(self.length.0 * INTERVALS))
    }

    pub(super) fn last(self) -> Picos {
        self.begun.after(Picos(self.length.0 * (INTERVALS - 1)))
    }

    pub(super) fn interval(self, due: Picos) -> usize {
        (due.since(self.begun).0 / self.length.0.max(1)).min(INTERVALS - 1) as usize
    }
}

/// Results of a run of one multiple.
#[derive(Debug, Clone)]
pub struct Ran {
    /// Response times of small reads from their arrival, for each interval.
    pub intervals: Vec<Histogram>,
    /// True if the large requests, or the puts, were made about as fast as they arrived.
    pub kept_up: bool,
    /// Share of the small reads that the generator itself began late.
    pub late: f64,
}

impl Ran {
    /// Returns true if the run passes.
    #[must_use]
    pub fn keeps(&self, limits: Limits) -> bool {
        self.kept_up && self.intervals.iter().all(|response| limits.hold(response))
    }
}

/// Small reads that wait for a thread, and the threads that wait for reads, by queue.
#[derive(Debug, Clone)]
pub(super) struct Queues {
    all: Vec<Queue>,
    next: usize,
}

#[derive(Debug, Clone)]
struct Queue {
    waiting: VecDeque<Picos>,
    free: usize,
}

impl Queues {
    pub(super) fn new(load: &Load) -> Queues {
        let queue = Queue { waiting: VecDeque::new(), free: load.threads };
        Queues { all: vec![queue; load.queues], next: 0 }
    }

    /// Adds a read to the queue whose turn it is, and returns the queue.
    pub(super) fn arrive(&mut self, due: Picos) -> usize {
        let queue = self.next;
        self.next = (queue + 1) % self.all.len();
        self.all[queue].waiting.push_back(due);
        queue
    }

    /// Lets a free thread of a queue take the next read, and returns the read's arrival.
    pub(super) fn begin(&mut self, queue: usize) -> Option<Picos> {
        let all = &mut self.all[queue];
        if all.free == 0 {
            return None;
        }
        let arrived = all.waiting.pop_front()?;
        all.free -= 1;
        Some(arrived)
    }

    /// Records that a thread of a queue has its read's result.
    pub(super) fn end(&mut self, queue: usize) {
        self.all[queue].free += 1;
    }

    /// Returns the earliest arrival of the reads that wait.
    pub(super) fn oldest(&self) -> Option<Picos> {
        self.all.iter().filter_map(|queue| queue.waiting.front().copied()).min()
    }
}

/// Runs of a search, and its results.
#[derive(Debug)]
pub struct Found {
    /// Runs by their multiples.
    pub runs: BTreeMap<u32, Ran>,
    /// Largest multiple for each of the limits, 0 if the baseline fails; `None` if the search was
    /// ended before it was known.
    pub best: Vec<Option<u32>>,
}

/// Finds the largest multiples, `most` or less, that keep each of the limits. Each multiple runs
/// once, however many limits it is judged by. `run` returns `None` to end the search.
///
/// # Errors
/// If a run fails.
pub fn search<E>(
    limits: &[Limits],
    most: u32,
    mut run: impl FnMut(u32) -> Result<Option<Ran>, E>,
) -> Result<Found, E> {
    let mut runs: BTreeMap<u32, Ran> = BTreeMap::new();
    let mut best = Vec::new();
    for limits in limits {
        best.push(largest(most, |multiple| {
            let ran = match runs.entry(multiple) {
                Entry::Occupied(known) => known.into_mut(),
                Entry::Vacant(new) => match run(multiple)? {
                    Some(ran) => new.insert(ran),
                    None => return Ok(None),
                },
            };
            Ok(Some(ran.keeps(*limits)))
        })?);
    }
    Ok(Found { runs, best })
}

/// Finds the largest multiple that holds: doubled until one does not, then halved between. Zero if
/// the baseline fails.
fn largest<E>(
    most: u32,
    mut holds: impl FnMut(u32) -> Result<Option<bool>, E>,
) -> Result<Option<u32>, E> {
    let (mut best, mut above) = (0, 1.min(most));
    while best < above {
        match holds(above)? {
            None => return Ok(None),
            Some(false) => break,
            Some(true) => (best, above) = (above, above.saturating_mul(2).min(most)),
        }
    }
    while above - best > 1 {
        let between = best.midpoint(above);
        match holds(between)? {
            None => return Ok(None),
            Some(true) => best = between,
            Some(false) => above = between,
        }
    }
    Ok(Some(best))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of_us(us: u64) -> Histogram {
        let mut response = Histogram::new();
        (0..100).for_each(|_| response.record(Duration::from_micros(us)));
        response
    }

    #[test]
    fn the_baselines_are_those_of_the_paper_and_of_the_tool() {
        let paper = Definition::Paper.load(2);
        assert!((paper.large_per_second * f64::from(LARGE_BYTES) - 1.536e6).abs() < 1.0);
        assert!((paper.puts_per_second() - 500.0).abs() < 1e-9);
        let current = Definition::Current.load(2);
        // The tool's own documents have this number of blocks.
        assert!((current.large_per_second - 22.949).abs() < 0.001);
        assert!((current.puts_per_second() - 1_000.0).abs() < 1e-9);
        assert_eq!((current.queues, current.threads), (1, 10));
        for definition in Definition::ALL {
            assert_eq!(definition.name().parse(), Ok(definition));
        }
    }

    #[test]
    fn a_search_finds_the_largest_multiple_for_all_limits_and_runs_none_twice() {
        for (standard, tight) in [(0, 0), (1, 0), (2, 1), (37, 5), (64, 63), (100, 100)] {
            let mut tried = Vec::new();
            let found = search(&Limits::ALL, 100, |multiple| {
                tried.push(multiple);
                let us = match multiple {
                    _ if multiple <= tight => 100,
                    _ if multiple <= standard => 900,
                    _ => 1_100,
                };
                Ok::<_, ()>(Some(Ran { intervals: vec![of_us(us)], kept_up: true, late: 0.0 }))
            });
            let found = found.expect("no run fails");
            assert_eq!(found.best, [Some(standard), Some(tight)]);
            assert_eq!(found.runs.len(), tried.len(), "{tried:?}");
            assert!(tried.iter().all(|multiple| *multiple <= 100));
        }
    }

    #[test]
    fn one_bad_interval_fails_a_multiple_and_so_do_writes_that_fall_behind() {
        let ran =
            |us: [u64; 2], kept_up| Ran { intervals: us.map(of_us).into(), kept_up, late: 0.0 };
        assert!(ran([100, 100], true).keeps(Limits::TIGHT));
        assert!(!ran([100, 200], true).keeps(Limits::TIGHT));
        assert!(ran([100, 200], true).keeps(Limits::STANDARD));
        assert!(!ran([100, 100], false).keeps(Limits::STANDARD));
    }

    #[test]
    fn a_search_that_is_ended_knows_what_it_has_found_so_far() {
        let mut left = 3;
        let found = search(&Limits::ALL, 100, |_| {
            left -= 1;
            let ran = Ran { intervals: vec![of_us(1)], kept_up: true, late: 0.0 };
            Ok::<_, ()>((left > 0).then_some(ran))
        });
        let found = found.expect("no run fails");
        assert_eq!(found.runs.into_keys().collect::<Vec<_>>(), [1, 2]);
        assert_eq!(found.best, [None, None]);
    }
}
