//! The `entresol` command: parses arguments and calls the libraries.
#![forbid(unsafe_code)]

mod bench;
mod config;
mod form;
mod help;
mod interrupt;
mod logging;
mod output;
mod profile;
mod renamed;
mod reproduce;
mod serve;
mod shell;
mod standard;
mod store;
mod top;
mod torture;
mod trace;
mod user;
mod written;
mod ycsb;

use std::error::Error;
use std::fmt;
use std::io::IsTerminal;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use entresol_measure::BenchError;

use standard::{OutputError, complain};

/// A multi-tenant cache on the media of your choice, for memcached's clients.
#[derive(Debug, Parser)]
#[command(name = "entresol", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server; without --config, one cache in DRAM on 127.0.0.1:11211.
    Serve(Box<serve::Arguments>),
    /// Show live in the terminal how a running server's tenants share.
    Top(top::Arguments),
    /// Add and remove the users of a server whose clients must authenticate.
    User(user::Arguments),
    /// Examine a configuration without running it.
    Config(config::Arguments),
    /// Measure the cache or an index in process, a server under load, a trace, or a store.
    Bench(bench::Arguments),
    /// Measure a medium: figures, advice, and the cost table that a server charges by.
    Profile(profile::Arguments),
    /// Read and write a store in a directory.
    Store(store::Arguments),
    /// Run the papers' tables and figures on models, in virtual time: theirs beside ours.
    Reproduce(reproduce::Arguments),
    /// Try crashes by the thousand in seeded histories; a failure is reported with its command.
    Torture(torture::Arguments),
}

/// Exit status of a failed check or comparison.
const FAILED: u8 = 1;
/// Exit status of wrong arguments, of a wrong configuration, and of requests that cannot be met.
const WRONG: u8 = 2;
/// Exit status of a check that could not look at everything.
const INCOMPLETE: u8 = 3;
/// Exit status of a command whose output is read no longer, which a shell shows for SIGPIPE.
const UNREAD: u8 = 141;

/// Error of a check that found nothing wrong, but could not look at everything.
#[derive(Debug)]
pub(crate) struct Incomplete(pub(crate) String);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Incomplete {}

/// Error of an interruption, with the state in which it left the work.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) &'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Interrupted {}

fn main() -> ExitCode {
    // If this fails, the limit ends the process, as it would without it.
    let _ = interrupt::outlive_file_size_limit();
    match parse().and_then(|parsed| parsed.map_or(Ok(()), |it| run(it.command))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(status_of(&error))
        }
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    if matches!(command, Command::Store(_) | Command::Bench(_) | Command::Torture(_)) {
        // A store opens a file for each run and segment, and reports a limit that is too low.
        _ = entresol_media::machine::raise_descriptor_limit(u64::MAX);
    }
    match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::User(arguments) => user::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
    }
}

/// Parses the arguments. Returns `None` if they asked for help, which is printed here. Clap prints
/// its own errors and exits; a renamed flag is reported by the caller.
fn parse() -> anyhow::Result<Option<Arguments>> {
    let given: Vec<_> = std::env::args_os().collect();
    let matches = help::dressed(Arguments::command(), "").try_get_matches_from(&given);
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    let error = match parsed {
        Ok(arguments) => return Ok(Some(arguments)),
        Err(error) => error,
    };
    if let Some(word) = given.iter().find(|it| it.to_str().is_none())
        && error.kind() == ErrorKind::InvalidUtf8
    {
        let shown = word.display();
        return Err(anyhow::anyhow!("the argument '{shown}' is not UTF-8, as it must be here"));
    }
    let words: Vec<String> = given.iter().map(|it| it.to_string_lossy().into()).collect();
    if let Some(text) = renamed::explained(&error, &words) {
        return Err(anyhow::anyhow!(text));
    }
    if error.use_stderr() || std::io::stdout().is_terminal() {
        // Colours are for clap to decide. It drops what standard error does not take.
        error.exit();
    }
    standard::print(error.render())?;
    Ok(None)
}

fn status_of(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<OutputError>() {
        return if error.is_unread() { UNREAD } else { FAILED };
    }
    match error {
        _ if error.is::<Incomplete>() => INCOMPLETE,
        _ if error.is::<Interrupted>() => interrupt::status(),
        _ => error.downcast_ref::<BenchError>().map_or(WRONG, status_of_bench),
    }
}

/// Returns 1 if a measurement or a check failed, 2 if the arguments are to blame.
fn status_of_bench(error: &BenchError) -> u8 {
    match error {
        BenchError::Interrupted { .. } => interrupt::status(),
        error if error.is_usage() => WRONG,
        _ => FAILED,
    }
}
