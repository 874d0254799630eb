//! A tenant while the server runs: its cache, its counters, its connections; and a thread's seat
//! at it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use entresol_base::{Clock, Nanos, Seconds};
use entresol_cache::{Cache, KeyHash, Worker};
use entresol_sharing::LiveSketch;
use parking_lot::Mutex;

use crate::config::{ConnectionLimits, TenantSettings};
use crate::counters::{Counters, Counts};

/// What a report of any tenant says of the server.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// When the server started.
    pub started: Seconds,
    /// The same moment on the fine clock.
    pub started_nanos: Nanos,
    /// Event loops.
    pub threads: usize,
}

/// A tenant, shared by all threads.
pub struct Tenant {
    settings: Mutex<TenantSettings>,
    limits: Mutex<ConnectionLimits>,
    cache: Arc<Cache>,
    threads: Vec<Arc<Counters>>,
    latencies: Vec<Arc<LiveSketch>>,
    baseline: Mutex<Counts>,
    connections: AtomicUsize,
    connections_max: AtomicUsize,
    addresses: Mutex<Vec<String>>,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
    server: ServerFacts,
    clock: Arc<dyn Clock>,
}

/// A connection, as `stats conns` shows it.
#[derive(Debug)]
pub struct Client {
    /// The peer's address.
    pub peer: String,
    last_active: AtomicU64,
}

impl Client {
    /// When it last asked for something.
    #[must_use]
    pub fn last_active(&self) -> Nanos {
        Nanos(self.last_active.load(Ordering::Relaxed))
    }

    pub(crate) fn is_active(&self, now: Nanos) {
        self.last_active.store(now.0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tenant {
    /// A tenant over an open cache, for as many threads as `server` has.
    #[must_use]
    pub fn new(
        settings: TenantSettings,
        limits: ConnectionLimits,
        cache: Arc<Cache>,
        server: ServerFacts,
        clock: Arc<dyn Clock>,
    ) -> Arc<Tenant> {
        Arc::new(Tenant {
            connections_max: AtomicUsize::new(settings.connections),
            settings: Mutex::new(settings),
            limits: Mutex::new(limits),
            cache,
            threads: (0..server.threads).map(|_| Arc::default()).collect(),
            latencies: (0..server.threads).map(|_| Arc::default()).collect(),
            baseline: Mutex::default(),
            connections: AtomicUsize::new(0),
            addresses: Mutex::default(),
            clients: Mutex::default(),
            next_client: AtomicU64::new(0),
            server,
            clock,
        })
    }

    /// The tenant's name.
    #[must_use]
    pub fn name(&self) -> String {
        self.settings.lock().name.clone()
    }

    /// What it is configured with now.
    #[must_use]
    pub fn settings(&self) -> TenantSettings {
        self.settings.lock().clone()
    }

    /// Puts changed settings into effect that need nothing but to be known.
    pub(crate) fn change_settings(&self, settings: TenantSettings, limits: ConnectionLimits) {
        self.connections_max.store(settings.connections, Ordering::Relaxed);
        *self.settings.lock() = settings;
        *self.limits.lock() = limits;
    }

    /// What one of its connections may hold.
    #[must_use]
    pub fn limits(&self) -> ConnectionLimits {
        *self.limits.lock()
    }

    /// Its cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// What is known of the server.
    #[must_use]
    pub fn server(&self) -> &ServerFacts {
        &self.server
    }

    /// Time.
    #[must_use]
    pub fn clock(&self) -> &Arc<dyn Clock> {
        &self.clock
    }

    /// Connections at this moment.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Where it listens, as bound.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.addresses.lock().clone()
    }

    pub(crate) fn set_addresses(&self, addresses: Vec<String>) {
        *self.addresses.lock() = addresses;
    }

    /// What all threads have counted since the last reset.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts_since_start().since(&self.baseline.lock())
    }

    /// What all threads have counted since the start: what a scraper wants, which must never see
    /// a counter go back.
    #[must_use]
    pub fn counts_since_start(&self) -> Counts {
        let mut counts = Counts::default();
        for counters in &self.threads {
            counts.add(counters);
        }
        counts
    }

    /// Each thread's response times since the start.
    pub(crate) fn latencies(&self) -> &[Arc<LiveSketch>] {
        &self.latencies
    }

    /// Sets what `stats` shows back to zero.
    pub fn reset_statistics(&self) {
        *self.baseline.lock() = self.counts_since_start();
        self.cache.reset_statistics();
    }

    /// The connections.
    #[must_use]
    pub fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }
}

/// One of a tenant's connections, counted in while this lives.
#[derive(Debug)]
pub(crate) struct ConnectionGuard {
    tenant: Arc<Tenant>,
    number: u64,
    /// What others may know of the connection.
    pub(crate) client: Arc<Client>,
}

impl ConnectionGuard {
    /// Counts a connection in, if the tenant may have one more.
    pub(crate) fn new(tenant: &Arc<Tenant>, peer: String, now: Nanos) -> Option<Self> {
        let max = tenant.connections_max.load(Ordering::Relaxed);
        let one_more = |count: usize| (count < max).then_some(count + 1);
        let order = Ordering::Relaxed;
        tenant.connections.fetch_update(order, order, one_more).ok()?;
        let number = tenant.next_client.fetch_add(1, order);
        let client = Arc::new(Client { peer, last_active: AtomicU64::new(now.0) });
        tenant.clients.lock().insert(number, Arc::clone(&client));
        Some(ConnectionGuard { tenant: Arc::clone(tenant), number, client })
    }
}

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        let client = self.tenant.clients.lock().remove(&self.number);
        debug_assert!(client.is_some(), "connection {} goes and was not listed", self.number);
        let before = self.tenant.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "connection {} goes, but none is counted", self.number);
    }
}

/// One thread's hold of a tenant.
pub struct Seat {
    /// The tenant.
    pub tenant: Arc<Tenant>,
    /// This thread's handle of the cache.
    pub worker: Worker,
    /// This thread's counters; no other thread may add to them.
    pub counters: Arc<Counters>,
    /// This thread's response times; no other thread may record any.
    pub latency: Arc<LiveSketch>,
    /// What stands in for the cache when its cost is to be left out of a measurement.
    pub null_store: Option<NullStore>,
}

/// The same value under every key, and a hash that serves for all of them.
#[derive(Debug, Clone)]
pub struct NullStore {
    /// The value.
    pub value: Vec<u8>,
    /// The hash.
    pub hash: KeyHash,
}

impl Seat {
    /// The seat of thread number `thread`; each number may be taken once.
    #[must_use]
    pub fn new(tenant: &Arc<Tenant>, thread: usize) -> Self {
        let owners = tenant.threads.get(thread).map(Arc::strong_count);
        debug_assert!(owners == Some(1), "seat {thread}: {owners:?} hold its counters, not one");
        let worker = tenant.cache.worker();
        let null_store = tenant
            .settings()
            .null_store_bytes
            .map(|bytes| NullStore { value: vec![b'0'; bytes], hash: worker.hash(b"") });
        Seat {
            tenant: Arc::clone(tenant),
            worker,
            null_store,
            counters: tenant.threads.get(thread).cloned().unwrap_or_default(),
            latency: tenant.latencies.get(thread).cloned().unwrap_or_default(),
        }
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
