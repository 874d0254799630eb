//! Transactions: reads of one time, and writes that count together, unless somebody else has
//! changed one of their keys since.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_base::mutation_site;
use entresol_base::sync::Mutex;

use crate::api::cursor::{Cursor, CursorOptions};
use crate::api::kvdb::Kvdb;
use crate::api::kvs::Kvs;
use crate::options::{GROUP_BYTES_MAX, check_prefix, check_sizes};
use crate::types::{Expiry, KvsId, Sequence};
use crate::version::core::Core;
use crate::wal::record::{Draft, Kind};
use crate::{Snapshot, StoreError};
use own::{OwnKvs, Said};

pub(crate) use own::{Own, OwnWrite};

mod changes;
mod own;

/// How a transaction is begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOptions {
    /// After so long it can only be given up: what it sees takes space as long as it may be used.
    pub age_max: Duration,
    /// The most bytes that its writes may take in memory.
    pub bytes_max: u64,
}

impl Default for TransactionOptions {
    fn default() -> TransactionOptions {
        TransactionOptions { age_max: Duration::from_secs(300), bytes_max: 64 << 20 }
    }
}

/// Reads and writes of one or several [`Kvs`] of a store that happen at once or not at all.
///
/// **Snapshot isolation.** It sees the store as it was when it began, and its own writes. It is
/// committed only if none of the keys that it has written was changed by anybody since it began:
/// of several transactions that write one key, the first that is committed wins, and the others get
/// [`StoreError::Conflict`]. Plain writes and batches count as others, too, and never wait.
///
/// What it has only *read* may have changed when it is committed. So two transactions that each
/// read what the other one writes may both be committed, which no order of the two explains (write
/// skew). Where that matters, write what was read as well.
///
/// Who removes all keys with a prefix has written each key that begins so, whether or not it is
/// there: whatever anybody does to one of them since is a conflict.
///
/// In the log its writes are one group: after a crash all of them are there or none. Dropped
/// without a commit, it has done nothing.
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
///         // Somebody else was faster: look again.
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
    /// When it can only be given up.
    end: Nanos,
    number: u64,
}

/// The transactions that there are: what they depend on is not forgotten.
#[derive(Debug, Default)]
pub(crate) struct Transactions(Mutex<Open>);

#[derive(Debug, Default)]
struct Open {
    next: u64,
    /// By number: which writes it sees, and when it can only be given up.
    all: BTreeMap<u64, (Sequence, Nanos)>,
}

impl Transactions {
    /// Notes one, with a snapshot that is taken when it is noted already.
    fn begin(&self, core: &Core, end: Nanos) -> (u64, Snapshot) {
        let mut open = self.0.lock();
        let number = open.next;
        open.next += 1;
        let snapshot = Snapshot::of(core);
        open.all.insert(number, (snapshot.sequence(), end));
        (number, snapshot)
    }

    fn end(&self, number: u64) {
        self.0.lock().all.remove(&number);
    }

    /// All changes after this write must still be told from no change at all.
    pub(crate) fn horizon(&self, now: Nanos) -> Sequence {
        let open = self.0.lock();
        let live = open.all.values().filter(|(_, end)| *end > now);
        live.map(|(at, _)| *at).min().unwrap_or(Sequence::MAX)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().all.len() as u64
    }
}

impl Kvdb {
    /// Begins a transaction.
    ///
    /// # Errors
    /// If the store is closed, or was opened to be read.
    pub fn transaction(&self, options: TransactionOptions) -> Result<Transaction, StoreError> {
        let core = self.core();
        core.log()?;
        let end = core.clock.now().after(options.age_max);
        let (number, snapshot) = core.transactions.begin(core, end);
        let bytes_max = options.bytes_max.min(GROUP_BYTES_MAX);
        let (core, own) = (core.clone(), BTreeMap::new());
        Ok(Transaction { core, snapshot, own, bytes: 0, bytes_max, end, number })
    }
}

impl Transaction {
    /// The last write of others that it sees.
    #[must_use]
    pub fn sequence(&self) -> Sequence {
        self.snapshot.sequence()
    }

    /// Gives a key a value.
    ///
    /// # Errors
    /// If the key or the value cannot be kept, or the transaction has become too large or too old.
    pub fn put(&mut self, kvs: &Kvs, key: &[u8], value: &[u8]) -> Result<(), StoreError> {
        self.put_for(kvs, key, value, None)
    }

    /// Gives a key a value for some time; none is as long as the [`Kvs`] says.
    ///
    /// # Errors
    /// As [`put`](Transaction::put).
    pub fn put_for(
        &mut self,
        kvs: &Kvs,
        key: &[u8],
        value: &[u8],
        time: Option<Duration>,
    ) -> Result<(), StoreError> {
        check_sizes(key, value)?;
        let expiry = kvs.expiry(time);
        self.write(kvs, key, OwnWrite { value: Some(value.to_vec()), expiry })
    }

