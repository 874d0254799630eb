//! Contents that a store must have, as far as a crash allows.

use std::collections::{BTreeMap, BTreeSet};

use entresol_base::clock::Picos;

use super::{Change, NAMES, To};

/// Contents of a store: values by the number of the `Kvs` and the key.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// Contents that one writer's keys may have after a crash.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// Oldest states that a crash may leave. There are several if a write was refused that may have
    /// been written.
    floor: BTreeSet<State>,
    /// Writes since then.
    written: Vec<Written>,
    in_flight: Option<Vec<Change>>,
}

/// Finished write.
#[derive(Debug, Clone)]
struct Written {
    at: Picos,
    changes: Vec<Change>,
    /// True if the write was acknowledged; otherwise it may have been written or not.
    is_sure: bool,
}

impl Default for Expected {
    fn default() -> Expected {
        let floor = BTreeSet::from([State::new()]);
        Expected { floor, written: Vec::new(), in_flight: None }
    }
}

/// Applies changes to the expected contents.
pub fn apply(state: &mut State, changes: &[Change]) {
    for Change { kvs, key, to } in changes {
        match to {
            To::Value(value) => {
                state.insert((*kvs, key.clone()), value.clone());
            }
            To::Gone => {
                state.remove(&(*kvs, key.clone()));
            }
            To::RangeDelete => {
                state.retain(|(of, other), _| of != kvs || !other.starts_with(key));
            }
        }
    }
}

/// Applies a write to each of several states.
fn applied(states: BTreeSet<State>, changes: &[Change], is_sure: bool) -> BTreeSet<State> {
    let mut next = if is_sure { BTreeSet::new() } else { states.clone() };
    for mut state in states {
        apply(&mut state, changes);
        next.insert(state);
    }
    next
}

impl Expected {
    /// Records the begin of a write.
    pub(super) fn begin(&mut self, changes: &[Change]) {
        self.in_flight = Some(changes.to_vec());
    }

    /// Records that the write was acknowledged.
    pub(super) fn acknowledge(&mut self, at: Picos) {
        self.end(at, true);
    }

    /// Records that the write was refused, and may have been written all the same.
    pub(super) fn doubt(&mut self, at: Picos) {
        self.end(at, false);
    }

    /// Records that the write was refused before anything was written.
    pub(super) fn refuse(&mut self) {
        self.in_flight = None;
    }

    fn end(&mut self, at: Picos, is_sure: bool) {
        let changes = self.in_flight.take();
        self.written.extend(changes.map(|changes| Written { at, changes, is_sure }));
    }

    /// Returns the number of writes that a crash may still undo.
    pub(super) fn count(&self) -> usize {
        self.written.len()
    }

    /// Makes the oldest writes part of every state that a crash may leave.
    pub(super) fn settle(&mut self, count: usize) {
        for Written { changes, is_sure, .. } in self.written.drain(..count) {
            self.floor = applied(std::mem::take(&mut self.floor), &changes, is_sure);
        }
    }

    /// Records contents that were found, and that must be kept from now on.
    pub(super) fn found(&mut self, found: State) {
        self.floor = BTreeSet::from([found]);
        self.written.clear();
    }

    /// Checks that a crash may leave a state. Writes older than `old` must be in it.
    pub(super) fn check(&self, found: &State, old: Picos) -> Result<(), String> {
        let old = self.written.iter().take_while(|written| written.at.0 < old.0).count();
        let mut states = self.floor.clone();
        let written = self.written.iter().map(|it| (it.changes.as_slice(), it.is_sure));
        let in_flight = self.in_flight.iter().map(|changes| (changes.as_slice(), true));
        for (number, (changes, is_sure)) in written.chain(in_flight).enumerate() {
            if number >= old && states.contains(found) {
                return Ok(());
            }
            states = applied(states, changes, is_sure);
        }
        if states.contains(found) {
            return Ok(());
        }
        Err(format!(
            "what is found is no state that there was: {}; {} writes since the last sync",
            difference_of(found, &states),
            self.written.len()
        ))
    }

    /// Returns all states that readers may see.
    fn seen(&self) -> BTreeSet<State> {
        let mut states = self.floor.clone();
        for Written { changes, is_sure, .. } in &self.written {
            states = applied(states, changes, *is_sure);
        }
        states
    }

    /// Checks that a state holds all acknowledged writes, with or without the one in flight.
    pub(super) fn check_all(&self, found: &State) -> Result<(), String> {
        let mut states = self.seen();
        if let Some(changes) = &self.in_flight {
            states = applied(states, changes, false);
        }
        match states.contains(found) {
            true => Ok(()),
            false => Err(format!("the process died: {}", difference_of(found, &states))),
        }
    }

    /// Returns true if a read may return this value, or none.
    pub(super) fn may_answer(&self, kvs: usize, key: &[u8], value: Option<&Vec<u8>>) -> bool {
        let key = (kvs, key.to_vec());
        self.seen().iter().any(|state| state.get(&key) == value)
    }
}

/// Names differences from the last of several states.
fn difference_of(found: &State, states: &BTreeSet<State>) -> String {
    states.last().map(|state| difference(found, state)).unwrap_or_default()
}

/// Names some keys that differ from their expected values.
#[must_use]
pub fn difference(found: &State, expected: &State) -> String {
    let keys = found.keys().chain(expected.keys());
    let odd = keys.filter(|key| found.get(*key) != expected.get(*key));
    let odd = odd.map(|key| {
        let name = |value: Option<&Vec<u8>>| match value {
            Some(value) => format!("{} bytes of {:?}", value.len(), value.first()),
            None => "nothing".to_owned(),
        };
        let (is, was) = (name(found.get(key)), name(expected.get(key)));
        format!("{} {} has {is}, written was {was}", NAMES[key.0], String::from_utf8_lossy(&key.1))
    });
    let mut odd: Vec<String> = odd.collect();
    odd.dedup();
    odd.truncate(6);
    odd.join("; ")
}
