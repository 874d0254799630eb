//! Checks of the repository's own rules: `cargo xtask tidy`.
//!
//! A developers' tool outside the drawing: nothing depends on it, so it may read files, run
//! programs and print.
#![forbid(unsafe_code)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command's output is its product")]

mod circles;
mod comments;
mod documents;
mod floors;
mod folders;
mod impls;
mod licences;
mod map;
mod metadata;
mod mutation;
mod problem;
mod reference;
mod repository;
mod sizes;
mod source;
mod tidy;
mod unsafety;
mod words;

use std::process::ExitCode;

const USAGE: &str = "usage: cargo xtask tidy      check the repository's own rules";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["tidy"] => run_tidy(),
        ["help" | "--help" | "-h"] => {
            println!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("{USAGE}");
            ExitCode::from(2)
        }
    }
}

fn run_tidy() -> ExitCode {
    match tidy::run() {
        Ok((_, problems)) if !problems.is_empty() => {
            for problem in &problems {
                eprintln!("{problem}");
            }
            eprintln!("tidy: {} to mend", problems.len());
            ExitCode::FAILURE
        }
        Ok((files, _)) => {
            println!("tidy: {files} files, nothing to mend");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("tidy could not run: {error}");
            ExitCode::FAILURE
        }
    }
}
