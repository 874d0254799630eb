//! `entresol user`: the file of users, for a server that is started with `--auth-file`.

use std::io::{self, IsTerminal, Read};
use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Args, Subcommand};
use entresol_service::auth;

use crate::standard::{input, print};

/// Bytes of standard input that are read for a password.
const INPUT_BYTES_MAX: u64 = 4096;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Add a user, or change one; asks for the password, or reads it from standard input.
    Add {
        /// Name of the user.
        name: String,
        /// File of the users; it is made if there is none.
        #[arg(long, value_name = "FILE")]
        auth_file: PathBuf,
        /// Tenant that the user speaks to; may be left out if the server has only one.
        #[arg(long, value_name = "TENANT")]
        tenant: Option<String>,
    },
    /// Remove a user.
    Remove {
        /// Name of the user.
        name: String,
        /// File of the users.
        #[arg(long, value_name = "FILE")]
        auth_file: PathBuf,
    },
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Add { name, auth_file, tenant } => {
            let password = password(name)?;
            let is_new = auth::add(auth_file, name, password.as_bytes(), tenant.as_deref())?;
            let done = if is_new { "added" } else { "changed" };
            told(&format!("user '{name}' {done}"))
        }
        Command::Remove { name, auth_file } => {
            if !auth::remove(auth_file, name)? {
                bail!("{}: there is no user '{name}'", auth_file.display());
            }
            told(&format!("user '{name}' removed"))
        }
    }
}

fn told(what: &str) -> anyhow::Result<()> {
    Ok(print(format_args!("{what}; a running server needs a reload: kill -HUP PID\n"))?)
}

/// Reads the password: without an echo from a terminal, or the first line of standard input.
fn password(name: &str) -> anyhow::Result<String> {
    if io::stdin().is_terminal() {
        let ask = |prompt: String| rpassword::prompt_password(prompt);
        let first = ask(format!("Password of {name}: ")).context("cannot read the password")?;
        let second = ask("Once more: ".to_owned()).context("cannot read the password")?;
        if first != second {
            bail!("the two passwords differ; nothing is changed");
        }
        return Ok(first);
    }
    let mut text = String::new();
    let read = input()?.lock().take(INPUT_BYTES_MAX).read_to_string(&mut text);
    read.context("cannot read the password from standard input")?;
    let line = text.strip_suffix('\n').unwrap_or(&text);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.contains('\n') {
        bail!("standard input has several lines; write the password alone");
    }
    Ok(line.to_owned())
}
