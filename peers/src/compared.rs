//! Result of a comparison, as Markdown and as JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::path::Path;

use anyhow::Context;
use entresol_measure::report::table::number;
use entresol_measure::statistics::{PAIRS_MIN, Spread, paired_ratio};
use entresol_media::files;
use serde::{Deserialize, Serialize};

use crate::Name;

/// One store, with its results in all rounds.
#[derive(Debug, Serialize)]
pub(crate) struct Side {
    #[serde(skip)]
    pub(crate) name: Name,
    pub(crate) engine: &'static str,
    /// True for the second measurement of Entresol, which ought to equal the first.
    again: bool,
    durability: &'static str,
    /// Reason why the store was not measured further.
    pub(crate) failure: Option<String>,
    pub(crate) rounds: Vec<Option<Report>>,
}

impl Side {
    pub(crate) fn new(name: Name, again: bool) -> Side {
        let (engine, durability) = (name.name(), name.durability());
        Side { name, engine, again, durability, failure: None, rounds: Vec::new() }
    }

    pub(crate) fn title(&self) -> String {
        format!("{}{}", self.engine, if self.again { ", again" } else { "" })
    }

    pub(crate) fn directory(&self) -> String {
        format!("{}{}", self.engine, if self.again { "-again" } else { "" })
    }

    /// Returns a figure of a workload for each round.
    fn figures(&self, workload: &str, figure: Figure) -> Vec<Option<f64>> {
        let of = |report: &Report| {
            let measured = report.workloads.iter().find(|it| it.workload == workload)?;
            figure(measured)
        };
        self.rounds.iter().map(|report| report.as_ref().and_then(of)).collect()
    }

    fn spread(&self, workload: &str, figure: Figure) -> Option<Spread> {
        let found: Vec<f64> = self.figures(workload, figure).into_iter().flatten().collect();
        (!found.is_empty()).then(|| Spread::of(&found))
    }
}

/// Output of a process, as far as it is compared.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    pub(crate) workloads: Vec<Measured>,
}

#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Measured {
    workload: String,
    operations: u64,
    throughput_ops_s: f64,
    latency: Latency,
    cpu_us_per_operation: f64,
    user_bytes: u64,
    bytes_written: Option<u64>,
    anonymous_bytes_max: u64,
    directory_bytes: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Latency {
    p50_us: f64,
    p99_us: f64,
}

type Figure = fn(&Measured) -> Option<f64>;

const RATE: Figure = |it| Some(it.throughput_ops_s);
const CPU: Figure = |it| Some(it.cpu_us_per_operation);
const P99: Figure = |it| Some(it.latency.p99_us);
const ANONYMOUS_MIB: Figure = |it| Some(it.anonymous_bytes_max as f64 / f64::from(1 << 20));
const WRITTEN: Figure = |it| match it.user_bytes {
    0 => None,
    bytes => it.bytes_written.map(|written| written as f64 / bytes as f64),
};

/// Ratio of two figures, taken in each round.
#[derive(Debug, Serialize)]
struct Ratio {
    /// Geometric mean; the median if there are too few rounds for an interval.
    ratio: f64,
    low: f64,
    high: f64,
    rounds: usize,
    /// True if `low` and `high` are a 95% interval; otherwise they are the lowest and highest
    /// round.
    is_interval: bool,
}

impl Ratio {
    fn of(first: &Side, second: &Side, workload: &str, figure: Figure, seed: u64) -> Option<Ratio> {
        let pairs = first.figures(workload, figure).into_iter();
        let pairs: Vec<(f64, f64)> = pairs
            .zip(second.figures(workload, figure))
            .filter_map(|(first, second)| first.zip(second))
            .filter(|(first, second)| *first > 0.0 && *second > 0.0)
            .collect();
        let found = paired_ratio(&pairs, seed)?;
        if found.pairs >= PAIRS_MIN {
            let (low, high) = (found.ci95_low, found.ci95_high);
            return Some(Ratio {
                ratio: found.ratio,
                low,
                high,
                rounds: found.pairs,
                is_interval: true,
            });
        }
        let each: Vec<f64> = pairs.iter().map(|(first, second)| first / second).collect();
        let Spread { median, min, max } = Spread::of(&each);
        Some(Ratio { ratio: median, low: min, high: max, rounds: each.len(), is_interval: false })
    }
}

