//! Advice that a profile's own figures support, in sentences that state the numbers.

use entresol_measure::report::table::number;

use super::figure::{Figure, Series};

/// Share of the best bandwidth from which a size of random accesses uses a medium well.
const BANDWIDTH_SHARE: f64 = 0.8;
/// Largest latency of such a size, in multiples of the latency of 64 bytes: beyond, a single access
/// is a considerable wait.
const LATENCY_FACTOR: f64 = 16.0;
/// Share of the best result at which a number of threads is sufficient.
const ENOUGH: f64 = 0.95;

/// Returns advice on byte-addressable media.
pub(super) fn of_memory(figures: &[Figure]) -> Vec<String> {
    let mut advice = Vec::new();
    let figure = |name: &str| figures.iter().find(|figure| figure.name == name);
    let sides = [
        ("reads", "read_bandwidth_random", "read_latency", "random"),
        ("writes", "write_bandwidth_random", "write_latency", "nt-store random"),
    ];
    for (what, bandwidth, latency, series) in sides {
        let latency = figure(latency).and_then(|figure| figure.series(series));
        if let (Some(bandwidth), Some(latency)) = (figure(bandwidth), latency) {
            advice.extend(granularity(what, bandwidth, latency));
            advice.extend(threads(what, bandwidth));
        }
    }
    advice.extend(figure("write_latency").and_then(small_writes));
    advice.extend(figure("write_latency").and_then(method));
    advice.extend(figure("fence_each_unit").and_then(fences));
    advice
}

/// Returns the best bandwidth at each size over all numbers of threads.
fn best(bandwidth: &Figure) -> Vec<(f64, f64)> {
    let mut best: Vec<(f64, f64)> = Vec::new();
    for point in bandwidth.series.iter().flat_map(|series| &series.points) {
        match best.iter_mut().find(|(x, _)| (*x - point.x).abs() < 0.5) {
            Some((_, y)) => *y = y.max(point.y.median),
            None => best.push((point.x, point.y.median)),
        }
    }
    best.sort_by(|a, b| a.0.total_cmp(&b.0));
    best
}

fn granularity(what: &str, bandwidth: &Figure, latency: &Series) -> Option<String> {
    let best = best(bandwidth);
    let most = best.iter().map(|(_, y)| *y).fold(0.0, f64::max);
    let (low, reached) = *best.iter().find(|(_, y)| *y >= most * BANDWIDTH_SHARE)?;
    let limit = latency.at(64.0)? * LATENCY_FACTOR;
    let high = latency.points.iter().filter(|point| point.y.median <= limit).map(|p| p.x);
    let high = high.fold(0.0, f64::max);
    let share = reached / most * 100.0;
    Some(if low <= high {
        format!(
            "Random {what} of {} to {}: at {} they reach {share:.0}% of the best bandwidth ({} \
             GB/s), and up to {} one takes at most {LATENCY_FACTOR:.0} times as long as one of \
             64 B.",
            bytes(low),
            bytes(high),
            bytes(low),
            number(most),
            bytes(high),
        )
    } else {
        format!(
            "Random {what} reach {share:.0}% of the best bandwidth ({} GB/s) from {} on, but \
             beyond {} one takes more than {LATENCY_FACTOR:.0} times as long as one of 64 B: \
             choose by which of the two matters.",
            number(most),
            bytes(low),
            bytes(high),
        )
    })
}

fn threads(what: &str, bandwidth: &Figure) -> Option<String> {
    const SIZES: [f64; 2] = [256.0, 4096.0];
    let score =
        |series: &Series| -> Option<f64> { SIZES.iter().map(|&size| series.at(size)).sum() };
    let scores: Vec<(&str, f64)> = bandwidth
        .series
        .iter()
        .filter_map(|series| Some((series.label.as_str(), score(series)?)))
        .collect();
    if scores.len() < 2 {
        return None;
    }
    let most = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    let (label, score) = scores.iter().find(|(_, score)| *score >= most * ENOUGH)?;
    let last = scores.last()?.0;
    let more = if *label == last {
        "more were not measured".to_owned()
    } else {
        format!("up to {last}, more only wait for each other")
    };
    Some(format!(
        "{label} for {what}: that is {:.0}% of the best bandwidth at 256 B and 4 KiB; {more}.",
        score / most * 100.0,
    ))
}

fn small_writes(latency: &Figure) -> Option<String> {
    let series = latency.series("nt-store random")?;
    let (small, line) = (series.at(8.0)?, series.at(64.0)?);
    (small > line * 1.2).then(|| {
        format!(
            "Do not write less than 64 B past the caches: 8 B take {} ns, 64 B {} ns.",
            number(small),
            number(line),
        )
    })
}

