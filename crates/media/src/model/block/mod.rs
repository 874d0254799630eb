//! Model of a drive: completion times of requests in virtual time.
//!
//! ```text
//!  command --> controller --> link --> write buffer --> channel --> die    (write)
//!                         `-----------------------> die --> channel --> link  (read)
//! ```
//!
//! A read needs its die. If the die is programming or erasing just then, the read waits, which
//! makes the tail of a NAND drive. Writes are done once they are in the buffer; they reach the dies
//! when these have nothing to read, or when the buffer is full. Writes in place (3D XPoint) go to
//! the die given by their address; others (NAND) go to the dies in turn, and cause relocations and
//! erases.
//!
//! Requests pass the shared stages (controller, link, channels) in the order of submission: a read
//! that waits long for its die does not hold up later ones.
//!
//! Deliberately not modelled: data of any kind, capacity, wear, temperature, read-ahead, reads from
//! the write buffer.

mod parameters;
mod stage;
mod striped;
mod tables;

use entresol_base::Picos;

use self::stage::{Job, Ps, Stage};
use super::ModelName;
use crate::access::Access;

pub use parameters::{BlockParameters, Erase, Placement, Rate};
pub use striped::{StripedModel, Stripes};

/// Number of write streams that a drive notices; writes beyond count as random.
const STREAMS: usize = 16;

/// A drive. Requests come in the order of time, and complete at the same picosecond on every
/// machine.
#[derive(Debug, Clone)]
pub struct BlockModel {
    parameters: BlockParameters,
    last_at: Ps,
    controller_free_at: Ps,
    link_read_free_at: Ps,
    link_write_free_at: Ps,
    /// Time at which the last write entered the buffer; writes enter it in order.
    admitted_at: Ps,
    channels: Stage,
    dies: Stage,
    /// Stage of all programming together, for drives that are limited by power.
    power: Stage,
    log: Log,
    /// Next offset of each of the newest write streams.
    streams: [u64; STREAMS],
    stream_next: usize,
}

/// Write position of a drive that does not write in place.
#[derive(Debug, Clone)]
struct Log {
    /// Bytes in the open unit, which lies in its die's page register, so to speak.
    filled: u64,
    die: usize,
    /// Relocation owed, in hundredths of bytes.
    owed: u64,
    /// Units since each die's last erase.
    programs: Vec<u32>,
}

impl BlockModel {
    /// Makes an idle drive that has been written to its steady state.
    #[must_use]
    pub fn new(parameters: &BlockParameters) -> BlockModel {
        let p = parameters.clone();
        let dies = p.dies as usize;
        BlockModel {
            last_at: 0,
            controller_free_at: 0,
            link_read_free_at: 0,
            link_write_free_at: 0,
            admitted_at: 0,
            channels: Stage::new(p.channels as usize),
            dies: Stage::new(dies),
            power: Stage::new(1),
            log: Log {
                filled: 0,
                die: 0,
                owed: 0,
                programs: (0..p.dies).map(|die| p.programs_done_at_first(die)).collect(),
            },
            streams: [u64::MAX; STREAMS],
            stream_next: 0,
            parameters: p,
        }
    }

    /// Returns the drive of this name; none for models of memory.
    #[must_use]
    pub fn of(name: ModelName) -> Option<BlockModel> {
        BlockParameters::of(name).map(|parameters| BlockModel::new(&parameters))
    }

    /// Returns the drive's parameters.
    #[must_use]
    pub fn parameters(&self) -> &BlockParameters {
        &self.parameters
    }

    /// Submits a request at `at`, not before the previous one, and returns its completion time.
    pub fn submit(&mut self, at: Picos, access: Access, offset: u64, bytes: u32) -> Picos {
        let last = self.last_at;
        debug_assert!(at.0 >= last, "a request comes at {} ps, after one at {last} ps", at.0);
        self.last_at = self.last_at.max(at.0);
        let p = &self.parameters;
        self.controller_free_at = self.controller_free_at.max(self.last_at) + p.command.0;
        let now = self.controller_free_at + p.front.0;
        let bytes = u64::from(bytes.max(1));
        let done = match access {
            Access::Read => self.read(now, offset, bytes),
            Access::Write => self.write(now, offset, bytes),
        };
        debug_assert!(done >= now, "done at {done} ps, begun at {now} ps");
        Picos(done)
    }

    fn read(&mut self, now: Ps, offset: u64, bytes: u64) -> Ps {
        let p = &self.parameters;
        let link = p.link_read.time(bytes);
        self.link_read_free_at = self.link_read_free_at.max(now) + link;
        let link_end = self.link_read_free_at;
        if !p.link_duplex {
            self.link_write_free_at = self.link_read_free_at;
        }
        let mut media_end = now;
        let end = offset + bytes;
        let mut page = offset / p.page_bytes;
        while page * p.page_bytes < end {
            let from = offset.max(page * p.page_bytes) / p.codeword_bytes;
            let to = end.min((page + 1) * p.page_bytes).div_ceil(p.codeword_bytes);
            let transfer = p.channel.time((to - from) * p.codeword_bytes);
            let die = die_of(p, page);
            let sensed = self.dies.serve(die, now, p.read.0);
            let moved = self.channels.serve(die % p.channels as usize, now, transfer);
            media_end = media_end.max(sensed + (moved - now));
            page += 1;
        }
        // The transfer of the first piece over the link overlaps with nothing, that of the others
        // with the dies.
        let piece = p.link_read.time(bytes.min(p.codeword_bytes));
        let first = p.read.0 + p.channel.time(p.codeword_bytes);
        (media_end + piece).max(link_end + first) + p.read_back.0
    }

