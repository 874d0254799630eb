//! An operator's view of sharing: the structure that the admin listener writes as JSON, the
//! dashboard polls and `entresol top` reads.

mod fetch;

use std::collections::BTreeMap;

use entresol_base::Nanos;
use entresol_service::registry::Registry;
use entresol_service::sharing::Sharing;
use entresol_sharing::{
    Controller, Decision, GroupSettings, MediumId, TenantId, TenantView as Seen, Throttle,
};
use serde::{Deserialize, Serialize};

pub use fetch::{FetchError, fetch};

/// Number of newest decisions that are shown.
const DECISIONS_SHOWN: usize = 50;

/// State of the server's sharing at one moment.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct View {
    /// Time since the server's start.
    pub uptime_s: f64,
    /// Policy in force.
    pub policy: String,
    /// True while an experiment or a pause is under way.
    pub is_trying: bool,
    /// Media that are shared.
    pub media: Vec<String>,
    /// Groups of tenants, if there are any.
    #[serde(default)]
    pub groups: Vec<GroupRow>,
    /// Tenants, in the order in which they were first configured.
    pub tenants: Vec<TenantRow>,
    /// Number of decisions since the start.
    pub decisions_total: u64,
    /// Last decisions, the newest first.
    pub decisions: Vec<DecisionRow>,
}

/// A group of tenants.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct GroupRow {
    /// Name of the group.
    pub name: String,
    /// Policy among its tenants.
    pub policy: String,
    /// Weight beside the other groups.
    pub weight: f64,
}

/// A tenant in its last whole second.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TenantRow {
    /// Name of the tenant.
    pub name: String,
    /// Group of the tenant.
    #[serde(default)]
    pub group: Option<String>,
    /// Weight beside the others.
    #[serde(default = "usual_weight")]
    pub weight: f64,
    /// Requests answered in a second.
    pub throughput_ops_s: f64,
    /// Median response time; none if nothing was answered.
    pub p50_us: Option<f64>,
    /// 99th percentile of response times.
    pub p99_us: Option<f64>,
    /// 99.9th percentile of response times.
    pub p999_us: Option<f64>,
    /// Promise to the tenant, in words.
    pub promise: Option<String>,
    /// Slowdown compared with being alone; none if the policy does not measure it.
    pub slowdown: Option<f64>,
    /// Use of each medium that it is on.
    pub media: Vec<MediumRow>,
    /// Last decision about it.
    pub last_decision: Option<DecisionRow>,
}

/// A tenant's use of one medium.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct MediumRow {
    /// Name of the medium.
    pub medium: String,
    /// Share of the medium's time that it used.
    pub share: f64,
    /// Share that it may use: 1 is all, 0 is none.
    pub share_allowed: f64,
    /// Share that it may use, in words.
    pub throttle: String,
}

/// A decision of the policy.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct DecisionRow {
    /// Time in seconds since the server's start.
    pub at_s: f64,
    /// Tenant concerned; none if it concerns all of them.
    pub tenant: Option<String>,
    /// Text of the decision, with its reason.
    pub text: String,
}

/// Builds the current view.
pub(crate) fn view(registry: &Registry, sharing: &Sharing) -> View {
    let devices: BTreeMap<String, String> = registry
        .tenants()
        .iter()
        .map(|tenant| tenant.settings())
        .map(|settings| (settings.name.clone(), settings.device()))
        .collect();
    let began = registry.facts.started_nanos;
    let uptime_s = registry.clock.now().since(began).as_secs_f64();
    let seen =
        sharing.look(|controller, ids| Look { controller, ids, devices: &devices, began }.view());
    View { uptime_s, ..seen }
}

/// Current view as one JSON object.
pub(crate) fn json(registry: &Registry, sharing: &Sharing) -> String {
    // Numbers, texts and lists always have a JSON form.
    serde_json::to_string(&view(registry, sharing)).unwrap_or_default()
}

fn usual_weight() -> f64 {
    1.0
}

