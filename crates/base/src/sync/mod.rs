//! Locks: simulated ones inside a [`World`](crate::world::World), those of `parking_lot` outside.
//!
//! Nothing is poisoned: a lock whose holder panics is unlocked. Inside a world a thread that keeps
//! finding a lock taken is promised it after some attempts, so that nobody is kept out for ever.
//! The same lock must not be waited for by threads of a world and by threads outside it, for
//! neither would wake the other.

mod condvar;
mod mutex;
mod rwlock;
mod simulated;

pub use condvar::{Condvar, Woken};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
