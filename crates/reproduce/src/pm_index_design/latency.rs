//! Figures 1, 2, 8, 9 and 10: latency over block size and threads.

use entresol_base::size::ByteSize;

use super::tables::{Column, LARGE, SMALL, TABLE3, TABLE4, TABLE5, TABLE6};
use super::{
    AEP, Group, Line, OneThread, Outcome, Pattern, Point, SIZES, Scale, Settings, THREADS, alone,
    at, axis, grid, lines, one_thread_over_sizes, over_sizes, scenario, spread,
};
use crate::check::Check;
use crate::tolerance::Side;

const UP_TO_UNIT: [u64; 6] = [8, 16, 32, 64, 128, 256];
const THREADS_CHOSEN: &str = "threads 1, 2, 4, 8, 16 (chosen; the text names 1 and 16), each in \
                              4 GiB of its own; block sizes to 4 MiB (chosen)";
/// Thread counts of figure 10: chosen, evenly spaced to judge a straight line.
const EVEN_THREADS: [u32; 9] = [1, 2, 4, 6, 8, 10, 12, 14, 16];

fn latency(points: &[Point], bytes: u64, threads: u32) -> f64 {
    at(points, bytes, threads).latency_ns
}

/// Returns the latency at 16 threads divided by the latency at one.
fn growth(points: &[Point], bytes: u64) -> f64 {
    latency(points, bytes, 16) / latency(points, bytes, 1)
}

/// Checks that «latency never falls with threads» for every size.
fn never_falls(what: &str, points: &[Point]) -> Check {
    let mut worst = f64::INFINITY;
    for &bytes in &SIZES {
        for pair in THREADS.windows(2) {
            let step = latency(points, bytes, pair[1]) / latency(points, bytes, pair[0]);
            worst = worst.min(step);
        }
    }
    let what = format!("{what}: latency never falls with threads: the smallest step");
    // Runs with other thread counts draw other offsets: 0.1%.
    Check::limit(what, "times", Side::AtLeast, 0.999, worst).beside(1.0)
}

fn reads(pattern: Pattern, seed: u64) -> Vec<Point> {
    grid(&AEP, &SIZES, seed, |threads, bytes| Group::readers(threads, bytes, pattern))
}

fn writes(pattern: Pattern, seed: u64) -> Vec<Point> {
    grid(&AEP, &SIZES, seed, |threads, bytes| Group::writers(threads, bytes, pattern))
}

pub(super) fn figure1(settings: &Settings) -> Outcome {
    let random = reads(Pattern::Random, settings.seed);
    let sequential = reads(Pattern::Sequential, settings.seed);
    let mut checks = Vec::new();
    for threads in THREADS {
        let flat = spread(UP_TO_UNIT.iter().map(|&bytes| latency(&random, bytes, threads)));
        let what = format!("random reads of 8 to 256 B cost the same, {threads} threads: spread");
        checks.push(Check::limit(what, "times", Side::AtMost, 1.3, flat));
    }
    checks.push(never_falls("random", &random));
    checks.push(never_falls("sequential", &sequential));
    for (name, points) in [("random", &random), ("sequential", &sequential)] {
        let small = UP_TO_UNIT.iter().map(|&bytes| growth(points, bytes)).fold(0.0, f64::max);
        let large = SIZES.iter().filter(|&&bytes| bytes >= 4 << 10);
        let large = large.map(|&bytes| growth(points, bytes)).fold(f64::INFINITY, f64::min);
        let what = format!(
            "{name}: threads raise latency up to 256 B, at most, over from 4 KiB on, at least"
        );
        checks.push(Check::limit(what, "times", Side::Below, 1.0, small / large));
    }
    let drawings = [("Random", &random), ("Sequential", &sequential)];
    let drawings = [0, 1].map(|column| {
        let (name, points) = drawings[column];
        let paper = [paper_of_one("tables 3 and 4", &TABLE3[column], &TABLE4[column])];
        let title = format!("{name} reads, latency");
        over_sizes(&title, "ns", points, |point| point.latency_ns, &paper)
    });
    let scenario = scenario(&[
        THREADS_CHOSEN,
        "the text says that *writers* raise read latency; the figure has readers only",
    ]);
    Outcome { scenario, checks, drawings: drawings.to_vec() }
}

