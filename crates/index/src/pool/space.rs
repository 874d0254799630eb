//! Taken and free blocks: the part of a pool that is in DRAM.

use std::collections::BTreeSet;

use entresol_media::Region;

use super::Swept;
use super::classes::Classes;
use super::layout::{self, ChunkWord, Layout};
use super::marks::{Marked, Marks};
use crate::IndexError;

/// Taken and free blocks of all chunks.
#[derive(Debug)]
pub(super) struct Space {
    chunks: Vec<Chunk>,
    /// Unused chunks.
    free: BTreeSet<u32>,
    /// Chunks with room, by class.
    with_room: Vec<Vec<u32>>,
    /// Blocks of unswept chunks that were freed.
    given_unswept: Vec<u64>,
}

#[derive(Debug)]
enum Chunk {
    /// Chunks of the header, free ones, and those in the middle of a run.
    Other,
    /// Chunk in use when the pool was opened: its taken blocks are not known yet.
    Unswept(ChunkWord),
    Class(Blocks),
    Run(u32),
}

/// Blocks of a chunk of one class.
#[derive(Debug)]
struct Blocks {
    class: usize,
    len: u64,
    taken: u64,
    /// One bit for each taken block.
    bits: Vec<u64>,
    /// Number of the first word that may have room.
    hint: usize,
}

impl Blocks {
    fn new(class: usize, len: u64) -> Blocks {
        Blocks { class, len, taken: 0, bits: vec![0; len.div_ceil(64) as usize], hint: 0 }
    }

    fn from_bits(class: usize, len: u64, bits: Vec<u64>) -> Blocks {
        let taken = bits.iter().map(|word| u64::from(word.count_ones())).sum();
        Blocks { class, len, taken, bits, hint: 0 }
    }

    fn has_room(&self) -> bool {
        self.taken < self.len
    }

    fn take(&mut self) -> Option<u64> {
        let word = (self.hint..self.bits.len()).find(|&word| self.bits[word] != u64::MAX)?;
        self.hint = word;
        let block = 64 * word as u64 + u64::from(self.bits[word].trailing_ones());
        if block >= self.len {
            return None;
        }
        self.bits[word] |= 1 << (block % 64);
        self.taken += 1;
        Some(block)
    }

    fn is_taken(&self, block: u64) -> bool {
        let word = self.bits.get(block as usize / 64);
        word.is_some_and(|bits| bits >> (block % 64) & 1 == 1)
    }

    /// Frees a block; returns true if it was taken.
    fn give(&mut self, block: u64) -> bool {
        let was_taken = self.is_taken(block);
        if was_taken {
            let word = block as usize / 64;
            self.bits[word] &= !(1 << (block % 64));
            self.taken -= 1;
            self.hint = self.hint.min(word);
        }
        was_taken
    }
}

impl Space {
    /// Reads the space of a pool that was just opened.
    pub(super) fn read<R: Region>(
        region: &R,
        layout: &Layout,
        classes: &Classes,
    ) -> Result<Space, IndexError> {
        let mut space = Space {
            chunks: (0..layout.chunks).map(|_| Chunk::Other).collect(),
            free: BTreeSet::new(),
            with_room: vec![Vec::new(); classes.len()],
            given_unswept: Vec::new(),
        };
        let mut chunk = layout.first_chunk();
        while chunk < layout.chunks {
            let word = layout::load_chunk(region, chunk);
            let len = match word {
                ChunkWord::Free => 1,
                ChunkWord::Class(class) if class < classes.len() => 1,
                ChunkWord::Run(len) if len > 0 && len <= layout.chunks - chunk => len,
                _ => {
                    let what = format!("the pool's table has {word:?} for chunk {chunk}");
                    return Err(IndexError::damaged(layout.chunk_at(chunk), what));
                }
            };
            if word == ChunkWord::Free {
                space.free.insert(chunk);
            } else {
                space.chunks[chunk as usize] = Chunk::Unswept(word);
            }
            chunk += len;
        }
        Ok(space)
    }

    pub(super) fn has_unswept(&self) -> bool {
        self.chunks.iter().any(|chunk| matches!(chunk, Chunk::Unswept(_)))
    }

