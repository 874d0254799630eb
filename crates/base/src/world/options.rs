//! What a world is made with.

use crate::Picos;

/// The stack of a simulated thread unless another size is asked for. Only pages that are touched
/// take memory, and a panic that prints a backtrace needs a good part of it.
pub const STACK_BYTES: usize = 256 << 10;

/// The steps after which a run is taken for a livelock unless another number is asked for: some
/// minutes of computing.
pub const STEPS_MAX: u64 = 1_000_000_000;

/// How a world behaves. Everything random in it follows from `seed`.
#[derive(Debug, Clone)]
pub struct WorldOptions {
    /// One seed is one run, bit for bit, on any machine.
    pub seed: u64,
    /// Whether a thread can lose the processor without waiting for anything.
    pub preemption: Preemption,
    /// The stack of each simulated thread.
    pub stack_bytes: usize,
    /// The run fails after so many steps and waits; `None` lets a livelock run for ever.
    pub steps_max: Option<u64>,
    /// The run fails when virtual time reaches this.
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
    /// The usual options with this seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        WorldOptions { seed, ..WorldOptions::default() }
    }
}

/// Whether a simulated thread can lose the processor without waiting for anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Preemption {
    /// Threads switch only where one waits: the cheapest, for measurements in virtual time.
    Never,
    /// At each step the seed hands the baton on once in so many times on average.
    OneIn(u32),
}
