//! Mutexes: locks for one thread at a time.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::sync::atomic::AtomicU32;

use super::{simulated, try_unpoisoned, unpoisoned};
use crate::world::{Place, Schedule, Subject, Wait};

/// A lock for one thread at a time.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    /// Number of simulated threads that wait for it.
    pub(super) waiting: AtomicU32,
    pub(super) inner: std::sync::Mutex<T>,
}

/// Access to the protected value until dropped.
#[must_use = "the mutex is unlocked at once if the guard is not kept"]
pub struct MutexGuard<'a, T: ?Sized> {
    pub(super) mutex: &'a Mutex<T>,
    /// Locked guard; absent only while this guard waits for a condition or is dropped.
    pub(super) inner: Option<std::sync::MutexGuard<'a, T>>,
}

impl<T> Mutex<T> {
    /// Creates an unlocked mutex.
    pub const fn new(value: T) -> Self {
        Mutex { waiting: AtomicU32::new(0), inner: std::sync::Mutex::new(value) }
    }

    /// Protected value.
    pub fn into_inner(self) -> T {
        unpoisoned(self.inner.into_inner())
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free, and locks it.
    #[inline]
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let inner = match Schedule::is_inside() {
            true => self.lock_inside(Location::caller()),
            false => unpoisoned(self.inner.lock()),
        };
        MutexGuard { mutex: self, inner: Some(inner) }
    }

    /// Apart from [`Mutex::lock`], so that code outside worlds pays for one check only.
    #[cold]
    fn lock_inside(&self, place: Place) -> std::sync::MutexGuard<'_, T> {
        let Some(schedule) = Schedule::current() else { return unpoisoned(self.inner.lock()) };
        let wait = Wait { subject: self.subject(), place, until: None };
        simulated::acquire(&schedule, &self.waiting, wait, || self.try_lock_inner())
    }

    /// Locks the mutex if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let place = Location::caller();
        let schedule = Schedule::current();
        if let Some(schedule) = &schedule {
            schedule.step(place);
            if schedule.is_promised_to_another(self.subject()) {
                return None;
            }
        }
        let inner = Some(self.try_lock_inner()?);
        if let Some(schedule) = &schedule {
            schedule.hold(self.subject(), place);
        }
        Some(MutexGuard { mutex: self, inner })
    }

    /// Protected value; exclusive access makes locking unnecessary.
    pub fn get_mut(&mut self) -> &mut T {
        unpoisoned(self.inner.get_mut())
    }

    /// Locks the inner mutex if it is free.
    pub(super) fn try_lock_inner(&self) -> Option<std::sync::MutexGuard<'_, T>> {
        try_unpoisoned(self.inner.try_lock())
    }

    pub(super) fn subject(&self) -> Subject {
        Subject::Mutex(std::ptr::from_ref(&self.waiting).addr())
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Takes the locked guard for a wait, after which it is put back.
    pub(super) fn take(&mut self) -> std::sync::MutexGuard<'a, T> {
        match self.inner.take() {
            Some(guard) => guard,
            None => unreachable!("the guard is waiting already"),
        }
    }

    /// Unlocks the mutex and wakes a waiting thread.
    #[inline]
    pub(super) fn unlock(&mut self) {
        if self.inner.take().is_some() {
            simulated::released(&self.mutex.waiting, self.mutex.subject());
        }
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match &self.inner {
            Some(guard) => guard,
            None => unreachable!("the guard is waiting for a condition"),
        }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        match &mut self.inner {
            Some(guard) => guard,
            None => unreachable!("the guard is waiting for a condition"),
        }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.unlock();
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(out)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(out)
    }
}
