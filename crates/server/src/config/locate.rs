//! Finds keys that mean nothing, with their line and the nearest key that does.

use entresol_base::suggest::nearest;
use toml::de::{DeTable, DeValue};

use super::{Origin, Problem};

/// Keys at the top of the file.
pub(super) const TOP_KEYS: [&str; 10] = [
    "threads",
    "admin",
    "slow_log",
    "drain_time",
    "restart_from",
    "huge_pages",
    "io_backend",
    "allow_remote",
    "limits",
    "tenant",
];

/// Keys of `[limits]`.
pub(super) const LIMITS_KEYS: [&str; 8] = [
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
pub(super) const TENANT_KEYS: [&str; 12] = [
    "name",
    "listen",
    "unix_socket",
    "unix_socket_mode",
    "connections",
    "medium",
    "dram_quota",
    "cost_table",
    "medium_quota",
    "segment_size",
    "value_limit",
    "eviction",
];

/// Every unknown key of the document.
pub(super) fn unknown_keys(document: &DeTable<'_>, origin: &Origin) -> Vec<Problem> {
    let mut problems = Vec::new();
    check_table(document, "at the top of the file", &TOP_KEYS, origin, &mut problems);
    for (name, value) in document.iter() {
        match (name.get_ref().as_ref(), value.get_ref()) {
            ("limits", DeValue::Table(table)) => {
                check_table(table, "in [limits]", &LIMITS_KEYS, origin, &mut problems);
            }
            ("tenant", DeValue::Array(tenants)) => {
                for tenant in tenants.iter().filter_map(|tenant| tenant.get_ref().as_table()) {
                    check_table(tenant, "in [[tenant]]", &TENANT_KEYS, origin, &mut problems);
                }
            }
            _ => {}
        }
    }
    problems
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
        let hint = match nearest(key, known.iter().copied()) {
            Some(meant) => format!("did you mean '{meant}'?"),
            None => format!("the keys are {}", known.join(", ")),
        };
        problems.push(Problem {
            place: origin.place(key, &name.span()),
            message: format!("unknown key '{key}' {whereabouts}; {hint}"),
        });
    }
}

/// The line, counted from 1, that holds the byte at `position`.
pub(super) fn line_of(text: &str, position: usize) -> usize {
    let before = text.as_bytes().get(..position).unwrap_or(text.as_bytes());
    before.iter().filter(|&&byte| byte == b'\n').count() + 1
}
