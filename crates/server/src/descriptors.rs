//! Budget of file descriptors: counted at the start, before a connection could fail for lack of
//! one.

use entresol_service::config::Settings;

use crate::StartError;

/// Descriptors of the process besides connections: standard streams, logs, the admin listener and
/// its clients.
const RESERVE: u64 = 64;
/// Descriptors of a loop: epoll, waker and events of block files.
const PER_LOOP: u64 = 8;
/// Descriptors of a tenant: medium, journal, lock and ring.
const PER_TENANT: u64 = 16;

/// Maximum number of descriptors that a server with these settings needs.
fn needed(settings: &Settings) -> u64 {
    let threads = settings.threads as u64;
    let tenants = settings.tenants.iter().map(|tenant| {
        let listeners = tenant.listen.len() as u64 + u64::from(tenant.unix_socket.is_some());
        tenant.connections as u64 + threads * listeners + PER_TENANT
    });
    RESERVE + threads * PER_LOOP + tenants.sum::<u64>()
}

/// Raises the process's limit if it is too low for the configured connections.
pub(crate) fn provide(settings: &Settings) -> Result<(), StartError> {
    let needed = needed(settings);
    match entresol_media::machine::raise_descriptor_limit(needed) {
        Ok(limit) if limit >= needed => Ok(()),
        Ok(limit) => Err(StartError::Descriptors { needed, limit }),
        Err(error) => Err(StartError::Thread(error)),
    }
}
