//! Accesses to a medium: reads and writes.

/// Kind of access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Access {
    /// Moves bytes from the medium.
    Read = 0,
    /// Moves bytes to the medium.
    Write = 1,
}
