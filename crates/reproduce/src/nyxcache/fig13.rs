//! Figure 13: sensitivity of the paper's algorithm to its ExperimentStep, the amount by which a
//! candidate is slowed for an experiment, in the scene of figure 8.

use entresol_measure::statistics::Spread;
use entresol_sharing::settings::{Expense, QosSettings};

use super::fig8::{BE1, BE2, BE2_LOUD_BYTES_S, gb_s, kept_after, scenario, scene, tails};
use super::tenants::{Device, drawing, line, play};
use crate::{Check, Outcome, Settings, Side};

const SLOWER: u32 = 75;
/// ExperimentSteps in MB/s.
const STEPS: [f64; 5] = [125.0, 250.0, 500.0, 1000.0, 2000.0];
const SEEDS: u64 = 5;
/// Second of the burst, earlier than in figure 8.
const BURST: f64 = 1.0;
/// Seconds to observe after the burst, and further seconds for each step that fits into BE2's rate.
/// A step takes an experiment with each of two candidates and a window for the judgement.
const LONG: f64 = 4.0;
const FOR_EACH_STEP: f64 = 2.0;
/// Last seconds of a run, over which the end is measured.
const END: f64 = 4.0;

/// Result of one step and one seed.
struct Tried {
    /// Seconds from the burst until LC meets its target.
    safe: f64,
    /// BE1's rate at the end, divided by the rate it asks for; the next field is BE2's.
    be1: f64,
    be2: f64,
}

fn seconds(step: f64) -> f64 {
    LONG + FOR_EACH_STEP * (BE2_LOUD_BYTES_S / (step * 1e6)).ceil()
}

/// Runs the paper's algorithm with this step.
fn tried(device: &Device, step: f64) -> Tried {
    let end = BURST + seconds(step);
    let settings = QosSettings { expense: Expense::Bytes(step * 1e6), ..QosSettings::published() };
    let story = play(&scene(device, Some(settings), BURST, end));
    Tried {
        safe: kept_after(&tails(device, &story), BURST).unwrap_or(end - BURST),
        be1: gb_s(device, &story, BE1, end - END, end) / 2.4,
        be2: gb_s(device, &story, BE2, end - END, end) / BE2_LOUD_BYTES_S * 1e9,
    }
}

fn told(values: &[f64]) -> String {
    let one = |(step, value): (&f64, &f64)| format!("{step}: {value:.3}");
    STEPS.iter().zip(values).map(one).collect::<Vec<_>>().join(", ")
}

fn checks(safe: &[f64], [be1, means]: [&[f64]; 2], be2: &[f64]) -> Vec<Check> {
    let most = |values: &[f64]| values.iter().copied().fold(0.0, f64::max);
    let least = |values: &[f64]| values.iter().copied().fold(f64::MAX, f64::min);
    let checks = vec![
        Check::shape(
            "time until LC is safe never rises with the step, s, median of five",
            "the larger the step the faster",
            told(safe),
            safe.windows(2).all(|pair| pair[1] <= pair[0]),
        ),
        Check::limit(
            "BE1 in the end, median of five: the most below 500 MB/s over the least from there on",
            "",
            Side::Below,
            1.0,
            most(&be1[..2]) / least(&be1[2..]),
        )
        .beside("small steps measure noise")
        .noting(told(be1)),
        Check::limit(
            "BE1 in the end, mean of five: the most below 500 MB/s over the least from there on",
            "",
            Side::Below,
            1.0,
            most(&means[..2]) / least(&means[2..]),
        )
        .noting(told(means)),
        Check::limit(
            "BE1 in the end over 2.4 GB/s, the least median from 500 MB/s on",
            "",
            Side::AtLeast,
            0.95,
            least(&be1[2..]),
        ),
        Check::limit(
            "BE1 in the end over 2.4 GB/s, the least mean from 500 MB/s on",
            "",
            Side::AtLeast,
            0.95,
            least(&means[2..]),
        ),
        Check::limit(
            "BE2 in the end, over its burst, median of five, the most",
            "",
            Side::AtMost,
            0.05,
            most(be2),
        )
        .beside("near zero in all cases")
        .noting(told(be2)),
    ];
    checks.into_iter().map(Check::published).collect()
}

