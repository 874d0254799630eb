//! `entresol serve`: derives settings from flags and a file, and starts a server with them.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::logging;
use anyhow::Context;
use clap::Args;
use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_server::Running;
use entresol_service::config::{
    self, ConfigError, Machine, RawConfig, RawTenant, Settings, SizeText, Spanned, TextOrList,
};
use tracing_subscriber::filter::LevelFilter;

/// Name of the only tenant if no file names any.
const TENANT: &str = "default";
const LISTEN_ON: &str = "127.0.0.1";
const PORT: u16 = 11211;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Read tenants and limits from this file; flags of the whole server take precedence over it.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    server: ServerFlags,
    #[command(flatten)]
    tenant: TenantFlags,
    /// Write lines of `TENANT ADDRESS:PORT` to this file once the server listens.
    #[arg(long, value_name = "PATH")]
    port_file: Option<PathBuf>,
    /// Level of logging: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info")]
    log_level: LevelFilter,
}

/// Flags that are valid with a file and without.
#[derive(Debug, Args)]
#[command(next_help_heading = "The whole server")]
struct ServerFlags {
    /// Event loops, with one thread each [default: one for each processor].
    #[arg(long, value_name = "N")]
    threads: Option<i64>,
    /// Listener of /metrics, /healthz, /stats.json, /sharing.json and the page /, or off [default:
    /// 127.0.0.1:11280].
    #[arg(long, value_name = "HOST:PORT|off")]
    admin: Option<String>,
    /// Ask every client of the admin listener for the token in this file.
    #[arg(long, value_name = "FILE")]
    admin_token_file: Option<String>,
    /// Let only the users in this file speak, with their passwords; `entresol user` makes it.
    #[arg(long, value_name = "FILE")]
    auth_file: Option<String>,
    /// Log requests that take longer than this, or off [default: off].
    #[arg(long, value_name = "TIME|off")]
    slow_log: Option<String>,
    /// Time that a stopping server waits for clients to take their replies [default: 5s].
    #[arg(long, value_name = "TIME")]
    drain_time: Option<String>,
    /// Keep the caches over a restart in this folder.
    #[arg(long, value_name = "FOLDER")]
    restart_from: Option<String>,
    /// Request huge pages [default: true].
    #[arg(long, value_name = "true|false")]
    huge_pages: Option<bool>,
    /// Backend that reads and writes block files: auto, io-uring or threads [default: auto].
    #[arg(long, value_name = "BACKEND")]
    io_backend: Option<String>,
    /// Allow listeners that other machines can reach, although they ask for no password.
    #[arg(long)]
    allow_remote: bool,
}

