//! Reports of `stats`, under memcached's names, so that its exporters and its users' habits work.
//!
//! Numbers of memcached's without a counterpart here (slab moves, the crawler) are zero if
//! exporters insist on the name, and left out otherwise.

use std::path::Path;
use std::sync::atomic::Ordering;

use entresol_protocol::encode;

use crate::config::TCP_BACKLOG;
use crate::moment::Now;
use crate::tenant::Tenant;

/// Version string: the memcached release whose protocol is spoken. Clients read three numbers, some
/// from the front and some from the back, so nothing else may be in it.
pub const VERSION: &str = "1.6.45";

/// Version of the server itself.
pub const SERVER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// Topic of a `stats` command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Topic {
    /// General statistics.
    General,
    /// Configuration of the tenant.
    Settings,
    /// Items, as one class.
    Items,
    /// Memory, as one class.
    Slabs,
    /// Item sizes, which memcached leaves out by default, as does this server.
    Sizes,
    /// Connections.
    Conns,
    /// Keys of a class, which are never listed.
    Cachedump,
    /// Counts by key prefix, which begin with `on` and stop with `off`.
    Detail(Option<bool>),
    /// Reset of the counters.
    Reset,
}

impl Topic {
    /// Parses the words behind `stats`.
    ///
    /// # Errors
    /// The reply to anything else.
    pub(crate) fn of(argument: &[u8]) -> Result<Topic, &'static [u8]> {
        let mut words = argument.split(|byte| *byte == b' ').filter(|word| !word.is_empty());
        match words.next() {
            None => Ok(Topic::General),
            Some(b"settings") => Ok(Topic::Settings),
            Some(b"items") => Ok(Topic::Items),
            Some(b"slabs") => Ok(Topic::Slabs),
            Some(b"sizes") => Ok(Topic::Sizes),
            Some(b"conns") => Ok(Topic::Conns),
            Some(b"reset") => Ok(Topic::Reset),
            // A dump is always empty: keys are never listed.
            Some(b"cachedump") => match (number(words.next()), number(words.next())) {
                (Some(Some(class)), Some(Some(_))) if class < 64 => Ok(Topic::Cachedump),
                (Some(Some(_)), Some(Some(_))) => Err(b"CLIENT_ERROR Illegal slab id\r\n"),
                (None, _) | (_, None) => Err(b"CLIENT_ERROR bad command line\r\n"),
                _ => Err(b"CLIENT_ERROR bad command line format\r\n"),
            },
            Some(b"detail") => match words.next() {
                Some(b"on") => Ok(Topic::Detail(Some(true))),
                Some(b"off") => Ok(Topic::Detail(Some(false))),
                Some(b"dump") => Ok(Topic::Detail(None)),
                _ => Err(b"CLIENT_ERROR usage: stats detail on|off|dump\r\n"),
            },
            Some(_) => Err(encode::ERROR),
        }
    }
}

/// Number in a word: the outer option says whether there is a word, the inner one whether it is a
/// number.
fn number(word: Option<&[u8]>) -> Option<Option<u32>> {
    word.map(|word| std::str::from_utf8(word).ok()?.parse().ok())
}

/// Names and values, in memcached's order.
type Rows = Vec<(String, String)>;

/// Report on `topic`.
#[must_use]
pub(crate) fn report(topic: Topic, tenant: &Tenant, now: Now) -> Vec<(String, String)> {
    match topic {
        Topic::General => general(tenant, now),
        Topic::Settings => settings(tenant),
        Topic::Items => items(tenant),
        Topic::Slabs => slabs(tenant),
        Topic::Sizes => rows(&[("sizes_status", &"disabled")]),
        Topic::Conns => conns(tenant, now),
        Topic::Cachedump | Topic::Detail(_) | Topic::Reset => Rows::new(),
    }
}

fn rows(pairs: &[(&str, &dyn ToString)]) -> Rows {
    // Clients take a blank for the end of a value.
    let text = |value: &dyn ToString| value.to_string().replace(' ', "_");
    pairs.iter().map(|(name, value)| ((*name).to_owned(), text(*value))).collect()
}

