//! Signals of the system to the process: stop, or reload the configuration.

use entresol_service::config::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1};
use signal_hook::iterator::Signals;

use crate::server::Running;

/// Serves until SIGTERM, SIGINT or SIGUSR1, memcached's graceful stop. On SIGHUP, asks `read` for
/// the settings and reloads.
///
/// # Errors
/// When signals are not available, or a cache could not be closed cleanly.
pub fn serve(
    mut running: Running,
    mut read: impl FnMut() -> Result<Settings, String>,
) -> Result<(), ServeError> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
    for signal in signals.forever() {
        if signal != SIGHUP {
            tracing::info!(signal, "stopping");
            break;
        }
        let reloaded =
            read().and_then(|settings| running.reload(settings).map_err(|error| error.to_string()));
        if let Err(reason) = reloaded {
            for line in reason.lines() {
                tracing::error!("not reloaded, the old configuration remains in force: {line}");
            }
        }
    }
    running.stop()?;
    tracing::info!("stopped");
    Ok(())
}

/// Error that ended serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// Signals are not available.
    #[error("cannot listen to signals: {0}")]
    Signals(#[from] std::io::Error),
    /// A cache could not be closed cleanly.
    #[error(transparent)]
    Close(#[from] entresol_cache::CloseError),
}
