//! Figures 11 to 14: readers and writers of 256 bytes on one device.

use entresol_measure::report::table::number;
use entresol_media::model::memory::Module;

use super::{AEP, Group, Line, Outcome, Pattern, Scale, Settings, axis, lines_beside, scenario};
use crate::check::Check;
use crate::memory::{Measured, run};
use crate::tolerance::Side;

/// Thread counts of the kind that stays constant: chosen.
const FIXED: [u32; 2] = [4, 8];
/// Thread counts of the kind that grows.
const GROWING: [u32; 6] = [0, 1, 2, 4, 8, 16];

/// Kind of access that stays constant and is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Reads,
    Writes,
}

impl Kind {
    const fn name(self) -> &'static str {
        match self {
            Kind::Reads => "read",
            Kind::Writes => "write",
        }
    }

    const fn others(self) -> &'static str {
        match self {
            Kind::Reads => "writers",
            Kind::Writes => "readers",
        }
    }

    fn floor_gb_s(self, module: &Module) -> f64 {
        let floor = match self {
            Kind::Reads => module.read_floor_bytes_s(),
            Kind::Writes => module.write_floor_bytes_s(),
        };
        floor as f64 / 1e9
    }
}

/// Measures `fixed` threads of a kind beside each count of the other kind.
fn row(kind: Kind, fixed: u32, seed: u64) -> Vec<(u32, Measured)> {
    let measure = |&others: &u32| {
        let readers = |threads| Group::readers(threads, 256, Pattern::Random);
        let writers = |threads| Group::writers(threads, 256, Pattern::Random);
        let mut groups = match kind {
            Kind::Reads => vec![readers(fixed), writers(others)],
            Kind::Writes => vec![writers(fixed), readers(others)],
        };
        groups.retain(|group| group.threads > 0);
        (others, run(&AEP, &groups, seed).groups.swap_remove(0))
    };
    GROWING.iter().map(measure).collect()
}

fn said(kind: Kind) -> Vec<String> {
    let module = &AEP.module;
    scenario(&[
        "256 B random; 4 and 8 threads of the kind that stays (chosen), 0 to 16 of the other",
        &format!(
            "the floor is a parameter (chosen; the text has no number): {}s keep {} GB/s however \
             many {} there are",
            kind.name(),
            number(kind.floor_gb_s(module)),
            kind.others(),
        ),
    ])
}

fn drawing(
    kind: Kind,
    unit: &str,
    rows: &[(u32, Vec<(u32, f64)>)],
    papers: &[(usize, Line)],
) -> String {
    let line = |(fixed, row): &(u32, Vec<(u32, f64)>)| Line {
        label: format!("{fixed} threads {}", kind.name()),
        points: row.iter().map(|&(others, value)| (f64::from(others), value)).collect(),
    };
    let series: Vec<Line> = rows.iter().map(line).collect();
    let title = format!("256 B {}s beside {}", kind.name(), kind.others());
    let (x, y) = (axis(kind.others(), Scale::Linear), axis(unit, Scale::Linear));
    lines_beside(&title, &x, &y, &series, papers)
}

fn bandwidth(kind: Kind, settings: &Settings) -> Outcome {
    let floor = kind.floor_gb_s(&AEP.module);
    let (mut checks, mut rows) = (Vec::new(), Vec::new());
    for fixed in FIXED {
        let measured = row(kind, fixed, settings.seed);
        let values: Vec<f64> = measured.iter().map(|(_, measured)| measured.gb_s()).collect();
        let what = format!("{fixed} threads {}: ", kind.name());
        checks.extend(falls(kind, &what, &values));
        let last = 1.0 - values[5] / values[4];
        let little = format!("{what}from 8 to 16 {} little changes: less", kind.others());
        checks.push(Check::limit(little, "%", Side::AtMost, 5.0, last * 100.0));
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let check = Check::shape(
            format!("{what}never under the floor"),
            format!("at least {} GB/s, and above 0", number(floor)),
            format!("at least {least:.4} GB/s"),
            floor > 0.0 && least >= floor * 0.999,
        );
        checks.push(check.with_slack("0.1%"));
        rows.push((fixed, GROWING.into_iter().zip(values).collect()));
    }
    Outcome { scenario: said(kind), checks, drawings: vec![drawing(kind, "GB/s", &rows, &[])] }
}

/// Checks how bandwidth falls: through the first writer for reads, over all readers for writes.
fn falls(kind: Kind, what: &str, values: &[f64]) -> Vec<Check> {
    let steps: Vec<f64> = values.windows(2).map(|pair| pair[0] - pair[1]).collect();
    let first = steps[0] / values[0];
    let largest = steps.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let words = values.iter().map(|value| format!("{value:.2}")).collect::<Vec<_>>().join(" ");
    match kind {
        Kind::Reads => vec![
            Check::shape(
                format!("{what}the first writer costs most"),
                "0 to 1 is the largest single step",
                format!("{words} GB/s at 0 1 2 4 8 16"),
                steps[0] >= largest,
            ),
            Check::limit(
                format!("{what}the first writer: less"),
                "%",
                Side::AtLeast,
                20.0,
                first * 100.0,
            ),
        ],
        Kind::Writes => {
            let check = Check::shape(
                format!("{what}falls with readers"),
                "no step upwards, lower at the end",
                format!("{words} GB/s at 0 1 2 4 8 16"),
                steps.iter().all(|&step| step >= -0.001 * values[0]) && values[5] < values[0],
            );
            vec![check.with_slack("0.1% a step")]
        }
    }
}

fn latency(kind: Kind, settings: &Settings) -> Outcome {
    let (mut checks, mut rows) = (Vec::new(), Vec::new());
    for fixed in FIXED {
        let measured = row(kind, fixed, settings.seed);
        let values: Vec<(u32, f64)> = measured
            .iter()
            .filter(|(others, _)| *others <= 8)
            .map(|(others, measured)| (*others, measured.mean_ns() / 1e3))
            .collect();
        for &(others, us) in values.iter().skip(1) {
            let what = format!("{fixed} threads {} beside {others} {}", kind.name(), kind.others());
            checks.push(Check::within(format!("{what} (text: around 1)"), "us", 0.3..=2.0, us));
        }
        let last = values[4].1 / values[3].1 - 1.0;
        let what = format!(
            "{fixed} threads {}: from 4 to 8 {} little is added: more",
            kind.name(),
            kind.others()
        );
        checks.push(Check::limit(what, "%", Side::AtMost, 10.0, last * 100.0));
        rows.push((fixed, values));
    }
    let mut sentences = said(kind);
    sentences.push("up to 8 threads a side: 16 writers alone need 2.05 us at 2 GB/s".to_owned());
    let points = vec![(1.0, 1.0), (8.0, 1.0)];
    let paper = Line { label: "paper: around 1 us".to_owned(), points };
    let drawings = vec![drawing(kind, "us", &rows, &[(7, paper)])];
    Outcome { scenario: sentences, checks, drawings }
}

pub(super) fn figure11(settings: &Settings) -> Outcome {
    bandwidth(Kind::Reads, settings)
}

pub(super) fn figure12(settings: &Settings) -> Outcome {
    bandwidth(Kind::Writes, settings)
}

pub(super) fn figure13(settings: &Settings) -> Outcome {
    latency(Kind::Reads, settings)
}

pub(super) fn figure14(settings: &Settings) -> Outcome {
    latency(Kind::Writes, settings)
}
