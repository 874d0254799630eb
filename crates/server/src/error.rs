//! Errors of starting and reloading a server.

use std::io;
use std::net::SocketAddr;

use entresol_service::{ChangeError, TenantError};
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
    #[error(transparent)]
    Tenant(#[from] TenantError),
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
    /// A change is refused.
    #[error(transparent)]
    Change(#[from] ChangeError),
    /// A new tenant cannot be started.
    #[error(transparent)]
    Start(#[from] StartError),
}
