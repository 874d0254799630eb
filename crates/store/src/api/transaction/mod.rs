//! Transactions: reads of one moment, and writes that take effect together, unless another writer
//! has changed one of their keys since.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_base::mutation_site;

use crate::api::cursor::{Cursor, CursorOptions};
use crate::api::kvs::Kvs;
use crate::engine::Core;
use crate::memtable::own::{OwnAnswer, OwnKvs, OwnWrite};
use crate::options::{GROUP_BYTES_MAX, check_prefix, check_sizes};
use crate::segment::record::{Draft, Kind};
use crate::types::{Expiry, KvsId, Sequence};
use crate::{Snapshot, StoreError};

mod changes;

/// Options with which a transaction begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    /// Age after which a transaction can only be dropped. The versions that it sees take space for
    /// as long as it may be used.
    pub age_max: Duration,
    /// Most bytes that its writes may take in memory.
    pub bytes_max: u64,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions { age_max: Duration::from_secs(300), bytes_max: 64 << 20 }
    }
}

/// Reads and writes of one or several [`Kvs`] of a store that happen at once or not at all.
///
/// **Snapshot isolation.** A transaction sees the store as it was when it began, and its own
/// writes. It is committed only if no other writer has changed a key that it writes since it began.
/// Of several transactions that write one key, the first to commit wins, and the others get
/// [`StoreError::Conflict`]. Plain writes and batches count as other writers too, and never wait.
///
/// Keys that a transaction has only *read* may have changed when it is committed. Two transactions
/// that each read what the other one writes may therefore both be committed, which no order of the
/// two explains (write skew). Where that matters, write the keys that were read as well.
///
/// A range delete writes each key with its prefix, whether or not the key exists. Any change to one
/// of them by another writer is a conflict.
///
/// In the log the writes are one group: after a crash either all or none of them are there. A
/// transaction that is dropped without a commit has no effect.
///
/// ```
/// # fn main() -> Result<(), entresol_store::StoreError> {
/// # let scratch = tempfile::tempdir().expect("a directory");
/// # let path = scratch.path().join("store");
/// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, StoreError, TransactionOptions};
///
/// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
/// let from = store.create_kvs("from", KvsOptions::default())?;
/// let to = store.create_kvs("to", KvsOptions::default())?;
/// from.put(b"coin", b"1")?;
/// loop {
///     let mut transaction = store.transaction(TransactionOptions::default())?;
///     let Some(coin) = transaction.get(&from, b"coin")? else { break };
///     transaction.delete(&from, b"coin")?;
///     transaction.put(&to, b"coin", &coin)?;
///     match transaction.commit() {
///         // Another writer was faster: try again.
///         Err(StoreError::Conflict) => {}
///         done => drop(done?),
///     }
/// }
/// assert_eq!(to.get(b"coin")?, Some(b"1".to_vec()));
/// # Ok(())
/// # }
/// ```
pub struct Transaction {
    core: Arc<Core>,
    snapshot: Snapshot,
    own: BTreeMap<KvsId, OwnKvs>,
    bytes: u64,
    bytes_max: u64,
    /// Time from which it can only be dropped.
    end: Nanos,
    number: u64,
}

impl Transaction {
    /// Begins a transaction in a store.
    ///
    /// # Errors
    /// Fails if the store is closed, or was opened to be read only.
    pub(crate) fn begin(
        core: &Arc<Core>,
        options: TransactionOptions,
    ) -> Result<Transaction, StoreError> {
        core.log()?;
        let end = core.files.time.instant().after(options.age_max);
        let (number, snapshot) = core.transactions.begin(end, || {
            let snapshot = Snapshot::of(core);
            let at = snapshot.sequence();
            (snapshot, at)
        });
        let bytes_max = options.bytes_max.min(GROUP_BYTES_MAX);
        let (core, own) = (core.clone(), BTreeMap::new());
        Ok(Transaction { core, snapshot, own, bytes: 0, bytes_max, end, number })
    }

    /// Returns the last write of others that the transaction sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.snapshot.sequence()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// Fails if the size of the key or the value is not allowed, or if the transaction has become
    /// too large or too old.
    pub fn put(&mut self, kvs: &Kvs, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.put_for(kvs, key, value, None)
    }

