//! A moment on both clocks.

use entresol_base::{Nanos, Seconds};

/// A moment, on both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// Fine clock, for intervals.
    pub nanos: Nanos,
    /// Coarse clock, for expiry.
    pub seconds: Seconds,
}
