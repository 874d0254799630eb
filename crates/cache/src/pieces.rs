//! Pieces of a large value: whole segments, in the order of a list that stands in the value's
//! record.
//!
//! A segment that is a piece has no header and no records. The rest of a value that fills no
//! segment by half lies behind its last piece: in its record, or where its record's value would
//! lie. The value's first piece stands for it in the queue of its log.
//!
//! | bytes of the list | what |
//! |---|---|
//! | 4 | bytes of the value |
//! | 4 a piece | number of its segment |
//! | 4 a chunk | CRC-32C of its bytes: a chunk has 256 KiB, or what a piece or the rest has left |

use entresol_base::ByteSize;
use entresol_media::Direct;

use crate::record::Head;

/// Largest value, as in memcached.
pub const VALUE_BYTES_MAX: ByteSize = ByteSize::gib(1);
/// Bytes of the list before its first piece.
const FIRST_AT: u64 = 4;
/// Bytes of the list for each piece, and for each chunk.
const WORD_BYTES: u64 = 4;
/// Largest chunk: each has a checksum, and is read as a whole to check it.
pub(crate) const CHUNK_BYTES: u64 = 256 << 10;
/// Bytes less than half of a segment that lie in a record at most: beside them two headers and keys
/// of usual length fit.
const HEADER_BYTES: u64 = 64;
/// Part of a segment that the rest of a value on a block file takes in its record at most: records
/// lie in DRAM.
const FILE_REST_SHARE: u64 = 64;
/// Bytes of such a rest at most.
const FILE_REST_BYTES_MAX: u64 = 16 << 10;

/// Manner in which values are cut into pieces.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    segment_bytes: u64,
    rest_max: u64,
}

/// Bytes of a value that have a checksum of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Chunk {
    /// Number of its piece in the list; none in the value's rest.
    pub(crate) piece: Option<usize>,
    /// Offset in its piece or in the rest.
    pub(crate) offset: u64,
    /// Offset in the value.
    pub(crate) at: u64,
    pub(crate) bytes: usize,
}

impl Chunk {
    /// Returns the offset of its end in the value.
    pub(crate) fn end(&self) -> usize {
        self.at as usize + self.bytes
    }
}

/// List of a value's pieces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct List {
    pub(crate) value_len: u64,
    pub(crate) segments: Vec<u32>,
    pub(crate) checksums: Vec<u32>,
}

impl Cut {
    /// Cuts values into segments of this many bytes.
    pub(crate) fn into(segment_bytes: u64) -> Cut {
        Cut { segment_bytes, rest_max: segment_bytes / 2 - HEADER_BYTES }
    }

    /// Cuts values on a block file: what is no piece of one lies in DRAM.
    pub(crate) fn on_file(segment_bytes: u64) -> Cut {
        let rest_max = (segment_bytes / FILE_REST_SHARE).min(FILE_REST_BYTES_MAX);
        Cut { segment_bytes, rest_max }
    }

    /// Returns the bytes of the largest value that does not lie in pieces.
    pub(crate) fn whole_max(self) -> u64 {
        self.segment_bytes / 2 - HEADER_BYTES
    }

    /// Returns the bytes of the largest chunk.
    pub(crate) fn chunk_max(self) -> u64 {
        CHUNK_BYTES.min(self.segment_bytes)
    }

    /// Returns the bytes that a record holds at most of a value.
    pub(crate) fn rest_max(self) -> u64 {
        self.rest_max
    }

    /// Returns the number of pieces of a value, and the bytes of its rest.
    pub(crate) fn parts(self, value_len: u64) -> (u64, u64) {
        let (pieces, rest) = (value_len / self.segment_bytes, value_len % self.segment_bytes);
        if rest > self.rest_max() { (pieces + 1, 0) } else { (pieces, rest) }
    }

    /// Returns the bytes of the list of a value's pieces.
    pub(crate) fn list_bytes(self, value_len: u64) -> u64 {
        let (pieces, rest) = self.parts(value_len);
        FIRST_AT + WORD_BYTES * (pieces + self.chunks_of(value_len, rest))
    }

    fn chunks_of(self, value_len: u64, rest: u64) -> u64 {
        let in_pieces = value_len - rest;
        let (full, last) = (in_pieces / self.segment_bytes, in_pieces % self.segment_bytes);
        let chunks = |bytes: u64| bytes.div_ceil(CHUNK_BYTES);
        full * chunks(self.segment_bytes) + chunks(last) + chunks(rest)
    }

    /// Returns the bytes of a value whose list is no longer than this.
    pub(crate) fn value_bytes_for(self, list_bytes: u64) -> u64 {
        let piece = WORD_BYTES * (1 + self.segment_bytes.div_ceil(CHUNK_BYTES));
        list_bytes.saturating_sub(FIRST_AT) / piece * self.segment_bytes
    }

    /// Iterates over the chunks of a value, from its beginning to its end.
    pub(crate) fn chunks(self, value_len: u64) -> impl Iterator<Item = Chunk> {
        let first = self.chunk_from(value_len, 0);
        let next = move |chunk: &Chunk| self.chunk_from(value_len, chunk.at + chunk.bytes as u64);
        std::iter::successors(first, next)
    }

