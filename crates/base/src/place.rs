//! Places in the source code, by which crash points and mutation sites are known.

use std::panic::Location;

/// A place in the source code: that of a call, if its function tracks its caller.
pub type Place = &'static Location<'static>;
