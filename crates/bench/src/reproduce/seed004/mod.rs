//! Platform storage performance with 3D XPoint: its tables and figures.

use super::Entry;

pub(super) const ENTRIES: &[Entry] = &[];
