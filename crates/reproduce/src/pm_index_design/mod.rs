//! Rethinking Index Design Based on PM Device: its tables and figures.
//!
//! The `aep` model is one module with the prefetcher off. Writes are stores past the caches with a
//! fence after each block, as in the paper.

use entresol_base::size::ByteSize;
use entresol_measure::report::svg::{Axis, Line, Scale, lines, lines_beside};
use entresol_media::model::memory::{AEP, DRAM, Parameters};

use super::memory::{Group, Pattern, alone};
use super::{Entry, Outcome, Settings};

mod bandwidth;
mod cached;
mod fences;
mod fig17;
mod fig19;
mod fig20;
mod holdout;
mod latency;
mod mixed;
mod tables;

/// Thread counts of the figures: chosen; the text names 1 and 16.
const THREADS: [u32; 5] = [1, 2, 4, 8, 16];
/// Block sizes of the figures over threads: chosen.
const SIZES: [u64; 13] =
    [8, 16, 32, 64, 128, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20];

macro_rules! entry {
    ($name:literal, $where:literal, $about:literal, $run:expr) => {
        Entry {
            name: concat!("000-", $name),
            part: "",
            source: concat!("Rethinking Index Design Based on PM Device, ", $where),
            about: $about,
            run: $run,
        }
    };
}

pub(super) const ENTRIES: &[Entry] = &[
    entry!("table3", "table 3", "AEP, small reads, random and sequential", tables::table3),
    entry!("table4", "table 4", "AEP, large reads, random and sequential", tables::table4),
    entry!("table5", "table 5", "AEP, small writes, random and sequential", tables::table5),
    entry!("table6", "table 6", "AEP, large writes, random and sequential", tables::table6),
    entry!("table7", "table 7", "random reads, AEP and DRAM", tables::table7),
    entry!("table8", "table 8", "random writes, AEP and DRAM", tables::table8),
    entry!(
        "holdout",
        "tables 3 to 8",
        "fitted on every other row, the model predicts the rest",
        holdout::run
    ),
    entry!("fig1", "figure 1", "read latency over size and threads", latency::figure1),
    entry!("fig2", "figure 2", "write latency over size and threads", latency::figure2),
    entry!("fig3", "figure 3", "random read bandwidth", bandwidth::figure3),
    entry!("fig4", "figure 4", "random write bandwidth", bandwidth::figure4),
    entry!("fig5", "figure 5", "a fence every 256 bytes of large writes", fences::figure5),
    entry!("fig6", "figure 6", "sequential read bandwidth", bandwidth::figure6),
    entry!("fig7", "figure 7", "sequential write bandwidth", bandwidth::figure7),
    entry!("fig8", "figure 8", "small reads, one thread", latency::figure8),
    entry!("fig9", "figure 9", "large reads, one thread", latency::figure9),
    entry!("fig10", "figure 10", "read latency over threads", latency::figure10),
    entry!("fig11", "figure 11", "reads beside ever more writers, bandwidth", mixed::figure11),
    entry!("fig12", "figure 12", "writes beside ever more readers, bandwidth", mixed::figure12),
    entry!("fig13", "figure 13", "reads beside ever more writers, latency", mixed::figure13),
    entry!("fig14", "figure 14", "writes beside ever more readers, latency", mixed::figure14),
    entry!("fig17", "figure 17", "HybridIndex and HybridIndex+", fig17::figure17),
    entry!("fig19", "figure 19", "a cache in DRAM before three indexes", fig19::figure19),
    entry!("fig20", "figure 20", "serial and parallel probing of that cache", fig20::figure20),
];

/// Point of a figure over sizes and threads.
#[derive(Debug, Clone, Copy)]
struct Point {
    bytes: u64,
    threads: u32,
    latency_ns: f64,
    gb_s: f64,
}

/// Measures every size with every thread count; `group` returns the work of the threads.
fn grid(
    parameters: &Parameters,
    sizes: &[u64],
    seed: u64,
    group: impl Fn(u32, u64) -> Group,
) -> Vec<Point> {
    let point = |threads: u32, bytes: u64| {
        let measured = alone(parameters, group(threads, bytes), seed);
        Point { bytes, threads, latency_ns: measured.mean_ns(), gb_s: measured.gb_s() }
    };
    sizes.iter().flat_map(|&bytes| THREADS.map(|threads| point(threads, bytes))).collect()
}

