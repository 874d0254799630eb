//! Latches: locks of nodes, in DRAM, so that they cost the medium nothing and a crash leaves none
//! behind.
//!
//! Nodes share latches by their offsets, so two nodes may have one latch. A thread therefore holds
//! one latch at a time, unless it takes two in one call. Each latch counts the changes made under
//! it, so that readers, which take none, can detect writes during their read (a sequence lock).

use std::sync::atomic::{
    AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release, fence,
};

use entresol_base::thread;

/// A power of two, so that a latch is found by a mask.
const STRIPES: usize = 1024;

/// Number of looks at a held latch after which the waiting thread yields.
const LOOKS: u32 = 64;

/// The latches of an index's nodes.
#[derive(Debug)]
pub(crate) struct Latches(Box<[Stripe]>);

/// Number of changes, odd while the latch is held.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Stripe(AtomicU64);

/// A held latch; dropping it counts one change.
#[derive(Debug)]
#[must_use = "the node is latched as long as this lives"]
pub(crate) struct Latched<'a>(&'a Stripe);

/// Count of a latch when a reader began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seen(u64);

impl Latches {
    pub(crate) fn new() -> Latches {
        Latches((0..STRIPES).map(|_| Stripe::default()).collect())
    }

    /// Returns the bytes of all latches.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }

    /// Returns the number of a node's latch. Offsets of nodes are multiples of 64; neighbours get
    /// different latches.
    #[inline]
    fn number(node: u64) -> usize {
        (node / 64).wrapping_mul(0x9E37_79B9_7F4A_7C15) as usize >> 20 & (STRIPES - 1)
    }

    #[inline]
    fn of(&self, node: u64) -> &Stripe {
        &self.0[Latches::number(node)]
    }

    /// Waits for the latches of two nodes, which may be one, and takes them. All threads take two
    /// latches in one order, so that there is no deadlock.
    pub(crate) fn lock_both(&self, one: u64, other: u64) -> [Option<Latched<'_>>; 2] {
        let (first, second) = match Latches::number(one) <= Latches::number(other) {
            true => (one, other),
            false => (other, one),
        };
        let is_same = Latches::number(first) == Latches::number(second);
        [Some(self.lock(first)), (!is_same).then(|| self.lock(second))]
    }

    /// Waits for the latch of a node, and takes it.
    #[inline]
    pub(crate) fn lock(&self, node: u64) -> Latched<'_> {
        let stripe = self.of(node);
        loop {
            let seen = Latches::settled(stripe);
            let taken = stripe.0.compare_exchange_weak(seen, seen + 1, Acquire, Relaxed);
            if taken.is_ok() {
                // Writes under the latch must not become visible before the latch is held.
                fence(Release);
                return Latched(stripe);
            }
        }
    }

    /// Takes the latch of a node if nothing was written under it since `seen`.
    #[inline]
    pub(crate) fn lock_unchanged(&self, node: u64, seen: Seen) -> Option<Latched<'_>> {
        let stripe = self.of(node);
        debug_assert!(seen.0 & 1 == 0, "a latch was looked at while it counted {}", seen.0);
        stripe.0.compare_exchange(seen.0, seen.0 + 1, Acquire, Relaxed).ok()?;
        fence(Release);
        Some(Latched(stripe))
    }

    /// Waits until no thread writes to a node, and begins to read it.
    #[inline]
    pub(crate) fn read(&self, node: u64) -> Seen {
        Seen(Latches::settled(self.of(node)))
    }

    /// Returns true if no write interfered with reads of a node since `seen`.
    #[inline]
    pub(crate) fn is_unchanged(&self, node: u64, seen: Seen) -> bool {
        fence(Acquire);
        self.of(node).0.load(Relaxed) == seen.0
    }

    #[inline]
    fn settled(stripe: &Stripe) -> u64 {
        let mut looks = 0;
        loop {
            let seen = stripe.0.load(Acquire);
            if seen & 1 == 0 {
                return seen;
            }
            looks += 1;
            if looks < LOOKS { std::hint::spin_loop() } else { thread::yield_now() }
        }
    }
}

impl Drop for Latched<'_> {
    #[inline]
    fn drop(&mut self) {
        // No other thread changes it while it is held.
        let held = self.0.0.load(Relaxed);
        debug_assert!(held & 1 == 1, "a latch that counts {held} is given back, and is free");
        self.0.0.store(held + 1, Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use entresol_base::world::{Preemption, World, WorldOptions};

    use super::*;

    /// Two words that are always equal except during a write.
    #[test]
    fn readers_tell_halves_of_a_change() {
        for seed in 0..20 {
            let preemption = Preemption::OneIn(2);
            let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(seed) });
            let ran = world.run(|| {
                let latches = Arc::new(Latches::new());
                let words: Arc<[AtomicU64; 2]> = Arc::default();
                let writer = |number: u64| {
                    let (latches, words) = (latches.clone(), words.clone());
                    thread::spawn("writer", move || {
                        for value in 0..10u64 {
                            let _held = latches.lock(64);
                            words[0].store(value * 2 + number, Relaxed);
                            thread::step();
                            words[1].store(value * 2 + number, Relaxed);
                        }
                    })
                };
                let writers = [writer(0), writer(1)];
                let mut whole = 0;
                while whole < 10 {
                    let seen = latches.read(64);
                    let first = words[0].load(Relaxed);
                    thread::step();
                    let second = words[1].load(Relaxed);
                    if latches.is_unchanged(64, seen) {
                        assert_eq!(first, second);
                        whole += 1;
                    }
                    thread::step();
                }
                writers.into_iter().for_each(|writer| writer.join().expect("no panic"));
            });
            ran.expect("the world ends");
        }
    }
}
