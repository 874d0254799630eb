//! Figure 4 on a file of the machine at hand, in real time: the same breakdown, with completions by
//! interrupt and by polling.

use std::path::PathBuf;

use entresol_bench::profile::{SplitRound, TimeSplit, split_rounds};
use entresol_measure::statistics::Spread;

use crate::{Check, Outcome, Settings, Side};

/// Rounds of about two seconds, of both kinds of completion.
const ROUNDS: usize = 5;
const POLLED: &str = "a file here: the system's time polled, over that of the interrupt";
const PARTS: &str = "a file here: drive and system, split as on the model";

/// Returns the place of the file: a new name in the directory for temporary files.
fn place(seed: u64) -> PathBuf {
    std::env::temp_dir().join(format!("entresol-reads-{}-{seed}", std::process::id()))
}

/// Returns the median of one part over the rounds, or the reason why a round has none.
fn median(
    rounds: &[SplitRound],
    split: fn(&SplitRound) -> &TimeSplit,
    part: fn(&TimeSplit) -> f64,
) -> Result<f64, String> {
    let parts: Result<Vec<f64>, String> = rounds
        .iter()
        .map(split)
        .map(|split| split.refused.clone().map_or(Ok(part(split)), Err))
        .collect();
    Ok(Spread::of(&parts?).median)
}

/// Creates both checks from the breakdowns.
fn checks(rounds: &[SplitRound]) -> Vec<Check> {
    let interrupt = |part| median(rounds, |round| &round.interrupt, part);
    let system = interrupt(|split| split.system_us);
    let polled = median(rounds, |round| &round.polled, |split| split.system_us);
    let ratio = |of: f64| Check::limit(POLLED, "", Side::Below, 1.0, of).beside("1.5 us against 4");
    let first = match (&system, polled) {
        (Ok(system), Ok(polled)) => ratio(polled / system)
            .noting(format!("{polled:.1} us polled, {system:.1} by interrupt")),
        (Err(why), _) => ratio(f64::NAN).not_measured("no breakdown").noting(why.clone()),
        (_, Err(why)) => ratio(f64::NAN).not_measured("no polling").noting(why),
    };
    let parts = interrupt(|split| split.device_us)
        .and_then(|device| Ok(format!("drive {device:.1}, system {:.1}", system?)));
    let report = |text: &str| {
        let why = "the drive at hand is another one";
        Check::report(PARTS, "us", None, text, why).beside("8 us and 4")
    };
    let second = match parts {
        Ok(parts) => report(&parts),
        Err(why) => report("").not_measured(&why),
    };
    vec![first, second]
}

pub(super) fn fig4_here(settings: &Settings) -> Outcome {
    let rounds = match split_rounds(place(settings.seed), ROUNDS, settings.seed) {
        Ok(rounds) => rounds,
        Err(error) => return Outcome::failed(error.to_string()),
    };
    let mut scenario = vec![format!(
        "On the machine at hand, in real time: reads of 4 KiB, one at a time, of a file in the \
         directory for temporary files, past the page cache; {ROUNDS} rounds of a second of \
         either kind of completion by turns, medians."
    )];
    scenario.extend(rounds.first().map(|round| format!("Method: {}.", round.interrupt.method)));
    Outcome { scenario, checks: checks(&rounds), drawings: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(completion: &'static str, device_us: f64, system_us: f64) -> TimeSplit {
        TimeSplit {
            completion,
            refused: None,
            total_us: device_us + system_us,
            application_us: 0.0,
            system_us,
            device_us,
            reads: 1,
            others_share: 0.0,
            method: String::new(),
        }
    }

    fn round(interrupt: f64, polled: f64) -> SplitRound {
        SplitRound {
            interrupt: split("interrupt", 80.0, interrupt),
            polled: split("polling", 80.0, polled),
        }
    }

    #[test]
    fn the_medians_of_the_rounds_are_compared() {
        let rounds = [round(4.0, 2.0), round(4.0, 90.0), round(4.0, 1.0)];
        let checks = checks(&rounds);
        assert_eq!((checks[0].pass(), checks[0].ours.number()), (Some(true), Some(0.5)));
        assert_eq!(checks[1].ours.text(), "drive 80.0, system 4.0");
        assert!(super::checks(&[round(4.0, 4.1)])[0].fails());
    }

    #[test]
    fn what_cannot_be_polled_or_broken_down_is_not_measured_and_does_not_pass() {
        let refused = |why: &str| TimeSplit {
            refused: Some(why.to_owned()),
            ..split("", f64::NAN, f64::NAN)
        };
        let unpolled = SplitRound { polled: refused("vda has no queues"), ..round(4.0, 0.0) };
        let checks = checks(&[unpolled]);
        assert!(checks[0].fails() && checks[0].note() == Some("vda has no queues"));
        assert_eq!(checks[0].ours.text(), "not measured: no polling");
        assert_eq!(checks[1].ours.text(), "drive 80.0, system 4.0");
        let uncounted = SplitRound { interrupt: refused("no counts"), ..round(4.0, 1.0) };
        let checks = super::checks(&[uncounted]);
        assert_eq!(checks[0].ours.text(), "not measured: no breakdown");
        assert_eq!(checks[1].ours.text(), "not measured: no counts");
        assert!(checks[0].fails() && checks[1].is_report());
        assert!(super::checks(&[])[0].fails());
    }
}
