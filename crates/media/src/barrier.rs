//! A fence of which one side is nearly free: the system makes all threads of the process pass one
//! when a single thread asks for it (`membarrier`, as in user-space RCU, Desnoyers et al. 2012).
//!
//! Who does something often, and says so by a store before it looks at what others may change,
//! would need a fence in between each time. It may leave that to those who rarely want to know.
//! Without the system's help both sides are fences.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, compiler_fence, fence};

use rustix::thread::{MembarrierCommand, membarrier};

/// See the head of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Barrier {
    is_of_all: bool,
}

impl Barrier {
    /// The best that there is here. The process is registered once.
    #[must_use]
    pub fn new() -> Barrier {
        static IS_REGISTERED: OnceLock<bool> = OnceLock::new();
        // Elsewhere than on x86-64 loads also need to be kept in order among themselves.
        let is_possible = cfg!(all(target_arch = "x86_64", not(miri)));
        let register = || membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok();
        Barrier { is_of_all: is_possible && *IS_REGISTERED.get_or_init(register) }
    }

    /// The side of those who do it often: what was stored before it is seen by whoever passed
    /// [`heavy`](Barrier::heavy), or what is loaded behind it sees all that was stored before that.
    #[inline]
    pub fn light(self) {
        if self.is_of_all { compiler_fence(SeqCst) } else { fence(SeqCst) }
    }

    /// The other side. False if the system refused, which says nothing of what others stored.
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

    /// Two threads store and look at what the other stored: never do both miss it.
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
