//! Figure 5: IOPS over queue depth.

use entresol_base::rng::Rng;
use entresol_media::model::{BlockModel, ModelName};

use super::load::{Load, Measured, run};
use super::{drawn_beside, drive};
use crate::{Check, Outcome, Settings, Side};
use entresol_measure::host::Host;

/// Queue depths on the axis of the figure.
pub(super) const DEPTHS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
const REQUESTS: u64 = 400_000;

/// Measures requests at a queue depth.
pub(super) fn at_depth(name: ModelName, depth: usize, count: u64, seed: u64) -> Measured {
    let mut drive: BlockModel = drive(name);
    let rng = Rng::named(seed, "004-fig5");
    run(&Host::NVME, &mut drive, Load::Closed { depth }, count, rng)
}

pub(super) fn fig5(settings: &Settings) -> Outcome {
    let row = |name: ModelName| -> Vec<(f64, f64)> {
        let per_second = |depth| at_depth(name, depth, REQUESTS, settings.seed).per_second;
        DEPTHS.iter().map(|&depth| (depth as f64, per_second(depth))).collect()
    };
    let (nand, optane) = (row(ModelName::NandP3700), row(ModelName::OptaneSsd));
    let at = |row: &[(f64, f64)], depth: usize| {
        row.iter().find(|(at, _)| *at == depth as f64).map_or(f64::NAN, |(_, value)| *value)
    };
    let best = optane.iter().map(|(_, value)| *value).fold(0.0, f64::max);
    let share = at(&optane, 8) / best;
    let rise = at(&nand, 128) / at(&nand, 64);
    let checks = vec![
        Check::about("P3700 at depth 128", "1/s", 300_000.0, at(&nand, 128), 15),
        Check::about("P4800X at depth 4", "1/s", 300_000.0, at(&optane, 4), 15),
        Check::limit("P4800X at depth 8, of its best", "", Side::AtLeast, 0.95, share)
            .beside("reaches its maximum at 8")
            .noting(format!("{best:.0}/s")),
        Check::limit("P3700 still rises from 64 to 128", "times", Side::Above, 1.0, rise)
            .beside("rises with depth"),
    ];
    let drawing = drawn_beside(
        "IOPS over queue depth, 4 KiB, 70% reads (model)",
        ("queue depth", true),
        ("operations/s", false),
        &[("P4800X", optane), ("P3700", nand)],
        &[(0, "P4800X", vec![(4.0, 300_000.0)]), (1, "P3700", vec![(128.0, 300_000.0)])],
    );
    Outcome {
        scenario: vec![
            "Random 4 KiB, 70% reads, closed loop, interrupts, one processor per request up to 44."
                .to_owned(),
        ],
        checks,
        drawings: vec![drawing],
    }
}
