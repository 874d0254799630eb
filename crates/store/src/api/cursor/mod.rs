//! Cursors: walks over keys in order, up or down, as they were at one moment.

use std::fmt;
use std::sync::Arc;

use entresol_base::Seconds;
use entresol_index::Direction;

use crate::api::kvs::Kvs;
use crate::engine::Core;
use crate::engine::dead_keys::{Look, PASSED_MIN};
use crate::memtable::own::OwnWrites;
use crate::memtable::range_deletes::Prefixes;
use crate::types::{Sequence, ValuePlace, Version};
use crate::version::merged::{Merged, TakenVersion};
use crate::version::source::Source;
use crate::version::view::View;
use crate::{KvsId, Snapshot, StoreError};
use window::{Window, WindowSource};

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
pub(crate) type OwnParts = (Arc<OwnWrites>, Option<Arc<Prefixes>>);

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
    /// Time of the snapshot, by which versions expire.
    seconds: Seconds,
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
    dead: PassedKeys,
}

/// Dead keys that a walk has passed since it began, or since the last one that it has shown.
#[derive(Debug, Default)]
struct PassedKeys {
    look: Option<Look>,
    count: u64,
    /// True until the walk has shown a key.
    is_first: bool,
    /// True if all keys that the walk has not passed are dead.
    is_rest: bool,
    /// Position at which the walk began.
    begin: Option<(Vec<u8>, bool)>,
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
            seconds: snapshot.seconds(),
            merged: Merged::default(),
            window: Window::default(),
            left: 0,
            from: None,
            is_started: false,
            own,
            dead: PassedKeys::default(),
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
        self.dead.look = self.core.dead_keys.announce(self.kvs, self.core.writes.log.as_ref());
        let snapshot = Snapshot::of(&self.core);
        let (view, at) = snapshot.parts();
        (self.view, self.at, self.seconds) = (view.clone(), at, snapshot.seconds());
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
                let of = of(&self.core, (&self.view, self.seconds), self.kvs, &self.options);
                if self.window.go_on(&of)? {
                    self.dead.is_first = false;
                    return Ok(Some(At::Window));
                }
                if self.window.is_over() {
                    return Ok(None);
                }
            }
            if self.dead.is_rest {
                self.note_dead_keys(true);
                return Ok(None);
            }
            if self.dead.count < PASSED_MIN
                && let ahead @ 1.. = self.window.wanted(self.options.limit.map(|_| self.left))
            {
                self.fill_window(ahead)?;
                continue;
            }
            let is_simple = self.merged.take_simply();
            let taken = if is_simple { None } else { self.merged.take()? };
            if !is_simple && taken.is_none() {
                self.note_dead_keys(true);
                return Ok(None);
            }
            let of = of(&self.core, (&self.view, self.seconds), self.kvs, &self.options);
            if !of.has_prefix(self.merged.key()) {
                self.note_dead_keys(false);
                return Ok(None);
            }
            if let Some(taken) = taken
                && !self.is_there(taken)?
            {
                self.pass_dead_key()?;
                continue;
            }
            self.note_dead_keys(false);
            return Ok(Some(At::Merged));
        }
    }

    /// Takes entries ahead, up to the first of many dead keys.
    fn fill_window(&mut self, ahead: usize) -> Result<(), StoreError> {
        let of = of(&self.core, (&self.view, self.seconds), self.kvs, &self.options);
        self.dead.count = self.window.fill(&mut self.merged, &of, (ahead, self.dead.count));
        if self.dead.count >= PASSED_MIN { self.look_for_range() } else { Ok(()) }
    }

    /// Returns true if the version is to be shown, and then reads its value if that lies in a
    /// record.
    fn is_there(&mut self, taken: TakenVersion) -> Result<bool, StoreError> {
        let TakenVersion { version: Version { sequence, expiry, value }, is_deleted } = taken;
        let has_ended = self.core.files.time.has_ended_at(expiry, Some(self.seconds));
        if is_deleted || has_ended || value == ValuePlace::Gone {
            return Ok(false);
        }
        if let ValuePlace::Apart(place) = value
            && !self.options.keys_only
        {
            let (waits, cache) = (&self.core.caches.waits, &self.core.caches.entries);
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
        self.dead.is_first = true;
        self.dead.is_rest = false;
        self.dead.count = 0;
        self.dead.begin = bound.map(|(key, included)| (key.to_vec(), included));
        if self.shows_only_published()
            && let Some(jump) =
                self.core.dead_keys.jump(self.kvs, (self.at, self.seconds), self.direction(), bound)
        {
            return self.seek_behind_dead(jump);
        }
        self.merged.seek(bound)
    }

    /// Positions all sources behind a range of dead keys.
    fn seek_behind_dead(&mut self, jump: Option<(Vec<u8>, bool)>) -> Result<(), StoreError> {
        match jump {
            Some((key, included)) => self.merged.seek(Some((&key, included))),
            None => {
                self.dead.is_rest = true;
                Ok(())
            }
        }
    }

    /// Returns true if no write of a transaction hides or shows a key.
    fn shows_only_published(&self) -> bool {
        self.own.as_ref().is_none_or(|(writes, gone)| writes.is_empty() && gone.is_none())
    }

    /// Lets the walk note ranges of dead keys if it was announced.
    pub(crate) fn may_note_dead_keys(&mut self, look: Option<Look>) {
        self.dead.look = look;
    }

    /// Counts a dead key, and may go on behind a range of them.
    #[cold]
    fn pass_dead_key(&mut self) -> Result<(), StoreError> {
        self.dead.count += 1;
        self.look_for_range()
    }

    /// Goes on behind a range of dead keys if the current one, which is dead, lies in one.
    fn look_for_range(&mut self) -> Result<(), StoreError> {
        if !self.shows_only_published() {
            return Ok(());
        }
        if self.dead.count == PASSED_MIN {
            self.core.dead_keys.watch(self.kvs);
        }
        let is_due = self.dead.is_first || self.dead.count >= PASSED_MIN;
        if is_due && self.dead.count.is_power_of_two() {
            let bound = Some((self.merged.key(), false));
            let jump = self.core.dead_keys.jump(
                self.kvs,
                (self.at, self.seconds),
                self.direction(),
                bound,
            );
            if let Some(jump) = jump {
                return self.seek_behind_dead(jump);
            }
        }
        Ok(())
    }

    /// Notes the range of the dead keys before the next key that the walk shows, which is the
    /// current one, or before its end. Behind the first one, a few are not worth it.
    #[inline]
    fn note_dead_keys(&mut self, is_at_end: bool) {
        let is_first = std::mem::replace(&mut self.dead.is_first, false);
        if self.dead.count > 0 {
            let count = std::mem::take(&mut self.dead.count);
            if is_first || count >= PASSED_MIN {
                self.note_range(is_first, is_at_end);
            }
        }
    }

    #[cold]
    fn note_range(&self, is_first: bool, is_at_end: bool) {
        if let Some(look) = self.dead.look.filter(|_| self.shows_only_published()) {
            // The key that was shown last is where the range begins.
            let begin = if is_first { &self.dead.begin } else { &self.from };
            let begin = begin.as_ref().map(|(key, included)| (key.as_slice(), *included));
            let end = (!is_at_end).then(|| self.merged.key());
            let of_look = (look, self.at, self.seconds);
            self.core.dead_keys.note(self.kvs, of_look, self.direction(), (begin, end));
        }
    }
}

/// Collects what a window needs to take entries.
fn of<'a>(
    core: &'a Core,
    (view, seconds): (&'a View, Seconds),
    kvs: KvsId,
    options: &'a CursorOptions,
) -> WindowSource<'a> {
    WindowSource { core, view, seconds, kvs, prefix: &options.prefix }
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
