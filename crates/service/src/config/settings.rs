//! A checked configuration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_cache::{Config as CacheConfig, Favour};
use entresol_media::{BackendChoice, MediumSpec};

use crate::auth::Users;
use crate::tls::Acceptor;

/// Connections that the kernel queues for a listener until they are accepted.
pub const TCP_BACKLOG: i32 = 1024;

/// Settings of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Number of event loops, one thread each.
    pub threads: usize,
    /// Address of metrics, health and statistics; `None` is off.
    pub admin: Option<AdminAddress>,
    /// Secret of the admin listener's clients; none if every client may ask it.
    pub admin_token: Option<AdminToken>,
    /// Users that alone may speak; none if every client may.
    pub auth: Option<Authentication>,
    /// Response time from which requests are logged; `None` is off.
    pub slow_log: Option<Duration>,
    /// Time that a stopping server gives its clients to take their replies.
    pub drain_time: Duration,
    /// Folder in which caches keep their state over a restart, one subfolder a tenant.
    pub restart_from: Option<PathBuf>,
    /// True to ask for huge pages.
    pub huge_pages: bool,
    /// Backend that reads and writes block files.
    pub io_backend: BackendChoice,
    /// Limits of a connection.
    pub limits: ConnectionLimits,
    /// Policy by which tenants share devices. Its tenants are those below, numbered by their place.
    pub sharing: entresol_sharing::Settings,
    /// Tenants in the order of the file.
    pub tenants: Vec<TenantSettings>,
}

/// Address of the admin listener.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AdminAddress(pub SocketAddr);

/// Secret of the admin listener's clients.
#[derive(Clone, PartialEq, Eq)]
pub struct AdminToken {
    /// File that holds it.
    pub file: PathBuf,
    /// The secret; empty, so that it admits no client, if the file has not been read.
    pub secret: String,
}

impl std::fmt::Debug for AdminToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AdminToken").field("file", &self.file).finish_non_exhaustive()
    }
}

/// File of the users, and what it says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authentication {
    /// File of the users.
    pub file: PathBuf,
    /// The users; none, so that no client may speak, if the file has not been read.
    pub users: Users,
}

/// Limits on a connection's memory and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionLimits {
    /// Time within which a client must authenticate, if any must.
    pub auth_time: Duration,
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
    /// Memory of requests, replies and pending reads of all connections of a tenant together.
    pub buffers_bytes: usize,
    /// Time without a request after which a connection is closed; zero is never.
    pub idle_time: Duration,
    /// Time after which an unfinished request or an untaken reply closes the connection; zero is
    /// never.
    pub progress_time: Duration,
}

/// Settings of a tenant: its listeners, its medium and its quotas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantSettings {
    /// Name of the tenant.
    pub name: String,
    /// TCP addresses; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// Listeners that speak TLS.
    pub tls: Option<TlsSettings>,
    /// Path of a UNIX socket.
    pub unix_socket: Option<PathBuf>,
    /// File mode of the socket.
    pub unix_socket_mode: u32,
    /// True if clients must authenticate.
    pub needs_user: bool,
    /// Maximum number of connections.
    pub connections: usize,
    /// Medium of the values.
    pub medium: MediumSpec,
    /// Quota of DRAM.
    pub dram_quota: ByteSize,
    /// Quota of the medium, if it is not DRAM.
    pub medium_quota: ByteSize,
    /// Size of a segment; chosen by the cache if absent.
    pub segment_size: Option<ByteSize>,
    /// Largest value accepted; chosen by the cache if absent.
    pub value_limit: Option<ByteSize>,
    /// Misses that eviction keeps few.
    pub favour: Favour,
    /// Cost table of the medium; if absent, it is looked for beside the medium.
    pub cost_table: Option<PathBuf>,
    /// Device of the medium, if its path does not tell.
    pub device: Option<String>,
    /// Requests a second that the tenant may make; 0 is any number.
    pub requests_per_second: u32,
    /// Keys that the tenant may have; 0 is any number.
    pub keys_max: u64,
    /// Keys a second that `lru_crawler metadump` and `mgdump` may list; 0 refuses them.
    pub keys_listed_per_second: u32,
    /// Body of the reply to `config get cluster`; none if no machines are configured.
    pub cluster: Option<String>,
    /// Answers every get with this many bytes and every store with success, for measurements only,
    /// without asking the cache. The cost of the connection alone remains.
    pub null_store_bytes: Option<usize>,
}

/// Listeners of a tenant that speak TLS, and the files of their certificates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsSettings {
    /// TCP addresses; port 0 lets the system choose.
    pub listen: Vec<SocketAddr>,
    /// File of the server's certificate and those of its issuers.
    pub certificate: PathBuf,
    /// File of the certificate's key.
    pub key: PathBuf,
    /// File of the authorities that issue certificates to clients, if clients must have one.
    pub client_ca: Option<PathBuf>,
    /// True if a client's certificate names its user.
    pub certificate_user: bool,
    /// Certificates as read; none, so that no client may speak, if the files have not been read.
    pub acceptor: Option<Acceptor>,
}

impl TenantSettings {
    /// All TCP addresses, those of clear text first.
    pub fn addresses(&self) -> impl Iterator<Item = &SocketAddr> {
        self.listen.iter().chain(self.tls.iter().flat_map(|tls| &tls.listen))
    }

    /// Device whose time the tenant shares with the other tenants on it.
    #[must_use]
    pub fn device(&self) -> String {
        self.device.clone().unwrap_or_else(|| self.medium.device())
    }

    /// Configuration of the tenant's cache, in a server with these `settings`.
    #[must_use]
    pub fn cache(&self, settings: &Settings) -> CacheConfig {
        CacheConfig {
            name: self.name.clone(),
            medium: self.medium.clone(),
            dram_bytes: self.dram_quota,
            medium_bytes: self.medium_quota,
            segment_bytes: self.segment_size,
            value_bytes_max: self.value_limit,
            favour: self.favour,
            workers: settings.threads,
            restart_dir: settings.restart_from.as_ref().map(|dir| dir.join(&self.name)),
            huge_pages: settings.huge_pages,
            io_backend: settings.io_backend,
            costs: None,
            seed: None,
        }
    }
}
