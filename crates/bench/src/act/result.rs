//! Results of a search, as `--json` prints them, as tables and as a page.

use entresol_measure::report::svg::{Axis, Bar, Line, Scale, bars, lines};
use entresol_measure::report::table::{grouped, number};
use entresol_measure::report::{Page, Table};
use serde::Serialize;

use super::LATE_PART_MAX;
use super::load::{Definition, Found, Limits, Load, Ran};

/// Result of a search for the largest multiples.
#[derive(Debug, Clone, Serialize)]
pub struct ActResult {
    /// Medium, or directory of the store.
    pub subject: String,
    /// Kind of the subject.
    pub kind: String,
    /// Version of the tool: `paper` or `current`.
    pub definition: &'static str,
    /// Load of one multiple.
    pub load: Load,
    /// Puts a second of a store, at one multiple.
    pub puts_per_second: Option<f64>,
    /// Largest multiples, by limits.
    pub best: Vec<Best>,
    /// All runs, by multiple.
    pub runs: Vec<RunResult>,
    /// Facts about the measurement.
    pub facts: Vec<String>,
}

/// Largest multiple that keeps limits of response times.
#[derive(Debug, Clone, Serialize)]
pub struct Best {
    /// Name of the limits: `standard` or `tight`.
    pub limits: &'static str,
    /// Limit of the 95th percentile.
    pub p95_us_max: f64,
    /// Limit of the 99th percentile.
    pub p99_us_max: f64,
    /// Limit of the 99.9th percentile.
    pub p99_9_us_max: f64,
    /// Largest multiple, 0 if the baseline fails; absent if the search was interrupted.
    pub multiple: Option<u32>,
    /// Reason why the next multiple fails: `response times`, `requests fall behind`, `the
    /// generator was late`, or `the largest multiple that was allowed`.
    pub limited_by: Option<&'static str>,
}

/// Run of one multiple.
#[derive(Debug, Clone, Serialize)]
pub struct RunResult {
    /// Multiple of the baseline.
    pub multiple: u32,
    /// Names of the limits that were kept.
    pub passes: Vec<&'static str>,
    /// True if large requests, or puts, were made about as fast as they arrived.
    pub kept_up: bool,
    /// Share of the small reads that the generator itself began late.
    pub generator_late_share: f64,
    /// Response times of small reads from their arrival, for each interval.
    pub intervals: Vec<IntervalResult>,
}

/// Response times in one interval.
#[derive(Debug, Clone, Serialize)]
pub struct IntervalResult {
    /// Small reads.
    pub reads: u64,
    /// Mean response time.
    pub mean_us: f64,
    /// 50th percentile.
    pub p50_us: f64,
    /// 95th percentile.
    pub p95_us: f64,
    /// 99th percentile.
    pub p99_us: f64,
    /// 99.9th percentile.
    pub p99_9_us: f64,
    /// Slowest response time.
    pub max_us: f64,
}

impl RunResult {
    fn of(multiple: u32, ran: &Ran) -> RunResult {
        let kept = Limits::ALL.iter().filter(|limits| ran.keeps(**limits));
        let interval = |times: &entresol_base::histogram::Histogram| IntervalResult {
            reads: times.count(),
            mean_us: times.mean_us(),
            p50_us: times.percentile_us(50.0),
            p95_us: times.percentile_us(95.0),
            p99_us: times.percentile_us(99.0),
            p99_9_us: times.percentile_us(99.9),
            max_us: times.max_us(),
        };
        RunResult {
            multiple,
            passes: kept.map(|limits| limits.name).collect(),
            kept_up: ran.kept_up,
            generator_late_share: ran.late,
            intervals: ran.intervals.iter().map(interval).collect(),
        }
    }

    /// Returns the largest value of the intervals.
    fn worst(&self, of: impl Fn(&IntervalResult) -> f64) -> f64 {
        self.intervals.iter().map(of).fold(0.0, f64::max)
    }
}

