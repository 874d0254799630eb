//! The handle of a `Kvs`, an ordered map of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::mutation_site;

use crate::api::cursor::{Cursor, CursorOptions};
use crate::api::multi_get::multi_get;
use crate::cache::row;
use crate::engine::Core;
use crate::engine::dead_keys::Look;
use crate::manifest::KvsState;
use crate::options::{check_prefix, check_sizes, whole_seconds};
use crate::segment::record::{Draft, Kind};
use crate::types::{Expiry, KvsId, Sequence};
use crate::{Snapshot, StoreError};

/// A named ordered map from keys to values, in a [`Kvdb`](crate::Kvdb). Clones refer to the same
/// map. Once the `Kvs` is dropped or the store closed, every call is refused.
#[derive(Clone)]
pub struct Kvs {
    core: Arc<Core>,
    id: KvsId,
    name: Arc<str>,
    /// Time to live of its keys in seconds; 0 is forever.
    time_to_live: u32,
}

/// Keys that a prefix matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// The prefix matches no key.
    None,
    /// One key, and its value.
    One(Vec<u8>, Vec<u8>),
    /// Several keys: the first one, and its value.
    Many(Vec<u8>, Vec<u8>),
}

impl Kvs {
    pub(crate) fn new(core: Arc<Core>, state: &KvsState) -> Kvs {
        let (id, name) = (KvsId(state.id), Arc::from(state.name.as_str()));
        Kvs { core, id, name, time_to_live: state.time_to_live_s }
    }

    /// Returns the name of the `Kvs`.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn id(&self) -> KvsId {
        self.id
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Checks that the `Kvs` can still be used.
    ///
    /// # Errors
    /// Fails if the store is closed or the `Kvs` was dropped.
    pub(crate) fn check_there(&self) -> Result<(), StoreError> {
        self.core.check_open()?;
        match self.core.files.dropped.has(self.id) {
            true => Err(StoreError::KvsDropped { name: self.name.to_string() }),
            false => Ok(()),
        }
    }

    /// Returns a write's time to live in whole seconds, or the time to live of the `Kvs` if the
    /// write names none. `None` is forever.
    pub(crate) fn seconds(&self, time: Option<Duration>) -> Option<u32> {
        let of_kvs = (self.time_to_live > 0).then_some(self.time_to_live);
        time.map(whole_seconds).or(of_kvs)
    }

    /// Returns the time at which a version that is written now expires.
    pub(crate) fn expiry(&self, time: Option<Duration>) -> Expiry {
        self.core.files.time.expiry(self.seconds(time))
    }

