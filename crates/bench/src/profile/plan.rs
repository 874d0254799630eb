//! Figures that are still empty, and the loads that fill them.
//!
//! A figure is a set of cells, each a load and what to take from it. All cells are measured once,
//! then all again, five times in all: what disturbs the machine for a while shows in the spread
//! instead of moving some medians.

use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;

use super::figure::{Figure, Point, Quantity, Series};

/// Where a value goes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal<T> {
    pub(super) figure: usize,
    pub(super) series: usize,
    pub(super) x: f64,
    pub(super) take: T,
}

/// One load and where its values go.
#[derive(Debug, Clone)]
pub(super) struct Cell<L, T> {
    pub(super) load: L,
    pub(super) goals: Vec<Goal<T>>,
}

/// Figures, and the cells that fill them, of loads `L` from which values `T` are taken.
#[derive(Debug, Clone)]
pub(super) struct Plan<L, T> {
    pub(super) figures: Vec<Figure>,
    pub(super) cells: Vec<Cell<L, T>>,
}

impl<L, T> Default for Plan<L, T> {
    fn default() -> Self {
        Plan { figures: Vec::new(), cells: Vec::new() }
    }
}

impl<L, T: Copy> Plan<L, T> {
    /// Begins a figure; what comes back names it in goals.
    pub(super) fn figure(&mut self, figure: Figure) -> usize {
        self.figures.push(figure);
        self.figures.len() - 1
    }

    /// The series of this label, made if there is none.
    pub(super) fn series(&mut self, figure: usize, label: &str) -> usize {
        let all = &mut self.figures[figure].series;
        if let Some(found) = all.iter().position(|series| series.label == label) {
            return found;
        }
        all.push(Series { label: label.to_owned(), points: Vec::new() });
        all.len() - 1
    }

    /// A place in a figure.
    pub(super) fn goal(&mut self, figure: usize, label: &str, x: f64, take: T) -> Goal<T> {
        Goal { figure, series: self.series(figure, label), x, take }
    }

    /// Adds a load whose value goes to one place.
    pub(super) fn cell(&mut self, figure: usize, label: &str, x: f64, load: L, take: T) {
        let goals = vec![self.goal(figure, label, x, take)];
        self.cells.push(Cell { load, goals });
    }

    /// How many samples it takes for one subject.
    pub(super) fn samples(&self, rounds: usize) -> u64 {
        (self.cells.len() * rounds) as u64
    }

    /// Measures everything on so many subjects, which take turns at each cell so that they share
    /// what disturbs the machine. `sample` lets a subject carry a load out and takes the values.
    ///
    /// Once an end is asked for, the rounds that are there must do. Where it was asked for before,
    /// one round is measured, since what was measured before is nothing without this.
    ///
    /// # Errors
    /// What `sample` says, or that an end is asked for in the first round.
    pub(super) fn measure(
        &self,
        subjects: usize,
        rounds: usize,
        progress: &Progress,
        mut sample: impl FnMut(usize, &L, &[T]) -> Result<Vec<f64>, BenchError>,
    ) -> Result<Vec<Vec<Figure>>, BenchError> {
        let goals: usize = self.cells.iter().map(|cell| cell.goals.len()).sum();
        let mut values = vec![vec![Vec::with_capacity(rounds); goals]; subjects];
        let was_stopped = progress.is_stopped();
        'rounds: for round in 0..rounds {
            let mut place = 0;
            for cell in &self.cells {
                match (progress.is_stopped(), round) {
                    (true, 0) if !was_stopped => {
                        return Err(BenchError::Interrupted { has_results: false });
                    }
                    (true, 1..) => break 'rounds,
                    _ => {}
                }
                progress.say(self.figures[cell.goals[0].figure].title);
                let takes: Vec<T> = cell.goals.iter().map(|goal| goal.take).collect();
                for turn in 0..subjects {
                    // Whoever went first goes last in the next round.
                    let subject = (turn + round) % subjects;
                    let taken = sample(subject, &cell.load, &takes)?;
                    for (goal, value) in taken.into_iter().enumerate() {
                        values[subject][place + goal].push(value);
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

/// A figure without points.
pub(super) fn empty(
    name: &'static str,
    title: &'static str,
    about: &str,
    (x, y): (Quantity, Quantity),
) -> Figure {
    Figure { name, title, about: about.to_owned(), x, y, series: Vec::new() }
}