    /// Removes a key.
    ///
    /// # Errors
    /// If the key cannot be kept, or the transaction has become too large or too old.
    pub fn delete(&mut self, kvs: &Kvs, key: &[u8]) -> Result<(), StoreError> {
        check_sizes(key, &[])?;
        self.write(kvs, key, OwnWrite { value: None, expiry: Expiry::NEVER })
    }

    /// Removes all keys that begin so, those that it has put before as well.
    ///
    /// # Errors
    /// If no key could, or the transaction has become too large or too old.
    pub fn delete_prefix(&mut self, kvs: &Kvs, prefix: &[u8]) -> Result<(), StoreError> {
        check_prefix(prefix)?;
        self.grow(kvs, |own| own.growth_by_prefix(prefix))?.delete_prefix(prefix);
        Ok(())
    }

    fn write(&mut self, kvs: &Kvs, key: &[u8], write: OwnWrite) -> Result<(), StoreError> {
        self.grow(kvs, |own| own.growth(key, &write))?.write(key, write);
        Ok(())
    }

    /// What it has written of a `Kvs`, which is about to grow by so many bytes.
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

    /// The value that a key has in it.
    ///
    /// # Errors
    /// If a disk fails, what is read is damaged, or the transaction has become too old.
    pub fn get(&self, kvs: &Kvs, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.multi_get(kvs, &[key])?.pop().flatten())
    }

    /// The values that several keys have in it, in their order. Those that lie on disks are read
    /// together.
    ///
    /// # Errors
    /// As [`get`](Transaction::get).
    pub fn multi_get(&self, kvs: &Kvs, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check(kvs)?;
        let own = self.own.get(&kvs.id());
        let said: Vec<_> = keys.iter().map(|key| own.and_then(|own| own.said_of(key))).collect();
        let others = keys.iter().zip(&said).filter(|(_, said)| said.is_none());
        let others: Vec<&[u8]> = others.map(|(key, _)| *key).collect();
        let mut others = kvs.multi_get_at(&self.snapshot, &others)?.into_iter();
        let value_of = |said| match said {
            Some(Said::Write(write)) if !write.is_over(&self.core) => write.value.clone(),
            Some(_) => None,
            None => others.next().flatten(),
        };
        Ok(said.into_iter().map(value_of).collect())
    }

    /// Walks over the keys as they are in it now: what it writes later, the cursor does not show.
    ///
    /// # Errors
    /// If the store is closed, or the transaction has become too old.
    pub fn cursor(&self, kvs: &Kvs, options: CursorOptions) -> Result<Cursor, StoreError> {
        self.check(kvs)?;
        kvs.check_there()?;
        let own = self.own.get(&kvs.id());
        let own = own.map(|own| (own.writes(), own.range_deletes())).unwrap_or_default();
        Ok(Cursor::with_own(kvs, &self.snapshot, options, Some(own)))
    }

    /// Lets its writes count, all at once; answers the number of the last. They survive crashes as
    /// others do.
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if somebody else has changed one of its keys since it began;
    /// [`StoreError::Aged`] if it has become too old; else as [`Kvdb::write`]. Unless a write has
    /// failed, nothing has changed then.
    pub fn commit(self) -> Result<Sequence, StoreError> {
        let drafts: Vec<Draft<'_>> =
            self.own.iter().flat_map(|(kvs, own)| own.drafts(*kvs)).collect();
        let core = &self.core;
        core.log()?;
        if drafts.is_empty() {
            return Ok(self.sequence());
        }
        let looked = self.look_at_prefixes(&drafts)?;
        let is_prefix = |draft: &Draft<'_>| draft.kind == Kind::RangeDelete;
        let keys = drafts.iter().map(|draft| (draft.kvs, draft.key));
        let held = match drafts.iter().any(is_prefix) {
            true if mutation_site!("a commit that removes a prefix locks all keys") => {
                core.entries.lock_all(keys)
            }
            true => core.entries.lock_every(),
            false if mutation_site!("a commit locks its keys") => {
                core.entries.lock_all(std::iter::empty())
            }
            false => core.entries.lock_all(keys),
        };
        let now = Snapshot::of(core);
        // After the view: what was forgotten in it was so while this was young enough to be asked.
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

    /// Looks for changes of keys with prefixes that are to be removed while nobody has to wait for
    /// it; answers up to which write it has done so.
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

    /// The same, and makes it durable: it survives the machine's crash as well.
    ///
    /// # Errors
    /// As [`commit`](Transaction::commit). If the disk fails while it is made durable, it counts
    /// until the store is closed, and may be gone then.
    pub fn commit_durably(self) -> Result<Sequence, StoreError> {
        let core = self.core.clone();
        let last = self.commit()?;
        core.sync()?;
        Ok(last)
    }

    /// Refuses what it cannot be used for.
    fn check(&self, kvs: &Kvs) -> Result<(), StoreError> {
        if !Arc::ptr_eq(kvs.core(), &self.core) {
            return Err(StoreError::OtherStore { what: format!("Kvs '{}'", kvs.name()) });
        }
        self.check_age()
    }

    fn check_age(&self) -> Result<(), StoreError> {
        if self.core.clock.now() >= self.end { Err(StoreError::Aged) } else { Ok(()) }
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
