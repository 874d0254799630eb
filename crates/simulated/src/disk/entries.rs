//! Names in a directory of a simulated disk, and their states after a crash.
//!
//! A directory has its durable entries and a list of later changes: names made, removed, or moved.
//! Each change is one unit: a crash keeps any of them, in order. So a file may be found under both
//! its old and its new name only if these were changed separately; a rename happened as a whole or
//! not at all. The changes under a failed sync stay units until later changes of these names are
//! durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tree::NodeId;

/// A change of the names in a directory.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A name was added.
    Put(String, NodeId),
    /// A name was removed.
    Remove(String),
    /// A name was moved, replacing the file that had the new one.
    Rename { from: String, to: String, node: NodeId },
}

impl Change {
    fn apply(&self, entries: &mut BTreeMap<String, NodeId>) {
        match self {
            Change::Put(name, node) => {
                entries.insert(name.clone(), *node);
            }
            Change::Remove(name) => {
                entries.remove(name);
            }
            Change::Rename { from, to, node } => {
                entries.remove(from);
                entries.insert(to.clone(), *node);
            }
        }
    }

    fn node(&self) -> Option<NodeId> {
        match self {
            Change::Put(_, node) | Change::Rename { node, .. } => Some(*node),
            Change::Remove(_) => None,
        }
    }

    /// Returns the names that it affects.
    fn names(&self) -> impl Iterator<Item = &str> {
        let (one, other) = match self {
            Change::Put(name, _) | Change::Remove(name) => (name, None),
            Change::Rename { from, to, .. } => (from, Some(to.as_str())),
        };
        std::iter::once(one.as_str()).chain(other)
    }

    fn shares_with(&self, other: &Change) -> bool {
        self.names().any(|name| other.names().any(|theirs| theirs == name))
    }
}

/// A change, and its fate so far.
#[derive(Debug, Clone)]
struct Pending {
    change: Change,
    /// Time at which it was made, by [`Power::tick`](crate::crash::Power::tick).
    order: u64,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A sync makes it durable.
    Open,
    /// A sync that covered it failed: it may be durable or not, and no later sync decides that.
    Unsure,
    /// Durable, but dependent on an earlier change whose fate is unknown.
    Durable,
}

/// Names with their nodes; shared until changed.
pub(super) type Entries = Arc<BTreeMap<String, NodeId>>;

/// State of a directory.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    durable: Entries,
    changes: Vec<Pending>,
    /// Names as programs see them.
    live: Entries,
}

impl Names {
    /// Makes a directory whose entries are durable.
    pub(super) fn of(entries: Entries) -> Names {
        let (durable, live) = (Arc::clone(&entries), entries);
        Names { durable, live, ..Names::default() }
    }

    pub(super) fn get(&self, name: &str) -> Option<NodeId> {
        self.live.get(name).copied()
    }

    pub(super) fn live(&self) -> &BTreeMap<String, NodeId> {
        &self.live
    }

    pub(super) fn change(&mut self, change: Change, order: u64) {
        change.apply(Arc::make_mut(&mut self.live));
        self.changes.push(Pending { change, order, fate: Fate::Open });
    }

    /// Returns the number of changes that a crash may keep or lose.
    pub(super) fn units(&self) -> usize {
        self.unsettled().count()
    }

    fn unsettled(&self) -> impl Iterator<Item = &Pending> {
        self.changes.iter().filter(|pending| pending.fate != Fate::Durable)
    }

    /// Returns the moments of these changes.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.unsettled().map(|pending| pending.order)
    }

    /// Returns for each of these changes 1 if it was made before the moment, else 0.
    pub(super) fn states_before(&self, moment: u64) -> impl Iterator<Item = u16> {
        self.moments().map(move |order| u16::from(order < moment))
    }

    fn covered(&mut self, cut: u64) -> impl Iterator<Item = &mut Pending> {
        let open = |pending: &&mut Pending| pending.fate == Fate::Open;
        self.changes.iter_mut().filter(move |pending| pending.order < cut).filter(open)
    }

    /// Makes the changes made before the sync began durable.
    pub(super) fn settle(&mut self, cut: u64) {
        self.covered(cut).for_each(|pending| pending.fate = Fate::Durable);
        self.forget_decided();
        for pending in std::mem::take(&mut self.changes) {
            // It becomes a durable entry unless it depends on a change whose fate is unknown.
            let waits = |before: &Pending| pending.change.shares_with(&before.change);
            if pending.fate == Fate::Durable && !self.changes.iter().any(waits) {
                pending.change.apply(Arc::make_mut(&mut self.durable));
            } else {
                self.changes.push(pending);
            }
        }
        if self.is_settled() {
            self.durable = Arc::clone(&self.live);
        }
    }

    /// Drops changes that later durable ones override.
    fn forget_decided(&mut self) {
        let mut decided: BTreeSet<String> = BTreeSet::new();
        let mut kept = Vec::new();
        for pending in std::mem::take(&mut self.changes).into_iter().rev() {
            if pending.change.names().all(|name| decided.contains(name)) {
                continue;
            }
            if pending.fate == Fate::Durable {
                decided.extend(pending.change.names().map(str::to_owned));
            }
            kept.push(pending);
        }
        kept.reverse();
        self.changes = kept;
    }

    /// Handles a failed sync: the kernel takes the changes for durable, and it is unknown if they
    /// are.
    pub(super) fn lose(&mut self, cut: u64) {
        self.covered(cut).for_each(|pending| pending.fate = Fate::Unsure);
    }

    /// Returns the entries after a crash that keeps the changes whose choice is not zero.
    pub(super) fn after(&self, choices: &[u16]) -> Entries {
        let mut entries = Arc::clone(&self.durable);
        let mut choices = choices.iter();
        for Pending { change, fate, .. } in &self.changes {
            if *fate == Fate::Durable || choices.next().is_some_and(|&choice| choice > 0) {
                change.apply(Arc::make_mut(&mut entries));
            }
        }
        entries
    }

    /// Returns true if a crash leaves the directory as programs see it.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty() && self.durable == self.live
    }

    pub(super) fn mentions(&self, node: NodeId) -> bool {
        self.durable.values().any(|&named| named == node)
            || self.live.values().any(|&named| named == node)
            || self.changes.iter().any(|pending| pending.change.node() == Some(node))
    }

    /// Drops changes that make no difference from a choice. (Names that move back and forth leave
    /// some equal choices, since finding all of them would take too long.)
    pub(super) fn settle_choices(&self, choices: &mut [u16]) {
        let found = self.after(choices);
        for at in (0..choices.len()).rev() {
            if choices[at] > 0 {
                choices[at] = 0;
                if self.after(choices) != found {
                    choices[at] = 1;
                }
            }
        }
    }
}
