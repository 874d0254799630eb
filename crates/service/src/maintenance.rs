//! The thread for the caches' background work: expiry, eviction ahead of writers, and shrinking to
//! lowered quotas.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::registry::Registry;

/// Pause of the thread when no cache has more to do.
const REST: Duration = Duration::from_millis(10);

/// Running thread; stops when dropped.
pub struct Maintenance {
    stop: Arc<(Mutex<bool>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Maintenance {
    /// Starts the thread for the caches of the tenants in `registry`.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn start(registry: Arc<Registry>) -> io::Result<Self> {
        let stop = Arc::new((Mutex::new(false), Condvar::new()));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let (flag, bell) = &*stopped;
            loop {
                let now = registry.clock.seconds();
                let mut more = false;
                for tenant in registry.tenants() {
                    more |= tenant.cache().maintain(now);
                }
                let mut stop = flag.lock();
                if !*stop {
                    bell.wait_for(&mut stop, if more { Duration::ZERO } else { REST });
                }
                if *stop {
                    return;
                }
            }
        };
        let thread = std::thread::Builder::new().name("maintenance".to_owned()).spawn(run)?;
        Ok(Maintenance { stop, thread: Some(thread) })
    }
}

impl Drop for Maintenance {
    fn drop(&mut self) {
        let (flag, bell) = &*self.stop;
        *flag.lock() = true;
        bell.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the maintenance thread panicked");
        }
    }
}
