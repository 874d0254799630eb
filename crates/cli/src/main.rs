//! The `entresol` command: arguments in, library calls out.
#![forbid(unsafe_code)]

mod bench;
mod config;
mod form;
mod help;
mod interrupt;
mod output;
mod profile;
mod renamed;
mod reproduce;
mod serve;
mod store;
mod top;
mod torture;
mod ycsb;

use std::error::Error;
use std::fmt;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use entresol_bench::BenchError;

/// A multi-tenant cache for memcached's clients, on DRAM, persistent memory or a drive.
#[derive(Debug, Parser)]
#[command(name = "entresol", version, max_term_width = 100)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server; without --config, it serves one cache in DRAM on 127.0.0.1:11211.
    Serve(Box<serve::Arguments>),
    /// Show live how the tenants of a running server share its devices.
    Top(top::Arguments),
    /// Check a configuration without starting a server.
    Config(config::Arguments),
    /// Measure the cache, a server under load, an index, a store, or a trace.
    Bench(bench::Arguments),
    /// Measure a medium and save the cost table by which a server charges accesses.
    Profile(profile::Arguments),
    /// Create, read, write, check and copy a store in a directory.
    Store(store::Arguments),
    /// Reproduce the papers' tables and figures on device models, in virtual time.
    Reproduce(reproduce::Arguments),
    /// Test crash safety with thousands of simulated or real crashes.
    Torture(torture::Arguments),
}

/// Exit status of a check or a comparison that failed.
const FAILED: u8 = 1;
/// Exit status if the arguments or the configuration are wrong, or cannot be satisfied.
const WRONG: u8 = 2;
/// Exit status of a check that could not read everything.
const INCOMPLETE: u8 = 3;

/// Error of a check that found no damage, but could not read everything.
#[derive(Debug)]
pub(crate) struct Incomplete(pub(crate) String);

impl fmt::Display for Incomplete {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for Incomplete {}

/// Error of a command that the user interrupted, with the state of its work.
#[derive(Debug)]
pub(crate) struct Interrupted(pub(crate) &'static str);

impl fmt::Display for Interrupted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Error for Interrupted {}

fn main() -> ExitCode {
    let command = match parse() {
        Ok(arguments) => arguments.command,
        Err(error) => {
            complain(&error);
            return ExitCode::from(WRONG);
        }
    };
    if matches!(command, Command::Store(_) | Command::Bench(_) | Command::Torture(_)) {
        // A store has a file open for each run and segment, and says itself if there are too few.
        _ = entresol_media::machine::raise_descriptor_limit(u64::MAX);
    }
    let done = match command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Top(arguments) => top::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Bench(arguments) => bench::run(&arguments),
        Command::Profile(arguments) => profile::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Reproduce(arguments) => reproduce::run(&arguments),
        Command::Torture(arguments) => torture::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&error);
            ExitCode::from(status_of(&error))
        }
    }
}

/// Parses the arguments. For help and for most errors, clap prints the text and ends the process;
/// only renamed commands and flags are returned as errors.
fn parse() -> anyhow::Result<Arguments> {
    let given: Vec<_> = std::env::args_os().collect();
    let matches = help::dressed(Arguments::command(), "").try_get_matches_from(&given);
    let parsed = matches.and_then(|matches| Arguments::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let words: Vec<String> = given.iter().map(|it| it.to_string_lossy().into()).collect();
        match renamed::explained(&error, &words) {
            Some(text) => anyhow::anyhow!(text),
            None => error.exit(),
        }
    })
}

fn status_of(error: &anyhow::Error) -> u8 {
    match error {
        _ if error.is::<Incomplete>() => INCOMPLETE,
        _ if error.is::<Interrupted>() => interrupt::status(),
        _ => error.downcast_ref::<BenchError>().map_or(WRONG, status_of_bench),
    }
}

/// Returns 1 if a measurement or a check failed, 2 if the arguments are wrong.
fn status_of_bench(error: &BenchError) -> u8 {
    match error {
        BenchError::Interrupted { .. } => interrupt::status(),
        error if error.is_usage() => WRONG,
        _ => FAILED,
    }
}

/// Prints an error, each problem on a line of its own.
#[expect(clippy::print_stderr, reason = "this is where the command's errors are told")]
fn complain(error: &anyhow::Error) {
    for line in format!("{error:#}").lines() {
        eprintln!("entresol: {line}");
    }
}
