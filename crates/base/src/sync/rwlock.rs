//! A lock for many readers or one writer.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::AtomicU32;

use super::simulated;
use crate::world::{Place, Schedule, Subject, Wait};

/// A lock for many readers or one writer.
#[derive(Default)]
pub struct RwLock<T: ?Sized> {
    /// Simulated threads that wait for it.
    waiting: AtomicU32,
    inner: parking_lot::RwLock<T>,
}

impl<T> RwLock<T> {
    /// An unlocked lock.
    pub const fn new(value: T) -> Self {
        RwLock { waiting: AtomicU32::new(0), inner: parking_lot::RwLock::new(value) }
    }

    /// What it protected.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until nobody writes, and locks it for reading.
    #[inline]
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let inner = match Schedule::current() {
            Some(schedule) => {
                let wait = self.wait(Subject::Read, Location::caller());
                let try_take = || self.inner.try_read();
                simulated::acquire(&schedule, &self.waiting, wait, try_take)
            }
            None => Some(self.inner.read()),
        };
        RwLockReadGuard { lock: self, inner }
    }

    /// Waits until it is free, and locks it for writing.
    #[inline]
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let inner = match Schedule::current() {
            Some(schedule) => {
                let wait = self.wait(Subject::Write, Location::caller());
                let try_take = || self.inner.try_write();
                simulated::acquire(&schedule, &self.waiting, wait, try_take)
            }
            None => Some(self.inner.write()),
        };
        RwLockWriteGuard { lock: self, inner }
    }

    /// Locks it for reading if nobody writes.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        let place = Location::caller();
        step(place);
        let inner = Some(self.inner.try_read()?);
        self.hold(Subject::Read, place);
        Some(RwLockReadGuard { lock: self, inner })
    }

    /// Locks it for writing if it is free.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        let place = Location::caller();
        step(place);
        let inner = Some(self.inner.try_write()?);
        self.hold(Subject::Write, place);
        Some(RwLockWriteGuard { lock: self, inner })
    }

    /// What it protects; there can be no other who has locked it.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
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

fn step(place: Place) {
    if let Some(schedule) = Schedule::current() {
        schedule.step(place);
    }
}

/// The right to read what the lock protects, until it is dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// None only while the guard is being dropped.
    inner: Option<parking_lot::RwLockReadGuard<'a, T>>,
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

/// The right to change what the lock protects, until it is dropped.
#[must_use = "the lock is released at once if the guard is not kept"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// None only while the guard is being dropped.
    inner: Option<parking_lot::RwLockWriteGuard<'a, T>>,
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
