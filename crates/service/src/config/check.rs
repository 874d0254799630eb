//! Checks a configuration as written and turns it into [`Settings`], or reports all its problems.

use std::net::{IpAddr, SocketAddr};
use std::ops::{Range, RangeInclusive};
use std::path::{Path, PathBuf};
use std::time::Duration;

use entresol_base::suggest::nearest;
use entresol_base::{ByteSize, duration};
use entresol_cache::{Favour, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN, VALUE_BYTES_MAX};
use entresol_media::model::ModelName;
use entresol_media::{BackendChoice, MediumSpec, files, machine};
use entresol_sharing::PolicySettings;
use toml::Spanned;

use crate::auth::Users;

use super::access::{self, Access};
use super::file::{SizeText, TextOrList};
use super::{
    AdminAddress, AdminToken, Authentication, ConfigError, ConnectionLimits, Origin, Problem,
    RawConfig, RawLimits, RawTenant, Settings, TenantSettings,
};
use super::{sharing, tls};

/// Machine that a configuration is checked for.
#[derive(Debug, Clone, Copy)]
pub struct Machine {
    /// Bytes of main memory.
    pub memory: ByteSize,
    /// Processors.
    pub processors: usize,
}

const THREADS_MAX: i64 = 256;
const CONNECTIONS_DEFAULT: i64 = 1024;
const CONNECTIONS_MAX: i64 = 1_000_000;
/// Greatest limit of a tenant's requests a second.
const REQUESTS_MAX: i64 = 1_000_000_000;
/// Largest number of keys that a limit of them may name.
const KEYS_MAX: i64 = 1 << 40;
/// Greatest number of keys that a tenant may list a second.
const KEYS_LISTED_MAX: i64 = 10_000_000;
const NAME_BYTES_MAX: usize = 64;
const DRAM_QUOTA_DEFAULT: ByteSize = ByteSize::mib(64);
const SOCKET_MODE_DEFAULT: u32 = 0o700;
/// Bytes that a UNIX socket's path may have: the kernel's address structure less its closing zero.
const SOCKET_PATH_BYTES_MAX: usize = 107;
const ADMIN_DEFAULT: &str = "127.0.0.1:11280";
const DRAIN_DEFAULT: Duration = Duration::from_secs(5);
const PROGRESS_DEFAULT: Duration = Duration::from_secs(60);

pub(super) fn check(
    raw: &RawConfig,
    origin: &Origin,
    machine: &Machine,
) -> Result<Settings, ConfigError> {
    let mut checker = Checker { origin, problems: Vec::new() };
    let access = Access {
        remote: raw.allow_remote.as_ref().is_some_and(|allow| *allow.get_ref()),
        users: raw.auth_file.is_some(),
    };
    let mut settings = Settings {
        threads: checker.count("threads", &raw.threads, machine.processors as i64, 1..=THREADS_MAX)
            as usize,
        admin: checker.admin(&raw.admin, raw.admin_token_file.is_some()),
        admin_token: raw
            .admin_token_file
            .as_ref()
            .map(|path| AdminToken { file: PathBuf::from(path.get_ref()), secret: String::new() }),
        auth: raw.auth_file.as_ref().map(|path| Authentication {
            file: PathBuf::from(path.get_ref()),
            users: Users::default(),
        }),
        slow_log: checker.slow_log(&raw.slow_log),
        drain_time: checker.duration("drain_time", &raw.drain_time, DRAIN_DEFAULT),
        restart_from: raw.restart_from.as_ref().map(|dir| PathBuf::from(dir.get_ref())),
        huge_pages: raw.huge_pages.as_ref().is_none_or(|huge| *huge.get_ref()),
        io_backend: checker.io_backend(&raw.io_backend),
        limits: checker.limits(&raw.limits),
        tenants: raw.tenant.iter().map(|raw| checker.tenant(raw, access)).collect(),
        sharing: entresol_sharing::Settings::new("", PolicySettings::None, Vec::new()),
    };
    checker.tenants_together(&settings, raw, machine);
    settings.sharing = sharing::check(&mut checker, raw, &settings.tenants);
    if checker.problems.is_empty() {
        Ok(settings)
    } else {
        Err(ConfigError { problems: checker.problems })
    }
}

