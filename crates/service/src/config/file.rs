//! A configuration as written: every key is optional, and every value knows its place in the text.

use serde::Deserialize;
use toml::Spanned;

use super::locate::{self, line_of};
use super::{ConfigError, Problem};

/// Source of a configuration, so that a problem can name its place.
#[derive(Debug, Clone)]
pub(crate) enum Origin {
    /// Flags of the command line.
    Flags,
    /// A file, by its name and text.
    File {
        /// Name of the file as the user gave it.
        name: String,
        /// Text of the file.
        text: String,
    },
}

impl Origin {
    /// Origin for the file called `name` with this `text`.
    #[must_use]
    pub(crate) fn file(name: &str, text: &str) -> Self {
        Origin::File { name: name.to_owned(), text: text.to_owned() }
    }

    /// Place of a value of `key`: the file and its line, or the flag.
    pub(super) fn place(&self, key: &str, span: &std::ops::Range<usize>) -> String {
        match self {
            Origin::Flags => format!("--{}", key.replace('_', "-")),
            Origin::File { name, .. } if span.end == 0 => name.clone(),
            Origin::File { name, text } => format!("{name}:{}", line_of(text, span.start)),
        }
    }

    /// Spelling of `key` in this origin: as a flag, or as a key of the file.
    pub(super) fn key(&self, key: &str) -> String {
        match self {
            Origin::Flags => format!("--{}", key.replace('_', "-")),
            Origin::File { .. } => key.to_owned(),
        }
    }
}

/// One text, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum TextOrList {
    /// A single text.
    Text(String),
    /// Several texts.
    List(Vec<String>),
}

impl TextOrList {
    /// All texts, as a slice.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            TextOrList::Text(text) => std::slice::from_ref(text),
            TextOrList::List(list) => list,
        }
    }
}

/// The whole file. Sizes, durations and addresses are still texts here; the check parses them,
/// since it knows their names and places.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConfig {
    /// Number of event loops.
    pub threads: Option<Spanned<i64>>,
    /// Address of the admin listener, or `off`.
    pub admin: Option<Spanned<String>>,
    /// File of the admin listener's token.
    pub admin_token_file: Option<Spanned<String>>,
    /// File of the users and the hashes of their passwords.
    pub auth_file: Option<Spanned<String>>,
    /// Threshold of the log of slow requests, or `off`.
    pub slow_log: Option<Spanned<String>>,
    /// Time that a stopping server gives its clients to take their replies.
    pub drain_time: Option<Spanned<String>>,
    /// Folder in which caches keep their state over a restart.
    pub restart_from: Option<Spanned<String>>,
    /// True to ask for huge pages.
    pub huge_pages: Option<Spanned<bool>>,
    /// Backend for block files: `auto`, `io-uring` or `threads`.
    pub io_backend: Option<Spanned<String>>,
    /// True to allow listening on addresses other than loopback without authentication.
    pub allow_remote: Option<Spanned<bool>>,
    /// Limits of a connection.
    pub limits: RawLimits,
    /// Policy by which tenants share devices.
    pub sharing: RawSharing,
    /// Groups of tenants.
    pub group: Vec<Spanned<RawGroup>>,
    /// Tenants.
    pub tenant: Vec<Spanned<RawTenant>>,
}

/// Section `[limits]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLimits {
    /// Time within which a client must authenticate.
    pub auth_time: Option<Spanned<String>>,
    /// Longest command line.
    pub request_line: Option<Spanned<SizeText>>,
    /// Longest line of a request for many keys.
    pub multiget_line: Option<Spanned<SizeText>>,
    /// Replies held for a client that does not take them.
    pub output: Option<Spanned<SizeText>>,
    /// Requests executed for a connection before the others have their turn.
    pub requests_per_turn: Option<Spanned<i64>>,
    /// Reads from a block file that one connection may have under way.
    pub pending_reads: Option<Spanned<i64>>,
    /// Memory of requests, replies and pending reads of all connections of a tenant together.
    pub buffers: Option<Spanned<SizeText>>,
    /// Time without a request after which a connection is closed.
    pub idle_time: Option<Spanned<String>>,
    /// Time after which an unfinished request or an untaken reply closes the connection.
    pub progress_time: Option<Spanned<String>>,
}

