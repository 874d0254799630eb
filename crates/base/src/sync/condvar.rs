//! Waiting for a condition that a mutex protects.

use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use super::mutex::MutexGuard;
use super::simulated;
use crate::world::{self, Place, Schedule, Subject, Wait};

/// Lets threads wait until another says that a condition may have changed. As everywhere, a wait
/// can end without that: check the condition again.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Simulated threads that wait for it.
    waiting: AtomicU32,
    inner: parking_lot::Condvar,
}

/// How a wait with a limit ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Woken {
    /// Somebody notified, or nobody did but the wait ended anyway.
    Notified,
    /// The time ran out.
    TimedOut,
}

impl Condvar {
    /// Nobody waits for it yet.
    #[must_use]
    pub const fn new() -> Self {
        Condvar { waiting: AtomicU32::new(0), inner: parking_lot::Condvar::new() }
    }

    /// Unlocks the mutex, waits to be notified, and locks it again.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        match (Schedule::current(), &mut guard.inner) {
            (Some(schedule), _) => {
                self.wait_simulated(&schedule, guard, Location::caller(), None);
            }
            (None, Some(inner)) => self.inner.wait(inner),
            (None, None) => unreachable!("the guard is waiting already"),
        }
    }

    /// As [`Condvar::wait`], again and again while the condition holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    /// As [`Condvar::wait`], but for so long at most.
    #[track_caller]
    pub fn wait_timeout<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> Woken {
        let timed_out = match (Schedule::current(), &mut guard.inner) {
            (Some(schedule), _) => {
                self.wait_simulated(&schedule, guard, Location::caller(), Some(time))
            }
            (None, Some(inner)) => self.inner.wait_for(inner, time).timed_out(),
            (None, None) => unreachable!("the guard is waiting already"),
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

    /// The running world, if a simulated thread may be waiting.
    fn schedule_if_awaited(&self) -> Option<std::rc::Rc<Schedule>> {
        if self.waiting.load(Relaxed) == 0 { None } else { Schedule::current() }
    }

    /// True: the time ran out.
    fn wait_simulated<T: ?Sized>(
        &self,
        schedule: &Schedule,
        guard: &mut MutexGuard<'_, T>,
        place: Place,
        time: Option<Duration>,
    ) -> bool {
        schedule.step(place);
        let until = time.and_then(|time| schedule.deadline(time));
        // Nobody else runs between unlocking and waiting, so no notification can fall between.
        guard.unlock();
        self.waiting.fetch_add(1, Relaxed);
        let woken = schedule.wait(Wait { subject: self.subject(), place, until });
        self.waiting.fetch_sub(1, Relaxed);
        let mutex = guard.mutex;
        let wait = Wait { subject: mutex.subject(), place, until: None };
        let try_take = || mutex.inner.try_lock();
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
