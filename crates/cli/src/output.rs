//! Output of a command's results: tables or JSON on standard output, a page in a folder.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::report::{Page, Table};
use serde::Serialize;

use crate::standard::{judged, note, print, put_message};
use crate::written::{check_folder, check_writable, is_within};

/// Commit of the source that the program was built from, `with changes` if the source differed from
/// it, or `unknown` outside a repository and in programs that are no part of it.
pub(crate) const COMMIT: &str = match option_env!("ENTRESOL_COMMIT") {
    Some(commit) => commit,
    None => "unknown",
};

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
    commit: &'static str,
    machine: String,
    command: String,
    /// True if the user interrupted the measurement; the results are then incomplete.
    interrupted: bool,
    #[serde(flatten)]
    result: &'a T,
}

impl Output {
    /// Fails if the page cannot be written, before anything is measured for it, or if it would lie
    /// in a directory that the measurement makes. Nothing is made yet.
    pub(crate) fn check(&self, name: &str, made: &[&Path]) -> anyhow::Result<()> {
        let Some(folder) = &self.report else { return Ok(()) };
        let path = folder.join(format!("{name}.html"));
        let problem = || format!("cannot write the report {}", path.display());
        check_folder(folder).with_context(problem)?;
        if let Some(made) = made.iter().find(|made| is_within(folder, made)) {
            let text =
                format!("{} is made by the measurement: give another folder", made.display());
            return Err(BenchError::Usage(text)).with_context(problem);
        }
        check_writable(&path).with_context(problem)
    }

    /// Prints tables or JSON and writes the page if requested. Fails if the measurement was
    /// interrupted.
    pub(crate) fn put(
        &self,
        (name, progress): (&str, &Progress),
        result: &impl Serialize,
        tables: &[Table],
        page: impl FnOnce() -> Page,
    ) -> anyhow::Result<()> {
        let command: Vec<String> =
            std::env::args_os().map(|word| word.to_string_lossy().into()).collect();
        let labelled = Labelled {
            version: env!("CARGO_PKG_VERSION"),
            commit: COMMIT,
            machine: entresol_media::machine::describe(),
            command: command.join(" "),
            interrupted: progress.stop().is_asked(),
            result,
        };
        let json =
            serde_json::to_string_pretty(&labelled).context("cannot format the result as JSON")?;
        let tables: Vec<String> = tables.iter().map(Table::to_string).collect();
        let text = if self.json { format!("{json}\n") } else { tables.join("\n") };
        self.show(&text, name, || {
            let mut page = page();
            page.note(&built_on(&labelled.machine));
            page.note(&labelled.command);
            page.raw(&json);
            page
        })?;
        match labelled.interrupted {
            true => Err(BenchError::Interrupted { has_results: true }.into()),
            false => Ok(()),
        }
    }

    /// Prints results and writes the page if requested. A failure of one does not lose the other,
    /// and if nothing else has the results, they follow on standard error.
    pub(crate) fn show(
        &self,
        text: &str,
        name: &str,
        page: impl FnOnce() -> Page,
    ) -> anyhow::Result<()> {
        let printed = print(text);
        let saved = self.report.as_ref().map(|folder| save(&page(), folder, name));
        let is_saved = matches!(saved, Some(Ok(())));
        if !is_saved && printed.as_ref().is_err_and(|error| !error.is_unread()) {
            put_message(text);
        }
        judged(printed.map_err(Into::into), saved.unwrap_or(Ok(())))
    }
}

/// Returns the version, the commit and the machine in words.
pub(crate) fn built_on(machine: &str) -> String {
    format!("entresol {}, commit {COMMIT}, on {machine}", env!("CARGO_PKG_VERSION"))
}

/// Writes the page and prints its path.
fn save(page: &Page, folder: &Path, name: &str) -> anyhow::Result<()> {
    let path = page.save(folder, name)?;
    note(format_args!("report: {}", path.display()));
    Ok(())
}
