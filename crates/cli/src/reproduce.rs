//! `entresol reproduce`: runs the papers' tables and figures, theirs beside ours.

use std::fmt::Write as _;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::process::Command;

use anyhow::Context;
use clap::Args;
use entresol_base::list::shortened;
use entresol_base::{Clock, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::report::Table;
use entresol_reproduce::{
    Catalogue, Entry, Known, Reproductions, Settings, Took, everything, reproduce, select,
};
use serde::Serialize;

use crate::interrupt;
use crate::output::{COMMIT, Output, built_on};
use crate::standard::{judged, note, print};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Entries to run: 000-table3, 002-fig1, 002-fig1a, or 004 for all of a paper; by default
    /// everything. 002-fig5a and the parts of 004 that end in -here are measured in real time and
    /// run only if they or their figure are named.
    names: Vec<String>,
    /// List these entries, or all, with what they show and what is missing, and run nothing.
    #[arg(long)]
    list: bool,
    /// Seed of all random draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Use as many keys as the scenario is designed for instead of fewer: 10 million in 000-fig17,
    /// 5 million in 000-fig19. These then take a quarter of an hour.
    #[arg(long)]
    full_scale: bool,
    /// Entries to run at a time [default: the number of processors]. The results do not depend on
    /// it.
    #[arg(long, value_name = "N")]
    jobs: Option<NonZeroUsize>,
    /// Succeed if exactly the known checks fail, and none by more than is known.
    #[arg(long)]
    accept_known: bool,
    /// List of checks that are known to fail, instead of the built-in one.
    #[arg(long, value_name = "FILE")]
    expected: Option<PathBuf>,
    #[command(flatten)]
    output: Output,
}

/// Number of slowest entries that are named.
const SLOWEST: usize = 10;

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    if arguments.list {
        return list(arguments);
    }
    let read;
    let known = match &arguments.expected {
        Some(path) => {
            read = Known::read(path)?;
            &read
        }
        None => Known::built_in(),
    };
    arguments.output.check("reproduce", &[])?;
    let chosen = select(&arguments.names)?;
    let steps = chosen.iter().map(|(_, parts)| parts.len() as u64).sum();
    let progress = Progress::new(steps, "reproduce");
    interrupt::announce(&progress, "no results were printed")?;
    let Arguments { seed, full_scale, .. } = *arguments;
    let settings = Settings { seed, full_scale, apart: Some(apart) };
    let processors = || std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN);
    let jobs = arguments.jobs.unwrap_or_else(processors);
    let (mut results, took) = reproduce(&chosen, &settings, &progress, jobs);
    progress.finish();
    known.mark(&mut results);
    let text = if arguments.output.json {
        let json = serde_json::to_string_pretty(&Built { commit: COMMIT, results: &results });
        json.context("cannot format the results as JSON")? + "\n"
    } else {
        results.text().to_string()
    };
    let shown = arguments.output.show(&text, "reproduce", || results.page(&about()));
    if took.len() > SLOWEST {
        note(slowest(took).trim_end());
    }
    let verdict = if arguments.accept_known { held_to(known, &results) } else { passed(&results) };
    judged(shown, verdict)
}

/// Results with the commit that they are of.
#[derive(Serialize)]
struct Built<'a> {
    commit: &'static str,
    #[serde(flatten)]
    results: &'a Reproductions,
}

/// Returns what a reader of the page needs to judge the run.
fn about() -> Vec<String> {
    let words = std::env::args_os().map(|word| word.to_string_lossy().into_owned());
    vec![
        format!(
            "{}, {}",
            built_on(&entresol_media::machine::describe()),
            SystemClock::new().seconds().date(),
        ),
        words.collect::<Vec<_>>().join(" "),
    ]
}

/// Runs this program with arguments and returns what it prints, or its last sentence if it fails.
fn apart(arguments: &[&str]) -> Result<String, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let ran = Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if ran.status.success() {
        return Ok(text(&ran.stdout));
    }
    let said = text(&ran.stderr);
    let last = said.lines().last().unwrap_or_default();
    Err(format!("{last} ({})", ran.status))
}

/// Fails if any check is outside its tolerance.
fn passed(results: &Reproductions) -> anyhow::Result<()> {
    let failed = results.failed();
    if failed.is_empty() {
        return Ok(());
    }
    let failed = shortened(failed).join("\n  ");
    Err(BenchError::Failed(format!("outside their tolerances:\n  {failed}")).into())
}

/// Fails unless exactly the known failures are outside their tolerances.
fn held_to(known: &Known, results: &Reproductions) -> anyhow::Result<()> {
    let judgement = known.judge(results)?;
    for line in shortened(&judgement.notes) {
        note(line);
    }
    if judgement.problems.is_empty() {
        return Ok(());
    }
    let problems = shortened(judgement.problems).join("\n  ");
    Err(BenchError::Failed(format!("failures differ from the known ones:\n  {problems}")).into())
}

/// Lists the entries that took longest.
fn slowest(mut took: Vec<Took>) -> String {
    took.sort_by_key(|took| std::cmp::Reverse(took.time));
    let mut text = String::new();
    for Took { entry, time } in took.iter().take(SLOWEST) {
        let _ = writeln!(text, "{:>7.1} s  {entry}", time.as_secs_f64());
    }
    text
}

fn list(arguments: &Arguments) -> anyhow::Result<()> {
    let names = match arguments.names.is_empty() {
        true => everything().map(Entry::full_name).collect(),
        false => arguments.names.clone(),
    };
    let listed = List::of(&select(&names)?, arguments.names.is_empty());
    let text = if arguments.output.json { listed.json()? } else { listed.text() };
    Ok(print(text)?)
}

/// Tables and figures that can be run.
#[derive(Debug, Serialize)]
struct List {
    entries: Vec<Listed>,
    missing: Vec<Missing>,
}

/// Check of the papers that is missing here.
#[derive(Debug, Serialize)]
struct Missing {
    entry: &'static str,
    check: &'static str,
    reason: &'static str,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    source: &'static str,
    about: &'static str,
}

impl List {
    fn of(chosen: &[(String, Vec<&'static Entry>)], is_all: bool) -> List {
        let listed = |entry: &&Entry| Listed {
            name: entry.full_name(),
            source: entry.source,
            about: entry.about,
        };
        let entries: Vec<_> = chosen.iter().flat_map(|(_, parts)| parts).map(listed).collect();
        let is_chosen = |it: &Missing| is_all || entries.iter().any(|one| one.name == it.entry);
        let missing = Catalogue::built_in().missing();
        let missing = missing.map(|(entry, check, reason)| Missing { entry, check, reason });
        let missing = missing.filter(is_chosen).collect();
        List { entries, missing }
    }

    fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self)
            .map(|json| json + "\n")
            .context("cannot format the list as JSON")
    }

    fn text(&self) -> String {
        let mut table = Table::new("", &["name", "where", "what"]);
        for Listed { name, source, about } in &self.entries {
            table.row(vec![name.clone(), (*source).to_owned(), (*about).to_owned()]);
        }
        let mut text = table.to_string();
        for Missing { entry, check, reason } in &self.missing {
            let _ = writeln!(text, "missing: {entry}, {check}: {reason}");
        }
        text
    }
}
