//! The life of a drive: a budget of bytes that it may be written a day, and what the drive itself
//! has counted.
//!
//! A budget is a bucket that holds one day's bytes. What is written goes in, time drains it evenly,
//! and it is used up while it is full. So over any number of days, work that stops while the budget
//! is used up writes at most the days' bytes, one more day's, and the piece of work that filled the
//! bucket. Callers' writes, which do not ask, fill the bucket as well: the others then wait for
//! them, by at most a day.

mod drive;

use std::time::Duration;

use entresol_base::Nanos;

pub use drive::DriveWritten;

const DAY_NS: u64 = 86_400_000_000_000;
/// Time over which the recent rate is a mean, weighted towards the present.
const RECENT_NS: f64 = 3_600e9;
/// Days' bytes that can be owed at most.
const DAYS_OWED_MAX: u64 = 2;

/// Budget of bytes that may be written to a volume a day.
#[derive(Debug, Clone)]
pub struct WriteBudget {
    bytes_per_day: u64,
    /// Bytes in the bucket, beyond one day's if it overflowed.
    owed: u64,
    /// Rest of the division by which time was turned into bytes.
    rest: u128,
    /// Bytes of the count that are in the bucket.
    counted: u64,
    settled: Nanos,
    begun: Nanos,
    /// Bytes written recently, each weighted by its age.
    recent: f64,
}

/// State of a budget.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BudgetState {
    /// Bytes that may be written a day.
    pub bytes_per_day: u64,
    /// Bytes that are left now.
    pub left_bytes: u64,
    /// Bytes a day at the rate of the last hour, in round numbers.
    pub recent_bytes_per_day: u64,
    /// Time until nothing is left at that rate; `None` if that rate can go on for ever.
    pub used_up_in: Option<Duration>,
}

impl WriteBudget {
    /// Creates a budget at the time `now`, of which `owed` bytes are used already. The bytes that
    /// `written` counts until now are not part of it.
    #[must_use]
    pub fn new(bytes_per_day: u64, owed: u64, written: u64, now: Nanos) -> WriteBudget {
        let owed = owed.min(bytes_per_day.saturating_mul(DAYS_OWED_MAX));
        let (settled, begun) = (now, now);
        let (rest, counted, recent) = (0, written, 0.0);
        WriteBudget { bytes_per_day, owed, rest, counted, settled, begun, recent }
    }

    /// Takes into account that time has passed, and that the count of bytes written
    /// stands at `written`. A smaller count than before, or an earlier time, changes nothing.
    pub fn settle(&mut self, written: u64, now: Nanos) {
        let passed = now.0.saturating_sub(self.settled.0);
        self.settled = Nanos(self.settled.0.max(now.0));
        let drained = u128::from(self.bytes_per_day) * u128::from(passed) + self.rest;
        self.rest = drained % u128::from(DAY_NS);
        let drained = u64::try_from(drained / u128::from(DAY_NS)).unwrap_or(u64::MAX);
        let more = written.saturating_sub(self.counted);
        self.counted = self.counted.max(written);
        let owed = self.owed.saturating_sub(drained).saturating_add(more);
        self.owed = owed.min(self.bytes_per_day.saturating_mul(DAYS_OWED_MAX));
        self.recent = self.recent * (-(passed as f64) / RECENT_NS).exp() + more as f64;
    }

    /// Changes the bytes a day from now on.
    pub fn set_bytes_per_day(&mut self, bytes: u64) {
        self.bytes_per_day = bytes;
        self.owed = self.owed.min(bytes.saturating_mul(DAYS_OWED_MAX));
        self.rest = 0;
    }

    /// Returns true if work that can wait must wait.
    #[must_use]
    pub fn is_used_up(&self) -> bool {
        self.owed >= self.bytes_per_day
    }

    /// Returns the bytes in the bucket, by which a later budget goes on: see [`owed_after`].
    #[must_use]
    pub fn owed(&self) -> u64 {
        self.owed
    }

    /// Returns the state when it was last settled.
    #[must_use]
    pub fn state(&self) -> BudgetState {
        let left_bytes = self.bytes_per_day.saturating_sub(self.owed);
        let age = self.settled.0.saturating_sub(self.begun.0) as f64;
        // The weights of the time since the beginning: their sum is less than the whole at first.
        let weight = RECENT_NS * (1.0 - (-age / RECENT_NS).exp());
        let day = DAY_NS as f64;
        let recent = if weight > 0.0 { self.recent / weight * day } else { 0.0 };
        let beyond = recent - self.bytes_per_day as f64;
        let used_up_in = (beyond > 0.0).then(|| {
            let days = left_bytes as f64 / beyond;
            Duration::from_nanos((days * day).min(u64::MAX as f64) as u64)
        });
        let recent_bytes_per_day = recent as u64;
        BudgetState {
            bytes_per_day: self.bytes_per_day,
            left_bytes,
            recent_bytes_per_day,
            used_up_in,
        }
    }
}

