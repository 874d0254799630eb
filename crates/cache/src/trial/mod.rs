//! Trials: histories in a simulated world, which the test suites run.
//!
//! A history is a sequence of lives of one cache on one machine. In each life some threads carry
//! out commands, each on keys of its own, while another does the upkeep and the cache's own thread
//! writes segments. A life ends by a clean stop, by the death of the process at any step, or by a
//! power cut; then files may be damaged, and the next life opens what is left. At random steps the
//! media are copied and opened as the death of the process or a power cut would leave them there.
//!
//! A reference model says what may be found: nothing that was replaced, deleted, flushed or has
//! expired, and no other bytes than those that were stored. A lost item is a miss and never wrong.
//! At the end of a life, and in every image, each segment belongs to an item or is free.

use std::fmt;

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_media::{MediumKind, MediumSpec, ModelName};
use entresol_simulated::crash::Report;

use machine::{LARGE_BYTES_MAX, SEGMENTS};

mod act;
#[cfg(test)]
mod kept;
mod life;
mod machine;
mod model;
#[cfg(test)]
mod tests;

/// Keys of a history.
const KEYS: usize = 24;
/// Largest value in bytes that does not lie in pieces, for the most part.
const VALUE_BYTES_MAX: u64 = 24 << 10;

/// Medium of a trial's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// DRAM, beside the keys.
    Dram,
    /// A region that stands in for persistent memory.
    Pmem,
    /// A block file on a simulated disk.
    File,
}

/// End of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A clean stop.
    Stop,
    /// Death of the process, after at least so many steps of the life.
    Kill(u16),
    /// A power cut, after at least so many steps of the life.
    Cut(u16),
}

/// Trouble with the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// None.
    None,
    /// One call in a few fails.
    Failing,
    /// Bits flip in reads and writes, sectors are lost, requests go astray.
    Lying,
    /// The disk has no room for more.
    Full,
}

/// Time that an item has to live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ttl {
    /// The item never expires.
    Never,
    /// Seconds from now.
    Seconds(u32),
    /// Expiry in the past.
    Past,
}

/// Command of a history. A key is given by its number, a value by its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Read; with true the token is read as well.
    Get(u8, bool),
    /// Read that sets a new expiry.
    Touch(u8, Ttl),
    /// Read that creates an empty item if there is none, and competes for a stale one.
    Vivify(u8, Ttl),
    /// Set; with true the new token is told.
    Set(u8, u32, Ttl, bool),
    /// Set of a decimal number.
    SetNumber(u8, u64),
    /// Add.
    Add(u8, u32, Ttl),
    /// Replace.
    Replace(u8, u32, Ttl),
    /// Append, or prepend with true.
    Extend(u8, u32, bool),
    /// Set under the token that was last read.
    Compare(u8, u32),
    /// Increment, or decrement with true.
    Count(u8, u64, bool),
    /// Delete; with true only under the token that was last read.
    Delete(u8, bool),
    /// Meta delete that marks the item stale.
    Invalidate(u8),
    /// Meta delete that keeps the item without its value.
    Empty(u8),
    /// Flush of everything, now or in some seconds.
    Flush(u32),
}

/// Operation of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// Command of a thread.
    Command(u8, Command),
    /// Passage of seconds.
    Sleep(u32),
    /// Change of the medium's quota to so many segments.
    Resize(u8),
    /// Begin or end of trouble with the disk.
    Trouble(Trouble),
    /// End of a life; with the flags the files are damaged and the clock runs back.
    End {
        /// End of the process.
        how: End,
        /// Damage while the process is down.
        damage: bool,
        /// Clock that runs back while the process is down.
        back: bool,
    },
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Command(thread, command) => write!(f, "{thread}: {command:?}"),
            op => write!(f, "{op:?}"),
        }
    }
}

/// Tendencies of a history, drawn from its seed.
#[derive(Debug, Clone, Copy)]
struct Taste {
    /// True if the disk may lie.
    lies: bool,
    /// True for few keys and equal lengths, which make records take each other's places; false for
    /// values that fill segments.
    narrow: bool,
    /// Percent of the drawn ends of lives that come to pass.
    ends_in: u64,
}

/// Parameters of a trial.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Seed that decides everything.
    pub seed: u64,
    /// Medium of values.
    pub kind: Kind,
    /// Model of the medium, whose times its accesses take; without one they take none.
    pub model: Option<ModelName>,
    /// Number of threads that carry out commands.
    pub threads: u8,
    /// Images of the media that are opened in each life.
    pub images: u32,
}

impl Trial {
    /// Returns the usual trial of a seed.
    #[must_use]
    pub fn of(seed: u64) -> Trial {
        let mut rng = Rng::named(seed, "trial");
        let kind = [Kind::Dram, Kind::Pmem, Kind::File][rng.index(3)];
        Trial { seed, kind, model: None, threads: 1 + rng.below(3) as u8, images: 16 }
    }