/// Section `[[tenant]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTenant {
    /// Name of the tenant.
    pub name: Option<Spanned<String>>,
    /// TCP addresses.
    pub listen: Option<Spanned<TextOrList>>,
    /// TCP addresses at which clients must speak TLS.
    pub tls_listen: Option<Spanned<TextOrList>>,
    /// PEM file of the server's certificate and those of its issuers, its own first.
    pub tls_certificate: Option<Spanned<String>>,
    /// PEM file of the certificate's key.
    pub tls_key: Option<Spanned<String>>,
    /// PEM file of the authorities, one of which must have issued a client's certificate.
    pub tls_client_ca: Option<Spanned<String>>,
    /// True if a client's certificate names its user, who then needs no password.
    pub tls_certificate_user: Option<Spanned<bool>>,
    /// Path of a UNIX socket.
    pub unix_socket: Option<Spanned<String>>,
    /// File mode of the socket, octal.
    pub unix_socket_mode: Option<Spanned<String>>,
    /// Maximum number of connections.
    pub connections: Option<Spanned<i64>>,
    /// Medium of the values.
    pub medium: Option<Spanned<String>>,
    /// Quota of DRAM.
    pub dram_quota: Option<Spanned<SizeText>>,
    /// Quota of the medium.
    pub medium_quota: Option<Spanned<SizeText>>,
    /// Size of a segment.
    pub segment_size: Option<Spanned<SizeText>>,
    /// The medium's cost table.
    pub cost_table: Option<Spanned<String>>,
    /// Largest value accepted.
    pub value_limit: Option<Spanned<SizeText>>,
    /// Misses that eviction keeps few: `objects` or `bytes`.
    pub favour: Option<Spanned<String>>,
    /// Device of the medium, if its path does not tell.
    pub device: Option<Spanned<String>>,
    /// Requests a second that the tenant may make.
    pub requests_max: Option<Spanned<i64>>,
    /// Keys that the tenant may have.
    pub keys_max: Option<Spanned<i64>>,
    /// Keys a second that `lru_crawler metadump` and `mgdump` may list.
    pub list_keys: Option<Spanned<i64>>,
    /// Machines that `config get cluster` names, each as `HOST:PORT`.
    pub cluster: Option<Spanned<TextOrList>>,
    /// Version of that list.
    pub cluster_version: Option<Spanned<i64>>,
    /// Group of the tenant.
    pub group: Option<Spanned<String>>,
    /// Class of the tenant: `latency-critical` or `best-effort`.
    pub class: Option<Spanned<String>>,
    /// Promised response time, such as `p99 2ms`.
    pub target: Option<Spanned<String>>,
    /// Weight beside the other tenants.
    pub weight: Option<Spanned<f64>>,
    /// Maximum share of its medium's time.
    pub share_max: Option<Spanned<String>>,
    /// Maximum bytes a second that it may move.
    pub bytes_s_max: Option<Spanned<SizeText>>,
    /// Maximum slowdown, compared with being alone.
    pub slowdown_max: Option<Spanned<f64>>,
}

/// Section `[sharing]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSharing {
    /// Name of the policy.
    pub policy: Option<Spanned<String>>,
    /// Parameters of the policy.
    pub parameters: RawParameters,
    /// Number of decisions that the controller remembers.
    pub decisions_max: Option<Spanned<i64>>,
}

/// Section `[[group]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawGroup {
    /// Name of the group.
    pub name: Option<Spanned<String>>,
    /// Name of the policy among its tenants.
    pub policy: Option<Spanned<String>>,
    /// Parameters of that policy.
    pub parameters: RawParameters,
    /// Class of the group: `latency-critical` or `best-effort`.
    pub class: Option<Spanned<String>>,
    /// Promised response time, such as `p99 2ms`.
    pub target: Option<Spanned<String>>,
    /// Weight beside other groups and tenants.
    pub weight: Option<Spanned<f64>>,
    /// Maximum share of its medium's time.
    pub share_max: Option<Spanned<String>>,
    /// Maximum bytes a second that it may move.
    pub bytes_s_max: Option<Spanned<SizeText>>,
    /// Maximum slowdown, compared with being alone.
    pub slowdown_max: Option<Spanned<f64>>,
}