/// Returns what is left in the bucket after a time that went uncounted. A clock may have been
/// set meanwhile, so that more than a day counts as one.
#[must_use]
pub fn owed_after(owed: u64, bytes_per_day: u64, away: Duration) -> u64 {
    let away = u64::try_from(away.as_nanos()).unwrap_or(u64::MAX).min(DAY_NS);
    let drained = u128::from(bytes_per_day) * u128::from(away) / u128::from(DAY_NS);
    owed.saturating_sub(u64::try_from(drained).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: u64 = DAY_NS / 24;
    const GIB: u64 = 1 << 30;

    #[test]
    fn work_that_waits_while_the_budget_is_used_up_keeps_it_over_days() {
        let mut budget = WriteBudget::new(24 * GIB, 0, 0, Nanos(0));
        let (mut written, mut by_day) = (0, Vec::new());
        for minute in 1..=10 * 24 * 60_u64 {
            budget.settle(written, Nanos(minute * HOUR / 60));
            if !budget.is_used_up() {
                written += 3 * GIB;
            }
            if minute % (24 * 60) == 0 {
                by_day.push(written / GIB);
            }
        }
        assert_eq!(by_day[0], 48, "a bucket and a day");
        for pair in by_day.windows(2) {
            assert!((21..=27).contains(&(pair[1] - pair[0])), "{by_day:?}");
        }
    }

    #[test]
    fn writes_that_do_not_ask_delay_the_others_by_a_day_at_most() {
        let mut budget = WriteBudget::new(GIB, 0, 0, Nanos(0));
        budget.settle(1000 * GIB, Nanos(HOUR));
        assert!(budget.is_used_up());
        budget.settle(1000 * GIB, Nanos(24 * HOUR));
        assert!(budget.is_used_up());
        budget.settle(1000 * GIB, Nanos(25 * HOUR + 1_000_000));
        assert!(!budget.is_used_up());
    }

    #[test]
    fn small_steps_drain_as_much_as_a_large_one() {
        let (mut often, mut once) =
            (WriteBudget::new(GIB, GIB, 0, Nanos(0)), WriteBudget::new(GIB, GIB, 0, Nanos(0)));
        for step in 1..=100_000_u64 {
            often.settle(0, Nanos(step * 7_919));
        }
        once.settle(0, Nanos(100_000 * 7_919));
        assert_eq!(often.owed(), once.owed());
        assert!(often.owed() < GIB);
    }

    #[test]
    fn the_state_says_when_nothing_will_be_left() {
        let mut budget = WriteBudget::new(24 * GIB, 0, 0, Nanos(0));
        // Two a hour, where one a hour may be written: a day's bytes last for 24 hours.
        for minute in 1..=120_u64 {
            budget.settle(minute * 2 * GIB / 60, Nanos(minute * HOUR / 60));
        }
        let state = budget.state();
        let near = |got: u64, wanted: u64| got.abs_diff(wanted) < wanted / 50;
        assert!(near(state.left_bytes, 22 * GIB), "{state:?}");
        assert!(near(state.recent_bytes_per_day, 48 * GIB), "{state:?}");
        let hours = state.used_up_in.expect("it will be").as_secs() / 60;
        assert!(near(hours, 22 * 60), "{state:?}");
        budget.settle(4 * GIB, Nanos(12 * HOUR));
        assert_eq!(budget.state().used_up_in, None);
    }

    #[test]
    fn a_clock_that_is_set_drains_a_day_at_most_and_never_fills() {
        let mut budget = WriteBudget::new(GIB, GIB / 2, 0, Nanos(5 * HOUR));
        budget.settle(0, Nanos(HOUR));
        assert_eq!(budget.owed(), GIB / 2);
        assert_eq!(owed_after(3 * GIB, GIB, Duration::from_secs(60 * 365 * 86_400)), 2 * GIB);
        assert_eq!(owed_after(3 * GIB, GIB, Duration::from_secs(43_200)), 2 * GIB + GIB / 2);
        assert_eq!(owed_after(GIB, u64::MAX, Duration::MAX), 0);
    }

    #[test]
    fn a_smaller_budget_does_not_owe_more_than_two_days() {
        let mut budget = WriteBudget::new(100 * GIB, 90 * GIB, 0, Nanos(0));
        budget.set_bytes_per_day(GIB);
        assert_eq!((budget.owed(), budget.is_used_up()), (2 * GIB, true));
        budget.set_bytes_per_day(u64::MAX);
        assert!(!budget.is_used_up());
    }
}
