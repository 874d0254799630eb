//! `entresol reproduce`: the papers' tables and figures, theirs beside ours.

use std::io::Write;

use anyhow::Context;
use clap::Args;
use entresol_bench::BenchError;
use entresol_bench::progress::Progress;
use entresol_bench::report::Table;
use entresol_bench::reproduce::{Settings, entries, reproduce, select};

use crate::output::{Output, save};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Which: 000-table3, 002-fig1, 002-fig1a, or 004 for all of a paper; none for everything.
    names: Vec<String>,
    /// Name them all and what they show, and run nothing.
    #[arg(long)]
    list: bool,
    /// Seed of everything that is drawn.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.list {
        return write!(out, "{}", list()).context("standard output");
    }
    let chosen = select(&arguments.names)?;
    let steps = chosen.iter().map(|(_, parts)| parts.len() as u64).sum();
    let progress = Progress::new(steps, "reproduce");
    let results = reproduce(&chosen, &Settings { seed: arguments.seed }, &progress);
    progress.finish();
    if let Some(folder) = &arguments.output.report {
        save(&results.page(), folder, "reproduce")?;
    }
    if arguments.output.json {
        let json = serde_json::to_string_pretty(&results).context("the results as JSON")?;
        writeln!(out, "{json}").context("standard output")?;
    } else {
        write!(out, "{}", results.text()).context("standard output")?;
    }
    let failed = results.failed();
    if failed.is_empty() {
        return Ok(());
    }
    Err(BenchError::Failed(format!("outside its tolerance: {}", failed.join(", "))).into())
}

fn list() -> Table {
    let mut table = Table::new("", &["name", "where", "what"]);
    for entry in entries() {
        table.row(vec![entry.full_name(), entry.source.to_owned(), entry.about.to_owned()]);
    }
    table
}
