//! Registry of the tenants that are served, and the health of the threads that serve them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use entresol_base::Clock;
use entresol_base::sync::{Condvar, Mutex};

use crate::tenant::{ServerFacts, Tenant};

/// Call of a registry whose server cannot go on.
type OnFailure = Box<dyn Fn() + Send>;

/// Tenants that are served, for background threads and reports.
pub struct Registry {
    /// Facts about the server.
    pub facts: ServerFacts,
    /// Clock of the server.
    pub clock: Arc<dyn Clock>,
    tenants: Mutex<Vec<Arc<Tenant>>>,
    failed: AtomicBool,
    on_failure: Mutex<Option<OnFailure>>,
    panics: Mutex<BTreeMap<String, u64>>,
    /// True while the maintenance thread rests for long, until a request is answered.
    idle: AtomicBool,
    /// Protects nothing but the wait for [`Registry::bell`].
    rest: Mutex<()>,
    bell: Condvar,
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
            on_failure: Mutex::default(),
            panics: Mutex::default(),
            idle: AtomicBool::new(false),
            rest: Mutex::default(),
            bell: Condvar::new(),
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
        self.ring();
    }

    /// Notes that a thread has ended that should run for ever and does not come back.
    pub fn note_failure(&self) {
        self.failed.store(true, Ordering::Relaxed);
        if let Some(call) = &*self.on_failure.lock() {
            call();
        }
    }

    /// Sets the call that is made once the server cannot go on, also if that is the case already.
    pub fn on_failure(&self, call: impl Fn() + Send + 'static) {
        let mut on_failure = self.on_failure.lock();
        if !self.is_healthy() {
            call();
        }
        *on_failure = Some(Box::new(call));
    }

    /// Notes that the thread of this name has panicked.
    pub fn note_panic(&self, thread: &str) {
        *self.panics.lock().entry(thread.to_owned()).or_default() += 1;
    }

    /// Names of the threads that have panicked, each with the number of times.
    #[must_use]
    pub fn panics(&self) -> Vec<(String, u64)> {
        self.panics.lock().iter().map(|(name, times)| (name.clone(), *times)).collect()
    }

    /// Returns true while every thread runs as it should.
    #[must_use]
    pub fn is_healthy(&self) -> bool {
        !self.failed.load(Ordering::Relaxed)
    }

    /// Notes that requests were answered. Costs a load unless the maintenance thread rests.
    #[inline]
    pub fn note_activity(&self) {
        if self.idle.load(Ordering::Relaxed) {
            self.ring();
        }
    }

    /// Wakes the maintenance thread.
    pub(crate) fn ring(&self) {
        let _rest = self.rest.lock();
        self.idle.store(false, Ordering::Relaxed);
        self.bell.notify_all();
    }

    /// Lets the maintenance thread rest for `time`, or until it is woken. If it `rests_long`, an
    /// answered request wakes it too. Returns without a rest once `is_over` says so.
    pub(crate) fn rest(
        &self,
        time: std::time::Duration,
        rests_long: bool,
        is_over: impl Fn() -> bool,
    ) {
        let mut rest = self.rest.lock();
        if !is_over() {
            self.idle.store(rests_long, Ordering::Relaxed);
            self.bell.wait_timeout(&mut rest, time);
            self.idle.store(false, Ordering::Relaxed);
        }
    }
}
