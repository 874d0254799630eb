//! A policy and its parameters. Parameters that are not written have the policy's defaults; those
//! that the policy does not have are refused.

use std::ops::Range;
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_sharing::PolicySettings;
use entresol_sharing::settings::{
    AloneSettings, Donation, Enforcement, EpochSettings, Expense, Metric, Pace, WatchSettings,
};
use toml::Spanned;

use super::RawParameters;
use super::check::{Checker, span_of};
use super::sharing::{has_unit, one_of, parse_percent, parse_percentile};

const COUNT_MAX: i64 = 1_000_000_000;

const HELD: [&str; 3] = ["enforcement", "epoch_tick", "epoch_ticks"];
const ALONE: [&str; 5] =
    ["alone_period", "pause", "pause_requests_min", "pause_max", "load_change"];
const QOS: [&str; 11] = [
    "tick",
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
];
const FAIR: [&str; 9] = [
    "tick",
    "interval",
    "metric",
    "unfairness_max",
    "rounds",
    "equalise",
    "margin",
    "share_min",
    "patience_max",
];
const PROPORTIONAL: [&str; 5] = ["tick", "period", "donation", "metric", "margin"];

/// Returns true if a policy has the parameter `key`.
fn reads(policy: &PolicySettings, key: &str) -> bool {
    match policy {
        PolicySettings::None => false,
        PolicySettings::Limit(_) => HELD.contains(&key),
        PolicySettings::Bandwidth(_) => key == "tick",
        PolicySettings::Qos(_) => QOS.contains(&key),
        PolicySettings::Fair(_) => FAIR.contains(&key) || ALONE.contains(&key),
        PolicySettings::Proportional(_) => {
            PROPORTIONAL.contains(&key) || HELD.contains(&key) || ALONE.contains(&key)
        }
    }
}

/// Lists every parameter that is written, with its place.
fn written(raw: &RawParameters) -> Vec<(&'static str, Range<usize>)> {
    macro_rules! list {
        ($($key:ident)*) => {
            [$((stringify!($key), raw.$key.as_ref().map(Spanned::span)),)*]
        };
    }
    let all = list!(
        tick enforcement epoch_tick epoch_ticks watch_shortest watch_longest watch_tail_min pace
        expense metric candidates_max slack_min share_min patience_max interval unfairness_max
        rounds equalise margin period donation alone_period pause pause_requests_min pause_max
        load_change
    );
    all.into_iter().filter_map(|(key, span)| Some((key, span?))).collect()
}

/// Finds the place of the parameter that the controller calls `key`.
pub(super) fn place(raw: &RawParameters, key: &str) -> Option<Range<usize>> {
    let keys: &[&str] = match key {
        "watch" => &["watch_shortest", "watch_longest"],
        "epochs" => &["epoch_tick", "epoch_ticks"],
        "pause" => &["pause", "pause_max"],
        "period" => &["alone_period", "pause_max", "period"],
        "change" => &["load_change"],
        key => &[key],
    };
    let written = written(raw);
    let find = |key: &&str| written.iter().find(|(name, _)| name == key);
    keys.iter().find_map(find).map(|(_, span)| span.clone())
}

/// Builds the policy of this name with these parameters.
pub(super) fn policy(
    checker: &mut Checker<'_>,
    name: &Option<Spanned<String>>,
    raw: &RawParameters,
) -> PolicySettings {
    Parameters { checker, raw }.policy(name)
}

/// Reader of one policy's parameters, whose problems go to the checker.
struct Parameters<'c, 'o, 'r> {
    checker: &'c mut Checker<'o>,
    raw: &'r RawParameters,
}