/// Sections `[sharing.parameters]` and `[group.parameters]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawParameters {
    /// Interval between readings of the counters.
    pub tick: Option<Spanned<String>>,
    /// Way of enforcing a limit: `bucket` or `epochs`.
    pub enforcement: Option<Spanned<String>>,
    /// Interval between looks at the use of an epoch.
    pub epoch_tick: Option<Spanned<String>>,
    /// Ticks in an epoch.
    pub epoch_ticks: Option<Spanned<i64>>,
    /// Minimum time for which response times are watched.
    pub watch_shortest: Option<Spanned<String>>,
    /// Maximum time for which response times are watched.
    pub watch_longest: Option<Spanned<String>>,
    /// Number of requests beyond the percentile that ends a watch between its minimum and maximum.
    pub watch_tail_min: Option<Spanned<i64>>,
    /// Size of steps: `adaptive` or `published`.
    pub pace: Option<Spanned<String>>,
    /// Cost of an experiment to each candidate.
    pub expense: Option<Spanned<SizeText>>,
    /// Metric of performance: `throughput`, `mean` or a percentile such as `p99`.
    pub metric: Option<Spanned<String>>,
    /// Maximum number of candidates that are tried.
    pub candidates_max: Option<Spanned<i64>>,
    /// Slack above which a tenant may be slowed.
    pub slack_min: Option<Spanned<String>>,
    /// Share below which no tenant is slowed.
    pub share_min: Option<Spanned<String>>,
    /// Maximum wait before a step that was taken back is tried again.
    pub patience_max: Option<Spanned<String>>,
    /// Interval between comparisons of slowdowns.
    pub interval: Option<Spanned<String>>,
    /// Largest slowdown over the smallest, up to which sharing counts as fair.
    pub unfairness_max: Option<Spanned<f64>>,
    /// Fair rounds after which all tenants are released by a step.
    pub rounds: Option<Spanned<i64>>,
    /// True to make slowdowns equal, rather than only keep limits.
    pub equalise: Option<Spanned<bool>>,
    /// Distance kept from a limit or a guarantee.
    pub margin: Option<Spanned<String>>,
    /// Interval between assignments of shares.
    pub period: Option<Spanned<String>>,
    /// Lending of unused share: `adaptive`, `never`, `naive` or a step such as `10%`.
    pub donation: Option<Spanned<String>>,
    /// Interval between measurements of performance alone.
    pub alone_period: Option<Spanned<String>>,
    /// Time for which the others are paused.
    pub pause: Option<Spanned<String>>,
    /// Requests below which a pause is prolonged.
    pub pause_requests_min: Option<Spanned<i64>>,
    /// Maximum length of a pause.
    pub pause_max: Option<Spanned<String>>,
    /// Change of load above which earlier measurements no longer hold.
    pub load_change: Option<Spanned<String>>,
}

/// A size, as a number of bytes or as a text with a unit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SizeText {
    /// Number of bytes.
    Bytes(u64),
    /// Text with a unit, such as `64MiB`.
    Text(String),
}

impl SizeText {
    /// The size as text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            SizeText::Bytes(bytes) => bytes.to_string(),
            SizeText::Text(text) => text.clone(),
        }
    }
}

/// Reads the text: first its grammar, then its keys, then the types of its values.
pub(super) fn read(origin: &Origin) -> Result<RawConfig, ConfigError> {
    let Origin::File { text, .. } = origin else {
        return Ok(RawConfig::default());
    };
    let grammar = |error: toml::de::Error| {
        let span = error.span().unwrap_or_default();
        let message = explained(text, span.start, error.message());
        ConfigError { problems: vec![Problem { place: origin.place("", &span), message }] }
    };
    let document = toml::de::DeTable::parse(text).map_err(grammar)?;
    let unknown = locate::unknown_keys(document.get_ref(), origin);
    if !unknown.is_empty() {
        return Err(ConfigError { problems: unknown });
    }
    toml::from_str(text).map_err(grammar)
}

/// Explains an error of the TOML reader: the key, what the reader says, and the fix.
fn explained(text: &str, position: usize, message: &str) -> String {
    let message = message.trim_end();
    let begin = text.get(..position).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
    let fix = match message {
        _ if message.contains("duplicate key") => "the key is given twice; remove one",
        _ if message.contains("expected a string") => {
            "write it in quotes, with its unit: \"10%\", \"10ms\""
        }
        _ if message.contains("untagged enum SizeText") => {
            return format!(
                "{key} is not a size; write whole bytes (1048576), or a size in quotes (\"1MiB\")"
            );
        }
        _ if message.contains("expected f64") || message.contains("expected i64") => {
            "write a number, without quotes"
        }
        _ if message.contains("expected a boolean") => "write true or false, without quotes",
        _ => return message.to_owned(),
    };
    format!("{key}: {message}; {fix}")
}
