//! Figures 4 and 5: times of the tables' operations on a model of the paper's emulation.

use entresol_measure::report::svg::{Bar, bars};

use super::core::{Form, Tree};
use super::counts::{SEEDS_FEW, Single, WB, all, fewer, single};
use super::emulated::{Counted, Counts};
use super::mixed::{self, Mix};
use crate::{Check, Outcome, Settings, Side};

/// One of the paper's three latency settings, whose values it does not state: chosen.
#[derive(Debug, Clone, Copy)]
pub(super) struct Latency {
    name: &'static str,
    /// Time of a read that misses the cache.
    read_ns: f64,
    /// Additional time of a flush.
    flush_extra_ns: f64,
}

pub(super) const LATENCIES: [Latency; 3] = [
    Latency { name: "low", read_ns: 100.0, flush_extra_ns: 0.0 },
    Latency { name: "middle", read_ns: 200.0, flush_extra_ns: 200.0 },
    Latency { name: "high", read_ns: 300.0, flush_extra_ns: 400.0 },
];

/// Time of a `clflush` and the fences around it.
const FLUSH_NS: f64 = 150.0;
/// Time of a load or store that hits the nearest cache, with the instructions around it.
const ACCESS_NS: f64 = 1.0;
/// Time to fetch a line from the last-level cache at 1.9 GHz.
const FETCH_NS: f64 = 20.0;
/// Further time of an operation, for the call and for drawing the key.
const OPERATION_NS: f64 = 40.0;

impl Latency {
    fn ns(&self, counts: &Counts) -> f64 {
        let Counts { operations, lines_flushed, accesses, fetched, misses } = *counts;
        let flushes = lines_flushed * (FLUSH_NS + self.flush_extra_ns);
        let processor = operations * OPERATION_NS + accesses * ACCESS_NS;
        processor + fetched * FETCH_NS + misses * self.read_ns + flushes
    }

    /// Returns the time of `of` divided by the time of `to`.
    pub(super) fn ratio(&self, of: &Counts, to: &Counts) -> f64 {
        self.ns(of) / self.ns(to)
    }
}

fn scenario(of: &str) -> Vec<String> {
    let latencies: Vec<String> = LATENCIES
        .iter()
        .map(|it| format!("{} {} ns and {} ns", it.name, it.read_ns, FLUSH_NS + it.flush_extra_ns))
        .collect();
    vec![
        of.to_owned(),
        format!(
            "The time of a read that misses the cache and of a flush: {} (the paper does not name \
             its three). An access in the nearest cache takes {ACCESS_NS} ns, a line from the \
             last-level one {FETCH_NS} ns, an operation {OPERATION_NS} ns beside. The last-level \
             cache holds the whole tree but for what was flushed.",
            latencies.join(", ")
        ),
    ]
}

pub(super) fn fig4(settings: &Settings) -> Outcome {
    let runs = || {
        let of = |subject| single(subject, Counted::Everything, SEEDS_FEW, settings);
        let (published, ours) = (all(Form::Published, of)?, all(Form::CrashSafe, of)?);
        Ok((published, ours, of((Tree::Wb, Form::CrashSafe))?))
    };
    match runs() {
        Ok((published, ours, wb)) => {
            let mut checks = Vec::new();
            for (form, singles) in [(Form::CrashSafe, &ours), (Form::Published, &published)] {
                checks.extend(of_inserts(form, singles, &wb));
                checks.extend(of_deletes(form, singles));
            }
            checks.extend(of_finds(&ours, &wb));
            checks.extend(finds_published(&published));
            let all = || ours.iter().chain([&wb]);
            let draw = |kind: &str, of: fn(&Single) -> Counts| {
                let runs: Vec<_> = all().map(|single| (single.tree.name(), of(single))).collect();
                drawing(&format!("{kind}, crash-safe (model)"), &runs)
            };
            let drawings = vec![
                draw("Inserts", |single| single.inserts),
                draw("Finds", |single| single.finds),
                draw("Deletes", |single| single.deletes),
            ];
            Outcome {
                scenario: scenario("The runs of table 2, the same counts."),
                checks,
                drawings,
            }
        }
        Err(what) => Outcome::failed(what),
    }
}

