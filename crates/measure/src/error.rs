//! Errors of a measurement, one variant for each party that has to act.

use std::path::PathBuf;

/// Reason why a measurement did not take place or did not pass. The operating system's own error is
/// the source of a variant; it appears where the whole chain of causes is printed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BenchError {
    /// The arguments do not fit together.
    #[error("{0}")]
    Usage(String),
    /// A file could not be read or written.
    #[error("{path}", path = path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// The content of a file does not match its format.
    #[error("{path}: {problem}", path = path.display())]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Position in the file, with the text found and the text expected.
        problem: String,
    },
    /// A server could not be reached or closed the connection.
    #[error("server {address}")]
    Server {
        /// Address as the caller gave it.
        address: String,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// A server sent a reply that does not belong to the request.
    #[error("server {address}: unexpected reply: {reply}")]
    Reply {
        /// Address as the caller gave it.
        address: String,
        /// Beginning of the reply.
        reply: String,
    },
    /// The value read differs from the value written.
    #[error("wrong value for key {key}: {problem}")]
    WrongValue {
        /// Key of the value.
        key: String,
        /// Difference between the two values.
        problem: String,
    },
    /// The user interrupted the measurement.
    #[error("{}", interrupted(*has_results))]
    Interrupted {
        /// True if there were results to show.
        has_results: bool,
    },
    /// A check failed.
    #[error("{0}")]
    Failed(String),
    /// A cache could not be opened or refused an operation that it must accept.
    #[error("cache: {0}")]
    Cache(String),
    /// A store refused an operation or failed.
    #[error("{engine}: {what}")]
    Engine {
        /// Name of the engine.
        engine: &'static str,
        /// Message of the engine.
        what: String,
    },
    /// The operating system did not supply a measurement.
    #[error("{what}")]
    System {
        /// Name of the measurement.
        what: &'static str,
        /// Error of the operating system.
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
    /// Returns true if the arguments are to blame (exit status 2) rather than the thing measured
    /// (exit status 1).
    #[must_use]
    pub fn is_usage(&self) -> bool {
        use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        match self {
            BenchError::Usage(_) | BenchError::Format { .. } => true,
            // Where there is no room, the arguments are right.
            BenchError::File { source, .. } => {
                !matches!(source.kind(), FileTooLarge | QuotaExceeded | StorageFull)
            }
            _ => false,
        }
    }
}
