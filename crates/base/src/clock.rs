//! Clocks, each with a type of its own so that they are never mistaken for each other: coarse wall
//! seconds, fine monotonic nanoseconds, and the picoseconds of virtual time.
//!
//! Hot paths take `now` as a value, read once per wake-up or batch.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Whole seconds since the Unix epoch, used for expiry times. Good until the year 2106.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Seconds(pub u32);

impl Seconds {
    /// Date in Greenwich, such as `2026-11-21`.
    #[must_use]
    pub fn date(self) -> String {
        // Years are counted from March, so that the leap day is a year's last; the formulas for
        // days and months of such years are Hinnant's (civil_from_days).
        let days = u64::from(self.0) / 86_400 + 719_468;
        let era = days / 146_097;
        let of_era = days % 146_097;
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
        format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
    }
}

/// Nanoseconds of a monotonic clock with an arbitrary start, used for intervals.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Nanos(pub u64);

impl Nanos {
    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn since(self, earlier: Nanos) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Instant later than this by `by`.
    #[must_use]
    pub fn after(self, by: Duration) -> Nanos {
        Nanos(self.0.saturating_add(u64::try_from(by.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// Picoseconds of virtual time since its start. Fine enough that one cache line takes a whole
/// number of them of a device's bandwidth, wide enough for 213 days.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Picos(pub u64);

impl Picos {
    /// Start of virtual time, and the length of no time.
    pub const ZERO: Picos = Picos(0);
    /// End of virtual time, at which sums saturate.
    pub const MAX: Picos = Picos(u64::MAX);

    /// Length of `nanos` nanoseconds.
    #[must_use]
    pub const fn from_nanos(nanos: u64) -> Picos {
        Picos(nanos.saturating_mul(1_000))
    }

    /// Length of `micros` microseconds.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Picos {
        Picos(micros.saturating_mul(1_000_000))
    }

    /// Length of `millis` milliseconds.
    #[must_use]
    pub const fn from_millis(millis: u64) -> Picos {
        Picos(millis.saturating_mul(1_000_000_000))
    }

    /// Length of `seconds` seconds.
    #[must_use]
    pub const fn from_secs(seconds: u64) -> Picos {
        Picos(seconds.saturating_mul(1_000_000_000_000))
    }

    /// Time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub const fn since(self, earlier: Picos) -> Picos {
        Picos(self.0.saturating_sub(earlier.0))
    }

    /// Instant later than this by `by`, or the sum of two lengths.
    #[must_use]
    pub const fn after(self, by: Picos) -> Picos {
        Picos(self.0.saturating_add(by.0))
    }

    /// Whole nanoseconds, rounded down.
    #[must_use]
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// Seconds with a fraction, for reports; virtual time itself is always whole picoseconds.
    #[must_use]
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }
}

impl From<Picos> for Nanos {
    fn from(picos: Picos) -> Nanos {
        Nanos(picos.as_nanos())
    }
}

impl From<Nanos> for Picos {
    fn from(nanos: Nanos) -> Picos {
        Picos::from_nanos(nanos.0)
    }
}

impl From<Picos> for Duration {
    fn from(picos: Picos) -> Duration {
        Duration::from_nanos(picos.as_nanos())
    }
}

impl From<Duration> for Picos {
    fn from(duration: Duration) -> Picos {
        Picos(u64::try_from(duration.as_nanos().saturating_mul(1_000)).unwrap_or(u64::MAX))
    }
}

/// Prints the unit that reads best, with three decimals at most: `1.25 us`.
impl std::fmt::Display for Picos {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (unit, name) = match self.0 {
            0..1_000 => return write!(out, "{} ps", self.0),
            1_000..1_000_000 => (1_000, "ns"),
            1_000_000..1_000_000_000 => (1_000_000, "us"),
            1_000_000_000..1_000_000_000_000 => (1_000_000_000, "ms"),
            _ => (1_000_000_000_000, "s"),
        };
        let decimals = format!("{:03}", self.0 % unit / (unit / 1_000));
        match decimals.trim_end_matches('0') {
            "" => write!(out, "{} {name}", self.0 / unit),
            decimals => write!(out, "{}.{decimals} {name}", self.0 / unit),
        }
    }
}

/// Source of time. The system's clock is [`SystemClock`]; tests and simulations bring their own.
pub trait Clock: Send + Sync {
    /// Monotonic time.
    fn now(&self) -> Nanos;
    /// Wall time that never runs backwards while the process lives.
    fn seconds(&self) -> Seconds;
}

/// Clock of the system. The wall clock is read once, at creation, and carried on by the monotonic
/// clock, so that setting the wall clock neither expires nor revives an item.
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
    /// Creates a clock that stands at `seconds`.
    #[must_use]
    pub fn at(seconds: Seconds) -> Self {
        ManualClock { nanos: (u64::from(seconds.0) * 1_000_000_000).into() }
    }

    /// Moves the clock later by `by`.
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
    fn days_have_their_dates() {
        for (seconds, date) in [
            (0, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_735_689_599, "2024-12-31"),
            (1_795_304_807, "2026-11-21"),
            (u32::MAX, "2106-02-07"),
        ] {
            assert_eq!(Seconds(seconds).date(), date);
        }
    }

    #[test]
    fn intervals_saturate() {
        assert_eq!(Nanos(5).since(Nanos(7)), Duration::ZERO);
        assert_eq!(Nanos(7).since(Nanos(5)), Duration::from_nanos(2));
        assert_eq!(Nanos(u64::MAX).after(Duration::from_secs(1)), Nanos(u64::MAX));
    }

    #[test]
    fn picoseconds_saturate_convert_and_print() {
        assert_eq!(Picos::MAX.after(Picos(1)), Picos::MAX);
        assert_eq!(Picos(3).since(Picos(4)), Picos::ZERO);
        assert_eq!(Nanos::from(Picos(2_999)), Nanos(2));
        assert_eq!(Picos::from(Nanos(2)), Picos(2_000));
        assert_eq!(Picos::from(Duration::from_micros(3)), Picos::from_micros(3));
        assert_eq!(Picos::from(Duration::MAX), Picos::MAX);
        assert_eq!(Duration::from(Picos::from_secs(3)), Duration::from_secs(3));
        for (picos, text) in [(0, "0 ps"), (999, "999 ps"), (1_250_000, "1.25 us"), (7_000, "7 ns")]
        {
            assert_eq!(Picos(picos).to_string(), text);
        }
        assert_eq!(Picos::from_secs(90).to_string(), "90 s");
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
