//! NyxCache: its tables and figures.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[];
