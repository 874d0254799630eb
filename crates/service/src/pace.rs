//! Paces: requests and listed keys at a bounded number a second.
//!
//! A time that is not used is no credit, and whatever was done is paid for by a wait afterwards.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::Nanos;

/// Pace of something that a tenant may do so many times a second, all connections together.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    /// Time from which it may be done again.
    next: AtomicU64,
}

impl Pace {
    /// Returns the time until which it must not be done.
    pub(crate) fn wait(&self, now: Nanos) -> Option<Nanos> {
        let next = Nanos(self.next.load(Ordering::Relaxed));
        (next > now).then_some(next)
    }

    /// Delays the next time by what `count` of them take at a rate a second.
    pub(crate) fn note(&self, count: u64, per_second: u32, now: Nanos) {
        let nanos = count.saturating_mul(1_000_000_000) / u64::from(per_second.max(1));
        let later = |next: u64| Some(next.max(now.0).saturating_add(nanos));
        let order = Ordering::Relaxed;
        // The closure never refuses.
        _ = self.next.fetch_update(order, order, later);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_is_kept_over_pauses_and_bursts() {
        let pace = Pace::default();
        let at = |ms: u64| Nanos(ms * 1_000_000);
        assert_eq!(pace.wait(at(5)), None);
        pace.note(100, 1000, at(5));
        assert_eq!(pace.wait(at(5)), Some(at(105)));
        assert_eq!(pace.wait(at(105)), None);
        // A pause is no credit.
        pace.note(100, 1000, at(10_000));
        assert_eq!(pace.wait(at(10_000)), Some(at(10_100)));
    }
}
