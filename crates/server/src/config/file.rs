//! A configuration as it is written: every key optional, every value with its place in the text.

use serde::Deserialize;
use toml::Spanned;

use super::locate::{self, line_of};
use super::{ConfigError, Problem};

/// Where a configuration comes from, so that a problem can say where it is.
#[derive(Debug, Clone)]
pub enum Origin {
    /// Flags of the command line.
    Flags,
    /// A file.
    File {
        /// Its name, as the user gave it.
        name: String,
        /// Its text.
        text: String,
    },
}

impl Origin {
    /// The file called `name` with this `text`.
    #[must_use]
    pub fn file(name: &str, text: &str) -> Self {
        Origin::File { name: name.to_owned(), text: text.to_owned() }
    }

    /// The place of a value of `key`: the file and its line, or the flag.
    pub(super) fn place(&self, key: &str, span: &std::ops::Range<usize>) -> String {
        match self {
            Origin::Flags => format!("--{}", key.replace('_', "-")),
            Origin::File { name, .. } if span.end == 0 => name.clone(),
            Origin::File { name, text } => format!("{name}:{}", line_of(text, span.start)),
        }
    }

    /// `key` as this origin's user writes it.
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
    /// One.
    Text(String),
    /// Several.
    List(Vec<String>),
}

impl TextOrList {
    /// All of them.
    #[must_use]
    pub fn as_slice(&self) -> &[String] {
        match self {
            TextOrList::Text(text) => std::slice::from_ref(text),
            TextOrList::List(list) => list,
        }
    }
}

/// The whole file. Keys that stand for sizes, durations and addresses are texts here and are
/// parsed by the check, which knows their names and places.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawConfig {
    /// Event loops.
    pub threads: Option<Spanned<i64>>,
    /// Admin listener, or `off`.
    pub admin: Option<Spanned<String>>,
    /// Threshold of the log of slow requests, or `off`.
    pub slow_log: Option<Spanned<String>>,
    /// How long a stopping server waits.
    pub drain_time: Option<Spanned<String>>,
    /// Where caches keep their state.
    pub restart_from: Option<Spanned<String>>,
    /// Ask for huge pages.
    pub huge_pages: Option<Spanned<bool>>,
    /// `auto`, `io-uring` or `threads`.
    pub io_backend: Option<Spanned<String>>,
    /// Addresses other than loopback may be listened on.
    pub allow_remote: Option<Spanned<bool>>,
    /// What one connection may hold.
    pub limits: RawLimits,
    /// How tenants share what they lie on.
    pub sharing: RawSharing,
    /// Groups of tenants.
    pub group: Vec<Spanned<RawGroup>>,
    /// The tenants.
    pub tenant: Vec<Spanned<RawTenant>>,
}

/// `[limits]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawLimits {
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
    /// Requests, replies and reads under way of all connections of one tenant together.
    pub buffers: Option<Spanned<SizeText>>,
    /// A connection without a request for this long is closed.
    pub idle_time: Option<Spanned<String>>,
    /// A request begun, or a reply not taken, for this long closes the connection.
    pub progress_time: Option<Spanned<String>>,
}

/// `[[tenant]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawTenant {
    /// The tenant's name.
    pub name: Option<Spanned<String>>,
    /// TCP addresses.
    pub listen: Option<Spanned<TextOrList>>,
    /// A UNIX socket.
    pub unix_socket: Option<Spanned<String>>,
    /// The socket's file mode, octal.
    pub unix_socket_mode: Option<Spanned<String>>,
    /// Connections at a time.
    pub connections: Option<Spanned<i64>>,
    /// What values lie on.
    pub medium: Option<Spanned<String>>,
    /// Quota of DRAM.
    pub dram_quota: Option<Spanned<SizeText>>,
    /// Quota of the medium.
    pub medium_quota: Option<Spanned<SizeText>>,
    /// Size of a segment.
    pub segment_size: Option<Spanned<SizeText>>,
    /// The medium's cost table.
    pub cost_table: Option<Spanned<String>>,
    /// The largest value taken.
    pub value_limit: Option<Spanned<SizeText>>,
    /// Which segment goes when room is short.
    pub eviction: Option<Spanned<String>>,
    /// The device that the medium lies on, if its path does not tell.
    pub device: Option<Spanned<String>>,
    /// The group that the tenant is in.
    pub group: Option<Spanned<String>>,
    /// `latency-critical` or `best-effort`.
    pub class: Option<Spanned<String>>,
    /// The promised response time, as `p99 2ms`.
    pub target: Option<Spanned<String>>,
    /// Importance beside others.
    pub weight: Option<Spanned<f64>>,
    /// The most of its medium's time that it may use.
    pub share_max: Option<Spanned<String>>,
    /// The most bytes a second that it may move.
    pub bytes_s_max: Option<Spanned<SizeText>>,
    /// The most that it may be slowed, compared with being alone.
    pub slowdown_max: Option<Spanned<f64>>,
}

