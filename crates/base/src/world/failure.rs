//! How the run of a world can end other than well.

use crate::Picos;

/// Why a world stopped before all its threads were done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldFailure {
    /// Threads are left, none can go on and no time will wake one: a deadlock or a lost wake-up.
    #[error("deadlock: no thread can go on\n{report}")]
    Deadlock {
        /// What each thread waits for, where it began to, and what it holds.
        report: String,
    },
    /// A simulated thread panicked.
    #[error("simulated thread {thread:?} panicked: {message}")]
    Panic {
        /// The name of the thread.
        thread: String,
        /// What it said.
        message: String,
    },
    /// A simulated thread used more stack than there is. Its destructors did not run: treat the
    /// process as spent once this was reported.
    #[error("simulated thread {thread:?} has overflowed its stack of {stack_bytes} bytes")]
    StackOverflow {
        /// The name of the thread.
        thread: String,
        /// The size it had.
        stack_bytes: usize,
    },
    /// [`World::crash`](super::World::crash) was called: what a crash test asked for.
    #[error("the world crashed, as it was asked to")]
    Crashed,
    /// A limit of [`WorldOptions`](super::WorldOptions), or of worlds as such, was reached.
    #[error("{limit}\n{report}")]
    Limit {
        /// Which one.
        limit: Limit,
        /// What each thread was doing.
        report: String,
    },
}

/// A limit that stopped a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// `steps_max`.
    #[error("the world was still busy after {0} steps: a livelock, or steps_max is too low")]
    Steps(u64),
    /// `time_max`.
    #[error("the world was still busy at {0} of virtual time: time_max is reached")]
    Time(Picos),
    /// All that is left comes when virtual time is over, as does the end of a sleep of a year.
    #[error("virtual time ends after 213 days, and the next wake-up would come later")]
    EndOfTime,
}