    /// Gives a key a value with a time to live, in whole seconds from the commit. `None` stands for
    /// the time to live of the [`Kvs`].
    ///
    /// # Errors
    /// Fails as [`put`](Transaction::put) does.
    pub fn put_for(
        &mut self,
        kvs: &Kvs,
        key: &[u8],
        value: &[u8],
        time: Option<Duration>,
    ) -> Result<(), StoreError> {
        check_sizes(key, value)?;
        let (value, seconds) = (Some(value.to_vec()), kvs.seconds(time));
        self.write(kvs, key, OwnWrite { value, seconds, expiry: kvs.expiry(time) })
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// Fails if the size of the key is not allowed, or if the transaction has become too large or
    /// too old.
    pub fn delete(&mut self, kvs: &Kvs, key: &[u8]) -> Result<(), StoreError> {
        check_sizes(key, &[])?;
        self.write(kvs, key, OwnWrite { value: None, seconds: None, expiry: Expiry::NEVER })
    }

    /// Deletes all keys with a prefix, including those that this transaction has put before.
    ///
    /// # Errors
    /// Fails if the size of the prefix is not allowed, or if the transaction has become too large
    /// or too old.
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: &[u8]) -> Result<(), StoreError> {
        check_prefix(prefix)?;
        self.grow(kvs, |own| own.growth_by_prefix(prefix))?.delete_prefix(prefix);
        Ok(())
    }

    fn write(&mut self, kvs: &Kvs, key: &[u8], write: OwnWrite) -> Result<(), StoreError> {
        self.grow(kvs, |own| own.growth(key, &write))?.write(key, write);
        Ok(())
    }

    /// Accounts for a write and returns the transaction's writes to its `Kvs`. `growth` computes
    /// the bytes by which they grow.
    fn grow(
        &mut self,
        kvs: &Kvs,
        growth: impl FnOnce(&OwnKvs) -> i64,
    ) -> Result<&mut OwnKvs, StoreError> {
        self.check(kvs)?;
        kvs.check_there()?;
        let own = self.own.entry(kvs.id()).or_default();
        let growth = growth(own);
        let bytes = self.bytes.saturating_add_signed(growth);
        if growth > 0 && bytes > self.bytes_max {
            return Err(StoreError::Group { bytes, most: self.bytes_max });
        }
        self.bytes = bytes;
        Ok(own)
    }

