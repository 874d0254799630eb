//! The thread for the caches' background work: expiry, eviction ahead of writers, and shrinking to
//! lowered quotas.
//!
//! It works every few milliseconds while requests are answered, and once a second otherwise, since
//! items expire by the second. The first request after a rest wakes it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::registry::Registry;
use crate::threads;

/// Pause of the thread when no cache has more to do.
const REST: Duration = Duration::from_millis(10);
/// Pause of the thread when no request was answered since its last pass.
const LONG_REST: Duration = Duration::from_secs(1);

/// Running thread; stops when dropped.
pub struct Maintenance {
    registry: Arc<Registry>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    /// Starts the thread for the caches of the tenants in `registry`.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn start(registry: Arc<Registry>) -> io::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let (stopped, caches) = (Arc::clone(&stop), Arc::clone(&registry));
        let mut answered = 0;
        let run = move || {
            while !stopped.load(Ordering::Relaxed) {
                let more = maintain(&caches);
                let before = std::mem::replace(&mut answered, count_answered(&caches));
                if !more {
                    let is_idle = answered == before;
                    let time = if is_idle { LONG_REST } else { REST };
                    caches.rest(time, is_idle, || stopped.load(Ordering::Relaxed));
                }
            }
            Ok(())
        };
        let thread = threads::supervised("maintenance", Arc::clone(&registry), run)?;
        Ok(Maintenance { registry, stop, thread: Some(thread) })
    }
}

/// Does some work for every cache; returns true if there is more.
fn maintain(registry: &Registry) -> bool {
    let now = registry.clock.seconds();
    let mut more = false;
    for tenant in registry.tenants() {
        more |= tenant.cache().maintain(now);
    }
    more
}

/// Requests answered so far, by all threads for all tenants.
fn count_answered(registry: &Registry) -> u64 {
    let of = |tenant: &Arc<crate::tenant::Tenant>| tenant.answered();
    registry.tenants().iter().map(of).fold(0, u64::wrapping_add)
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.registry.ring();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the maintenance thread panicked");
        }
    }
}
