//! What can go wrong in a measurement, told apart by who has to act.

use std::path::PathBuf;

/// Why a measurement did not happen, or did not pass. What the system said is the error's source,
/// so it is seen where the whole chain is printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{path}", path = path.display())]
    File {
        /// Which file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// A file is not what its format says.
    #[error("{path}: {problem}", path = path.display())]
    Format {
        /// Which file.
        path: PathBuf,
        /// Where in it, what was found and what was wanted.
        problem: String,
    },
    /// A server could not be reached or went away.
    #[error("server {address}")]
    Server {
        /// The address as it was given.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A server answered something that no such request is answered with.
    #[error("server {address}: unexpected reply: {reply}")]
    Reply {
        /// The address as it was given.
        address: String,
        /// The beginning of what it sent.
        reply: String,
    },
    /// A value came back other than it went in.
    #[error("wrong value for key {key}: {problem}")]
    WrongValue {
        /// Whose value.
        key: String,
        /// How it differs.
        problem: String,
    },
    /// Somebody asked for an end.
    #[error("{}", interrupted(*has_results))]
    Interrupted {
        /// Whether there was something to show.
        has_results: bool,
    },
    /// A check failed.
    #[error("{0}")]
    Failed(String),
    /// A cache could not be opened or refused what it must not refuse.
    #[error("cache: {0}")]
    Cache(String),
    /// A store refused or failed.
    #[error("{engine}: {what}")]
    Engine {
        /// Which one.
        engine: &'static str,
        /// What it said.
        what: String,
    },
    /// The system did not give a measurement.
    #[error("{what}")]
    System {
        /// What was asked.
        what: &'static str,
        /// What the system said.
        source: std::io::Error,
    },
}

fn interrupted(has_results: bool) -> &'static str {
    match has_results {
        true => "interrupted; the results are partial",
        false => "interrupted before there were any results",
    }
}

impl BenchError {
    /// Whether the arguments are to blame (exit status 2), not what was measured (1).
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, BenchError::Usage(_) | BenchError::File { .. } | BenchError::Format { .. })
    }
}
