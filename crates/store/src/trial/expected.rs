//! What a store is to hold, as far as a crash lets it.

use std::collections::{BTreeMap, BTreeSet};

use entresol_base::clock::Picos;

use super::{Change, NAMES, To};

/// All that a store holds, by the number of the `Kvs` and the key.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// What must be found after a crash of what one writer wrote.
#[derive(Debug, Clone)]
pub(super) struct Expected {
    /// The states of which a crash may leave one at least: several, if something was refused of
    /// which nobody knows whether it was written.
    floor: BTreeSet<State>,
    /// What was written since then.
    written: Vec<Written>,
    in_flight: Option<Vec<Change>>,
}

/// A write that has ended.
#[derive(Debug, Clone)]
struct Written {
    at: Picos,
    changes: Vec<Change>,
    /// Whether it was acknowledged; else it may have been written or not.
    is_sure: bool,
}

impl Default for Expected {
    fn default() -> Expected {
        let floor = BTreeSet::from([State::new()]);
        Expected { floor, written: Vec::new(), in_flight: None }
    }
}

/// Makes changes to what a store is to hold.
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

/// What becomes of states by a write.
fn applied(states: BTreeSet<State>, changes: &[Change], is_sure: bool) -> BTreeSet<State> {
    let mut next = if is_sure { BTreeSet::new() } else { states.clone() };
    for mut state in states {
        apply(&mut state, changes);
        next.insert(state);
    }
    next
}

impl Expected {
    /// Says that changes are being made.
    pub(super) fn begin(&mut self, changes: &[Change]) {
        self.in_flight = Some(changes.to_vec());
    }

    /// Says that they were acknowledged.
    pub(super) fn acknowledge(&mut self, at: Picos) {
        self.end(at, true);
    }

    /// Says that they were refused, and may have been made all the same.
    pub(super) fn doubt(&mut self, at: Picos) {
        self.end(at, false);
    }

    /// Says that they were refused before anything was done.
    pub(super) fn refuse(&mut self) {
        self.in_flight = None;
    }

    fn end(&mut self, at: Picos, is_sure: bool) {
        let changes = self.in_flight.take();
        self.written.extend(changes.map(|changes| Written { at, changes, is_sure }));
    }

    /// How many were written that a crash may still undo.
    pub(super) fn count(&self) -> usize {
        self.written.len()
    }

    /// Takes what was written first into what a crash leaves at least.
    pub(super) fn settle(&mut self, count: usize) {
        for Written { changes, is_sure, .. } in self.written.drain(..count) {
            self.floor = applied(std::mem::take(&mut self.floor), &changes, is_sure);
        }
    }

    /// Says what was found, and is kept from now on.
    pub(super) fn found(&mut self, found: State) {
        self.floor = BTreeSet::from([found]);
        self.written.clear();
    }

    /// Whether a crash may leave a state; what is older than `old` must be there.
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

    /// All states that programs may see.
    fn seen(&self) -> BTreeSet<State> {
        let mut states = self.floor.clone();
        for Written { changes, is_sure, .. } in &self.written {
            states = applied(states, changes, *is_sure);
        }
        states
    }

    /// Whether it is what was acknowledged, or that and what was in flight.
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

    /// Whether a read may answer this value, or that there is none.
    pub(super) fn may_answer(&self, kvs: usize, key: &[u8], value: Option<&Vec<u8>>) -> bool {
        let key = (kvs, key.to_vec());
        self.seen().iter().any(|state| state.get(&key) == value)
    }
}

/// The same, of the last of several states.
fn difference_of(found: &State, states: &BTreeSet<State>) -> String {
    states.last().map(|state| difference(found, state)).unwrap_or_default()
}

/// Names some keys that are otherwise than they should be.
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
