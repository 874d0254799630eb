//! Record of a failure: after a failed write or sync, the store acknowledges nothing more.

use std::sync::OnceLock;

use crate::StoreError;

/// Message of the first failure, if there was one.
#[derive(Debug, Default)]
pub(crate) struct Failure(OnceLock<String>);

impl Failure {
    /// Refuses writes after a failure.
    ///
    /// # Errors
    /// Fails if a failure was recorded.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(what) => Err(StoreError::Failed { what: what.clone() }),
            None => Ok(()),
        }
    }

    /// Records an error unless there is an earlier one.
    pub(crate) fn set(&self, error: &StoreError) {
        let _ = self.0.set(error.to_string());
    }

    /// Returns true if a failure was recorded.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
