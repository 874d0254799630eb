//! Cursors: keys in their order, up or down, as they were at one time.

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

/// What a cursor shows.
#[derive(Debug, Clone, Default)]
pub struct CursorOptions {
    /// From the greatest key down.
    pub backward: bool,
    /// Only keys that begin so.
    pub prefix: Vec<u8>,
    /// Values are not read; they are shown empty.
    pub keys_only: bool,
    /// No more keys are shown from where the walk begins or is set; none: all. Nothing is read
    /// ahead that is not wanted then.
    pub limit: Option<u64>,
}

/// What a transaction has written of a `Kvs`: to keys, and prefixes that it has removed before.
pub(crate) type OwnParts = (Arc<Own>, Option<Arc<Prefixes>>);

/// A key and its value.
pub type Shown<'a> = (&'a [u8], &'a [u8]);

/// Where what is shown is.
enum At {
    Merged,
    Window,
}

/// Walks over the keys of a [`Kvs`], from one end or from where it was set. It sees the `Kvs` as it
/// was when the cursor was made or last [updated](Cursor::update).
pub struct Cursor {
    core: Arc<Core>,
    kvs: KvsId,
    options: CursorOptions,
    view: Arc<View>,
    at: Sequence,
    merged: Merged,
    /// What was taken ahead.
    window: Window,
    /// How many keys may still be shown.
    left: u64,
    /// Where the walk goes on: at a key, or behind the one that was shown last; none is the end
    /// that it begins at.
    from: Option<(Vec<u8>, bool)>,
    /// Whether the sources are set to that.
    is_started: bool,
    /// What the transaction that it belongs to has written, and the prefixes that are gone in it.
    own: Option<OwnParts>,
}

impl Cursor {
    pub(crate) fn new(kvs: &Kvs, snapshot: &Snapshot, options: CursorOptions) -> Cursor {
        Cursor::with_own(kvs, snapshot, options, None)
    }

    /// A cursor of a transaction that has written something.
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

    /// Sets it so that what is shown next is this key, or, if it is not there, the next in the
    /// cursor's direction.
    pub fn seek(&mut self, key: &[u8]) {
        self.from = Some((key.to_vec(), true));
        self.is_started = false;
        self.window.clear();
        self.left = self.options.limit.unwrap_or(u64::MAX);
    }

    /// Shows the data of now from here on. It stays where it is: what is shown next is behind what
    /// was shown last, also at the end, where it shows what has come there since.
    ///
    /// # Errors
    /// If the store is closed, or the cursor is a transaction's, which sees what it saw first.
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

    /// The next key and its value; none at the end.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
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
        // What is taken next may not be shown, or be nothing.
        let (from, included) = self.from.get_or_insert_default();
        from.clear();
        from.extend_from_slice(key);
        *included = false;
        Ok(Some((key, value)))
    }

    /// Comes to the next key that is to be shown.
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

    /// Whether what was taken is there to be shown; its value is read then, if that lies elsewhere.
    fn is_there(&mut self, taken: Taken) -> Result<bool, StoreError> {
        let Taken { version: Version { sequence, expiry, value }, is_deleted } = taken;
        if is_deleted || self.core.has_ended(expiry) || value == Held::Gone {
            return Ok(false);
        }
        if let Held::Apart(place) = value
            && !self.options.keys_only
        {
            let (waits, cache) = (&self.core.counters.waits, &self.core.entries);
            // What is not flushed lies in memory anyway.
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

    /// Sets all sources to where the walk goes on, within the prefix.
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

/// What a window takes entries of.
fn of<'a>(core: &'a Core, view: &'a View, kvs: KvsId, options: &'a CursorOptions) -> Of<'a> {
    Of { core, view, kvs, prefix: &options.prefix }
}

impl fmt::Debug for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cursor").field("options", &self.options).finish_non_exhaustive()
    }
}

/// The least key that is above all that begin with a prefix; none if there is none.
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