/// Collector of problems, so that a user sees all of them at once.
pub(super) struct Checker<'a> {
    pub(super) origin: &'a Origin,
    pub(super) problems: Vec<Problem>,
}

impl Checker<'_> {
    pub(super) fn problem(&mut self, key: &str, span: &Range<usize>, message: String) {
        self.problems.push(Problem { place: self.origin.place(key, span), message });
    }

    pub(super) fn count(
        &mut self,
        key: &str,
        written: &Option<Spanned<i64>>,
        default: i64,
        allowed: RangeInclusive<i64>,
    ) -> i64 {
        let Some(written) = written else { return default };
        let number = *written.get_ref();
        if !allowed.contains(&number) {
            let (from, to) = allowed.into_inner();
            let name = self.origin.key(key);
            let message = format!("{name} is {number}; it must be from {from} to {to}");
            self.problem(key, &written.span(), message);
            return default;
        }
        number
    }

    pub(super) fn duration(
        &mut self,
        key: &str,
        written: &Option<Spanned<String>>,
        default: Duration,
    ) -> Duration {
        let Some(written) = written else { return default };
        duration::parse(written.get_ref()).unwrap_or_else(|error| {
            let message = format!("{}: {error}", self.origin.key(key));
            self.problem(key, &written.span(), message);
            default
        })
    }

    fn size(&mut self, key: &str, written: &Option<Spanned<SizeText>>) -> Option<ByteSize> {
        let written = written.as_ref()?;
        match written.get_ref().text().parse() {
            Ok(size) => Some(size),
            Err(error) => {
                let message = format!("{}: {error}", self.origin.key(key));
                self.problem(key, &written.span(), message);
                None
            }
        }
    }

    /// Parses a size and checks it against bounds of its own.
    fn bounded_size(
        &mut self,
        key: &str,
        written: &Option<Spanned<SizeText>>,
        default: ByteSize,
        allowed: RangeInclusive<ByteSize>,
    ) -> usize {
        let size = self.size(key, written).unwrap_or(default);
        if !allowed.contains(&size) {
            let (from, to) = allowed.into_inner();
            let name = self.origin.key(key);
            let message = format!("{name} is {size}; it must be from {from} to {to}");
            self.problem(key, &span_of(written), message);
        }
        usize::try_from(size.0).unwrap_or(usize::MAX)
    }

    /// Parses a part of a whole, such as `12.5%`.
    pub(super) fn percent(&mut self, key: &str, written: &Option<Spanned<String>>) -> Option<f64> {
        let written = written.as_ref()?;
        let part = sharing::parse_percent(written.get_ref());
        if part.is_none() {
            let message =
                format!("{key} is '{}'; write a part of the whole as \"10%\"", written.get_ref());
            self.problem(key, &written.span(), message);
        }
        part
    }

    fn admin(
        &mut self,
        written: &Option<Spanned<String>>,
        has_token: bool,
    ) -> Option<AdminAddress> {
        let text = written.as_ref().map_or(ADMIN_DEFAULT, |written| written.get_ref());
        if text == "off" {
            return None;
        }
        let span = span_of(written);
        match machine::address_of(text) {
            Ok(address) => {
                access::may_administer(self, &span, address, has_token);
                Some(AdminAddress(address))
            }
            Err(problem) => {
                let name = self.origin.key("admin");
                let message =
                    format!("{name}: {problem}; write HOST:PORT, such as 127.0.0.1:11280, or off");
                self.problem("admin", &span, message);
                None
            }
        }
    }

    fn slow_log(&mut self, written: &Option<Spanned<String>>) -> Option<Duration> {
        let written_on = written.as_ref().filter(|text| text.get_ref() != "off")?.clone();
        let threshold = self.duration("slow_log", &Some(written_on), Duration::ZERO);
        Some(threshold)
    }

    fn io_backend(&mut self, written: &Option<Spanned<String>>) -> BackendChoice {
        match written.as_ref().map_or("auto", |text| text.get_ref()) {
            "auto" => BackendChoice::Auto,
            "io-uring" => BackendChoice::IoUring,
            "threads" => BackendChoice::Threads,
            other => {
                let message =
                    format!("io_backend is '{other}'; it must be auto, io-uring or threads");
                self.problem("io_backend", &span_of(written), message);
                BackendChoice::Auto
            }
        }
    }

    fn limits(&mut self, raw: &RawLimits) -> ConnectionLimits {
        let (small, large) = (ByteSize::kib(1), ByteSize::mib(16));
        ConnectionLimits {
            request_line_bytes: self.bounded_size(
                "request_line",
                &raw.request_line,
                ByteSize::kib(2),
                small..=large,
            ),
            multiget_line_bytes: self.bounded_size(
                "multiget_line",
                &raw.multiget_line,
                ByteSize::kib(8),
                ByteSize::kib(2)..=large,
            ),
            output_bytes: self.bounded_size(
                "output",
                &raw.output,
                ByteSize::mib(1),
                ByteSize::kib(16)..=ByteSize::gib(1),
            ),
            requests_per_turn: self.count(
                "requests_per_turn",
                &raw.requests_per_turn,
                512,
                1..=1_000_000,
            ) as usize,
            pending_reads: self.count("pending_reads", &raw.pending_reads, 64, 1..=4096) as usize,
            buffers_bytes: self.bounded_size(
                "buffers",
                &raw.buffers,
                ByteSize::mib(256),
                ByteSize::mib(1)..=ByteSize::gib(1 << 10),
            ),
            auth_time: access::auth_time(self, raw),
            idle_time: self.duration("idle_time", &raw.idle_time, Duration::ZERO),
            progress_time: self.duration("progress_time", &raw.progress_time, PROGRESS_DEFAULT),
        }
    }

    fn tenant(&mut self, raw: &Spanned<RawTenant>, access: Access) -> TenantSettings {
        let (span, raw) = (raw.span(), raw.get_ref());
        let medium = self.medium(&raw.medium);
        let segment_size = self.segment_size(raw);
        let value_limit = self.value_limit(raw);
        TenantSettings {
            name: self.name(raw, &span),
            listen: self.listen(raw, &span, access),
            tls: tls::check(self, raw, access),
            unix_socket: self.unix_socket(raw),
            unix_socket_mode: self.socket_mode(raw),
            needs_user: access.users,
            connections: self.count(
                "connections",
                &raw.connections,
                CONNECTIONS_DEFAULT,
                1..=CONNECTIONS_MAX,
            ) as usize,
            dram_quota: self.quota("dram_quota", &raw.dram_quota, segment_size, &medium),
            medium_quota: self.medium_quota(raw, &span, &medium, segment_size),
            medium,
            segment_size,
            value_limit,
            favour: self.favour(raw),
            cost_table: raw.cost_table.as_ref().map(|path| PathBuf::from(path.get_ref())),
            device: raw.device.as_ref().map(|device| device.get_ref().clone()),
            requests_per_second: self.count("requests_max", &raw.requests_max, 0, 0..=REQUESTS_MAX)
                as u32,
            keys_max: self.count("keys_max", &raw.keys_max, 0, 0..=KEYS_MAX) as u64,
            keys_listed_per_second: self.count("list_keys", &raw.list_keys, 0, 0..=KEYS_LISTED_MAX)
                as u32,
            cluster: self.cluster(raw),
            null_store_bytes: None,
        }
    }

    /// Body of the reply to `config get cluster`: a version, and each machine as name, address and
    /// port. The address may be empty, and clients then look the name up.
    fn cluster(&mut self, raw: &RawTenant) -> Option<String> {
        let version = self.count("cluster_version", &raw.cluster_version, 1, 1..=i64::MAX);
        let Some(written) = &raw.cluster else {
            if let Some(version) = &raw.cluster_version {
                let message = "cluster_version without cluster; add cluster = [\"HOST:PORT\"]";
                self.problem("cluster_version", &version.span(), message.to_owned());
            }
            return None;
        };
        let mut machines = Vec::new();
        for text in written.get_ref().as_slice() {
            let parts = text.rsplit_once(':');
            let is_name = |host: &str| !host.is_empty() && !host.contains([' ', '|', ',']);
            match parts.map(|(host, port)| (host, port.parse::<u16>())) {
                Some((host, Ok(port))) if is_name(host) && port > 0 => {
                    machines.push(format!("{host}||{port}"));
                }
                _ => {
                    let message = format!("'{text}' is not HOST:PORT, such as cache1:11211");
                    self.problem("cluster", &written.span(), message);
                }
            }
        }
        Some(format!("{version}\n{}\n", machines.join(" ")))
    }

    fn name(&mut self, raw: &RawTenant, span: &Range<usize>) -> String {
        let Some(written) = &raw.name else {
            let message = "a tenant has no name; add name = \"...\"".to_owned();
            self.problem("name", span, message);
            return String::new();
        };
        let name = written.get_ref();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
        if name.is_empty()
            || name.len() > NAME_BYTES_MAX
            || name.starts_with('.')
            || !name.chars().all(allowed)
        {
            let message = format!(
                "'{name}' is not a tenant name; use 1 to {NAME_BYTES_MAX} letters, digits, '-', \
                 '_' and '.', not beginning with '.'"
            );
            self.problem("name", &written.span(), message);
        }
        name.clone()
    }

    fn listen(&mut self, raw: &RawTenant, span: &Range<usize>, access: Access) -> Vec<SocketAddr> {
        let Some(written) = &raw.listen else {
            if raw.unix_socket.is_none() && raw.tls_listen.is_none() && !access.users {
                let message =
                    "a tenant has no listener; add listen = \"127.0.0.1:PORT\" or unix_socket = \
                     \"PATH\""
                        .to_owned();
                self.problem("listen", span, message);
            }
            return Vec::new();
        };
        self.addresses("listen", written, access)
    }

    /// Parses the addresses of a listener, each of which must be one that may be listened on.
    pub(super) fn addresses(
        &mut self,
        key: &str,
        written: &Spanned<TextOrList>,
        access: Access,
    ) -> Vec<SocketAddr> {
        let span = written.span();
        let mut addresses = Vec::new();
        for text in written.get_ref().as_slice() {
            let address = match machine::address_of(text) {
                Ok(address) => address,
                Err(problem) => {
                    let message = format!("{problem}; write HOST:PORT, such as 127.0.0.1:11211");
                    self.problem(key, &span, message);
                    continue;
                }
            };
            access::may_listen(self, key, &span, address, access);
            addresses.push(address);
        }
        addresses
    }

    fn unix_socket(&mut self, raw: &RawTenant) -> Option<PathBuf> {
        let written = raw.unix_socket.as_ref()?;
        let path = written.get_ref();
        if path.is_empty() || path.len() > SOCKET_PATH_BYTES_MAX {
            let message = format!(
                "unix_socket '{path}' has {} bytes; a socket's path has 1 to \
                 {SOCKET_PATH_BYTES_MAX}",
                path.len()
            );
            self.problem("unix_socket", &written.span(), message);
        }
        Some(PathBuf::from(path))
    }

    fn socket_mode(&mut self, raw: &RawTenant) -> u32 {
        let Some(written) = &raw.unix_socket_mode else { return SOCKET_MODE_DEFAULT };
        match u32::from_str_radix(written.get_ref(), 8) {
            Ok(mode) if mode <= 0o777 => mode,
            _ => {
                let message = format!(
                    "unix_socket_mode is '{}'; write three octal digits, such as 700",
                    written.get_ref()
                );
                self.problem("unix_socket_mode", &written.span(), message);
                SOCKET_MODE_DEFAULT
            }
        }
    }

    fn medium(&mut self, written: &Option<Spanned<String>>) -> MediumSpec {
        let Some(written) = written else { return MediumSpec::Dram };
        let medium = match written.get_ref().parse() {
            Ok(MediumSpec::Model(name)) => Err(unusable_model(name)),
            Ok(medium) => Ok(medium),
            Err(error) => Err(error.to_string()),
        };
        medium.unwrap_or_else(|message| {
            self.problem("medium", &written.span(), message);
            MediumSpec::Dram
        })
    }

    fn segment_size(&mut self, raw: &RawTenant) -> Option<ByteSize> {
        let size = self.size("segment_size", &raw.segment_size)?;
        if size < SEGMENT_BYTES_MIN || size > SEGMENT_BYTES_MAX || !size.0.is_power_of_two() {
            let message = format!(
                "segment_size is {size}; it must be a power of two from {SEGMENT_BYTES_MIN} to \
                 {SEGMENT_BYTES_MAX}"
            );
            self.problem("segment_size", &span_of(&raw.segment_size), message);
        }
        Some(size)
    }

    /// Checks a limit of values, as far as the quotas do not decide: those are checked with it when
    /// the cache is.
    fn value_limit(&mut self, raw: &RawTenant) -> Option<ByteSize> {
        let limit = self.size("value_limit", &raw.value_limit)?;
        let most = VALUE_BYTES_MAX;
        if limit > most || limit.0 == 0 {
            let message = format!(
                "value_limit is {limit}; it must be from 1B to {most}: no value may be larger"
            );
            self.problem("value_limit", &span_of(&raw.value_limit), message);
        }
        Some(limit)
    }

    fn quota(
        &mut self,
        key: &str,
        written: &Option<Spanned<SizeText>>,
        segment_size: Option<ByteSize>,
        medium: &MediumSpec,
    ) -> ByteSize {
        let quota = self.size(key, written).unwrap_or(DRAM_QUOTA_DEFAULT);
        let segment = segment_size.unwrap_or(SEGMENT_BYTES_MIN);
        let least = match (key, medium) {
            ("dram_quota", MediumSpec::Pmem { .. } | MediumSpec::File { .. }) => SEGMENT_BYTES_MIN,
            _ => ByteSize(segment.0 * SEGMENTS_MIN),
        };
        if quota < least {
            let message = format!(
                "{} is {quota}; it must be at least {least} ({SEGMENTS_MIN} segments)",
                self.origin.key(key)
            );
            self.problem(key, &span_of(written), message);
        }
        quota
    }

    fn medium_quota(
        &mut self,
        raw: &RawTenant,
        span: &Range<usize>,
        medium: &MediumSpec,
        segment_size: Option<ByteSize>,
    ) -> ByteSize {
        // A medium that was refused must not make its quota look wrong as well.
        let refused = raw.medium.as_ref().is_some_and(|written| written.get_ref() != "dram");
        match (medium, &raw.medium_quota) {
            (MediumSpec::Dram, None) => ByteSize(0),
            (MediumSpec::Dram, Some(_)) if refused => ByteSize(0),
            (MediumSpec::Dram, Some(written)) => {
                let message = "medium dram has no medium_quota; give dram_quota alone".to_owned();
                self.problem("medium_quota", &written.span(), message);
                ByteSize(0)
            }
            (_, None) => {
                let name = self.origin.key("medium_quota");
                let message = format!("medium {medium} needs {name}: how much of it to use");
                self.problem("medium_quota", span, message);
                ByteSize(0)
            }
            (_, written) => self.quota("medium_quota", written, segment_size, medium),
        }
    }

    fn favour(&mut self, raw: &RawTenant) -> Favour {
        let Some(written) = &raw.favour else { return Favour::default() };
        let name = written.get_ref();
        name.parse().unwrap_or_else(|_| {
            let hint = nearest(name, Favour::NAMES)
                .map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
            let message =
                format!("favour is '{name}'; it must be one of {}{hint}", Favour::NAMES.join(", "));
            self.problem("favour", &written.span(), message);
            Favour::default()
        })
    }

    /// Reports problems that concern several tenants: memory, names, addresses and files.
    fn tenants_together(&mut self, settings: &Settings, raw: &RawConfig, machine: &Machine) {
        if settings.tenants.is_empty() {
            let message = "no tenant is configured; add a [[tenant]] with name and listen".into();
            self.problem("tenant", &(0..0), message);
        }
        let is_reachable =
            |it: &TenantSettings| it.addresses().next().is_some() || it.unix_socket.is_some();
        if settings.auth.is_some() && !settings.tenants.iter().any(is_reachable) {
            let message = "no tenant has a listener; add listen = \"HOST:PORT\" to one".to_owned();
            let span = raw.tenant.first().map(Spanned::span);
            self.problem("listen", &span.unwrap_or_default(), message);
        }
        let total: u64 =
            settings.tenants.iter().fold(0, |sum, t| sum.saturating_add(t.dram_quota.0));
        if total > machine.memory.0 {
            let message = format!(
                "the tenants' DRAM quotas add up to {}, but the machine has {} of memory; lower \
                 dram_quota",
                approximate(total),
                approximate(machine.memory.0)
            );
            let span = raw.tenant.last().map(|t| span_of(&t.get_ref().dram_quota));
            self.problem("dram_quota", &span.unwrap_or_default(), message);
        }
        for (index, tenant) in settings.tenants.iter().enumerate() {
            let Some(raw_tenant) = raw.tenant.get(index).map(Spanned::get_ref) else { continue };
            for earlier in settings.tenants.iter().take(index) {
                self.conflicts(tenant, raw_tenant, earlier);
            }
            self.own_listeners(tenant, raw_tenant, settings.admin);
        }
    }

    /// Reports what two tenants have in common and must not.
    fn conflicts(&mut self, tenant: &TenantSettings, raw: &RawTenant, earlier: &TenantSettings) {
        let (name, other) = (&tenant.name, &earlier.name);
        if name == other && !name.is_empty() {
            let message = format!("two tenants have the name '{name}'; rename one");
            self.problem("name", &span_of(&raw.name), message);
        }
        for address in tenant.addresses() {
            if earlier.addresses().any(|theirs| collide(*theirs, *address)) {
                let message =
                    format!("tenants '{other}' and '{name}' both listen on {address}; change one");
                self.problem("listen", &span_of(&raw.listen), message);
            }
        }
        if let Some(path) = &tenant.unix_socket
            && earlier.unix_socket.as_ref() == Some(path)
        {
            let message = format!(
                "tenants '{other}' and '{name}' both listen on {}; change one",
                path.display()
            );
            self.problem("unix_socket", &span_of(&raw.unix_socket), message);
        }
        if let (Some(ours), Some(theirs)) =
            (medium_file(&tenant.medium), medium_file(&earlier.medium))
            && ours == theirs
        {
            let message = format!(
                "tenants '{other}' and '{name}' both keep values on {}; give each a file of its \
                 own",
                ours.display()
            );
            self.problem("medium", &span_of(&raw.medium), message);
        }
    }

    fn own_listeners(
        &mut self,
        tenant: &TenantSettings,
        raw: &RawTenant,
        admin: Option<AdminAddress>,
    ) {
        for (index, address) in tenant.addresses().enumerate() {
            let repeated = tenant.addresses().take(index).any(|own| collide(*own, *address));
            if repeated {
                let message =
                    format!("tenant '{}' listens on {address} twice; remove one", tenant.name);
                self.problem("listen", &span_of(&raw.listen), message);
            }
            if admin.is_some_and(|AdminAddress(admin)| collide(admin, *address)) {
                let message = format!(
                    "tenant '{}' and the admin listener both listen on {address}; change one",
                    tenant.name
                );
                self.problem("listen", &span_of(&raw.listen), message);
            }
        }
    }
}

