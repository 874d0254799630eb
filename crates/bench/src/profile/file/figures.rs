//! Figures of files, and the closed loops that produce them.

use entresol_media::cost::LARGE_SIZES;
use entresol_media::probe::Order;

use super::{Closed, MIXED_READS, Outcome, PAGE_BYTES};
use crate::profile::costs;
use crate::profile::figure::{Figure, Quantity};
use crate::profile::plan::{Cell, Plan, empty};

/// Requests in flight in figures over sizes.
const SIZES_DEPTH: usize = 32;
/// Requests in flight for the costs: more than any drive here needs to be fully busy. The largest
/// has 144 dies, and the figures of data sheets are for 128 to 256 requests.
pub(super) const COST_DEPTH: usize = 256;
/// Requests in flight for costs of sizes beyond [`COST_SMALL`], for which few suffice.
pub(super) const COST_DEPTH_LARGE: usize = 32;
/// Largest size that is measured with [`COST_DEPTH`] requests in flight.
const COST_SMALL: usize = 64 << 10;
/// Largest size for which latency and bandwidth are measured.
const SIZE_MAX: usize = 1 << 20;
const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const OVER_DEPTH: &str = "iops_over_depth";
const MIXED: &str = "70% reads";

/// Value to take from a closed loop.
#[derive(Debug, Clone, Copy)]
pub(super) enum Take {
    LatencyUs,
    Operations,
    Bandwidth,
}

impl Take {
    pub(super) fn of(self, load: &Closed, outcome: &Outcome) -> f64 {
        let per_second = outcome.requests as f64 * 1e9 / outcome.elapsed_ns.max(1.0);
        match self {
            Take::LatencyUs => outcome.times.mean_us(),
            Take::Operations => per_second,
            Take::Bandwidth => per_second * load.bytes as f64 / 1e9,
        }
    }
}

pub(super) type FilePlan = Plan<Closed, Take>;

/// Returns all closed loops for a file with sectors of this size.
pub(super) fn plan(sector: usize, full: bool) -> FilePlan {
    let mut plan = FilePlan::default();
    let sizes: Vec<usize> = std::iter::successors(Some(sector), |&bytes| Some(bytes * 2))
        .take_while(|&bytes| bytes <= SIZE_MAX)
        .collect();
    latency(&mut plan, &sizes);
    throughput(&mut plan, &sizes, full);
    over_depth(&mut plan);
    most(&mut plan, sector);
    plan
}

const KINDS: [(&str, f64, Order); 4] = [
    ("random reads", 1.0, Order::Random),
    ("sequential reads", 1.0, Order::Sequential),
    ("random writes", 0.0, Order::Random),
    ("sequential writes", 0.0, Order::Sequential),
];

fn latency(plan: &mut FilePlan, sizes: &[usize]) {
    let figure = plan.figure(empty(
        "latency",
        "Latency, one request at a time",
        "Mean time from submission to completion, nothing else in flight. Completions by \
         interrupt.",
        (Quantity::GRANULARITY, Quantity::LATENCY_US),
    ));
    for (label, reads, order) in KINDS {
        for &bytes in sizes {
            let load = Closed { reads, order, bytes, depth: 1 };
            plan.cell(figure, label, bytes as f64, load, Take::LatencyUs);
        }
    }
}

fn throughput(plan: &mut FilePlan, sizes: &[usize], full: bool) {
    let about = "32 requests in flight.";
    let operations = plan.figure(empty(
        "operations",
        "Requests per second by size",
        about,
        (Quantity::GRANULARITY, Quantity::OPERATIONS),
    ));
    let bandwidth = plan.figure(empty(
        "bandwidth",
        "Bandwidth by size",
        about,
        (Quantity::GRANULARITY, Quantity::BANDWIDTH),
    ));
    let step = if full { 1 } else { 2 };
    for (label, reads, order) in KINDS {
        for &bytes in sizes.iter().rev().step_by(step) {
            let load = Closed { reads, order, bytes, depth: SIZES_DEPTH };
            let x = bytes as f64;
            let goals = vec![
                plan.goal(operations, label, x, Take::Operations),
                plan.goal(bandwidth, label, x, Take::Bandwidth),
            ];
            plan.cells.push(Cell { load, goals });
        }
    }
}

fn over_depth(plan: &mut FilePlan) {
    let figure = plan.figure(empty(
        OVER_DEPTH,
        "Requests per second over queue depth (misleading)",
        "Random 4 KiB, 70% reads. Depth is an outcome, not a load: a faster device or a slower \
         host empties the queue by itself, so equal depths are unequal loads, and how long each \
         request waited does not show; judge by the response time over load instead. (004: \
         figures 5 and 6)",
        (Quantity::DEPTH, Quantity::OPERATIONS),
    ));
    for depth in DEPTHS {
        let load = Closed { reads: MIXED_READS, order: Order::Random, bytes: PAGE_BYTES, depth };
        plan.cell(figure, MIXED, depth as f64, load, Take::Operations);
    }
}

/// Returns the most mixed requests of 4 KiB per second at any queue depth.
pub(super) fn most_mixed(figures: &[Figure]) -> f64 {
    let figure = figures.iter().find(|figure| figure.name == OVER_DEPTH);
    let points = figure.and_then(|figure| figure.series(MIXED)).map(|series| &series.points);
    points.into_iter().flatten().map(|point| point.y.median).fold(0.0, f64::max)
}

fn most(plan: &mut FilePlan, sector: usize) {
    let about = format!(
        "{COST_DEPTH} requests in flight, {COST_DEPTH_LARGE} beyond 64 KiB; reads meet a medium at \
         rest, writes one whose buffers are full; sizes are multiples of the disk's sector. (002: \
         figure 3)"
    );
    let figure = plan.figure(empty(
        costs::FIGURE,
        "Most random requests per second",
        &about,
        (Quantity::SIZE, Quantity::OPERATIONS),
    ));
    // All reads come first: a medium then has to come to rest only once.
    for (label, reads) in [(costs::READS, 1.0), (costs::WRITES, 0.0)] {
        for bytes in (sector..=PAGE_BYTES).step_by(sector).chain(LARGE_SIZES) {
            let depth = if bytes > COST_SMALL { COST_DEPTH_LARGE } else { COST_DEPTH };
            let load = Closed { reads, order: Order::Random, bytes, depth };
            plan.cell(figure, label, bytes as f64, load, Take::Operations);
        }
    }
}
