//! Models of byte-addressable memory: one engine for every module, from DRAM to 3D `XPoint`.
//!
//! A model is a device that any number of threads share. It is told each thread's accesses in the
//! order of virtual time, and returns their completion times. It knows:
//!
//! - Lines of 64 bytes, units of the medium (256 bytes for 3D `XPoint`), a processor's cache, and
//!   two small buffers in the module: one keeps the units read last, one combines stored lines into
//!   units. A part of a unit costs as much as the whole; a partly written unit is read first.
//! - One thread's successive units overlap, so that they take a pace and not a latency each; large
//!   copies run further ahead, and those that outgrow the cache read part of it again.
//! - Reads and writes share the medium's time, see `channel`. A read of a unit that is being
//!   written waits for the write; a write waits while the combining buffer is full.
//! - Large copies without fences send some lines late, which tears their units.
//!
//! All numbers are [`Parameters`]; all arithmetic is on whole numbers.

use std::collections::VecDeque;

use entresol_base::clock::Picos;

mod buffer;
mod cache;
mod channel;
mod devices;
mod parameters;
mod read;
mod write;

use buffer::{CombiningBuffer, ReadBuffer, Written};
use cache::LineCache;
use channel::{Channel, Kind};
pub use devices::{AEP, AEP2, DRAM};
pub use parameters::{Further, Interleave, Module, Parameters, Prefetch, Processor};

/// Bytes of a line of the processor's cache.
pub const LINE_BYTES: u64 = 64;

/// Unit of simulation: accesses are split at multiples of this, so that threads that copy large
/// blocks take turns. An interleave is a multiple of it.
const PIECE_BYTES: u64 = 4096;

/// Instructions by which a thread accesses memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryOp {
    /// Loads through the processor's cache.
    Load,
    /// Loads past the cache, one line after the other.
    NtLoad,
    /// Stores into the processor's cache.
    Store,
    /// Stores into the cache, and writes the lines back.
    StoreFlush,
    /// Stores past the cache.
    NtStore,
}

/// Fence behind an access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Fence {
    /// None: the thread does not wait.
    None,
    /// A fence at the end of the access: the thread waits until its stores are durable.
    AtEnd,
}

/// One access.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct MemoryAccess {
    /// Instructions used.
    pub op: MemoryOp,
    /// First byte.
    pub offset: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Fence at its end.
    pub fence: Fence,
}

/// Number of a simulated thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Accessor(pub u32);

/// Totals of the medium's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MediumCounts {
    /// Units read for loads.
    pub units_read: u64,
    /// Units written.
    pub units_written: u64,
    /// Units that had to be read before they could be written.
    pub units_read_to_write: u64,
    /// Fences.
    pub fences: u64,
}

impl MediumCounts {
    /// Returns the work done since `earlier`.
    #[must_use]
    pub fn since(self, earlier: MediumCounts) -> MediumCounts {
        MediumCounts {
            units_read: self.units_read - earlier.units_read,
            units_written: self.units_written - earlier.units_written,
            units_read_to_write: self.units_read_to_write - earlier.units_read_to_write,
            fences: self.fences - earlier.fences,
        }
    }
}

/// An access in progress.
#[derive(Debug, Clone, Copy)]
pub struct Transfer {
    accessor: Accessor,
    access: MemoryAccess,
    done: u64,
    over: bool,
}

impl Transfer {
    /// Returns the bytes that have been processed.
    #[must_use]
    pub fn done(&self) -> u64 {
        self.done
    }
}

/// A modelled device, shared by threads in virtual time.
#[derive(Debug, Clone)]
pub struct MemoryModel {
    parameters: Parameters,
    modules: Vec<ModuleState>,
    cache: LineCache,
    threads: Vec<ThreadState>,
    /// Time for which the current access waits for changed lines that must leave the cache.
    stalled: Picos,
    counts: MediumCounts,
}

#[derive(Debug, Clone)]
struct ModuleState {
    channel: Channel,
    read: ReadBuffer,
    combining: CombiningBuffer,
}

/// State of one thread.
#[derive(Debug, Clone, Default)]
struct ThreadState {
    /// Time at which all its stores past the cache and flushes are durable.
    safe: Picos,
    /// Lines that it stores late, each with the count of stored units at which it leaves.
    late: VecDeque<(u64, u64)>,
    units_stored: u64,
    /// Remainders of divisions, so that shares come out exactly over time.
    refetch_rest: u64,
    late_rest: u64,
}

impl MemoryModel {
    /// Makes an idle device with these parameters.
    #[must_use]
    pub fn new(parameters: Parameters) -> MemoryModel {
        let module = &parameters.module;
        assert!(module.unit_bytes.is_multiple_of(LINE_BYTES), "a unit is made of lines");
        assert!(PIECE_BYTES.is_multiple_of(module.unit_bytes), "a piece is made of units");
        let interleave = parameters.interleave;
        assert!(interleave.is_none_or(|i| i.bytes.is_multiple_of(PIECE_BYTES) && i.modules > 0));
        let state = ModuleState {
            channel: Channel::new(module.read_share_milli),
            read: ReadBuffer::new(module.buffer_units),
            combining: CombiningBuffer::new(module.buffer_units, module.unit_bytes / LINE_BYTES),
        };
        MemoryModel {
            parameters,
            modules: vec![state; interleave.map_or(1, |i| i.modules)],
            cache: LineCache::new(parameters.processor.cache_bytes / LINE_BYTES),
            threads: Vec::new(),
            stalled: Picos::ZERO,
            counts: MediumCounts::default(),
        }
    }

