//! Turns `[sharing]`, `[[group]]` and the promises of tenants into the controller's settings, and
//! the controller's complaints into places of the file.

use std::ops::Range;
use std::time::Duration;

use entresol_base::suggest::nearest;
use entresol_base::{ByteSize, duration};
use entresol_sharing::{
    Class, GroupSettings, PolicySettings, Settings as SharingSettings, SettingsError, Target,
    TenantId, TenantSettings as Member,
};
use toml::Spanned;

use super::check::{Checker, span_of};
use super::file::SizeText;
use super::{RawConfig, RawGroup, RawTenant, TenantSettings, parameters};

/// Maximum number of decisions that the controller can be told to remember.
const DECISIONS_MAX: i64 = 100_000;

/// Keys about sharing in the table of a tenant or group.
struct Promises<'a> {
    class: &'a Option<Spanned<String>>,
    target: &'a Option<Spanned<String>>,
    weight: &'a Option<Spanned<f64>>,
    share_max: &'a Option<Spanned<String>>,
    bytes_s_max: &'a Option<Spanned<SizeText>>,
    slowdown_max: &'a Option<Spanned<f64>>,
    name: &'a Option<Spanned<String>>,
    group: Option<&'a Spanned<String>>,
}

impl RawTenant {
    fn promises(&self) -> Promises<'_> {
        Promises {
            class: &self.class,
            target: &self.target,
            weight: &self.weight,
            share_max: &self.share_max,
            bytes_s_max: &self.bytes_s_max,
            slowdown_max: &self.slowdown_max,
            name: &self.name,
            group: self.group.as_ref(),
        }
    }
}

impl RawGroup {
    fn promises(&self) -> Promises<'_> {
        Promises {
            class: &self.class,
            target: &self.target,
            weight: &self.weight,
            share_max: &self.share_max,
            bytes_s_max: &self.bytes_s_max,
            slowdown_max: &self.slowdown_max,
            name: &self.name,
            group: None,
        }
    }
}

impl Promises<'_> {
    /// Finds the place of a key of the controller's settings.
    fn place(&self, key: &str) -> Option<Range<usize>> {
        match key {
            "class" => self.class.as_ref().map(Spanned::span),
            "target" => self.target.as_ref().or(self.class.as_ref()).map(Spanned::span),
            "weight" => self.weight.as_ref().map(Spanned::span),
            "share_max" => self.share_max.as_ref().map(Spanned::span),
            "bytes_s_max" => self.bytes_s_max.as_ref().map(Spanned::span),
            "slowdown_max" => self.slowdown_max.as_ref().map(Spanned::span),
            "group" => self.group.map(Spanned::span),
            _ => self.name.as_ref().map(Spanned::span),
        }
    }
}

/// Builds the sharing settings; complaints about them join the problems.
pub(super) fn check(
    checker: &mut Checker<'_>,
    raw: &RawConfig,
    tenants: &[TenantSettings],
) -> SharingSettings {
    Sharing { checker, raw }.settings(tenants)
}

/// Reader of all that a configuration says about sharing, whose problems go to the checker.
struct Sharing<'c, 'o, 'r> {
    checker: &'c mut Checker<'o>,
    raw: &'r RawConfig,
}

