//! Checks a configuration against this machine: files that it names, and sizes that a cache cannot
//! be opened with. Nothing is opened yet.

use std::ops::Range;

use entresol_cache::Cache;
use entresol_media::cost;
use toml::Spanned;

use super::check::Checker;
use super::{ConfigError, Origin, RawConfig, RawTenant, Settings, TenantSettings};
use super::{access, admission};

/// Checks the files and sizes that `settings` name.
pub(super) fn check(
    raw: &RawConfig,
    settings: &mut Settings,
    origin: &Origin,
) -> Result<(), ConfigError> {
    let mut checker = Checker { origin, problems: Vec::new() };
    access::read_users(&mut checker, raw, settings);
    access::read_admin_token(&mut checker, raw, settings);
    for (raw, tenant) in raw.tenant.iter().map(Spanned::get_ref).zip(&settings.tenants) {
        checker.cost_table(raw, tenant);
        checker.sizes(raw, tenant, settings);
    }
    if checker.problems.is_empty() {
        admission::check(&mut checker, raw, settings);
    }
    match checker.problems.is_empty() {
        true => Ok(()),
        false => Err(ConfigError { problems: checker.problems }),
    }
}

impl Checker<'_> {
    fn cost_table(&mut self, raw: &RawTenant, tenant: &TenantSettings) {
        if let Err(error) = cost::find(&tenant.medium, tenant.cost_table.as_deref()) {
            let place = raw.cost_table.as_ref().or(raw.medium.as_ref()).map(Spanned::span);
            self.problem("cost_table", &place.unwrap_or_default(), error.to_string());
        }
    }

    fn sizes(&mut self, raw: &RawTenant, tenant: &TenantSettings, settings: &Settings) {
        if let Err(error) = Cache::check(&tenant.cache(settings)) {
            let message = error.to_string();
            let (key, place) = match &raw.medium_quota {
                Some(quota) if message.contains("medium quota") => ("medium_quota", quota.span()),
                _ => ("dram_quota", quota_place(raw)),
            };
            self.problem(key, &place, message);
        }
    }
}

fn quota_place(raw: &RawTenant) -> Range<usize> {
    let quota = raw.dram_quota.as_ref().map(Spanned::span);
    quota.or_else(|| raw.name.as_ref().map(Spanned::span)).unwrap_or_default()
}