    pub(super) fn free_chunks(&self) -> u64 {
        self.free.len() as u64
    }

    /// Takes a block.
    pub(super) fn take<R: Region>(
        &mut self,
        region: &R,
        layout: &Layout,
        classes: &Classes,
        bytes: u64,
    ) -> Option<u64> {
        let Some(class) = classes.holding(bytes) else {
            return self.take_run(region, layout, bytes.div_ceil(layout.chunk_bytes));
        };
        let block_bytes = classes.bytes(class)?;
        loop {
            let chunk = match self.with_room[class].last() {
                Some(&chunk) => chunk,
                None => self.take_chunk(region, classes, class)?,
            };
            if let Chunk::Class(blocks) = &mut self.chunks[chunk as usize]
                && blocks.class == class
                && let Some(block) = blocks.take()
            {
                return Some(layout.chunk_at(chunk) + block * block_bytes);
            }
            self.with_room[class].pop();
        }
    }

    fn take_chunk<R: Region>(
        &mut self,
        region: &R,
        classes: &Classes,
        class: usize,
    ) -> Option<u32> {
        let chunk = self.free.pop_first()?;
        self.assert_unused(chunk);
        layout::store_chunk(region, chunk, ChunkWord::Class(class));
        self.chunks[chunk as usize] = Chunk::Class(Blocks::new(class, classes.blocks(class)));
        self.with_room[class].push(chunk);
        Some(chunk)
    }

    /// Asserts that a chunk from the free list is not in use.
    fn assert_unused(&self, chunk: u32) {
        let found = self.chunks.get(chunk as usize);
        assert!(matches!(found, Some(Chunk::Other)), "chunk {chunk} is free, and used: {found:?}");
    }

    fn take_run<R: Region>(&mut self, region: &R, layout: &Layout, len: u64) -> Option<u64> {
        let len = u32::try_from(len).ok()?.max(1);
        let is_free = |&first: &u32| {
            let end = first.checked_add(len);
            end.is_some_and(|end| self.free.range(first..end).count() as u32 == len)
        };
        let first = self.free.iter().copied().find(is_free)?;
        for chunk in first..first + len {
            self.free.remove(&chunk);
            self.assert_unused(chunk);
        }
        layout::store_chunk(region, first, ChunkWord::Run(len));
        self.chunks[first as usize] = Chunk::Run(len);
        Some(layout.chunk_at(first))
    }

    /// Frees a block.
    #[track_caller]
    pub(super) fn give<R: Region>(
        &mut self,
        region: &R,
        layout: &Layout,
        classes: &Classes,
        offset: u64,
    ) {
        let (chunk, within) = layout.chunk_of(offset);
        match self.chunks.get_mut(chunk as usize) {
            Some(Chunk::Unswept(_)) => self.given_unswept.push(offset),
            Some(Chunk::Class(blocks)) => {
                let (class, had_room) = (blocks.class, blocks.has_room());
                let bytes = classes.bytes(class).unwrap_or(1);
                let is_block = within.is_multiple_of(bytes) && blocks.give(within / bytes);
                assert!(is_block, "no block that is taken begins at {offset}");
                if blocks.taken == 0 {
                    // Its word stays until the chunk is used again: nothing in it is reached.
                    self.chunks[chunk as usize] = Chunk::Other;
                    self.with_room[class].retain(|&it| it != chunk);
                    self.free.insert(chunk);
                } else if !had_room {
                    self.with_room[class].push(chunk);
                }
            }
            Some(&mut Chunk::Run(len)) if within == 0 => self.give_run(region, chunk, len),
            _ => panic!("no block that is taken begins at {offset}"),
        }
    }

    /// Frees a run of chunks and clears its word durably: chunks in the middle get words of their
    /// own again, which would not be read behind it.
    fn give_run<R: Region>(&mut self, region: &R, first: u32, len: u32) {
        for chunk in first..first + len {
            if layout::load_chunk(region, chunk) != ChunkWord::Free {
                layout::store_chunk(region, chunk, ChunkWord::Free);
            }
            let is_new = self.free.insert(chunk);
            assert!(is_new, "chunk {chunk} of {len} from {first} on goes, and is free");
        }
        self.chunks[first as usize] = Chunk::Other;
    }

