//! A broken rule: its place, the problem, and the fix.

use std::fmt;

/// A broken rule, printed as `path:line: what; fix`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Problem {
    pub(crate) path: String,
    /// Line, counted from 1; 0 for the whole file.
    pub(crate) line: usize,
    pub(crate) what: String,
    pub(crate) fix: String,
}

impl Problem {
    pub(crate) fn new(
        path: &str,
        line: usize,
        what: impl Into<String>,
        fix: impl Into<String>,
    ) -> Problem {
        Problem { path: path.to_owned(), line, what: what.into(), fix: fix.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}; {}", self.path, self.line.max(1), self.what, self.fix)
    }
}
