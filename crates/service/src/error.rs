//! Errors of opening tenants and of changing settings live.

use entresol_cache::{OpenError, ResizeError};
use entresol_media::cost::CostTableError;
use entresol_sharing::SettingsErrors;

/// Error of opening a tenant.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TenantError {
    /// A tenant's cache cannot be opened.
    #[error("{}", with_tenant(tenant, cause))]
    Cache {
        /// Name of the tenant.
        tenant: String,
        /// Error of its cache.
        cause: OpenError,
    },
    /// A tenant's cost table exists and cannot be used.
    #[error("tenant '{tenant}': {cause}")]
    Costs {
        /// Name of the tenant.
        tenant: String,
        /// Error of the table.
        cause: CostTableError,
    },
}

/// Error of changing settings live; nothing has changed then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// A setting cannot change while the server runs.
    #[error("{key}{} cannot change while the server runs; restart the server", whose(tenant))]
    NeedsRestart {
        /// Key of the setting.
        key: &'static str,
        /// Name of the tenant, if the key is a tenant's.
        tenant: Option<String>,
    },
    /// The sharing settings are refused.
    #[error(transparent)]
    Sharing(#[from] SettingsErrors),
    /// A quota is refused.
    #[error("tenant '{tenant}': {cause}")]
    Resize {
        /// Name of the tenant.
        tenant: String,
        /// Error of its cache.
        cause: ResizeError,
    },
}

/// The cause, preceded by the tenant's name unless it already contains it.
fn with_tenant(tenant: &str, cause: &OpenError) -> String {
    let (name, cause) = (format!("tenant '{tenant}'"), cause.to_string());
    if cause.contains(&name) { cause } else { format!("{name}: {cause}") }
}

fn whose(tenant: &Option<String>) -> String {
    tenant.as_ref().map_or(String::new(), |tenant| format!(" of tenant '{tenant}'"))
}
