//! Why a server cannot start or cannot change.

use std::io;
use std::net::SocketAddr;

use entresol_cache::{OpenError, ResizeError};
use entresol_media::cost::CostTableError;
use entresol_sharing::SettingsErrors;

use crate::listener::ListenError;

/// Why a server cannot start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A tenant cannot listen.
    #[error("tenant '{tenant}' {cause}")]
    Listen {
        /// Whose.
        tenant: String,
        /// Why.
        cause: ListenError,
    },
    /// A tenant's cache cannot be opened.
    #[error("{}", with_tenant(tenant, cause))]
    Cache {
        /// Whose.
        tenant: String,
        /// Why.
        cause: OpenError,
    },
    /// A tenant's cost table is there and cannot be used.
    #[error("tenant '{tenant}': {cause}")]
    Costs {
        /// Whose.
        tenant: String,
        /// Why.
        cause: CostTableError,
    },
    /// The admin listener cannot listen.
    #[error("admin listener on {address}: {cause}; choose another address or say off")]
    AdminListener {
        /// Where.
        address: SocketAddr,
        /// What the system says.
        cause: io::Error,
    },
    /// Too few file descriptors.
    #[error(
        "the configured connections need {needed} file descriptors, but the limit is {limit}; \
         lower connections or raise the limit (ulimit -n {needed})"
    )]
    Descriptors {
        /// How many are needed.
        needed: u64,
        /// How many can be had.
        limit: u64,
    },
    /// The tenants cannot share so.
    #[error(transparent)]
    Sharing(#[from] SettingsErrors),
    /// A thread or its means of waiting cannot be had.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Why a changed configuration is not brought into effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
    /// It cannot change under way.
    #[error("{key}{} cannot change while the server runs; restart it", whose(tenant))]
    NeedsRestart {
        /// The key.
        key: &'static str,
        /// Whose, if it is a tenant's.
        tenant: Option<String>,
    },
    /// The tenants cannot share so.
    #[error(transparent)]
    Sharing(#[from] SettingsErrors),
    /// A new tenant cannot be had.
    #[error(transparent)]
    Start(#[from] StartError),
    /// A quota is refused.
    #[error("tenant '{tenant}': {cause}")]
    Resize {
        /// Whose.
        tenant: String,
        /// Why.
        cause: ResizeError,
    },
}

/// The cause, with the tenant's name before it unless it tells it itself.
fn with_tenant(tenant: &str, cause: &OpenError) -> String {
    let (name, cause) = (format!("tenant '{tenant}'"), cause.to_string());
    if cause.contains(&name) { cause } else { format!("{name}: {cause}") }
}

fn whose(tenant: &Option<String>) -> String {
    tenant.as_ref().map_or(String::new(), |tenant| format!(" of tenant '{tenant}'"))
}
