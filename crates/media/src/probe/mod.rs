//! Loops that access memory with stated instructions, for measuring it: the reads and writes behind
//! every figure that `entresol profile` prints for a byte-addressable medium.
//!
//! An [`Arena`] is the memory: touched beforehand, so that no page fault is measured, with one part
//! for reads and one for writes. A [`Lane`] is one thread's loop over it. Random reads that measure
//! latency follow chains: each block holds the position of the next one, so that neither the
//! processor's window nor its prefetcher can run ahead. A chain is a permutation of all blocks, so
//! that no block repeats before all were visited.
//!
//! Deliberately absent: clocks and threads. The caller brings both.

use std::path::Path;
use std::sync::atomic::Ordering;

use crate::raw::persist::{LineFlush, fence};
use crate::region::{Direct, PmemMode, RegionError, RegionKind, RegionOptions};

mod positions;

pub use positions::{Positions, permuted};

/// Minimum bytes of a chain's block: a cache line.
pub const LINE_BYTES: usize = 64;
/// Maximum bytes of a block.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Bytes between fences, if there are fences within a block: the unit of persistent memory.
pub const UNIT_BYTES: usize = 256;
/// First bytes of every file made by a measurement, for memory and disks alike.
pub const PROFILE_MAGIC: [u8; 8] = *b"entrprof";
/// Bytes before the measured ones in a file.
const HEADER_BYTES: u64 = 2 << 20;

/// Instructions by which bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StoreMethod {
    /// Stores past the caches.
    Streaming,
    /// Ordinary stores, then `clwb` for each line.
    Clwb,
    /// Ordinary stores, then `clflushopt` for each line.
    Clflushopt,
    /// Ordinary stores, then `clflush` for each line.
    Clflush,
}

impl StoreMethod {
    /// Lists the methods that this processor has.
    #[must_use]
    pub fn available() -> Vec<StoreMethod> {
        let flushes = LineFlush::all_of_this_processor().iter();
        let known = flushes.filter_map(|&how| {
            StoreMethod::FLUSHING.into_iter().find(|method| method.flush() == Some(how))
        });
        std::iter::once(StoreMethod::Streaming).chain(known).collect()
    }

    const FLUSHING: [StoreMethod; 3] =
        [StoreMethod::Clwb, StoreMethod::Clflushopt, StoreMethod::Clflush];

    /// Returns its name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            StoreMethod::Streaming => "nt-store",
            StoreMethod::Clwb => "store+clwb",
            StoreMethod::Clflushopt => "store+clflushopt",
            StoreMethod::Clflush => "store+clflush",
        }
    }

    #[cfg(all(target_arch = "x86_64", not(miri)))]
    const fn flush(self) -> Option<LineFlush> {
        match self {
            StoreMethod::Streaming => None,
            StoreMethod::Clwb => Some(LineFlush::Clwb),
            StoreMethod::Clflushopt => Some(LineFlush::Clflushopt),
            StoreMethod::Clflush => Some(LineFlush::Clflush),
        }
    }

    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    const fn flush(self) -> Option<LineFlush> {
        None
    }
}

/// Order in which blocks are accessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Order {
    /// Random order.
    Random,
    /// Ascending order.
    Sequential,
}

/// Placement of fences in a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fences {
    /// A fence after each block.
    EachBlock,
    /// A fence after each unit of 256 bytes, and after the block.
    EachUnit,
}

/// Access to one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Touch {
    /// Reads all of it; the position of the next block depends on the bytes read. Measures latency.
    ReadInTurn,
    /// Reads all of it; the next reads may be in flight at once. Measures throughput.
    Read,
    /// Writes all of it, and makes it durable before the next.
    Write(StoreMethod, Fences),
}

/// One kind of loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Task {
    /// Access to each block.
    pub touch: Touch,
    /// Order of the blocks.
    pub order: Order,
    /// Bytes of a block: 8, 16, 32, or whole lines up to [`BLOCK_BYTES_MAX`]; a power of two for
    /// random reads in turn.
    pub block_bytes: usize,
}

/// Sizes of an arena's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArenaSizes {
    /// Bytes that are read; rounded down to a power of two, at least two of the largest blocks.
    pub read_bytes: u64,
    /// Bytes that are written; at least two of the largest blocks.
    pub write_bytes: u64,
}

impl ArenaSizes {
    fn rounded(self) -> ArenaSizes {
        let least = 2 * BLOCK_BYTES_MAX as u64;
        let read_bytes = self.read_bytes.max(least);
        let read_bytes = 1 << read_bytes.ilog2();
        let block = BLOCK_BYTES_MAX as u64;
        ArenaSizes { read_bytes, write_bytes: self.write_bytes.max(least) / block * block }
    }
}

