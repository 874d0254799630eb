//! Reload of the configuration while the server runs: all of it takes effect, or nothing does.

use std::sync::Arc;

use entresol_base::ByteSize;

use crate::ReloadError;
use crate::config::{Settings, TenantSettings};
use crate::event_loop::Order;
use crate::server::{Running, prepare};

/// Tenants to add, change and remove.
struct Plan<'a> {
    added: Vec<&'a TenantSettings>,
    changed: Vec<&'a TenantSettings>,
    removed: Vec<usize>,
}

pub(crate) fn reload(running: &mut Running, settings: Settings) -> Result<(), ReloadError> {
    check_process(&running.settings, &settings)?;
    settings.sharing.check()?;
    let plan = plan(running, &settings)?;
    // Steps that can fail come first: listeners and media of new tenants, then quotas.
    let prepared = prepare(&plan.added, &settings, &running.registry.clock)?;
    resize(running, &plan.changed)?;
    let (limits, slow_log) = (settings.limits, settings.slow_log);
    for member in running.members.iter().flatten() {
        let name = member.tenant.name();
        if let Some(new) = settings.tenants.iter().find(|tenant| tenant.name == name) {
            member.tenant.change_settings(new.clone(), limits);
        }
    }
    let answers: Vec<_> = running
        .loops
        .iter()
        .map(|handle| handle.order(Order::Change { limits, slow_log }))
        .collect();
    for answer in answers {
        // Limits cannot be refused, and a loop that has ended is reported elsewhere.
        let _ = answer.recv();
    }
    for place in plan.removed {
        running.dismiss(place);
    }
    running.settings = settings.clone();
    for prepared in prepared {
        running.admit(prepared)?;
    }
    running.publish();
    if let Some(thread) = &running.sharing {
        thread.sharing().replace(&settings.sharing)?;
    }
    let policy = settings.sharing.policy.name();
    tracing::info!(tenants = settings.tenants.len(), policy, "configuration reloaded");
    Ok(())
}

/// Refuses changes of process-wide settings, which need a restart.
fn check_process(old: &Settings, new: &Settings) -> Result<(), ReloadError> {
    let refused = |key| Err(ReloadError::NeedsRestart { key, tenant: None });
    if old.threads != new.threads {
        return refused("threads");
    }
    if old.admin != new.admin {
        return refused("admin");
    }
    if old.restart_from != new.restart_from {
        return refused("restart_from");
    }
    if old.huge_pages != new.huge_pages {
        return refused("huge_pages");
    }
    if old.io_backend != new.io_backend {
        return refused("io_backend");
    }
    Ok(())
}

fn plan<'a>(running: &Running, settings: &'a Settings) -> Result<Plan<'a>, ReloadError> {
    let mut plan = Plan { added: Vec::new(), changed: Vec::new(), removed: Vec::new() };
    let now: Vec<TenantSettings> =
        running.members.iter().flatten().map(|member| member.tenant.settings()).collect();
    for tenant in &settings.tenants {
        match now.iter().find(|old| old.name == tenant.name) {
            None => plan.added.push(tenant),
            Some(old) => {
                check_tenant(old, tenant)?;
                plan.changed.push(tenant);
            }
        }
    }
    for (place, member) in running.members.iter().enumerate() {
        let Some(member) = member else { continue };
        let name = member.tenant.name();
        if !settings.tenants.iter().any(|tenant| tenant.name == name) {
            plan.removed.push(place);
        }
    }
    Ok(plan)
}

/// Refuses changes to a tenant's listeners and to the settings that its cache was built with.
fn check_tenant(old: &TenantSettings, new: &TenantSettings) -> Result<(), ReloadError> {
    let refused = |key| Err(ReloadError::NeedsRestart { key, tenant: Some(new.name.clone()) });
    if old.listen != new.listen {
        return refused("listen");
    }
    if old.unix_socket != new.unix_socket || old.unix_socket_mode != new.unix_socket_mode {
        return refused("unix_socket");
    }
    if old.medium != new.medium {
        return refused("medium");
    }
    if old.cost_table != new.cost_table {
        return refused("cost_table");
    }
    if old.segment_size != new.segment_size {
        return refused("segment_size");
    }
    if old.value_limit != new.value_limit {
        return refused("value_limit");
    }
    if old.favour != new.favour {
        return refused("favour");
    }
    Ok(())
}

/// Changes quotas; if one is refused, restores those already changed.
fn resize(running: &Running, changed: &[&TenantSettings]) -> Result<(), ReloadError> {
    let mut done: Vec<(Arc<entresol_cache::Cache>, ByteSize, ByteSize)> = Vec::new();
    for new in changed {
        let member = running.members.iter().flatten().find(|m| m.tenant.name() == new.name);
        let Some(member) = member else { continue };
        let old = member.tenant.settings();
        if old.dram_quota == new.dram_quota && old.medium_quota == new.medium_quota {
            continue;
        }
        let cache = Arc::clone(member.tenant.cache());
        match cache.resize(new.dram_quota, new.medium_quota) {
            Ok(()) => done.push((cache, old.dram_quota, old.medium_quota)),
            Err(cause) => {
                for (cache, dram, medium) in done {
                    if let Err(error) = cache.resize(dram, medium) {
                        tracing::error!(%error, "cannot bring an old quota back");
                    }
                }
                return Err(ReloadError::Resize { tenant: new.name.clone(), cause });
            }
        }
    }
    Ok(())
}
