//! What is measured of a byte-addressable medium, real or modelled: the figures of «Rethinking
//! Index Design Based on PM Device», section 2, as definitions that a subject carries out.

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

/// How often everything is measured.
pub const ROUNDS: usize = 5;

/// What one thread achieved.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Blocks touched.
    pub blocks: u64,
    /// In how long.
    pub elapsed_ns: f64,
}

/// How many samples were taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Samples {
    /// All of them.
    pub all: usize,
    /// Those in which a thread did not have a processor for itself, however often repeated.
    pub disturbed: usize,
}

/// A byte-addressable medium to be measured.
pub trait MemorySubject {
    /// Lets one thread a task do its loop, all at the same time, for a while; what each achieved.
    ///
    /// # Errors
    /// If the system refuses threads.
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError>;

    /// The samples so far.
    fn samples(&self) -> Samples {
        Samples::default()
    }

    /// What is to be said about the samples so far.
    fn remarks(&self) -> Option<String> {
        None
    }
}

/// Which of a load's threads are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Readers,
    Writers,
}

/// What is taken from a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Take {
    /// How long a block took, on average over the threads of that side.
    LatencyNs(Side),
    /// How many bytes the threads of that side moved, in 1e9 a second.
    Bandwidth(Side),
    /// How many blocks all threads touched in a second.
    Operations,
}

/// What is measured of memory: a load is what each thread does.
pub(super) type Plan = plan::Plan<Vec<Task>, Take>;

/// Measures a plan on subjects in turns.
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

/// How much is measured.
#[derive(Debug, Clone)]
pub(super) struct Scope {
    /// Everything, instead of what fits into a minute.
    pub(super) full: bool,
    /// Numbers of threads, growing.
    pub(super) threads: Vec<usize>,
    /// Ways to write, the first being the one that most figures use.
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
