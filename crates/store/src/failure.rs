//! After a write or a sync has failed nothing is acknowledged any more.

use std::sync::OnceLock;

use crate::StoreError;

/// What failed first, if anything did.
#[derive(Debug, Default)]
pub(crate) struct Failure(OnceLock<String>);

impl Failure {
    /// Refuses whatever would write.
    ///
    /// # Errors
    /// If something has failed.
    pub(crate) fn check(&self) -> Result<(), StoreError> {
        match self.0.get() {
            Some(what) => Err(StoreError::Failed { what: what.clone() }),
            None => Ok(()),
        }
    }

    /// Says what failed.
    pub(crate) fn set(&self, error: &StoreError) {
        let _ = self.0.set(error.to_string());
    }

    /// Whether anything has.
    pub(crate) fn is_set(&self) -> bool {
        self.0.get().is_some()
    }
}
