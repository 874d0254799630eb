//! Budget of file descriptors: counted at the start, before a connection could fail for lack of
//! one.

use entresol_service::config::Settings;

use crate::StartError;

/// Raises the process's limit if it is too low for the configured connections.
pub(crate) fn provide(settings: &Settings) -> Result<(), StartError> {
    let needed = settings.descriptors();
    match entresol_media::machine::raise_descriptor_limit(needed) {
        Ok(limit) if limit >= needed => Ok(()),
        Ok(limit) => Err(StartError::Descriptors { needed, limit }),
        Err(error) => Err(StartError::Thread(error)),
    }
}
