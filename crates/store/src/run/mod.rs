//! Sorted runs: immutable files with the versions of the keys of one `Kvs`, in the order of the
//! keys and, under one key, of descending sequence numbers.
//!
//! A run is written once, front to back ([`RunWriter`]), and read until it is removed ([`Run`],
//! [`Cursor`]). Its entries lie in blocks of about 4 KiB. A tree of index blocks, whose root is
//! held in memory, leads to them. A filter answers for most absent keys. Blocks are cached in
//! [`BlockCache`](crate::cache::block::BlockCache). `docs/format.md` has the format, byte for byte.
//!
//! **Atomicity.** The last page is written once everything before it is durable, and a run without
//! it does not open. Making the file's name durable in its directory is left to the caller.
//!
//! **Damage.** Every block has a checksum over its location and contents, which is verified
//! whenever it is read from disk. Verified bytes are still decoded without trust: no bytes cause a
//! panic.

use crate::types::{KvsId, Mark, RunNumber, SegmentNumber, Sequence};

mod verify;

pub(crate) use format::block::PAGE_BYTES;
pub(crate) use read::cursor::{Cursor, Next};
pub(crate) use read::reader::Run;
pub(crate) use write::writer::RunWriter;

use format::ends::Footer;

/// Most bytes of a key.
pub(crate) const KEY_BYTES_MAX: usize = 64 << 10;
/// Most bytes of a value that lies beside its key.
pub(crate) const INLINE_BYTES_MAX: usize = 16 << 20;
/// Most range deletes of one run, all of which each reader holds in memory.
pub(crate) const PREFIXES_GONE_MAX: usize = 16 << 10;
/// Most bytes of the prefixes of all of them.
pub(crate) const PREFIXES_GONE_BYTES_MAX: usize = 1 << 20;
/// Most bytes that options may ask for a block.
pub(crate) const BLOCK_BYTES_MAX: usize = 64 << 10;
/// Most bits of a filter for each key.
pub(crate) const FILTER_BITS_MAX: u32 = 32;
/// Number of keys that share a filter. It bounds the memory of a writer.
const GROUP_KEYS: usize = 1 << 18;
/// Memory of two writers, of a flush and of a compaction. Each has its buffer, the hashes of a
/// group of keys with their filter, and some blocks.
pub(crate) const WRITERS_BYTES: u64 = 8 << 20;
/// Most levels of index blocks. With the smallest blocks, four are enough for a billion keys.
const LEVELS_MAX: u8 = 16;

/// Options with which a run is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunOptions {
    /// Bytes of a block if its entries permit: whole pages of 4 KiB.
    pub block_bytes: usize,
    /// Bits of the filter for each key; 0 for no filter. With ten, one lookup in a hundred of an
    /// absent key reads a block.
    pub filter_bits_per_key: u32,
    /// Seed of the filter's hash, so that clients cannot choose keys that pass it.
    pub filter_seed: u64,
    /// Base of the stored sequence numbers. None may be less, and those a little above it take less
    /// room.
    pub sequence_base: Sequence,
    /// Bytes of one write to the file.
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

/// Returns the name of a run's file.
#[must_use]
pub(crate) fn file_name(number: RunNumber) -> String {
    format!("run-{:016x}", number.0)
}

/// Returns the number of the run whose file has this name.
#[must_use]
pub(crate) fn number_of(file_name: &str) -> Option<RunNumber> {
    let digits = file_name.strip_prefix("run-")?;
    let number = RunNumber(u64::from_str_radix(digits, 16).ok()?);
    (self::file_name(number) == file_name).then_some(number)
}

/// Deletion of all keys with a prefix, in versions up to a write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RangeDelete {
    /// Prefix of the keys.
    pub prefix: Box<[u8]>,
    /// Number of the write that deleted them.
    pub sequence: Sequence,
}

impl Ord for RangeDelete {
    /// Orders by prefix, and the latest first under one prefix.
    fn cmp(&self, other: &RangeDelete) -> std::cmp::Ordering {
        self.prefix.cmp(&other.prefix).then(other.sequence.cmp(&self.sequence))
    }
}

impl PartialOrd for RangeDelete {
    fn partial_cmp(&self, other: &RangeDelete) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// Bytes of records in a segment that a run's entries lead to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SegmentBytes {
    /// The segment.
    pub segment: SegmentNumber,
    /// Sum over the entries, headers and keys included.
    pub bytes: u64,
}

impl SegmentBytes {
    fn of((segment, bytes): (&u64, &u64)) -> SegmentBytes {
        SegmentBytes { segment: SegmentNumber(*segment), bytes: *bytes }
    }
}

/// Facts about a run that are known without reading its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunSummary {
    /// Number of the run.
    pub number: RunNumber,
    /// `Kvs` of the keys.
    pub kvs: KvsId,
    /// Number of versions.
    pub entries: u64,
    /// Number of different keys.
    pub keys: u64,
    /// Number of tombstones.
    pub gone: u64,
    /// Number of versions that expire.
    pub expiring: u64,
    /// Bytes of all values that lie beside their keys.
    pub inline_bytes: u64,
    /// Least sequence number of an entry or a range delete.
    pub sequence_least: Sequence,
    /// Greatest sequence number of an entry or a range delete.
    pub sequence_greatest: Sequence,
    /// Least key; empty if there are no entries.
    pub first_key: Box<[u8]>,
    /// Greatest key.
    pub last_key: Box<[u8]>,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Bytes that entries lead to, by segment in ascending order.
    pub live: Vec<SegmentBytes>,
    /// Identity of the contents.
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
