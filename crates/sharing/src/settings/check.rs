//! Check of a configuration: invalid values, settings that no policy reads, shares that exceed the
//! whole.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use super::{
    AloneSettings, Donation, Enforcement, Expense, Metric, PolicySettings, Settings, WatchSettings,
};
use crate::error::SettingsError;
use crate::tenant::{Class, TenantSettings};

/// Weights beyond which a tenant would get less than any policy can give out.
const WEIGHTS: RangeInclusive<f64> = 0.001..=1000.0;
/// Tolerance for sums of shares that were written in decimals.
const SUM_GRACE: f64 = 1e-9;

pub(super) fn mistakes(settings: &Settings) -> Vec<SettingsError> {
    let mut found = Found::default();
    if settings.media.is_empty() {
        found.together("media", "there is no medium to share", "name at least one");
    }
    names(settings, &mut found);
    let media = &settings.media;
    if settings.groups.is_empty() {
        scope(&settings.policy, &settings.tenants.iter().collect::<Vec<_>>(), media, &mut found);
    } else {
        let wholes: Vec<_> = settings.groups.iter().map(|group| &group.whole).collect();
        scope(&settings.policy, &wholes, media, &mut found);
        for group in &settings.groups {
            let inside = |tenant: &&TenantSettings| {
                tenant.group.as_deref() == Some(group.whole.name.as_str())
            };
            let tenants: Vec<_> = settings.tenants.iter().filter(inside).collect();
            if tenants.is_empty() {
                let fix = "put a tenant into it, or remove it";
                found.tenant(&group.whole, "name", "is a group without tenants", fix);
            }
            scope(&group.policy, &tenants, media, &mut found);
        }
    }
    found.0
}

#[derive(Default)]
struct Found(Vec<SettingsError>);

impl Found {
    fn tenant(&mut self, tenant: &TenantSettings, key: &'static str, what: &str, fix: &str) {
        self.0.push(SettingsError::Tenant {
            tenant: tenant.name.clone(),
            key,
            what: what.to_owned(),
            fix: fix.to_owned(),
        });
    }

    fn policy(&mut self, policy: &PolicySettings, key: &'static str, what: &str, fix: &str) {
        self.0.push(SettingsError::Policy {
            policy: policy.name(),
            key,
            what: what.to_owned(),
            fix: fix.to_owned(),
        });
    }

    fn together(&mut self, key: &'static str, what: &str, fix: &str) {
        self.0.push(SettingsError::Together { key, what: what.to_owned(), fix: fix.to_owned() });
    }
}

fn names(settings: &Settings, found: &mut Found) {
    let groups: Vec<&str> = settings.groups.iter().map(|group| group.whole.name.as_str()).collect();
    let (mut ids, mut names) = (BTreeSet::new(), BTreeSet::new());
    for tenant in &settings.tenants {
        if !ids.insert(tenant.id) || !names.insert(tenant.name.as_str()) {
            found.tenant(tenant, "name", "is used twice", "give each a name of its own");
        }
        match &tenant.group {
            Some(name) if !groups.contains(&name.as_str()) => {
                let fix = match entresol_base::suggest::nearest(name, groups.iter().copied()) {
                    Some(nearest) => format!("did you mean '{nearest}'?"),
                    None => "add the group, or remove it from the tenant".to_owned(),
                };
                found.tenant(tenant, "group", &format!("there is no group '{name}'"), &fix);
            }
            None if !groups.is_empty() => {
                let fix = format!("put it in one of {}", groups.join(", "));
                found.tenant(tenant, "group", "is in no group, and others are", &fix);
            }
            _ => {}
        }
    }
    let unique: BTreeSet<&str> = groups.iter().copied().collect();
    if unique.len() < groups.len() {
        found.together("group", "two groups have one name", "rename one");
    }
}

/// Checks the tenants that stand beside each other under one policy.
fn scope(
    policy: &PolicySettings,
    tenants: &[&TenantSettings],
    media: &[String],
    found: &mut Found,
) {
    parameters(policy, found);
    for tenant in tenants {
        promises(policy, tenant, media.len(), found);
    }
    match policy {
        PolicySettings::Limit(_) => sums(tenants, media, found),
        PolicySettings::Qos(_)
            if !tenants.is_empty() && tenants.iter().all(|t| t.promised().is_none()) =>
        {
            let fix = "give a latency-critical tenant a target, or choose another policy";
            found.policy(policy, "target", "no tenant has a target to keep", fix);
        }
        _ => {}
    }
}