pub(super) fn figure2(settings: &Settings) -> Outcome {
    let random = writes(Pattern::Random, settings.seed);
    let mut checks = vec![never_falls("random", &random)];
    let alone = |bytes| latency(&random, bytes, 1);
    let lowest = SIZES.iter().map(|&bytes| alone(bytes)).fold(f64::INFINITY, f64::min);
    let over = alone(256) / lowest;
    let what =
        "256 B over the lowest latency, one thread (the text has it the lowest, table 5 64 B)";
    checks.push(Check::limit(what, "times", Side::AtMost, 1.2, over));
    let reading = |threads| Group::readers(threads, 256, Pattern::Random);
    let read = |threads| super::alone(&AEP, reading(threads), settings.seed).mean_ns();
    let (reads, writes) = (read(16) / read(1), growth(&random, 256));
    let what = "writes suffer more from threads than reads, 256 B, 1 to 16 threads: growth over \
                growth";
    checks.push(Check::limit(what, "times", Side::Above, 1.0, writes / reads));
    let paper = [paper_of_one("tables 5 and 6", &TABLE5[0], &TABLE6[0])];
    let title = "Random writes, latency";
    let drawing = over_sizes(title, "ns", &random, |point| point.latency_ns, &paper);
    let scenario = scenario(&[
        THREADS_CHOSEN,
        "the text says that *readers* raise write latency; the figure has writers only",
    ]);
    Outcome { scenario, checks, drawings: vec![drawing] }
}

/// Returns the paper's latencies of one thread, which share the colour of ours.
fn paper_of_one(tables: &str, small: &Column, large: &Column) -> (usize, Line) {
    let small = SMALL.iter().zip(small);
    // The last small size is the first large one, and the figure ends before the tables do.
    let large = LARGE.iter().zip(large).skip(1).filter(|(bytes, _)| **bytes <= 4 << 20);
    let points = small.chain(large).map(|(&bytes, &ns)| (bytes as f64, ns)).collect();
    (0, Line { label: format!("paper, {tables}: 1 thread"), points })
}

/// Returns one thread's mean latency for each size.
fn one_thread(sizes: &[u64], seed: u64, group: fn(u32, u64, Pattern) -> Group) -> Vec<f64> {
    let measure = |&bytes: &u64| alone(&AEP, group(1, bytes, Pattern::Random), seed).mean_ns();
    sizes.iter().map(measure).collect()
}

fn within(what: &str, unit: &'static str, range: [f64; 2], ours: f64) -> Check {
    match range[1].is_finite() {
        true => Check::within(what, unit, range[0]..=range[1], ours),
        false => Check::limit(what, unit, Side::AtLeast, range[0], ours),
    }
}

pub(super) fn figure8(settings: &Settings) -> Outcome {
    let read = one_thread(&SMALL, settings.seed, Group::readers);
    let mut checks: Vec<Check> = SMALL
        .iter()
        .zip(&read)
        .filter(|(bytes, _)| **bytes <= 512)
        .map(|(&bytes, &ns)| within(&ByteSize(bytes).to_string(), "ns", [100.0, 400.0], ns))
        .collect();
    checks.push(Check::limit("1 KiB: nanoseconds still", "ns", Side::Below, 1000.0, read[7]));
    let reads = OneThread { name: "read", ours: &read, paper: &TABLE3[0], table: "table 3" };
    let drawings = vec![one_thread_over_sizes("Random reads, one thread", &SMALL, &[reads])];
    Outcome { scenario: scenario(&["one thread, random reads"]), checks, drawings }
}