/// Memory to be measured, all of it touched, with chains through its first part.
#[derive(Debug)]
pub struct Arena {
    region: Direct,
    /// Offset of the measured bytes.
    start: u64,
    sizes: ArenaSizes,
}

impl Arena {
    /// Makes an arena in the process's own memory.
    ///
    /// # Errors
    /// If there is not enough memory.
    pub fn anonymous(sizes: ArenaSizes, huge_pages: bool) -> Result<Arena, RegionError> {
        let sizes = sizes.rounded();
        let region = Direct::anonymous(sizes.read_bytes + sizes.write_bytes, huge_pages)?;
        Ok(Arena::prepared(region, 0, sizes))
    }

    /// Makes an arena in a file on persistent memory, which is made if it does not exist, or on a
    /// DAX device. A file that was not made by a measurement is refused and left alone, and so is a
    /// device that something else uses.
    ///
    /// # Errors
    /// If the file cannot be had so.
    pub fn open(path: &Path, sizes: ArenaSizes, mode: PmemMode) -> Result<Arena, RegionError> {
        let sizes = sizes.rounded();
        let options = RegionOptions {
            create: Some(HEADER_BYTES + sizes.read_bytes + sizes.write_bytes),
            grow: true,
            magic: Some(PROFILE_MAGIC),
            pmem: Some(mode),
            ..RegionOptions::default()
        };
        let region = Direct::open(path, &options)?;
        Ok(Arena::prepared(region, HEADER_BYTES, sizes))
    }

    fn prepared(region: Direct, start: u64, sizes: ArenaSizes) -> Arena {
        let arena = Arena { region, start, sizes };
        arena.region.zero(start, sizes.read_bytes + sizes.write_bytes);
        let mut block = LINE_BYTES;
        while block <= BLOCK_BYTES_MAX {
            arena.link(block);
            block *= 2;
        }
        arena
    }

    /// Makes a DAX device count as unused again, see [`Direct::vacate`].
    pub fn vacate(&self) {
        self.region.vacate();
    }

    /// Returns the kind of memory or file that holds the arena.
    #[must_use]
    pub fn kind(&self) -> RegionKind {
        self.region.kind()
    }

    /// Returns the arena's sizes after rounding.
    #[must_use]
    pub fn sizes(&self) -> ArenaSizes {
        self.sizes
    }

    /// Links all blocks of this size into one ring.
    fn link(&self, block: usize) {
        let blocks = self.sizes.read_bytes / block as u64;
        let link = link_offset(block);
        let place = |number| self.start + permuted(number, blocks) * block as u64;
        let mut from = place(0);
        for number in 1..=blocks {
            let to = place(number % blocks);
            self.region.store_u64(from + link, to, Ordering::Relaxed);
            from = to;
        }
    }
}

/// Returns the position in a block of the link to the next one. All chains share the same bytes,
/// each with a word of its own: that of lines in each line's first word, those of blocks up to 8
/// KiB in the other words of a block's first line, and those of larger blocks in odd lines, which
/// begin no block but a line.
fn link_offset(block: usize) -> u64 {
    let power = u64::from((block / LINE_BYTES).ilog2());
    match power {
        0 => 0,
        _ => (power - 1) % 7 * 8 + 8 + odd_line(power) * LINE_BYTES as u64,
    }
}

const fn odd_line(power: u64) -> u64 {
    match (power - 1) / 7 {
        0 => 0,
        round => 2 * round - 1,
    }
}

/// One thread's loop over an arena.
#[derive(Debug)]
pub struct Lane<'a> {
    arena: &'a Arena,
    task: Task,
    /// Next block, for reads in turn.
    at: u64,
    positions: Positions,
    /// Zero, which the compiler must not know.
    zero: u64,
}

