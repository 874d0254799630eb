//! Faults of a simulated disk: at a counted call, and by chance.
//!
//! Every call to the disk has a kind and is counted from the start of its plan, so that a loop over
//! "the first call fails, the second, the third ..." ([`fail_every_call`]) ends when the operation
//! completes without a fault.

use std::fmt;
use std::io;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;

/// Kind of call to a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// Reads bytes of a file.
    Read,
    /// Writes bytes of a file.
    Write,
    /// Makes a file's bytes durable.
    Sync,
    /// Makes a directory's entries durable.
    DirectorySync,
    /// Renames a file.
    Rename,
    /// Makes a file or directory.
    Create,
    /// Removes a file or directory.
    Remove,
    /// Changes a file's length or space: lengthens, shortens, allocates, discards.
    Allocate,
    /// Looks up a name, lists a directory, opens a file.
    Look,
}

/// A set of kinds of calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Calls(u16);

impl Calls {
    /// All kinds.
    pub const ALL: Calls = Calls(u16::MAX);

    /// Makes a set of these kinds.
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

    /// Returns true if the set has this kind.
    #[must_use]
    pub const fn contain(self, call: Call) -> bool {
        self.0 & (1 << call as u16) != 0
    }
}

/// Error of a call that fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Failure {
    /// The device failed (EIO). After such a sync the kernel takes its dirty data for written; it
    /// is unknown if any of it was, and a later sync does not change that.
    Io,
    /// The disk has no room (ENOSPC).
    NoSpace,
    /// A quota is used up (EDQUOT).
    Quota,
    /// A passing condition (EINTR, EAGAIN): the call may succeed when repeated.
    Transient,
    /// The process has as many files open as it may (EMFILE).
    Descriptors,
}

/// Number of EMFILE, by which alone it is told from other errors.
const EMFILE: i32 = 24;

impl Failure {
    pub(super) fn error(self) -> io::Error {
        match self {
            Failure::Io => io::Error::other("the device failed (a fault of the simulated disk)"),
            Failure::NoSpace => io::ErrorKind::StorageFull.into(),
            Failure::Quota => io::ErrorKind::QuotaExceeded.into(),
            Failure::Transient => io::ErrorKind::Interrupted.into(),
            Failure::Descriptors => io::Error::from_raw_os_error(EMFILE),
        }
    }
}

/// Effect of a fault on a call. An effect that makes no sense for the call (a misdirected rename)
/// is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// The call does nothing and returns this error.
    Fail(Failure),
    /// The call stops half-way at a sector: a read returns fewer bytes, a write stores the first
    /// ones and fails.
    Short,
    /// The call takes this much longer, in virtual time.
    Slow(Picos),
    /// One bit of the stored range flips, for good: before a read, or after a write.
    Flip,
    /// A write leaves one of its sectors unchanged (a stale sector), and reports success.
    LoseSector,
    /// A read returns bytes from elsewhere in the file, a write stores them elsewhere, and reports
    /// success.
    Misdirect,
}

/// Repetition of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Repeat {
    /// Once, at that call.
    Once,
    /// Repeated at every later matching call as well.
    EverAfter,
}

/// A fault at a certain call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fault {
    /// Calls that count for it.
    pub calls: Calls,
    /// Number of the first such call that it strikes, from 1.
    pub nth: u64,
    /// Repetition at later calls.
    pub repeat: Repeat,
    /// Its effect.
    pub effect: Effect,
}

/// Probability of a fault: one call in this many, never if zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct OneIn(pub u32);

/// Probabilities of faults, each for the calls that it can strike.
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
    /// Maximum delay of a slow call.
    pub slow_at_most: Picos,
}

/// All faults planned for a disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct FaultPlan {
    /// Seed of the random faults: equal calls get equal faults.
    pub seed: u64,
    /// Faults at certain calls; the first that matches a call strikes.
    pub faults: Vec<Fault>,
    /// Random faults, for calls that no other fault strikes.
    pub odds: Odds,
    /// Maximum bytes of all files together.
    pub capacity: Option<u64>,
    /// True if programs read the old content, which the disk has, right after a failed sync.
    /// Otherwise the disk may have either, and programs go on reading the new content until the
    /// machine fails, so that reading back proves nothing.
    pub forget_on_failed_sync: bool,
}

impl FaultPlan {
    /// Makes a plan of one fault.
    #[must_use]
    pub fn one(fault: Fault) -> FaultPlan {
        FaultPlan { faults: vec![fault], ..FaultPlan::default() }
    }
}

/// A fault that was injected.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Struck {
    /// Number of the call under its plan, from 1.
    pub number: u64,
    /// Kind of the call.
    pub call: Call,
    /// File or directory of the call.
    pub path: String,
    /// Effect of the fault.
    pub effect: Effect,
}

impl fmt::Display for Struck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Struck { number, call, path, effect } = self;
        write!(f, "call {number} ({call:?} of {path}): {effect:?}")
    }
}

/// Maximum number of faults that are recorded.
const STRUCK_MAX: usize = 1000;

/// A plan being carried out.
#[derive(Debug)]
pub(super) struct Faults {
    pub(super) plan: FaultPlan,
    calls: u64,
    /// Number of calls that have counted for each of the plan's faults.
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

    /// Counts a call, and returns the fault to inject.
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
        // Every chance is drawn for every call, so that turning one off does not change the others.
        let mut struck = None;
        for (OneIn(calls), fits, effect) in chances {
            let drawn = calls > 0 && self.rng.one_in(calls);
            if drawn && fits && struck.is_none() {
                struck = Some(effect);
            }
        }
        struck
    }

    /// Draws a number below `end`.
    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.rng.below(end)
    }
}

/// Maximum number of calls of one operation that [`fail_every_call`] strikes.
const CALLS_MAX: u64 = 1_000_000;

/// Reason why a countdown over an operation's calls ended early.
#[derive(Debug, thiserror::Error)]
pub enum CountdownError<E> {
    /// The attempt itself failed its check.
    #[error("with {fault:?}: {error}")]
    Found {
        /// Planned fault.
        fault: Fault,
        /// Error of the attempt.
        error: E,
    },
    /// The operation makes more calls each time, or never completes.
    #[error("the operation did not complete without a fault in a million attempts")]
    Endless,
}

/// Tries an operation with its first call of these kinds struck, then the second, and so on until
/// it completes without a fault; first with that one call struck, then with all later ones as well.
/// An attempt sets everything up anew, installs the plan when the operation begins, checks the
/// result, and returns how many faults were injected. Returns the number of attempts with faults.
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
