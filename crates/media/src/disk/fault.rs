//! What goes wrong on a simulated disk: faults at a call that is counted, and faults by chance.
//!
//! Every call to the disk has a kind and is counted from the moment its plan was put in, so that a
//! loop over "the first call fails, the second, the third ..." ([`fail_every_call`]) ends when the
//! operation gets through unharmed.

use std::fmt;
use std::io;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;

/// The kinds of calls to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// Bytes of a file are read.
    Read,
    /// Bytes of a file are written.
    Write,
    /// A file's bytes are made durable.
    Sync,
    /// A directory's entries are made durable.
    DirectorySync,
    /// A file gets another name.
    Rename,
    /// A file or directory is made.
    Create,
    /// A file or directory is removed.
    Remove,
    /// A file's length or space changes: lengthen, shorten, allocate, discard.
    Allocate,
    /// A name is looked up, a directory listed, a file opened.
    Look,
}

/// Kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calls(u16);

impl Calls {
    /// All of them.
    pub const ALL: Calls = Calls(u16::MAX);

    /// These.
    #[must_use]
    pub const fn of(calls: &[Call]) -> Calls {
        let mut bits = 0;
        let mut at = 0;
        while at < calls.len() {
            bits |= 1 << calls[at] as u16;
            at += 1;
        }
        Calls(bits)
    }

    /// Whether this kind is among them.
    #[must_use]
    pub const fn contain(self, call: Call) -> bool {
        self.0 & (1 << call as u16) != 0
    }
}

/// What a call that fails says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The device failed (EIO). If a sync says so, the system takes what it was to write for
    /// written; whether any of it was, nobody knows, and a later sync does not change that.
    Io,
    /// There is no room (ENOSPC).
    NoSpace,
    /// A passing condition (EINTR, EAGAIN): the same call may succeed a moment later.
    Transient,
}

impl Failure {
    pub(super) fn error(self) -> io::Error {
        match self {
            Failure::Io => io::Error::other("the device failed (a fault of the simulated disk)"),
            Failure::NoSpace => io::ErrorKind::StorageFull.into(),
            Failure::Transient => io::ErrorKind::Interrupted.into(),
        }
    }
}

/// What goes wrong with a call. What makes no sense for it (a misdirected rename) does nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// It does nothing and says so.
    Fail(Failure),
    /// It stops half-way at a sector: a read answers fewer bytes, a write has written the first
    /// of them and fails.
    Short,
    /// It takes so much longer, in virtual time.
    Slow(Picos),
    /// One bit of what is stored in the range turns over, and stays so: what a read finds, or what
    /// a write leaves.
    Flip,
    /// A write leaves one of its sectors as it was (a stale sector), and says that all is well.
    LoseSector,
    /// A read brings bytes from elsewhere in the file, a write puts them elsewhere; all is well.
    Misdirect,
}

/// Whether a fault happens again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// At one call.
    Once,
    /// At that call and every later one that it fits.
    EverAfter,
}

/// A fault at a certain call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// The calls that count for it.
    pub calls: Calls,
    /// The first of those that it strikes, counted from 1.
    pub nth: u64,
    /// Whether it strikes the later ones as well.
    pub repeat: Repeat,
    /// What it does.
    pub effect: Effect,
}

/// How likely a fault is: one call in so many, never if zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OneIn(pub u32);

/// Faults by chance, of the calls that each can strike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Odds {
    /// Any call fails with [`Failure::Io`].
    pub fail: OneIn,
    /// Any call fails with [`Failure::Transient`].
    pub transient: OneIn,
    /// [`Effect::Short`], of reads and writes.
    pub short: OneIn,
    /// [`Effect::Flip`], of reads and writes.
    pub flip: OneIn,
    /// [`Effect::LoseSector`], of writes.
    pub lose_sector: OneIn,
    /// [`Effect::Misdirect`], of reads and writes.
    pub misdirect: OneIn,
    /// Any call takes up to this much longer.
    pub slow: OneIn,
    /// How much longer a slow call takes at most.
    pub slow_at_most: Picos,
}

/// Everything that is to go wrong on a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FaultPlan {
    /// What chance depends on: the same seed and the same calls give the same faults.
    pub seed: u64,
    /// Faults at certain calls; the first that fits a call strikes.
    pub faults: Vec<Fault>,
    /// Faults by chance, for calls that nothing else strikes.
    pub odds: Odds,
    /// How many bytes all files together may take.
    pub capacity: Option<u64>,
    /// After a failed sync programs read the old content at once, which is what the disk has.
    /// Usually the disk may have either, and they go on reading the new until the machine fails, so
    /// that reading back proves nothing.
    pub forget_on_failed_sync: bool,
}

impl FaultPlan {
    /// A plan of one fault.
    #[must_use]
    pub fn one(fault: Fault) -> FaultPlan {
        FaultPlan { faults: vec![fault], ..FaultPlan::default() }
    }
}

