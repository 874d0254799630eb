//! Scheduler of background work: signals through which writers and background threads wait for each
//! other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread;
use serde::Serialize;

/// Shared state of writers and background threads.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
    /// Told as `changed` is, and when records wait to be sorted.
    prepared: Condvar,
    ended: Condvar,
    /// Closed generations that wait to be flushed.
    waiting: AtomicUsize,
    /// Delay that writers still owe, in nanoseconds.
    debt: AtomicU64,
}

/// Longest sleep of a thread without a signal.
pub(crate) const IDLE: Duration = Duration::from_secs(3600);
/// Delay at which a writer sleeps. Shorter sleeps last longer than asked for.
const DEBT_NS_MAX: u64 = 1_000_000;

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// Counter that grows when there may be work, or when work was done.
    events: u64,
    /// True if records wait to be sorted.
    is_unsorted: bool,
    /// Number of attempts to flush, and what the last one lacked.
    tried: u64,
    lacked: Option<Hindrance>,
}

/// Lack for which a flush failed, and without which a later one may succeed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Hindrance {
    /// Room, by this message.
    Room(String),
    /// Descriptors for open files.
    Descriptors {
        /// Message about the file that could not be opened.
        what: String,
        /// Approximate number of descriptors that the store needs.
        needed: usize,
    },
}

impl Scheduler {
    /// Announces that there may be work, or that work was done.
    pub(crate) fn tell(&self) {
        self.state.lock().events += 1;
        self.changed.notify_all();
        self.prepared.notify_all();
    }

    /// Announces that records wait to be sorted. Only the thread that prepares segments and sorts
    /// is woken: there is cause after every few writes.
    pub(crate) fn tell_sorter(&self) {
        self.state.lock().is_unsorted = true;
        self.prepared.notify_all();
    }

    /// Waits as [`Scheduler::wait`] does, or until records wait to be sorted.
    pub(crate) fn wait_to_prepare(&self, seen: u64, time: Duration) {
        let mut state = self.state.lock();
        if !state.is_over && state.events == seen && !state.is_unsorted {
            self.prepared.wait_timeout(&mut state, time);
        }
        state.is_unsorted = false;
    }

    /// Records the outcome of an attempt to flush.
    pub(crate) fn tried(&self, lacked: Option<Hindrance>) {
        let mut state = self.state.lock();
        state.tried += 1;
        state.events += 1;
        state.lacked = lacked;
        drop(state);
        self.changed.notify_all();
        self.prepared.notify_all();
    }

    /// Returns the number of attempts to flush, and what the last one lacked.
    pub(crate) fn attempts(&self) -> (u64, Option<Hindrance>) {
        let state = self.state.lock();
        (state.tried, state.lacked.clone())
    }

    /// Announces that the store is being closed.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
        self.prepared.notify_all();
        self.ended.notify_all();
    }

    /// Returns true if the store is being closed.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// Returns the count of events, for [`Scheduler::wait`].
    pub(crate) fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// Waits until an event after `seen`, the closing of the store, or the end of the time.
    pub(crate) fn wait(&self, seen: u64, time: Duration) {
        let mut state = self.state.lock();
        if !state.is_over && state.events == seen {
            self.changed.wait_timeout(&mut state, time);
        }
    }

    /// Waits until an event, the closing of the store, or the end of the time. Returns true if the
    /// store is being closed.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        self.wait(self.events(), time);
        self.is_over()
    }

    /// Waits until the closing of the store or the end of the time, regardless of other events.
    /// Returns true if the store is being closed.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            self.ended.wait_timeout(&mut state, time);
        }
        state.is_over
    }

    /// Returns the number of closed generations that wait to be flushed.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Sets that number.
    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Relaxed);
    }

    /// Delays a writer, now or together with a later one. Returns the time that the writer slept,
    /// if it did.
    pub(crate) fn pay(&self, time: Duration) -> Option<Duration> {
        let owed = self.owe(time)?;
        thread::sleep(owed);
        Some(owed)
    }

    /// Adds to the delay owed. Returns the sum to pay now, to this writer alone.
    fn owe(&self, time: Duration) -> Option<Duration> {
        let time = time.as_nanos() as u64;
        if self.debt.fetch_add(time, Relaxed) + time < DEBT_NS_MAX {
            return None;
        }
        // Another writer may have taken it meanwhile.
        let owed = self.debt.swap(0, Relaxed);
        (owed > 0).then(|| Duration::from_nanos(owed))
    }
}

/// Waits of one kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Stall {
    /// Number of waits.
    pub count: u64,
    /// Total time of the waits, in microseconds.
    pub total_us: u64,
    /// Longest wait, in microseconds.
    pub longest_us: u64,
}

/// Counter of waits that threads add to.
#[derive(Debug, Default)]
pub(crate) struct StallCount {
    count: AtomicU64,
    total_ns: AtomicU64,
    longest_ns: AtomicU64,
}

impl StallCount {
    pub(crate) fn add(&self, time: Duration) {
        let time = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.count.fetch_add(1, Relaxed);
        self.total_ns.fetch_add(time, Relaxed);
        self.longest_ns.fetch_max(time, Relaxed);
    }

    pub(crate) fn get(&self) -> Stall {
        let us = |count: &AtomicU64| count.load(Relaxed) / 1000;
        let count = self.count.load(Relaxed);
        Stall { count, total_us: us(&self.total_ns), longest_us: us(&self.longest_ns) }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn what_writers_owe_is_paid_once() {
        const THREADS: u64 = 4;
        const TIMES: u64 = 200_000;
        let work = Arc::new(Scheduler::default());
        let owing = (0..THREADS).map(|_| {
            let work = Arc::clone(&work);
            thread::spawn("a writer", move || {
                let owed = (0..TIMES).filter_map(|_| work.owe(Duration::from_nanos(700_001)));
                owed.map(|time| time.as_nanos()).sum::<u128>()
            })
        });
        let owing: Vec<_> = owing.collect();
        let paid: u128 = owing.into_iter().map(|it| it.join().expect("no panic")).sum();
        let left = u128::from(work.debt.load(Relaxed));
        assert_eq!(paid + left, u128::from(THREADS * TIMES) * 700_001);
    }
}