fn method(latency: &Figure) -> Option<String> {
    let streaming = latency.series("nt-store random")?;
    let flushing = latency.series("store+clwb random")?;
    let wins = |x: f64| Some(streaming.at(x)? < flushing.at(x)?);
    let from = streaming.points.iter().map(|point| point.x).find(|&x| {
        let beyond = streaming.points.iter().filter(|point| point.x >= x);
        beyond.map(|point| wins(point.x)).all(|won| won == Some(true))
    })?;
    let ratio = flushing.at(from)? / streaming.at(from)?;
    Some(format!(
        "Write {} and more by stores past the caches: at {} store and clwb take {ratio:.2} times \
         as long.",
        bytes(from),
        bytes(from),
    ))
}

/// Returns the effect of inner fences on writes of 4 KiB and more by the most threads. Each size is
/// reported separately: an average would hide gains of large blocks behind losses of others.
fn fences(figure: &Figure) -> Option<String> {
    let (each, units) = (figure.series.first()?, figure.series.get(1)?);
    let large = each.points.iter().filter(|point| point.x >= 4096.0);
    let changes: Vec<(f64, f64)> = large
        .filter_map(|point| Some((point.x, units.at(point.x)? / point.y.median - 1.0)))
        .filter(|(_, change)| change.is_finite())
        .collect();
    let range = |picked: &[(f64, f64)]| -> Option<String> {
        let percents = || picked.iter().map(|(_, change)| change.abs() * 100.0);
        let least = percents().fold(f64::INFINITY, f64::min);
        let most = percents().fold(0.0, f64::max);
        let sizes: Vec<String> = picked.iter().map(|&(size, _)| bytes(size)).collect();
        let percent = match most - least {
            ..1.0 => format!("{most:.0}%"),
            _ => format!("{least:.0} to {most:.0}%"),
        };
        (!picked.is_empty()).then(|| format!("{percent} ({})", sizes.join(", ")))
    };
    let of = |keep: fn(f64) -> bool| -> Vec<(f64, f64)> {
        changes.iter().copied().filter(|&(_, change)| keep(change)).collect()
    };
    let (raised, lowered) = (of(|change| change >= 0.05), of(|change| change <= -0.05));
    let with = "With as many threads as were measured, a fence behind every 256 B of a large write";
    match (range(&raised), range(&lowered)) {
        _ if changes.is_empty() => None,
        (None, None) => Some(format!("{with} makes no difference here.")),
        (None, Some(lost)) => Some(format!("{with} costs bandwidth here: {lost}.")),
        (Some(won), Some(lost)) => {
            Some(format!("{with} raises bandwidth by {won} and costs {lost}."))
        }
        (Some(won), None) => Some(format!(
            "{with} raises bandwidth by {won}, and lowers it at no size: put one there."
        )),
    }
}

/// Returns advice on files and drives.
pub(super) fn of_files(figures: &[Figure]) -> Vec<String> {
    let figure = |name: &str| figures.iter().find(|figure| figure.name == name);
    let mut advice = Vec::new();
    for what in ["random reads", "random writes"] {
        let bandwidth = figure("bandwidth").and_then(|figure| figure.series(what));
        let latency = figure("latency").and_then(|figure| figure.series(what));
        if let (Some(bandwidth), Some(latency)) = (bandwidth, latency) {
            advice.extend(request_size(what, bandwidth, latency));
        }
    }
    advice.extend(figure("iops_over_depth").and_then(depth));
    advice.extend(figure("response_time").and_then(load));
    advice
}

fn request_size(what: &str, bandwidth: &Series, latency: &Series) -> Option<String> {
    let most = bandwidth.points.iter().map(|point| point.y.median).fold(0.0, f64::max);
    let enough = bandwidth.points.iter().find(|p| p.y.median >= most * BANDWIDTH_SHARE)?;
    let first = latency.points.first()?;
    let same = latency.points.iter().take_while(|p| p.y.median <= first.y.median * 1.25).last()?;
    Some(format!(
        "For {what}: up to {} a request takes no longer than one of {} (within 25%), so do not \
         split pages of that size; {} and more reach {:.0}% of the best bandwidth ({} GB/s).",
        bytes(same.x),
        bytes(first.x),
        bytes(enough.x),
        enough.y.median / most * 100.0,
        number(most),
    ))
}

fn depth(figure: &Figure) -> Option<String> {
    let points = &figure.series.first()?.points;
    let most = points.iter().map(|point| point.y.median).fold(0.0, f64::max);
    let enough = points.iter().find(|point| point.y.median >= most * ENOUGH)?;
    Some(format!(
        "{} requests in flight reach {:.0}% of the most mixed requests a second ({}); more only \
         wait longer.",
        enough.x,
        enough.y.median / most * 100.0,
        number(most),
    ))
}