/// Flags of the only tenant, which is served without a file.
#[derive(Debug, Args)]
#[command(next_help_heading = "The one tenant served without --config")]
#[group(id = "tenant", multiple = true, conflicts_with = "config")]
struct TenantFlags {
    /// Listen on this address; may be given several times, and port 0 lets the system choose
    /// [default: 127.0.0.1:11211, unless there is a UNIX socket or --tls-listen].
    #[arg(long, value_name = "HOST:PORT")]
    listen: Vec<String>,
    /// Listen on this port of 127.0.0.1, like --listen 127.0.0.1:PORT.
    #[arg(short, long, value_name = "PORT", conflicts_with = "listen", value_parser = port)]
    port: Option<u16>,
    /// Listen on this address for clients that speak TLS 1.3; may be given several times.
    #[arg(long, value_name = "HOST:PORT", requires_all = ["tls_certificate", "tls_key"])]
    tls_listen: Vec<String>,
    /// PEM file of the server's certificate and those of its issuers, its own first.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_certificate: Option<String>,
    /// PEM file of the certificate's key.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_key: Option<String>,
    /// Ask clients that speak TLS for a certificate of an authority in this PEM file.
    #[arg(long, value_name = "FILE", requires = "tls_listen")]
    tls_client_ca: Option<String>,
    /// Take a client's user from its certificate, instead of asking for a password.
    #[arg(long, requires = "tls_client_ca")]
    tls_certificate_user: bool,
    /// Listen on this UNIX socket.
    #[arg(long, value_name = "PATH")]
    unix_socket: Option<String>,
    /// File mode of the UNIX socket, octal [default: 700].
    #[arg(long, value_name = "MODE")]
    unix_socket_mode: Option<String>,
    /// Largest number of connections [default: 1024].
    #[arg(long, value_name = "N")]
    connections: Option<i64>,
    /// Medium of the values: dram, pmem:PATH, pmem:PATH,assume-dax, file:PATH or
    /// file:PATH,model=NAME [default: dram].
    #[arg(long, value_name = "MEDIUM")]
    medium: Option<String>,
    /// Quota of DRAM: keys, metadata, tables and, with dram, values [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    dram_quota: Option<String>,
    /// Quota of DRAM in megabytes (MiB), like --dram-quota with a plain number.
    #[arg(short = 'm', long, value_name = "MEGABYTES", conflicts_with = "dram_quota",
        value_parser = clap::value_parser!(u32).range(1..))]
    memory_limit: Option<u32>,
    /// Quota of a medium other than dram.
    #[arg(long, value_name = "SIZE")]
    medium_quota: Option<String>,
    /// Cost table of the medium [default: the one beside the medium].
    #[arg(long, value_name = "FILE")]
    cost_table: Option<String>,
    /// Size of a segment [default: derived from the quota].
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<String>,
    /// Largest value that is accepted [default: 1MiB less 64 bytes, or an eighth of a small quota].
    #[arg(long, value_name = "SIZE")]
    value_limit: Option<String>,
    /// Misses that eviction keeps few: objects or bytes [default: objects].
    #[arg(long, value_name = "WHAT")]
    favour: Option<String>,
    /// Keys a second that `lru_crawler metadump` and `mgdump` may list; 0 refuses them.
    #[arg(long, value_name = "N")]
    list_keys: Option<i64>,
    /// Answer every get with this many bytes and every store with success, for measurements,
    /// without a cache. The cost of the connection remains.
    #[arg(long, value_name = "SIZE", hide = true)]
    null_store: Option<ByteSize>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    // Before anything that takes time: a signal must not end a server that restores its caches.
    let caught = entresol_server::signals::catch().context("cannot catch signals")?;
    let _log = logging::begin(arguments.log_level);
    entresol_media::machine::give_large_buffers_back();
    let settings = settings(arguments)?;
    if let Some(path) = &arguments.port_file {
        check_port_file(path)?;
    }
    for doubt in settings.doubts(&machine()) {
        tracing::warn!("{doubt}");
    }
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let running = entresol_server::start(settings, clock)?;
    if let Some(path) = &arguments.port_file {
        write_ports(path, &running)?;
    }
    let read = || settings_again(arguments);
    Ok(entresol_server::signals::serve(caught, running, read)?)
}

/// Returns the processors and the memory of this machine.
pub(crate) fn machine() -> Machine {
    Machine {
        memory: ByteSize(entresol_media::machine::memory_bytes()),
        processors: entresol_media::machine::processors(),
    }
}

/// Reads a configuration file.
pub(crate) fn read_file(path: &Path) -> anyhow::Result<String> {
    entresol_media::files::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))
}

fn settings(arguments: &Arguments) -> anyhow::Result<Settings> {
    let Some(path) = &arguments.config else {
        let mut raw =
            RawConfig { tenant: vec![spanned(arguments.tenant.raw())], ..Default::default() };
        arguments.server.put_over(&mut raw);
        let mut settings = config::from_flags(&raw, &machine())?;
        for tenant in &mut settings.tenants {
            tenant.null_store_bytes = arguments.tenant.null_store.map(|size| size.0 as usize);
        }
        return Ok(settings);
    };
    let text = read_file(path)?;
    let read: Result<Settings, ConfigError> =
        config::parse_with(&path.to_string_lossy(), &text, &machine(), |raw| {
            arguments.server.put_over(raw);
        });
    Ok(read?)
}

/// Reads the settings again, for a reload.
fn settings_again(arguments: &Arguments) -> Result<Settings, String> {
    let has_files =
        arguments.server.auth_file.is_some() || arguments.tenant.tls_certificate.is_some();
    if arguments.config.is_none() && !has_files {
        return Err(
            "there is no configuration file to reload: start the server with --config".to_owned()
        );
    }
    settings(arguments).map_err(|error| format!("{error:#}"))
}

