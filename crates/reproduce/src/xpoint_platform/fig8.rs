//! Figure 8: response time over load, open loop.

use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::model::ModelName;

use super::fig5::at_depth;
use super::load::{Load, run};
use super::{drawn_beside, drive};
use crate::{Check, Outcome, Settings, Side};
use entresol_measure::host::Host;

/// Loads in per cent of saturation; the last is «heavy».
const LOADS_PERCENT: [u32; 8] = [2, 10, 25, 40, 55, 70, 80, 90];
const REQUESTS: u64 = 2_000_000;
const REQUESTS_HEAVY: u64 = 6_000_000;
/// Queue depth that defines saturation, the deepest of figure 5.
const DEPTH_SATURATED: usize = 128;

struct Curve {
    saturation: f64,
    /// Requests per second and their response times.
    points: Vec<(f64, Histogram)>,
}

impl Curve {
    fn of(name: ModelName, seed: u64) -> Curve {
        let saturation = at_depth(name, DEPTH_SATURATED, 400_000, seed).per_second;
        let heavy = LOADS_PERCENT[LOADS_PERCENT.len() - 1];
        let point = |percent: u32| {
            let per_second = saturation * f64::from(percent) / 100.0;
            let count = if percent == heavy { REQUESTS_HEAVY } else { REQUESTS };
            let rng = Rng::named(seed, &format!("004-fig8 {percent}"));
            let measured =
                run(&Host::NVME, &mut drive(name), Load::Open { per_second }, count, rng);
            (per_second, measured.response)
        };
        Curve { saturation, points: LOADS_PERCENT.iter().map(|&load| point(load)).collect() }
    }

    fn line(&self, of: impl Fn(&Histogram) -> f64) -> Vec<(f64, f64)> {
        self.points.iter().map(|(load, response)| (*load, of(response))).collect()
    }

    fn idle_and_heavy(&self, of: impl Fn(&Histogram) -> f64) -> (f64, f64) {
        let line = self.line(of);
        let at = |point: Option<&(f64, f64)>| point.map_or(f64::NAN, |(_, value)| *value);
        (at(line.first()), at(line.last()))
    }
}

pub(super) fn fig8(settings: &Settings) -> Outcome {
    let optane = Curve::of(ModelName::OptaneSsd, settings.seed);
    let nand = Curve::of(ModelName::NandP3700, settings.seed);
    let p99 = |response: &Histogram| response.percentile_us(99.0);
    let tail = |response: &Histogram| response.percentile_us(99.999);
    let (idle, heavy) = optane.idle_and_heavy(Histogram::mean_us);
    let nand_means = nand.line(Histogram::mean_us);
    let rises = nand_means.windows(2).all(|pair| pair[1].1 > pair[0].1);
    let checks = vec![
        Check::at_most("P4800X 99.999%, heavy", "us", 100.0, optane.idle_and_heavy(tail).1),
        Check::limit(
            "P4800X: its mean over idle until then",
            "times",
            Side::AtMost,
            2.0,
            heavy / idle,
        )
        .beside("low until the bandwidth is full")
        .noting(format!("{heavy:.1} / {idle:.1} us")),
        Check::at_least("P3700 99%, heavy", "us", 1_000.0, nand.idle_and_heavy(p99).1),
        Check::about("P3700 99.999%, heavy", "us", 10_000.0, nand.idle_and_heavy(tail).1, 50),
        Check::shape(
            "P3700: its mean rises throughout",
            "rises with load",
            nand_means.iter().map(|(_, us)| format!("{us:.0}")).collect::<Vec<_>>().join(" "),
            rises,
        ),
        Check::report("P4800X saturation", "1/s", None, optane.saturation, "no number in the text"),
        Check::report("P3700 saturation", "1/s", None, nand.saturation, "no number in the text"),
    ];
    let last = |curve: &Curve| curve.points.last().map_or(f64::NAN, |(load, _)| *load);
    let (heavy_nand, heavy_optane) = (last(&nand), last(&optane));
    let drawing = drawn_beside(
        "Response time over load, 4 KiB, 70% reads (model)",
        ("operations/s", false),
        ("us", true),
        &[
            ("P3700 99.999%", nand.line(tail)),
            ("P3700 99%", nand.line(p99)),
            ("P3700 mean", nand.line(Histogram::mean_us)),
            ("P4800X 99.999%", optane.line(tail)),
            ("P4800X 99%", optane.line(p99)),
            ("P4800X mean", optane.line(Histogram::mean_us)),
        ],
        &[
            (0, "P3700 99.999%, heavy", vec![(heavy_nand, 10_000.0)]),
            (1, "P3700 99%, heavy, above", vec![(heavy_nand, 1_000.0)]),
            (3, "P4800X 99.999%, heavy, below", vec![(heavy_optane, 100.0)]),
        ],
    );
    let scenario = vec![
        format!(
            "Open loop, Poisson arrivals, random 4 KiB, 70% reads, interrupts; {REQUESTS} requests \
             a point, {REQUESTS_HEAVY} at the heaviest."
        ),
        format!(
            "Chosen: saturation is what depth {DEPTH_SATURATED} reaches, heavy is 90% of it, idle \
             2%."
        ),
    ];
    Outcome { scenario, checks, drawings: vec![drawing] }
}
