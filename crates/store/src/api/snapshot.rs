//! Snapshots: a store as it was at one moment.

use std::sync::Arc;

use entresol_base::thread;
use entresol_base::{Seconds, mutation_site};

use crate::StoreError;
use crate::engine::Core;
use crate::types::Sequence;
use crate::version::view::{Current, View};

/// A store as it was at one moment. While a snapshot is held, versions that were overwritten or
/// deleted since then take space.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Identifies the store that the snapshot was taken of.
    store: Arc<Current>,
    view: Arc<View>,
    at: Sequence,
    /// Time at which it was taken. What had not expired then is there for its readers.
    seconds: Seconds,
}

impl Snapshot {
    /// Takes a snapshot of the store as it is now.
    pub(crate) fn of(core: &Core) -> Snapshot {
        loop {
            // A flush keeps only the newest versions. The sequence number must therefore be as old
            // as the view, which the second look at the current view ensures.
            let view = core.files.current.get();
            thread::step();
            let at = core.published();
            let seconds = core.files.time.now();
            if Arc::ptr_eq(&view, &core.files.current.get())
                || mutation_site!("a snapshot's number is as old as its view")
            {
                debug_assert!(
                    view.newest_flushed() <= at,
                    "a snapshot of write {} has a run up to {}, so it would miss versions",
                    at.0,
                    view.newest_flushed().0,
                );
                return Snapshot { store: core.files.current.clone(), view, at, seconds };
            }
        }
    }

    /// Returns the number of the last write that the snapshot sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.at
    }

    /// Returns the time at which it was taken.
    pub(crate) fn seconds(&self) -> Seconds {
        self.seconds
    }

    /// Checks that the snapshot belongs to this store.
    ///
    /// # Errors
    /// Fails if it belongs to another store.
    pub(crate) fn check_of(&self, core: &Core) -> Result<(), StoreError> {
        match Arc::ptr_eq(&self.store, &core.files.current) {
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
