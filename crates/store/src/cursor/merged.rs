//! Several sources as one: of each key the newest version.

use std::sync::Arc;

use entresol_index::Direction;

use super::source::Source;
use crate::StoreError;
use crate::entry::Sequence;
use crate::prefixes::Prefixes;
use crate::view::Version;

/// A source, and the prefixes that are gone by what is in it.
pub(crate) type Part = (Source, Option<Arc<Prefixes>>);

/// Sources, the newest first, as one.
#[derive(Debug)]
pub(crate) struct Merged {
    parts: Vec<Part>,
    direction: Direction,
    at: Sequence,
    key: Vec<u8>,
    value: Vec<u8>,
}

/// What [`Merged::take`] took, beside the key and a value that lay beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Taken {
    pub(crate) version: Version,
    /// Whether a prefix of the key is gone since.
    pub(crate) is_gone: bool,
}

impl Default for Merged {
    fn default() -> Merged {
        Merged::new(Vec::new(), Direction::Forward, Sequence(0))
    }
}

impl Merged {
    /// The parts as they are at a time, none of them set to anything.
    pub(crate) fn new(parts: Vec<Part>, direction: Direction, at: Sequence) -> Merged {
        Merged { parts, direction, at, key: Vec::new(), value: Vec::new() }
    }

    /// Sets it to the first key at or behind a bound, in its direction; without one to the first.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        self.parts.iter_mut().try_for_each(|(source, _)| source.seek(bound))
    }

    /// The key that was taken last.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// The value beside it.
    pub(crate) fn value(&self) -> &[u8] {
        &self.value
    }

    /// The same key, and where the value goes if it did not lie beside it.
    pub(crate) fn key_and_value_mut(&mut self) -> (&[u8], &mut Vec<u8>) {
        (&self.key, &mut self.value)
    }

    /// Takes the next key from all parts; none at the end.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn take(&mut self) -> Result<Option<Taken>, StoreError> {
        let keys = self.parts.iter().enumerate();
        let keys = keys.filter_map(|(place, (source, _))| Some((source.key()?, place)));
        let first = match self.direction {
            Direction::Forward => keys.min(),
            // Of equal keys that of the newest part.
            Direction::Backward => {
                keys.max_by(|one, other| one.0.cmp(other.0).then(other.1.cmp(&one.1)))
            }
        };
        let Some((key, winner)) = first else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(key);
        let mut gone = Sequence(0);
        for (_, prefixes) in &self.parts[..=winner] {
            let covering = prefixes.as_ref().and_then(|it| it.covering(&self.key, self.at));
            gone = gone.max(covering.unwrap_or_default());
        }
        self.value.clear();
        let version = self.parts[winner].0.version(&mut self.value);
        for (source, _) in &mut self.parts {
            if source.key() == Some(&self.key) {
                source.advance()?;
            }
        }
        let taken = |version: Version| Taken { version, is_gone: version.sequence < gone };
        Ok(version.map(taken))
    }
}
