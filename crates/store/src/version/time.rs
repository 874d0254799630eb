//! Time of a store, which never goes back.
//!
//! Expired keys must stay expired if the clock is set back. So the store's time is at least the
//! latest that it has seen, and while the clock is behind that, it advances as monotonic time does.
//! One wrong reading, however far ahead, thus costs what had not expired until then, but values
//! that are written later expire when they should. How far the store's time is ahead of the clock
//! is saved with it, so that it also advances while the store is closed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::{Clock, Nanos, Seconds};

use crate::types::Expiry;

/// Latest reading that is believed, in the year 2097. A later one would leave no room for a time to
/// live.
const SECONDS_MAX: u32 = u32::MAX - (1 << 28);
const NANOS_PER_SECOND: u64 = 1_000_000_000;

/// Clock of a store, and the latest time that it has seen.
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    /// Latest time that the store has seen.
    seconds: AtomicU32,
    /// Monotonic time at which that was so, in nanoseconds.
    seen: AtomicU64,
    /// Held while the time advances although the clock is behind it.
    advancing: Mutex<()>,
}

impl StoreTime {
    /// Creates the time of a store that has seen these seconds, when they were so many ahead of the
    /// clock.
    pub(crate) fn new(clock: Arc<dyn Clock>, seconds: u32, ahead: u32) -> StoreTime {
        let now = believed(&*clock);
        // A clock that is not behind was wrong when it was compared last.
        let is_ahead =
            now < seconds && !mutation_site!("a store's time goes on while it is closed");
        let now = if is_ahead { now.saturating_add(ahead).min(SECONDS_MAX) } else { 0 };
        let seconds = seconds.max(now);
        let seen = AtomicU64::new(clock.now().0);
        StoreTime { clock, seconds: AtomicU32::new(seconds), seen, advancing: Mutex::new(()) }
    }

    /// Returns the monotonic time.
    pub(crate) fn instant(&self) -> Nanos {
        self.clock.now()
    }

    /// Lets writers and readers go first, if this thread has had its turn.
    pub(crate) fn give_way(&self) {
        let _ = thread::give_way(&*self.clock);
    }

    /// Returns the latest time that the store has seen.
    pub(crate) fn latest(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    /// Returns the seconds by which the store's time is ahead of the clock.
    pub(crate) fn ahead(&self) -> u32 {
        self.now().0.saturating_sub(believed(&*self.clock))
    }

    /// Returns the current time, which never goes back, even if the clock is set back.
    pub(crate) fn now(&self) -> Seconds {
        let now = believed(&*self.clock);
        if mutation_site!("the store's time does not go back") {
            return Seconds(now);
        }
        let before = self.seconds.load(Relaxed);
        if now == before {
            return Seconds(now);
        }
        if now < before {
            return self.advance();
        }
        let before = self.seconds.fetch_max(now, Relaxed);
        self.seen.fetch_max(self.clock.now().0, Relaxed);
        Seconds(before.max(now))
    }

    /// Advances by the monotonic time since the latest time was seen.
    #[cold]
    fn advance(&self) -> Seconds {
        if mutation_site!("the store's time goes on while the clock is behind it") {
            return Seconds(self.latest());
        }
        let _held = self.advancing.lock();
        let passed = self.clock.now().0.saturating_sub(self.seen.load(Relaxed)) / NANOS_PER_SECOND;
        let before = self.latest();
        let now = before.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX));
        self.seen.fetch_add(passed * NANOS_PER_SECOND, Relaxed);
        Seconds(self.seconds.fetch_max(now, Relaxed).max(now))
    }

    /// Returns the time at which a version written now expires that lives for so many seconds.
    /// `None` is forever.
    pub(crate) fn expiry(&self, seconds: Option<u32>) -> Expiry {
        seconds.map_or(Expiry::NEVER, |seconds| Expiry(self.now().0.saturating_add(seconds)))
    }

    /// Returns true if the time has come. The clock is not read for a version that never expires.
    #[inline]
    pub(crate) fn has_ended(&self, expiry: Expiry) -> bool {
        expiry != Expiry::NEVER && expiry.is_over(self.now())
    }

    /// Returns true if the time had come for a reader at `at`, or has come now if that is `None`.
    #[inline]
    pub(crate) fn has_ended_at(&self, expiry: Expiry, at: Option<Seconds>) -> bool {
        expiry != Expiry::NEVER && expiry.is_over(at.unwrap_or_else(|| self.now()))
    }
}

/// Returns the clock's seconds, or the latest that are believed.
fn believed(clock: &dyn Clock) -> u32 {
    let now = clock.seconds().0;
    // A reading beyond that is as good as none.
    if now > SECONDS_MAX { 0 } else { now }
}
