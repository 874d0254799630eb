//! Readers of runs: point lookups, cursors, scans.

pub(crate) mod ahead;
pub(crate) mod cursor;
pub(crate) mod preload;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod walker;
