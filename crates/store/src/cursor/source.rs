//! What a cursor merges: the newest versions in one generation or run, in the order of their keys.

use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use entresol_index::{Direction, Flow};

use crate::StoreError;
use crate::entry::{KvsId, Sequence};
use crate::run::{self, Run};
use crate::transaction::{Own, OwnWrite};
use crate::view::{Held, Version};
use crate::young::{Found, Generation};

/// So many keys are taken from an index at a time.
const KEYS_AT_ONCE: usize = 32;

/// Newest versions in the order of their keys.
#[derive(Debug)]
pub(crate) enum Source {
    Own(Box<OfOwn>),
    Young(Box<Young>),
    Run(Box<OfRun>),
}

/// What a transaction has written itself.
#[derive(Debug)]
pub(crate) struct OfOwn {
    own: Arc<Own>,
    direction: Direction,
    key: Option<Vec<u8>>,
}

#[derive(Debug)]
pub(crate) struct Young {
    generation: Arc<Generation>,
    kvs: KvsId,
    at: Sequence,
    direction: Direction,
    taken: VecDeque<(Vec<u8>, Found)>,
    is_over: bool,
}

#[derive(Debug)]
pub(crate) struct OfRun {
    cursor: run::Cursor,
    direction: Direction,
}

impl Source {
    pub(crate) fn own(own: Arc<Own>, direction: Direction) -> Source {
        Source::Own(Box::new(OfOwn { own, direction, key: None }))
    }

    pub(crate) fn young(
        generation: Arc<Generation>,
        kvs: KvsId,
        at: Sequence,
        direction: Direction,
    ) -> Source {
        let (taken, is_over) = (VecDeque::new(), false);
        Source::Young(Box::new(Young { generation, kvs, at, direction, taken, is_over }))
    }

    /// Runs have one version of a key, and views none that are too new.
    pub(crate) fn run(run: &Arc<Run>, direction: Direction) -> Source {
        Source::Run(Box::new(OfRun { cursor: run.cursor(), direction }))
    }

    /// A run that is merged into another.
    pub(crate) fn merged_run(run: &Arc<Run>) -> Source {
        let (cursor, direction) = (run.cursor_to_merge(), Direction::Forward);
        Source::Run(Box::new(OfRun { cursor, direction }))
    }

    /// Sets it to the first key at or behind a bound, in its direction; without one to the first.
    pub(crate) fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        match self {
            Source::Own(own) => {
                own.seek(bound);
                Ok(())
            }
            Source::Young(young) => young.seek(bound),
            Source::Run(run) => run.seek(bound),
        }
    }

    /// The key that it is at; none at the end.
    pub(crate) fn key(&self) -> Option<&[u8]> {
        match self {
            Source::Own(own) => own.key.as_deref(),
            Source::Young(young) => young.taken.front().map(|(key, _)| key.as_slice()),
            Source::Run(run) => run.cursor.key(),
        }
    }

    /// The newest version of that key.
    pub(crate) fn version(&self) -> Option<Version> {
        match self {
            Source::Own(own) => own.version(),
            Source::Young(young) => young.taken.front().map(|(_, found)| Version {
                sequence: found.sequence,
                expiry: found.expiry,
                value: found.value.map_or(Held::Gone, Held::Apart),
            }),
            Source::Run(run) => run.cursor.entry().map(|entry| Version {
                sequence: entry.sequence,
                expiry: entry.expiry,
                value: Held::at(entry.value),
            }),
        }
    }

    /// Its value, if that lies beside the key.
    pub(crate) fn value(&self) -> &[u8] {
        match self {
            Source::Own(own) => own.write().and_then(|write| write.value.as_deref()),
            Source::Young(_) => None,
            Source::Run(run) => run.cursor.value(),
        }
        .unwrap_or_default()
    }

    /// Goes on to the next key.
    pub(crate) fn advance(&mut self) -> Result<(), StoreError> {
        match self {
            Source::Own(own) => {
                own.advance();
                Ok(())
            }
            Source::Young(young) => young.advance(),
            Source::Run(run) => run.advance(),
        }
    }
}

