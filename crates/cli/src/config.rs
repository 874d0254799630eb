//! `entresol config`: look at a configuration without running it.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use crate::serve::{machine, read_file};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Say what is wrong with a configuration, and where.
    Check {
        /// The configuration.
        file: PathBuf,
    },
}

#[expect(clippy::print_stdout, reason = "the answer to the command")]
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let Command::Check { file } = &arguments.command;
    let text = read_file(file)?;
    let name = file.to_string_lossy();
    let settings = entresol_server::config::parse_with(&name, &text, &machine(), |_| {})?;
    let tenants = settings.tenants.len();
    let several = if tenants == 1 { "" } else { "s" };
    let policy = settings.sharing.policy.name();
    println!("{}: right; {tenants} tenant{several}, sharing policy {policy}", file.display());
    Ok(())
}
