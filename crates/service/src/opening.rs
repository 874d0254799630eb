//! Opening of tenants' caches, all or none, each with the cost table that its accesses are charged
//! by.

use std::path::PathBuf;
use std::sync::Arc;

use entresol_base::Clock;
use entresol_cache::{Cache, Config as CacheConfig};
use entresol_media::MediumSpec;
use entresol_media::cost::{self, CostTable};

use crate::TenantError;
use crate::config::{Settings, TenantSettings};

/// A tenant's open cache that is not kept yet. Dropping it closes the cache, which saves its items
/// for the next try, and removes a file that opening has created.
pub struct Opened {
    cache: Arc<Cache>,
    tenant: String,
    created: Created,
    kept: bool,
}

impl Opened {
    /// Returns the cache.
    #[must_use]
    pub fn cache(&self) -> &Arc<Cache> {
        &self.cache
    }

    /// Leaves cache and file to the tenant.
    pub fn keep(mut self) {
        self.kept = true;
        self.created.0 = None;
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.kept
            && let Err(error) = self.cache.close()
        {
            tracing::error!(tenant = %self.tenant, %error, "cannot close a cache cleanly");
        }
    }
}

/// File of a medium that opening creates, removed when dropped.
struct Created(Option<PathBuf>);

impl Created {
    fn by_opening(tenant: &TenantSettings) -> Self {
        Created(match &tenant.medium {
            MediumSpec::Pmem { path, .. } | MediumSpec::File { path, .. }
                if !entresol_media::files::exists(path) =>
            {
                Some(path.clone())
            }
            _ => None,
        })
    }
}

impl Drop for Created {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // The file may not have been created.
            let _ = entresol_media::files::remove(path);
        }
    }
}

/// Opens the caches of `tenants`, which `settings` name, in their order.
///
/// # Errors
/// Fails if a cost table or a medium cannot be used; nothing is left behind.
pub fn open(
    tenants: &[&TenantSettings],
    settings: &Settings,
    clock: &Arc<dyn Clock>,
) -> Result<Vec<Opened>, TenantError> {
    let mut costs = Vec::new();
    for tenant in tenants {
        costs.push(find_costs(tenant, settings)?);
    }
    let open = |(tenant, costs): (&&TenantSettings, _)| {
        let created = Created::by_opening(tenant);
        let config = CacheConfig { costs, ..tenant.cache(settings) };
        let failed = |cause| TenantError::Cache { tenant: tenant.name.clone(), cause };
        let cache = Cache::open(config, Arc::clone(clock)).map_err(failed)?;
        Ok(Opened { cache, tenant: tenant.name.clone(), created, kept: false })
    };
    tenants.iter().zip(costs).map(open).collect()
}

/// Finds the measured cost table by which a tenant's accesses are charged, if there is one: the
/// tenant's own, or that of another tenant on the same device. The log says which.
fn find_costs(
    tenant: &TenantSettings,
    settings: &Settings,
) -> Result<Option<Arc<CostTable>>, TenantError> {
    let device = tenant.device();
    let others = settings.tenants.iter().filter(|other| other.device() == device);
    let mut found = None;
    for of in std::iter::once(tenant).chain(others) {
        let failed = |cause| TenantError::Costs { tenant: of.name.clone(), cause };
        found = cost::find(&of.medium, of.cost_table.as_deref()).map_err(failed)?;
        if found.is_some() {
            break;
        }
    }
    let Some((table, path)) = found else {
        tracing::info!(
            tenant = %tenant.name,
            medium = %tenant.medium,
            "no measured cost table: charging by a published one; entresol profile measures one"
        );
        return Ok(None);
    };
    let source = table.source();
    tracing::info!(
        tenant = %tenant.name,
        table = %path.display(),
        measured = %source.medium,
        date = %source.date,
        spread = source.spread,
        "charging by a measured cost table"
    );
    Ok(Some(Arc::new(table)))
}