/// Checks inserts into sparse trees against FAST&FAIR and the wB+-tree. The published form is not
/// judged against the latter.
fn of_inserts(form: Form, singles: &[Single], wb: &Single) -> Vec<Check> {
    let [fast_fair, _, ods1, ods2] = singles else { return Vec::new() };
    let (mut checks, of) = (Vec::new(), form.name());
    for (latency, paper) in
        LATENCIES.iter().zip(["0.90 to 0.935", "0.957 to 0.97", "0.931 to 0.965"])
    {
        let name = latency.name;
        let sparse = [ods1, ods2].map(|it| latency.ratio(&it.inserts, &fast_fair.inserts));
        for (single, ratio) in [ods1, ods2].into_iter().zip(sparse) {
            let tree = single.tree.name();
            let what = format!("{name}: inserts, {tree} / FAST&FAIR, {of}");
            checks.push(Check::within(what, "", 0.88..=1.0, ratio).beside(paper));
            let against_wb = latency.ratio(&single.inserts, &wb.inserts);
            let what = format!("{name}: inserts, {tree} / wB+-tree, {of}");
            checks.push(match form {
                Form::CrashSafe => {
                    Check::at_most(what, "", 0.55, against_wb).beside("0.417 to 0.473")
                }
                Form::Published => Check::report(what, "", Some(0.45), against_wb, WB),
            });
        }
        let what = format!("{name}: inserts, ODS0.2 / ODS0.1: sparser is faster, {of}");
        checks.push(Check::limit(what, "", Side::Below, 1.0, sparse[1] / sparse[0]));
        let what = format!("{name}: inserts, ODS0.1 / FAST&FAIR: sparse is faster, {of}");
        checks.push(Check::limit(what, "", Side::Below, 1.0, sparse[0]));
    }
    checks.into_iter().map(|check| form.named(check)).collect()
}

/// Checks deletes against FAST&FAIR in one form.
fn of_deletes(form: Form, singles: &[Single]) -> Vec<Check> {
    let [fast_fair, ods @ ..] = singles else { return Vec::new() };
    let mut checks = Vec::new();
    for latency in &LATENCIES {
        for single in ods {
            let (tree, of) = (single.tree.name(), form.name());
            let what = format!("{}: deletes, {tree} / FAST&FAIR, {of}", latency.name);
            let ratio = latency.ratio(&single.deletes, &fast_fair.deletes);
            let check = Check::within(what, "", 0.28..=0.42, ratio).beside("0.322 to 0.344");
            checks.push(form.named(check));
        }
    }
    checks
}

/// Checks that finds in sparse trees are slower if reads are slow, and equally fast if reads are
/// fast.
fn of_finds(ours: &[Single], wb: &Single) -> Vec<Check> {
    let [fast_fair, _, sparse @ ..] = ours else { return Vec::new() };
    let [low, _, high] = &LATENCIES;
    let mut checks = Vec::new();
    for single in sparse {
        let tree = single.tree.name();
        for dense in [fast_fair, wb] {
            let to = dense.tree.name();
            let ratio = |latency: &Latency| latency.ratio(&single.finds, &dense.finds);
            let what = format!("high: finds, {tree} / {to}");
            checks.push(Check::limit(what, "", Side::Above, 1.0, ratio(high)).beside("slower"));
            checks.push(Check::about(format!("low: finds, {tree} / {to}"), "", 1.0, ratio(low), 5));
            let what = format!("lines fetched by a find, {tree} / {to}");
            let fetched = single.finds.fetched / dense.finds.fetched;
            checks.push(Check::limit(what, "", Side::Above, 1.0, fetched).beside("more lines"));
        }
    }
    checks
}

/// Reports the finds of the trees as published.
fn finds_published(published: &[Single]) -> Vec<Check> {
    let [fast_fair, .., sparse] = published else { return Vec::new() };
    let [low, _, high] = &LATENCIES;
    let ratio = |latency: &Latency| latency.ratio(&sparse.finds, &fast_fair.finds);
    let fetched = sparse.finds.fetched / fast_fair.finds.fetched;
    let why = "beside what is shipped";
    let report = |what: &str, ours| {
        let what = format!("{what}, ODS0.2 / FAST&FAIR, as published");
        Check::report(what, "", None, ours, why).published()
    };
    vec![
        report("high: finds", ratio(high)),
        report("low: finds", ratio(low)),
        report("lines fetched by a find", fetched),
    ]
}

