//! A `Kvs`: an ordered map of a store.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::mutation_site;

use crate::api::cursor::{Cursor, CursorOptions};
use crate::cache::row;
use crate::cache::row::Cached;
use crate::manifest::KvsState;
use crate::options::{check_prefix, check_sizes, whole_seconds};
use crate::segment::record::{Draft, Kind};
use crate::types::{Expiry, KvsId, Sequence, ValuePlace, Version};
use crate::version::core::Core;
use crate::version::view::View;
use crate::{Snapshot, StoreError};

/// A named ordered map from keys to values, in a [`Kvdb`](crate::Kvdb). Clones are the same one.
/// Once it is dropped, or the store closed, all that it is asked for is refused.
#[derive(Clone)]
pub struct Kvs {
    core: Arc<Core>,
    id: KvsId,
    name: Arc<str>,
    /// In seconds; 0 is for ever.
    time_to_live: u32,
}

/// What a prefix matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Matches {
    /// No key.
    None,
    /// One key, with its value.
    One(Vec<u8>, Vec<u8>),
    /// Several keys; the first, with its value.
    Many(Vec<u8>, Vec<u8>),
}

impl Kvs {
    pub(crate) fn new(core: Arc<Core>, state: &KvsState) -> Kvs {
        let (id, name) = (KvsId(state.id), Arc::from(state.name.as_str()));
        Kvs { core, id, name, time_to_live: state.time_to_live_s }
    }

    /// Its name.
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

    /// # Errors
    /// If the store is closed, or the `Kvs` was dropped.
    pub(crate) fn check_there(&self) -> Result<(), StoreError> {
        self.core.check_open()?;
        match self.core.dropped.has(self.id) {
            true => Err(StoreError::KvsDropped { name: self.name.to_string() }),
            false => Ok(()),
        }
    }

    /// How many seconds something stays that is to stay for some time, or as long as the `Kvs`
    /// says; none is for ever.
    pub(crate) fn seconds(&self, time: Option<Duration>) -> Option<u32> {
        let of_kvs = (self.time_to_live > 0).then_some(self.time_to_live);
        time.map(whole_seconds).or(of_kvs)
    }

    /// When something ends that is written now.
    pub(crate) fn expiry(&self, time: Option<Duration>) -> Expiry {
        self.core.expiry(self.seconds(time))
    }

    /// Locks a key for who is going to write it.
    pub(crate) fn lock(&self, key: &[u8]) -> row::KeyLocks<'_> {
        self.core.entries.lock(&self.core.entries.name(self.id, key))
    }

    /// Gives a key a value. Answers the number of the write.
    ///
    /// # Errors
    /// If the key or the value cannot be kept, there is no room, or an earlier write failed.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<Sequence, StoreError> {
        self.put_for(key, value, None)
    }

    /// Gives a key a value for some time, rounded up to whole seconds, at least one; none is as
    /// long as the `Kvs` says. It counts from the second in which the key is written, so that the
    /// key goes up to a second early.
    ///
    /// # Errors
    /// As [`put`](Kvs::put).
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

    /// Removes a key, whether or not it is there.
    ///
    /// # Errors
    /// If there is no room, or an earlier write failed.
    pub fn delete(&self, key: &[u8]) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_sizes(key, &[])?;
        let held = self.lock(key);
        self.core.append(&[Draft::gone(self.id, Kind::Gone, key)], held)
    }

    /// Removes all keys that begin so.
    ///
    /// # Errors
    /// If there is no room, or an earlier write failed.
    pub fn delete_prefix(&self, prefix: &[u8]) -> Result<Sequence, StoreError> {
        self.check_there()?;
        check_prefix(prefix)?;
        let held = self.core.entries.lock_every();
        self.core.append(&[Draft::gone(self.id, Kind::RangeDelete, prefix)], held)
    }

    /// Gives a key a value if its newest write is still the one that the caller knows; none: if the
    /// key is not there. See [`get_with_token`](Kvs::get_with_token).
    ///
    /// # Errors
    /// [`StoreError::Conflict`] if it is not; else as [`put`](Kvs::put).
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
        let view = self.core.current.get();
        let found = self.core.find(&view, self.id, key, Sequence::MAX, &mut Vec::new())?;
        if found.map(|version| version.sequence) != known {
            return Err(StoreError::Conflict);
        }
        self.core.append(&[Draft::put(self.id, key, value, self.expiry(None))], held)
    }

    /// The value of a key.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut value = Vec::new();
        Ok(self.get_into(key, &mut value)?.then_some(value))
    }

    /// Appends the value of a key to `out`; says whether there is one.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub fn get_into(&self, key: &[u8], out: &mut Vec<u8>) -> Result<bool, StoreError> {
        self.check_there()?;
        Ok(self.core.newest(self.id, key, out)?.is_some())
    }

    /// The value of a key, and the number of the write that gave it.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub fn get_with_token(&self, key: &[u8]) -> Result<Option<(Vec<u8>, Sequence)>, StoreError> {
        self.check_there()?;
        let mut value = Vec::new();
        let found = self.core.newest(self.id, key, &mut value)?;
        Ok(found.map(|token| (value, token)))
    }

    /// The value of a key in a snapshot of the same store.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub fn get_at(&self, snapshot: &Snapshot, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.multi_get_at(snapshot, &[key])?.pop().flatten())
    }

    /// The values of several keys at one time, in their order. Those that lie on disks are read
    /// together.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub fn multi_get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check_there()?;
        self.multi_get_at(&Snapshot::of(&self.core), keys)
    }

    /// The same in a snapshot of the same store.
    ///
    /// # Errors
    /// As [`multi_get`](Kvs::multi_get).
    pub fn multi_get_at(
        &self,
        snapshot: &Snapshot,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        self.check_there()?;
        snapshot.check_of(&self.core)?;
        self.core.multi_get(snapshot, self.id, keys)
    }

    /// Whether no, one or several keys begin so.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
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

    /// Walks over the keys as they are now.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn cursor(&self, options: CursorOptions) -> Result<Cursor, StoreError> {
        self.check_there()?;
        self.cursor_at(&Snapshot::of(&self.core), options)
    }

    /// Walks over the keys as they are in a snapshot of the same store.
    ///
    /// # Errors
    /// If the store is closed.
    pub fn cursor_at(
        &self,
        snapshot: &Snapshot,
        options: CursorOptions,
    ) -> Result<Cursor, StoreError> {
        self.check_there()?;
        snapshot.check_of(&self.core)?;
        Ok(Cursor::new(self, snapshot, options))
    }
}

