//! Decision on a changed configuration: changes that are possible while tenants are served, and
//! their parts. Steps that can be refused come first and can be taken back; the rest cannot fail.

use std::sync::Arc;

use entresol_base::ByteSize;
use entresol_cache::Cache;

use crate::ChangeError;
use crate::config::{Settings, TenantSettings};
use crate::tenant::Tenant;

/// Tenants that a changed configuration adds, keeps and removes.
#[derive(Debug)]
pub struct Changes<'a> {
    /// Settings of tenants that are not served yet.
    pub added: Vec<&'a TenantSettings>,
    /// New settings of tenants that are served.
    pub kept: Vec<&'a TenantSettings>,
    /// Names of tenants that are served and no longer wanted.
    pub removed: Vec<String>,
}

/// Decides how to get from the settings in force to `new`, while `tenants` are served.
///
/// # Errors
/// Returns an error if a change needs a restart or the sharing settings are invalid.
pub fn decide<'a>(
    old: &Settings,
    tenants: &[Arc<Tenant>],
    new: &'a Settings,
) -> Result<Changes<'a>, ChangeError> {
    check_process(old, new)?;
    new.sharing.check()?;
    let mut changes = Changes { added: Vec::new(), kept: Vec::new(), removed: Vec::new() };
    let served: Vec<TenantSettings> = tenants.iter().map(|tenant| tenant.settings()).collect();
    for tenant in &new.tenants {
        match served.iter().find(|old| old.name == tenant.name) {
            None => changes.added.push(tenant),
            Some(old) => {
                check_tenant(old, tenant)?;
                changes.kept.push(tenant);
            }
        }
    }
    let is_removed = |old: &TenantSettings| !new.tenants.iter().any(|new| new.name == old.name);
    let removed = served.into_iter().filter(is_removed).map(|old| old.name);
    changes.removed = removed.collect();
    Ok(changes)
}

/// Refuses changes of process-wide settings, which need a restart.
fn check_process(old: &Settings, new: &Settings) -> Result<(), ChangeError> {
    let refused = |key| Err(ChangeError::NeedsRestart { key, tenant: None });
    if old.threads != new.threads {
        return refused("threads");
    }
    if old.admin != new.admin {
        return refused("admin");
    }
    if old.admin_token != new.admin_token {
        return refused("admin_token_file");
    }
    // Users come and go, and their file may move. Connections without a user would be neither.
    if old.auth.is_some() != new.auth.is_some() {
        return refused("auth_file");
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

/// Refuses changes to a tenant's listeners and to the settings that its cache was built with.
fn check_tenant(old: &TenantSettings, new: &TenantSettings) -> Result<(), ChangeError> {
    let refused = |key| Err(ChangeError::NeedsRestart { key, tenant: Some(new.name.clone()) });
    if old.listen != new.listen {
        return refused("listen");
    }
    let tls = |settings: &TenantSettings| settings.tls.as_ref().map(|tls| tls.listen.clone());
    if tls(old) != tls(new) {
        return refused("tls_listen");
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

/// Quotas that were changed, with those from before.
#[must_use]
pub struct Resized {
    done: Vec<(Arc<Cache>, ByteSize, ByteSize)>,
}

/// Changes the quotas of the kept tenants. If one is refused, the others have their old ones.
///
/// # Errors
/// Fails if a quota is too small for its cache or larger than the machine or the medium.
pub fn resize(tenants: &[Arc<Tenant>], changes: &Changes<'_>) -> Result<Resized, ChangeError> {
    let mut resized = Resized { done: Vec::new() };
    for new in &changes.kept {
        let Some(tenant) = tenants.iter().find(|tenant| tenant.name() == new.name) else {
            continue;
        };
        let old = tenant.settings();
        if old.dram_quota == new.dram_quota && old.medium_quota == new.medium_quota {
            continue;
        }
        let cache = Arc::clone(tenant.cache());
        // A tenant may have lowered its limit below the quota.
        let before = ByteSize(cache.statistics().dram_limit_bytes);
        match cache.resize(new.dram_quota, new.medium_quota) {
            Ok(()) => resized.done.push((cache, before, old.medium_quota)),
            Err(cause) => {
                resized.undo();
                return Err(ChangeError::Resize { tenant: new.name.clone(), cause });
            }
        }
    }
    Ok(resized)
}

impl Resized {
    /// Restores the quotas from before.
    pub fn undo(self) {
        for (cache, dram, medium) in self.done {
            if let Err(error) = cache.resize(dram, medium) {
                tracing::error!(%error, "cannot restore an old quota");
            }
        }
    }
}

/// Puts the kept tenants' new settings into effect where they are read.
pub fn apply(tenants: &[Arc<Tenant>], changes: &Changes<'_>, settings: &Settings) {
    for new in &changes.kept {
        if let Some(tenant) = tenants.iter().find(|tenant| tenant.name() == new.name) {
            tenant.change_settings((*new).clone(), settings.limits);
        }
    }
}
