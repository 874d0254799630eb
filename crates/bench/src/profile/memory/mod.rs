//! Measurements of a byte-addressable medium, real or modelled: the figures of «Rethinking Index
//! Design Based on PM Device», section 2, as definitions that a subject carries out.

use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::probe::{Fences, Order, StoreMethod, Task, Touch};

use super::figure::Figure;
use super::plan;

mod figures;
pub(super) mod model;
pub(super) mod real;
mod threads;

pub(super) use figures::{cost_plan, plan};
pub(super) use threads::{best_threads, saturating};

/// Number of rounds, in each of which everything is measured once.
pub const ROUNDS: usize = 5;

/// Result of one thread.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Blocks touched.
    pub blocks: u64,
    /// Time in nanoseconds.
    pub elapsed_ns: f64,
}

/// Counts of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Samples {
    /// Number of all samples.
    pub all: usize,
    /// Samples in which a thread did not have a processor to itself, even after repetition.
    pub disturbed: usize,
}

/// Byte-addressable medium to measure.
pub trait MemorySubject {
    /// Runs the loop of each task in a thread of its own, all at the same time, and returns their
    /// results.
    ///
    /// # Errors
    /// Fails if the system refuses to start threads.
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError>;

    /// Returns the counts of the samples so far.
    fn samples(&self) -> Samples {
        Samples::default()
    }

    /// Returns a remark about the samples so far.
    fn remarks(&self) -> Option<String> {
        None
    }
}

/// Threads of a load whose results are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Readers,
    Writers,
}

/// Value to take from a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// Mean time of a block over the threads of one side.
    LatencyNs(Side),
    /// Bandwidth of the threads of one side, in 1e9 bytes per second.
    Bandwidth(Side),
    /// Blocks per second over all threads.
    Operations,
}

/// Plan for memory: a load is the list of the threads' tasks.
pub(super) type Plan = plan::Plan<Vec<Task>, Take>;

/// Measures a plan on all subjects, which alternate.
pub(super) fn measure(
    plan: &Plan,
    subjects: &mut [Box<dyn MemorySubject + '_>],
    rounds: usize,
    progress: &Progress,
) -> Result<Vec<Vec<Figure>>, BenchError> {
    plan.measure(subjects.len(), rounds, progress, |subject, tasks, takes| {
        let rates = subjects[subject].sample(tasks)?;
        Ok(takes.iter().map(|take| take.of(tasks, &rates)).collect())
    })
}

impl Take {
    fn of(self, tasks: &[Task], rates: &[Rate]) -> f64 {
        let side = |side| {
            let all = tasks.iter().zip(rates);
            all.filter(move |(task, _)| {
                matches!(task.touch, Touch::Write(..)) == (side == Side::Writers)
            })
        };
        let blocks_s = |rate: &Rate| rate.blocks as f64 * 1e9 / rate.elapsed_ns.max(1.0);
        match self {
            Take::LatencyNs(of) => {
                let (mut blocks, mut elapsed_ns) = (0.0, 0.0);
                for (_, rate) in side(of) {
                    blocks += rate.blocks as f64;
                    elapsed_ns += rate.elapsed_ns;
                }
                elapsed_ns / f64::max(blocks, 1.0)
            }
            Take::Bandwidth(of) => {
                side(of).map(|(task, rate)| blocks_s(rate) * task.block_bytes as f64 / 1e9).sum()
            }
            Take::Operations => rates.iter().map(blocks_s).sum(),
        }
    }
}

/// Scope of a measurement.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// Measures everything instead of the part that fits into a minute.
    pub(super) full: bool,
    /// Numbers of threads in ascending order.
    pub(super) threads: Vec<usize>,
    /// Methods of writing; most figures use the first one.
    pub(super) methods: Vec<StoreMethod>,
}

impl Scope {
    fn most_threads(&self) -> usize {
        self.threads.last().copied().unwrap_or(1)
    }
}

fn task(touch: Touch, order: Order, block_bytes: usize) -> Task {
    Task { touch, order, block_bytes }
}

fn write(method: StoreMethod) -> Touch {
    Touch::Write(method, Fences::EachBlock)
}

const fn order_name(order: Order) -> &'static str {
    match order {
        Order::Random => "random",
        Order::Sequential => "sequential",
    }
}

fn threads_label(threads: usize) -> String {
    if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") }
}
