//! What is measured of a byte-addressable medium, real or modelled: the figures of «Rethinking
//! Index Design Based on PM Device», section 2, as definitions that a subject carries out.
//!
//! A figure is a set of cells, each a load (what every thread does) and what to take from it. All
//! cells are measured once, then all again, five times in all: what disturbs the machine for a
//! while shows in the spread instead of moving some medians.

use entresol_media::probe::{Fences, Order, StoreMethod, Task, Touch};

use super::figure::{Figure, Point, Quantity, Series};
use crate::error::BenchError;
use crate::progress::Progress;
use crate::statistics::Spread;

mod figures;
pub(super) mod real;

pub(super) use figures::{cost_plan, plan};

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

/// A byte-addressable medium to be measured.
pub trait MemorySubject {
    /// Lets one thread a task do its loop, all at the same time, for a while; what each achieved.
    ///
    /// # Errors
    /// If the system refuses threads.
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError>;

    /// What is to be said about the samples so far.
    fn remarks(&self) -> Option<String> {
        None
    }
}

/// Which of a load's threads are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
    Readers,
    Writers,
}

/// What is taken from a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Take {
    /// How long a block took, on average over the threads of that side.
    LatencyNs(Side),
    /// How many bytes the threads of that side moved, in 1e9 a second.
    Bandwidth(Side),
    /// How many blocks all threads touched in a second.
    Operations,
}

/// Where a value goes.
#[derive(Debug, Clone, Copy)]
struct Goal {
    figure: usize,
    series: usize,
    x: f64,
    take: Take,
}

/// One load and where its values go.
#[derive(Debug, Clone)]
struct Cell {
    tasks: Vec<Task>,
    goals: Vec<Goal>,
}

/// Figures that are still empty, and the cells that fill them.
#[derive(Debug, Clone, Default)]
pub(super) struct Plan {
    figures: Vec<Figure>,
    cells: Vec<Cell>,
}

impl Plan {
    /// Begins a figure; what comes back names it in goals.
    fn figure(&mut self, figure: Figure) -> usize {
        self.figures.push(figure);
        self.figures.len() - 1
    }

    /// The series of this label, made if there is none.
    fn series(&mut self, figure: usize, label: &str) -> usize {
        let all = &mut self.figures[figure].series;
        if let Some(found) = all.iter().position(|series| series.label == label) {
            return found;
        }
        all.push(Series { label: label.to_owned(), points: Vec::new() });
        all.len() - 1
    }

    /// Adds a load whose value goes to one place.
    fn cell(&mut self, figure: usize, label: &str, x: f64, tasks: Vec<Task>, take: Take) {
        let series = self.series(figure, label);
        self.cells.push(Cell { tasks, goals: vec![Goal { figure, series, x, take }] });
    }

    /// How many samples it takes for one subject.
    pub(super) fn samples(&self, rounds: usize) -> u64 {
        (self.cells.len() * rounds) as u64
    }

    /// Measures everything on all subjects, which take turns at each cell so that they share what
    /// disturbs the machine.
    pub(super) fn measure(
        &self,
        subjects: &mut [Box<dyn MemorySubject + '_>],
        rounds: usize,
        progress: &Progress,
    ) -> Result<Vec<Vec<Figure>>, BenchError> {
        let goals: usize = self.cells.iter().map(|cell| cell.goals.len()).sum();
        let mut values = vec![vec![Vec::with_capacity(rounds); goals]; subjects.len()];
        for round in 0..rounds {
            let mut place = 0;
            for cell in &self.cells {
                progress.say(self.figures[cell.goals[0].figure].title);
                for turn in 0..subjects.len() {
                    // Whoever went first goes last in the next round.
                    let subject = (turn + round) % subjects.len();
                    let rates = subjects[subject].sample(&cell.tasks)?;
                    for (goal, value) in cell.goals.iter().enumerate() {
                        values[subject][place + goal].push(value.take.of(&cell.tasks, &rates));
                    }
                    progress.advance(1);
                }
                place += cell.goals.len();
            }
        }
        Ok(values.iter().map(|values| self.filled(values)).collect())
    }

    fn filled(&self, values: &[Vec<f64>]) -> Vec<Figure> {
        let mut figures = self.figures.clone();
        let goals = self.cells.iter().flat_map(|cell| &cell.goals);
        for (goal, values) in goals.zip(values) {
            let point = Point { x: goal.x, y: Spread::of(values) };
            figures[goal.figure].series[goal.series].points.push(point);
        }
        for series in figures.iter_mut().flat_map(|figure| &mut figure.series) {
            series.points.sort_by(|a, b| a.x.total_cmp(&b.x));
        }
        figures
    }
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

fn empty(
    name: &'static str,
    title: &'static str,
    about: &str,
    (x, y): (Quantity, Quantity),
) -> Figure {
    Figure { name, title, about: about.to_owned(), x, y, series: Vec::new() }
}
