//! Figure 12 on files of the machine at hand, in real time and under a memory limit: paging by the
//! system, and a cache that reads its file itself.

use std::path::PathBuf;

use serde_json::Value;

use crate::{Check, Outcome, Settings, Side};

const OVER_PAGING: &str = "a file here, under a memory limit: own I/O over paging";
/// Memory for data, and the data: four times as much.
const MEMORY: &str = "64MiB";
const SIZE: &str = "256MiB";
const THREADS: &str = "4";
const ROUNDS: &str = "10";
const LOOP: &str = "1s";

/// Returns the place of the files: a new name in the directory for temporary files.
fn place(seed: u64) -> PathBuf {
    std::env::temp_dir().join(format!("entresol-extend-{}-{seed}", std::process::id()))
}

/// Runs `entresol bench extend` in a process of its own, since the limit is that of a process.
fn run(settings: &Settings) -> Result<Value, String> {
    let apart = settings.apart.ok_or("there is no program to run in a process of its own")?;
    let place = place(settings.seed);
    let place = place.to_str().ok_or("the directory for temporary files is not UTF-8")?;
    let seed = settings.seed.to_string();
    let flags = [
        ("--directory", place),
        ("--memory", MEMORY),
        ("--size", SIZE),
        ("--threads", THREADS),
        ("--rounds", ROUNDS),
        ("--duration", LOOP),
        ("--seed", &seed),
    ];
    let mut arguments = vec!["bench", "extend", "--json"];
    arguments.extend(flags.into_iter().flat_map(|(flag, value)| [flag, value]));
    serde_json::from_str(&apart(&arguments)?).map_err(|error| error.to_string())
}

/// Judges the lower end of the interval of interleaved pairs of gets, of which one half is the
/// faster of two mapped files.
fn check(measured: &Result<Value, String>) -> Check {
    let judged = |ours| Check::limit(OVER_PAGING, "", Side::Above, 1.0, ours);
    let result = match measured {
        Ok(result) => &result["cache_over_mapped"],
        Err(why) => return judged(f64::NAN).not_measured("no run under a limit").noting(why),
    };
    let number = |key: &str| result[key].as_f64();
    let (Some(ratio), Some(low), Some(high)) =
        (number("ratio"), number("ci95_low"), number("ci95_high"))
    else {
        return judged(f64::NAN).not_measured("no pairs");
    };
    let note = format!(
        "the lower end of the 95% interval {low:.2} to {high:.2} of {} pairs; mean {ratio:.2}",
        result["pairs"],
    );
    judged(low).noting(note)
}

fn scenario(result: &Value) -> Vec<String> {
    let each = |way: &Value| {
        let median = |key: &str| way[key]["median"].as_f64().unwrap_or(f64::NAN);
        format!(
            "{} {:.0} gets/s, half of them within {:.0} us and 99% within {:.0}, scan {:.0} MB/s",
            way["way"].as_str().unwrap_or_default(),
            median("gets_s"),
            median("get_us_p50"),
            median("get_us_p99"),
            median("scan_bytes_s") / 1e6,
        )
    };
    let ways = result["ways"].as_array();
    let all: Vec<String> = ways.into_iter().flatten().map(each).collect();
    vec![
        format!(
            "On the machine at hand, in real time: {SIZE} of values of 4 KiB and as much of \
             columns in the directory for temporary files, {MEMORY} of memory and what the \
             cache takes for keys and buffers beside it ({}), {THREADS} threads; {ROUNDS} \
             rounds of {LOOP} of gets and of a scan for each way by turns. A get of a mapped \
             item counts a reference in it and moves it in the list by last use; gets are \
             compared with those of the mapped file that was faster in the same round.",
            result["limited_by"].as_str().unwrap_or_default(),
        ),
        format!("Medians: {}.", all.join("; ")),
    ]
}

pub(super) fn fig12_here(settings: &Settings) -> Outcome {
    let measured = run(settings);
    let scenario = measured.as_ref().map(scenario).unwrap_or_default();
    Outcome { scenario, checks: vec![check(&measured)], drawings: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ran(low: &str, high: &str) -> Check {
        let numbers = format!(r#""ratio": 1.5, "ci95_low": {low}, "ci95_high": {high}"#);
        let text = format!(r#"{{"cache_over_mapped": {{{numbers}, "pairs": 10}}}}"#);
        check(&serde_json::from_str(&text).map_err(|error| error.to_string()))
    }

    #[test]
    fn the_whole_interval_of_pairs_must_lie_above_1() {
        assert!(ran("1.01", "2.0").pass() == Some(true) && ran("0.99", "2.0").fails());
        assert!(ran("1.2", "2.0").note().is_some_and(|note| note.contains("1.20 to 2.00 of 10")));
    }

    #[test]
    fn a_run_that_is_refused_or_has_no_pairs_has_not_passed() {
        let refused = Settings {
            apart: Some(|_| Err("its memory cannot be limited".to_owned())),
            ..Settings::default()
        };
        let outcome = fig12_here(&refused);
        assert!(outcome.checks[0].fails());
        assert_eq!(outcome.checks[0].note(), Some("its memory cannot be limited"));
        assert_eq!(outcome.checks[0].ours.text(), "not measured: no run under a limit");
        assert!(check(&Ok(Value::Null)).fails() && check(&run(&Settings::default())).fails());
    }
}
