//! `entresol config`: examines a configuration without running it.

use std::path::{Path, PathBuf};

use clap::{Args, Subcommand};
use entresol_server::config::{ConfigError, Problem, Settings};
use serde_json::{Value, json};

use crate::serve::{machine, read_file};

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

#[expect(clippy::print_stdout, reason = "the answer to the command")]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Command::Check { file, json } = &arguments.command;
    let text = read_file(file)?;
    let name = file.to_string_lossy();
    let checked = entresol_server::config::parse_with(&name, &text, &machine(), |_| {});
    if *json {
        println!("{:#}", as_json(file, &checked));
        return Ok(checked.map(drop)?);
    }
    let settings = checked?;
    let tenants = settings.tenants.len();
    let several = if tenants == 1 { "" } else { "s" };
    let policy = settings.sharing.policy.name();
    println!("{}: right; {tenants} tenant{several}, sharing policy {policy}", file.display());
    Ok(())
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
        "problems": problems.iter().map(problem).collect::<Vec<_>>(),
        "pass": settings.is_some(),
    })
}