    /// Returns the usual trial of a seed with its values on a model.
    #[must_use]
    pub fn on(seed: u64, model: ModelName) -> Trial {
        let kind = match MediumSpec::Model(model).kind() {
            MediumKind::Pmem => Kind::Pmem,
            MediumKind::File => Kind::File,
            _ => Kind::Dram,
        };
        Trial { kind, model: Some(model), ..Trial::of(seed) }
    }

    /// Returns the first `len` operations of this seed's history.
    #[must_use]
    pub fn history(&self, len: usize) -> Vec<Op> {
        let mut rng = Rng::named(self.seed, "history");
        let taste =
            Taste { lies: rng.one_in(4), narrow: rng.one_in(2), ends_in: [50, 100][rng.index(2)] };
        (0..len).map(|_| self.op(&mut rng, taste)).collect()
    }

    fn op(&self, rng: &mut Rng, taste: Taste) -> Op {
        match rng.below(100) {
            0 | 1 if rng.below(100) >= taste.ends_in => Op::Sleep(1),
            0 | 1 => {
                let most = 1 << rng.range(5..12);
                let steps = rng.below(most) as u16;
                let how = match rng.below(4) {
                    0 => End::Stop,
                    1 => End::Cut(steps),
                    _ => End::Kill(steps),
                };
                Op::End { how, damage: rng.one_in(3), back: rng.one_in(8) }
            }
            2..5 => Op::Sleep(1 + rng.below(12) as u32),
            5 => Op::Resize((SEGMENTS.0 + rng.below(1 + SEGMENTS.1 - SEGMENTS.0)) as u8),
            6 if self.kind == Kind::File => Op::Trouble(match rng.below(4) {
                0 if taste.lies => Trouble::Lying,
                1 => Trouble::Failing,
                2 => Trouble::Full,
                _ => Trouble::None,
            }),
            _ => {
                let command = draw(rng, taste);
                let owner = command.key().map(|key| key % self.threads);
                let reads = matches!(command, Command::Get(_, false));
                let any = rng.below(self.threads.into()) as u8;
                Op::Command(if reads { any } else { owner.unwrap_or(0) }, command)
            }
        }
    }

    /// Runs the operations and tries crashes throughout.
    ///
    /// # Errors
    /// Returns a text that tells what was found and is not allowed.
    pub fn run(&self, ops: &[Op]) -> Result<Report, String> {
        self.run_until(ops, &Stop::new())
    }

    /// Runs the operations and tries crashes throughout, or until `stop` is due.
    ///
    /// # Errors
    /// Returns a text that tells what was found and is not allowed.
    pub fn run_until(&self, ops: &[Op], stop: &Stop) -> Result<Report, String> {
        life::run(self, ops, stop)
    }
}

impl Command {
    /// Returns the key of the command, if it has one.
    fn key(&self) -> Option<u8> {
        match *self {
            Command::Get(key, _)
            | Command::Touch(key, _)
            | Command::Vivify(key, _)
            | Command::Set(key, ..)
            | Command::SetNumber(key, _)
            | Command::Add(key, ..)
            | Command::Replace(key, ..)
            | Command::Extend(key, ..)
            | Command::Compare(key, _)
            | Command::Count(key, ..)
            | Command::Delete(key, _)
            | Command::Invalidate(key)
            | Command::Empty(key) => Some(key),
            Command::Flush(_) => None,
        }
    }
}

fn draw(rng: &mut Rng, taste: Taste) -> Command {
    // Some keys are used more than others.
    let keys = if taste.narrow && rng.one_in(2) { 4 } else { KEYS as u64 };
    let key = rng.below(keys) as u8;
    let len = match rng.below(5) {
        0 => rng.below(64),
        // Equal lengths let a record take the place of another.
        1 | 2 if taste.narrow => [16, 200, 3_000][rng.index(3)],
        1 => rng.below(2_000),
        3 if rng.one_in(2) => rng.below(LARGE_BYTES_MAX + 1),
        _ => rng.below(VALUE_BYTES_MAX),
    } as u32;
    let ttl = match rng.below(20) {
        0..12 => Ttl::Never,
        12..19 => Ttl::Seconds(1 + rng.below(40) as u32),
        _ => Ttl::Past,
    };
    match rng.below(64) {
        0..13 => Command::Get(key, false),
        13..17 => Command::Get(key, true),
        17..21 => Command::Touch(key, ttl),
        21 | 22 => Command::Vivify(key, ttl),
        23..41 => Command::Set(key, len, ttl, rng.one_in(3)),
        41 => Command::SetNumber(key, rng.below(1_000)),
        42..44 => Command::Add(key, len, ttl),
        44..46 => Command::Replace(key, len, ttl),
        46..49 => Command::Extend(key, len % 3_000, rng.one_in(2)),
        49..53 => Command::Compare(key, len),
        53 | 54 => Command::Count(key, rng.below(2_000), rng.one_in(2)),
        55..60 => Command::Delete(key, rng.one_in(4)),
        60 => Command::Invalidate(key),
        61 => Command::Empty(key),
        _ => Command::Flush(if rng.one_in(2) { 0 } else { 1 + rng.below(20) as u32 }),
    }
}
