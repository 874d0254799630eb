//! Options of a world.

use crate::Picos;

/// Default size of a simulated thread's stack. Only touched pages take memory, and a panic that
/// prints a backtrace needs a good part of it.
pub const STACK_BYTES: usize = 256 << 10;

/// Default number of steps after which a run is taken for a livelock: some minutes of computing.
pub const STEPS_MAX: u64 = 1_000_000_000;

/// Behaviour of a world. Everything random in it follows from `seed`.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// Seed of the run: one seed is one run, bit for bit, on any machine.
    pub seed: u64,
    /// Preemption of threads that do not wait.
    pub preemption: Preemption,
    /// Size of each simulated thread's stack.
    pub stack_bytes: usize,
    /// Number of steps and waits after which the run fails; `None` lets a livelock run for ever.
    pub steps_max: Option<u64>,
    /// Virtual time at which the run fails.
    pub time_max: Option<Picos>,
}

impl Default for WorldOptions {
    fn default() -> Self {
        WorldOptions {
            seed: 0,
            preemption: Preemption::Never,
            stack_bytes: STACK_BYTES,
            steps_max: Some(STEPS_MAX),
            time_max: None,
        }
    }
}

impl WorldOptions {
    /// Default options with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        WorldOptions { seed, ..WorldOptions::default() }
    }
}

/// Preemption of simulated threads that do not wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preemption {
    /// Threads switch only where one waits: the cheapest, for measurements in virtual time.
    Never,
    /// At each step the seed hands the baton on once in this many times on average.
    OneIn(u32),
}