impl Parameters<'_, '_, '_> {
    fn policy(&mut self, name: &Option<Spanned<String>>) -> PolicySettings {
        let raw = self.raw;
        let written_name = name.as_ref().map_or("none", |name| name.get_ref());
        let mut policy = match PolicySettings::named(written_name) {
            Ok(policy) => policy,
            Err(error) => {
                self.checker.problem("policy", &span_of(name), error.to_string());
                return PolicySettings::None;
            }
        };
        for (key, span) in written(raw).into_iter().filter(|(key, _)| !reads(&policy, key)) {
            let message = format!("policy '{written_name}' has no parameter {key}; remove it");
            self.checker.problem(key, &span, message);
        }
        match &mut policy {
            PolicySettings::None => {}
            PolicySettings::Limit(limit) => self.enforcement(&mut limit.enforcement),
            PolicySettings::Bandwidth(bandwidth) => {
                self.time("tick", &raw.tick, &mut bandwidth.tick);
            }
            PolicySettings::Qos(qos) => {
                self.time("tick", &raw.tick, &mut qos.tick);
                self.watch(&mut qos.watch);
                self.pace(&mut qos.pace);
                self.expense(&mut qos.expense);
                qos.metric = self.metric().or(qos.metric);
                self.number("candidates_max", &raw.candidates_max, &mut qos.candidates_max);
                self.part("slack_min", &raw.slack_min, &mut qos.slack_min);
                self.part("share_min", &raw.share_min, &mut qos.share_min);
                self.time("patience_max", &raw.patience_max, &mut qos.patience_max);
            }
            PolicySettings::Fair(fair) => {
                self.time("tick", &raw.tick, &mut fair.tick);
                self.time("interval", &raw.interval, &mut fair.interval);
                self.alone(&mut fair.alone);
                fair.metric = self.metric().unwrap_or(fair.metric);
                let unfairness_max = raw.unfairness_max.as_ref().map(|most| *most.get_ref());
                fair.unfairness_max = unfairness_max.unwrap_or(fair.unfairness_max);
                self.number("rounds", &raw.rounds, &mut fair.rounds);
                let equalise = raw.equalise.as_ref().map(|equalise| *equalise.get_ref());
                fair.equalise = equalise.unwrap_or(fair.equalise);
                self.part("margin", &raw.margin, &mut fair.margin);
                self.part("share_min", &raw.share_min, &mut fair.share_min);
                self.time("patience_max", &raw.patience_max, &mut fair.patience_max);
            }
            PolicySettings::Proportional(shares) => {
                self.time("tick", &raw.tick, &mut shares.tick);
                self.time("period", &raw.period, &mut shares.period);
                self.enforcement(&mut shares.enforcement);
                self.donation(&mut shares.donation);
                self.alone(&mut shares.alone);
                shares.metric = self.metric().unwrap_or(shares.metric);
                self.part("margin", &raw.margin, &mut shares.margin);
            }
        }
        policy
    }

    fn time(&mut self, key: &str, written: &Option<Spanned<String>>, value: &mut Duration) {
        if let Some(text) = written.as_ref().filter(|text| !has_unit(text.get_ref())) {
            let message = format!(
                "{key} is '{0}', without a unit; write '{0}ms' or '{0}s'",
                text.get_ref().trim()
            );
            return self.checker.problem(key, &text.span(), message);
        }
        *value = self.checker.duration(key, written, *value);
    }

    fn part(&mut self, key: &str, written: &Option<Spanned<String>>, value: &mut f64) {
        *value = self.checker.percent(key, written).unwrap_or(*value);
    }

    fn number<N>(&mut self, key: &str, written: &Option<Spanned<i64>>, value: &mut N)
    where
        N: Copy + TryFrom<i64>,
    {
        if written.is_some() {
            let number = self.checker.count(key, written, 1, 1..=COUNT_MAX);
            *value = N::try_from(number).unwrap_or(*value);
        }
    }

    fn watch(&mut self, watch: &mut WatchSettings) {
        let raw = self.raw;
        self.time("watch_shortest", &raw.watch_shortest, &mut watch.shortest);
        self.time("watch_longest", &raw.watch_longest, &mut watch.longest);
        self.number("watch_tail_min", &raw.watch_tail_min, &mut watch.tail_min);
    }

    fn alone(&mut self, alone: &mut AloneSettings) {
        let raw = self.raw;
        self.time("alone_period", &raw.alone_period, &mut alone.period);
        self.time("pause", &raw.pause, &mut alone.pause);
        self.number("pause_requests_min", &raw.pause_requests_min, &mut alone.operations_min);
        self.time("pause_max", &raw.pause_max, &mut alone.pause_max);
        self.part("load_change", &raw.load_change, &mut alone.change);
    }

    fn enforcement(&mut self, enforcement: &mut Enforcement) {
        let raw = self.raw;
        match raw.enforcement.as_ref().map(|text| text.get_ref().as_str()) {
            None => {}
            Some("bucket") => *enforcement = Enforcement::Bucket,
            Some("epochs") => *enforcement = Enforcement::Epochs(EpochSettings::default()),
            Some(other) => {
                let message = one_of("enforcement", other, &["bucket", "epochs"]);
                self.checker.problem("enforcement", &span_of(&raw.enforcement), message);
            }
        }
        if let Enforcement::Epochs(epochs) = enforcement {
            self.time("epoch_tick", &raw.epoch_tick, &mut epochs.tick);
            self.number("epoch_ticks", &raw.epoch_ticks, &mut epochs.ticks);
            return;
        }
        let ticks = raw.epoch_ticks.as_ref().map(Spanned::span);
        if let Some(span) = raw.epoch_tick.as_ref().map(Spanned::span).or(ticks) {
            let message = "only enforcement = \"epochs\" has this parameter; add that, or remove \
                           this";
            self.checker.problem("epoch_tick", &span, message.to_owned());
        }
    }

    fn pace(&mut self, pace: &mut Pace) {
        let raw = self.raw;
        match raw.pace.as_ref().map(|text| text.get_ref().as_str()) {
            None => {}
            Some("adaptive") => *pace = Pace::Adaptive,
            Some("published") => *pace = Pace::Published,
            Some(other) => {
                let message = one_of("pace", other, &["adaptive", "published"]);
                self.checker.problem("pace", &span_of(&raw.pace), message);
            }
        }
    }

    fn expense(&mut self, expense: &mut Expense) {
        let Some(written) = &self.raw.expense else { return };
        let text = written.get_ref().text();
        if let Some(share) = parse_percent(&text) {
            *expense = Expense::Share(share);
            return;
        }
        match text.parse::<ByteSize>() {
            Ok(bytes_s) => *expense = Expense::Bytes(bytes_s.0 as f64),
            Err(error) => {
                let message =
                    format!("expense: {error}; write bytes a second (64MiB) or a share (5%)");
                self.checker.problem("expense", &written.span(), message);
            }
        }
    }

    fn metric(&mut self) -> Option<Metric> {
        let written = self.raw.metric.as_ref()?;
        match (written.get_ref().as_str(), parse_percentile(written.get_ref())) {
            ("throughput", _) => Some(Metric::Throughput),
            ("mean", _) => Some(Metric::Mean),
            (_, Some(percent)) => Some(Metric::Percentile(percent)),
            (other, None) => {
                let message = one_of("metric", other, &["throughput", "mean", "p99"]);
                self.checker.problem("metric", &written.span(), message);
                None
            }
        }
    }

    fn donation(&mut self, donation: &mut Donation) {
        let Some(written) = &self.raw.donation else { return };
        *donation = match (written.get_ref().as_str(), parse_percent(written.get_ref())) {
            ("adaptive", _) => Donation::Adaptive,
            ("never", _) => Donation::Never,
            ("naive", _) => Donation::Naive,
            (_, Some(step)) => Donation::Steps(step),
            (other, None) => {
                let message = one_of("donation", other, &["adaptive", "never", "naive", "10%"]);
                self.checker.problem("donation", &written.span(), message);
                return;
            }
        };
    }
}
