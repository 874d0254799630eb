//! Two clocks that must never be mistaken for each other: coarse wall seconds and fine monotonic
//! nanoseconds, each a type of its own.
//!
//! Hot paths take `now` as a value, read once per wake-up or batch.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds since the Unix epoch: what expiry times are kept in. Good until the year 2106.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub u32);

/// Nanoseconds of a monotonic clock with an arbitrary start: what intervals are measured in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// The time that passed from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This instant moved later by `by`.
    #[must_use]
    pub fn after(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Where time comes from. The system's clock is [`SystemClock`]; tests and simulations bring
/// their own.
pub trait Clock: Send + Sync {
    /// Monotonic time.
    fn now(&self) -> Nanos;
    /// Wall time that never runs backwards while the process lives.
    fn seconds(&self) -> Seconds;
}

/// The system's time: the wall clock is read once, at creation, and carried on by the monotonic
/// clock, so that an operator who sets the wall clock neither expires nor revives an item.
#[derive(Debug, Clone)]
pub struct SystemClock {
    origin: Instant,
    origin_unix: Duration,
}

impl SystemClock {
    /// Reads both clocks.
    #[must_use]
    #[expect(clippy::disallowed_methods, reason = "this is the one home of the system's clocks")]
    pub fn new() -> Self {
        let origin_unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        SystemClock { origin: Instant::now(), origin_unix }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        SystemClock::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn seconds(&self) -> Seconds {
        let seconds = (self.origin_unix + self.origin.elapsed()).as_secs();
        Seconds(u32::try_from(seconds).unwrap_or(u32::MAX))
    }
}

/// A clock that moves only when told to, for tests.
#[derive(Debug, Default)]
pub struct ManualClock {
    nanos: std::sync::atomic::AtomicU64,
}

impl ManualClock {
    /// A clock that stands at `seconds`.
    #[must_use]
    pub fn at(seconds: Seconds) -> Self {
        ManualClock { nanos: (u64::from(seconds.0) * 1_000_000_000).into() }
    }

    /// Moves the clock later.
    pub fn advance(&self, by: Duration) {
        let by = u64::try_from(by.as_nanos()).unwrap_or(u64::MAX);
        self.nanos.fetch_add(by, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Nanos {
        Nanos(self.nanos.load(std::sync::atomic::Ordering::SeqCst))
    }

    fn seconds(&self) -> Seconds {
        Seconds(u32::try_from(self.now().0 / 1_000_000_000).unwrap_or(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_saturate() {
        assert_eq!(Nanos(5).since(Nanos(7)), Duration::ZERO);
        assert_eq!(Nanos(7).since(Nanos(5)), Duration::from_nanos(2));
        assert_eq!(Nanos(u64::MAX).after(Duration::from_secs(1)), Nanos(u64::MAX));
    }

    #[test]
    fn a_manual_clock_moves_when_told() {
        let clock = ManualClock::at(Seconds(100));
        clock.advance(Duration::from_millis(1500));
        assert_eq!(clock.seconds(), Seconds(101));
    }

    #[test]
    fn the_system_clock_is_past_2020_and_does_not_run_backwards() {
        let clock = SystemClock::new();
        let first = clock.now();
        assert!(clock.seconds() > Seconds(1_577_836_800));
        assert!(clock.now() >= first);
    }
}
