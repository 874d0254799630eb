//! A checked configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_cache::{Config as CacheConfig, Eviction};
use entresol_media::{BackendChoice, MediumSpec};

/// Everything a server runs with.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Event loops, one thread each.
    pub threads: usize,
    /// Where metrics, health and statistics are served; `None` is off.
    pub admin: Option<AdminAddress>,
    /// Requests that take longer are logged; `None` is off.
    pub slow_log: Option<Duration>,
    /// How long a stopping server waits for clients to take their replies.
    pub drain_time: Duration,
    /// Where caches keep their state over a restart, one folder a tenant.
    pub restart_from: Option<PathBuf>,
    /// Ask for huge pages.
    pub huge_pages: bool,
    /// How block files are read and written.
    pub io_backend: BackendChoice,
    /// What one connection may hold.
    pub limits: ConnectionLimits,
    /// How tenants share what they lie on. Its tenants are those below, numbered by their place.
    pub sharing: entresol_sharing::Settings,
    /// The tenants, in the order of the file.
    pub tenants: Vec<TenantSettings>,
}

/// Where the admin listener listens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminAddress(pub SocketAddr);

/// What one connection may hold and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Longest command line.
    pub request_line_bytes: usize,
    /// Longest line of a request for many keys.
    pub multiget_line_bytes: usize,
    /// Replies held for a client that does not take them; beyond it nothing more is executed.
    pub output_bytes: usize,
    /// Requests executed for a connection before the others have their turn.
    pub requests_per_turn: usize,
    /// Reads from a block file that one connection may have under way.
    pub pending_reads: usize,
    /// Requests, replies and reads under way of all connections of one tenant together.
    pub buffers_bytes: usize,
    /// A connection without a request for this long is closed; zero is never.
    pub idle_time: Duration,
    /// A request begun, or a reply not taken, for this long closes the connection; zero is never.
    pub progress_time: Duration,
}

/// A tenant: whose requests, where they arrive, and what they may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSettings {
    /// The tenant's name.
    pub name: String,
    /// TCP addresses; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// A UNIX socket.
    pub unix_socket: Option<PathBuf>,
    /// The socket's file mode.
    pub unix_socket_mode: u32,
    /// Connections at a time.
    pub connections: usize,
    /// What values lie on.
    pub medium: MediumSpec,
    /// Quota of DRAM.
    pub dram_quota: ByteSize,
    /// Quota of the medium, if it is another than DRAM.
    pub medium_quota: ByteSize,
    /// Size of a segment; the cache chooses if absent.
    pub segment_size: Option<ByteSize>,
    /// The largest value taken.
    pub value_limit: ByteSize,
    /// Which segment goes when room is short.
    pub eviction: Eviction,
    /// The medium's cost table; looked for beside the medium if absent.
    pub cost_table: Option<PathBuf>,
    /// The device that the medium lies on, if its path does not tell.
    pub device: Option<String>,
    /// For measuring only: every get is answered with this many bytes, every store with success,
    /// and the cache is never asked. What is left is the cost of the connection.
    pub null_store_bytes: Option<usize>,
}

impl TenantSettings {
    /// The device whose time the tenant shares with all others on it.
    #[must_use]
    pub fn device(&self) -> String {
        self.device.clone().unwrap_or_else(|| self.medium.device())
    }

    /// What the tenant's cache is made from, in a server with these `settings`.
    #[must_use]
    pub fn cache(&self, settings: &Settings) -> CacheConfig {
        CacheConfig {
            name: self.name.clone(),
            medium: self.medium.clone(),
            dram_bytes: self.dram_quota,
            medium_bytes: self.medium_quota,
            segment_bytes: self.segment_size,
            value_bytes_max: self.value_limit,
            eviction: self.eviction,
            workers: settings.threads,
            restart_dir: settings.restart_from.as_ref().map(|dir| dir.join(&self.name)),
            huge_pages: settings.huge_pages,
            io_backend: settings.io_backend,
            costs: None,
            seed: None,
        }
    }
}
