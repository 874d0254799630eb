//! Sorted runs: immutable files with the versions of one `Kvs`'s keys, in order of the key and,
//! under one key, of descending sequence.
//!
//! A run is written once, front to back ([`RunWriter`]), and read until it is removed ([`Run`],
//! [`Cursor`]). Its entries lie in blocks of about 4 KiB, found through a tree of index blocks
//! whose root is held in memory; a filter answers for most absent keys; blocks are cached in
//! [`BlockCache`](crate::cache::block::BlockCache). `docs/format.md` has the format, byte for byte.
//!
//! **Whole or not at all.** The last page is written when everything before it is durable, and
//! nothing opens without it. That the directory knows the file's name is for whoever had the run
//! written to make durable.
//!
//! **Damage.** Every block bears a checksum over where it lies and what is in it, which is checked
//! whenever it is read from the disk. What was read and passed is decoded without trust all the
//! same: no bytes make it panic.

use crate::types::{KvsId, Mark, PAGE_BYTES, RunNumber, SegmentNumber, Sequence};

mod verify;

pub(crate) use read::cursor::{Cursor, Next};
pub(crate) use read::reader::Run;
pub(crate) use write::writer::RunWriter;

use format::ends::Footer;

/// The most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;
/// The most bytes of a value that lies beside its key.
pub(crate) const INLINE_BYTES_MAX: usize = 16 << 20;
/// The most bytes in all of them.
pub(crate) const PREFIXES_GONE_BYTES_MAX: usize = 1 << 20;
/// The most bytes that blocks can be wanted to have.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;
/// The most bits of a filter for each key.
pub(crate) const FILTER_BITS_MAX: u32 = 32;
/// How many keys have a filter together. It bounds what a writer holds in memory.
const GROUP_KEYS: usize = 1 << 18;
/// The most levels of index blocks: with the smallest blocks four are enough for a billion keys.
const LEVELS_MAX: u8 = 16;

/// How a run is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunOptions {
    /// How many bytes a block has, if its entries permit: whole pages of 4 KiB.
    pub block_bytes: usize,
    /// How many bits the filter has for each key; 0 for none. With ten, one absent key in a
    /// hundred is not known to be absent.
    pub filter_bits_per_key: u32,
    /// What the filter's hash begins with, so that nobody can choose keys that pass it.
    pub filter_seed: u64,
    /// What sequences are counted from: none may be less, and those little above take less room.
    pub sequence_base: Sequence,
    /// How many bytes are written at once.
    pub write_bytes: usize,
}

impl Default for RunOptions {
    fn default() -> RunOptions {
        RunOptions {
            block_bytes: 4 << 10,
            filter_bits_per_key: 10,
            filter_seed: 0,
            sequence_base: Sequence::default(),
            write_bytes: 512 << 10,
        }
    }
}

/// That all keys that begin so are gone, in versions up to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    /// What the keys begin with.
    pub prefix: Box<[u8]>,
    /// The write that removed them.
    pub sequence: Sequence,
}

impl Ord for RangeDelete {
    /// By prefix; of one prefix, the latest first.
    fn cmp(&self, other: &RangeDelete) -> std::cmp::Ordering {
        self.prefix.cmp(&other.prefix).then(other.sequence.cmp(&self.sequence))
    }
}

impl PartialOrd for RangeDelete {
    fn partial_cmp(&self, other: &RangeDelete) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// How many bytes of records in a segment a run's entries point to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentBytes {
    /// The segment.
    pub segment: SegmentNumber,
    /// The sum over the entries, headers and keys included.
    pub bytes: u64,
}

impl SegmentBytes {
    fn of((segment, bytes): (&u64, &u64)) -> SegmentBytes {
        SegmentBytes { segment: SegmentNumber(*segment), bytes: *bytes }
    }
}

/// What is known of a run without reading its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunSummary {
    /// Its number.
    pub number: RunNumber,
    /// Whose keys it has.
    pub kvs: KvsId,
    /// Versions of keys.
    pub entries: u64,
    /// Different keys.
    pub keys: u64,
    /// Versions that say that their key is gone.
    pub gone: u64,
    /// Versions that end some day.
    pub expiring: u64,
    /// The bytes of all values that lie beside their keys.
    pub inline_bytes: u64,
    /// The least sequence of an entry or of a prefix that is gone.
    pub sequence_least: Sequence,
    /// The greatest of them.
    pub sequence_greatest: Sequence,
    /// The least key; empty if there are no entries.
    pub first_key: Box<[u8]>,
    /// The greatest key.
    pub last_key: Box<[u8]>,
    /// The bytes of the file.
    pub file_bytes: u64,
    /// What entries point to, by segment in ascending order.
    pub live: Vec<SegmentBytes>,
    /// What tells it from others of its number.
    pub mark: Mark,
}

impl RunSummary {
    fn new(
        footer: &Footer,
        first_key: Box<[u8]>,
        last_key: Box<[u8]>,
        live: Vec<SegmentBytes>,
    ) -> RunSummary {
        RunSummary {
            number: footer.number,
            kvs: footer.kvs,
            entries: footer.entries,
            keys: footer.keys,
            gone: footer.gone,
            expiring: footer.expiring,
            inline_bytes: footer.inline_bytes,
            sequence_least: footer.least,
            sequence_greatest: footer.greatest,
            first_key,
            last_key,
            file_bytes: footer.pages.saturating_mul(PAGE_BYTES as u64),
            live,
            mark: footer.mark,
        }
    }
}

pub(crate) mod format;
pub(crate) mod read;
#[cfg(test)]
mod tests;
pub(crate) mod write;
