//! Response time over load. Requests fall due at random times, and a response time counts from the
//! due time of its request, whatever delayed it (004, figure 8).

use std::time::Duration;

use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::statistics::Spread;

use super::{FileSubject, MIXED_READS, Open, PAGE_BYTES};
use crate::profile::Fact;
use crate::profile::figure::{Figure, Point, Quantity, Series};
use crate::profile::plan::empty;
use crate::raw_file::LATE;

/// Loads as shares of the maximum in a closed loop, denser where the curve bends.
const SHARES: [f64; 12] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0];
/// Least achieved share of a load; below it, the medium is past its limit.
const KEPT_UP: f64 = 0.98;
/// Largest delay of the generator itself that 99% of its requests may have; beyond it, a point is
/// void.
const LATE_MAX: Duration = LATE;
/// Percentiles, and the number of requests that each requires.
const PERCENTILES: [(&str, f64, u64); 3] =
    [("99%", 99.0, 1_000), ("99.9%", 99.9, 10_000), ("99.999%", 99.999, 1_000_000)];

/// Figure of response times, with facts about it.
pub(super) struct OverLoad {
    pub(super) figure: Figure,
    pub(super) facts: Vec<Fact>,
}

pub(super) fn measure(
    subject: &mut dyn FileSubject,
    most_per_second: f64,
    full: bool,
    progress: &Progress,
) -> Result<OverLoad, BenchError> {
    progress.expect(SHARES.len() as u64);
    progress.say("response time over load");
    let mut figure = empty(
        "response_time",
        "Response time over load",
        "Random 4 KiB, 70% reads, falling due by a Poisson process in an open loop; each time \
         counts from when its request was due. Points stop where less than 98% of the load is \
         achieved. (004: figure 8)",
        (Quantity::LOAD, Quantity::LATENCY_US),
    );
    let labels = std::iter::once("mean").chain(PERCENTILES.map(|(label, ..)| label));
    let series = labels.map(|label| Series { label: label.to_owned(), points: Vec::new() });
    figure.series = series.collect();
    let (mut void, mut ended) = (0, None);
    for (done, share) in SHARES.iter().enumerate() {
        if progress.is_stopped() {
            break;
        }
        let per_second = most_per_second * share;
        let load = Open {
            reads: MIXED_READS,
            bytes: PAGE_BYTES,
            per_second,
            time: time(per_second, full),
        };
        let outcome = subject.open(&load, progress.stop())?;
        progress.advance(1);
        let achieved = outcome.requests as f64 * 1e9 / outcome.elapsed_ns.max(1.0);
        let offered = outcome.due as f64 / load.time.as_secs_f64();
        if achieved < offered * KEPT_UP {
            ended = Some((offered, achieved));
            progress.advance((SHARES.len() - done - 1) as u64);
            break;
        }
        if outcome.late.percentile_us(99.0) > LATE_MAX.as_secs_f64() * 1e6 {
            void += 1;
            continue;
        }
        let mut add = |series: usize, us: f64| {
            let y = Spread { median: us, min: us, max: us };
            figure.series[series].points.push(Point { x: achieved, y });
        };
        add(0, outcome.times.mean_us());
        for (number, (_, percent, needed)) in PERCENTILES.iter().enumerate() {
            if outcome.times.count() >= *needed {
                add(number + 1, outcome.times.percentile_us(*percent));
            }
        }
    }
    figure.series.retain(|series| !series.points.is_empty());
    Ok(OverLoad { facts: facts(&figure, void, ended), figure })
}

/// Returns a time that suffices for the percentiles of the mode, within limits.
fn time(per_second: f64, full: bool) -> Duration {
    let (least, most, requests) =
        if full { (2.0, 20.0, 1_100_000.0) } else { (0.3, 0.9, 11_000.0) };
    Duration::from_secs_f64((requests / per_second.max(1.0)).clamp(least, most))
}

fn facts(figure: &Figure, void: u32, ended: Option<(f64, f64)>) -> Vec<Fact> {
    let mut text = match ended {
        Some((offered, achieved)) => format!(
            "response times end where {achieved:.0} of {offered:.0} requests a second were served"
        ),
        None => "the medium kept up with every load that was offered".to_owned(),
    };
    if void > 0 {
        text.push_str(&format!("; {void} loads are left out, the generator itself was late"));
    }
    let shown = |label| figure.series(label).is_some();
    for (label, _, needed) in PERCENTILES {
        if !shown(label) {
            text.push_str(&format!("; {label} is not shown: it needs {needed} requests a load"));
        }
    }
    vec![Fact { name: "open loop", text }]
}
