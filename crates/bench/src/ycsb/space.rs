//! Space that a store's files take beside what is live, by the second, and what theory says of the
//! bytes that must be written to keep it within a bound.
//!
//! What is live are the keys and values that can be read. Space is what the file system has
//! allocated, as `du` shows it, and each second has the most of all looks within it.

use entresol_base::{ByteSize, Nanos};
use entresol_measure::BenchError;
use entresol_measure::report::Table;
use entresol_measure::report::table::number;
use serde::Serialize;

use super::phase::{Phase, bytes_of};
use super::result::VolumeResult;
use super::{Engine, SpaceHeld, Workload};

/// Bytes that a store may take beyond its bound, however little is live.
const BESIDE_BYTES: u64 = 16 << 20;
/// Most rows of the table of seconds.
const ROWS_MAX: usize = 60;

/// Space in one second.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SpaceSecond {
    /// Seconds since the workload began.
    pub second: u64,
    /// Bytes of keys and values that can be read, at the end of the second.
    pub live_bytes: u64,
    /// Most bytes that the directories took during the second.
    pub du_bytes: u64,
    /// Bytes of segments that hold flushed values, if the store tells.
    pub value_bytes: Option<u64>,
    /// Operations until then.
    pub operations: u64,
    /// Milliseconds for which the store delayed writers during the second, all threads together.
    pub slowed_ms: u64,
}

impl SpaceSecond {
    /// Returns the bytes taken for each live byte.
    fn ratio(&self) -> f64 {
        self.du_bytes as f64 / self.live_bytes.max(1) as f64
    }
}

/// Space during one workload.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SpaceResult {
    /// Bytes that may be taken for each live byte.
    pub bound: f64,
    /// Largest ratio of the bytes taken to the live bytes.
    pub ratio_max: f64,
    /// Most bytes taken above the bound times the live bytes and 16 MiB; 0 if there were none.
    pub excess_bytes_max: u64,
    /// Seconds for which the store delayed writers, all threads together.
    pub slowed_s: f64,
    /// Bytes written for each byte put, as the store counts them; `None` if it does not.
    pub written: Option<SpaceWritten>,
    /// Each second.
    pub seconds: Vec<SpaceSecond>,
}

/// Bytes written for each byte of a key or value that was put, and what theory gives for them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct SpaceWritten {
    /// Bytes of the log and of collected values.
    pub values: f64,
    /// Bytes of runs.
    pub runs: f64,
    /// Bytes that may be taken by values for each byte of live values, after what else was taken.
    pub bound_of_values: f64,
    /// Share that is live of what is collected, by theory.
    pub live_share_in_theory: Option<f64>,
    /// Bytes of the log and of collected values, by theory; `None` if nothing is left for garbage.
    pub values_in_theory: Option<f64>,
}

/// Watch of the space during one workload. It does nothing unless a bound was given.
pub(super) struct SpaceWatch<'a> {
    phase: &'a Phase<'a>,
    engine: &'a dyn Engine,
    began: Nanos,
    slowed_before: u64,
    slowed_ms: u64,
    du_bytes: u64,
    excess_bytes_max: u64,
    seconds: Vec<SpaceSecond>,
    failed: Option<BenchError>,
}

