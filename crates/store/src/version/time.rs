//! Time of a store, which never goes back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use entresol_base::mutation_site;
use entresol_base::{Clock, Nanos, Seconds};

use crate::types::Expiry;

/// Clock of a store, and the latest time that it has seen.
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    /// Latest time that the store has seen.
    seconds: AtomicU32,
}

impl StoreTime {
    /// Creates the time of a store that has seen these seconds.
    pub(crate) fn new(clock: Arc<dyn Clock>, seconds: u32) -> StoreTime {
        StoreTime { clock, seconds: AtomicU32::new(seconds) }
    }

    /// Returns the monotonic time.
    pub(crate) fn instant(&self) -> Nanos {
        self.clock.now()
    }

    /// Returns the latest time that the store has seen.
    pub(crate) fn latest(&self) -> u32 {
        self.seconds.load(Relaxed)
    }

    /// Returns the current time, which never goes back, even if the clock is set back.
    pub(crate) fn now(&self) -> Seconds {
        let now = self.clock.seconds().0;
        let before = self.seconds.fetch_max(now, Relaxed);
        if mutation_site!("the store's time does not go back") {
            return Seconds(now);
        }
        Seconds(before.max(now))
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
}
