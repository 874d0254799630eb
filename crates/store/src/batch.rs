//! Writes that count together or not at all.

use std::time::Duration;

use crate::StoreError;
use crate::entries::Held;
use crate::entry::{Expiry, KvsId, Sequence};
use crate::inner::Inner;
use crate::kvs::Kvs;
use crate::log::record::{Draft, Kind};
use crate::options::{GROUP_BYTES_MAX, check_sizes};

/// Writes to one or several [`Kvs`] of a store, for [`Kvdb::write`](crate::Kvdb::write). Later ones
/// of the same key win.
#[derive(Debug, Clone, Default)]
pub struct Batch {
    writes: Vec<Write>,
}

#[derive(Debug, Clone)]
struct Write {
    kvs: KvsId,
    kind: Kind,
    expiry: Expiry,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Batch {
    /// A batch without writes.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// If the key or the value cannot be kept.
    pub fn put(&mut self, kvs: &Kvs, key: &[u8], value: &[u8]) -> Result<&mut Batch, StoreError> {
        self.put_for(kvs, key, value, None)
    }

    /// Gives a key a value for some time; none is as long as the [`Kvs`] says.
    ///
    /// # Errors
    /// If the key or the value cannot be kept.
    pub fn put_for(
        &mut self,
        kvs: &Kvs,
        key: &[u8],
        value: &[u8],
        time: Option<Duration>,
    ) -> Result<&mut Batch, StoreError> {
        kvs.check_there()?;
        check_sizes(key, value)?;
        let expiry = kvs.expiry(time);
        let kind = Draft::put(kvs.id(), key, value, expiry).kind;
        let (key, value) = (key.to_vec(), value.to_vec());
        self.writes.push(Write { kvs: kvs.id(), kind, expiry, key, value });
        Ok(self)
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If the key cannot be kept.
    pub fn delete(&mut self, kvs: &Kvs, key: &[u8]) -> Result<&mut Batch, StoreError> {
        kvs.check_there()?;
        check_sizes(key, &[])?;
        self.push_gone(kvs, Kind::Gone, key);
        Ok(self)
    }

    /// Removes all keys that begin so.
    ///
    /// # Errors
    /// If no key could.
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: &[u8]) -> Result<&mut Batch, StoreError> {
        kvs.check_there()?;
        check_sizes(prefix, &[])?;
        self.push_gone(kvs, Kind::PrefixGone, prefix);
        Ok(self)
    }

    fn push_gone(&mut self, kvs: &Kvs, kind: Kind, key: &[u8]) {
        let (key, value) = (key.to_vec(), Vec::new());
        self.writes.push(Write { kvs: kvs.id(), kind, expiry: Expiry::NEVER, key, value });
    }

    /// How many writes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// The bytes of its keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.writes.iter().map(|write| (write.key.len() + write.value.len()) as u64).sum()
    }

    fn drafts(&self) -> impl Iterator<Item = Draft<'_>> {
        self.writes.iter().map(|write| {
            let Write { kvs, kind, expiry, key, value } = write;
            Draft { kvs: *kvs, kind: *kind, expiry: *expiry, key, value }
        })
    }
}

impl Inner {
    /// Writes a batch.
    ///
    /// # Errors
    /// If it is too large, there is no room, or an earlier write failed.
    pub(crate) fn write_batch(&self, batch: &Batch) -> Result<Sequence, StoreError> {
        let drafts: Vec<Draft<'_>> = batch.drafts().collect();
        if drafts.is_empty() {
            return Ok(self.published());
        }
        let of_prefix = |draft: &Draft<'_>| draft.kind == Kind::PrefixGone;
        let held = match drafts.iter().any(of_prefix) {
            true => self.entries.lock_every(),
            false => self.entries.lock_all(drafts.iter().map(|draft| (draft.kvs, draft.key))),
        };
        self.append(&drafts, held)
    }

    /// Writes drafts whose keys the caller has locked.
    ///
    /// # Errors
    /// If they are too large, there is no room, or an earlier write failed.
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
        let mut was_cached = false;
        let last = log.append(drafts, || was_cached = held.remove(drafts))?;
        if was_cached && let [draft] = drafts {
            held.put(draft, last);
        }
        Ok(last)
    }
}
