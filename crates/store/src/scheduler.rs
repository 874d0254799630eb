//! What is done behind the writers' backs, and how they and it wait for each other.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex};
use entresol_base::thread;

/// Who waits for what.
#[derive(Debug, Default)]
pub(crate) struct Scheduler {
    state: Mutex<State>,
    changed: Condvar,
    ended: Condvar,
    /// Generations that wait to be flushed.
    waiting: AtomicUsize,
    /// What writers owe, in nanoseconds.
    debt: AtomicU64,
}

/// The longest that a thread sleeps without being told anything.
pub(crate) const IDLE: Duration = Duration::from_secs(3600);
/// A writer sleeps when so much is owed: shorter sleeps are longer than they are asked to be.
const DEBT_NS_MAX: u64 = 1_000_000;

#[derive(Debug, Default)]
struct State {
    is_over: bool,
    /// Grows whenever there may be something to do, or something was done.
    events: u64,
    /// How often it was tried to flush something, and why the last one found no room, if so.
    tried: u64,
    no_room: Option<String>,
}

impl Scheduler {
    /// Says that there may be something to do, or that something was done.
    pub(crate) fn tell(&self) {
        self.state.lock().events += 1;
        self.changed.notify_all();
    }

    /// Says how an attempt to flush something ended.
    pub(crate) fn tried(&self, no_room: Option<String>) {
        let mut state = self.state.lock();
        state.tried += 1;
        state.events += 1;
        state.no_room = no_room;
        drop(state);
        self.changed.notify_all();
    }

    /// How often it was tried, and why there was no room the last time.
    pub(crate) fn attempts(&self) -> (u64, Option<String>) {
        let state = self.state.lock();
        (state.tried, state.no_room.clone())
    }

    /// Says that the store is being closed.
    pub(crate) fn end(&self) {
        self.state.lock().is_over = true;
        self.changed.notify_all();
        self.ended.notify_all();
    }

    /// Whether the store is being closed.
    pub(crate) fn is_over(&self) -> bool {
        self.state.lock().is_over
    }

    /// What has happened so far, for [`Work::wait`].
    pub(crate) fn events(&self) -> u64 {
        self.state.lock().events
    }

    /// Waits until something has happened since `seen`, the store is being closed, or the time is
    /// over.
    pub(crate) fn wait(&self, seen: u64, time: Duration) {
        let mut state = self.state.lock();
        if !state.is_over && state.events == seen {
            self.changed.wait_timeout(&mut state, time);
        }
    }

    /// Waits until the store is being closed, or the time is over; says whether it is.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        self.wait(self.events(), time);
        self.is_over()
    }

    /// Waits until the store is being closed, or the time is over, whatever else happens; says
    /// whether it is being closed.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        if !state.is_over {
            self.ended.wait_timeout(&mut state, time);
        }
        state.is_over
    }

    /// How many generations wait to be flushed.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Relaxed)
    }

    /// Says how many do.
    pub(crate) fn set_waiting(&self, waiting: usize) {
        self.waiting.store(waiting, Relaxed);
    }

    /// Lets a writer wait for so long, now or together with a later one; answers for how long he
    /// did, if at all.
    pub(crate) fn pay(&self, time: Duration) -> Option<Duration> {
        let owed = self.owe(time)?;
        thread::sleep(owed);
        Some(owed)
    }

    /// Adds to what is owed; answers what is to be paid now, which only this writer is told.
    fn owe(&self, time: Duration) -> Option<Duration> {
        let time = time.as_nanos() as u64;
        if self.debt.fetch_add(time, Relaxed) + time < DEBT_NS_MAX {
            return None;
        }
        // Another one may have taken it meanwhile.
        let owed = self.debt.swap(0, Relaxed);
        (owed > 0).then(|| Duration::from_nanos(owed))
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
