//! Registry of the tenants that are served, and the health of the threads that serve them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use entresol_base::Clock;
use parking_lot::Mutex;

use crate::tenant::{ServerFacts, Tenant};

/// Tenants that are served, for background threads and reports.
pub struct Registry {
    /// Facts about the server.
    pub facts: ServerFacts,
    /// Clock of the server.
    pub clock: Arc<dyn Clock>,
    tenants: Mutex<Vec<Arc<Tenant>>>,
    failed: AtomicBool,
}

impl Registry {
    /// Creates a registry without tenants.
    #[must_use]
    pub fn new(facts: ServerFacts, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Registry {
            facts,
            clock,
            tenants: Mutex::default(),
            failed: AtomicBool::new(false),
        })
    }

    /// Returns the tenants that are served.
    #[must_use]
    pub fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.tenants.lock().clone()
    }

    /// Replaces the list of tenants that are served.
    pub fn set_tenants(&self, tenants: Vec<Arc<Tenant>>) {
        *self.tenants.lock() = tenants;
    }

    /// Notes that a thread has ended that should run for ever.
    pub fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns true while every thread runs as it should.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }
}
