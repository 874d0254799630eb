//! Cursors: walks over keys in order, up or down, as they were at one moment.

use std::fmt;
use std::sync::Arc;

use entresol_index::Direction;

use crate::api::kvs::Kvs;
use crate::api::transaction::Own;
use crate::memtable::range_deletes::Prefixes;
use crate::types::Sequence;
use crate::version::core::Core;
use crate::version::view::{Held, Version, View};
use crate::{KvsId, Snapshot, StoreError};
use merged::{Merged, Taken};
use source::Source;
use window::{Of, Window};

pub(crate) mod merged;
pub(crate) mod source;
pub(crate) mod window;

/// Options of a cursor.
#[derive(Debug, Clone, Default)]
pub struct CursorOptions {
    /// True to walk from the greatest key down.
    pub backward: bool,
    /// Prefix of the keys to show.
    pub prefix: Vec<u8>,
    /// True to show empty values instead of reading them.
    pub keys_only: bool,
    /// Most keys to show from the beginning of the walk, or from where it was set; `None` shows
    /// all. Nothing is read ahead beyond the limit.
    pub limit: Option<u64>,
}

/// A transaction's writes to the keys of a `Kvs`, and its range deletes, which come first.
pub(crate) type OwnParts = (Arc<Own>, Option<Arc<Prefixes>>);

/// A key and its value.
pub type Shown<'a> = (&'a [u8], &'a [u8]);

/// Holder of the current key and value.
enum At {
    Merged,
    Window,
}

/// Walks over the keys of a [`Kvs`], from one end or from where it was set. It sees the `Kvs` as it
/// was when the cursor was created or last [updated](Cursor::update).
pub struct Cursor {
    core: Arc<Core>,
    kvs: KvsId,
    options: CursorOptions,
    view: Arc<View>,
    at: Sequence,
    merged: Merged,
    /// Keys that were taken ahead.
    window: Window,
    /// Number of keys that may still be shown.
    left: u64,
    /// Position at which the walk goes on: at a key (true), or behind the key that was shown last
    /// (false). `None` is the end that the walk begins at.
    from: Option<(Vec<u8>, bool)>,
    /// True once the sources are at this position.
    is_started: bool,
    /// Writes of the transaction that the cursor belongs to.
    own: Option<OwnParts>,
}

impl Cursor {
    pub(crate) fn new(kvs: &Kvs, snapshot: &Snapshot, options: CursorOptions) -> Cursor {
        Cursor::with_own(kvs, snapshot, options, None)
    }

    /// Creates a cursor that also shows the writes of a transaction, if it belongs to one.
    pub(crate) fn with_own(
        kvs: &Kvs,
        snapshot: &Snapshot,
        options: CursorOptions,
        own: Option<OwnParts>,
    ) -> Cursor {
        let (view, at) = snapshot.parts();
        let mut cursor = Cursor {
            core: kvs.core().clone(),
            kvs: kvs.id(),
            options,
            view: view.clone(),
            at,
            merged: Merged::default(),
            window: Window::default(),
            left: 0,
            from: None,
            is_started: false,
            own,
        };
        cursor.begin();
        cursor.left = cursor.options.limit.unwrap_or(u64::MAX);
        cursor
    }

    fn direction(&self) -> Direction {
        if self.options.backward { Direction::Backward } else { Direction::Forward }
    }

    fn begin(&mut self) {
        let Cursor { kvs, at, .. } = *self;
        let direction = self.direction();
        let young = self.view.generations().map(|generation| {
            let source = Source::young(generation.clone(), kvs, at, direction);
            (source, generation.prefixes(kvs))
        });
        let runs = self.view.runs.get(&kvs).into_iter().flat_map(|runs| runs.iter());
        let runs = runs.map(|flushed| {
            let source = Source::run(&flushed.run, direction);
            (source, flushed.prefixes.any().then(|| flushed.prefixes.clone()))
        });
        let own = self.own.iter().map(|(writes, gone)| {
            let source = Source::own(writes.clone(), direction);
            (source, gone.clone())
        });
        self.merged = Merged::new(own.chain(young).chain(runs).collect(), direction, at);
        self.window.clear();
        self.is_started = false;
    }

    /// Sets the cursor to a key. The next key shown is this one or, if it does not exist, the next
    /// one in the cursor's direction.
    pub fn seek(&mut self, key: &[u8]) {
        self.from = Some((key.to_vec(), true));
        self.is_started = false;
        self.window.clear();
        self.left = self.options.limit.unwrap_or(u64::MAX);
    }

    /// Switches to the current data and keeps the position. The next key shown is behind the last
    /// one; even a cursor at the end shows the keys that were added behind it.
    ///
    /// # Errors
    /// Fails if the store is closed, or if the cursor belongs to a transaction, which keeps its
    /// snapshot.
    pub fn update(&mut self) -> Result<(), StoreError> {
        self.core.check_open()?;
        if self.own.is_some() {
            let what = "a cursor of a transaction cannot be updated: open a new one".to_owned();
            return Err(StoreError::Options { what });
        }
        let snapshot = Snapshot::of(&self.core);
        let (view, at) = snapshot.parts();
        (self.view, self.at) = (view.clone(), at);
        self.begin();
        Ok(())
    }

