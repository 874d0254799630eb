//! Signals of the system to the process: stop, or reload the configuration.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use entresol_service::config::Settings;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::server::Running;

/// Signals that arrive from now on, for [`serve`]. Until this exists, they end the process.
pub struct Caught(Signals);

/// Catches signals. A server does so before anything else: one that comes while caches are restored
/// must not lose them, and is obeyed once the start is complete.
///
/// # Errors
/// When signals are not available.
pub fn catch() -> std::io::Result<Caught> {
    let signals = Signals::new([SIGTERM, SIGINT, SIGUSR1, SIGHUP])?;
    // Without it, a write beyond the process's file size limit ends it instead of failing.
    signal_hook::flag::register(SIGXFSZ, Arc::new(AtomicBool::new(false)))?;
    Ok(Caught(signals))
}

/// Serves until SIGTERM, SIGINT or SIGUSR1, memcached's graceful stop. On SIGHUP, asks `read` for
/// the settings and reloads. Ends in order, too, once an event loop has ended.
///
/// # Errors
/// When a cache could not be closed cleanly, or an event loop ended.
pub fn serve(
    caught: Caught,
    mut running: Running,
    mut read: impl FnMut() -> Result<Settings, String>,
) -> Result<(), ServeError> {
    let Caught(mut signals) = caught;
    let handle = signals.handle();
    running.registry.on_failure(move || handle.close());
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
    let is_healthy = running.is_healthy();
    running.stop()?;
    tracing::info!("stopped");
    if is_healthy { Ok(()) } else { Err(ServeError::Loop) }
}

/// Error that ended serving.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// An event loop ended; everything else was stopped in order.
    #[error("an event loop has ended; the log says why")]
    Loop,
    /// A cache could not be closed cleanly.
    #[error(transparent)]
    Close(#[from] entresol_cache::CloseError),
}
