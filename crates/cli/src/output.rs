//! Output of a command's results: tables or JSON on standard output, a page in a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use entresol_bench::BenchError;
use entresol_bench::progress::Progress;
use entresol_bench::report::{Page, Table};
use serde::Serialize;

/// Form and destination of results.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Also write an HTML page with charts to this folder.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) report: Option<PathBuf>,
}

/// A result with everything that is needed to repeat it.
#[derive(Serialize)]
struct Labelled<'a, T> {
    version: &'static str,
    machine: String,
    command: String,
    /// True if the user interrupted the command, so that the result is partial.
    interrupted: bool,
    #[serde(flatten)]
    result: &'a T,
}

impl Output {
    /// Prints tables or JSON, and writes the page if one was requested. Fails if the measurement
    /// was interrupted.
    pub(crate) fn put(
        &self,
        (name, progress): (&str, &Progress),
        result: &impl Serialize,
        tables: &[Table],
        page: impl FnOnce() -> Page,
    ) -> anyhow::Result<()> {
        let command: Vec<String> = std::env::args().collect();
        let labelled = Labelled {
            version: env!("CARGO_PKG_VERSION"),
            machine: entresol_media::machine::describe(),
            command: command.join(" "),
            interrupted: progress.stop().is_asked(),
            result,
        };
        let json =
            serde_json::to_string_pretty(&labelled).context("cannot format the result as JSON")?;
        let printed = self.print(&json, tables);
        // A long measurement is not lost because one of the two outputs has no room.
        if let Some(folder) = &self.report {
            let mut page = page();
            page.note(&format!("entresol {} on {}", labelled.version, labelled.machine));
            page.note(&labelled.command);
            page.raw(&json);
            save(&page, folder, name)?;
        }
        printed?;
        match labelled.interrupted {
            true => Err(BenchError::Interrupted { has_results: true }.into()),
            false => Ok(()),
        }
    }

    fn print(&self, json: &str, tables: &[Table]) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            return writeln!(out, "{json}").context("cannot write to standard output");
        }
        for (position, table) in tables.iter().enumerate() {
            let gap = if position > 0 { "\n" } else { "" };
            write!(out, "{gap}{table}").context("cannot write to standard output")?;
        }
        Ok(())
    }
}

/// Writes the page and prints its path.
pub(crate) fn save(page: &Page, folder: &Path, name: &str) -> anyhow::Result<()> {
    let path = page.save(folder, name)?;
    writeln!(std::io::stderr(), "report: {}", path.display())?;
    Ok(())
}