pub(super) fn figure9(settings: &Settings) -> Outcome {
    let read = one_thread(&LARGE, settings.seed, Group::readers);
    let written = one_thread(&LARGE, settings.seed, Group::writers);
    let mut checks = Vec::new();
    for (kind, values) in [("read", &read), ("write", &written)] {
        for (&bytes, ns) in LARGE.iter().zip(values) {
            let what = format!("{kind} of {}", ByteSize(bytes));
            match (kind, bytes) {
                (_, 0x1000..=0x10000) => {
                    checks.push(within(&what, "us", [1.0, 100.0], ns / 1e3));
                }
                ("read", 0x10_0000..) | ("write", 0x40_0000..) => {
                    checks.push(within(&what, "ms", [1.0, f64::INFINITY], ns / 1e6));
                }
                _ => {}
            }
        }
    }
    let both = [
        OneThread { name: "read", ours: &read, paper: &TABLE4[0], table: "table 4" },
        OneThread { name: "write", ours: &written, paper: &TABLE6[0], table: "table 6" },
    ];
    let title = "Large random accesses, one thread";
    let drawings = vec![one_thread_over_sizes(title, &LARGE, &both)];
    let scenario = scenario(&["one thread; «writes alike»: 4 KiB takes us, 4 MiB takes ms"]);
    Outcome { scenario, checks, drawings }
}

pub(super) fn figure10(settings: &Settings) -> Outcome {
    let large = [4_u64 << 10, 64 << 10, 1 << 20, 4 << 20];
    let row = |bytes: u64| {
        EVEN_THREADS.map(|threads| {
            let group = Group::readers(threads, bytes, Pattern::Random);
            (f64::from(threads), alone(&AEP, group, settings.seed).mean_ns())
        })
    };
    let grown = |row: &[(f64, f64)]| row[row.len() - 1].1 / row[0].1;
    let mut checks = Vec::new();
    let small = UP_TO_UNIT.map(|bytes| (bytes, row(bytes)));
    for (bytes, row) in &small {
        let what = format!("growth from 1 to 16 threads, {} (text: about 2)", ByteSize(*bytes));
        checks.push(Check::within(what, "times", 1.7..=3.2, grown(row)));
    }
    let unit = grown(&small[5].1);
    let large = large.map(|bytes| (bytes, row(bytes)));
    for (bytes, row) in &large {
        let bytes = ByteSize(*bytes);
        let saturated: Vec<_> = row.iter().filter(|p| p.1 > 1.1 * row[0].1).copied().collect();
        let straight = straightness(&saturated);
        // Two points are always on a line.
        let straight = if saturated.len() >= 3 { straight } else { f64::NAN };
        let what = format!("{bytes}: a straight line in threads once saturated: R2");
        checks.push(Check::limit(what, "", Side::AtLeast, 0.98, straight));
        let what = format!("{bytes}: growth over threads, of that at 256 B");
        checks.push(Check::limit(what, "times", Side::AtLeast, 1.5, grown(row) / unit));
    }
    let series: Vec<Line> = [&small[5], &large[0], &large[1], &large[3]]
        .iter()
        .map(|(bytes, row)| Line {
            label: ByteSize(*bytes).to_string(),
            points: row.iter().map(|&(threads, ns)| (threads, ns / row[0].1)).collect(),
        })
        .collect();
    let x = axis("threads", Scale::Linear);
    let y = axis("latency, times that of one thread", Scale::Linear);
    let drawings = vec![lines("Random reads over threads", &x, &y, &series)];
    let scenario = scenario(&[
        "threads 1, 2, 4, ... 16 and sizes (chosen)",
        "«linear» is held to a straight line after saturation: in proportion to threads is \
         impossible under 7 GB/s",
    ]);
    Outcome { scenario, checks, drawings }
}

/// Returns the square of the correlation of x and y.
fn straightness(points: &[(f64, f64)]) -> f64 {
    let count = points.len() as f64;
    let mean = |pick: fn(&(f64, f64)) -> f64| points.iter().map(pick).sum::<f64>() / count;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let sum =
        |term: &dyn Fn(f64, f64) -> f64| points.iter().map(|p| term(p.0 - x, p.1 - y)).sum::<f64>();
    let together = sum(&|dx, dy| dx * dy);
    together * together / (sum(&|dx, _| dx * dx) * sum(&|_, dy| dy * dy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn straight_lines_are_told_from_bent_ones() {
        assert!(straightness(&[(1.0, 2.0), (2.0, 4.0), (4.0, 8.0)]) > 0.999);
        assert!(straightness(&[(1.0, 1.0), (2.0, 4.0), (3.0, 1.0)]) < 0.5);
    }
}
