//! The life of a volume's drive: what was written to it since the volume was added, and a budget of
//! bytes a day that background work keeps to.
//!
//! The manifest records both whenever it is saved, so a crash forgets what was written since.
//! Callers' writes, and the flushes that follow from them, never wait for a budget; neither does
//! work that makes room.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;
use entresol_base::{Nanos, Seconds};
use entresol_media::endurance::{BudgetState, WriteBudget, owed_after};

use super::MoveCause;
use crate::manifest::{LifeCounts, LifeState};

/// Present time, by both clocks.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    /// Monotonic time.
    pub(crate) instant: Nanos,
    /// Time of day, which goes on while the store is closed.
    pub(crate) seconds: Seconds,
}

/// Bytes written to a volume since the store was opened, by their causes.
#[derive(Debug, Default)]
pub(crate) struct VolumeCounters {
    /// Keys and values of callers; counted at the home.
    pub(crate) user: AtomicU64,
    pub(crate) log: AtomicU64,
    pub(crate) flush: AtomicU64,
    pub(crate) merge: AtomicU64,
    pub(crate) moved: [AtomicU64; MoveCause::ALL.len()],
    pub(crate) manifest: AtomicU64,
    /// Bytes read from segments that are removed since.
    pub(crate) values_read: AtomicU64,
}

impl VolumeCounters {
    /// Returns the counts, without the newest segment of the log.
    pub(crate) fn get(&self) -> LifeCounts {
        let [garbage, aged, returned, misplaced, hot] = &self.moved;
        let counters = [
            &self.user,
            &self.log,
            &self.flush,
            &self.merge,
            garbage,
            aged,
            returned,
            misplaced,
            hot,
            &self.manifest,
        ];
        counters.map(|counter| counter.load(Relaxed))
    }

    /// Returns the bytes written for all causes.
    fn sum(&self) -> u64 {
        self.get().iter().skip(1).sum()
    }
}

/// Life of an open volume.
#[derive(Debug, Default)]
pub(crate) struct VolumeLife {
    pub(crate) written: VolumeCounters,
    before: Mutex<LifeState>,
    budget: Mutex<Option<WriteBudget>>,
}

impl VolumeLife {
    /// Goes on from the state in the manifest.
    pub(super) fn of(state: LifeState) -> VolumeLife {
        VolumeLife { before: Mutex::new(state), ..VolumeLife::default() }
    }

    /// Returns the bytes written since the volume was added, without the newest segment of the log.
    pub(crate) fn whole(&self) -> LifeCounts {
        let (now, before) = (self.written.get(), self.before.lock().written);
        std::array::from_fn(|at| before[at].saturating_add(now[at]))
    }

    /// Returns the state of the budget, if there is one.
    pub(crate) fn budget(&self, now: Moment) -> Option<BudgetState> {
        self.with_budget(now, |budget| budget.state())
    }

    /// Returns true if work that can wait must wait for the budget.
    pub(crate) fn is_used_up(&self, now: Moment) -> bool {
        let is_used_up = self.with_budget(now, |budget| budget.is_used_up());
        is_used_up.unwrap_or(false) && !mutation_site!("background work keeps a drive's budget")
    }

    /// Sets the bytes that may be written a day. A budget that is new counts from now on.
    pub(crate) fn set_writes_per_day(&self, bytes: Option<u64>, now: Moment) {
        let mut budget = self.budget.lock();
        self.before.lock().writes_per_day = bytes;
        *budget = bytes.map(|bytes| match budget.take() {
            Some(mut budget) => {
                budget.set_bytes_per_day(bytes);
                budget
            }
            None => WriteBudget::new(bytes, 0, self.written.sum(), now.instant),
        });
    }

    /// Returns the state for the manifest.
    pub(crate) fn state(&self, now: Moment) -> LifeState {
        let written = self.whole();
        let owed = self.with_budget(now, |budget| budget.owed());
        let writes_per_day = self.before.lock().writes_per_day;
        let seconds = if owed.is_some() { now.seconds.0.into() } else { 0 };
        LifeState { written, writes_per_day, owed: owed.unwrap_or_default(), seconds }
    }

    /// Brings the budget up to date, and applies a function to it.
    fn with_budget<T>(&self, now: Moment, look: impl Fn(&WriteBudget) -> T) -> Option<T> {
        let mut held = self.budget.lock();
        let before = self.before.lock();
        let bytes_per_day = before.writes_per_day?;
        let budget = held.get_or_insert_with(|| {
            let away = u64::from(now.seconds.0).saturating_sub(before.seconds);
            let owed = owed_after(before.owed, bytes_per_day, Duration::from_secs(away));
            WriteBudget::new(bytes_per_day, owed, 0, now.instant)
        });
        budget.settle(self.written.sum(), now.instant);
        Some(look(budget))
    }
}
