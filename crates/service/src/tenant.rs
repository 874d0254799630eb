//! A tenant of a running server: its cache, counters and connections, and a thread's seat at it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use entresol_base::sync::Mutex;
use entresol_base::{Nanos, Seconds};
use entresol_cache::{Cache, DeleteOptions, KeyHash, Worker};
use entresol_protocol::{Key, KeyBuffer};
use entresol_sharing::LiveSketch;

use crate::config::{ConnectionLimits, TenantSettings};
use crate::counters::{Counters, Counts};
use crate::detail::Detail;
use crate::pace::Pace;

/// Facts about the server for the reports of its tenants.
#[derive(Debug, Clone)]
pub struct ServerFacts {
    /// Time of the server's start.
    pub started: Seconds,
    /// Time of the server's start on the fine clock.
    pub started_nanos: Nanos,
    /// Number of event loops.
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
    /// Counts by key prefix.
    pub(crate) detail: Detail,
    /// Pace of its lists of keys.
    pub(crate) listing_pace: Pace,
    /// Pace of its requests.
    pub(crate) request_pace: Pace,
    requests_per_second: AtomicU32,
    connections: AtomicUsize,
    /// Bytes of requests and replies that its connections hold.
    buffers: Arc<AtomicUsize>,
    connections_max: AtomicUsize,
    addresses: Mutex<Vec<String>>,
    clients: Mutex<BTreeMap<u64, Arc<Client>>>,
    next_client: AtomicU64,
    server: ServerFacts,
}

/// A connection, as `stats conns` shows it.
#[derive(Debug)]
pub struct Client {
    /// Address of the peer.
    pub(crate) peer: String,
    last_active: AtomicU64,
}

impl Client {
    /// Time of its last request.
    #[must_use]
    pub fn last_active(&self) -> Nanos {
        Nanos(self.last_active.load(Ordering::Relaxed))
    }

    /// Notes that the client has sent a request.
    #[inline]
    pub fn is_active(&self, now: Nanos) {
        self.last_active.store(now.0, Ordering::Relaxed);
    }
}

impl std::fmt::Debug for Tenant {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tenant").field("settings", &self.settings).finish_non_exhaustive()
    }
}

impl Tenant {
    /// Creates a tenant over an open cache, for the threads of `server`.
    #[must_use]
    pub fn new(
        settings: TenantSettings,
        limits: ConnectionLimits,
        cache: Arc<Cache>,
        server: ServerFacts,
    ) -> Arc<Tenant> {
        cache.limit_keys(limit_of(&settings));
        Arc::new(Tenant {
            connections_max: AtomicUsize::new(settings.connections),
            requests_per_second: AtomicU32::new(settings.requests_per_second),
            request_pace: Pace::default(),
            settings: Mutex::new(settings),
            limits: Mutex::new(limits),
            cache,
            threads: (0..server.threads).map(|_| Arc::default()).collect(),
            latencies: (0..server.threads).map(|_| Arc::default()).collect(),
            baseline: Mutex::default(),
            detail: Detail::default(),
            listing_pace: Pace::default(),
            connections: AtomicUsize::new(0),
            buffers: Arc::default(),
            addresses: Mutex::default(),
            clients: Mutex::default(),
            next_client: AtomicU64::new(0),
            server,
        })
    }

    /// Name of the tenant.
    #[must_use]
    pub fn name(&self) -> String {
        self.settings.lock().name.clone()
    }

    /// Current settings.
    #[must_use]
    pub fn settings(&self) -> TenantSettings {
        self.settings.lock().clone()
    }

    /// Replaces settings that take effect by being read.
    pub(crate) fn change_settings(&self, settings: TenantSettings, limits: ConnectionLimits) {
        self.connections_max.store(settings.connections, Ordering::Relaxed);
        self.requests_per_second.store(settings.requests_per_second, Ordering::Relaxed);
        self.cache.limit_keys(limit_of(&settings));
        *self.settings.lock() = settings;
        *self.limits.lock() = limits;
    }

    /// Limits of its connections.
    pub(crate) fn limits(&self) -> ConnectionLimits {
        *self.limits.lock()
    }