impl<'a> SpaceWatch<'a> {
    /// Creates the watch of a workload that begins at a time.
    pub(super) fn new(
        phase: &'a Phase<'a>,
        engine: &'a dyn Engine,
        began: Nanos,
    ) -> SpaceWatch<'a> {
        let mut watch = SpaceWatch {
            phase,
            engine,
            began,
            slowed_before: 0,
            slowed_ms: 0,
            du_bytes: 0,
            excess_bytes_max: 0,
            seconds: Vec::new(),
            failed: None,
        };
        if phase.options.space_bound.is_some() {
            watch.slowed_before = watch.held().map_or(0, |held| held.slowed.as_millis() as u64);
            watch.slowed_ms = watch.slowed_before;
        }
        watch
    }

    /// Measures the space, and notes it once a second.
    pub(super) fn look(&mut self, now: Nanos, operations: u64) {
        let Some(bound) = self.phase.options.space_bound else { return };
        let live_bytes = self.live_bytes();
        let du_bytes: u64 = self.phase.options.directories().map(bytes_of).sum();
        let most = (live_bytes as f64 * bound) as u64 + BESIDE_BYTES;
        self.excess_bytes_max = self.excess_bytes_max.max(du_bytes.saturating_sub(most));
        self.du_bytes = self.du_bytes.max(du_bytes);
        let second = now.since(self.began).as_secs();
        if second <= self.seconds.last().map_or(0, |last| last.second) {
            return;
        }
        let held = self.held();
        let slowed_ms = held.map_or(0, |held| held.slowed.as_millis() as u64);
        self.seconds.push(SpaceSecond {
            second,
            live_bytes,
            du_bytes: std::mem::take(&mut self.du_bytes),
            value_bytes: held.map(|held| held.value_bytes),
            operations,
            slowed_ms: slowed_ms.saturating_sub(self.slowed_ms),
        });
        self.slowed_ms = slowed_ms;
    }

    fn live_bytes(&self) -> u64 {
        let options = self.phase.options;
        self.phase.population.count() * (options.key_bytes + options.value_bytes) as u64
    }

    fn held(&mut self) -> Option<SpaceHeld> {
        match self.engine.space() {
            Ok(held) => held,
            Err(error) => {
                self.failed.get_or_insert(error);
                None
            }
        }
    }

    /// Returns the result of a workload that has written so much.
    ///
    /// # Errors
    /// Fails if the store could not tell its counts.
    pub(super) fn finish(
        mut self,
        volumes: &[VolumeResult],
    ) -> Result<Option<SpaceResult>, BenchError> {
        let Some(bound) = self.phase.options.space_bound else { return Ok(None) };
        let slowed_ms = self.held().map_or(0, |held| held.slowed.as_millis() as u64);
        if let Some(error) = self.failed {
            return Err(error);
        }
        let seconds = self.seconds;
        Ok(Some(SpaceResult {
            bound,
            ratio_max: seconds.iter().map(SpaceSecond::ratio).fold(0.0, f64::max),
            excess_bytes_max: self.excess_bytes_max,
            slowed_s: slowed_ms.saturating_sub(self.slowed_before) as f64 / 1e3,
            written: SpaceWritten::of(bound, volumes, &seconds),
            seconds,
        }))
    }
}

impl SpaceWritten {
    /// Returns what was written, and what theory gives at the share of garbage that is left within
    /// the bound after all that was taken beside values, on average.
    fn of(bound: f64, volumes: &[VolumeResult], seconds: &[SpaceSecond]) -> Option<SpaceWritten> {
        let sum = |bytes: fn(&VolumeResult) -> u64| volumes.iter().map(bytes).sum::<u64>() as f64;
        let put = sum(|it| it.written.user_bytes);
        let known = seconds.iter().filter_map(|it| Some((it, it.value_bytes? as f64)));
        let known: Vec<(&SpaceSecond, f64)> = known.collect();
        if put == 0.0 || known.is_empty() {
            return None;
        }
        let log = sum(|it| it.written.log_bytes);
        let mean = |of: &dyn Fn(&SpaceSecond, f64) -> f64| {
            known.iter().map(|(second, values)| of(second, *values)).sum::<f64>()
                / known.len() as f64
        };
        let beside = mean(&|second, values| second.du_bytes as f64 - values);
        let live = mean(&|second, _| second.live_bytes as f64);
        let room = live * bound + BESIDE_BYTES as f64 - beside;
        let bound_of_values = room / (live * log / put).max(1.0);
        let live_share_in_theory = live_share(bound_of_values);
        Some(SpaceWritten {
            values: (log + sum(|it| it.written.collected_bytes)) / put,
            runs: sum(|it| it.written.flush_bytes + it.written.compaction_bytes) / put,
            bound_of_values,
            live_share_in_theory,
            values_in_theory: live_share_in_theory.map(|share| log / put / (1.0 - share)),
        })
    }
}

/// Returns the share that is live of values that are collected in the order in which they were
/// written, under uniform overwrites, in `bound` bytes for each live byte; `None` if there is no
/// such share.
///
/// After `t` overwrites for each key, a share `e^-t` of what was written is live. What is collected
/// was written `t` ago and takes the share `x = e^-t` of each byte that is written again, so
/// `1 / (1 - x)` bytes are written for each byte put, and `bound = t / (1 - x) = -ln x / (1 - x)`.
fn live_share(bound: f64) -> Option<f64> {
    if !(bound.is_finite() && bound > 1.0) {
        return None;
    }
    // The function falls from infinity at 0 to 1 at 1.
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if -middle.ln() / (1.0 - middle) > bound { low = middle } else { high = middle }
    }
    Some(low)
}

