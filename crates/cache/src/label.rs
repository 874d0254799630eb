//! The label: first block of a medium, which says that a cache uses it, and which cache.

/// First bytes of every cache's file.
pub(crate) const MAGIC: [u8; 8] = *b"ENTCACHE";
/// Bytes of the label's block; the first segment follows.
pub(crate) const LABEL_BYTES: u64 = 4096;
/// Format number of segments on a medium, of snapshots and of maps. State of another format is not
/// used: the cache starts empty.
pub(crate) const FORMAT: u32 = 3;

/// Identity of the cache that the segments belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) format: u32,
    /// Random number drawn whenever a cache starts empty: segments of an earlier life are ignored.
    pub(crate) life: u64,
}

impl Label {
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn encode(&self) -> [u8; Label::BYTES] {
        let mut bytes = [0; Label::BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..16].copy_from_slice(&self.life.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.format.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; Label::BYTES]) -> Label {
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at + i]));
        Label { life: word(8), format: word(16) as u32 }
    }
}
