//! Read-write locks: for many readers or one writer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use super::{simulated, try_unpoisoned, unpoisoned};
use crate::world::{Place, Schedule, Subject, Wait};

/// A lock for many readers or one writer.
///
/// A writer that waits for readers to leave comes before readers that come later. A thread that
/// locks it for reading twice can therefore wait for ever, once a writer waits for it. A world
/// reports that deadlock.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    /// Number of simulated threads that wait for it.
    waiting: AtomicU32,
    /// Set while a simulated thread is about to write and waits for the readers to leave.
    claimed: AtomicBool,
    inner: std::sync::RwLock<T>,
}

impl<T> RwLock<T> {
    /// Creates an unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock {
            waiting: AtomicU32::new(0),
            claimed: AtomicBool::new(false),
            inner: std::sync::RwLock::new(value),
        }
    }

    /// Protected value.
    pub fn into_inner(self) -> T {
        unpoisoned(self.inner.into_inner())
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock or waits for readers to leave, and locks it for
    /// reading.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = match Schedule::current() {
            Some(schedule) => {
                let wait = self.wait(Subject::Read, Location::caller());
                simulated::acquire(&schedule, &self.waiting, wait, || self.share())
            }
            None => unpoisoned(self.inner.read()),
        };
        RwLockReadGuard { lock: self, inner: Some(inner) }
    }

    /// Waits until the lock is free, and locks it for writing.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = match Schedule::current() {
            Some(schedule) => self.write_simulated(&schedule, Location::caller()),
            None => unpoisoned(self.inner.write()),
        };
        RwLockWriteGuard { lock: self, inner: Some(inner) }
    }

    /// Locks for reading if no writer holds the lock or waits for readers to leave.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let place = Location::caller();
        if !self.may_try(Subject::Read, place) {
            return None;
        }
        let inner = Some(self.share()?);
        self.hold(Subject::Read, place);
        Some(RwLockReadGuard { lock: self, inner })
    }

    /// Locks for writing if the lock is free.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let place = Location::caller();
        if !self.may_try(Subject::Write, place) || self.claimed.load(Relaxed) {
            return None;
        }
        let inner = Some(try_unpoisoned(self.inner.try_write())?);
        self.hold(Subject::Write, place);
        Some(RwLockWriteGuard { lock: self, inner })
    }

    /// Protected value; exclusive access makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.inner.get_mut())
    }

    /// Waits until no other thread writes or is about to, and then for the readers to leave.
    fn write_simulated(
        &self,
        schedule: &Schedule,
        place: Place,
    ) -> std::sync::RwLockWriteGuard<'_, T> {
        schedule.step(place);
        let wait = self.wait(Subject::Write, place);
        let _claim = simulated::wait_for(schedule, &self.waiting, wait, || self.claim());
        let wait = self.wait(Subject::Readers, place);
        let try_take = || try_unpoisoned(self.inner.try_write());
        let guard = simulated::wait_for(schedule, &self.waiting, wait, try_take);
        schedule.hold(self.subject(Subject::Write), place);
        guard
    }

    /// Returns true if a thread holds the lock for writing.
    fn is_written(&self) -> bool {
        try_unpoisoned(self.inner.try_read()).is_none()
    }

    fn share(&self) -> Option<std::sync::RwLockReadGuard<'_, T>> {
        if self.claimed.load(Relaxed) { None } else { try_unpoisoned(self.inner.try_read()) }
    }

    fn claim(&self) -> Option<Claim<'_, T>> {
        let taken = self.is_written() || self.claimed.swap(true, Relaxed);
        (!taken).then(|| Claim { lock: self })
    }

    /// Takes a step; returns true unless the lock is promised to another thread.
    fn may_try(&self, kind: fn(usize) -> Subject, place: Place) -> bool {
        let Some(schedule) = Schedule::current() else { return true };
        schedule.step(place);
        !schedule.is_promised_to_another(self.subject(kind))
    }

    fn hold(&self, kind: fn(usize) -> Subject, place: Place) {
        if let Some(schedule) = Schedule::current() {
            schedule.hold(self.subject(kind), place);
        }
    }

    fn wait(&self, kind: fn(usize) -> Subject, place: Place) -> Wait {
        Wait { subject: self.subject(kind), place, until: None }
    }

    fn subject(&self, kind: fn(usize) -> Subject) -> Subject {
        kind(std::ptr::from_ref(&self.waiting).addr())
    }
}

/// Claim of one simulated thread to write next, until it writes or is cancelled.
struct Claim<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
}

impl<T: ?Sized> Drop for Claim<'_, T> {
    fn drop(&mut self) {
        self.lock.claimed.store(false, Relaxed);
        if !self.lock.is_written() {
            simulated::wake_all(&self.lock.waiting, self.lock.subject(Subject::Write));
        }
    }
}

/// Read access to the protected value until dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Locked guard; absent only while this guard is dropped.
    inner: Option<std::sync::RwLockReadGuard<'a, T>>,
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(guard) => guard,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        simulated::released(&self.lock.waiting, self.lock.subject(Subject::Read));
    }
}

/// Write access to the protected value until dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Locked guard; absent only while this guard is dropped.
    inner: Option<std::sync::RwLockWriteGuard<'a, T>>,
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(guard) => guard,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(guard) => guard,
            None => unreachable!("the guard is being dropped"),
        }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.inner = None;
        simulated::released(&self.lock.waiting, self.lock.subject(Subject::Write));
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}
