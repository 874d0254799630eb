//! Durable part of a pool: the header, the roots, and a word for each chunk.
//!
//! Offset 0 has the magic, then the format word, which makes it a pool (format and checksum), then
//! the chunks' size and number; the second line has the number of openings, the third the roots;
//! then comes the table of chunks. The header takes the first chunks for itself.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

use entresol_base::{ByteSize, checksum};
use entresol_media::Region;

use super::{MAGIC, PoolOptions, ROOTS};
use crate::IndexError;

const FORMAT: u32 = 1;
const FORMAT_AT: u64 = 8;
const CHUNK_BYTES_AT: u64 = 16;
const CHUNKS_AT: u64 = 24;
const OPENINGS_AT: u64 = 64;
const ROOTS_AT: u64 = 128;
const TABLE_AT: u64 = ROOTS_AT + 8 * ROOTS as u64;
const CHUNK_BYTES: std::ops::RangeInclusive<u64> = 4096..=1 << 30;

/// Division of a pool's region.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub(super) chunk_bytes: u64,
    pub(super) chunks: u32,
    /// Offset at which blocks begin.
    pub(super) begin: u64,
    pub(super) end: u64,
}

/// Durable use of a chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkWord {
    /// Unused.
    Free,
    /// Blocks of one class.
    Class(usize),
    /// First of this many chunks that are one block.
    Run(u32),
}

const RUN: u64 = 1 << 63;

impl ChunkWord {
    const fn encode(self) -> u64 {
        match self {
            ChunkWord::Free => 0,
            ChunkWord::Class(class) => class as u64 + 1,
            ChunkWord::Run(chunks) => RUN | chunks as u64,
        }
    }

    fn decode(word: u64) -> ChunkWord {
        match word {
            0 => ChunkWord::Free,
            _ if word & RUN != 0 => ChunkWord::Run((word & !RUN).min(u32::MAX.into()) as u32),
            _ => ChunkWord::Class((word - 1) as usize),
        }
    }
}

impl Layout {
    fn new(chunk_bytes: u64, chunks: u64) -> Option<Layout> {
        let chunks = u32::try_from(chunks).ok()?;
        let header = TABLE_AT + 8 * u64::from(chunks);
        let begin = header.next_multiple_of(chunk_bytes);
        let end = chunk_bytes.checked_mul(chunks.into())?;
        (begin < end).then_some(Layout { chunk_bytes, chunks, begin, end })
    }

    /// Returns true if the region has no format word: it is too small for one, or the word is 0.
    pub(super) fn is_absent<R: Region>(region: &R) -> bool {
        region.len() < TABLE_AT || region.load_u64(FORMAT_AT, Acquire) == 0
    }

    /// Makes an empty pool, which becomes durable when it is opened.
    pub(super) fn format<R: Region>(region: &R, options: PoolOptions) -> Result<(), IndexError> {
        let PoolOptions { chunk_bytes } = options;
        if !chunk_bytes.is_power_of_two() || !CHUNK_BYTES.contains(&chunk_bytes) {
            let (least, most) = (ByteSize(*CHUNK_BYTES.start()), ByteSize(*CHUNK_BYTES.end()));
            let what = format!(
                "chunks of {chunk_bytes} bytes are not supported: use a power of two from \
                 {least} to {most}"
            );
            return Err(IndexError::Options { what });
        }
        let chunks = region.len() / chunk_bytes;
        let Some(layout) = Layout::new(chunk_bytes, chunks) else {
            let (region, chunk) = (ByteSize(region.len()), ByteSize(chunk_bytes));
            let what =
                format!("a region of {region} holds no chunk of {chunk}: use smaller chunks");
            return Err(IndexError::Options { what });
        };
        // An opening meanwhile finds no pool.
        region.store_u64(FORMAT_AT, 0, Release);
        region.persist(FORMAT_AT, 8);
        region.zero(OPENINGS_AT, layout.begin - OPENINGS_AT);
        region.store_u64(0, u64::from_le_bytes(MAGIC), Release);
        region.store_u64(CHUNK_BYTES_AT, chunk_bytes, Release);
        region.store_u64(CHUNKS_AT, chunks, Release);
        region.persist(0, layout.begin as usize);
        let checksum = u64::from(checksum::crc32c(&layout.checked()));
        // Durable when the pool is opened, which comes next.
        region.store_u64(FORMAT_AT, checksum << 32 | u64::from(FORMAT), Release);
        Ok(())
    }

