//! Platform storage performance with 3D XPoint: its tables and figures.

mod act;
mod act_store;
mod fig11;
mod fig12;
mod fig12_here;
mod fig3;
mod fig4;
mod fig4_here;
mod fig5;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod gets;
mod load;
mod paging;
mod sata_2008;
mod ways;

use entresol_measure::report::svg::{Axis, Line, Scale, lines_beside};
use entresol_media::model::{BlockModel, ModelName};

use super::Entry;

const SOURCE: &str = "Platform Storage Performance With 3D XPoint Technology";

/// Entries that show sides of one run.
pub(super) const SHARED_RUN: &[&str] = &["004-fig9", "004-fig10"];

pub(super) const ENTRIES: &[Entry] = &[
    entry("004-fig3", "system time over IOPS, three ways to attach drives", fig3::fig3),
    entry("004-fig4", "where a 4 KiB read's time goes", fig4::fig4),
    entry("004-fig5", "IOPS over queue depth", fig5::fig5),
    entry("004-fig6", "why queue depth misleads, a worked example", fig6::fig6),
    entry("004-fig7", "latency at the lowest load", fig7::fig7),
    entry("004-fig8", "response time over load, open loop", fig8::fig8),
    entry("004-fig9", "gets of a store over threads, on two drives", fig9::fig9),
    entry("004-fig10", "the 99th percentile of the same gets", fig9::fig10),
    entry("004-fig11", "the largest load of ACT that drives keep up with", fig11::fig11),
    entry("004-fig12", "three ways to more memory for a cache", fig12::fig12),
];

/// Entries that are measured on the machine at hand.
pub(super) const MEASURED: &[Entry] = &[
    here("004-fig4", "the same breakdown of reads of a file here", fig4_here::fig4_here),
    here("004-fig12", "paging and own I/O on a file here", fig12_here::fig12_here),
];

/// Part of a figure that is measured on the machine at hand.
const fn here(
    name: &'static str,
    about: &'static str,
    run: fn(&super::Settings) -> super::Outcome,
) -> Entry {
    Entry { part: "-here", ..entry(name, about, run) }
}

const fn entry(
    name: &'static str,
    about: &'static str,
    run: fn(&super::Settings) -> super::Outcome,
) -> Entry {
    Entry { name, part: "", source: SOURCE, about, run }
}

fn drive(name: ModelName) -> BlockModel {
    BlockModel::of(name).unwrap_or_else(|| unreachable!("{name} is a drive"))
}

/// Draws lines over two axes, each with a label and a flag for a logarithmic scale.
fn drawn_lines(
    title: &str,
    x: (&str, bool),
    y: (&str, bool),
    rows: &[(&str, Vec<(f64, f64)>)],
) -> String {
    drawn_beside(title, x, y, rows, &[])
}

/// Points of the paper: the index of the line whose colour they share, their label, and the points.
type Paper<'a> = (usize, &'a str, Vec<(f64, f64)>);

/// Draws lines like [`drawn_lines`], and the paper's points in the colours of the lines with these
/// indices.
fn drawn_beside(
    title: &str,
    x: (&str, bool),
    y: (&str, bool),
    rows: &[(&str, Vec<(f64, f64)>)],
    papers: &[Paper<'_>],
) -> String {
    let axis = |(label, logarithmic): (&str, bool)| Axis {
        label: label.to_owned(),
        scale: if logarithmic { Scale::Logarithmic } else { Scale::Linear },
        ticks: Vec::new(),
    };
    let row = |(label, points): &(&str, Vec<(f64, f64)>)| Line {
        label: (*label).to_owned(),
        points: points.clone(),
    };
    let rows: Vec<Line> = rows.iter().map(row).collect();
    let paper = |(of, label, points): &Paper<'_>| {
        (*of, Line { label: format!("paper: {label}"), points: points.clone() })
    };
    let papers: Vec<_> = papers.iter().map(paper).collect();
    lines_beside(title, &axis(x), &axis(y), &rows, &papers)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Settings;
    use crate::tests::holds;

    /// Hashes the whole outcome of an entry.
    fn hash_of(entry: &Entry, seed: u64) -> u64 {
        let outcome = (entry.run)(&Settings { seed, ..Settings::default() });
        let text = format!("{:?}{:?}{:?}", outcome.checks, outcome.scenario, outcome.drawings);
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    fn find(name: &str) -> &'static Entry {
        ENTRIES.iter().find(|entry| entry.name == name).expect("an entry")
    }

    #[test]
    fn ten_runs_are_the_same_to_the_bit() {
        for name in ["004-fig4", "004-fig6"] {
            let first = hash_of(find(name), 7);
            assert!((0..9).all(|_| hash_of(find(name), 7) == first), "{name}");
        }
        let run = |seed| {
            let measured = fig5::at_depth(ModelName::NandP3700, 32, 20_000, seed);
            (measured.per_second.to_bits(), measured.response.percentile_us(99.9).to_bits())
        };
        assert!((0..9).all(|_| run(7) == run(7)));
        assert_ne!(run(7), run(8), "the seed is heard");
    }

    #[test]
    fn the_quick_entries_are_as_in_the_catalogue_and_fail_as_known() {
        for name in ["004-fig3", "004-fig4", "004-fig5", "004-fig6", "004-fig7"] {
            holds(name);
        }
    }

    #[test]
    fn a_closed_loop_obeys_littles_law() {
        for depth in [1, 8, 128] {
            let measured = fig5::at_depth(ModelName::OptaneSsd, depth, 50_000, 1);
            let under_way = measured.per_second * measured.response.mean_us() / 1e6;
            assert!((under_way / depth as f64 - 1.0).abs() < 0.02, "{under_way} of {depth}");
        }
    }
}
