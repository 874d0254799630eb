//! Registry of a running server's tenants and threads, for the admin listener and background
//! threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use entresol_base::Clock;
use parking_lot::Mutex;

use crate::sharing::Sharing;
use crate::tenant::{ServerFacts, Tenant};

/// Tenants and threads of the running server.
pub(crate) struct Registry {
    pub(crate) facts: ServerFacts,
    pub(crate) clock: Arc<dyn Clock>,
    tenants: Mutex<Vec<Arc<Tenant>>>,
    /// Weak, since the sharing thread owns it and itself holds this registry.
    sharing: Mutex<Weak<Sharing>>,
    failed: AtomicBool,
}

impl Registry {
    pub(crate) fn new(facts: ServerFacts, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Registry {
            facts,
            clock,
            tenants: Mutex::default(),
            sharing: Mutex::default(),
            failed: AtomicBool::new(false),
        })
    }

    pub(crate) fn tenants(&self) -> Vec<Arc<Tenant>> {
        self.tenants.lock().clone()
    }

    pub(crate) fn set_tenants(&self, tenants: Vec<Arc<Tenant>>) {
        *self.tenants.lock() = tenants;
    }

    /// The controller, while it runs.
    pub(crate) fn sharing(&self) -> Option<Arc<Sharing>> {
        self.sharing.lock().upgrade()
    }

    pub(crate) fn set_sharing(&self, sharing: &Arc<Sharing>) {
        *self.sharing.lock() = Arc::downgrade(sharing);
    }

    /// Notes that a thread has ended that should run for ever.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Returns true while every thread runs as it should.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }
}
