//! Several sources as one: of each key the newest version.

use std::cmp::Ordering;
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
///
/// Most keys follow one another in one source. So it is known which source comes after the first,
/// and as long as the first stays before that one, no other is looked at.
#[derive(Debug)]
pub(crate) struct Merged {
    parts: Vec<Part>,
    direction: Direction,
    at: Sequence,
    /// The part with the next key, or with the one that was taken last; none at the end.
    first: Option<usize>,
    /// The part that comes after it.
    second: Option<usize>,
    /// Whether both have the same key.
    is_shared: bool,
    /// Whether the first one's key was taken.
    is_taken: bool,
    key: Vec<u8>,
    /// Whether the value that was taken last did not lie beside its key, and it.
    is_apart: bool,
    value: Vec<u8>,
    /// Whether any part has prefixes that are gone.
    any_gone: bool,
}

/// What [`Merged::take`] took, beside the key and a value that lies beside it.
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
        // Those that come later are later than what this shows.
        let any = |part: &Part| part.1.as_ref().is_some_and(|prefixes| prefixes.any());
        Merged {
            any_gone: parts.iter().any(any),
            parts,
            direction,
            at,
            first: None,
            second: None,
            is_shared: false,
            is_taken: false,
            key: Vec::new(),
            is_apart: false,
            value: Vec::new(),
        }
    }

    /// Sets it to the first key at or behind a bound, in its direction; without one to the first.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        (self.first, self.is_taken) = (None, false);
        self.parts.iter_mut().try_for_each(|(source, _)| source.seek(bound))?;
        self.select();
        Ok(())
    }

    /// The key that was taken last.
    pub(crate) fn key(&self) -> &[u8] {
        &self.key
    }

    /// Its value.
    pub(crate) fn value(&self) -> &[u8] {
        match self.first {
            _ if self.is_apart => &self.value,
            Some(first) => self.parts[first].0.value(),
            None => &[],
        }
    }

    /// The same key, and where its value goes if it does not lie beside it.
    pub(crate) fn key_and_value_mut(&mut self) -> (&[u8], &mut Vec<u8>) {
        self.value.clear();
        self.is_apart = true;
        (&self.key, &mut self.value)
    }

    /// Takes the next key from all parts; none at the end, and after an error.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn take(&mut self) -> Result<Option<Taken>, StoreError> {
        self.is_apart = false;
        if std::mem::take(&mut self.is_taken)
            && let Some(first) = self.first
            && let Err(error) = self.advance(first)
        {
            self.first = None;
            return Err(error);
        }
        let Some(first) = self.first else { return Ok(None) };
        let Some(key) = self.parts[first].0.key() else { return Ok(None) };
        self.key.clear();
        self.key.extend_from_slice(key);
        self.is_taken = true;
        let gone = if self.any_gone { self.gone(first) } else { Sequence(0) };
        let version = self.parts[first].0.version();
        Ok(version.map(|version| Taken { version, is_gone: version.sequence < gone }))
    }

    /// The last write that removed the key with others, as parts up to one know.
    fn gone(&self, last: usize) -> Sequence {
        let prefixes = self.parts[..=last].iter().filter_map(|(_, prefixes)| prefixes.as_ref());
        let covering = prefixes.filter_map(|it| it.covering(&self.key, self.at));
        covering.max().unwrap_or_default()
    }

    /// Goes on behind the key that was taken.
    fn advance(&mut self, first: usize) -> Result<(), StoreError> {
        self.parts[first].0.advance()?;
        if self.is_shared {
            for (number, (source, _)) in self.parts.iter_mut().enumerate() {
                if number != first && source.key() == Some(&self.key) {
                    source.advance()?;
                }
            }
        }
        let Some(second) = self.second else { return Ok(()) };
        match (self.parts[first].0.key(), self.parts[second].0.key()) {
            (Some(one), Some(other)) if !self.is_shared && self.order(one, other).is_lt() => {}
            _ => self.select(),
        }
        Ok(())
    }

    fn order(&self, one: &[u8], other: &[u8]) -> Ordering {
        match self.direction {
            Direction::Forward => one.cmp(other),
            Direction::Backward => other.cmp(one),
        }
    }

    /// Looks which parts come first and second: of equal keys that of the newest part is first.
    fn select(&mut self) {
        let (mut first, mut second) = (None, None);
        let keys = self.parts.iter().enumerate();
        for (number, key) in keys.filter_map(|(number, part)| Some((number, part.0.key()?))) {
            let is_before = |other: Option<(usize, &[u8])>| {
                other.is_none_or(|(_, other)| self.order(key, other).is_lt())
            };
            if is_before(first) {
                second = first.replace((number, key));
            } else if is_before(second) {
                second = Some((number, key));
            }
        }
        let is_shared = first.zip(second).is_some_and(|(one, other)| one.1 == other.1);
        let (first, second) = (first.map(|it| it.0), second.map(|it| it.0));
        (self.first, self.second, self.is_shared) = (first, second, is_shared);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use entresol_base::rng::Rng;

    use super::*;
    use crate::entry::Expiry;
    use crate::transaction::{Own, OwnWrite};

    fn key(number: u64) -> Vec<u8> {
        format!("{number:03}").into_bytes()
    }

    /// Sources of any kind of overlap, from any place, both ways, against a map.
    #[test]
    fn of_each_key_the_newest_source_is_taken() {
        let mut rng = Rng::new(5);
        for _ in 0..300 {
            let mut all: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let (keys, dense) = (1 + rng.below(60), 1 + rng.below(4));
            let sources: Vec<Own> = (0..rng.below(5))
                .map(|source| {
                    let numbers = (0..keys).filter(|_| rng.below(dense) == 0);
                    let value = |number| format!("{source}/{number}").into_bytes();
                    let write =
                        |number| OwnWrite { value: Some(value(number)), expiry: Expiry::NEVER };
                    numbers.map(|number| (key(number), write(number))).collect()
                })
                .collect();
            for (key, write) in sources.iter().rev().flatten() {
                all.insert(key.clone(), write.value.clone().expect("a value"));
            }
            let from = key(rng.below(keys + 2));
            for direction in [Direction::Forward, Direction::Backward] {
                let source = |own: &Own| (Source::own(Arc::new(own.clone()), direction), None);
                let parts = sources.iter().map(source).collect();
                let mut merged = Merged::new(parts, direction, Sequence::MAX);
                merged.seek(Some((&from, true))).expect("in memory");
                let mut taken = Vec::new();
                while merged.take().expect("in memory").is_some() {
                    taken.push((merged.key().to_vec(), merged.value().to_vec()));
                }
                let pair = |(key, value): (&Vec<u8>, &Vec<u8>)| (key.clone(), value.clone());
                let expected: Vec<_> = match direction {
                    Direction::Forward => all.range(from.clone()..).map(pair).collect(),
                    Direction::Backward => all.range(..=from.clone()).rev().map(pair).collect(),
                };
                assert_eq!(taken, expected);
            }
        }
    }
}