    /// Returns the next key and its value, or `None` at the end.
    ///
    /// # Errors
    /// Fails if a disk fails, or if the data read are damaged.
    #[expect(clippy::should_implement_trait, reason = "what is shown is borrowed")]
    pub fn next(&mut self) -> Result<Option<Shown<'_>>, StoreError> {
        self.core.check_open()?;
        if !self.is_started {
            self.start()?;
        }
        if self.left == 0 {
            return Ok(None);
        }
        let Some(at) = self.go_on()? else { return Ok(None) };
        self.left -= 1;
        let (key, value): Shown<'_> = match at {
            At::Merged if self.options.keys_only => (self.merged.key(), &[]),
            At::Merged => (self.merged.key(), self.merged.value()),
            At::Window => (self.window.key().unwrap_or_default(), self.window.value()),
        };
        // The position is kept here because the key of the window or the merged iterator is lost as
        // soon as these advance, even if they then have nothing to show.
        let (from, included) = self.from.get_or_insert_default();
        from.clear();
        from.extend_from_slice(key);
        *included = false;
        Ok(Some((key, value)))
    }

    /// Advances to the next key to show.
    fn go_on(&mut self) -> Result<Option<At>, StoreError> {
        loop {
            if self.window.is_open() {
                let of = of(&self.core, &self.view, self.kvs, &self.options);
                if self.window.go_on(&of)? {
                    return Ok(Some(At::Window));
                }
                if self.window.is_over() {
                    return Ok(None);
                }
            }
            if let ahead @ 1.. = self.window.wanted(self.options.limit.map(|_| self.left)) {
                let of = of(&self.core, &self.view, self.kvs, &self.options);
                self.window.fill(&mut self.merged, &of, ahead);
                continue;
            }
            let is_simple = self.merged.take_simply();
            let taken = if is_simple { None } else { self.merged.take()? };
            if !is_simple && taken.is_none() {
                return Ok(None);
            }
            let of = of(&self.core, &self.view, self.kvs, &self.options);
            if !of.has_prefix(self.merged.key()) {
                return Ok(None);
            }
            if let Some(taken) = taken
                && !self.is_there(taken)?
            {
                continue;
            }
            return Ok(Some(At::Merged));
        }
    }

    /// Returns true if the version is to be shown, and then reads its value if that lies in a
    /// record.
    fn is_there(&mut self, taken: Taken) -> Result<bool, StoreError> {
        let Taken { version: Version { sequence, expiry, value }, is_deleted } = taken;
        if is_deleted || self.core.has_ended(expiry) || value == Held::Gone {
            return Ok(false);
        }
        if let Held::Apart(place) = value
            && !self.options.keys_only
        {
            let (waits, cache) = (&self.core.counters.waits, &self.core.entries);
            // The records of versions that are not flushed lie in memory anyway.
            if self.merged.is_flushed()
                && self.window.looks_in_cache()
                && self.merged.find_value(cache, self.kvs, sequence)
            {
                self.window.note_cached();
            } else if !self.window.looks(place, waits) {
                self.merged.read_value(place, &self.view, self.kvs)?;
            } else if let Some(had_to_wait) =
                self.merged.read_and_look(place, &self.view, self.kvs)?
            {
                self.window.note(had_to_wait, waits);
            }
        }
        Ok(true)
    }

    /// Positions all sources where the walk goes on, within the prefix.
    fn start(&mut self) -> Result<(), StoreError> {
        self.is_started = true;
        let prefix = &self.options.prefix;
        let end = after_prefix(prefix);
        let from = self.from.as_ref().map(|(key, included)| (key.as_slice(), *included));
        let bound = match (self.options.backward, from) {
            (false, Some((key, included))) if key >= prefix.as_slice() => Some((key, included)),
            (false, _) if prefix.is_empty() => None,
            (false, _) => Some((prefix.as_slice(), true)),
            (true, Some((key, included))) if end.as_deref().is_none_or(|end| key < end) => {
                Some((key, included))
            }
            (true, _) => end.as_deref().map(|end| (end, false)),
        };
        self.merged.seek(bound)
    }
}

/// Collects what a window needs to take entries.
fn of<'a>(core: &'a Core, view: &'a View, kvs: KvsId, options: &'a CursorOptions) -> Of<'a> {
    Of { core, view, kvs, prefix: &options.prefix }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("options", &self.options).finish_non_exhaustive()
    }
}

/// Returns the least key above all keys with a prefix, or `None` if there is none above them.
fn after_prefix(prefix: &[u8]) -> Option<Vec<u8>> {
    let last = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut after = prefix[..=last].to_vec();
    after[last] += 1;
    Some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prefix_ends_before_the_next_one() {
        assert_eq!(after_prefix(b"ab"), Some(b"ac".to_vec()));
        assert_eq!(after_prefix(&[7, 255, 255]), Some(vec![8]));
        assert_eq!(after_prefix(&[255, 255]), None);
        assert_eq!(after_prefix(&[]), None);
    }
}