impl ServerFlags {
    /// Replaces values of the file by flags that were given.
    fn put_over(&self, raw: &mut RawConfig) {
        put(&mut raw.threads, self.threads);
        put(&mut raw.admin, self.admin.clone());
        put(&mut raw.admin_token_file, self.admin_token_file.clone());
        put(&mut raw.auth_file, self.auth_file.clone());
        put(&mut raw.slow_log, self.slow_log.clone());
        put(&mut raw.drain_time, self.drain_time.clone());
        put(&mut raw.restart_from, self.restart_from.clone());
        put(&mut raw.huge_pages, self.huge_pages);
        put(&mut raw.io_backend, self.io_backend.clone());
        put(&mut raw.allow_remote, self.allow_remote.then_some(true));
    }
}

impl TenantFlags {
    fn raw(&self) -> RawTenant {
        let size = |text: &Option<String>| text.clone().map(SizeText::Text).map(spanned);
        let mut listen = self.listen.clone();
        listen.extend(self.port.map(|port| format!("{LISTEN_ON}:{port}")));
        let memory_limit = self.memory_limit.map(|megabytes| format!("{megabytes}MiB"));
        if listen.is_empty() && self.tls_listen.is_empty() && self.unix_socket.is_none() {
            listen.push(format!("{LISTEN_ON}:{PORT}"));
        }
        RawTenant {
            name: Some(spanned(TENANT.to_owned())),
            listen: (!listen.is_empty()).then(|| spanned(TextOrList::List(listen))),
            tls_listen: (!self.tls_listen.is_empty())
                .then(|| spanned(TextOrList::List(self.tls_listen.clone()))),
            tls_certificate: self.tls_certificate.clone().map(spanned),
            tls_key: self.tls_key.clone().map(spanned),
            tls_client_ca: self.tls_client_ca.clone().map(spanned),
            tls_certificate_user: self.tls_certificate_user.then(|| spanned(true)),
            unix_socket: self.unix_socket.clone().map(spanned),
            unix_socket_mode: self.unix_socket_mode.clone().map(spanned),
            connections: self.connections.map(spanned),
            medium: self.medium.clone().map(spanned),
            dram_quota: size(&memory_limit.or_else(|| self.dram_quota.clone())),
            medium_quota: size(&self.medium_quota),
            cost_table: self.cost_table.clone().map(spanned),
            segment_size: size(&self.segment_size),
            value_limit: size(&self.value_limit),
            favour: self.favour.clone().map(spanned),
            list_keys: self.list_keys.map(spanned),
            // Sharing needs more tenants than the one that flags describe.
            ..RawTenant::default()
        }
    }
}

/// Parses a port to listen on. Port 0 is refused: it means no port to memcached, but any port
/// elsewhere.
fn port(text: &str) -> Result<u16, String> {
    match text.parse() {
        Ok(0) => Err(
            "use --listen 127.0.0.1:0 for a port that the system chooses, or --unix-socket alone \
             for no port"
                .to_owned(),
        ),
        Ok(port) => Ok(port),
        Err(_) => Err("use a number from 1 to 65535".to_owned()),
    }
}

/// Wraps a value that does not come from a file.
fn spanned<T>(value: T) -> Spanned<T> {
    Spanned::new(0..0, value)
}

fn put<T>(place: &mut Option<Spanned<T>>, given: Option<T>) {
    if let Some(value) = given {
        *place = Some(spanned(value));
    }
}

/// Checks that the port file can be written, before the server acquires anything.
fn check_port_file(path: &Path) -> anyhow::Result<()> {
    entresol_media::files::check_writable(path).with_context(|| {
        format!("cannot write the port file {}: give another path", path.display())
    })
}

fn write_ports(path: &Path, running: &Running) -> anyhow::Result<()> {
    let mut text = String::new();
    for (tenant, addresses) in running.addresses() {
        for address in addresses {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{tenant} {address}");
        }
    }
    entresol_media::files::write_atomically(path, text.as_bytes())
        .with_context(|| format!("cannot write the port file {}", path.display()))
}
