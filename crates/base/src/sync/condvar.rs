//! Condition variables.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::mutex::MutexGuard;
use super::{simulated, unpoisoned};
use crate::world::{self, Place, Schedule, Subject, Wait};

/// Lets threads wait until another says that a condition may have changed. As everywhere, a wait
/// can end without that: check the condition again.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Number of simulated threads that wait for it.
    waiting: AtomicU32,
    inner: std::sync::Condvar,
}

/// End of a wait with a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// A thread notified, or the wait ended spuriously.
    Notified,
    /// The time ran out.
    TimedOut,
}

impl Condvar {
    /// Creates a condition variable without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Condvar { waiting: AtomicU32::new(0), inner: std::sync::Condvar::new() }
    }

    /// Unlocks the mutex, waits to be notified, and locks it again.
    #[track_caller]
    pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
        match Schedule::current() {
            Some(schedule) => {
                self.wait_simulated(&schedule, guard, Location::caller(), None);
            }
            None => guard.inner = Some(unpoisoned(self.inner.wait(guard.take()))),
        }
    }

    /// Waits like [`Condvar::wait`], again and again while the condition holds.
    #[track_caller]
    pub fn wait_while<T>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// Waits like [`Condvar::wait`], but for at most `time`.
    #[track_caller]
    pub fn wait_timeout<T>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> Woken {
        let timed_out = match Schedule::current() {
            Some(schedule) => self.wait_simulated(&schedule, guard, Location::caller(), Some(time)),
            None => {
                let (inner, woken) = unpoisoned(self.inner.wait_timeout(guard.take(), time));
                guard.inner = Some(inner);
                woken.timed_out()
            }
        };
        if timed_out { Woken::TimedOut } else { Woken::Notified }
    }

    /// Ends the wait of one thread, if any waits.
    pub fn notify_one(&self) {
        let schedule = self.schedule_if_awaited();
        if !schedule.is_some_and(|schedule| schedule.wake_one(self.subject())) {
            self.inner.notify_one();
        }
    }

    /// Ends the waits of all threads.
    pub fn notify_all(&self) {
        if let Some(schedule) = self.schedule_if_awaited() {
            let subject = self.subject();
            schedule.wake_all(|waits| waits == subject);
        }
        self.inner.notify_all();
    }

    /// Running world, if one of its threads may be waiting.
    fn schedule_if_awaited(&self) -> Option<std::rc::Rc<Schedule>> {
        if self.waiting.load(Relaxed) == 0 { None } else { Schedule::current() }
    }

    /// Waits within a world; returns true if the time ran out.
    fn wait_simulated<T: ?Sized>(
        &self,
        schedule: &Schedule,
        guard: &mut MutexGuard<'_, T>,
        place: Place,
        time: Option<Duration>,
    ) -> bool {
        schedule.step(place);
        let until = time.and_then(|time| schedule.deadline(time));
        // No other thread runs between unlocking and waiting, so no notification is lost between
        // them.
        guard.unlock();
        self.waiting.fetch_add(1, Relaxed);
        let woken = schedule.wait(Wait { subject: self.subject(), place, until });
        self.waiting.fetch_sub(1, Relaxed);
        let mutex = guard.mutex;
        let wait = Wait { subject: mutex.subject(), place, until: None };
        let try_take = || mutex.try_lock_inner();
        let (inner, cancelled) =
            simulated::reacquire(schedule, &mutex.waiting, wait, woken, try_take);
        guard.inner = Some(inner);
        if cancelled {
            schedule.unwind();
        }
        woken == world::Woken::TimedOut
    }

    fn subject(&self) -> Subject {
        Subject::Condvar(std::ptr::from_ref(&self.waiting).addr())
    }
}
