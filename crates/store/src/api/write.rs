//! The path of every write: room and back-pressure are checked, then the write-ahead log takes the
//! records and enters them into the memtables, then the row cache learns of them.

use crate::StoreError;
use crate::cache::row::Held;
use crate::options::GROUP_BYTES_MAX;
use crate::types::Sequence;
use crate::version::core::Core;
use crate::wal::record::{Draft, Kind};

impl Core {
    /// Writes drafts whose keys the caller has locked. Returns the number of the last write.
    ///
    /// # Errors
    /// Fails if the drafts are too large, if there is no room, or if an earlier write failed.
    pub(crate) fn append(
        &self,
        drafts: &[Draft<'_>],
        mut held: Held<'_>,
    ) -> Result<Sequence, StoreError> {
        let log = self.log()?;
        if let Some(draft) = drafts.iter().find(|draft| self.dropped.has(draft.kvs)) {
            return Err(StoreError::KvsDropped { name: format!("number {}", draft.kvs.0) });
        }
        let is_put = |draft: &Draft<'_>| matches!(draft.kind, Kind::Put | Kind::PutUntil);
        let takes_room = |draft: &&Draft<'_>| is_put(draft) && self.full.has(draft.kvs);
        if let Some(draft) = drafts.iter().find(takes_room) {
            self.check_not_full(draft.kvs)?;
        }
        let bytes = drafts.iter().map(Draft::bytes).sum();
        if bytes > GROUP_BYTES_MAX {
            return Err(StoreError::Group { bytes, most: GROUP_BYTES_MAX });
        }
        self.slow_down(bytes)?;
        let done = log.append(drafts, || held.remove(drafts));
        let last = done.map_err(|error| self.refused(error))?;
        if let [draft] = drafts {
            held.put(draft, last);
        }
        Ok(last)
    }
}