    /// Requests a second that the tenant may make; 0 is any number.
    #[inline]
    pub(crate) fn requests_per_second(&self) -> u32 {
        self.requests_per_second.load(Ordering::Relaxed)
    }

    /// Cache of the tenant.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Facts about the server.
    #[must_use]
    pub fn server(&self) -> &ServerFacts {
        &self.server
    }

    /// Number of connections now.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// Bytes of requests and replies that its connections hold, which the event loops count.
    #[must_use]
    pub fn buffers(&self) -> &Arc<AtomicUsize> {
        &self.buffers
    }

    /// Addresses and paths that it listens on, as bound.
    #[must_use]
    pub fn addresses(&self) -> Vec<String> {
        self.addresses.lock().clone()
    }

    /// Sets the addresses and paths that it listens on.
    pub fn set_addresses(&self, addresses: Vec<String>) {
        *self.addresses.lock() = addresses;
    }

    /// Sums the counters of all threads since the last reset.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.counts_since_start().since(&self.baseline.lock())
    }

    /// Sums the counters of all threads since the start. Scrapers use it, since they must never see
    /// a counter go back.
    #[must_use]
    pub fn counts_since_start(&self) -> Counts {
        let mut counts = Counts::default();
        for counters in &self.threads {
            counts.add(counters);
        }
        counts
    }

    /// Requests answered by all threads since the start.
    pub(crate) fn answered(&self) -> u64 {
        self.latencies.iter().map(|latency| latency.count()).fold(0, u64::wrapping_add)
    }

    /// Response times of each thread since the start.
    pub(crate) fn latencies(&self) -> &[Arc<LiveSketch>] {
        &self.latencies
    }

    /// Sets the statistics that `stats` shows back to zero.
    pub(crate) fn reset_statistics(&self) {
        *self.baseline.lock() = self.counts_since_start();
        self.cache.reset_statistics();
        self.detail.reset();
    }

    /// Connections of the tenant.
    pub(crate) fn clients(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }
}

/// Limit of keys of a tenant's cache.
fn limit_of(settings: &TenantSettings) -> Option<u64> {
    (settings.keys_max > 0).then_some(settings.keys_max)
}

/// Guard of a tenant's connection, which is counted as long as the guard lives.
#[derive(Debug)]
pub struct ConnectionGuard {
    tenant: Arc<Tenant>,
    number: u64,
    /// Facts about the connection that other threads may read.
    pub client: Arc<Client>,
}

impl ConnectionGuard {
    /// Counts a connection, if the tenant may have one more.
    #[must_use]
    pub fn new(tenant: &Arc<Tenant>, peer: String, now: Nanos) -> Option<Self> {
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
        debug_assert!(client.is_some(), "connection {} is closed, but was not listed", self.number);
        let before = self.tenant.connections.fetch_sub(1, Ordering::Relaxed);
        debug_assert!(before > 0, "connection {} is closed, but none is counted", self.number);
    }
}

/// Seat of one thread at a tenant.
pub struct Seat {
    /// Tenant of the seat.
    pub tenant: Arc<Tenant>,
    /// Handle of the cache for this thread.
    pub worker: Worker,
    /// Counters of this thread; no other thread may add to them.
    pub counters: Arc<Counters>,
    /// Response times of this thread; no other thread may record any.
    pub latency: Arc<LiveSketch>,
    /// Stand-in for the cache, when a measurement is to leave out its cost.
    pub(crate) null_store: Option<NullStore>,
}

/// One value for every key, and one hash for all of them.
#[derive(Debug, Clone)]
pub(crate) struct NullStore {
    /// Value of every key.
    pub(crate) value: Vec<u8>,
    /// Hash of every key.
    pub(crate) hash: KeyHash,
}

impl Seat {
    /// Creates the seat of thread number `thread`; each number may be used once.
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

    /// Drops the item whose new value was refused: no value is better than the old one.
    pub(crate) fn discard(&mut self, key: Key<'_>, buffer: &mut KeyBuffer, now: Seconds) {
        let key = key.resolve(buffer);
        let hash = self.worker.hash(key);
        self.worker.delete(key, hash, now, &DeleteOptions::default(), None);
    }
}

impl std::fmt::Debug for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Seat").field("tenant", &self.tenant).finish_non_exhaustive()
    }
}
