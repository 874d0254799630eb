//! Snapshots: a store as it was at one moment.

use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_base::thread;

use crate::StoreError;
use crate::types::Sequence;
use crate::version::core::Core;
use crate::version::view::{Current, View};

/// A store as it was at one moment. While a snapshot is held, versions that were overwritten or
/// deleted since then take space.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Identifies the store that the snapshot was taken of.
    store: Arc<Current>,
    view: Arc<View>,
    at: Sequence,
}

impl Snapshot {
    /// Takes a snapshot of the store as it is now.
    pub(crate) fn of(core: &Core) -> Snapshot {
        loop {
            // A flush keeps only the newest versions. The sequence number must therefore be as old
            // as the view, which the second look at the current view ensures.
            let view = core.current.get();
            thread::step();
            let at = core.published();
            if Arc::ptr_eq(&view, &core.current.get())
                || mutation_site!("a snapshot's number is as old as its view")
            {
                return Snapshot { store: core.current.clone(), view, at };
            }
        }
    }

    /// Returns the number of the last write that the snapshot sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.at
    }

    /// Checks that the snapshot belongs to this store.
    ///
    /// # Errors
    /// Fails if it belongs to another store.
    pub(crate) fn check_of(&self, core: &Core) -> Result<(), StoreError> {
        match Arc::ptr_eq(&self.store, &core.current) {
            true => {
                let published = core.published();
                debug_assert!(
                    self.at <= published,
                    "a snapshot has write {}, and {} is the last that counts",
                    self.at.0,
                    published.0,
                );
                Ok(())
            }
            false => Err(StoreError::OtherStore { what: "the snapshot".to_owned() }),
        }
    }

    pub(crate) fn parts(&self) -> (&Arc<View>, Sequence) {
        (&self.view, self.at)
    }
}
