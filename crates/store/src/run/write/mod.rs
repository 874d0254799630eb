//! Writers of runs.

pub(crate) mod output;
pub(crate) mod writer;