/// Returns the point of a size and a thread count, which must exist.
fn at(points: &[Point], bytes: u64, threads: u32) -> Point {
    let found = points.iter().find(|point| point.bytes == bytes && point.threads == threads);
    found.copied().unwrap_or_else(|| panic!("no point of {bytes} B and {threads} threads"))
}

/// Returns the largest bandwidth of all points.
fn peak(points: &[Point]) -> f64 {
    points.iter().map(|point| point.gb_s).fold(0.0, f64::max)
}

/// Draws points over block sizes, with one line for each thread count, and the paper's beside them.
fn over_sizes(
    title: &str,
    unit: &str,
    points: &[Point],
    y: impl Fn(&Point) -> f64,
    papers: &[(usize, Line)],
) -> String {
    let series = THREADS.map(|threads| Line {
        label: if threads == 1 { "1 thread".to_owned() } else { format!("{threads} threads") },
        points: points
            .iter()
            .filter(|point| point.threads == threads)
            .map(|point| (point.bytes as f64, y(point)))
            .collect(),
    });
    let scale = if unit == "GB/s" { Scale::Linear } else { Scale::Logarithmic };
    lines_beside(
        title,
        &axis("block size", Scale::Logarithmic),
        &axis(unit, scale),
        &series,
        papers,
    )
}

/// One thread's latencies, and the paper's in one of its tables, in nanoseconds.
struct OneThread<'a> {
    name: &'a str,
    ours: &'a [f64],
    paper: &'a [f64],
    table: &'a str,
}

/// Draws one thread's latencies over block sizes, the paper's beside ours.
fn one_thread_over_sizes(title: &str, sizes: &[u64], all: &[OneThread<'_>]) -> String {
    let line = |label: String, values: &[f64]| Line {
        label,
        points: sizes.iter().zip(values).map(|(&bytes, &ns)| (bytes as f64, ns)).collect(),
    };
    let ours: Vec<Line> = all.iter().map(|one| line(one.name.to_owned(), one.ours)).collect();
    let paper =
        |one: &OneThread<'_>| line(format!("paper, {}: {}", one.table, one.name), one.paper);
    let papers: Vec<(usize, Line)> = all.iter().map(paper).enumerate().collect();
    let (x, y) = (axis("block size", Scale::Logarithmic), axis("ns", Scale::Logarithmic));
    lines_beside(title, &x, &y, &ours, &papers)
}

fn axis(label: &str, scale: Scale) -> Axis {
    let sizes = [8_u64, 64, 256, 1 << 10, 4 << 10, 64 << 10, 1 << 20, 16 << 20];
    let ticks = if label == "block size" {
        sizes.iter().map(|&bytes| (bytes as f64, ByteSize(bytes).to_string())).collect()
    } else {
        Vec::new()
    };
    Axis { label: label.to_owned(), scale, ticks }
}

/// Describes the scenario, beginning with the device that all entries share.
fn scenario(sentences: &[&str]) -> Vec<String> {
    let device = "model aep: one module of 3D XPoint, prefetch off, in virtual time; writes are \
                  stores past the caches with a fence behind each block";
    std::iter::once(device).chain(sentences.iter().copied()).map(str::to_owned).collect()
}

/// Returns the spread of the values: the largest divided by the smallest.
fn spread(values: impl Iterator<Item = f64> + Clone) -> f64 {
    values.clone().fold(0.0, f64::max) / values.fold(f64::INFINITY, f64::min)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::holds;

    fn results(name: &str) -> String {
        let entry = ENTRIES.iter().find(|entry| entry.name == name).expect("an entry");
        format!("{:?}", (entry.run)(&Settings { seed: 7, ..Settings::default() }))
    }

    /// Entries that take long and run only in `.ci/reproduce`.
    const SLOW: [&str; 4] = ["000-holdout", "000-fig17", "000-fig19", "000-fig20"];

    #[test]
    fn the_quick_entries_are_as_in_the_catalogue_and_fail_as_known() {
        for entry in ENTRIES.iter().filter(|entry| !SLOW.contains(&entry.name)) {
            holds(entry.name);
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_results_bit_for_bit() {
        for name in ["000-table3", "000-table5", "000-fig11", "000-fig14"] {
            assert_eq!(results(name), results(name), "{name}");
        }
    }
}
