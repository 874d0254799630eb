//! Locks: simulated ones inside a [`World`](crate::world::World), those of `parking_lot` outside.
//!
//! Locks are not poisoned: one whose holder panics is unlocked. Inside a world a thread that keeps
//! finding a lock taken is promised it after some attempts, so that no thread starves. Threads of a
//! world and threads outside it must not wait for one lock, for neither would wake the other.

mod condvar;
mod mutex;
mod rwlock;
mod simulated;

pub use condvar::{Condvar, Woken};
pub use mutex::{Mutex, MutexGuard};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
