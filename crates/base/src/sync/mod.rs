//! Locks: simulated ones inside a [`World`](crate::world::World), those of the standard library
//! outside. Their threads spin for a moment, and then sleep. A thread that yields instead, as in
//! the locks of `parking_lot`, loses its turn for a slice of the scheduler each time, which is some
//! milliseconds since Linux 6.18.
//!
//! Locks are not poisoned: one whose holder panics is unlocked. Inside a world a thread that keeps
//! finding a lock taken is promised it after some attempts, so that no thread starves. Threads of a
//! world and threads outside it must not wait for one lock, for neither would wake the other.

use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult};

mod condvar;
mod mutex;
mod rwlock;
mod simulated;

pub use condvar::{Condvar, Woken};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Returns what a lock protects, though a thread may have panicked while it held it.
pub(crate) fn unpoisoned<T>(locked: LockResult<T>) -> T {
    locked.unwrap_or_else(PoisonError::into_inner)
}

/// Returns what a lock protects, or `None` if the lock is taken.
fn try_unpoisoned<T>(locked: TryLockResult<T>) -> Option<T> {
    match locked {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}