fn load(figure: &Figure) -> Option<String> {
    let series = figure.series("99%")?;
    let idle = series.points.first()?;
    let good = series.points.iter().take_while(|p| p.y.median <= idle.y.median * 2.0).last()?;
    Some(format!(
        "Up to {} mixed requests a second the 99th percentile stays within twice its value at low \
         load ({} us).",
        number(good.x),
        number(idle.y.median),
    ))
}

/// Formats a number of bytes with its unit.
pub(super) fn bytes(value: f64) -> String {
    match value as u64 {
        bytes if bytes >= 1 << 20 => format!("{} MiB", bytes >> 20),
        bytes if bytes >= 1 << 10 => format!("{} KiB", bytes >> 10),
        bytes => format!("{bytes} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::figure::{Point, Quantity};
    use entresol_measure::statistics::Spread;

    fn figure(name: &'static str, series: &[(&str, &[(f64, f64)])]) -> Figure {
        let series = series
            .iter()
            .map(|(label, points)| Series {
                label: (*label).to_owned(),
                points: points.iter().map(|&(x, y)| Point { x, y: Spread::of(&[y]) }).collect(),
            })
            .collect();
        let (x, y) = (Quantity::GRANULARITY, Quantity::LATENCY_NS);
        Figure { name, title: name, about: String::new(), x, y, series }
    }

    #[test]
    fn the_papers_module_is_advised_as_the_paper_advises() {
        // Tables 3 to 6, and the text around figures 3 to 5.
        let figures = [
            figure(
                "read_latency",
                &[(
                    "random",
                    &[(64.0, 201.0), (1024.0, 611.0), (4096.0, 2361.0), (16384.0, 7368.0)],
                )],
            ),
            figure(
                "write_latency",
                &[
                    ("nt-store random", &[(8.0, 658.0), (64.0, 190.0), (4096.0, 2006.0)]),
                    ("store+clwb random", &[(8.0, 300.0), (64.0, 300.0), (4096.0, 4000.0)]),
                ],
            ),
            figure(
                "read_bandwidth_random",
                &[
                    ("1 thread", &[(64.0, 0.3), (256.0, 1.1), (4096.0, 2.0)]),
                    ("8 threads", &[(64.0, 1.7), (256.0, 6.9), (4096.0, 7.0)]),
                    ("16 threads", &[(64.0, 1.7), (256.0, 7.0), (4096.0, 6.5)]),
                ],
            ),
            figure(
                "fence_each_unit",
                &[
                    ("fence each block", &[(256.0, 2.0), (4096.0, 1.2)]),
                    ("fence each 256 B", &[(256.0, 2.0), (4096.0, 2.0)]),
                ],
            ),
        ];
        let advice = of_memory(&figures).join("\n");
        for sentence in [
            "Random reads of 256 B to 4 KiB:",
            "8 threads for reads:",
            "up to 16 threads, more only wait",
            "Do not write less than 64 B past the caches: 8 B take 658 ns",
            "Write 64 B and more by stores past the caches",
            "raises bandwidth by 67% (4 KiB), and lowers it at no size",
        ] {
            assert!(advice.contains(sentence), "{sentence}: {advice}");
        }
    }

    #[test]
    fn advice_on_fences_tells_sizes_apart() {
        let advice = |with: &[(f64, f64)]| {
            let without: Vec<(f64, f64)> = with.iter().map(|&(x, _)| (x, 2.0)).collect();
            let series = [("each block", &without[..]), ("each 256 B", with)];
            fences(&figure("fence_each_unit", &series))
        };
        let says = |with: &[(f64, f64)], sentence: &str| {
            let advice = advice(with).expect("advice");
            assert!(advice.contains(sentence), "{sentence}: {advice}");
        };
        let (small, large) = (4096.0, 4_194_304.0);
        // An average would show a loss of 3%.
        says(
            &[(small, 1.6), (large, 2.36)],
            "raises bandwidth by 18% (4 MiB) and costs 20% (4 KiB)",
        );
        says(&[(small, 2.0), (large, 2.5)], "by 25% (4 MiB), and lowers it at no size");
        says(&[(small, 1.0), (large, 1.2)], "costs bandwidth here: 40 to 50% (4 KiB, 4 MiB)");
        says(&[(small, 2.0), (large, 2.02)], "no difference");
        assert_eq!(advice(&[(256.0, 1.0)]), None);
    }

    #[test]
    fn nothing_is_advised_without_figures() {
        assert!(of_memory(&[]).is_empty());
    }
}
