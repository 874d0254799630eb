//! The first block of a medium that a cache uses: what it is and whose.

/// Bytes of the label; the first segment starts behind it.
pub(crate) const LABEL_BYTES: u64 = 4096;
