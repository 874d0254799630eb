//! Log of slow requests: tenant and response time, never a key.

use std::time::Duration;

use entresol_base::{Nanos, duration};

/// Maximum lines a second and thread; further ones are counted and reported with the next line.
const LINES_PER_SECOND: u32 = 10;

/// Slow log of one thread.
#[derive(Debug, Default)]
pub struct SlowLog {
    threshold: Option<Duration>,
    second_began: Nanos,
    lines: u32,
    suppressed: u64,
}

impl SlowLog {
    /// Creates a log of requests that take at least `threshold`; none is off.
    #[must_use]
    pub fn new(threshold: Option<Duration>) -> Self {
        SlowLog { threshold, ..SlowLog::default() }
    }

    /// Returns true if requests that took this long are to be logged.
    #[inline]
    #[must_use]
    pub fn is_slow(&self, took: Duration) -> bool {
        self.threshold.is_some_and(|threshold| took >= threshold)
    }

    /// Logs requests of one connection that were answered together after `took`.
    pub fn log(&mut self, tenant: &str, requests: usize, took: Duration, now: Nanos) {
        if now.since(self.second_began) >= Duration::from_secs(1) {
            self.second_began = now;
            self.lines = 0;
        }
        if self.lines >= LINES_PER_SECOND {
            self.suppressed += 1;
            return;
        }
        self.lines += 1;
        let took = duration::format(Duration::from_micros(took.as_micros() as u64));
        let suppressed = std::mem::take(&mut self.suppressed);
        tracing::info!(tenant, requests, %took, suppressed, "slow requests");
    }
}
