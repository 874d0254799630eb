//! Limits on the input of a connection.

/// Longest key of memcached's protocol in bytes; no [`Limits`] may raise it.
pub(crate) const KEY_BYTES_CEILING: usize = 250;

/// Limits of a request. Input beyond one of them is answered, never buffered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Longest command line, its line ending included; a longer one closes the connection.
    pub line_bytes_max: usize,
    /// Longest line of `get`, `gets`, `gat` and `gats` that is awaited whole. A longer one is
    /// worked through in portions of this length.
    pub multiget_line_bytes_max: usize,
    /// Longest key; values above 250 count as 250.
    pub key_bytes_max: usize,
    /// Longest value; a longer one is refused and its bytes are skipped.
    pub value_bytes_max: usize,
}

impl Default for Limits {
    /// memcached's own limits, and 8 KiB for a line of many keys.
    fn default() -> Self {
        Limits {
            line_bytes_max: 2048,
            multiget_line_bytes_max: 8 * 1024,
            key_bytes_max: KEY_BYTES_CEILING,
            value_bytes_max: 1024 * 1024,
        }
    }
}
