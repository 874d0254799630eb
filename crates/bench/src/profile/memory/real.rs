//! Memory of this machine under measurement: threads of the system, the system's clock.

use std::collections::BTreeMap;
use std::sync::Barrier;
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::process::thread_cpu_ns;
use entresol_media::probe::{Arena, LINE_BYTES, Lane, Order, Task, Touch};

use super::{MemorySubject, Rate, Samples};

/// Least share of the time for which each thread of a sample must have a processor. Below it, other
/// programs disturbed the sample.
const UNDISTURBED: f64 = 0.95;
/// Largest number of repetitions of a disturbed sample.
const REPEATS_MAX: usize = 2;
/// Largest share of samples that are repeated; on a machine that is always busy, more would be
/// futile.
const REPEATS_SHARE: f64 = 0.4;

/// Least time between two readings of the clock, unless one block takes longer.
const LOOK_NS: u64 = 30_000;

/// Arena under measurement.
#[derive(Debug)]
pub(in crate::profile) struct RealMemory<'a> {
    arena: &'a Arena,
    time: Duration,
    /// Blocks touched so far, by kind of task. The next sample continues after them, where no cache
    /// has been yet.
    touched: BTreeMap<(bool, Order, usize), u64>,
    samples: Samples,
    repeats: usize,
}

/// Result of a thread, with the share of the time for which it had a processor.
struct Timed {
    rate: Rate,
    share: f64,
}

impl<'a> RealMemory<'a> {
    /// Creates a subject whose samples last about `time`.
    pub(in crate::profile) fn new(arena: &'a Arena, time: Duration) -> RealMemory<'a> {
        RealMemory {
            arena,
            time,
            touched: BTreeMap::new(),
            samples: Samples::default(),
            repeats: 0,
        }
    }

    fn key(task: &Task) -> (bool, Order, usize) {
        let writes = matches!(task.touch, Touch::Write(..));
        (writes, task.order, task.block_bytes.max(LINE_BYTES))
    }

    fn blocks(&self, task: &Task) -> u64 {
        let sizes = self.arena.sizes();
        let bytes = match task.touch {
            Touch::Write(..) => sizes.write_bytes,
            Touch::Read | Touch::ReadInTurn => sizes.read_bytes,
        };
        bytes / task.block_bytes.max(LINE_BYTES) as u64
    }
}

impl RealMemory<'_> {
    fn once(&mut self, tasks: &[Task]) -> Result<Vec<Timed>, BenchError> {
        let lanes: Vec<Lane<'_>> = tasks
            .iter()
            .enumerate()
            .map(|(number, task)| {
                let before = self.touched.get(&RealMemory::key(task)).copied().unwrap_or(0);
                let apart = self.blocks(task) / tasks.len() as u64 * number as u64;
                Lane::new(self.arena, *task, before + apart)
            })
            .collect();
        let timed = run(lanes, self.time)?;
        for (task, timed) in tasks.iter().zip(&timed) {
            *self.touched.entry(RealMemory::key(task)).or_default() += timed.rate.blocks;
        }
        Ok(timed)
    }
}

impl MemorySubject for RealMemory<'_> {
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError> {
        self.samples.all += 1;
        let least = |timed: &[Timed]| timed.iter().map(|timed| timed.share).fold(1.0, f64::min);
        let mut best = self.once(tasks)?;
        for _ in 0..REPEATS_MAX {
            let allowed = self.repeats as f64 <= self.samples.all as f64 * REPEATS_SHARE;
            if least(&best) >= UNDISTURBED || !allowed {
                break;
            }
            self.repeats += 1;
            let again = self.once(tasks)?;
            if least(&again) > least(&best) {
                best = again;
            }
        }
        self.samples.disturbed += usize::from(least(&best) < UNDISTURBED);
        Ok(best.into_iter().map(|timed| timed.rate).collect())
    }

    fn samples(&self) -> Samples {
        self.samples
    }

    fn remarks(&self) -> Option<String> {
        let percent = |count: usize| count as f64 * 100.0 / self.samples.all.max(1) as f64;
        Some(format!(
            "a sample in which other programs took more than {:.0}% of a thread's time is taken \
             again, at most {REPEATS_MAX} times: {:.0}% were repeated, {:.0}% remain disturbed",
            (1.0 - UNDISTURBED) * 100.0,
            percent(self.repeats),
            percent(self.samples.disturbed),
        ))
    }
}

fn run(mut lanes: Vec<Lane<'_>>, time: Duration) -> Result<Vec<Timed>, BenchError> {
    if let [lane] = lanes.as_mut_slice() {
        return Ok(vec![timed(lane, time)]);
    }
    let together = Barrier::new(lanes.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .iter_mut()
            .map(|lane| {
                let together = &together;
                scope.spawn(move || {
                    together.wait();
                    timed(lane, time)
                })
            })
            .collect();
        let lost = |_| BenchError::System {
            what: "a measuring thread",
            source: std::io::ErrorKind::BrokenPipe.into(),
        };
        threads.into_iter().map(|thread| thread.join().map_err(lost)).collect()
    })
}

/// Runs a lane for about `time`, or for one block if that takes longer.
fn timed(lane: &mut Lane<'_>, time: Duration) -> Timed {
    let clock = SystemClock::new();
    let cpu_start_ns = thread_cpu_ns();
    let start = clock.now();
    let end = start.after(time);
    let (mut blocks, mut batch, mut before) = (0_u64, 1_u32, start);
    loop {
        lane.run(batch);
        blocks += u64::from(batch);
        let now = clock.now();
        if now >= end {
            let elapsed_ns = now.since(start).as_nanos() as f64;
            let cpu_ns = thread_cpu_ns().saturating_sub(cpu_start_ns) as f64;
            return Timed { rate: Rate { blocks, elapsed_ns }, share: cpu_ns / elapsed_ns };
        }
        if now.since(before) < Duration::from_nanos(LOOK_NS) {
            batch = batch.saturating_mul(2);
        }
        before = now;
    }
}
