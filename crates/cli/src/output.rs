//! Output of a command's results: tables or JSON on standard output, a page in a folder.

use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::report::{Page, Table};
use serde::Serialize;

/// Flags for the output of results.
#[derive(Debug, Args)]
pub(crate) struct Output {
    /// Print one JSON object instead of tables.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write an HTML page with drawings into this folder as well.
    #[arg(long, value_name = "FOLDER")]
    pub(crate) report: Option<PathBuf>,
}

/// Result with everything that is needed to repeat it.
#[derive(Serialize)]
struct Labelled<'a, T> {
    version: &'static str,
    machine: String,
    command: String,
    /// True if the user interrupted the measurement; the results are then incomplete.
    interrupted: bool,
    #[serde(flatten)]
    result: &'a T,
}

impl Output {
    /// Prints tables or JSON and writes the page if requested. Fails if the measurement was
    /// interrupted.
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
        let json = serde_json::to_string_pretty(&labelled).context("the result as JSON")?;
        let printed = self.print(&json, tables);
        // A failure of one output must not lose the other after a long measurement.
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
            return writeln!(out, "{json}").context("standard output");
        }
        for (position, table) in tables.iter().enumerate() {
            let gap = if position > 0 { "\n" } else { "" };
            write!(out, "{gap}{table}").context("standard output")?;
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
