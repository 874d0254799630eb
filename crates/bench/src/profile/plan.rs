//! Plans: figures that are still empty, and the loads that fill them.
//!
//! A figure consists of cells, each a load and the values to take from it. All cells are measured
//! once, then all of them again, five times in total. A temporary disturbance of the machine then
//! shows in the spread instead of shifting some medians.

use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;

use super::figure::{Figure, Point, Quantity, Series};

/// Destination of a value.
#[derive(Debug, Clone, Copy)]
pub(super) struct Goal<T> {
    pub(super) figure: usize,
    pub(super) series: usize,
    pub(super) x: f64,
    pub(super) take: T,
}

/// Load and the destinations of its values.
#[derive(Debug, Clone)]
pub(super) struct Cell<L, T> {
    pub(super) load: L,
    pub(super) goals: Vec<Goal<T>>,
}

/// Figures, and the cells that fill them. Values `T` are taken from loads `L`.
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
    /// Adds a figure and returns its number for goals.
    pub(super) fn figure(&mut self, figure: Figure) -> usize {
        self.figures.push(figure);
        self.figures.len() - 1
    }

    /// Returns the number of the series with this label, which is added if necessary.
    pub(super) fn series(&mut self, figure: usize, label: &str) -> usize {
        let all = &mut self.figures[figure].series;
        if let Some(found) = all.iter().position(|series| series.label == label) {
            return found;
        }
        all.push(Series { label: label.to_owned(), points: Vec::new() });
        all.len() - 1
    }

    /// Creates a goal for one position in a figure.
    pub(super) fn goal(&mut self, figure: usize, label: &str, x: f64, take: T) -> Goal<T> {
        Goal { figure, series: self.series(figure, label), x, take }
    }

    /// Adds a load whose value goes to one position.
    pub(super) fn cell(&mut self, figure: usize, label: &str, x: f64, load: L, take: T) {
        let goals = vec![self.goal(figure, label, x, take)];
        self.cells.push(Cell { load, goals });
    }

    /// Returns the number of samples for one subject.
    pub(super) fn samples(&self, rounds: usize) -> u64 {
        (self.cells.len() * rounds) as u64
    }

    /// Measures everything on `subjects` subjects, which alternate at each cell; disturbances of
    /// the machine then affect all of them. `sample` runs a load on a subject and returns the
    /// values.
    ///
    /// When an end is requested, the completed rounds suffice. If it was requested before this
    /// call, one round is measured, since the results of earlier plans are useless without these.
    ///
    /// # Errors
    /// Returns the error of `sample`, or an interruption if an end is requested in the first round.
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
                    // The subject that goes first changes from round to round.
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

/// Creates a figure without points.
pub(super) fn empty(
    name: &'static str,
    title: &'static str,
    about: &str,
    (x, y): (Quantity, Quantity),
) -> Figure {
    Figure { name, title, about: about.to_owned(), x, y, series: Vec::new() }
}