impl<'a> Lane<'a> {
    /// Makes a loop that begins with the block of this number in the task's order.
    ///
    /// # Panics
    /// If the task's block size is not allowed.
    #[must_use]
    pub fn new(arena: &'a Arena, task: Task, first: u64) -> Lane<'a> {
        let ArenaSizes { read_bytes, write_bytes } = arena.sizes;
        let block = task.block_bytes;
        let whole = matches!(block, 8 | 16 | 32) || block.is_multiple_of(LINE_BYTES);
        assert!(whole && block > 0 && block <= BLOCK_BYTES_MAX, "blocks of {block} bytes");
        let chained = task.touch == Touch::ReadInTurn && task.order == Order::Random;
        assert!(!chained || block.is_power_of_two(), "a chain of blocks of {block} bytes");
        let (begin, bytes) = match task.touch {
            Touch::Write(..) => (arena.start + read_bytes, write_bytes),
            Touch::Read | Touch::ReadInTurn => (arena.start, read_bytes),
        };
        let (stride, small) = (block.max(LINE_BYTES) as u64, block as u64);
        let at = match (task.touch, task.order) {
            (Touch::ReadInTurn, Order::Random) => {
                begin + permuted(first % (bytes / stride), bytes / stride) * stride
            }
            _ => begin + first % (bytes / small) * small,
        };
        let positions = Positions::new(begin..begin + bytes, task.order, block, first);
        Lane { arena, task, at, positions, zero: std::hint::black_box(0) }
    }

    /// Accesses this many blocks.
    pub fn run(&mut self, blocks: u32) {
        match (self.task.touch, self.task.order) {
            (Touch::ReadInTurn, Order::Random) => self.chase(blocks),
            (Touch::ReadInTurn, Order::Sequential) => self.walk(blocks),
            (Touch::Read, _) => self.read(blocks),
            (Touch::Write(how, fences), _) => match (how.flush(), fences) {
                (Some(flush), Fences::EachBlock) => self.store(blocks, flush),
                (Some(flush), Fences::EachUnit) => self.store_by_units(blocks, flush),
                (None, Fences::EachBlock) => self.stream(blocks),
                (None, Fences::EachUnit) => self.stream_by_units(blocks),
            },
        }
    }

    /// Returns the next block's offset in the arena's region: for tests.
    #[cfg(test)]
    fn at(&self) -> u64 {
        self.at
    }

    fn chase(&mut self, blocks: u32) {
        let mapping = self.arena.region.mapping();
        let block = self.task.block_bytes;
        let link = link_offset(block.max(LINE_BYTES));
        let mut at = self.at;
        for _ in 0..blocks {
            let next = mapping.probe_load(at + link, 8);
            let all = if block > 8 { mapping.probe_load(at, block) } else { 0 };
            at = next + (all & self.zero);
        }
        self.at = at;
    }

    fn walk(&mut self, blocks: u32) {
        let mapping = self.arena.region.mapping();
        let block = self.task.block_bytes;
        let end = self.arena.start + self.arena.sizes.read_bytes;
        let mut at = self.at;
        for _ in 0..blocks {
            at += block as u64 + (mapping.probe_load(at, block) & self.zero);
            if at >= end {
                at = self.arena.start;
            }
        }
        self.at = at;
    }

    fn read(&mut self, blocks: u32) {
        let mapping = self.arena.region.mapping();
        let mut all = 0;
        for _ in 0..blocks {
            all |= mapping.probe_load(self.positions.next_offset(), self.task.block_bytes);
        }
        std::hint::black_box(all);
    }

    fn stream(&mut self, blocks: u32) {
        let mapping = self.arena.region.mapping();
        for _ in 0..blocks {
            mapping.probe_store(self.positions.next_offset(), self.task.block_bytes, true);
            fence();
        }
    }

    fn stream_by_units(&mut self, blocks: u32) {
        let mapping = self.arena.region.mapping();
        for _ in 0..blocks {
            let at = self.positions.next_offset();
            for_each_unit(at, self.task.block_bytes, |at, bytes| {
                mapping.probe_store(at, bytes, true);
                fence();
            });
        }
    }

    fn store(&mut self, blocks: u32, flush: LineFlush) {
        let mapping = self.arena.region.mapping();
        for _ in 0..blocks {
            let at = self.positions.next_offset();
            mapping.probe_store(at, self.task.block_bytes, false);
            mapping.flush(flush, at, self.task.block_bytes);
            fence();
        }
    }

    fn store_by_units(&mut self, blocks: u32, flush: LineFlush) {
        let mapping = self.arena.region.mapping();
        for _ in 0..blocks {
            let at = self.positions.next_offset();
            for_each_unit(at, self.task.block_bytes, |at, bytes| {
                mapping.probe_store(at, bytes, false);
                mapping.flush(flush, at, bytes);
                fence();
            });
        }
    }
}

/// Splits a block at the ends of units.
#[inline(always)]
fn for_each_unit(mut at: u64, bytes: usize, mut part: impl FnMut(u64, usize)) {
    let end = at + bytes as u64;
    while at < end {
        let next = (at / UNIT_BYTES as u64 + 1) * UNIT_BYTES as u64;
        let step = next.min(end) - at;
        part(at, step as usize);
        at += step;
    }
}

#[cfg(test)]
mod tests;