impl fmt::Debug for Kvs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Kvs").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Core {
    /// The version of a key that there is at a time, unless it is gone or has expired.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn find(
        &self,
        view: &View,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
        out: &mut Vec<u8>,
    ) -> Result<Option<Version>, StoreError> {
        let found = view.find(kvs, key, at, out)?;
        let is_there = |version: &Version| {
            version.value != ValuePlace::Gone && !self.has_ended(version.expiry)
        };
        Ok(found.filter(is_there))
    }

    /// When something ends that stays for so many seconds from now; none is for ever.
    pub(crate) fn expiry(&self, seconds: Option<u32>) -> Expiry {
        seconds.map_or(Expiry::NEVER, |seconds| Expiry(self.now().0.saturating_add(seconds)))
    }

    /// Whether the time of something is over. What has none does not ask for the time.
    #[inline]
    pub(crate) fn has_ended(&self, expiry: Expiry) -> bool {
        expiry != Expiry::NEVER && expiry.is_over(self.now())
    }

    /// Appends the value that a key has now to `out`; answers the number of its write.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn newest(
        &self,
        kvs: KvsId,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Sequence>, StoreError> {
        let (name, before) = (self.entries.name(kvs, key), out.len());
        if let Some(Cached { sequence, expiry }) = self.entries.find(&name, Sequence::MAX, out) {
            if self.has_ended(expiry) {
                out.truncate(before);
                return Ok(None);
            }
            return Ok(Some(sequence));
        }
        let ticket = self.entries.ticket(&name);
        let view = self.current.get();
        let found = self.get(&view, kvs, key, Sequence::MAX, out)?;
        if let Some(Version { sequence, expiry, .. }) = found {
            let value = out.get(before..).unwrap_or_default();
            self.entries.fill(&name, ticket, Cached { sequence, expiry }, value);
        }
        Ok(found.map(|version| version.sequence))
    }

    /// The same as far as memory tells: none if a disk has to be asked.
    ///
    /// # Errors
    /// If what is read is damaged.
    pub(crate) fn newest_in_memory(
        &self,
        kvs: KvsId,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Option<Sequence>>, StoreError> {
        let name = self.entries.name(kvs, key);
        let found = match self.entries.find(&name, Sequence::MAX, out) {
            Some(found) => Some((found.sequence, found.expiry)),
            None => {
                let view = self.current.get();
                let mut gone = Sequence(0);
                match view.find_in_memtables(kvs, key, Sequence::MAX, &mut gone)? {
                    None if view.runs.get(&kvs).is_none_or(|runs| runs.is_empty()) => None,
                    None => return Ok(None),
                    Some(Version { sequence, expiry, value: ValuePlace::Apart(place) }) => {
                        view.value(place, (kvs, key), out)?;
                        (sequence >= gone).then_some((sequence, expiry))
                    }
                    Some(_) => None,
                }
            }
        };
        let is_there = |(_, expiry): &(Sequence, Expiry)| !self.has_ended(*expiry);
        Ok(Some(found.filter(is_there).map(|(sequence, _)| sequence)))
    }

    /// Appends the value of a key in a view to `out`; answers which version it is.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn get(
        &self,
        view: &View,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
        out: &mut Vec<u8>,
    ) -> Result<Option<Version>, StoreError> {
        let before = out.len();
        let Some(version) = self.find(view, kvs, key, at, out)? else {
            out.truncate(before);
            return Ok(None);
        };
        if let ValuePlace::Apart(place) = version.value {
            view.value(place, (kvs, key), out)?;
            self.count_read(view, kvs, key, place);
        }
        Ok(Some(version))
    }
}
