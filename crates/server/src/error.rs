//! Errors of starting and reloading a server.

use std::io;
use std::net::SocketAddr;

use entresol_cache::{OpenError, ResizeError};
use entresol_media::cost::CostTableError;
use entresol_sharing::SettingsErrors;

use crate::listener::ListenError;

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A tenant cannot listen.
    #[error("tenant '{tenant}' {cause}")]
    Listen {
        /// Name of the tenant.
        tenant: String,
        /// Error of its listener.
        cause: ListenError,
    },
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
    /// The admin listener cannot listen.
    #[error("admin listener on {address}: {cause}; choose another address, or off")]
    AdminListener {
        /// Address of the listener.
        address: SocketAddr,
        /// Error of the system.
        cause: io::Error,
    },
    /// The process has too few file descriptors.
    #[error(
        "the configured connections need {needed} file descriptors, but the limit is {limit}; \
         lower connections or raise the limit (ulimit -n {needed})"
    )]
    Descriptors {
        /// Descriptors needed.
        needed: u64,
        /// Descriptors available.
        limit: u64,
    },
    /// The sharing settings are refused.
    #[error(transparent)]
    Sharing(#[from] SettingsErrors),
    /// A thread, or what it waits with, cannot be created.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

/// Error of bringing a changed configuration into effect.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReloadError {
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
    /// A new tenant cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
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