fn sums(tenants: &[&TenantSettings], media: &[String], found: &mut Found) {
    for (medium, name) in media.iter().enumerate() {
        let shares = tenants.iter().filter_map(|tenant| *tenant.share_max.get(medium)?);
        let sum: f64 = shares.sum();
        if sum > 1.0 + SUM_GRACE {
            let what = format!("the shares of {name} add up to {:.1}%", sum * 100.0);
            found.together("share_max", &what, "lower them to 100% in all");
        }
    }
}

fn promises(policy: &PolicySettings, tenant: &TenantSettings, media: usize, found: &mut Found) {
    if !WEIGHTS.contains(&tenant.weight) {
        let what = format!("a weight of {} is invalid", tenant.weight);
        found.tenant(tenant, "weight", &what, "write a number from 0.001 to 1000; 1 is usual");
    }
    target(policy, tenant, found);
    if tenant.share_max.len() > media {
        found.tenant(tenant, "share_max", "has shares of media that do not exist", "remove them");
    }
    for share in tenant.share_max.iter().flatten() {
        if !(0.0..=1.0).contains(share) {
            let what = format!("a share of {:.1}% is invalid", share * 100.0);
            found.tenant(tenant, "share_max", &what, "write 0% to 100%");
        }
    }
    if tenant.bytes_s_max.is_some_and(|bytes_s| !(bytes_s >= 0.0 && bytes_s.is_finite())) {
        let fix = "write bytes a second, 0 or more";
        found.tenant(tenant, "bytes_s_max", "its limit of bytes is not a rate", fix);
    }
    if tenant.slowdown_max.is_some_and(|most| !(most > 1.0 && most.is_finite())) {
        let fix = "write a number above 1; 1.5 is half as slow again as alone";
        found.tenant(tenant, "slowdown_max", "no tenant is faster than alone", fix);
    }
    unread(policy, tenant, found);
}

fn target(policy: &PolicySettings, tenant: &TenantSettings, found: &mut Found) {
    match (tenant.class, tenant.target) {
        (Class::BestEffort, Some(_)) => {
            let fix = "make it latency-critical, or remove the target";
            found.tenant(tenant, "target", "a best-effort tenant has no target", fix);
        }
        (Class::LatencyCritical, None) if matches!(policy, PolicySettings::Qos(_)) => {
            let fix = "add one, or make it best-effort";
            found.tenant(tenant, "target", "is latency-critical and has no target", fix);
        }
        (_, Some(target)) => {
            if !(target.percent > 0.0 && target.percent < 100.0) {
                let what = format!("there is no percentile {}", target.percent);
                found.tenant(tenant, "target", &what, "write 99 or another between 0 and 100");
            }
            if target.latency.is_zero() {
                found.tenant(tenant, "target", "no request takes no time", "write 1500us or so");
            }
        }
        _ => {}
    }
}

/// Refuses promises that the policy ignores.
fn unread(policy: &PolicySettings, tenant: &TenantSettings, found: &mut Found) {
    let name = policy.name();
    let mut refuse = |key, set: bool, reader: &str| {
        if set {
            let what = format!("has a {key}, which policy '{name}' does not use");
            found.tenant(tenant, key, &what, &format!("choose policy '{reader}', or remove it"));
        }
    };
    let is = |policies: &[&str]| policies.contains(&name);
    refuse("target", tenant.promised().is_some() && !is(&["qos", "caladan"]), "qos");
    refuse("share_max", tenant.share_max.iter().any(Option::is_some) && !is(&["limit"]), "limit");
    refuse("bytes_s_max", tenant.bytes_s_max.is_some() && !is(&["bandwidth"]), "bandwidth");
    refuse("slowdown_max", tenant.slowdown_max.is_some() && !is(&["fair"]), "fair");
}