/// Formats a ratio as `0.81 (0.79 to 0.84)`, with the number of rounds if these are a range.
impl std::fmt::Display for Ratio {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({} to {})", number(self.ratio), number(self.low), number(self.high))?;
        match (self.is_interval, self.rounds) {
            (true, _) => Ok(()),
            (false, 1) => write!(f, ", 1 round"),
            (false, rounds) => write!(f, ", {rounds} rounds"),
        }
    }
}

/// Entresol compared with the fastest of the others in a workload.
#[derive(Debug, Serialize)]
struct Verdict {
    workload: String,
    best: Option<&'static str>,
    throughput: Option<Ratio>,
    cpu: Option<Ratio>,
    /// Entresol compared with itself.
    same: Option<Ratio>,
}

/// All results of a comparison.
#[derive(Debug, Serialize)]
pub(crate) struct Compared {
    version: &'static str,
    machine: String,
    command: String,
    subject: Vec<String>,
    load_average: Spread,
    sides: Vec<Side>,
    verdicts: Vec<Verdict>,
}

impl Compared {
    pub(crate) fn new(
        subject: Vec<String>,
        sides: Vec<Side>,
        load_averages: &[f64],
        seed: u64,
    ) -> Compared {
        let verdicts = workloads(&sides).into_iter().map(|it| verdict(&sides, it, seed)).collect();
        Compared {
            version: env!("CARGO_PKG_VERSION"),
            machine: entresol_media::machine::describe(),
            command: std::env::args().collect::<Vec<_>>().join(" "),
            subject,
            load_average: Spread::of(load_averages),
            sides,
            verdicts,
        }
    }

    /// Prints the results, and saves them if `save` is given. Fails if Entresol failed.
    pub(crate) fn put(&self, json: bool, save: Option<&Path>) -> anyhow::Result<()> {
        let all = serde_json::to_string_pretty(self).context("the result as JSON")?;
        let text = if json { &all } else { &self.markdown() };
        let printed = writeln!(std::io::stdout(), "{text}").context("standard output");
        // A failure to print must not lose results that took long to measure.
        if let Some(path) = save {
            let saved = files::write_atomically(path, all.as_bytes());
            saved.with_context(|| path.display().to_string())?;
        }
        printed?;
        let failed = |side: &&Side| side.name == Name::Entresol && side.failure.is_some();
        match self.sides.iter().find(failed).and_then(|side| side.failure.as_ref()) {
            Some(failure) => anyhow::bail!("entresol {failure}"),
            None => Ok(()),
        }
    }

    fn markdown(&self) -> String {
        let mut text = format!("{}; {}.\n", self.machine, self.subject.join("; "));
        let _ = writeln!(
            text,
            "Load average after each round: {}. `{}`\n",
            self.load_average, self.command
        );
        for side in self.sides.iter().filter(|side| !side.again) {
            let _ = writeln!(text, "- {}: {}.", side.engine, side.durability);
        }
        for side in &self.sides {
            if let Some(failure) = &side.failure {
                let _ = writeln!(text, "- {} failed: {failure}.", side.title());
            }
        }
        text.push('\n');
        let columns = [
            "workload",
            "fastest other",
            "operations/s, ours / its",
            "CPU each, ours / its",
            "operations/s, ours / ours",
        ];
        let dash = |ratio: &Option<Ratio>| ratio.as_ref().map_or("-".to_owned(), Ratio::to_string);
        let rows = self.verdicts.iter().map(|it| {
            let best = it.best.unwrap_or("-").to_owned();
            vec![it.workload.clone(), best, dash(&it.throughput), dash(&it.cpu), dash(&it.same)]
        });
        table(&mut text, &columns, rows);
        for verdict in &self.verdicts {
            text.push('\n');
            self.figures(&mut text, &verdict.workload);
        }
        text
    }

    /// Writes a table of the stores in one workload.
    fn figures(&self, text: &mut String, workload: &str) {
        let columns = [
            workload,
            "operations/s",
            "p99, us",
            "CPU us each",
            "written for each byte put",
            "anonymous memory, MiB",
        ];
        let rows = self.sides.iter().map(|side| {
            let spread = |figure| {
                let spread: Option<Spread> = side.spread(workload, figure);
                spread.map_or("-".to_owned(), |spread| spread.to_string())
            };
            let figures = [RATE, P99, CPU, WRITTEN].map(spread);
            let memory = side.spread(workload, ANONYMOUS_MIB);
            let memory = memory.map_or("-".to_owned(), |memory| format!("{:.0}", memory.max));
            std::iter::once(side.title()).chain(figures).chain([memory]).collect()
        });
        table(text, &columns, rows);
    }
}

