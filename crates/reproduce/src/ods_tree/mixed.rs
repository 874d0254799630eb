//! Table 3: lines flushed by mixed loads.

use entresol_measure::report::svg::{Bar, bars_beside};

use super::core::{Form, Run, Tree};
use super::counts::{SEEDS, WB, all, fewer};
use super::emulated::{Counted, Counts, mean};
use crate::{Check, Outcome, Settings};

/// Number of runs of published trees, which are slow: their counts are spread by half a per cent.
const SEEDS_PUBLISHED: u64 = 4;

/// One of the paper's two mixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mix {
    /// Inserts, deletes and finds 3:1:1.
    W1,
    /// Inserts, deletes and finds 1:1:3.
    W2,
}

impl Mix {
    pub(super) const BOTH: [Mix; 2] = [Mix::W1, Mix::W2];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Mix::W1 => "W1",
            Mix::W2 => "W2",
        }
    }

    /// Returns the inserts, deletes and finds among a hundred thousand operations.
    pub(super) const fn parts(self) -> [u64; 3] {
        match self {
            Mix::W1 => [60_000, 20_000, 20_000],
            Mix::W2 => [20_000, 20_000, 60_000],
        }
    }

    /// Creates the tree that a mix runs on.
    pub(super) fn warmed(
        (tree, form): (Tree, Form),
        counted: Counted,
        seed: u64,
    ) -> Result<Run, String> {
        let extra = if let Tree::Ods(percent) = tree { 2_000 * percent } else { 0 };
        Run::warmed((tree, form), (500_000, extra), counted, seed)
    }

    /// Runs one tree with several seeds and returns the mean.
    pub(super) fn runs(
        self,
        (tree, form): (Tree, Form),
        counted: Counted,
        seeds: u64,
        settings: &Settings,
    ) -> Result<Counts, String> {
        let mut runs = Vec::new();
        for seed in 0..seeds {
            let seed = settings.seed.wrapping_mul(SEEDS).wrapping_add(seed);
            let mut run = Mix::warmed((tree, form), counted, seed)?;
            runs.push(run.mixed(self.parts())?);
        }
        Ok(mean(&runs))
    }
}

impl Mix {
    /// Returns the checks and a drawing of the lines flushed, the paper's beside ours.
    fn compared(self, settings: &Settings) -> Result<(Vec<Check>, String), String> {
        let of = |seeds| move |subject| self.runs(subject, Counted::Flushes, seeds, settings);
        let (mut checks, mut bars, mut fewest) = (Vec::new(), Vec::new(), f64::INFINITY);
        let forms = [(Form::Published, SEEDS_PUBLISHED), (Form::CrashSafe, SEEDS)];
        for (series, (form, seeds)) in forms.into_iter().enumerate() {
            let lines: Vec<f64> =
                all(form, of(seeds))?.iter().map(|counts| counts.lines_flushed).collect();
            for ((tree, paper), &lines) in Tree::BOTH.iter().zip(self.lines()).zip(&lines) {
                let what = format!("{}, {} {}", self.name(), tree.name(), form.name());
                let label = format!("{} {}", tree.name(), form.name());
                bars.push((Bar { label, value: lines, series }, Some(paper)));
                checks.push(form.named(Check::about(what, "", paper, lines, 4)));
            }
            if let ([fast_fair, .., sparsest], Form::CrashSafe) = (lines.as_slice(), form) {
                let what = format!("{}, crash-safe: fewer than FAST&FAIR, up to", self.name());
                let (ours, paper) = (fewer(*sparsest, *fast_fair), self.fewer_at_most());
                let near = paper - 2.0..=paper + 2.0;
                checks.push(Check::within(what, "%", near, ours).beside(paper));
                fewest = *sparsest;
            }
        }
        let what = format!("{}, wB+-tree", self.name());
        let ours = of(1)((Tree::Wb, Form::CrashSafe))?.lines_flushed;
        checks.push(Check::report(what, "", Some(self.lines_of_wb()), ours, WB));
        let what = format!("{}, crash-safe: fewer than wB+-tree, at most", self.name());
        let paper = Some(self.fewer_than_wb_at_most());
        checks.push(Check::report(what, "%", paper, fewer(fewest, ours), WB));
        let title = format!("Lines flushed by {} (model)", self.name());
        Ok((checks, bars_beside(&title, "", &bars)))
    }

    /// Returns the paper's counts for FAST&FAIR, ODS, ODS0.1 and ODS0.2.
    pub(super) const fn lines(self) -> [f64; 4] {
        match self {
            Mix::W1 => [229_992.0, 202_798.0, 187_966.0, 177_054.0],
            Mix::W2 => [109_619.0, 81_287.0, 75_841.0, 71_447.0],
        }
    }

    const fn lines_of_wb(self) -> f64 {
        match self {
            Mix::W1 => 1_217_410.0,
            Mix::W2 => 974_465.0,
        }
    }

    /// Returns the paper's saving over the wB+-tree by the sparsest tree, in per cent.
    const fn fewer_than_wb_at_most(self) -> f64 {
        match self {
            Mix::W1 => 85.5,
            Mix::W2 => 92.7,
        }
    }

    /// Returns the paper's saving over FAST&FAIR by the sparsest tree, in per cent.
    pub(super) const fn fewer_at_most(self) -> f64 {
        match self {
            Mix::W1 => 23.0,
            Mix::W2 => 34.8,
        }
    }
}

pub(super) fn table3(settings: &Settings) -> Outcome {
    let (mut checks, mut drawings) = (Vec::new(), Vec::new());
    for mix in Mix::BOTH {
        match mix.compared(settings) {
            Ok((found, drawing)) => {
                checks.extend(found);
                drawings.push(drawing);
            }
            Err(what) => return Outcome::failed(what),
        }
    }
    let counted = format!(
        "Lines of 64 B flushed, allocator included; the mean of {SEEDS} seeds, as published \
         {SEEDS_PUBLISHED}, and of the wB+-tree one."
    );
    let scenario = vec![SCENARIO.to_owned(), counted];
    Outcome { scenario, checks, drawings }
}

/// Description of these runs for the scenarios of all figures.
pub(super) const SCENARIO: &str = "0.5 M uniform keys, then 100 000 operations in random order: \
    inserts, deletes of the oldest and finds, W1 3:1:1, W2 1:1:3. ODS0.1 and ODS0.2: 20 000 and \
    40 000 older keys loaded and removed before. The paper prints 0.5 M operations; its counts are \
    those of 100 000.";
