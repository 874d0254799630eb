//! Failures of a world's run.

use crate::Picos;

/// Reason for which a world stopped before all its threads were done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WorldFailure {
    /// Threads are left, none can go on and no time will wake one: a deadlock or a lost wake-up.
    #[error("deadlock: no thread can go on\n{report}")]
    Deadlock {
        /// Wait of each thread, its place, and the locks held.
        report: String,
    },
    /// A simulated thread panicked.
    #[error("simulated thread {thread:?} panicked: {message}")]
    Panic {
        /// Name of the thread.
        thread: String,
        /// Message of the panic.
        message: String,
    },
    /// A simulated thread overflowed its stack. Its destructors did not run: do not go on using the
    /// process after this.
    #[error("simulated thread {thread:?} has overflowed its stack of {stack_bytes} bytes")]
    StackOverflow {
        /// Name of the thread.
        thread: String,
        /// Size of its stack.
        stack_bytes: usize,
    },
    /// A crash test called [`World::crash`](super::World::crash).
    #[error("the world crashed, as it was asked to")]
    Crashed,
    /// A limit of [`WorldOptions`](super::WorldOptions), or of all worlds, was reached.
    #[error("{limit}\n{report}")]
    Limit {
        /// Limit that was reached.
        limit: Limit,
        /// Activity of each thread.
        report: String,
    },
}

/// A limit that stopped a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Limit {
    /// Limit of [`WorldOptions::steps_max`](super::WorldOptions::steps_max).
    #[error("the world was still busy after {0} steps: a livelock, or steps_max is too low")]
    Steps(u64),
    /// Limit of [`WorldOptions::time_max`](super::WorldOptions::time_max).
    #[error("the world was still busy at {0} of virtual time: time_max is reached")]
    Time(Picos),
    /// Remaining wake-ups all lie beyond the end of virtual time, like the end of a sleep of a
    /// year.
    #[error("virtual time ends after 213 days, and the next wake-up would come later")]
    EndOfTime,
}
