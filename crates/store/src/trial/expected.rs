//! What a store is to hold, as far as a crash lets it.

use std::collections::BTreeMap;

use entresol_base::clock::Picos;

use super::{Change, NAMES, To};

/// All that a store holds, by the number of the `Kvs` and the key.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// What must be found after a crash of what one writer wrote.
#[derive(Debug, Clone, Default)]
pub(super) struct Expected {
    /// The state that a crash may leave at least.
    floor: State,
    /// What was acknowledged since then, and when.
    acknowledged: Vec<(Picos, Vec<Change>)>,
    in_flight: Option<Vec<Change>>,
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
            To::PrefixGone => {
                state.retain(|(of, other), _| of != kvs || !other.starts_with(key));
            }
        }
    }
}

impl Expected {
    /// Says that changes are being made.
    pub(super) fn begin(&mut self, changes: &[Change]) {
        self.in_flight = Some(changes.to_vec());
    }

    /// Says that they were acknowledged.
    pub(super) fn acknowledge(&mut self, now: Picos) {
        let changes = self.in_flight.take();
        self.acknowledged.extend(changes.map(|changes| (now, changes)));
    }

    /// How many were acknowledged that a crash may still undo.
    pub(super) fn count(&self) -> usize {
        self.acknowledged.len()
    }

    /// Takes what was acknowledged first into what a crash leaves at least.
    pub(super) fn settle(&mut self, count: usize) {
        for (_, changes) in self.acknowledged.drain(..count) {
            apply(&mut self.floor, &changes);
        }
    }

    /// Whether a crash may leave a state; what is older than `old` must be there.
    pub(super) fn check(&self, found: &State, old: Picos) -> Result<(), String> {
        let is_old = |at: Picos| at.0 < old.0;
        let old = self.acknowledged.iter().take_while(|(at, _)| is_old(*at)).count();
        let mut state = self.floor.clone();
        let acknowledged = self.acknowledged.iter().map(|(_, changes)| changes);
        for (number, changes) in acknowledged.chain(&self.in_flight).enumerate() {
            if number >= old && state == *found {
                return Ok(());
            }
            apply(&mut state, changes);
        }
        if state == *found {
            return Ok(());
        }
        Err(format!(
            "what is found is no state that there was: {}; {} writes since the last sync",
            difference(found, &state),
            self.acknowledged.len()
        ))
    }

    /// Whether it is what was acknowledged, or that and what was in flight.
    pub(super) fn check_all(&self, found: &State) -> Result<(), String> {
        let mut state = self.floor.clone();
        self.acknowledged.iter().for_each(|(_, changes)| apply(&mut state, changes));
        let before = state == *found;
        if let Some(changes) = &self.in_flight {
            apply(&mut state, changes);
        }
        match before || state == *found {
            true => Ok(()),
            false => Err(format!("the process died: {}", difference(found, &state))),
        }
    }
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
