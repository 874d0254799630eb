//! Who is there: what the admin listener and the threads in the background see of a running server.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use entresol_base::Clock;
use parking_lot::Mutex;

use crate::sharing::Sharing;
use crate::tenant::{ServerFacts, Tenant};

/// The running server's tenants and threads.
pub(crate) struct Registry {
    pub(crate) facts: ServerFacts,
    pub(crate) clock: Arc<dyn Clock>,
    tenants: Mutex<Vec<Arc<Tenant>>>,
    /// Belongs to its thread, which holds this registry.
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

    /// Notes that a thread that should run for ever has ended.
    pub(crate) fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
    }

    /// Whether every thread does what it should.
    pub(crate) fn is_healthy(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }
}