fn general(tenant: &Tenant, now: Now) -> Rows {
    let mut all = process(tenant, now);
    all.extend(requests(tenant));
    all.extend(contents(tenant));
    all.extend(ours(tenant));
    all
}

fn process(tenant: &Tenant, now: Now) -> Rows {
    let counts = tenant.counts();
    let settings = tenant.settings();
    let (user, system) = processor_time();
    let uptime = now.seconds.0.saturating_sub(tenant.server().started.0);
    rows(&[
        ("pid", &std::process::id()),
        ("uptime", &uptime),
        ("time", &now.seconds.0),
        ("version", &VERSION),
        ("pointer_size", &64),
        ("rusage_user", &user),
        ("rusage_system", &system),
        ("max_connections", &settings.connections),
        ("curr_connections", &tenant.connections()),
        ("total_connections", &counts.total_connections),
        ("rejected_connections", &counts.rejected_connections),
        ("connection_structures", &tenant.connections()),
    ])
}

fn requests(tenant: &Tenant) -> Rows {
    let counts = tenant.counts();
    let events = tenant.cache().statistics().events;
    rows(&[
        ("cmd_get", &counts.cmd_get),
        ("cmd_set", &counts.cmd_set),
        ("cmd_flush", &counts.cmd_flush),
        ("cmd_touch", &counts.cmd_touch),
        ("cmd_meta", &counts.cmd_meta),
        ("get_hits", &counts.get_hits),
        ("get_misses", &counts.get_misses),
        ("get_expired", &events.expired_on_read),
        ("get_flushed", &events.flushed_on_read),
        ("delete_misses", &counts.delete_misses),
        ("delete_hits", &counts.delete_hits),
        ("incr_misses", &counts.incr_misses),
        ("incr_hits", &counts.incr_hits),
        ("decr_misses", &counts.decr_misses),
        ("decr_hits", &counts.decr_hits),
        ("cas_misses", &counts.cas_misses),
        ("cas_hits", &counts.cas_hits),
        ("cas_badval", &counts.cas_badval),
        ("touch_hits", &counts.touch_hits),
        ("touch_misses", &counts.touch_misses),
        ("store_too_large", &counts.store_too_large),
        ("store_no_memory", &counts.store_no_memory),
        ("auth_cmds", &counts.auth_cmds),
        ("auth_errors", &counts.auth_errors),
        ("idle_kicks", &counts.idle_kicks),
        ("buffer_kicks", &counts.buffer_kicks),
        ("bytes_read", &counts.bytes_read),
        ("bytes_written", &counts.bytes_written),
        ("conn_yields", &counts.conn_yields),
    ])
}

fn contents(tenant: &Tenant) -> Rows {
    let cache = tenant.cache().statistics();
    rows(&[
        ("limit_maxbytes", &cache.dram_limit_bytes.max(cache.medium_limit_bytes)),
        ("accepting_conns", &1),
        ("listen_disabled_num", &0),
        ("time_in_listen_disabled_us", &0),
        ("threads", &tenant.server().threads),
        ("hash_power_level", &(cache.index_bytes / 8).max(1).ilog2()),
        ("hash_bytes", &cache.index_bytes),
        ("hash_is_expanding", &0),
        ("slab_reassign_running", &0),
        ("slabs_moved", &0),
        ("lru_crawler_running", &0),
        ("lru_crawler_starts", &0),
        ("malloc_fails", &0),
        ("bytes", &cache.item_bytes),
        ("curr_items", &cache.items),
        ("total_items", &cache.events.stores),
        ("slab_global_page_pool", &0),
        ("expired_unfetched", &cache.events.expired_unread_items),
        ("evicted_unfetched", &cache.events.evicted_unread_items),
        ("evicted_active", &0),
        ("evictions", &cache.events.evicted_items),
        ("reclaimed", &cache.events.expired_items),
        ("crawler_reclaimed", &0),
        ("crawler_items_checked", &0),
        ("lrutail_reflocked", &0),
        ("moves_to_cold", &0),
        ("moves_to_warm", &0),
        ("moves_within_lru", &cache.events.merged_items),
        ("direct_reclaims", &0),
        ("lru_bumps_dropped", &0),
    ])
}

