//! The numbers that make a drive.

use entresol_base::Picos;

use crate::model::ModelName;

/// Bytes in a second, kept as the time that they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// In 1/1024 picoseconds, so that no rate below 1 TB/s is misstated by a thousandth.
    per_byte: u64,
}

impl Rate {
    /// So many million bytes in a second.
    #[must_use]
    pub const fn megabytes_s(megabytes: u64) -> Rate {
        Rate { per_byte: 1_024_000_000 / megabytes }
    }

    /// The time that `bytes` take.
    #[must_use]
    #[inline]
    pub const fn time(self, bytes: u64) -> u64 {
        (bytes * self.per_byte) >> 10
    }
}

/// Where writes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// To the place that their address says.
    InPlace,
    /// To the next free page, wherever that is.
    Log,
}

/// What makes room in a drive that does not write in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erase {
    /// How long a block's erasure holds its die.
    pub time: Picos,
    /// The programs that fill a block.
    pub programs_between: u32,
}

/// A drive's numbers. [`BlockParameters::of`] has those of the drives that have a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockParameters {
    /// The controller's time for a command, during which it takes no other.
    pub command: Picos,
    /// From there to the media: fetch of the command, look-up.
    pub front: Picos,
    /// From the last byte of a read to its completion.
    pub read_back: Picos,
    /// From the last byte of a write in the buffer to its completion.
    pub write_back: Picos,
    /// The interface, towards the host.
    pub link_read: Rate,
    /// The interface, from the host.
    pub link_write: Rate,
    /// Whether it does both at once.
    pub link_duplex: bool,
    /// Channels, or groups of channels where each unit is spread over several.
    pub channels: u32,
    /// What one of them moves when a die is read.
    pub channel: Rate,
    /// And when it is written.
    pub channel_write: Rate,
    /// Dies, or groups of dies that work as one.
    pub dies: u32,
    /// What a die yields in one read.
    pub page_bytes: u64,
    /// The least that is moved over a channel: what one error-correcting code covers.
    pub codeword_bytes: u64,
    /// The time of a die's read.
    pub read: Picos,
    /// What a die writes at once, on all its planes.
    pub program_bytes: u64,
    /// The time of that.
    pub program: Picos,
    /// What all dies together may program, where power limits it.
    pub program_limit: Option<Rate>,
    /// Erasure, if there is any.
    pub erase: Option<Erase>,
    /// The least that the drive's map tells apart.
    pub mapping_bytes: u64,
    /// Where writes go.
    pub placement: Placement,
    /// Media bytes written for each 100 bytes of random writes, in the steady state.
    pub amplification_percent: u32,
    /// Writes that are complete and not yet on the media.
    pub buffer_bytes: u64,
}

impl BlockParameters {
    /// The numbers of a drive that has a name; none for models of memory.
    #[must_use]
    pub fn of(name: ModelName) -> Option<BlockParameters> {
        super::tables::of(name)
    }

    /// Reads of a die that gather a unit of data worth moving. Of the pages of a block that is
    /// given up only the share 1 - 1/amplification is still wanted.
    pub(super) fn relocation_reads(&self) -> u64 {
        let amplification = u64::from(self.amplification_percent).max(101);
        let pages = self.program_bytes.div_ceil(self.page_bytes);
        (pages * amplification).div_ceil(amplification - 100)
    }

    /// A drive that has been in use for long has blocks in all states.
    pub(super) fn programs_done_at_first(&self, die: u32) -> u32 {
        let between = self.erase.map_or(1, |erase| erase.programs_between.max(1));
        (u64::from(die) * u64::from(between) / u64::from(self.dies.max(1))) as u32
    }
}
