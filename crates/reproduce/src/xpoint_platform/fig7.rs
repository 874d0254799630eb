//! Figure 7: latency at the lowest load.

use entresol_measure::report::svg::{Bar, bars};
use entresol_media::model::ModelName;

use super::fig5::at_depth;
use crate::{Check, Outcome, Settings, Side};

const REQUESTS: u64 = 2_000_000;

pub(super) fn fig7(settings: &Settings) -> Outcome {
    let idle = |name| at_depth(name, 1, REQUESTS, settings.seed).response;
    let (optane, nand) = (idle(ModelName::OptaneSsd), idle(ModelName::NandP3700));
    let mean = nand.mean_us() / optane.mean_us();
    let (tail_nand, tail_optane) = (nand.percentile_us(99.999), optane.percentile_us(99.999));
    let tail = tail_nand / tail_optane;
    let bar = |label: &str, value, series| Bar { label: label.to_owned(), value, series };
    let drawing = bars(
        "Latency at depth 1, 4 KiB, 70% reads (model)",
        "us",
        &[
            bar("P4800X mean", optane.mean_us(), 0),
            bar("P3700 mean", nand.mean_us(), 1),
            bar("P4800X 99.999%", tail_optane, 0),
            bar("P3700 99.999%", tail_nand, 1),
        ],
    );
    let checks = vec![
        Check::about("mean, P3700 / P4800X", "", 10.0, mean, 20),
        Check::limit(
            "the ratio of the 99.999th percentiles over that of the means",
            "",
            Side::Above,
            1.0,
            tail / mean,
        )
        .beside("outliers differ far more")
        .noting(format!("{tail_nand:.0} / {tail_optane:.1} us")),
        Check::report("P4800X mean", "us", None, optane.mean_us(), "the text has none"),
        Check::report("P3700 mean", "us", None, nand.mean_us(), "the text has none"),
    ];
    let scenario = vec![format!(
        "One request at a time, random 4 KiB, 70% reads, {REQUESTS} requests a drive."
    )];
    Outcome { scenario, checks, drawings: vec![drawing] }
}