impl Sharing<'_, '_, '_> {
    fn settings(&mut self, tenants: &[TenantSettings]) -> SharingSettings {
        let raw = self.raw;
        let mut media: Vec<String> = tenants.iter().map(TenantSettings::device).collect();
        media.sort_unstable();
        media.dedup();
        let members = raw.tenant.iter().zip(tenants).enumerate().map(|(place, (raw, tenant))| {
            let id = TenantId(u32::try_from(place).unwrap_or(u32::MAX));
            let on = media.iter().position(|medium| *medium == tenant.device()).unwrap_or(0);
            let on = |share| {
                let mut shares = vec![None; media.len()];
                shares[on] = share;
                shares
            };
            self.member(id, &tenant.name, &raw.get_ref().promises(), on)
        });
        let members: Vec<Member> = members.collect();
        let groups = raw.group.iter().map(|raw| self.group(raw, media.len())).collect();
        let policy = parameters::policy(self.checker, &raw.sharing.policy, &raw.sharing.parameters);
        let decisions = &raw.sharing.decisions_max;
        let defaults = SharingSettings::new("", PolicySettings::None, Vec::new());
        let decisions_max = defaults.decisions_max as i64;
        let decisions_max =
            self.checker.count("decisions_max", decisions, decisions_max, 0..=DECISIONS_MAX);
        let settings = SharingSettings {
            media,
            policy,
            tenants: members,
            groups,
            decisions_max: decisions_max as usize,
            ..defaults
        };
        // A value that could not be read has a stand-in, which must not be complained about.
        if self.checker.problems.is_empty()
            && let Err(errors) = settings.check()
        {
            for error in errors.0 {
                self.refuse(&settings, &error);
            }
        }
        settings
    }

    fn group(&mut self, raw: &Spanned<RawGroup>, media: usize) -> GroupSettings {
        let (span, raw) = (raw.span(), raw.get_ref());
        if raw.name.is_none() {
            self.checker.problem(
                "name",
                &span,
                "a group has no name; add name = \"...\"".to_owned(),
            );
        }
        let name = raw.name.as_ref().map_or("", |name| name.get_ref());
        // A group's limit holds on each medium.
        let everywhere = |share| vec![share; media];
        GroupSettings {
            whole: self.member(TenantId::default(), name, &raw.promises(), everywhere),
            policy: parameters::policy(self.checker, &raw.policy, &raw.parameters),
        }
    }

    fn member(
        &mut self,
        id: TenantId,
        name: &str,
        promises: &Promises<'_>,
        on: impl Fn(Option<f64>) -> Vec<Option<f64>>,
    ) -> Member {
        let class = match promises.class.as_ref().map(|class| class.get_ref().as_str()) {
            None | Some("best-effort") => Class::BestEffort,
            Some("latency-critical") => Class::LatencyCritical,
            Some(other) => {
                let names = ["latency-critical", "best-effort"];
                let message = one_of("class", other, &names);
                self.checker.problem("class", &span_of(promises.class), message);
                Class::BestEffort
            }
        };
        Member {
            group: promises.group.map(|group| group.get_ref().clone()),
            class,
            target: self.target(promises.target),
            weight: promises.weight.as_ref().map_or(1.0, |weight| *weight.get_ref()),
            share_max: on(self.checker.percent("share_max", promises.share_max)),
            bytes_s_max: self.bytes_s(promises.bytes_s_max),
            slowdown_max: promises.slowdown_max.as_ref().map(|most| *most.get_ref()),
            ..Member::new(id, name)
        }
    }

    fn target(&mut self, written: &Option<Spanned<String>>) -> Option<Target> {
        let written = written.as_ref()?;
        let text = written.get_ref();
        let target = parse_target(text);
        if target.is_none() {
            let message = format!(
                "target is '{text}'; write a percentile and a time, such as \"p99 2ms\" or \
                 \"p99.9 10ms\""
            );
            self.checker.problem("target", &written.span(), message);
        }
        target
    }

    fn bytes_s(&mut self, written: &Option<Spanned<SizeText>>) -> Option<f64> {
        let written = written.as_ref()?;
        match written.get_ref().text().parse::<ByteSize>() {
            Ok(size) => Some(size.0 as f64),
            Err(error) => {
                self.checker.problem(
                    "bytes_s_max",
                    &written.span(),
                    format!("bytes_s_max: {error}"),
                );
                None
            }
        }
    }

    /// Reports one of the controller's complaints, with its line.
    fn refuse(&mut self, settings: &SharingSettings, error: &SettingsError) {
        let raw = self.raw;
        let place = match error {
            SettingsError::Tenant { tenant, key, .. } => {
                let called = |name: &Option<Spanned<String>>| {
                    name.as_ref().is_some_and(|name| name.get_ref() == tenant)
                };
                let tenants = raw.tenant.iter().map(Spanned::get_ref).filter(|t| called(&t.name));
                let groups = raw.group.iter().map(Spanned::get_ref).filter(|g| called(&g.name));
                let mut all =
                    tenants.map(RawTenant::promises).chain(groups.map(RawGroup::promises));
                let of_key = all.clone().find_map(|promises| promises.place(key));
                of_key.or_else(|| all.next().and_then(|promises| promises.place("name")))
            }
            SettingsError::Policy { policy, key, .. } => policy_place(raw, settings, policy, key),
            SettingsError::Together { key, .. } => {
                let promises = raw.tenant.iter().map(|tenant| tenant.get_ref().promises());
                let groups = raw.group.iter().map(|group| group.get_ref().promises());
                promises.chain(groups).filter_map(|promises| promises.place(key)).next_back()
            }
            _ => None,
        };
        let place = place.or_else(|| raw.sharing.policy.as_ref().map(Spanned::span));
        self.checker.problem("sharing", &place.unwrap_or_default(), error.to_string());
    }
}

/// Finds the place of a policy's parameter, or of the policy's name.
fn policy_place(
    raw: &RawConfig,
    settings: &SharingSettings,
    policy: &str,
    key: &str,
) -> Option<Range<usize>> {
    let whole = [(&raw.sharing.policy, &raw.sharing.parameters, settings.policy.name())];
    let groups = raw.group.iter().map(Spanned::get_ref).zip(&settings.groups);
    let groups = groups.map(|(raw, group)| (&raw.policy, &raw.parameters, group.policy.name()));
    let scopes = whole.into_iter().chain(groups).filter(|(_, _, name)| *name == policy);
    let place = |(name, parameters, _): (&Option<Spanned<String>>, _, _)| {
        parameters::place(parameters, key).or_else(|| name.as_ref().map(Spanned::span))
    };
    let mut scopes = scopes.map(place);
    scopes.next().flatten()
}

/// Message for a word that is none of `names`.
pub(super) fn one_of(key: &str, written: &str, names: &[&str]) -> String {
    let hint = nearest(written, names.iter().copied())
        .map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
    format!("{key} is '{written}'; it must be one of {}{hint}", names.join(", "))
}

/// Parses `12.5%` as a part of one.
pub(super) fn parse_percent(text: &str) -> Option<f64> {
    let number: f64 = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
    number.is_finite().then_some(number / 100.0)
}

/// Parses `p99.9` as 99.9.
pub(super) fn parse_percentile(text: &str) -> Option<f64> {
    text.strip_prefix('p')?.parse().ok().filter(|percent: &f64| percent.is_finite())
}

/// Returns true if a time has a unit. A bare number could mean seconds or milliseconds.
pub(super) fn has_unit(text: &str) -> bool {
    !text.trim_end().ends_with(|last: char| last.is_ascii_digit())
}

/// Parses a target such as `p99 2ms`.
fn parse_target(text: &str) -> Option<Target> {
    let (percent, latency) = text.trim().split_once(char::is_whitespace)?;
    let latency = latency.trim_start();
    let latency: Duration = duration::parse(latency).ok().filter(|_| has_unit(latency))?;
    Some(Target { percent: parse_percentile(percent)?, latency })
}