pub(super) fn fig13(settings: &Settings) -> Outcome {
    let rows: Vec<Vec<Tried>> = STEPS
        .iter()
        .map(|step| {
            let one = |round| tried(&Device::slower(SLOWER, settings.seed + round), *step);
            (0..SEEDS).map(one).collect()
        })
        .collect();
    let each = |of: fn(&Tried) -> f64| -> Vec<f64> {
        rows.iter().map(|row| Spread::of(&row.iter().map(of).collect::<Vec<_>>()).median).collect()
    };
    // Few runs make a wrong choice; the median would not show it.
    let mean = |row: &Vec<Tried>| row.iter().map(|tried| tried.be1).sum::<f64>() / SEEDS as f64;
    let means: Vec<f64> = rows.iter().map(mean).collect();
    let be1 = each(|tried| tried.be1);
    let safe = each(|tried| tried.safe);
    let be2 = each(|tried| tried.be2);
    let panel = |title: &str, what: &str, of: &str, values: &[f64]| {
        let points = STEPS.iter().copied().zip(values.iter().copied());
        drawing(title, "step, MB/s", what, vec![line(of, points)])
    };
    let mut scenario = scenario(&Device::slower(SLOWER, settings.seed));
    scenario.push(format!(
        "Figure 13: the paper's algorithm, {SEEDS} seeds, the burst after {BURST} s; then {LONG} s \
         and {FOR_EACH_STEP} s for each step that BE2 is worth; safe: from the first half second \
         on that is followed by another one within the target."
    ));
    Outcome {
        scenario,
        checks: checks(&safe, [&be1, &means], &be2),
        drawings: vec![
            panel("Until LC is safe, by ExperimentStep (model)", "s", "median of five", &safe),
            panel(
                "BE1 in the end, by ExperimentStep (model)",
                "of 2.4 GB/s",
                "mean of five",
                &means,
            ),
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::super::fig8::p99_beside;
    use super::*;

    /// Proves the reason in `expected-failures.toml`: at what steps of 125 MB/s leave BE1 and BE2,
    /// LC keeps its target without any policy, and does not at one or two steps of BE2 more. So
    /// the algorithm ends there, and leaves BE2 up to a step.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_lc_keeps_its_target_beside_what_small_steps_leave_be2() {
        let device = Device::slower(SLOWER, 1);
        let row: Vec<Tried> =
            (0..SEEDS).map(|round| tried(&Device::slower(SLOWER, 1 + round), STEPS[0])).collect();
        let median =
            |of: fn(&Tried) -> f64| Spread::of(&row.iter().map(of).collect::<Vec<_>>()).median;
        let (be1, be2) = (median(|it| it.be1) * 2.4e9, median(|it| it.be2) * BE2_LOUD_BYTES_S);
        let step = STEPS[0] * 1e6;
        let [ended, one_more, two_more] =
            [0.0, 1.0, 2.0].map(|steps| p99_beside(&device, be1, be2 + steps * step));
        println!(
            "BE1 {:.2} GB/s: LC's p99 is {ended:.2} us beside {:.3} GB/s of BE2, {one_more:.2} \
             beside a step more and {two_more:.2} beside two; a step is {:.3} of the burst",
            be1 / 1e9,
            be2 / 1e9,
            step / BE2_LOUD_BYTES_S,
        );
        assert!(ended <= 1.5 * 1.02 && two_more > 1.5, "{ended}, {one_more}, {two_more}");
        assert!(be2 - step < 0.05 * BE2_LOUD_BYTES_S && step > 0.05 * BE2_LOUD_BYTES_S, "{be2}");
    }
}