/// Rows that memcached has no name for.
fn ours(tenant: &Tenant) -> Rows {
    let counts = tenant.counts();
    let cache = tenant.cache().statistics();
    rows(&[
        ("entresol_version", &SERVER_VERSION),
        ("tenant", &tenant.name()),
        ("keys_max", &cache.keys_max),
        ("medium", &cache.medium),
        ("medium_access", &cache.access),
        ("dram_limit_bytes", &cache.dram_limit_bytes),
        ("dram_used_bytes", &cache.dram_used_bytes),
        ("medium_limit_bytes", &cache.medium_limit_bytes),
        ("medium_used_bytes", &cache.medium_used_bytes),
        ("medium_device_ns", &cache.device_ns),
        ("medium_reads", &counts.medium_reads),
        ("medium_read_failures", &counts.medium_read_failures),
        ("damaged_values", &cache.events.damaged),
        ("write_errors", &cache.events.write_errors),
        ("throttled", &counts.throttled),
        ("request_waits", &counts.request_waits),
        ("buffers", &tenant.buffers().load(Ordering::Relaxed)),
        ("write_waits", &counts.write_waits),
        ("slow_requests", &counts.slow_requests),
        ("protocol_errors", &counts.protocol_errors),
        ("restored_items", &cache.restored_items),
        ("lost_segments", &cache.lost_segments),
    ])
}

fn settings(tenant: &Tenant) -> Rows {
    let settings = tenant.settings();
    let limits = tenant.limits();
    let port = settings.addresses().next().map_or(0, std::net::SocketAddr::port);
    let interface =
        settings.addresses().next().map_or("NULL".to_owned(), |address| address.ip().to_string());
    let socket = settings
        .unix_socket
        .as_ref()
        .map_or("NULL".to_owned(), |path| path.to_string_lossy().into_owned());
    rows(&[
        ("maxbytes", &settings.dram_quota.0),
        ("maxconns", &settings.connections),
        ("tcpport", &port),
        ("udpport", &0),
        ("inter", &interface),
        ("verbosity", &0),
        ("oldest", &0),
        ("evictions", &"on"),
        ("domain_socket", &socket),
        ("umask", &format!("{:o}", settings.unix_socket_mode)),
        ("shutdown_command", &"no"),
        ("growth_factor", &"1.25"),
        ("chunk_size", &8),
        ("num_threads", &tenant.server().threads),
        ("stat_key_prefix", &":"),
        ("detail_enabled", &if tenant.detail.is_on() { "yes" } else { "no" }),
        ("reqs_per_event", &limits.requests_per_turn),
        ("cas_enabled", &"yes"),
        ("tcp_backlog", &TCP_BACKLOG),
        ("binding_protocol", &"ascii"),
        ("auth_enabled_sasl", &"no"),
        ("auth_enabled_ascii", &if settings.needs_user { "yes" } else { "no" }),
        ("item_size_max", &tenant.cache().value_limit().0),
        ("maxconns_fast", &"yes"),
        ("flush_enabled", &"yes"),
        ("dump_enabled", &if settings.keys_listed_per_second > 0 { "yes" } else { "no" }),
        ("hash_algorithm", &"foldhash"),
        ("lru_maintainer_thread", &"yes"),
        ("lru_segmented", &"no"),
        ("idle_timeout", &limits.idle_time.as_secs()),
        ("track_sizes", &"no"),
        ("ssl_enabled", &"no"),
        ("medium", &settings.medium),
        ("medium_quota", &settings.medium_quota.0),
        ("favour", &settings.favour),
        ("requests_max", &settings.requests_per_second),
        ("keys_max", &settings.keys_max),
        ("list_keys", &settings.keys_listed_per_second),
    ])
}

