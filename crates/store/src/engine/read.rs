//! The path of every read of one key: the row cache first, then the newest view.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use entresol_base::Seconds;

use crate::StoreError;
use crate::cache::row::Cached;
use crate::engine::Core;
use crate::types::{Expiry, KvsId, RecordPlace, Sequence, ValuePlace, Version};
use crate::version::view::View;

/// Checks in a row that find values in memory after which most values are taken to be there.
const LOOKS_IN_VAIN: u32 = 64;

/// Counter of whether readers of values had to wait for disks lately. A note that races with
/// another reader's may be lost.
#[derive(Debug, Default)]
pub(crate) struct Waits(AtomicU32);

impl Waits {
    #[inline]
    pub(crate) fn are_usual(&self) -> bool {
        self.0.load(Relaxed) > 0
    }

    pub(crate) fn note(&self, had_to_wait: bool) {
        let left = self.0.load(Relaxed);
        let next = if had_to_wait { LOOKS_IN_VAIN } else { left.saturating_sub(1) };
        if next != left {
            self.0.store(next, Relaxed);
        }
    }
}

impl Core {
    /// Finds the version of a key that a reader at `at` sees. Returns `None` if the key is deleted
    /// or has expired, at `seconds` or, if that is `None`, now.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(crate) fn find(
        &self,
        view: &View,
        kvs: KvsId,
        key: &[u8],
        (at, seconds): (Sequence, Option<Seconds>),
        out: &mut Vec<u8>,
    ) -> Result<Option<Version>, StoreError> {
        let found = view.find(kvs, key, at, out)?;
        let is_there = |version: &Version| {
            version.value != ValuePlace::Gone
                && !self.files.time.has_ended_at(version.expiry, seconds)
        };
        Ok(found.filter(is_there))
    }

    /// Appends the current value of a key to `out`, and returns the number of its write.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(crate) fn newest(
        &self,
        kvs: KvsId,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Sequence>, StoreError> {
        let (name, before) = (self.caches.entries.name(kvs, key), out.len());
        if let Some(Cached { sequence, expiry }) =
            self.caches.entries.find(&name, Sequence::MAX, out)
        {
            if self.files.time.has_ended(expiry) {
                out.truncate(before);
                return Ok(None);
            }
            return Ok(Some(sequence));
        }
        let ticket = self.caches.entries.ticket(&name);
        let view = self.files.current.get();
        let found = self.get(&view, kvs, key, Sequence::MAX, out)?;
        if let Some(Version { sequence, expiry, .. }) = found {
            let value = out.get(before..).unwrap_or_default();
            self.caches.entries.fill(&name, ticket, Cached { sequence, expiry }, value);
        }
        Ok(found.map(|version| version.sequence))
    }

    /// Appends the current value of a key to `out` if it is in memory. Returns `None` if a disk has
    /// to be read, and `Some(None)` if the key is known not to exist.
    ///
    /// # Errors
    /// Fails if the data read are damaged.
    pub(crate) fn newest_in_memory(
        &self,
        kvs: KvsId,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Option<Option<Sequence>>, StoreError> {
        let name = self.caches.entries.name(kvs, key);
        let found = match self.caches.entries.find(&name, Sequence::MAX, out) {
            Some(found) => Some((found.sequence, found.expiry)),
            None => {
                let view = self.files.current.get();
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
        let is_there = |(_, expiry): &(Sequence, Expiry)| !self.files.time.has_ended(*expiry);
        Ok(Some(found.filter(is_there).map(|(sequence, _)| sequence)))
    }

    /// Appends the value of a key in a view to `out`, and returns its version.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    pub(crate) fn get(
        &self,
        view: &View,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
        out: &mut Vec<u8>,
    ) -> Result<Option<Version>, StoreError> {
        let before = out.len();
        let Some(version) = self.find(view, kvs, key, (at, None), out)? else {
            out.truncate(before);
            return Ok(None);
        };
        if let ValuePlace::Apart(place) = version.value {
            view.value(place, (kvs, key), out)?;
            self.count_read(view, kvs, key, place);
        }
        Ok(Some(version))
    }

    /// Counts a read of a value in a flushed segment, if there is a choice of classes.
    pub(crate) fn count_read(&self, view: &View, kvs: KvsId, key: &[u8], place: RecordPlace) {
        if self.background.read_frequency.is_on() && view.segments.contains_key(&place.segment) {
            let hash = self.caches.entries.name(kvs, key).hash();
            if self.background.read_frequency.read(hash, place.segment, u64::from(place.bytes)) {
                self.background.scheduler.tell();
            }
        }
    }
}
