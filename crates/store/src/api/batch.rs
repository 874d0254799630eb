//! Batches of writes that take effect together or not at all.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::StoreError;
use crate::api::kvs::Kvs;
use crate::options::{check_prefix, check_sizes};
use crate::types::{KvsId, Sequence};
use crate::version::core::Core;
use crate::wal::record::{Draft, Kind};

/// Writes to one or several [`Kvs`] of a store, for [`Kvdb::write`](crate::Kvdb::write). Of several
/// writes to a key, the last one wins.
#[derive(Clone, Default)]
pub struct Batch {
    /// Store of the first write; all others must belong to it.
    store: Option<Arc<Core>>,
    writes: Vec<Write>,
}

#[derive(Debug, Clone)]
struct Write {
    kvs: KvsId,
    what: What,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// Effect of a write on its key.
#[derive(Debug, Clone, Copy)]
enum What {
    /// Gives the key a value, for so many seconds from when the batch is written, or forever.
    Put(Option<u32>),
    /// Deletes the key, or all keys that begin with it.
    Gone(Kind),
}

impl Batch {
    /// Creates a batch without writes.
    #[must_use]
    pub fn new() -> Batch {
        Batch::default()
    }

    /// Adds a write that gives a key a value.
    ///
    /// # Errors
    /// Fails if the size of the key or the value is not allowed, or if the [`Kvs`] belongs to
    /// another store than the earlier writes.
    pub fn put(&mut self, kvs: &Kvs, key: &[u8], value: &[u8]) -> Result<&mut Batch, StoreError> {
        self.put_for(kvs, key, value, None)
    }

    /// Adds a write that gives a key a value with a time to live, in whole seconds from when the
    /// batch is written. `None` stands for the time to live of the [`Kvs`].
    ///
    /// # Errors
    /// Fails as [`put`](Batch::put) does.
    pub fn put_for(
        &mut self,
        kvs: &Kvs,
        key: &[u8],
        value: &[u8],
        time: Option<Duration>,
    ) -> Result<&mut Batch, StoreError> {
        check_sizes(key, value)?;
        self.push(kvs, What::Put(kvs.seconds(time)), (key, value))
    }

    /// Adds a write that deletes a key.
    ///
    /// # Errors
    /// Fails as [`put`](Batch::put) does.
    pub fn delete(&mut self, kvs: &Kvs, key: &[u8]) -> Result<&mut Batch, StoreError> {
        check_sizes(key, &[])?;
        self.push(kvs, What::Gone(Kind::Gone), (key, &[]))
    }

    /// Adds a write that deletes all keys with a prefix.
    ///
    /// # Errors
    /// Fails as [`put`](Batch::put) does.
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: &[u8]) -> Result<&mut Batch, StoreError> {
        check_prefix(prefix)?;
        self.push(kvs, What::Gone(Kind::RangeDelete), (prefix, &[]))
    }

    fn push(
        &mut self,
        kvs: &Kvs,
        what: What,
        (key, value): (&[u8], &[u8]),
    ) -> Result<&mut Batch, StoreError> {
        kvs.check_there()?;
        let store = self.store.get_or_insert_with(|| kvs.core().clone());
        if !Arc::ptr_eq(kvs.core(), store) {
            return Err(StoreError::OtherStore { what: format!("Kvs '{}'", kvs.name()) });
        }
        let (key, value) = (key.to_vec(), value.to_vec());
        self.writes.push(Write { kvs: kvs.id(), what, key, value });
        Ok(self)
    }

    /// Returns the number of writes in the batch.
    #[must_use]
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns true if the batch has no writes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the bytes of all keys and values.
    pub(crate) fn bytes(&self) -> u64 {
        self.writes.iter().map(|write| (write.key.len() + write.value.len()) as u64).sum()
    }

    fn drafts(&self, core: &Core) -> Vec<Draft<'_>> {
        let drafts = self.writes.iter().map(|Write { kvs, what, key, value }| match what {
            What::Put(seconds) => Draft::put(*kvs, key, value, core.expiry(*seconds)),
            What::Gone(kind) => Draft::gone(*kvs, *kind, key),
        });
        drafts.collect()
    }
}

impl fmt::Debug for Batch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Batch").field("writes", &self.writes).finish_non_exhaustive()
    }
}

impl Core {
    /// Writes a batch.
    ///
    /// # Errors
    /// Fails if the batch is too large or belongs to another store, if there is no room, or if an
    /// earlier write failed.
    pub(crate) fn write_batch(&self, batch: &Batch) -> Result<Sequence, StoreError> {
        let Some(store) = &batch.store else { return Ok(self.published()) };
        if !std::ptr::eq(Arc::as_ptr(store), self) {
            return Err(StoreError::OtherStore { what: "the batch".to_owned() });
        }
        let drafts = batch.drafts(self);
        let of_prefix = |draft: &Draft<'_>| draft.kind == Kind::RangeDelete;
        let held = match drafts.iter().any(of_prefix) {
            true => self.entries.lock_every(),
            false => self.entries.lock_all(drafts.iter().map(|draft| (draft.kvs, draft.key))),
        };
        self.append(&drafts, held)
    }
}
