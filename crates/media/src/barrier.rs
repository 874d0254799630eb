//! An asymmetric fence, one side of which is nearly free: on request of a single thread the kernel
//! makes all threads of the process pass a fence (`membarrier`, as in user-space RCU, Desnoyers et
//! al. 2012).
//!
//! A thread that often stores a flag and then loads data that others may change would need a fence
//! in between each time. With this barrier the threads that rarely read the flags pay instead.
//! Without the kernel's help both sides are fences.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// An asymmetric fence between [`light`](Barrier::light) and [`heavy`](Barrier::heavy).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    is_of_all: bool,
}

impl Barrier {
    /// Returns the cheapest barrier that this machine has. The process is registered once.
    #[must_use]
    pub fn new() -> Barrier {
        static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
        // On other architectures than x86-64 loads must also be kept in order among themselves.
        let is_possible = cfg!(all(target_arch = "x86_64", not(miri)));
        let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Barrier { is_of_all: is_possible && *IS_REGISTERED.get_or_init(register) }
    }

    /// The cheap side: either stores before it are visible to a thread that has passed
    /// [`heavy`](Barrier::heavy), or loads after it see everything that thread stored before.
    #[inline]
    pub fn light(self) {
        if self.is_of_all { compiler_fence(SeqCst) } else { fence(SeqCst) }
    }

    /// The expensive side. Returns false if the kernel refused; nothing is known of other threads'
    /// stores then.
    #[must_use]
    pub fn heavy(self) -> bool {
        fence(SeqCst);
        !self.is_of_all || membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

impl Default for Barrier {
    fn default() -> Barrier {
        Barrier::new()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

    use super::*;

    /// Two threads store, then load the other's value: at least one of them must see it.
    #[test]
    fn one_of_two_sees_the_other() {
        const ROUNDS: u64 = 2000;
        let barrier = Barrier::new();
        let words: Arc<[AtomicU64; 4]> = Arc::default();
        let often = {
            let words = Arc::clone(&words);
            std::thread::spawn(move || {
                let mut seen = Vec::new();
                for round in 1..=ROUNDS {
                    while words[2].load(SeqCst) < round {
                        std::hint::spin_loop();
                    }
                    words[0].store(round, Relaxed);
                    barrier.light();
                    seen.push(words[1].load(Relaxed));
                    words[3].store(round, SeqCst);
                }
                seen
            })
        };
        let mut seen = Vec::new();
        for round in 1..=ROUNDS {
            words[2].store(round, SeqCst);
            words[1].store(round, Relaxed);
            assert!(barrier.heavy());
            seen.push(words[0].load(Relaxed));
            while words[3].load(SeqCst) < round {
                std::hint::spin_loop();
            }
        }
        let other = often.join().expect("no panic");
        for (round, (one, other)) in (1..).zip(seen.into_iter().zip(other)) {
            assert!(one == round || other == round, "in round {round} neither saw the other");
        }
    }
}