    /// Locks a key for a writer.
    pub(crate) fn lock(&self, key: &[u8]) -> row::KeyLocks<'_> {
        self.core.caches.entries.lock(&self.core.caches.entries.name(self.id, key))
    }

    /// Gives a key a value. Returns the number of the write.
    ///
    /// # Errors
    /// Fails if the size of the key or the value is not allowed, if there is no room, or if an
    /// earlier write failed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Sequence, StoreError> {
        self.put_for(key, value, None)
    }

    /// Gives a key a value with a time to live, rounded up to whole seconds, at least one. `None`
    /// stands for the time to live of the `Kvs`. It counts from the second in which the key is
    /// written, so a key may expire up to one second early.
    ///
    /// # Errors
    /// Fails as [`put`](Kvs::put) does.
    pub fn put_for(
        &self,
        key: &[u8],
        value: &[u8],
        time: Option<Duration>,
    ) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_sizes(key, value)?;
        let held = self.lock(if mutation_site!("a put locks its key") { &[] } else { key });
        self.core.append(&[Draft::put(self.id, key, value, self.expiry(time))], held)
    }

    /// Deletes a key, whether or not it exists.
    ///
    /// # Errors
    /// Fails if there is no room, or if an earlier write failed.
    pub fn delete(&self, key: &[u8]) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_sizes(key, &[])?;
        let held = self.lock(key);
        self.core.append(&[Draft::gone(self.id, Kind::Gone, key)], held)
    }

    /// Deletes all keys with a prefix.
    ///
    /// # Errors
    /// Fails if there is no room, or if an earlier write failed.
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_prefix(prefix)?;
        let held = self.core.caches.entries.lock_every();
        self.core.append(&[Draft::gone(self.id, Kind::RangeDelete, prefix)], held)
    }

    /// Gives a key a value if its newest write is still the one that the caller knows, or if the
    /// key does not exist and the caller knows `None`. [`get_with_token`](Kvs::get_with_token)
    /// returns that number.
    ///
    /// # Errors
    /// Fails with [`StoreError::Conflict`] if the newest write is another one; otherwise as
    /// [`put`](Kvs::put) does.
    pub fn compare_and_set(
        &self,
        key: &[u8],
        known: Option<Sequence>,
        value: &[u8],
    ) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_sizes(key, value)?;
        let held =
            self.lock(if mutation_site!("a compare-and-set locks its key") { &[] } else { key });
        let view = self.core.files.current.get();
        let found = self.core.find(&view, self.id, key, (Sequence::MAX, None), &mut Vec::new())?;
        if found.map(|version| version.sequence) != known {
            return Err(StoreError::Conflict);
        }
        self.core.append(&[Draft::put(self.id, key, value, self.expiry(None))], held)
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Appends the value of a key to `out`. Returns false if there is none.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.check_there()?;
        Ok(self.core.newest(self.id, key, out)?.is_some())
    }

    /// Returns the value of a key, and the number of the write that gave it.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn get_with_token(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Sequence)>, StoreError> {
        self.check_there()?;
        let mut value = Vec::new();
        let found = self.core.newest(self.id, key, &mut value)?;
        Ok(found.map(|token| (value, token)))
    }

    /// Returns the value of a key in a snapshot of the same store.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn get_at(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.multi_get_at(snapshot, &[key])?.pop().flatten())
    }

    /// Returns the values of several keys at one moment, in the order of the keys. Values on disks
    /// are read concurrently.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check_there()?;
        self.multi_get_at(&Snapshot::of(&self.core), keys)
    }

    /// Returns the values of several keys in a snapshot of the same store, in the order of the
    /// keys.
    ///
    /// # Errors
    /// Fails as [`multi_get`](Kvs::multi_get) does.
    pub fn multi_get_at(
        &self,
        snapshot: &Snapshot,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check_there()?;
        snapshot.check_of(&self.core)?;
        multi_get(&self.core, snapshot, self.id, keys)
    }

    /// Returns whether no, one or several keys have a prefix.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub fn probe_prefix(&self, prefix: &[u8]) -> Result<Matches, StoreError> {
        let options = CursorOptions { prefix: prefix.to_vec(), ..CursorOptions::default() };
        let mut cursor = self.cursor(options)?;
        let first = match cursor.next()? {
            Some((key, value)) => (key.to_vec(), value.to_vec()),
            None => return Ok(Matches::None),
        };
        Ok(match cursor.next()? {
            None => Matches::One(first.0, first.1),
            Some(_) => Matches::Many(first.0, first.1),
        })
    }

    /// Creates a cursor over the keys as they are now.
    ///
    /// # Errors
    /// Fails if the store is closed.
    pub fn cursor(&self, options: CursorOptions) -> Result<Cursor, StoreError> {
        self.check_there()?;
        let look = self.announce();
        let mut cursor = Cursor::new(self, &Snapshot::of(&self.core), options);
        cursor.may_note_dead_keys(look);
        Ok(cursor)
    }

    /// Announces a walk that may note ranges of dead keys.
    pub(crate) fn announce(&self) -> Option<Look> {
        self.core.dead_keys.announce(self.id, self.core.writes.log.as_ref())
    }

    /// Creates a cursor over the keys as they are in a snapshot of the same store.
    ///
    /// # Errors
    /// Fails if the store is closed.
    pub fn cursor_at(
        &self,
        snapshot: &Snapshot,
        options: CursorOptions,
    ) -> Result<Cursor, StoreError> {
        self.check_there()?;
        snapshot.check_of(&self.core)?;
        let mut cursor = Cursor::new(self, snapshot, options);
        cursor.may_note_dead_keys(self.announce());
        Ok(cursor)
    }
}

impl fmt::Debug for Kvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvs").field("name", &self.name).finish_non_exhaustive()
    }
}
