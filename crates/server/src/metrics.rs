//! Metrics of the server, in Prometheus' text format and as one JSON object.

use std::collections::BTreeMap;
use std::fmt::Write;

use entresol_service::VERSION;
use entresol_service::registry::Registry;
use entresol_service::sharing::Sharing;
use serde_json::{Value, json};

use crate::view::{self, View};

/// A family of samples, one sample a tenant.
struct Family {
    name: String,
    kind: &'static str,
    samples: Vec<(String, f64)>,
}

/// Threads whose panics are counted from the start.
const THREADS: [&str; 4] = ["admin", "event loop", "maintenance", "sharing"];

/// Number of panics of each thread.
fn thread_panics(registry: &Registry) -> BTreeMap<String, u64> {
    let none = THREADS.iter().map(|thread| ((*thread).to_owned(), 0));
    none.chain(registry.panics()).collect()
}

/// Renders all metrics in Prometheus' text format.
pub(crate) fn prometheus(registry: &Registry, controller: &Sharing) -> String {
    let mut families: Vec<Family> = Vec::new();
    let mut sample = |name: String, kind: &'static str, labels: String, value: f64| match families
        .iter_mut()
        .find(|family| family.name == name)
    {
        Some(family) => family.samples.push((labels, value)),
        None => families.push(Family { name, kind, samples: vec![(labels, value)] }),
    };
    let uptime = registry.clock.now().since(registry.facts.started_nanos).as_secs_f64();
    sample("entresol_uptime_seconds".to_owned(), "gauge", String::new(), uptime);
    sample("entresol_threads".to_owned(), "gauge", String::new(), registry.facts.threads as f64);
    for (thread, times) in thread_panics(registry) {
        let labels = format!("{{thread=\"{thread}\"}}");
        sample("entresol_thread_panics_total".to_owned(), "counter", labels, times as f64);
    }
    let ended = f64::from(u8::from(!registry.is_healthy()));
    sample("entresol_event_loop_ended".to_owned(), "gauge", String::new(), ended);
    for tenant in registry.tenants() {
        let statistics = tenant.cache().statistics();
        let name = tenant.name();
        let labels = format!("{{tenant=\"{name}\"}}");
        let info = format!(
            "{{tenant=\"{name}\",medium=\"{}\",access=\"{}\"}}",
            statistics.medium, statistics.access
        );
        sample("entresol_medium_info".to_owned(), "gauge", info, 1.0);
        let connections = tenant.connections() as f64;
        sample("entresol_connections".to_owned(), "gauge", labels.clone(), connections);
        for (counter, value) in tenant.counts_since_start().list() {
            let counter = counter.trim_start_matches("total_");
            let metric = format!("entresol_{counter}_total");
            sample(metric, "counter", labels.clone(), value as f64);
        }
        // Amounts are gauges, events and device time are counters. `stats reset` sets the cache's
        // events back, which Prometheus takes for a restart.
        for (field, value) in numbers(&serde_json::to_value(&statistics).unwrap_or_default()) {
            match field.strip_prefix("events_") {
                Some(event) => {
                    let metric = format!("entresol_cache_{event}_total");
                    sample(metric, "counter", labels.clone(), value);
                }
                None => sample(format!("entresol_cache_{field}"), "gauge", labels.clone(), value),
            }
        }
    }
    sharing(&view::view(registry, controller), &mut sample);
    render(&families)
}

/// Adds the policy's decisions and their effect on each tenant in its last second.
fn sharing(view: &View, sample: &mut dyn FnMut(String, &'static str, String, f64)) {
    let name = |metric: &str| format!("entresol_{metric}");
    let policy = format!("{{policy=\"{}\"}}", view.policy);
    sample(name("sharing_policy_info"), "gauge", policy, 1.0);
    let decisions = view.decisions_total as f64;
    sample(name("sharing_decisions_total"), "counter", String::new(), decisions);
    for tenant in &view.tenants {
        let labels = format!("{{tenant=\"{}\"}}", tenant.name);
        sample(name("requests_per_second"), "gauge", labels.clone(), tenant.throughput_ops_s);
        let times = [("0.5", tenant.p50_us), ("0.99", tenant.p99_us), ("0.999", tenant.p999_us)];
        for (quantile, us) in times {
            let labels = format!("{{tenant=\"{}\",quantile=\"{quantile}\"}}", tenant.name);
            if let Some(us) = us {
                sample(name("response_time_seconds"), "gauge", labels, us / 1e6);
            }
        }
        if let Some(slowdown) = tenant.slowdown {
            sample(name("slowdown"), "gauge", labels, slowdown);
        }
        for medium in &tenant.media {
            let device = escaped(&medium.medium);
            let labels = format!("{{tenant=\"{}\",device=\"{device}\"}}", tenant.name);
            sample(name("device_share"), "gauge", labels.clone(), medium.share);
            sample(name("device_share_allowed"), "gauge", labels, medium.share_allowed);
        }
    }
}

/// Escapes the value of a label for use between quotes.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn render(families: &[Family]) -> String {
    let mut text = String::new();
    for Family { name, kind, samples } in families {
        let help = name.trim_start_matches("entresol_").replace('_', " ");
        // Writing to a String cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(text, "{name}{labels} {value}");
        }
    }
    text
}

/// Lists every number in a JSON object, with nested names joined by underscores.
fn numbers(value: &Value) -> Vec<(String, f64)> {
    let mut all = Vec::new();
    for (name, value) in value.as_object().into_iter().flatten() {
        if let Some(number) = value.as_f64() {
            all.push((name.clone(), number));
        }
        for (inner, number) in numbers(value) {
            all.push((format!("{name}_{inner}"), number));
        }
    }
    all
}

/// Renders all statistics as one JSON object.
pub(crate) fn json(registry: &Registry) -> String {
    let tenants: Vec<Value> = registry
        .tenants()
        .iter()
        .map(|tenant| {
            let settings = tenant.settings();
            let counts: serde_json::Map<String, Value> = tenant
                .counts_since_start()
                .list()
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            json!({
                "name": settings.name,
                "listen": tenant.addresses(),
                "connections": tenant.connections(),
                "connections_max": settings.connections,
                "medium": settings.medium.to_string(),
                "favour": settings.favour.to_string(),
                "counts": counts,
                "cache": tenant.cache().statistics(),
            })
        })
        .collect();
    let uptime = registry.clock.now().since(registry.facts.started_nanos).as_secs_f64();
    let all = json!({
        "version": VERSION,
        "pid": std::process::id(),
        "uptime_s": uptime,
        "threads": registry.facts.threads,
        "tenants": tenants,
    });
    format!("{all:#}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_are_written_once_with_all_their_samples() {
        let samples = vec![("{tenant=\"a\"}".to_owned(), 1.0), ("{tenant=\"b\"}".to_owned(), 2.5)];
        let family = Family { name: "entresol_cmd_get_total".to_owned(), kind: "counter", samples };
        assert_eq!(
            render(&[family]),
            "# HELP entresol_cmd_get_total cmd get total\n\
             # TYPE entresol_cmd_get_total counter\n\
             entresol_cmd_get_total{tenant=\"a\"} 1\n\
             entresol_cmd_get_total{tenant=\"b\"} 2.5\n"
        );
    }

    #[test]
    fn nested_numbers_get_joined_names() {
        let value = json!({"items": 3, "medium": "dram", "events": {"hits": 4}});
        let mut found = numbers(&value);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, [("events_hits".to_owned(), 4.0), ("items".to_owned(), 3.0)]);
    }
}
