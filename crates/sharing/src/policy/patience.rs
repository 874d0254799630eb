//! Backoff: the wait before something that failed is tried again, doubled each time.
//!
//! It keeps a policy from swinging for ever under a constant load: the number of tries grows with
//! the logarithm of time only.

use std::time::Duration;

use entresol_base::Nanos;

#[derive(Debug, Clone)]
pub(super) struct Patience {
    first: Duration,
    longest: Duration,
    wait: Duration,
    until: Nanos,
}

impl Patience {
    pub(super) fn new(first: Duration, longest: Duration) -> Patience {
        Patience { first, longest, wait: first, until: Nanos(0) }
    }

    /// Returns true if enough time has passed.
    pub(super) fn is_over(&self, now: Nanos) -> bool {
        now >= self.until
    }

    /// Notes another failure.
    pub(super) fn fail(&mut self, now: Nanos) {
        self.until = now.after(self.wait);
        self.wait = (self.wait * 2).min(self.longest.max(self.first));
    }

    /// Begins anew, since the situation has changed.
    pub(super) fn reset(&mut self) {
        self.wait = self.first;
        self.until = Nanos(0);
    }

    /// Time that is left to wait.
    pub(super) fn remaining(&self, now: Nanos) -> Duration {
        self.until.since(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_failure_doubles_the_wait_up_to_the_longest() {
        let second = Duration::from_secs(1);
        let mut patience = Patience::new(second, 5 * second);
        assert!(patience.is_over(Nanos(0)));
        let mut now = Nanos(0);
        for expected in [1, 2, 4, 5, 5] {
            patience.fail(now);
            assert_eq!(patience.remaining(now), expected * second);
            assert!(!patience.is_over(now));
            now = now.after(expected * second);
            assert!(patience.is_over(now));
        }
        patience.reset();
        patience.fail(now);
        assert_eq!(patience.remaining(now), second);
    }
}
