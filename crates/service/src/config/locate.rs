//! Finds unknown keys, with their line and the nearest known key.

use entresol_base::suggest::nearest;
use toml::de::{DeTable, DeValue};

use super::{Origin, Problem};

/// Keys at the top of the file.
pub(super) const TOP_KEYS: [&str; 14] = [
    "threads",
    "admin",
    "admin_token_file",
    "auth_file",
    "slow_log",
    "drain_time",
    "restart_from",
    "huge_pages",
    "io_backend",
    "allow_remote",
    "limits",
    "sharing",
    "group",
    "tenant",
];

/// Keys of `[limits]`.
pub(super) const LIMITS_KEYS: [&str; 9] = [
    "auth_time",
    "request_line",
    "multiget_line",
    "output",
    "requests_per_turn",
    "pending_reads",
    "buffers",
    "idle_time",
    "progress_time",
];

/// Keys of `[[tenant]]`.
pub(super) const TENANT_KEYS: [&str; 30] = [
    "name",
    "listen",
    "tls_listen",
    "tls_certificate",
    "tls_key",
    "tls_client_ca",
    "tls_certificate_user",
    "unix_socket",
    "unix_socket_mode",
    "connections",
    "medium",
    "dram_quota",
    "cost_table",
    "medium_quota",
    "segment_size",
    "value_limit",
    "favour",
    "device",
    "requests_max",
    "keys_max",
    "list_keys",
    "cluster",
    "cluster_version",
    "group",
    "class",
    "target",
    "weight",
    "share_max",
    "bytes_s_max",
    "slowdown_max",
];

/// Keys of `[sharing]`.
pub(super) const SHARING_KEYS: [&str; 3] = ["policy", "parameters", "decisions_max"];

/// Keys of `[[group]]`.
pub(super) const GROUP_KEYS: [&str; 9] = [
    "name",
    "policy",
    "parameters",
    "class",
    "target",
    "weight",
    "share_max",
    "bytes_s_max",
    "slowdown_max",
];

/// Keys of `[sharing.parameters]` and `[group.parameters]`.
pub(super) const PARAMETER_KEYS: [&str; 26] = [
    "tick",
    "enforcement",
    "epoch_tick",
    "epoch_ticks",
    "watch_shortest",
    "watch_longest",
    "watch_tail_min",
    "pace",
    "expense",
    "metric",
    "candidates_max",
    "slack_min",
    "share_min",
    "patience_max",
    "interval",
    "unfairness_max",
    "rounds",
    "equalise",
    "margin",
    "period",
    "donation",
    "alone_period",
    "pause",
    "pause_requests_min",
    "pause_max",
    "load_change",
];

/// A key that has another name now.
struct Renamed {
    /// Part of the file that held the key, in the words of the messages.
    whereabouts: &'static str,
    from: &'static str,
    to: &'static str,
}

/// Renamed keys, which are refused with a hint at their present name. There are none yet.
const RENAMED_KEYS: &[Renamed] = &[];

/// Key that was removed.
struct Removed {
    /// Table of the key, as messages name it.
    whereabouts: &'static str,
    key: &'static str,
    reason: &'static str,
}

/// Keys that were removed: they are refused with the reason.
const REMOVED_KEYS: &[Removed] = &[Removed {
    whereabouts: "in [[tenant]]",
    key: "eviction",
    reason: "it was removed, there is one policy: delete it, or choose by 'favour' between \
             objects and bytes",
}];

fn hint(key: &str, whereabouts: &str, known: &[&str], renamed: &[Renamed]) -> String {
    if let Some(it) = renamed.iter().find(|it| it.from == key && it.whereabouts == whereabouts) {
        return format!("it was renamed to '{}'", it.to);
    }
    if let Some(it) = REMOVED_KEYS.iter().find(|it| it.key == key && it.whereabouts == whereabouts)
    {
        return it.reason.to_owned();
    }
    match nearest(key, known.iter().copied()) {
        Some(meant) => format!("did you mean '{meant}'?"),
        None => format!("the keys are {}", known.join(", ")),
    }
}

/// Every unknown key of the document.
pub(super) fn unknown_keys(document: &DeTable<'_>, origin: &Origin) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_table(document, "at the top of the file", &TOP_KEYS, origin, &mut problems);
    for (name, value) in document.iter() {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("limits", DeValue::Table(table)) => {
                check_table(table, "in [limits]", &LIMITS_KEYS, origin, &mut problems);
            }
            ("sharing", DeValue::Table(table)) => {
                check_table(table, "in [sharing]", &SHARING_KEYS, origin, &mut problems);
                check_parameters(table, "in [sharing.parameters]", origin, &mut problems);
            }
            ("tenant", DeValue::Array(tenants)) => {
                for tenant in tenants.iter().filter_map(|tenant| tenant.get_ref().as_table()) {
                    check_table(tenant, "in [[tenant]]", &TENANT_KEYS, origin, &mut problems);
                }
            }
            ("group", DeValue::Array(groups)) => {
                for group in groups.iter().filter_map(|group| group.get_ref().as_table()) {
                    check_table(group, "in [[group]]", &GROUP_KEYS, origin, &mut problems);
                    check_parameters(group, "in [group.parameters]", origin, &mut problems);
                }
            }
            _ => {}
        }
    }
    problems
}

fn check_parameters(
    scope: &DeTable<'_>,
    whereabouts: &str,
    origin: &Origin,
    problems: &mut Vec<Problem>,
) {
    let parameters = scope.iter().find(|(name, _)| name.get_ref().as_ref() == "parameters");
    if let Some(table) = parameters.and_then(|(_, value)| value.get_ref().as_table()) {
        check_table(table, whereabouts, &PARAMETER_KEYS, origin, problems);
    }
}

fn check_table(
    table: &DeTable<'_>,
    whereabouts: &str,
    known: &[&str],
    origin: &Origin,
    problems: &mut Vec<Problem>,
) {
    for (name, _) in table.iter() {
        let key = name.get_ref().as_ref();
        if known.contains(&key) {
            continue;
        }
        let hint = hint(key, whereabouts, known, RENAMED_KEYS);
        problems.push(Problem {
            place: origin.place(key, &name.span()),
            message: format!("unknown key '{key}' {whereabouts}; {hint}"),
        });
    }
}

/// Line, counted from 1, of the byte at `position`.
pub(super) fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().get(..position).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_renamed_key_is_told_by_its_new_name_where_it_stood() {
        let whereabouts = "in [[tenant]]";
        let renamed = [Renamed { whereabouts, from: "dram_qouta", to: "memory" }];
        let said = |key, whereabouts| hint(key, whereabouts, &TENANT_KEYS, &renamed);
        assert_eq!(said("dram_qouta", whereabouts), "it was renamed to 'memory'");
        assert_eq!(said("dram_qouta", "in [limits]"), "did you mean 'dram_quota'?");
        assert!(hint("eviction", whereabouts, &TENANT_KEYS, &[]).contains("'favour'"));
        assert!(!hint("eviction", "in [limits]", &LIMITS_KEYS, &[]).contains("'favour'"));
        for Renamed { whereabouts, from, to } in RENAMED_KEYS {
            assert!(whereabouts.starts_with("in [") || *whereabouts == "at the top of the file");
            assert_ne!(from, to);
        }
    }
}