fn group(settings: &GroupSettings) -> GroupRow {
    let policy = settings.policy.name().to_owned();
    GroupRow { name: settings.whole.name.clone(), policy, weight: settings.whole.weight }
}

/// Sources of a view.
struct Look<'a> {
    controller: &'a Controller,
    ids: &'a BTreeMap<String, TenantId>,
    /// Device of each tenant.
    devices: &'a BTreeMap<String, String>,
    began: Nanos,
}

impl Look<'_> {
    fn view(&self) -> View {
        let settings = self.controller.settings();
        let decisions = self.controller.decisions();
        let newest: Vec<&Decision> = decisions.iter().collect();
        let newest = newest.into_iter().rev().take(DECISIONS_SHOWN);
        View {
            uptime_s: 0.0,
            policy: settings.policy.name().to_owned(),
            is_trying: self.controller.is_trying(),
            media: settings.media.clone(),
            groups: settings.groups.iter().map(group).collect(),
            tenants: self.controller.views().iter().map(|seen| self.tenant(seen)).collect(),
            decisions_total: decisions.total(),
            decisions: newest.map(|decision| self.decision(decision)).collect(),
        }
    }

    fn tenant(&self, seen: &Seen) -> TenantRow {
        let settings = self.controller.settings();
        let us = |ns: Option<f64>| ns.map(|ns| ns / 1e3);
        let device = self.devices.get(&seen.name);
        let on = settings.media.iter().position(|medium| Some(medium) == device);
        let medium = |place: usize| {
            let throttle = self.controller.throttle(seen.tenant, MediumId(place));
            MediumRow {
                medium: settings.media.get(place).cloned().unwrap_or_default(),
                share: seen.shares.get(place).copied().unwrap_or_default(),
                share_allowed: throttle.share_max(),
                throttle: throttle.to_string(),
            }
        };
        let own = settings.tenants.iter().find(|tenant| tenant.id == seen.tenant);
        TenantRow {
            name: seen.name.clone(),
            group: own.and_then(|own| own.group.clone()),
            weight: own.map_or(1.0, |own| own.weight),
            throughput_ops_s: seen.operations_s,
            p50_us: us(seen.latency_ns_p50),
            p99_us: us(seen.latency_ns_p99),
            p999_us: us(seen.latency_ns_p999),
            promise: self.promise(seen.tenant, on),
            slowdown: seen.slowdown,
            media: on.map(medium).into_iter().collect(),
            last_decision: seen.last_decision.as_ref().map(|decision| self.decision(decision)),
        }
    }

    /// Promise to a tenant or limit on it, in words.
    fn promise(&self, tenant: TenantId, medium: Option<usize>) -> Option<String> {
        let settings = self.controller.settings().tenants.iter().find(|one| one.id == tenant)?;
        let target = settings.target.map(|target| {
            let latency = entresol_base::duration::format(target.latency);
            format!("p{} within {latency}", target.percent)
        });
        let share = medium.and_then(|medium| *settings.share_max.get(medium)?);
        let share = share.map(|share| format!("at most {}", Throttle::Share(share)));
        let bytes = settings.bytes_s_max.map(|most| format!("at most {:.1} MB/s", most / 1e6));
        let slowdown = settings.slowdown_max.map(|most| format!("at most {most} times slower"));
        let weight = (settings.weight != 1.0).then(|| format!("weight {}", settings.weight));
        let all: Vec<String> =
            [target, share, bytes, slowdown, weight].into_iter().flatten().collect();
        (!all.is_empty()).then(|| all.join(", "))
    }

    fn decision(&self, decision: &Decision) -> DecisionRow {
        let name = |wanted: TenantId| {
            let known = self.ids.iter().find(|(_, id)| **id == wanted);
            known.map_or_else(|| format!("number {}", wanted.0), |(name, _)| name.clone())
        };
        DecisionRow {
            at_s: decision.at.since(self.began).as_secs_f64(),
            tenant: decision.tenant.map(name),
            text: decision.text.clone(),
        }
    }
}