    /// Refuses a block that an index reaches in an unmarked chunk, unless it was taken since:
    /// either the index or the table is damaged. That chunk is never used then.
    pub(super) fn check_taken(
        &mut self,
        layout: &Layout,
        classes: &Classes,
        offset: u64,
    ) -> Result<(), IndexError> {
        let (chunk, within) = layout.chunk_of(offset);
        let is_taken = match self.chunks.get(chunk as usize) {
            Some(Chunk::Class(blocks)) => {
                let bytes = classes.bytes(blocks.class).unwrap_or(1);
                within.is_multiple_of(bytes) && blocks.is_taken(within / bytes)
            }
            Some(Chunk::Run(_)) => within == 0,
            Some(Chunk::Other | Chunk::Unswept(_)) | None => false,
        };
        if is_taken {
            return Ok(());
        }
        self.free.remove(&chunk);
        let what = format!(
            "an index leads to this block, but the pool's table says of chunk {chunk} that no \
             block that is used begins here"
        );
        Err(IndexError::damaged(offset, what))
    }

    /// Returns a clear mark for each block of the unswept chunks.
    pub(super) fn marks(&self, classes: &Classes) -> Marks {
        let unswept = self.chunks.iter().zip(0..).filter_map(|(chunk, number)| {
            let Chunk::Unswept(word) = *chunk else { return None };
            let (block_bytes, blocks) = match word {
                ChunkWord::Class(class) => (classes.bytes(class)?, classes.blocks(class)),
                ChunkWord::Run(_) | ChunkWord::Free => (u64::MAX, 1),
            };
            let bits = vec![0; blocks.div_ceil(64) as usize];
            Some((number, Marked { word, block_bytes, blocks, bits }))
        });
        Marks { chunks: unswept.collect(), reached: 0 }
    }

    /// Frees blocks that are not marked, or were freed meanwhile.
    pub(super) fn sweep<R: Region>(
        &mut self,
        region: &R,
        layout: &Layout,
        mut marks: Marks,
    ) -> Swept {
        for offset in self.given_unswept.drain(..) {
            marks.clear(layout, offset);
        }
        let mut swept = Swept { reached: marks.reached, ..Swept::default() };
        let mut chunks: Vec<(u32, Marked)> = marks.chunks.into_iter().collect();
        chunks.sort_unstable_by_key(|(chunk, _)| *chunk);
        for (chunk, marked) in chunks {
            let is_empty = marked.bits.iter().all(|&bits| bits == 0);
            self.chunks[chunk as usize] = match marked.word {
                ChunkWord::Run(len) if is_empty => {
                    self.give_run(region, chunk, len);
                    swept.free_chunks += u64::from(len);
                    continue;
                }
                ChunkWord::Run(len) => Chunk::Run(len),
                _ if is_empty => {
                    self.free.insert(chunk);
                    swept.free_chunks += 1;
                    Chunk::Other
                }
                ChunkWord::Class(class) => {
                    let blocks = Blocks::from_bits(class, marked.blocks, marked.bits);
                    swept.free += blocks.len - blocks.taken;
                    if blocks.has_room() {
                        self.with_room[class].push(chunk);
                    }
                    Chunk::Class(blocks)
                }
                ChunkWord::Free => Chunk::Other,
            };
        }
        swept
    }

    /// Passes every taken block to `visit`; none of unswept chunks.
    pub(super) fn taken(&self, layout: &Layout, classes: &Classes, visit: &mut dyn FnMut(u64)) {
        for (chunk, number) in self.chunks.iter().zip(0..) {
            let at = layout.chunk_at(number);
            match chunk {
                Chunk::Other | Chunk::Unswept(_) => {}
                Chunk::Run(_) => visit(at),
                Chunk::Class(blocks) => {
                    let bytes = classes.bytes(blocks.class).unwrap_or(0);
                    let taken = (0..blocks.len).filter(|&block| blocks.is_taken(block));
                    taken.for_each(|block| visit(at + block * bytes));
                }
            }
        }
    }
}