fn parameters(policy: &PolicySettings, found: &mut Found) {
    let mut check = |key, good: bool, what: String, fix: &str| {
        if !good {
            found.policy(policy, key, &what, fix);
        }
    };
    let positive = |key: &'static str, time: Duration| {
        (key, !time.is_zero(), format!("{key} is zero"), "write 10ms or another time")
    };
    let part = |key: &'static str, value: f64| {
        let good = (0.0..1.0).contains(&value);
        (key, good, format!("{key} is {value}"), "write a number from 0 to below 1")
    };
    let mut all = Vec::new();
    match policy {
        PolicySettings::None => {}
        PolicySettings::Limit(limit) => all.extend(enforcement(limit.enforcement)),
        PolicySettings::Bandwidth(bandwidth) => all.push(positive("tick", bandwidth.tick)),
        PolicySettings::Qos(qos) => {
            all.push(positive("tick", qos.tick));
            all.extend(watch(&qos.watch));
            all.extend(qos.metric.and_then(metric));
            let (Expense::Bytes(expense) | Expense::Share(expense)) = qos.expense;
            let most = if matches!(qos.expense, Expense::Share(_)) { 1.0 } else { f64::MAX };
            let good = expense > 0.0 && expense <= most;
            let fix = "write more than 0, and 100% of the medium at most";
            all.push(("expense", good, format!("expense is {expense}"), fix));
            let good = qos.candidates_max > 0;
            all.push(("candidates_max", good, "no tenant may be slowed".to_owned(), "write 3"));
            all.push(part("slack_min", qos.slack_min));
            all.push(part("share_min", qos.share_min));
        }
        PolicySettings::Fair(fair) => {
            all.extend([positive("tick", fair.tick), positive("interval", fair.interval)]);
            all.extend(alone(&fair.alone));
            all.extend(metric(fair.metric));
            let good = fair.unfairness_max > 1.0 && fair.unfairness_max.is_finite();
            let what = format!("unfairness_max is {}", fair.unfairness_max);
            all.push(("unfairness_max", good, what, "write a number above 1; 1.05 is usual"));
            all.extend([part("margin", fair.margin), part("share_min", fair.share_min)]);
        }
        PolicySettings::Proportional(shares) => {
            all.extend([positive("tick", shares.tick), positive("period", shares.period)]);
            all.extend(enforcement(shares.enforcement));
            all.extend(alone(&shares.alone));
            all.extend(metric(shares.metric));
            all.push(part("margin", shares.margin));
            if let Donation::Steps(step) = shares.donation {
                let good = step > 0.0 && step < 1.0;
                all.push(("donation", good, format!("a step of {step}"), "write 0.1 or so"));
            }
        }
    }
    for (key, good, what, fix) in all {
        check(key, good, what, fix);
    }
}

type Verdict = (&'static str, bool, String, &'static str);

fn enforcement(enforcement: Enforcement) -> Option<Verdict> {
    let Enforcement::Epochs(epochs) = enforcement else { return None };
    let good = !epochs.tick.is_zero() && epochs.ticks > 0;
    Some(("epochs", good, "an epoch takes no time".to_owned(), "write 100 ticks of 10ms or so"))
}

fn metric(metric: Metric) -> Option<Verdict> {
    let Metric::Percentile(percent) = metric else { return None };
    let good = percent > 0.0 && percent < 100.0;
    Some(("metric", good, format!("there is no percentile {percent}"), "write 99 or so"))
}

fn watch(watch: &WatchSettings) -> [Verdict; 2] {
    let ordered = watch.shortest <= watch.longest;
    let what = "the shortest watch is longer than the longest".to_owned();
    let some = !watch.longest.is_zero();
    [
        ("watch", ordered, what, "exchange them"),
        ("watch", some, "no window is ever long enough".to_owned(), "write 500ms or so"),
    ]
}

