//! Stage that all threads of a run share: where the server is, what it is asked to bear now, and
//! the first failure.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use entresol_base::{Clock, Nanos, SystemClock};

/// Time between two looks at something that is waited for.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A life of the server: from its start to the signal that ends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Life {
    pub(super) number: u64,
    /// Addresses of the tenants, in the order of [`super::TENANTS`].
    pub(super) addresses: [SocketAddr; 2],
}

/// State that the threads share.
#[derive(Default)]
pub(super) struct Stage {
    clock: SystemClock,
    life: Mutex<Option<Life>>,
    is_calm: AtomicBool,
    has_ended: AtomicBool,
    /// Threads of trouble that rest since it is calm.
    resting: AtomicU64,
    failure: Mutex<Option<String>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    pub(super) fn now(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the server's life, unless it is being stopped or started.
    pub(super) fn life(&self) -> Option<Life> {
        *locked(&self.life)
    }

    /// Returns true if the server has not been asked to stop since it began `life`.
    pub(super) fn lasts(&self, life: Life) -> bool {
        self.life() == Some(life)
    }

    pub(super) fn set_life(&self, life: Option<Life>) {
        *locked(&self.life) = life;
    }

    /// Keeps the first failure and ends the run.
    pub(super) fn fail(&self, what: String) {
        locked(&self.failure).get_or_insert(what);
        self.end();
    }

    pub(super) fn failure(&self) -> Option<String> {
        locked(&self.failure).clone()
    }

    pub(super) fn end(&self) {
        self.has_ended.store(true, Ordering::Release);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.load(Ordering::Acquire)
    }

    /// Asks all trouble to cease, or to go on.
    pub(super) fn set_calm(&self, calm: bool) {
        self.is_calm.store(calm, Ordering::Release);
    }

    pub(super) fn is_calm(&self) -> bool {
        self.is_calm.load(Ordering::Acquire)
    }

    /// Waits as a thread of trouble that has let go of its connections, until it is calm no more.
    pub(super) fn rest(&self) {
        self.resting.fetch_add(1, Ordering::AcqRel);
        while self.is_calm() && !self.has_ended() {
            std::thread::sleep(LOOK_EVERY);
        }
        self.resting.fetch_sub(1, Ordering::AcqRel);
    }

    pub(super) fn resting(&self) -> u64 {
        self.resting.load(Ordering::Acquire)
    }

    /// Waits until `condition` holds.
    ///
    /// # Errors
    /// Says that `what` has not come about within a time that is long for any machine.
    pub(super) fn wait_for(
        &self,
        what: &str,
        mut condition: impl FnMut() -> Result<bool, String>,
    ) -> Result<(), String> {
        const LONGEST: Duration = Duration::from_secs(60);
        let began = self.now();
        while !condition()? {
            if self.now().since(began) > LONGEST {
                return Err(format!("not within {} s: {what}", LONGEST.as_secs()));
            }
            std::thread::sleep(LOOK_EVERY);
        }
        Ok(())
    }
}
