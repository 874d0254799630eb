//! What a memory model is made of: physical numbers, a table of them for each device.

use entresol_base::clock::Picos;

use super::devices::{AEP, AEP2, DRAM};
use crate::model::ModelName;

/// A device and the processor that drives it.
///
/// A line is 64 bytes everywhere. Times are those of one thread on an idle device unless said
/// otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Parameters {
    /// What the processor adds.
    pub processor: Processor,
    /// One module.
    pub module: Module,
    /// How addresses are spread over several modules; none: there is one.
    pub interleave: Option<Interleave>,
    /// The processor's prefetcher; none: it is off.
    pub prefetch: Option<Prefetch>,
    /// What only seed 002 tells of such a machine; none: not known.
    pub further: Option<Further>,
}

/// The processor's part: caches and how far it runs ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Processor {
    /// Loading one word (8 bytes or less) of a line that it has. Calling for a copy of more than a
    /// word takes twice this, of however little.
    pub cached_word: Picos,
    /// Copying each further line that it has.
    pub cached_line: Picos,
    /// What its cache holds. A copy of a block that does not fit together with its source loses
    /// lines before they are used, see [`Processor::refetch_milli`].
    pub cache_bytes: u64,
    /// Units read again for each unit read when nothing stays in the cache, in thousandths.
    pub refetch_milli: u64,
    /// After so many bytes a copy runs further ahead: see [`Module::unit_read_ahead`].
    pub read_ahead_from: u64,
    /// Storing one further line past the caches.
    pub store_line: Picos,
    /// The same at best in a long row of stores: its fill buffers are all taken.
    pub store_pace: Picos,
    /// Units of which a line is stored late, out of order, when nothing of the source stays in the
    /// cache and no fence keeps the order, in thousandths.
    pub late_milli: u64,
}

/// One module of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Module {
    /// The unit in which the medium is read and written.
    pub unit_bytes: u64,
    /// Reading a unit behind one that was just read; also the pace of one thread's successive
    /// units.
    pub unit_read: Picos,
    /// What it takes longer if the unit before it was not just read.
    pub jump: Picos,
    /// The pace of successive units once a copy runs ahead.
    pub unit_read_ahead: Picos,
    /// Each further line that comes out of the module for one access.
    pub line_read: Picos,
    /// Reading a line of a unit that is in the module's buffer.
    pub buffered_line: Picos,
    /// From a store past the caches, or a flush, until the module has it safely.
    pub store_latency: Picos,
    /// What a store past the caches of a part of a line takes longer.
    pub partial_line: Picos,
    /// All threads together.
    pub read_bytes_s: u64,
    /// All threads together.
    pub write_bytes_s: u64,
    /// Units of the buffers: one keeps what was read last, one combines what is written.
    pub buffer_units: usize,
    /// The share of the medium's time that reads keep however many writes there are, in
    /// thousandths; the rest is what writes keep.
    pub read_share_milli: u64,
}

/// Addresses spread over several modules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interleave {
    /// How many modules.
    pub modules: usize,
    /// How many bytes in a row lie on one.
    pub bytes: u64,
}

/// The processor fetches more than it is asked for: each unit after a load's first makes it fetch
/// one more behind the load, up to so many, and never beyond the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefetch {
    /// The most that it runs ahead.
    pub units_max: u64,
    /// The pace of successive units of a load while it is awake.
    pub unit_pace: Picos,
}

/// Numbers that show in accesses of kinds that seed 000 did not measure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Further {
    /// What a load past the caches takes longer. No other access of its thread overlaps with it.
    pub past_caches: Picos,
    /// Lines that one thread can have under way.
    pub fill_buffers: u64,
    /// Of a read's demand on the medium, the share that completing a partly written unit takes, in
    /// thousandths: it stays within the module. Not known: all of it.
    pub completing_milli: u64,
}

impl Parameters {
    /// Those of a model; none if it is no memory.
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
    /// The medium's time for reading one unit: what the shared bandwidth is made of.
    #[must_use]
    pub const fn read_demand(&self) -> Picos {
        Picos(self.unit_bytes * 1_000_000_000_000 / self.read_bytes_s)
    }

    /// The medium's time for writing one unit.
    #[must_use]
    pub const fn write_demand(&self) -> Picos {
        Picos(self.unit_bytes * 1_000_000_000_000 / self.write_bytes_s)
    }

    /// The read bandwidth that no number of writers takes away.
    #[must_use]
    pub const fn read_floor_bytes_s(&self) -> u64 {
        self.read_bytes_s / 1_000 * self.read_share_milli
    }

    /// The write bandwidth that no number of readers takes away.
    #[must_use]
    pub const fn write_floor_bytes_s(&self) -> u64 {
        self.write_bytes_s / 1_000 * (1_000 - self.read_share_milli)
    }
}
