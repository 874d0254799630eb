//! `entresol config`: examines a configuration without running it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use entresol_service::config::{ConfigError, Problem, Settings};
use serde_json::{Value, json};

use crate::serve::{machine, read_file};
use crate::standard::{Out, judged, print};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Report the errors of a configuration and their positions.
    Check {
        /// File of the configuration.
        file: PathBuf,
        /// Print one JSON object, with every problem.
        #[arg(long)]
        json: bool,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Command::Check { file, json } = &arguments.command;
    let text = read_file(file)?;
    let name = file.to_string_lossy();
    let checked = entresol_service::config::parse_with(&name, &text, &machine(), |_| {});
    if *json {
        let printed = print(format_args!("{:#}\n", as_json(file, &checked)));
        return judged(printed.map_err(Into::into), checked.map(drop).map_err(Into::into));
    }
    let settings = checked?;
    let tenants = settings.tenants.len();
    let several = if tenants == 1 { "" } else { "s" };
    let policy = settings.sharing.policy.name();
    let file = file.display();
    let mut out = Out::default();
    for doubt in settings.doubts(&machine()) {
        out.put(format_args!("{file}: warning: {doubt}\n"))?;
    }
    out.put(format_args!(
        "{file}: no mistakes; {tenants} tenant{several}, sharing policy {policy}\n"
    ))?;
    Ok(out.flush()?)
}

fn as_json(file: &Path, checked: &Result<Settings, ConfigError>) -> Value {
    let (settings, problems) = match checked {
        Ok(settings) => (Some(settings), [].as_slice()),
        Err(error) => (None, error.problems.as_slice()),
    };
    let problem = |it: &Problem| json!({ "place": it.place, "message": it.message });
    json!({
        "file": file.display().to_string(),
        "tenants": settings.map(|it| it.tenants.len()),
        "policy": settings.map(|it| it.sharing.policy.name()),
        "warnings": settings.map(|it| it.doubts(&machine())).unwrap_or_default(),
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        "pass": settings.is_some(),
    })
}