    /// Returns the value of a key as the transaction sees it.
    ///
    /// # Errors
    /// Fails if a disk fails, if the data read are damaged, or if the transaction has become too
    /// old.
    pub fn get(&self, kvs: &Kvs, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.multi_get(kvs, &[key])?.pop().flatten())
    }

    /// Returns the values of several keys as the transaction sees them, in the order of the keys.
    /// Values on disks are read concurrently.
    ///
    /// # Errors
    /// Fails as [`get`](Transaction::get) does.
    pub fn multi_get(&self, kvs: &Kvs, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check(kvs)?;
        let own = self.own.get(&kvs.id());
        let said: Vec<_> = keys.iter().map(|key| own.and_then(|own| own.said_of(key))).collect();
        let others = keys.iter().zip(&said).filter(|(_, said)| said.is_none());
        let others: Vec<&[u8]> = others.map(|(key, _)| *key).collect();
        let mut others = kvs.multi_get_at(&self.snapshot, &others)?.into_iter();
        let value_of = |said| match said {
            Some(OwnAnswer::Write(write)) if !write.is_over(self.snapshot.seconds()) => {
                write.value.clone()
            }
            Some(_) => None,
            None => others.next().flatten(),
        };
        Ok(said.into_iter().map(value_of).collect())
    }

    /// Creates a cursor over the keys as the transaction sees them now. The cursor does not show
    /// later writes of the transaction.
    ///
    /// # Errors
    /// Fails if the store is closed, or if the transaction has become too old.
    pub fn cursor(&self, kvs: &Kvs, options: CursorOptions) -> Result<Cursor, StoreError> {
        self.check(kvs)?;
        kvs.check_there()?;
        let own = self.own.get(&kvs.id());
        let own = own.map(|own| (own.writes(), own.range_deletes())).unwrap_or_default();
        let mut cursor = Cursor::with_own(kvs, &self.snapshot, options, Some(own));
        cursor.may_note_dead_keys(kvs.announce());
        Ok(cursor)
    }

    /// Makes the writes of the transaction visible, all at once. Returns the number of the last
    /// one. They survive crashes as other writes do.
    ///
    /// # Errors
    /// Fails with [`StoreError::Conflict`] if another writer has changed one of the keys since the
    /// transaction began, with [`StoreError::Aged`] if it has become too old, and otherwise as
    /// [`Kvdb::write`](crate::Kvdb::write) does. Unless a write to the log failed, nothing has
    /// changed then.
    pub fn commit(self) -> Result<Sequence, StoreError> {
        let core = &self.core;
        let expiry = |seconds| core.files.time.expiry(seconds);
        let drafts: Vec<Draft<'_>> =
            self.own.iter().flat_map(|(kvs, own)| own.drafts(*kvs, expiry)).collect();
        core.log()?;
        if drafts.is_empty() {
            return Ok(self.sequence());
        }
        let looked = self.look_at_prefixes(&drafts)?;
        let is_prefix = |draft: &Draft<'_>| draft.kind == Kind::RangeDelete;
        let keys = drafts.iter().map(|draft| (draft.kvs, draft.key));
        let held = match drafts.iter().any(is_prefix) {
            true if mutation_site!("a commit that removes a prefix locks all keys") => {
                core.caches.entries.lock_all(keys)
            }
            true => core.caches.entries.lock_every(),
            false if mutation_site!("a commit locks its keys") => {
                core.caches.entries.lock_all(std::iter::empty())
            }
            false => core.caches.entries.lock_all(keys),
        };
        let now = Snapshot::of(core);
        // The age is checked after the view is taken. Compactions forget changes only of
        // transactions that are too old, so this view has all that a transaction needs that is not
        // too old now.
        self.check_age()?;
        let (view, last) = now.parts();
        for draft in &drafts {
            let since = if draft.kind == Kind::RangeDelete { looked } else { self.sequence() };
            if view.was_changed(draft, since, last)?
                && !mutation_site!("a commit fails if another writer has changed one of its keys")
            {
                return Err(StoreError::Conflict);
            }
        }
        core.append(&drafts, held)
    }

    /// Checks the prefixes that are to be deleted for conflicts, before any locks make other
    /// writers wait. Returns the write up to which it has looked.
    fn look_at_prefixes(&self, drafts: &[Draft<'_>]) -> Result<Sequence, StoreError> {
        let mut prefixes = drafts.iter().filter(|draft| draft.kind == Kind::RangeDelete).peekable();
        if prefixes.peek().is_none() {
            return Ok(self.sequence());
        }
        let now = Snapshot::of(&self.core);
        let (view, last) = now.parts();
        for draft in prefixes {
            if view.was_changed(draft, self.sequence(), last)? {
                return Err(StoreError::Conflict);
            }
        }
        Ok(last)
    }

    /// Commits the transaction and makes it durable, so that it survives a crash of the machine.
    ///
    /// # Errors
    /// Fails as [`commit`](Transaction::commit) does. If the disk fails while the writes are made
    /// durable, they are visible until the store is closed, and may be lost then.
    pub fn commit_durably(self) -> Result<Sequence, StoreError> {
        let core = self.core.clone();
        let last = self.commit()?;
        core.sync_written()?;
        Ok(last)
    }

    /// Checks that the `Kvs` belongs to this store, and that the transaction is not too old.
    fn check(&self, kvs: &Kvs) -> Result<(), StoreError> {
        if !Arc::ptr_eq(kvs.core(), &self.core) {
            return Err(StoreError::OtherStore { what: format!("Kvs '{}'", kvs.name()) });
        }
        self.check_age()
    }

    fn check_age(&self) -> Result<(), StoreError> {
        if self.core.files.time.instant() >= self.end { Err(StoreError::Aged) } else { Ok(()) }
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        self.core.transactions.end(self.number);
    }
}

impl fmt::Debug for Transaction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.sequence().0;
        f.debug_struct("Transaction").field("at", &at).field("bytes", &self.bytes).finish()
    }
}