pub(super) fn fig5a(settings: &Settings) -> Outcome {
    fig5(Mix::W1, settings)
}

pub(super) fn fig5b(settings: &Settings) -> Outcome {
    fig5(Mix::W2, settings)
}

fn fig5(mix: Mix, settings: &Settings) -> Outcome {
    let runs = || {
        let of = |subject| mix.runs(subject, Counted::Everything, 1, settings);
        let (published, ours) = (all(Form::Published, of)?, all(Form::CrashSafe, of)?);
        Ok((published, ours, of((Tree::Wb, Form::CrashSafe))?))
    };
    let (published, ours, wb) = match runs() {
        Ok(runs) => runs,
        Err(what) => return Outcome::failed(what),
    };
    let mut checks = Vec::new();
    for (form, runs) in [(Form::Published, &published), (Form::CrashSafe, &ours)] {
        let [fast_fair, ods @ ..] = runs.as_slice() else { continue };
        for latency in &LATENCIES {
            let saved = |counts| fewer(latency.ns(counts), latency.ns(fast_fair));
            let all: Vec<f64> = ods.iter().map(saved).collect();
            let Some(first) = all.first() else { continue };
            let (at, of) = (latency.name, form.name());
            let what = format!("{at}: ODS saves against FAST&FAIR, {of}");
            let check = Check::within(what, "%", mix.saved(), *first).beside(mix.saved_in_text());
            checks.push(form.named(check));
            let each: Vec<String> = all.iter().map(|saved| format!("{saved:.1}%")).collect();
            checks.push(form.named(Check::shape(
                format!("{at}: ODS0.1 and ODS0.2 save more, {of}"),
                "flush less in table 3",
                each.join(" "),
                all.is_sorted(),
            )));
        }
    }
    for latency in &LATENCIES {
        for (tree, counts) in Tree::BOTH.iter().zip(&ours).skip(1) {
            let what = format!("{}: saved against wB+-tree, {}", latency.name, tree.name());
            let saved = fewer(latency.ns(counts), latency.ns(&wb));
            checks.push(Check::report(what, "%", Some(mix.saved_of_wb()), saved, WB));
        }
    }
    let names = Tree::BOTH.iter().chain([&Tree::Wb]).map(|tree| tree.name());
    let runs: Vec<_> = names.zip(ours.iter().chain([&wb]).copied()).collect();
    let mut scenario = scenario(mixed::SCENARIO);
    scenario.push(format!(
        "{}, one seed. The text has three percentages «of three versions under different \
         latencies»; read as ODS at each latency, for they fit what it flushes less in table 3: \
         11.8% and 25.8%. The sparser ones flush up to 23.0% and 34.8% less.",
        mix.name()
    ));
    let title = format!("{}, crash-safe: time of an operation (model)", mix.name());
    Outcome { scenario, checks, drawings: vec![drawing(&title, &runs)] }
}

/// Draws the time of an operation for each tree and latency.
fn drawing(title: &str, runs: &[(&str, Counts)]) -> String {
    let of = |(series, latency): (usize, &Latency)| {
        let bar = |(name, counts): &(&str, Counts)| Bar {
            label: format!("{}, {name}", latency.name),
            value: latency.ns(counts) / counts.operations,
            series,
        };
        runs.iter().map(bar).collect::<Vec<_>>()
    };
    let all: Vec<Bar> = LATENCIES.iter().enumerate().flat_map(of).collect();
    bars(title, "ns", &all)
}

impl Mix {
    /// Returns the paper's range of savings in per cent, widened at both ends.
    const fn saved(self) -> std::ops::RangeInclusive<f64> {
        match self {
            Mix::W1 => 8.0..=20.0,
            Mix::W2 => 13.0..=28.0,
        }
    }

    /// Returns the paper's range of savings in per cent.
    const fn saved_in_text(self) -> &'static str {
        match self {
            Mix::W1 => "11.7 to 14.6",
            Mix::W2 => "18.1 to 22.1",
        }
    }

    /// Returns the middle of the paper's range of savings over the wB+-tree, in per cent.
    const fn saved_of_wb(self) -> f64 {
        match self {
            Mix::W1 => 78.9,
            Mix::W2 => 78.0,
        }
    }
}