/// Returns the workloads that any store completed, in order.
fn workloads(sides: &[Side]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let reports = sides.iter().flat_map(|side| side.rounds.iter().flatten());
    for measured in reports.flat_map(|report| &report.workloads) {
        if !names.contains(&measured.workload) {
            names.push(measured.workload.clone());
        }
    }
    names
}

fn verdict(sides: &[Side], workload: String, seed: u64) -> Verdict {
    let ours = sides.iter().find(|side| side.name == Name::Entresol && !side.again);
    let again = sides.iter().find(|side| side.again);
    let rate = |side: &Side| side.spread(&workload, RATE).map_or(0.0, |rate| rate.median);
    let others = sides.iter().filter(|side| side.name != Name::Entresol && rate(side) > 0.0);
    let best = others.max_by(|a, b| rate(a).total_cmp(&rate(b)));
    let ratio = |to: Option<&Side>, figure| Ratio::of(ours?, to?, &workload, figure, seed);
    Verdict {
        best: best.map(|side| side.engine),
        throughput: ratio(best, RATE),
        cpu: ratio(best, CPU),
        same: ratio(again, RATE),
        workload,
    }
}

fn table(text: &mut String, columns: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let _ = writeln!(text, "| {} |\n|{}", columns.join(" | "), "---|".repeat(columns.len()));
    for row in rows {
        let _ = writeln!(text, "| {} |", row.join(" | "));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(rate: f64) -> Option<Report> {
        let latency = Latency { p50_us: 1.0, p99_us: 2.0 };
        let measured = Measured {
            workload: "a".to_owned(),
            operations: 1,
            throughput_ops_s: rate,
            latency,
            cpu_us_per_operation: 1.0,
            user_bytes: 0,
            bytes_written: Some(1),
            anonymous_bytes_max: 1,
            directory_bytes: 1,
        };
        Some(Report { workloads: vec![measured] })
    }

    fn side(name: Name, again: bool, rates: &[f64]) -> Side {
        let rounds = rates.iter().map(|rate| report(*rate)).collect();
        Side { rounds, ..Side::new(name, again) }
    }

    #[test]
    fn ours_stands_beside_the_fastest_of_the_others_and_beside_itself() {
        let mut sides = [
            side(Name::Entresol, false, &[2.0, 4.0, 6.0]),
            side(Name::Fjall, false, &[1.0, 1.0, 1.0]),
            side(Name::Lmdb, false, &[4.0, 4.0, 4.0]),
            side(Name::Entresol, true, &[2.0, 4.0, 6.0]),
        ];
        let found = verdict(&sides, "a".to_owned(), 1);
        assert_eq!(found.best, Some("lmdb"));
        let ratio = |found: &Option<Ratio>| found.as_ref().map(Ratio::to_string);
        assert_eq!(ratio(&found.throughput).unwrap(), "1.00 (0.500 to 1.50), 3 rounds");
        assert_eq!(ratio(&found.same).unwrap(), "1.00 (1.00 to 1.00), 3 rounds");
        // A round that one of the two did not finish does not count.
        sides[2].rounds[0] = None;
        let found = verdict(&sides, "a".to_owned(), 1);
        assert_eq!(ratio(&found.throughput).unwrap(), "1.25 (1.00 to 1.50), 2 rounds");
    }

    #[test]
    fn ten_rounds_give_an_interval() {
        let (ours, other) = ([3.0; 10], [2.0; 10]);
        let sides = [side(Name::Entresol, false, &ours), side(Name::Redb, false, &other)];
        let found = verdict(&sides, "a".to_owned(), 1).throughput.unwrap();
        assert!(found.is_interval);
        assert_eq!(found.to_string(), "1.50 (1.50 to 1.50)");
    }

    #[test]
    fn what_put_nothing_has_written_nothing_for_each_byte() {
        let only = side(Name::Entresol, false, &[1.0]);
        assert_eq!(only.spread("a", WRITTEN), None);
        assert_eq!(workloads(&[only]), ["a"]);
    }
}