/// A fault that struck.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Struck {
    /// The call's number among all since the plan was put in, from 1.
    pub number: u64,
    /// Its kind.
    pub call: Call,
    /// The file or directory.
    pub path: String,
    /// What happened.
    pub effect: Effect,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Struck { number, call, path, effect } = self;
        write!(f, "call {number} ({call:?} of {path}): {effect:?}")
    }
}

/// The most faults that are remembered one by one.
const STRUCK_MAX: usize = 1000;

/// A plan that is being carried out.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) plan: FaultPlan,
    calls: u64,
    /// How many calls have counted for each of the plan's faults.
    counted: Vec<u64>,
    struck: Vec<Struck>,
    struck_count: u64,
    rng: Rng,
}

impl Faults {
    pub(super) fn new(plan: FaultPlan) -> Faults {
        let (rng, counted) = (Rng::named(plan.seed, "disk-faults"), vec![0; plan.faults.len()]);
        Faults { plan, calls: 0, counted, struck: Vec::new(), struck_count: 0, rng }
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls
    }

    pub(super) fn struck(&self) -> &[Struck] {
        &self.struck
    }

    pub(super) fn struck_count(&self) -> u64 {
        self.struck_count
    }

    /// Counts a call and says what goes wrong with it.
    pub(super) fn strike(&mut self, call: Call, path: impl FnOnce() -> String) -> Option<Effect> {
        self.calls += 1;
        let mut effect = None;
        for (fault, counted) in self.plan.faults.iter().zip(&mut self.counted) {
            if !fault.calls.contain(call) {
                continue;
            }
            *counted += 1;
            let due = match fault.repeat {
                Repeat::Once => *counted == fault.nth,
                Repeat::EverAfter => *counted >= fault.nth,
            };
            if due && effect.is_none() {
                effect = Some(fault.effect);
            }
        }
        let effect = effect.or_else(|| self.by_chance(call))?;
        self.struck_count += 1;
        if self.struck.len() < STRUCK_MAX {
            self.struck.push(Struck { number: self.calls, call, path: path(), effect });
        }
        Some(effect)
    }

    fn by_chance(&mut self, call: Call) -> Option<Effect> {
        let odds = self.plan.odds;
        if odds == Odds::default() {
            return None;
        }
        let moves = matches!(call, Call::Read | Call::Write);
        let slow = Picos(self.rng.below(odds.slow_at_most.0));
        let chances = [
            (odds.fail, true, Effect::Fail(Failure::Io)),
            (odds.transient, true, Effect::Fail(Failure::Transient)),
            (odds.short, moves, Effect::Short),
            (odds.flip, moves, Effect::Flip),
            (odds.lose_sector, call == Call::Write, Effect::LoseSector),
            (odds.misdirect, moves, Effect::Misdirect),
            (odds.slow, true, Effect::Slow(slow)),
        ];
        // Every chance is drawn for every call: one that is turned off does not move the others.
        let mut struck = None;
        for (OneIn(calls), fits, effect) in chances {
            let drawn = calls > 0 && self.rng.one_in(calls);
            if drawn && fits && struck.is_none() {
                struck = Some(effect);
            }
        }
        struck
    }

    /// Something below `end`, by chance.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.rng.below(end)
    }
}

/// The most calls of one operation that [`fail_every_call`] strikes.
const CALLS_MAX: u64 = 1_000_000;

/// Why a countdown over an operation's calls ended early.
#[derive(Debug, thiserror::Error)]
pub enum CountdownError<E> {
    /// The attempt itself found something wrong.
    #[error("with {fault:?}: {error}")]
    Found {
        /// The fault that was planned.
        fault: Fault,
        /// What was found.
        error: E,
    },
    /// The operation makes more calls each time, or never comes through.
    #[error("the operation did not come through unharmed in a million attempts")]
    Endless,
}

/// Tries an operation with its first call of these kinds struck, then the second, and so on until
/// it comes through unharmed; once with that one call struck and once with all later ones as well.
/// An attempt makes everything anew, puts the plan in when the operation begins, checks what it
/// left, and answers how many faults struck. Returns how many attempts were struck.
///
/// # Errors
/// The first error of an attempt, with the fault that led to it.
pub fn fail_every_call<E>(
    calls: Calls,
    effect: Effect,
    mut attempt: impl FnMut(FaultPlan) -> Result<u64, E>,
) -> Result<u64, CountdownError<E>> {
    let mut attempts = 0;
    for repeat in [Repeat::Once, Repeat::EverAfter] {
        for nth in 1.. {
            if nth > CALLS_MAX {
                return Err(CountdownError::Endless);
            }
            let fault = Fault { calls, nth, repeat, effect };
            let struck = attempt(FaultPlan::one(fault))
                .map_err(|error| CountdownError::Found { fault, error })?;
            if struck == 0 {
                break;
            }
            attempts += 1;
        }
    }
    Ok(attempts)
}