fn alone(alone: &AloneSettings) -> [Verdict; 3] {
    let short = !alone.pause.is_zero() && alone.pause <= alone.pause_max;
    let rare = alone.pause_max * 2 <= alone.period;
    let good = alone.change > 0.0 && alone.change.is_finite();
    [
        ("pause", short, "a pause lasts from pause to pause_max".to_owned(), "write 1ms and 5ms"),
        ("period", rare, "pauses take more than half of the time".to_owned(), "write 1s or so"),
        ("change", good, format!("change is {}", alone.change), "write 0.25 or so"),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::*;
    use crate::tenant::{Class, Target, TenantId, TenantSettings};
    use std::time::Duration;

    fn tenant(id: u32) -> TenantSettings {
        TenantSettings::new(TenantId(id), format!("t{id}"))
    }

    fn target() -> Target {
        Target { percent: 99.0, latency: Duration::from_micros(2) }
    }

    fn check(settings: &Settings, words: &[&str]) {
        let error = settings.check().expect_err(&words.join(" ")).to_string();
        for word in words {
            assert!(error.contains(word), "{error:?} lacks {word:?}");
        }
    }

    fn with(policy: &str, change: impl FnOnce(&mut TenantSettings)) -> Settings {
        let policy = PolicySettings::named(policy).expect("a policy");
        let mut first = tenant(1);
        if matches!(policy, PolicySettings::Qos(_)) {
            first = first.latency_critical(target());
        }
        change(&mut first);
        Settings::new("pmem", policy, vec![first, tenant(2)])
    }

    #[test]
    fn defaults_of_every_policy_are_good() {
        for name in ["none", "limit", "bandwidth", "qos", "caladan", "fair", "proportional"] {
            let settings = with(name, |_| {});
            assert_eq!(settings.check(), Ok(()), "{name}");
            assert_eq!(settings.policy.name(), name);
        }
    }

    #[test]
    fn an_unknown_policy_is_refused_with_the_nearest() {
        let error = PolicySettings::named("proportionate").expect_err("unknown").to_string();
        assert!(error.contains("'proportional'?"), "{error}");
        let error = PolicySettings::named("qqqqqqqqqqqqqqqqq").expect_err("unknown").to_string();
        assert!(error.contains("caladan"), "{error}");
    }

    #[test]
    fn promises_that_cannot_be_are_refused_with_the_fix() {
        let limited = |share| with("limit", |t| t.share_max = vec![Some(share)]);
        check(&limited(1.2), &["tenant 't1'", "120.0%", "100%"]);
        check(&limited(f64::NAN), &["tenant 't1'"]);
        let mut both = limited(0.7);
        both.tenants[1].share_max = vec![Some(0.4)];
        check(&both, &["add up to 110.0%", "lower them"]);
        let best_effort = |t: &mut TenantSettings| t.class = Class::BestEffort;
        check(&with("qos", best_effort), &["best-effort tenant has no target", "remove"]);
        check(&with("qos", |t| t.target = None), &["no target", "make it best-effort"]);
        let never = Target { percent: 100.0, latency: Duration::ZERO };
        check(&with("qos", |t| t.target = Some(never)), &["no percentile 100", "no time"]);
        check(&with("fair", |t| t.slowdown_max = Some(0.9)), &["faster than alone", "above 1"]);
        let mut empty = with("none", |_| {});
        let group = |name: &str| GroupSettings {
            whole: TenantSettings::new(TenantId(9), name),
            policy: PolicySettings::None,
        };
        empty.groups = vec![group("full"), group("empty")];
        empty.tenants.iter_mut().for_each(|t| t.group = Some("full".to_owned()));
        check(&empty, &["tenant 'empty'", "without tenants", "remove it"]);
        let expense = Expense::Share(1.01);
        let qos = PolicySettings::Qos(QosSettings { expense, ..QosSettings::default() });
        check(&Settings { policy: qos, ..with("qos", |_| {}) }, &["expense is 1.01", "100%"]);
        for weight in [0.0, -1.0, f64::NAN, f64::INFINITY, 1e-4, 1e308] {
            check(&with("proportional", |t| t.weight = weight), &["weight", "from 0.001 to 1000"]);
        }
        check(&with("bandwidth", |t| t.bytes_s_max = Some(f64::NAN)), &["not a rate"]);
    }

    #[test]
    fn promises_that_nobody_would_keep_are_refused() {
        check(&with("limit", |t| *t = t.clone().latency_critical(target())), &["policy 'qos'"]);
        check(&with("qos", |t| t.share_max = vec![Some(0.5)]), &["choose policy 'limit'"]);
        check(&with("none", |t| t.bytes_s_max = Some(5.0)), &["choose policy 'bandwidth'"]);
        check(&with("proportional", |t| t.slowdown_max = Some(1.5)), &["choose policy 'fair'"]);
    }

    #[test]
    fn groups_must_be_there_and_hold_everybody() {
        let mut settings = with("proportional", |t| t.group = Some("frnt".to_owned()));
        let whole = TenantSettings::new(TenantId(0), "front");
        settings.groups = vec![GroupSettings { whole, policy: PolicySettings::None }];
        check(&settings, &["did you mean 'front'?", "'t2': is in no group"]);
    }

    #[test]
    fn parameters_that_cannot_be_are_refused_with_the_fix() {
        let mut fair = FairSettings { unfairness_max: 1.0, ..FairSettings::default() };
        fair.alone.period = Duration::from_millis(2);
        let settings = Settings::new("m", PolicySettings::Fair(fair), vec![tenant(1)]);
        check(&settings, &["policy 'fair'", "above 1", "more than half"]);
        let shares = ProportionalSettings { donation: Donation::Steps(1.0), ..Default::default() };
        let settings = Settings::new("m", PolicySettings::Proportional(shares), vec![tenant(1)]);
        check(&settings, &["a step of 1", "0.1"]);
        let mut twice = with("none", |_| {});
        twice.tenants[1] = tenant(1);
        twice.media.clear();
        check(&twice, &["is used twice", "no medium"]);
    }
}
