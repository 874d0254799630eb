//! Figure 19: the gain of a cache in DRAM in front of three indexes.

use std::sync::Arc;

use entresol_index::Probing;
use entresol_measure::BenchError;
use entresol_measure::index::{AnyIndex, IndexName, Workload, in_world};
use entresol_measure::popularity::Popularity;
use entresol_measure::report::svg::{Bar, bars};

use super::cached::{Bench, CACHED_ONE_IN, INDEXES, TIMES, ZIPF, cache};
use crate::{Check, Outcome, Settings};

/// Number of keys in the paper.
const KEYS_PUBLISHED: u64 = 50_000_000;
const OPERATIONS: u64 = 20_000;

/// Sizes of the figure.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys: u64,
    /// Divisor of the paper's numbers.
    one_to: u64,
    /// Reads that fill the cache before the measurement.
    warm: u64,
}

impl Size {
    fn of(settings: &Settings) -> Size {
        let one_to = if settings.full_scale { 10 } else { 50 };
        let keys = KEYS_PUBLISHED / one_to;
        Size { keys, one_to, warm: keys / 5 * 3 }
    }
}

/// Nanoseconds without and with the cache.
#[derive(Debug, Clone, Copy)]
struct Pair {
    bare: f64,
    cached: f64,
}

impl Pair {
    fn ratio(self) -> f64 {
        self.cached / self.bare
    }

    /// Returns the reduction in per cent.
    fn lower(self) -> f64 {
        (1.0 - self.ratio()) * 100.0
    }
}

#[derive(Debug, Clone)]
struct Row {
    name: IndexName,
    uniform: Pair,
    zipf: Pair,
    inserts: Pair,
    updates: [Pair; 2],
    hit_ratio: f64,
}

fn row(name: IndexName, size: Size, seed: u64) -> Result<Row, BenchError> {
    in_world(seed, move |world| {
        let mut bench = Bench::new(world, name, size.keys, seed)?;
        let laws = [Popularity::Uniform, ZIPF];
        let index = bench.bare();
        let (mut reads, mut updates) = ([0.0; 2], [0.0; 2]);
        for (at, law) in laws.into_iter().enumerate() {
            reads[at] = bench.ns(&index, (Workload::Read, law), OPERATIONS)?;
            updates[at] = bench.ns(&index, (Workload::Update, law), OPERATIONS)?;
        }
        let inserts = bench.ns(&index, (Workload::Insert, ZIPF), OPERATIONS)?;
        let cached = cache(&bench.bare, size.keys / CACHED_ONE_IN, Probing::Serial, 0)?;
        let index = Arc::clone(&cached) as AnyIndex;
        let (mut pairs, mut changed) = (Vec::new(), Vec::new());
        let mut hit_ratio = 0.0;
        for (at, law) in laws.into_iter().enumerate() {
            bench.warm(&index, law, size.warm)?;
            let before = cached.counts();
            let ns = bench.ns(&index, (Workload::Read, law), OPERATIONS)?;
            let (after, hits) = (cached.counts(), cached.counts().hits - before.hits);
            hit_ratio = hits as f64 / (hits + after.misses - before.misses) as f64;
            pairs.push(Pair { bare: reads[at], cached: ns });
            let ns = bench.ns(&index, (Workload::Update, law), OPERATIONS)?;
            changed.push(Pair { bare: updates[at], cached: ns });
        }
        let ns = bench.ns(&index, (Workload::Insert, ZIPF), OPERATIONS)?;
        let inserts = Pair { bare: inserts, cached: ns };
        let (uniform, zipf, updates) = (pairs[0], pairs[1], [changed[0], changed[1]]);
        Ok(Row { name, uniform, zipf, inserts, updates, hit_ratio })
    })
}

pub(super) fn figure19(settings: &Settings) -> Outcome {
    let size = Size::of(settings);
    let rows: Result<Vec<Row>, BenchError> =
        INDEXES.into_iter().map(|name| row(name, size, settings.seed)).collect();
    let rows = match rows {
        Ok(rows) => rows,
        Err(error) => return Outcome::failed(error.to_string()),
    };
    let mut checks = Vec::new();
    for Row { name, uniform, zipf, inserts, updates, .. } in &rows {
        let (at, lower) = (format!("{name}, Zipf: read latency lower by"), zipf.lower());
        checks.push(Check::at_least(at, "%", 20.0, lower));
        let what = format!("{name}, uniform: read latency, ACS / bare");
        checks.push(Check::within(what, "", 0.90..=1.15, uniform.ratio()));
        let what = format!("{name}: time of inserts, ACS / bare");
        checks.push(Check::about(what, "", 1.0, inserts.ratio(), 3));
        for (law, pair) in ["uniform", "Zipf"].into_iter().zip(updates) {
            let what = format!("{name}, {law}: updates a second, ACS / bare");
            checks.push(Check::at_least(what, "", 0.70, 1.0 / pair.ratio()));
        }
    }
    checks.extend(across(&rows));
    let scenario = vec![
        format!(
            "{} uniform keys of 8 B (the paper's 50 M, 1:{}) on model aep, one thread; a cache in \
             DRAM for one key in {CACHED_ONE_IN}, probed serially; Zipf 0.99. {OPERATIONS} \
             operations are measured, behind {} reads.",
            size.keys, size.one_to, size.warm
        ),
        TIMES.to_owned(),
    ];
    Outcome { scenario, checks, drawings: vec![drawing(&rows)] }
}

/// Returns the checks that compare the indexes with one another.
fn across(rows: &[Row]) -> Vec<Check> {
    let best = rows.iter().map(|row| row.zipf.lower()).fold(f64::NEG_INFINITY, f64::max);
    let mut slowest_first: Vec<&Row> = rows.iter().collect();
    slowest_first.sort_by(|a, b| b.zipf.bare.total_cmp(&a.zipf.bare));
    let each =
        |row: &&Row| format!("{} {:.0} ns {:.1}%", row.name, row.zipf.bare, row.zipf.lower());
    let each: Vec<String> = slowest_first.iter().map(each).collect();
    let is_falling = slowest_first.is_sorted_by(|a, b| a.zipf.lower() >= b.zipf.lower());
    let mut checks = vec![
        Check::at_least("Zipf: read latency lower by, the best", "%", 40.0, best),
        Check::shape(
            "Zipf: the slower the index, the larger the gain",
            "the worse the index, the more ACS gains",
            each.join(", "),
            is_falling,
        ),
    ];
    for row in rows {
        let what = format!("{}, Zipf: hits of the cache", row.name);
        let why = "the paper's is that of an ideal cache of 50 M keys";
        checks.push(Check::report(what, "", Some(0.86), row.hit_ratio, why));
    }
    checks
}

fn drawing(rows: &[Row]) -> String {
    let of = |row: &Row| {
        let pairs = [("uniform", row.uniform), ("Zipf", row.zipf)];
        let both = |(law, pair): (&str, Pair)| {
            let bar = |what: &str, value, series| Bar {
                label: format!("{}, {law}{what}", row.name),
                value,
                series,
            };
            [bar("", pair.bare, 0), bar(", ACS", pair.cached, 1)]
        };
        pairs.into_iter().flat_map(both).collect::<Vec<_>>()
    };
    let all: Vec<Bar> = rows.iter().flat_map(of).collect();
    bars("Reads with and without a cache in DRAM (model)", "ns", &all)
}