    /// Bytes that the format word's checksum covers.
    fn checked(&self) -> [u8; 24] {
        let words = [u64::from(FORMAT), self.chunk_bytes, self.chunks.into()];
        let mut bytes = [0; 24];
        bytes.copy_from_slice(words.map(u64::to_le_bytes).as_flattened());
        bytes
    }

    /// Reads the layout of the pool in the region.
    pub(super) fn read<R: Region>(region: &R) -> Result<Layout, IndexError> {
        let bytes = ByteSize(region.len());
        let none = |what: &str| Err(IndexError::NoPool { region: bytes, what: what.to_owned() });
        if Layout::is_absent(region) {
            return none("holds no pool; make one");
        }
        if region.load_u64(0, Relaxed).to_le_bytes() != MAGIC {
            return none("holds something other than a pool; give another one");
        }
        let format = region.load_u64(FORMAT_AT, Acquire);
        if format as u32 != FORMAT {
            return none("holds a pool of another version; use the program that made it");
        }
        let chunk_bytes = region.load_u64(CHUNK_BYTES_AT, Relaxed);
        let is_size = chunk_bytes.is_power_of_two() && CHUNK_BYTES.contains(&chunk_bytes);
        let layout = Layout::new(chunk_bytes.max(1), region.load_u64(CHUNKS_AT, Relaxed));
        match layout {
            Some(layout)
                if !is_size || !checksum::matches((format >> 32) as u32, &layout.checked()) =>
            {
                none("holds a pool whose header is damaged; restore it")
            }
            Some(layout) if layout.end > region.len() => {
                none("was cut off: the pool in it is larger; restore the rest")
            }
            Some(layout) => Ok(layout),
            None => none("holds a pool whose header is damaged; restore it"),
        }
    }

    /// Returns the bytes of all that is durable besides the blocks.
    pub(super) fn header_bytes(&self) -> usize {
        TABLE_AT as usize + 8 * self.chunks as usize
    }

    /// Returns the chunk of an offset, and the position in it.
    pub(super) fn chunk_of(&self, offset: u64) -> (u32, u64) {
        ((offset / self.chunk_bytes) as u32, offset % self.chunk_bytes)
    }

    pub(super) fn chunk_at(&self, chunk: u32) -> u64 {
        u64::from(chunk) * self.chunk_bytes
    }

    /// Returns the first chunk that blocks can lie in.
    pub(super) fn first_chunk(&self) -> u32 {
        self.chunk_of(self.begin).0
    }
}

/// Reads the word of a chunk.
pub(super) fn load_chunk<R: Region>(region: &R, chunk: u32) -> ChunkWord {
    ChunkWord::decode(region.load_u64(TABLE_AT + 8 * u64::from(chunk), Relaxed))
}

/// Stores the word of a chunk, durably.
pub(super) fn store_chunk<R: Region>(region: &R, chunk: u32, word: ChunkWord) {
    let at = TABLE_AT + 8 * u64::from(chunk);
    region.store_u64(at, word.encode(), Relaxed);
    region.persist(at, 8);
}

/// Counts one more opening, durably. Numbers repeat only after four thousand million openings.
pub(super) fn count_opening<R: Region>(region: &R) -> u32 {
    let before = region.load_u64(OPENINGS_AT, Relaxed) as u32;
    let openings = before.checked_add(1).unwrap_or(1);
    region.store_u64(OPENINGS_AT, openings.into(), Relaxed);
    region.persist(OPENINGS_AT, 8);
    openings
}

pub(super) fn root_at(root: usize) -> u64 {
    assert!(root < ROOTS, "there is no root {root}: there are {ROOTS}");
    ROOTS_AT + 8 * root as u64
}
