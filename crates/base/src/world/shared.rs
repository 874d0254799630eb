//! State of a world that all its handles may read at any time: options, clock and counters.
//!
//! They are atomics only to be shared without unsafe code; one operating-system thread writes them.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use super::options::{Preemption, WorldOptions};
use crate::Picos;
use crate::rng::Rng;

pub(super) struct Shared {
    pub(super) options: WorldOptions,
    now: AtomicU64,
    steps: AtomicU64,
    /// Number of the step that must look closer, because it is preempted or a limit is reached.
    look_at: AtomicU64,
    fingerprint: AtomicU64,
    runs: AtomicU64,
    running: AtomicBool,
    crashed: AtomicBool,
}

impl Shared {
    pub(super) fn new(options: WorldOptions) -> Shared {
        Shared {
            options,
            now: AtomicU64::new(0),
            steps: AtomicU64::new(0),
            look_at: AtomicU64::new(0),
            fingerprint: AtomicU64::new(0),
            runs: AtomicU64::new(0),
            running: AtomicBool::new(false),
            crashed: AtomicBool::new(false),
        }
    }

    #[inline]
    pub(super) fn now(&self) -> Picos {
        Picos(self.now.load(Relaxed))
    }

    #[inline]
    pub(super) fn set_now(&self, now: Picos) {
        self.now.store(now.0, Relaxed);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.load(Relaxed)
    }

    /// Counts a step; returns true if it must look closer.
    #[inline]
    pub(super) fn step(&self) -> bool {
        let steps = self.steps.load(Relaxed) + 1;
        self.steps.store(steps, Relaxed);
        steps >= self.look_at.load(Relaxed)
    }

    /// Counts a step that may switch anyway. Returns the limit if it is passed.
    pub(super) fn count_step(&self) -> Option<u64> {
        self.step();
        self.steps_max_passed()
    }

    pub(super) fn steps_max_passed(&self) -> Option<u64> {
        self.options.steps_max.filter(|steps_max| self.steps() > *steps_max)
    }

    /// Draws the step at which the running thread loses the processor.
    pub(super) fn draw_preemption(&self, random: &mut Rng) {
        let limit = self.options.steps_max.map_or(u64::MAX, |steps_max| steps_max + 1);
        let preempted = match self.options.preemption {
            Preemption::Never => u64::MAX,
            Preemption::OneIn(n) => self.steps() + random.range(1..2 * u64::from(n.max(1))),
        };
        self.look_at.store(preempted.min(limit), Relaxed);
    }

    pub(super) fn look_at_every_step(&self) {
        self.look_at.store(0, Relaxed);
    }

    /// Mixes an event into the fingerprint of the run.
    #[inline]
    pub(super) fn mix(&self, word: u64) {
        let mixed = (self.fingerprint.load(Relaxed) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.fingerprint.store(mixed ^ (mixed >> 32), Relaxed);
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.fingerprint.load(Relaxed)
    }

    /// Number of this run of the world, from 0.
    pub(super) fn begin_run(&self) -> u64 {
        assert!(!self.running.swap(true, Relaxed), "this world is running already");
        self.runs.fetch_add(1, Relaxed)
    }

    pub(super) fn end_run(&self) {
        self.running.store(false, Relaxed);
    }

    pub(super) fn crashed(&self) -> bool {
        self.crashed.load(Relaxed)
    }

    pub(super) fn set_crashed(&self) {
        self.crashed.store(true, Relaxed);
    }
}