/// `[sharing]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawSharing {
    /// Which promise is kept.
    pub policy: Option<Spanned<String>>,
    /// The policy's parameters.
    pub parameters: RawParameters,
    /// How many decisions the log keeps.
    pub decisions_max: Option<Spanned<i64>>,
}

/// `[[group]]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawGroup {
    /// The group's name.
    pub name: Option<Spanned<String>>,
    /// Which promise is kept among its tenants.
    pub policy: Option<Spanned<String>>,
    /// That policy's parameters.
    pub parameters: RawParameters,
    /// `latency-critical` or `best-effort`.
    pub class: Option<Spanned<String>>,
    /// The promised response time, as `p99 2ms`.
    pub target: Option<Spanned<String>>,
    /// Importance beside others.
    pub weight: Option<Spanned<f64>>,
    /// The most of its medium's time that it may use.
    pub share_max: Option<Spanned<String>>,
    /// The most bytes a second that it may move.
    pub bytes_s_max: Option<Spanned<SizeText>>,
    /// The most that it may be slowed, compared with being alone.
    pub slowdown_max: Option<Spanned<f64>>,
}

/// `[sharing.parameters]` and `[group.parameters]`.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RawParameters {
    /// How often counters are read.
    pub tick: Option<Spanned<String>>,
    /// `bucket` or `epochs`.
    pub enforcement: Option<Spanned<String>>,
    /// How often use is looked at in an epoch.
    pub epoch_tick: Option<Spanned<String>>,
    /// How many ticks make an epoch.
    pub epoch_ticks: Option<Spanned<i64>>,
    /// Response times are watched at least so long.
    pub watch_shortest: Option<Spanned<String>>,
    /// And at most so long.
    pub watch_longest: Option<Spanned<String>>,
    /// In between, until so many requests lie beyond the percentile.
    pub watch_tail_min: Option<Spanned<i64>>,
    /// `adaptive` or `published`.
    pub pace: Option<Spanned<String>>,
    /// What an experiment costs each candidate.
    pub expense: Option<Spanned<SizeText>>,
    /// `throughput`, `mean` or a percentile as `p99`.
    pub metric: Option<Spanned<String>>,
    /// How many candidates are tried.
    pub candidates_max: Option<Spanned<i64>>,
    /// Who has more slack than this may be slowed.
    pub slack_min: Option<Spanned<String>>,
    /// Nobody is slowed below this share.
    pub share_min: Option<Spanned<String>>,
    /// What had to be taken back is tried again after at most this.
    pub patience_max: Option<Spanned<String>>,
    /// How often slow-downs are compared.
    pub interval: Option<Spanned<String>>,
    /// The largest slow-down over the smallest, up to which it is fair.
    pub unfairness_max: Option<Spanned<f64>>,
    /// After so many fair rounds all are released a step.
    pub rounds: Option<Spanned<i64>>,
    /// Whether slow-downs are made equal at all.
    pub equalise: Option<Spanned<bool>>,
    /// The distance that is kept from a limit or a guarantee.
    pub margin: Option<Spanned<String>>,
    /// How often shares are assigned anew.
    pub period: Option<Spanned<String>>,
    /// `adaptive`, `never`, `naive` or a step as `10%`.
    pub donation: Option<Spanned<String>>,
    /// How often performance alone is learnt.
    pub alone_period: Option<Spanned<String>>,
    /// For how long the others are paused.
    pub pause: Option<Spanned<String>>,
    /// A pause in which fewer requests were answered goes on.
    pub pause_requests_min: Option<Spanned<i64>>,
    /// But not for longer than this.
    pub pause_max: Option<Spanned<String>>,
    /// A change by more than this is another load.
    pub load_change: Option<Spanned<String>>,
}

/// A size as a number of bytes or as a text with a unit.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(untagged)]
pub enum SizeText {
    /// Bytes.
    Bytes(u64),
    /// `64MiB`.
    Text(String),
}

impl SizeText {
    /// The size as a text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            SizeText::Bytes(bytes) => bytes.to_string(),
            SizeText::Text(text) => text.clone(),
        }
    }
}

/// Reads the text: its grammar first, then its keys, then the types of its values.
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

/// What the reader of the grammar says, with the key that it is about and the fix.
fn explained(text: &str, position: usize, message: &str) -> String {
    let message = message.trim_end();
    let begin = text.get(..position).and_then(|before| before.rfind('\n')).map_or(0, |end| end + 1);
    let line = text.get(begin..).and_then(|rest| rest.lines().next()).unwrap_or_default();
    let key = line.split_once('=').map_or(line, |(key, _)| key).trim();
    let fix = match message {
        _ if message.contains("duplicate key") => "it is there twice; remove one",
        _ if message.contains("expected a string") => {
            "write it in quotes, with its unit: \"10%\", \"10ms\""
        }
        _ if message.contains("untagged enum SizeText") => {
            return format!(
                "{key} is no size; write whole bytes (1048576), or a size in quotes (\"1MiB\")"
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