/// Returns true if two addresses cannot both be bound; port 0 is a different port each time.
fn collide(a: SocketAddr, b: SocketAddr) -> bool {
    let wildcard = |ip: IpAddr| ip.is_unspecified();
    a.port() == b.port()
        && a.port() != 0
        && (a.ip() == b.ip() || wildcard(a.ip()) || wildcard(b.ip()))
}

/// Says why a tenant cannot use a model as its medium, and which medium comes nearest.
fn unusable_model(name: ModelName) -> String {
    let instead = if name.is_memory() {
        "dram, or pmem:PATH,assume-dax for emulated persistent memory".to_owned()
    } else {
        format!("file:PATH,model={name} for a file slowed down to that drive")
    };
    format!("medium model:{name} is simulated in virtual time and stores nothing; write {instead}")
}

/// File that a tenant's values lie on, with links resolved.
fn medium_file(medium: &MediumSpec) -> Option<PathBuf> {
    let (MediumSpec::Pmem { path, .. } | MediumSpec::File { path, .. }) = medium else {
        return None;
    };
    if let Ok(file) = files::canonical(path) {
        return Some(file);
    }
    // The file does not exist yet, but its folder may.
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    let file = files::canonical(folder).ok().zip(path.file_name());
    Some(file.map_or_else(|| path.clone(), |(folder, name)| folder.join(name)))
}

pub(super) fn span_of<T>(written: &Option<Spanned<T>>) -> Range<usize> {
    written.as_ref().map(Spanned::span).unwrap_or_default()
}

/// Number of bytes rounded down to mebibytes, for people to compare.
fn approximate(bytes: u64) -> ByteSize {
    ByteSize::mib(bytes >> 20)
}