    fn write(&mut self, now: Ps, offset: u64, bytes: u64) -> Ps {
        let p = &self.parameters;
        let link = p.link_write.time(bytes);
        self.link_write_free_at = self.link_write_free_at.max(now) + link;
        let arrived = self.link_write_free_at;
        if !p.link_duplex {
            self.link_read_free_at = self.link_write_free_at;
        }
        let follows = self.follows(offset, bytes);
        // The smallest piece that the drive's map can address is written as one.
        let grain = self.parameters.mapping_bytes;
        let first = if follows { offset } else { offset / grain * grain };
        let last = if follows { offset + bytes } else { (offset + bytes).next_multiple_of(grain) };
        if !follows && last - first > bytes {
            self.read_to_merge(now, offset);
        }
        let wait = match self.parameters.placement {
            Placement::InPlace => self.put_in_place(now, first, last),
            Placement::Log => self.put_in_log(now, last - first, follows),
        };
        self.admitted_at = self.admitted_at.max(arrived + wait);
        self.admitted_at + self.parameters.write_back.0
    }

    /// Returns true if a write continues one of the newest streams.
    fn follows(&mut self, offset: u64, bytes: u64) -> bool {
        let end = offset + bytes;
        if let Some(stream) = self.streams.iter_mut().find(|next| **next == offset) {
            *stream = end;
            return true;
        }
        self.streams[self.stream_next] = end;
        self.stream_next = (self.stream_next + 1) % STREAMS;
        false
    }

    /// Reads the rest of a partly written piece before it is written again.
    fn read_to_merge(&mut self, now: Ps, offset: u64) {
        let p = &self.parameters;
        let die = die_of(p, offset / p.page_bytes);
        self.dies.queue(die, now, Job { length: p.read.0, bytes: 0 });
    }

    /// Writes in place, and returns the time for which the first byte waits for room.
    fn put_in_place(&mut self, now: Ps, first: u64, last: u64) -> Ps {
        let unit = self.parameters.program_bytes;
        let mut wait = 0;
        for number in first / unit..last.div_ceil(unit) {
            let die = die_of(&self.parameters, number * unit / self.parameters.page_bytes);
            wait = wait.max(self.program(now, die, unit));
        }
        wait
    }

    fn put_in_log(&mut self, now: Ps, bytes: u64, follows: bool) -> Ps {
        let p = &self.parameters;
        let (unit, dies) = (p.program_bytes, p.dies as usize);
        let owed = if follows { 0 } else { u64::from(p.amplification_percent) - 100 };
        self.log.filled += bytes;
        self.log.owed += owed * bytes;
        let units_owed = self.log.owed / (100 * unit);
        self.log.owed %= 100 * unit;
        let mut wait = 0;
        while self.log.filled >= unit {
            self.log.filled -= unit;
            wait = wait.max(self.append(now, unit));
        }
        for _ in 0..units_owed {
            // Relocated data was read from a block elsewhere, and takes no room in the buffer.
            let from = (self.log.die + dies / 2) % dies;
            let length = self.parameters.relocation_reads() * self.parameters.read.0;
            self.dies.queue(from, now, Job { length, bytes: 0 });
            self.append(now, 0);
        }
        wait
    }

    /// Writes a unit to the next die in turn, and erases a block there once one is full.
    fn append(&mut self, now: Ps, buffered: u64) -> Ps {
        let die = self.log.die;
        self.log.die = (die + 1) % self.parameters.dies as usize;
        let wait = self.program(now, die, buffered);
        if let Some(erase) = self.parameters.erase {
            self.log.programs[die] += 1;
            if self.log.programs[die] >= erase.programs_between {
                self.log.programs[die] = 0;
                self.dies.queue(die, now, Job { length: erase.time.0, bytes: 0 });
            }
        }
        wait
    }

    /// Queues a unit at its channel and die, and returns the time for which it waits for room in
    /// the buffer.
    fn program(&mut self, now: Ps, die: usize, bytes: u64) -> Ps {
        let p = &self.parameters;
        let (unit, limit) = (p.program_bytes, p.buffer_bytes);
        let channel = die % p.channels as usize;
        let transfer = Job { length: p.channel_write.time(unit), bytes };
        let program = Job { length: p.program.0, bytes };
        let power = Job { length: p.program_limit.map_or(0, |rate| rate.time(unit)), bytes };
        let mut room = now;
        for (stage, server, job) in [
            (&mut self.channels, channel, transfer),
            (&mut self.dies, die, program),
            (&mut self.power, 0, power),
        ] {
            if job.length > 0 {
                stage.queue(server, now, job);
                room = room.max(stage.room(now, limit));
            }
        }
        room - now
    }
}

/// Returns the die of a page: successive pages lie on different dies, and each round of the dies
/// begins at another one.
#[inline]
fn die_of(p: &BlockParameters, page: u64) -> usize {
    let dies = u64::from(p.dies);
    let round = page / dies;
    let mixed = (round ^ (round >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    ((page % dies + mixed) % dies) as usize
}

#[cfg(test)]
mod tests;
