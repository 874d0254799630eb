//! The first block of a medium that a cache uses: that it is a cache's, and which one's.

/// What the file of every cache begins with.
pub(crate) const MAGIC: [u8; 8] = *b"ENTCACHE";
/// Bytes of the label's block; the first segment starts behind it.
pub(crate) const LABEL_BYTES: u64 = 4096;
/// The layout of segments on a medium.
pub(crate) const FORMAT: u32 = 1;

/// Which cache the segments belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Label {
    pub(crate) format: u32,
    /// Drawn anew whenever a cache starts empty: segments of an earlier life are nobody's.
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
