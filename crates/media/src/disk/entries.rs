//! The names in a directory of a simulated disk, and which of them a crash leaves.
//!
//! A directory has its durable entries and the list of what changed since: a name that was made,
//! removed, or moved. Each change is one unit: a crash keeps any of them, in their order. So a file
//! may be found under a new name whose old one is still there only if both were changed apart; a
//! rename is there or it is not. What a sync that failed was to make durable stays a unit until
//! later changes of the same names are durable.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tree::NodeId;

/// What was done to the names in a directory.
#[derive(Debug, Clone)]
pub(super) enum Change {
    /// A name was given.
    Put(String, NodeId),
    /// A name was removed.
    Remove(String),
    /// A name was moved, in place of what had the new one.
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

    /// The names that it decides.
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

/// A change, and what is known of it.
#[derive(Debug, Clone)]
struct Pending {
    change: Change,
    /// When it was made, by [`Power::tick`](crate::crash::Power::tick).
    order: u64,
    fate: Fate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// A sync makes it durable.
    Open,
    /// A sync that covered it failed: it is there or it is not, and no later sync decides that.
    Unsure,
    /// It is durable, but what it was done after is not sure.
    Durable,
}

/// What names in a directory stand for; shared until it changes.
pub(super) type Entries = Arc<BTreeMap<String, NodeId>>;

/// A directory's state.
#[derive(Debug, Clone, Default)]
pub(super) struct Names {
    durable: Entries,
    changes: Vec<Pending>,
    /// What programs see.
    live: Entries,
}

impl Names {
    /// A directory whose entries are durable.
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

    /// How many changes a crash keeps or not.
    pub(super) fn units(&self) -> usize {
        self.unsettled().count()
    }

    fn unsettled(&self) -> impl Iterator<Item = &Pending> {
        self.changes.iter().filter(|pending| pending.fate != Fate::Durable)
    }

    /// When they were made.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.unsettled().map(|pending| pending.order)
    }

    /// Which of them were made before.
    pub(super) fn states_before(&self, moment: u64) -> impl Iterator<Item = u16> {
        self.moments().map(move |order| u16::from(order < moment))
    }

    fn covered(&mut self, cut: u64) -> impl Iterator<Item = &mut Pending> {
        let open = |pending: &&mut Pending| pending.fate == Fate::Open;
        self.changes.iter_mut().filter(move |pending| pending.order < cut).filter(open)
    }

    /// Makes durable what was changed before the sync began.
    pub(super) fn settle(&mut self, cut: u64) {
        self.covered(cut).for_each(|pending| pending.fate = Fate::Durable);
        self.forget_decided();
        for pending in std::mem::take(&mut self.changes) {
            // It goes to the durable entries unless it was done after something that is not sure.
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

    /// Forgets the changes of which later durable ones leave nothing.
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

    /// What a failed sync does: the changes are taken for durable, and whether they are, nobody
    /// knows.
    pub(super) fn lose(&mut self, cut: u64) {
        self.covered(cut).for_each(|pending| pending.fate = Fate::Unsure);
    }

    /// The entries after a crash that keeps the changes whose choice is not zero.
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

    /// Whether a crash leaves it as programs see it.
    pub(super) fn is_settled(&self) -> bool {
        self.changes.is_empty() && self.durable == self.live
    }

    pub(super) fn mentions(&self, node: NodeId) -> bool {
        self.durable.values().any(|&named| named == node)
            || self.live.values().any(|&named| named == node)
            || self.changes.iter().any(|pending| pending.change.node() == Some(node))
    }

    /// Drops changes from a choice that make no difference to what is found. (Of names that go to
    /// and fro some choices are left that look the same: to find them all would take too long.)
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