impl SpaceResult {
    /// Returns the tables for a terminal.
    pub(super) fn tables(&self, workload: Workload) -> [Table; 2] {
        [self.summary(workload), self.by_second(workload)]
    }

    fn summary(&self, workload: Workload) -> Table {
        let title =
            format!("Space of {workload}, bounded by {} bytes for each live byte", self.bound);
        let mut table = Table::new(&title, &["", ""]);
        let mut row = |name: &str, value: String| table.row(vec![name.to_owned(), value]);
        let known = |value: Option<f64>| value.map_or("-".to_owned(), number);
        row("most taken for each live byte", number(self.ratio_max));
        row("most above the bound and 16 MiB", mebibytes(self.excess_bytes_max));
        row("seconds for which writers were slowed", number(self.slowed_s));
        if let Some(written) = &self.written {
            row("written for each byte put: log and collected values", number(written.values));
            row("by theory", known(written.values_in_theory));
            row("runs", number(written.runs));
            row("left for values, for each live byte", number(written.bound_of_values));
            row("live of what is collected, by theory", known(written.live_share_in_theory));
        }
        table
    }

    fn by_second(&self, workload: Workload) -> Table {
        let columns = ["until", "live", "taken, most", "for each live byte", "slowed, ms"];
        let title = format!("Space of {workload} by the second");
        let mut table = Table::new(&title, &columns);
        let at_once = self.seconds.len().div_ceil(ROWS_MAX).max(1);
        for seconds in self.seconds.chunks(at_once) {
            let ratio =
                |one: &&SpaceSecond, other: &&SpaceSecond| one.ratio().total_cmp(&other.ratio());
            let (Some(last), Some(most)) = (seconds.last(), seconds.iter().max_by(ratio)) else {
                continue;
            };
            table.row(vec![
                format!("{} s", last.second),
                mebibytes(most.live_bytes),
                mebibytes(most.du_bytes),
                number(most.ratio()),
                seconds.iter().map(|it| it.slowed_ms).sum::<u64>().to_string(),
            ]);
        }
        table
    }
}

fn mebibytes(bytes: u64) -> String {
    ByteSize(bytes >> 20 << 20).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn theory_is_what_the_equation_says() {
        for (bound, share, written) in [(1.5, 0.417, 1.716), (2.0, 0.203, 1.255)] {
            let found = live_share(bound).expect("there is garbage");
            assert!((found - share).abs() < 0.001, "{bound}: {found}");
            assert!((1.0 / (1.0 - found) - written).abs() < 0.002, "{bound}: {found}");
            assert!((-found.ln() / (1.0 - found) - bound).abs() < 1e-9);
        }
        assert!(
            [1.0, 0.5, -3.0, f64::NAN, f64::INFINITY].iter().all(|it| live_share(*it).is_none())
        );
    }

    #[test]
    fn values_that_are_collected_in_order_cost_what_theory_says() {
        // A log of pieces, the oldest of which is collected whenever the next would not fit.
        const KEYS: usize = 20_000;
        const PIECE: usize = 100;
        for bound in [1.5, 2.0] {
            let mut rng = fastrand::Rng::with_seed(7);
            let (mut log, mut newest) = (std::collections::VecDeque::new(), vec![0_u64; KEYS]);
            let (mut next, mut puts, mut written) = (1, 0_u64, 0_u64);
            let mut write =
                |key: usize, newest: &mut [u64], log: &mut std::collections::VecDeque<_>| {
                    newest[key] = next;
                    log.push_back((key, next));
                    next += 1;
                };
            (0..KEYS).for_each(|key| write(key, &mut newest, &mut log));
            while puts < 400_000 {
                if log.len() + PIECE <= (KEYS as f64 * bound) as usize {
                    write(rng.usize(0..KEYS), &mut newest, &mut log);
                    puts += 1;
                    written += u64::from(puts > 200_000);
                } else {
                    let (key, number) = log.pop_front().expect("it is full");
                    if newest[key] == number {
                        write(key, &mut newest, &mut log);
                        written += u64::from(puts > 200_000);
                    }
                }
            }
            let found = written as f64 / (puts - 200_000) as f64;
            let theory = 1.0 / (1.0 - live_share(bound).expect("there is garbage"));
            assert!((found / theory - 1.0).abs() < 0.02, "{bound}: {found}, theory {theory}");
        }
    }
}