impl OfOwn {
    fn seek(&mut self, bound: Option<(&[u8], bool)>) {
        let bound = match bound {
            None => Bound::Unbounded,
            Some((key, true)) => Bound::Included(key),
            Some((key, false)) => Bound::Excluded(key),
        };
        let keys = |range: (Bound<&[u8]>, Bound<&[u8]>)| self.own.range::<[u8], _>(range);
        let found = match self.direction {
            Direction::Forward => keys((bound, Bound::Unbounded)).next(),
            Direction::Backward => keys((Bound::Unbounded, bound)).next_back(),
        };
        self.key = found.map(|(key, _)| key.clone());
    }

    fn advance(&mut self) {
        if let Some(key) = self.key.take() {
            self.seek(Some((&key, false)));
        }
    }

    fn write(&self) -> Option<&OwnWrite> {
        self.own.get(self.key.as_deref()?)
    }

    /// Newer than all that counts.
    fn version(&self) -> Option<Version> {
        let write = self.write()?;
        let value = if write.value.is_some() { Held::Here } else { Held::Gone };
        Some(Version { sequence: Sequence::MAX, expiry: write.expiry, value })
    }
}

impl Young {
    fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        self.taken.clear();
        self.is_over = false;
        // Of a key's versions the newest comes first.
        let from = match (bound, self.direction) {
            (None, _) => Bound::Unbounded,
            (Some((key, true)), Direction::Forward) => Bound::Included((key, Sequence::MAX)),
            (Some((key, false)), Direction::Forward) => Bound::Excluded((key, Sequence(0))),
            (Some((key, true)), Direction::Backward) => Bound::Included((key, Sequence(0))),
            (Some((key, false)), Direction::Backward) => Bound::Excluded((key, Sequence::MAX)),
        };
        self.fill(from)
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        let Some((last, _)) = self.taken.pop_front() else { return Ok(()) };
        if self.taken.is_empty() && !self.is_over {
            let end = match self.direction {
                Direction::Forward => Sequence(0),
                Direction::Backward => Sequence::MAX,
            };
            self.fill(Bound::Excluded((&last, end)))?;
        }
        Ok(())
    }

    /// Takes keys with their newest versions that are not too new.
    fn fill(&mut self, from: Bound<(&[u8], Sequence)>) -> Result<(), StoreError> {
        let Young { generation, kvs, at, direction, taken, is_over } = self;
        *is_over = true;
        generation.walk(*kvs, *at, from, *direction, &mut |key, found| {
            if found.sequence > *at {
                return Flow::On;
            }
            let many = taken.len() == KEYS_AT_ONCE;
            match taken.back_mut() {
                Some((last, newest)) if last == key => {
                    if *direction == Direction::Backward {
                        *newest = found;
                    }
                    Flow::On
                }
                _ if many => {
                    *is_over = false;
                    Flow::Stop
                }
                _ => {
                    taken.push_back((key.to_vec(), found));
                    Flow::On
                }
            }
        })
    }
}

impl OfRun {
    fn seek(&mut self, bound: Option<(&[u8], bool)>) -> Result<(), StoreError> {
        // Of a key's versions the newest comes first.
        match (self.direction, bound) {
            (Direction::Forward, None) => self.cursor.seek_first()?,
            (Direction::Backward, None) => self.cursor.seek_last()?,
            (Direction::Forward, Some((key, true))) => {
                self.cursor.seek_first_at_or_after(key, Sequence::MAX)?
            }
            (Direction::Forward, Some((key, false))) => {
                self.cursor.seek_first_at_or_after(key, Sequence(0))?
            }
            (Direction::Backward, Some((key, true))) => {
                self.cursor.seek_last_before(key, Sequence(0))?
            }
            (Direction::Backward, Some((key, false))) => {
                self.cursor.seek_last_before(key, Sequence::MAX)?
            }
        };
        Ok(())
    }

    fn advance(&mut self) -> Result<(), StoreError> {
        match self.direction {
            Direction::Forward => self.cursor.next()?,
            Direction::Backward => self.cursor.prev()?,
        };
        Ok(())
    }
}
