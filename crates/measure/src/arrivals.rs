//! Due times of requests in an open loop: drawn in advance, independent of the server's replies.

use std::num::NonZeroU64;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::{Clock, Nanos, SystemClock};

/// Time before a request for which a thread stays awake, so that it is hardly ever late: waking up
/// takes about this long. A thread that often waits takes a processor for itself with this.
pub const AWAKE: Duration = Duration::from_micros(80);
/// Time before a request for which a thread stays awake, where that would take the processor from
/// the threads that are measured. It begins some microseconds late.
pub const HARDLY_AWAKE: Duration = Duration::from_micros(5);

/// Due times of a Poisson process, which models many independent clients taken together.
#[derive(Debug, Clone)]
pub struct PoissonArrivals {
    rng: Rng,
    gap_ns_mean: f64,
    due_ns: f64,
    origin: Nanos,
}

impl PoissonArrivals {
    /// Creates arrivals that begin at `origin`, `per_second` of them on average.
    #[must_use]
    pub fn new(origin: Nanos, per_second: f64, seed: u64) -> Self {
        let mut arrivals = PoissonArrivals {
            rng: Rng::new(seed),
            gap_ns_mean: 1e9 / per_second.max(1e-6),
            due_ns: 0.0,
            origin,
        };
        arrivals.draw_gap();
        arrivals
    }

    /// Returns the time at which the next request is due.
    #[must_use]
    pub fn due(&self) -> Nanos {
        Nanos(self.origin.0 + self.due_ns as u64)
    }

    /// Takes the next request if it is due at `now` and returns its due time.
    #[inline]
    pub fn take(&mut self, now: Nanos) -> Option<Nanos> {
        let due = self.due();
        if due > now {
            return None;
        }
        self.draw_gap();
        Some(due)
    }

    fn draw_gap(&mut self) {
        self.due_ns += self.rng.exponential(self.gap_ns_mean);
    }
}

/// Lets the kernel wake the calling thread as soon as it can: it may take 50 us otherwise, to wake
/// several at once.
pub fn wake_in_time() {
    // Where the kernel refuses, requests are late, and reported as such.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
}

/// Waits until a time: asleep, and awake for the last part.
pub fn wait_until(clock: &SystemClock, at: Nanos, awake: Duration) {
    loop {
        let gap = at.since(clock.now());
        if gap.is_zero() {
            return;
        }
        match gap.checked_sub(awake) {
            Some(time) if !time.is_zero() => std::thread::sleep(time),
            _ => std::hint::spin_loop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_exponential_with_the_rate_asked_for() {
        let mut arrivals = PoissonArrivals::new(Nanos(1_000), 50_000.0, 3);
        let mut last = 1_000;
        let mut gaps = Vec::new();
        while let Some(due) = arrivals.take(Nanos(4_000_000_000)) {
            gaps.push(due.0 - last);
            last = due.0;
        }
        let count = gaps.len() as f64;
        assert!((count / 200_000.0 - 1.0).abs() < 0.01, "{count} arrivals in 4 s");
        // In an exponential distribution, a share of 1/e exceeds the mean and 1/e^3 exceeds three
        // means.
        for (factor, expected) in [(1, 0.3679), (3, 0.0498)] {
            let over = gaps.iter().filter(|gap| **gap > 20_000 * factor).count() as f64 / count;
            assert!((over - expected).abs() < 0.01, "share over {factor} means: {over}");
        }
    }

    #[test]
    fn requests_fall_due_whether_or_not_anybody_asked_in_time() {
        let mut arrivals = PoissonArrivals::new(Nanos(0), 1_000.0, 1);
        assert_eq!(arrivals.take(Nanos(0)), None);
        let mut backlog = 0;
        while let Some(due) = arrivals.take(Nanos(1_000_000_000)) {
            assert!(due <= Nanos(1_000_000_000));
            backlog += 1;
        }
        assert!((900..1100).contains(&backlog), "{backlog}");
    }
}
