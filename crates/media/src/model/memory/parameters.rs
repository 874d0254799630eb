//! Parameters of a memory model: physical numbers.

use entresol_base::clock::Picos;

use super::devices::{AEP, AEP2, DRAM};
use crate::model::ModelName;

/// Parameters of a device and the processor that drives it.
///
/// A line is 64 bytes everywhere. Times are those of one thread on an idle device unless said
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// The processor's part.
    pub processor: Processor,
    /// One module.
    pub module: Module,
    /// Interleaving of addresses over several modules; none if there is one.
    pub interleave: Option<Interleave>,
    /// The processor's prefetcher; none if it is off.
    pub prefetch: Option<Prefetch>,
    /// Numbers that only seed 002 tells of such a machine; none if unknown.
    pub further: Option<Further>,
}

/// The processor's part: its caches and how far it runs ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// Time to load one word (8 bytes or less) of a cached line. Calling a copy of more than a word
    /// takes twice this, however small it is.
    pub cached_word: Picos,
    /// Time to copy each further cached line.
    pub cached_line: Picos,
    /// Bytes of its cache. A copy of a block that does not fit together with its source loses lines
    /// before they are used, see [`Processor::refetch_milli`].
    pub cache_bytes: u64,
    /// Units read again for each unit read when nothing stays in the cache, in thousandths.
    pub refetch_milli: u64,
    /// Bytes after which a copy runs further ahead, see [`Module::unit_read_ahead`].
    pub read_ahead_from: u64,
    /// Time to store one further line past the caches.
    pub store_line: Picos,
    /// Minimum time per line in a long row of such stores, when all fill buffers are taken.
    pub store_pace: Picos,
    /// Units of which a line is stored late, out of order, when nothing of the source stays in the
    /// cache and no fence keeps the order, in thousandths.
    pub late_milli: u64,
}

/// One module of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// Bytes of the unit in which the medium is read and written.
    pub unit_bytes: u64,
    /// Time to read a unit behind one that was just read, which is also the pace of one thread's
    /// successive units.
    pub unit_read: Picos,
    /// Additional time if the previous unit was not just read.
    pub jump: Picos,
    /// Pace of successive units once a copy runs ahead.
    pub unit_read_ahead: Picos,
    /// Time for each further line that one access gets from the module.
    pub line_read: Picos,
    /// Time to read a line of a unit that is in the module's buffer.
    pub buffered_line: Picos,
    /// Time from a store past the caches, or a flush, until it is durable in the module.
    pub store_latency: Picos,
    /// Additional time for a store past the caches of a part of a line.
    pub partial_line: Picos,
    /// Read bandwidth of all threads together.
    pub read_bytes_s: u64,
    /// Write bandwidth of all threads together.
    pub write_bytes_s: u64,
    /// Units in each of the two buffers, for reads and for combining writes.
    pub buffer_units: usize,
    /// Share of the medium's time that reads keep however many writes there are, in thousandths;
    /// writes keep the rest.
    pub read_share_milli: u64,
}

/// Interleaving of addresses over several modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleave {
    /// Number of modules.
    pub modules: usize,
    /// Contiguous bytes on one module.
    pub bytes: u64,
}

/// Prefetching by the processor: each unit of a load after its first makes it fetch one more unit
/// behind the load, up to a maximum, and never beyond the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// Maximum number of units that it runs ahead.
    pub units_max: u64,
    /// Pace of successive units of a load while it is active.
    pub unit_pace: Picos,
}

/// Numbers that show in kinds of access that seed 000 did not measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Further {
    /// Additional time of a load past the caches. No other access of its thread overlaps with it.
    pub past_caches: Picos,
    /// Lines that one thread can have in flight.
    pub fill_buffers: u64,
    /// Share of a read's demand on the medium that completing a partly written unit takes, in
    /// thousandths: it stays within the module. If unknown, all of it.
    pub completing_milli: u64,
}

impl Parameters {
    /// Returns the parameters of a model; none if it is no memory.
    #[must_use]
    pub const fn of(name: ModelName) -> Option<Parameters> {
        match name {
            ModelName::Dram => Some(DRAM),
            ModelName::Aep => Some(AEP),
            ModelName::Aep2 => Some(AEP2),
            _ => None,
        }
    }
}

impl Module {
    /// Returns the medium's time for reading one unit, which determines the shared bandwidth.
    #[must_use]
    pub const fn read_demand(&self) -> Picos {
        Picos(self.unit_bytes * 1_000_000_000_000 / self.read_bytes_s)
    }

    /// Returns the medium's time for writing one unit.
    #[must_use]
    pub const fn write_demand(&self) -> Picos {
        Picos(self.unit_bytes * 1_000_000_000_000 / self.write_bytes_s)
    }

    /// Returns the read bandwidth that remains under any number of writers.
    #[must_use]
    pub const fn read_floor_bytes_s(&self) -> u64 {
        self.read_bytes_s / 1_000 * self.read_share_milli
    }

    /// Returns the write bandwidth that remains under any number of readers.
    #[must_use]
    pub const fn write_floor_bytes_s(&self) -> u64 {
        self.write_bytes_s / 1_000 * (1_000 - self.read_share_milli)
    }
}
