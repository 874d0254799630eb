//! `entresol reproduce`: runs the papers' tables and figures, theirs beside ours.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use entresol_bench::BenchError;
use entresol_bench::progress::Progress;
use entresol_bench::report::Table;
use entresol_bench::reproduce::{Entry, Settings, everything, reproduce, select};
use serde::Serialize;

use crate::interrupt;
use crate::output::{Output, save};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which: 000-table3, 002-fig1, 002-fig1a, or 004 for all of a paper; none for everything.
    /// What is measured in real time, 002-fig5a, runs only if it is named.
    names: Vec<String>,
    /// Name them, or all, and what they show, and run nothing.
    #[arg(long)]
    list: bool,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Take as many keys as the scenario is made for where fewer are taken otherwise: 10 million in
    /// 000-fig17, 5 million in 000-fig19. They take a quarter of an hour then.
    #[arg(long)]
    full_scale: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.list {
        let names = match arguments.names.is_empty() {
            true => everything().map(Entry::full_name).collect(),
            false => arguments.names.clone(),
        };
        let chosen = select(&names)?;
        let listed = List::of(&chosen);
        let text = if arguments.output.json { listed.json()? } else { listed.table().to_string() };
        return write!(out, "{text}").context("standard output");
    }
    let chosen = select(&arguments.names)?;
    let steps = chosen.iter().map(|(_, parts)| parts.len() as u64).sum();
    let progress = Progress::new(steps, "reproduce");
    interrupt::announce(&progress, "no results were printed")?;
    let settings = Settings { seed: arguments.seed, full_scale: arguments.full_scale };
    let results = reproduce(&chosen, &settings, &progress);
    progress.finish();
    if arguments.output.json {
        let json = serde_json::to_string_pretty(&results).context("the results as JSON")?;
        writeln!(out, "{json}").context("standard output")?;
    } else {
        write!(out, "{}", results.text()).context("standard output")?;
    }
    if let Some(folder) = &arguments.output.report {
        save(&results.page(), folder, "reproduce")?;
    }
    let failed = results.failed();
    if failed.is_empty() {
        return Ok(());
    }
    Err(BenchError::Failed(format!("outside its tolerance: {}", failed.join(", "))).into())
}

/// Tables and figures that can be run.
#[derive(Debug, Serialize)]
struct List {
    entries: Vec<Listed>,
}

#[derive(Debug, Serialize)]
struct Listed {
    name: String,
    source: &'static str,
    about: &'static str,
}

impl List {
    fn of(chosen: &[(String, Vec<&'static Entry>)]) -> List {
        let listed = |entry: &&Entry| Listed {
            name: entry.full_name(),
            source: entry.source,
            about: entry.about,
        };
        List { entries: chosen.iter().flat_map(|(_, parts)| parts).map(listed).collect() }
    }

    fn json(&self) -> anyhow::Result<String> {
        serde_json::to_string_pretty(self).map(|json| json + "\n").context("the list as JSON")
    }

    fn table(&self) -> Table {
        let mut table = Table::new("", &["name", "where", "what"]);
        for Listed { name, source, about } in &self.entries {
            table.row(vec![name.clone(), (*source).to_owned(), (*about).to_owned()]);
        }
        table
    }
}
