//! Rethinking Index Design Based on PM Device: its tables and figures.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[];