fn items(tenant: &Tenant) -> Rows {
    let cache = tenant.cache().statistics();
    if cache.items == 0 {
        return Rows::new();
    }
    rows(&[
        ("items:1:number", &cache.items),
        ("items:1:age", &0),
        ("items:1:mem_requested", &cache.item_bytes),
        ("items:1:evicted", &cache.events.evicted_items),
        ("items:1:evicted_nonzero", &0),
        ("items:1:evicted_time", &0),
        ("items:1:outofmemory", &cache.events.refused),
        ("items:1:tailrepairs", &0),
        ("items:1:reclaimed", &cache.events.expired_items),
        ("items:1:expired_unfetched", &cache.events.expired_unread_items),
        ("items:1:evicted_unfetched", &cache.events.evicted_unread_items),
        ("items:1:crawler_reclaimed", &0),
        ("items:1:lrutail_reflocked", &0),
    ])
}

fn slabs(tenant: &Tenant) -> Rows {
    let counts = tenant.counts();
    let cache = tenant.cache().statistics();
    let pages = cache.segments;
    let malloced = pages * cache.segment_bytes;
    let mut all = Rows::new();
    if pages > 0 {
        all = rows(&[
            ("1:chunk_size", &8),
            ("1:chunks_per_page", &(cache.segment_bytes / 8)),
            ("1:total_pages", &pages),
            ("1:total_chunks", &(malloced / 8)),
            ("1:used_chunks", &cache.item_bytes.div_ceil(8)),
            ("1:free_chunks", &(malloced / 8).saturating_sub(cache.item_bytes.div_ceil(8))),
            ("1:free_chunks_end", &0),
            ("1:get_hits", &counts.get_hits),
            ("1:cmd_set", &counts.cmd_set),
            ("1:delete_hits", &counts.delete_hits),
            ("1:incr_hits", &counts.incr_hits),
            ("1:decr_hits", &counts.decr_hits),
            ("1:cas_hits", &counts.cas_hits),
            ("1:cas_badval", &counts.cas_badval),
            ("1:touch_hits", &counts.touch_hits),
        ]);
    }
    all.extend(rows(&[("active_slabs", &u8::from(pages > 0)), ("total_malloced", &malloced)]));
    all
}

fn conns(tenant: &Tenant, now: Now) -> Rows {
    let mut all = Rows::new();
    for (index, address) in tenant.addresses().iter().enumerate() {
        // Clients take a blank for the end of a value, and a path may hold some.
        all.push((format!("{index}:addr"), address.replace(' ', "_")));
        all.push((format!("{index}:state"), "conn_listening".to_owned()));
    }
    let listeners = tenant.addresses().len();
    for (index, client) in tenant.clients().iter().enumerate() {
        let number = listeners + index;
        let idle_s = now.nanos.since(client.last_active()).as_secs();
        all.push((format!("{number}:addr"), client.peer.clone()));
        all.push((format!("{number}:state"), "conn_read".to_owned()));
        all.push((format!("{number}:secs_since_last_cmd"), idle_s.to_string()));
    }
    all
}

/// Processor time of this process, user and system, as seconds with six decimals; zero if the
/// system does not tell.
pub(crate) fn processor_time() -> (String, String) {
    let stat = entresol_media::files::read_to_string(Path::new("/proc/self/stat"));
    let stat = stat.unwrap_or_default();
    // The second field is the program's name in brackets, which may hold anything.
    let fields = stat.rsplit(") ").next().unwrap_or_default();
    let ticks = |field: usize| -> u64 {
        fields.split(' ').nth(field).and_then(|text| text.parse().ok()).unwrap_or_default()
    };
    let seconds = |ticks: u64| format!("{}.{:02}0000", ticks / 100, ticks % 100);
    (seconds(ticks(11)), seconds(ticks(12)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_by_name() {
        assert_eq!(Topic::of(b""), Ok(Topic::General));
        assert_eq!(Topic::of(b"  settings "), Ok(Topic::Settings));
        assert_eq!(Topic::of(b"nonsense"), Err(encode::ERROR));
        assert_eq!(Topic::of(b"cachedump 1 0"), Ok(Topic::Cachedump));
        assert!(Topic::of(b"cachedump 1").is_err());
    }

    #[test]
    fn processor_time_is_told() {
        let (user, system) = processor_time();
        let total: f64 = user.parse::<f64>().unwrap() + system.parse::<f64>().unwrap();
        assert!((0.0..1e6).contains(&total));
    }
}