    /// Returns the number of the chunk that holds the byte at an offset of the value.
    pub(crate) fn chunk_number(self, at: u64) -> usize {
        let a_piece = self.segment_bytes.div_ceil(CHUNK_BYTES);
        (at / self.segment_bytes * a_piece + at % self.segment_bytes / CHUNK_BYTES) as usize
    }

    /// Returns the chunk that holds the byte at an offset of a value.
    pub(crate) fn chunk_of(self, value_len: u64, at: u64) -> Option<Chunk> {
        let rest = self.chunk_from(value_len, at)?;
        self.chunk_from(value_len, at - rest.offset % CHUNK_BYTES)
    }

    /// Returns the bytes of a chunk from offset `at` of the value on; `None` at its end.
    pub(crate) fn chunk_from(self, value_len: u64, at: u64) -> Option<Chunk> {
        let (pieces, rest) = self.parts(value_len);
        if at == value_len {
            return None;
        }
        let (piece, offset) = (at / self.segment_bytes, at % self.segment_bytes);
        let end = if piece < pieces {
            (value_len - rest).min((piece + 1) * self.segment_bytes)
        } else {
            value_len
        };
        let bytes = (end - at).min(CHUNK_BYTES - offset % CHUNK_BYTES);
        let piece = (piece < pieces).then_some(piece as usize);
        Some(Chunk { piece, offset, at, bytes: bytes as usize })
    }
}

/// Returns the bytes of the value whose list is in a record, which may be torn.
pub(crate) fn value_len(arena: &Direct, head: &Head) -> u64 {
    word(arena, head.list_at()).into()
}

/// Returns the first piece of the value whose list is in a record.
pub(crate) fn first_piece(arena: &Direct, head: &Head) -> u32 {
    word(arena, head.list_at() + FIRST_AT)
}

/// Reads a word that need not be aligned.
fn word(arena: &Direct, at: u64) -> u32 {
    let mut bytes = [0; WORD_BYTES as usize];
    arena.read(at, &mut bytes);
    u32::from_le_bytes(bytes)
}

impl List {
    /// Reads the list in a record; `None` if the record is too short for it, or the value too long.
    pub(crate) fn load(arena: &Direct, head: &Head, cut: Cut) -> Option<List> {
        let value_len = value_len(arena, head);
        let bytes = cut.list_bytes(value_len);
        let (pieces, _) = cut.parts(value_len);
        if value_len > VALUE_BYTES_MAX.0 || pieces == 0 || bytes > head.value_len as u64 {
            return None;
        }
        let words = (FIRST_AT..bytes).step_by(WORD_BYTES as usize);
        let mut words = words.map(|at| word(arena, head.list_at() + at));
        let segments = words.by_ref().take(pieces as usize).collect();
        Some(List { value_len, segments, checksums: words.collect() })
    }

    /// Writes the list to its place in a record.
    pub(crate) fn store(&self, arena: &Direct, at: u64) {
        let words = [self.value_len as u32].into_iter();
        let words = words.chain(self.segments.iter().chain(&self.checksums).copied());
        let bytes: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        arena.write(at, &bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_the_value_and_pieces_are_filled_in_order() {
        for segment_bytes in [8 << 10, 12 << 10, 64 << 10, (256 << 10) + 4096, 2 << 20] {
            let cut = Cut::into(segment_bytes);
            let half = segment_bytes / 2 - 64;
            let lengths = [half + 1, segment_bytes - 1, segment_bytes, segment_bytes + 1];
            let more = [segment_bytes + half, segment_bytes + half + 1, 5 * segment_bytes + 7];
            for value_len in lengths.into_iter().chain(more) {
                let (pieces, rest) = cut.parts(value_len);
                let chunks: Vec<Chunk> = cut.chunks(value_len).collect();
                let mut at = 0;
                for (number, chunk) in chunks.iter().enumerate() {
                    assert_eq!((chunk.at, cut.chunk_number(chunk.at)), (at, number));
                    for at in [at, at + chunk.bytes as u64 - 1] {
                        assert_eq!(cut.chunk_of(value_len, at), Some(*chunk));
                    }
                    let in_pieces = chunk.piece.map(|piece| piece as u64 * segment_bytes);
                    let before = in_pieces.unwrap_or(value_len - rest);
                    assert_eq!(before + chunk.offset, at);
                    assert!(chunk.bytes > 0 && chunk.offset < segment_bytes);
                    at += chunk.bytes as u64;
                }
                assert_eq!(at, value_len);
                let last = chunks.iter().filter_map(|chunk| chunk.piece).max();
                assert_eq!(last, Some(pieces as usize - 1));
                let words = 1 + pieces + chunks.len() as u64;
                assert_eq!(cut.list_bytes(value_len), 4 * words);
                let full = pieces * segment_bytes;
                assert_eq!(cut.value_bytes_for(cut.list_bytes(full)), full);
            }
        }
    }
}
