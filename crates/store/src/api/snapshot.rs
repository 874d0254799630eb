//! Snapshots: everything as it was at one time.

use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_base::thread;

use crate::StoreError;
use crate::types::Sequence;
use crate::version::core::Core;
use crate::version::view::{Current, View};

/// Everything in a store as it was at one time. As long as it is held, what has been overwritten or
/// removed since then takes space.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// Whose it is.
    store: Arc<Current>,
    view: Arc<View>,
    at: Sequence,
}

impl Snapshot {
    /// A snapshot of now.
    pub(crate) fn of(core: &Core) -> Snapshot {
        loop {
            // What is flushed keeps the newest versions only: the number must be as old as the
            // view.
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

    /// The last write that it has.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.at
    }

    /// # Errors
    /// If it is another store's.
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
