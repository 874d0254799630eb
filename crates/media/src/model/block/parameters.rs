//! Parameters of a drive.

use entresol_base::Picos;

use crate::model::ModelName;

/// A transfer rate, kept as the time that a byte takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// Time of a byte in 1/1024 picoseconds: rates up to 1 TB/s are exact to a thousandth.
    per_byte: u64,
}

impl Rate {
    /// Makes a rate of this many million bytes in a second.
    #[must_use]
    pub const fn megabytes_s(megabytes: u64) -> Rate {
        Rate { per_byte: 1_024_000_000 / megabytes }
    }

    /// Returns the time that `bytes` take.
    #[must_use]
    #[inline]
    pub const fn time(self, bytes: u64) -> u64 {
        (bytes * self.per_byte) >> 10
    }
}

/// Destination of writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// The place given by their address.
    InPlace,
    /// The next free page, wherever that is.
    Log,
}

/// Erasure of blocks in a drive that does not write in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erase {
    /// Time for which erasing a block holds its die.
    pub time: Picos,
    /// Number of programs that fill a block.
    pub programs_between: u32,
}

/// Parameters of a drive. [`BlockParameters::of`] has those of named drives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockParameters {
    /// Time of the controller for a command, during which it takes no other.
    pub command: Picos,
    /// Time from there to the media: fetch of the command, look-up.
    pub front: Picos,
    /// Time from the last byte of a read to its completion.
    pub read_back: Picos,
    /// Time from the last byte of a write in the buffer to its completion.
    pub write_back: Picos,
    /// Rate of the interface towards the host.
    pub link_read: Rate,
    /// Rate of the interface from the host.
    pub link_write: Rate,
    /// True if the interface can do both at once.
    pub link_duplex: bool,
    /// Number of channels, or groups of channels if each unit is spread over several.
    pub channels: u32,
    /// Rate of one channel when a die is read.
    pub channel: Rate,
    /// Rate of one channel when a die is written.
    pub channel_write: Rate,
    /// Number of dies, or groups of dies that work as one.
    pub dies: u32,
    /// Bytes that a die returns in one read.
    pub page_bytes: u64,
    /// Minimum transfer over a channel: the bytes covered by one error-correcting code.
    pub codeword_bytes: u64,
    /// Time of a die's read.
    pub read: Picos,
    /// Bytes that a die programs at once, on all its planes.
    pub program_bytes: u64,
    /// Time of one program.
    pub program: Picos,
    /// Rate of programming of all dies together, if power limits it.
    pub program_limit: Option<Rate>,
    /// Erasure, if the drive needs any.
    pub erase: Option<Erase>,
    /// Granularity of the drive's map.
    pub mapping_bytes: u64,
    /// Destination of writes.
    pub placement: Placement,
    /// Media bytes written for each 100 bytes of random writes, in the steady state.
    pub amplification_percent: u32,
    /// Bytes of completed writes that need not be on the media yet.
    pub buffer_bytes: u64,
}

impl BlockParameters {
    /// Returns the parameters of a named drive; none for models of memory.
    #[must_use]
    pub fn of(name: ModelName) -> Option<BlockParameters> {
        super::tables::of(name)
    }

    /// Returns the number of die reads that gather one unit of data to relocate. Of the pages of a
    /// reclaimed block only the share 1 - 1/amplification is still valid.
    pub(super) fn relocation_reads(&self) -> u64 {
        let amplification = u64::from(self.amplification_percent).max(101);
        let pages = self.program_bytes.div_ceil(self.page_bytes);
        (pages * amplification).div_ceil(amplification - 100)
    }

    /// Returns a die's initial count of programs: a drive long in use has blocks in all states.
    pub(super) fn programs_done_at_first(&self, die: u32) -> u32 {
        let between = self.erase.map_or(1, |erase| erase.programs_between.max(1));
        (u64::from(die) * u64::from(between) / u64::from(self.dies.max(1))) as u32
    }
}
