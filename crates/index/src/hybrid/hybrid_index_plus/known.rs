//! A stripe of the table in DRAM: its keys and values.

use std::collections::HashMap;

/// Value of a key that is not there.
pub(super) const GONE: u64 = 0;
/// Length of a list at which its finder works it off.
const LIST_MAX: usize = 32;

/// Keys and values of a stripe.
#[derive(Debug, Default)]
pub(super) struct Known {
    values: HashMap<u64, u64>,
    /// Changes that are not in `values` yet; the last one of a key counts.
    list: Vec<(u64, u64)>,
    /// Key that is being written.
    writing: Option<u64>,
    /// True if a key that is not here is not in the tree either.
    is_complete: bool,
    /// True after a write failed that may or may not be done: then the stripe is never complete
    /// again.
    is_doubtful: bool,
}

/// Answer about a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Answer {
    Value(u64),
    Gone,
    AskTree,
}

impl Known {
    pub(super) fn answer(&self, key: u64) -> Answer {
        if self.writing == Some(key) {
            return Answer::AskTree;
        }
        let listed = self.list.iter().rev().find(|it| it.0 == key).map(|it| it.1);
        match listed.or_else(|| self.values.get(&key).copied()) {
            Some(GONE) => Answer::Gone,
            Some(value) => Answer::Value(value),
            None if self.is_complete => Answer::Gone,
            None => Answer::AskTree,
        }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// Begins the write of a key.
    pub(super) fn begin(&mut self, key: u64) {
        self.writing = Some(key);
    }

    /// Ends the write of a key, which has a new value if `value` holds one. Returns true if the
    /// list is getting long.
    pub(super) fn end(&mut self, key: u64, value: Option<u64>, is_told_later: bool) -> bool {
        self.writing = None;
        let Some(value) = value else { return false };
        if !is_told_later || self.list.len() >= LIST_MAX {
            self.work_off();
        }
        if !is_told_later {
            self.put(key, value);
            return false;
        }
        self.list.push((key, value));
        self.list.len() == LIST_MAX / 2
    }

    /// Ends a failed write: only the tree knows the value.
    pub(super) fn doubt(&mut self, key: u64) {
        self.work_off();
        self.writing = None;
        self.values.remove(&key);
        (self.is_complete, self.is_doubtful) = (false, true);
    }

    fn put(&mut self, key: u64, value: u64) {
        // While keys are still being recalled from the tree, removed ones are remembered.
        if value == GONE && self.is_complete {
            self.values.remove(&key);
        } else {
            self.values.insert(key, value);
        }
    }

    pub(super) fn work_off(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        list.drain(..).for_each(|(key, value)| self.put(key, value));
        // Its memory is reused.
        self.list = list;
    }

    /// Enters a value that the tree had some time ago, unless a younger one is known.
    pub(super) fn recall(&mut self, key: u64, value: u64) {
        if !self.is_doubtful {
            self.values.entry(key).or_insert(value);
        }
    }

    /// Marks the stripe as complete: all keys of the tree have been recalled.
    pub(super) fn complete(&mut self) {
        self.is_complete = !self.is_doubtful;
        if self.is_complete {
            self.values.retain(|_, value| *value != GONE);
        }
    }

    /// Returns the bytes in DRAM: a byte beside each record, an eighth of the places unused at
    /// least.
    pub(super) fn bytes(&self) -> u64 {
        (self.values.capacity() * 17 * 8 / 7 + self.list.capacity() * 16) as u64
    }
}