    /// Returns the model's parameters.
    #[must_use]
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Returns the medium's work so far.
    #[must_use]
    pub fn counts(&self) -> MediumCounts {
        self.counts
    }

    /// Returns the completion time of an access that begins at `at`, if no other one comes in
    /// between: for accesses of at most a page. Accesses come in the order of `at`.
    pub fn access(&mut self, at: Picos, accessor: Accessor, access: MemoryAccess) -> Picos {
        let (mut transfer, mut now) = (self.begin(accessor, access), at);
        while let Some(later) = self.advance(now, &mut transfer) {
            now = later;
        }
        now
    }

    /// Begins an access that [`MemoryModel::advance`] continues piece by piece.
    pub fn begin(&mut self, accessor: Accessor, access: MemoryAccess) -> Transfer {
        self.know(accessor);
        Transfer { accessor, access, done: 0, over: false }
    }

    /// Does the next piece at `at`, the completion time of the previous one. Returns this piece's
    /// completion time, or none if the access is done.
    pub fn advance(&mut self, at: Picos, transfer: &mut Transfer) -> Option<Picos> {
        let access = transfer.access;
        if transfer.done < access.bytes {
            let offset = access.offset + transfer.done;
            let bytes = (PIECE_BYTES - offset % PIECE_BYTES).min(access.bytes - transfer.done);
            let piece = Piece {
                op: access.op,
                offset,
                bytes,
                whole_bytes: access.bytes,
                done: transfer.done,
                first: transfer.done == 0,
                last: transfer.done + bytes == access.bytes,
            };
            transfer.done += bytes;
            let done = self.piece(at, transfer.accessor, &piece);
            debug_assert!(done >= at, "{piece:?} is done at {done:?}, begun at {at:?}");
            return Some(done);
        }
        if access.fence == Fence::AtEnd && !transfer.over {
            transfer.over = true;
            return Some(self.fence(at, transfer.accessor));
        }
        None
    }

    /// Makes the thread wait until all its stores past the cache and flushes are durable.
    pub fn fence(&mut self, at: Picos, accessor: Accessor) -> Picos {
        self.counts.fences += 1;
        self.send_late_lines(at, accessor, true);
        self.threads.get(accessor.0 as usize).map_or(at, |thread| thread.safe.max(at))
    }

    fn piece(&mut self, at: Picos, accessor: Accessor, piece: &Piece) -> Picos {
        match piece.op {
            MemoryOp::Load => self.load(at, accessor, piece),
            MemoryOp::NtLoad => self.nt_load(at, piece),
            MemoryOp::NtStore => self.nt_store(at, accessor, piece),
            MemoryOp::Store => self.store(at, accessor, piece),
            MemoryOp::StoreFlush => {
                let stored = self.store(at, accessor, piece);
                self.flush(stored, accessor, piece.offset, piece.bytes as usize)
            }
        }
    }

    fn module_of(&self, offset: u64) -> usize {
        self.parameters.interleave.map_or(0, |interleave| {
            (offset / interleave.bytes % interleave.modules as u64) as usize
        })
    }

    fn lines_per_unit(&self) -> u64 {
        self.parameters.module.unit_bytes / LINE_BYTES
    }

    /// Returns the unit that holds a line, and the line's place in it.
    fn unit_of(&self, line: u64) -> (u64, u64) {
        (line / self.lines_per_unit(), line % self.lines_per_unit())
    }

    fn know(&mut self, accessor: Accessor) {
        let index = accessor.0 as usize;
        if index >= self.threads.len() {
            self.threads.resize_with(index + 1, ThreadState::default);
        }
    }
}

/// A part of an access that lies within one page.
#[derive(Debug, Clone, Copy)]
struct Piece {
    op: MemoryOp,
    offset: u64,
    bytes: u64,
    /// Bytes of the whole access.
    whole_bytes: u64,
    /// Bytes of the access before this piece.
    done: u64,
    first: bool,
    last: bool,
}

impl Piece {
    /// Returns its lines.
    fn lines(&self) -> std::ops::Range<u64> {
        self.offset / LINE_BYTES..(self.offset + self.bytes).div_ceil(LINE_BYTES)
    }

    fn line_count(&self) -> u64 {
        let lines = self.lines();
        lines.end - lines.start
    }
}

/// Returns the share, in millionths, of a block of `bytes` that does not stay in a cache.
fn outgrown_millionths(bytes: u64, cache_bytes: u64) -> u64 {
    bytes.saturating_sub(cache_bytes) * 1_000_000 / bytes.max(1)
}

#[cfg(test)]
mod tests;
