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
            "no measured cost table; charging by a published one (`entresol profile` measures one)"
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

#[cfg(test)]
mod tests {
    use entresol_base::{ByteSize, SystemClock};
    use entresol_cache::Store;

    use super::*;
    use crate::config::{self, Machine};

    fn settings(folder: &std::path::Path, medium: &str) -> Settings {
        let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
        let text = format!(
            "restart_from = \"{}\"\n[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\n\
             medium = \"{medium}\"\ndram_quota = \"64MiB\"\n",
            folder.join("saved").display()
        );
        config::parse("test", &text, &machine).unwrap()
    }

    fn open_one(settings: &Settings) -> Opened {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        open(&[&settings.tenants[0]], settings, &clock).unwrap().remove(0)
    }

    #[test]
    fn a_cache_that_is_not_kept_saves_its_items_again() {
        let folder = tempfile::tempdir().unwrap();
        let settings = settings(folder.path(), "dram");
        let clock = SystemClock::new();
        for restored in 0..3 {
            let opened = open_one(&settings);
            assert_eq!(opened.cache().statistics().restored_items, restored.min(1));
            let mut worker = opened.cache().worker();
            let hash = worker.hash(b"key");
            worker.store(b"key", hash, clock.seconds(), &Store::set(b"value"), None);
        }
    }

    #[test]
    fn a_file_that_opening_created_stays_if_its_cache_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("values");
        let medium = format!("file:{}\"\nmedium_quota = \"64MiB", path.display());
        let settings = settings(folder.path(), &medium);
        drop(open_one(&settings));
        assert!(!entresol_media::files::exists(&path));
        open_one(&settings).keep();
        drop(open_one(&settings));
        assert!(entresol_media::files::exists(&path));
    }
}