impl ActResult {
    pub(super) fn new(
        (subject, kind): (String, String),
        definition: Definition,
        load: Load,
        is_store: bool,
        found: &Found,
        facts: Vec<String>,
    ) -> ActResult {
        let best = Limits::ALL.iter().zip(&found.best).map(|(limits, multiple)| Best {
            limits: limits.name,
            p95_us_max: limits.us[0],
            p99_us_max: limits.us[1],
            p99_9_us_max: limits.us[2],
            multiple: *multiple,
            limited_by: multiple.map(|multiple| limited_by(found, multiple)),
        });
        ActResult {
            subject,
            kind,
            definition: definition.name(),
            load,
            puts_per_second: is_store.then(|| load.puts_per_second()),
            best: best.collect(),
            runs: found.runs.iter().map(|(multiple, ran)| RunResult::of(*multiple, ran)).collect(),
            facts,
        }
    }

    fn title(&self) -> String {
        format!("ACT on {} ({}), the {} baseline", self.subject, self.kind, self.definition)
    }

    /// Returns the tables for a terminal.
    #[must_use]
    pub fn tables(&self) -> Vec<Table> {
        let mut best = Table::new(
            &self.title(),
            &["limits", "p95 us", "p99 us", "p99.9 us", "largest multiple", "limited by"],
        );
        for it in &self.best {
            best.row(vec![
                it.limits.to_owned(),
                number(it.p95_us_max),
                number(it.p99_us_max),
                grouped(it.p99_9_us_max),
                it.multiple.map_or("not known".to_owned(), |it| it.to_string()),
                it.limited_by.unwrap_or("-").to_owned(),
            ]);
        }
        let mut runs = Table::new(
            "Runs: response times of small reads from their arrival, us, in the worst interval",
            &["multiple", "reads", "mean", "p95", "p99", "p99.9", "fell behind", "late", "passes"],
        );
        for run in &self.runs {
            let reads: u64 = run.intervals.iter().map(|it| it.reads).sum();
            runs.row(vec![
                run.multiple.to_string(),
                grouped(reads as f64),
                number(run.worst(|it| it.mean_us)),
                number(run.worst(|it| it.p95_us)),
                number(run.worst(|it| it.p99_us)),
                number(run.worst(|it| it.p99_9_us)),
                if run.kept_up { "no" } else { "yes" }.to_owned(),
                format!("{:.2}%", run.generator_late_share * 100.0),
                if run.passes.is_empty() { "-".to_owned() } else { run.passes.join(", ") },
            ]);
        }
        let mut facts = Table::new("", &[""]);
        self.facts.iter().for_each(|fact| facts.row(vec![fact.clone()]));
        vec![best, runs, facts]
    }

    /// Renders the results as a page with drawings.
    #[must_use]
    pub fn page(&self) -> Page {
        let mut page = Page::new(&self.title());
        let bar = |(series, best): (usize, &Best)| Bar {
            label: format!("{}, p95 within {} us", best.limits, best.p95_us_max),
            value: f64::from(best.multiple.unwrap_or_default()),
            series,
        };
        let all: Vec<Bar> = self.best.iter().enumerate().map(bar).collect();
        page.drawing(&bars("Largest multiple of ACT's load", "x", &all));
        let line = |label: &str, of: fn(&IntervalResult) -> f64| Line {
            label: label.to_owned(),
            points: self.runs.iter().map(|it| (f64::from(it.multiple), it.worst(of))).collect(),
        };
        let axis = |label: &str| Axis {
            label: label.to_owned(),
            scale: Scale::Logarithmic,
            ticks: Vec::new(),
        };
        page.drawing(&lines(
            "Response times over the load, in the worst interval",
            &axis("multiple of the baseline"),
            &axis("response time, us"),
            &[
                line("mean", |it| it.mean_us),
                line("95%", |it| it.p95_us),
                line("99%", |it| it.p99_us),
                line("99.9%", |it| it.p99_9_us),
            ],
        ));
        let [best, runs, _] = &self.tables()[..] else { return page };
        page.table(best);
        page.table(runs);
        page.list(&self.facts);
        page
    }
}

/// Returns the reason why nothing above a multiple was found.
fn limited_by(found: &Found, multiple: u32) -> &'static str {
    match found.runs.get(&(multiple + 1)) {
        None => "the largest multiple that was allowed",
        Some(ran) if ran.late > LATE_PART_MAX => "the generator was late",
        Some(ran) if !ran.kept_up => "requests fall behind",
        Some(_) => "response times",
    }
}
