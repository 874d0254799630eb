//! What the table in DRAM knows of a stripe's keys.

use std::collections::HashMap;

/// The value of a key that is not there.
pub(super) const GONE: u64 = 0;
/// A list of so many changes is worked off by whoever finds it so long.
const LIST_MAX: usize = 32;

/// What is known of a stripe's keys.
#[derive(Debug, Default)]
pub(super) struct Known {
    values: HashMap<u64, u64>,
    /// Changes that are not in `values` yet; of a key the last one counts.
    list: Vec<(u64, u64)>,
    /// The key that somebody is writing.
    writing: Option<u64>,
    /// A key that is not here is not in the tree either.
    is_complete: bool,
    /// A write failed, and nobody knows whether it was done: never complete again.
    is_doubtful: bool,
}

/// What is known of a key.
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

    /// A key is being written.
    pub(super) fn begin(&mut self, key: u64) {
        self.writing = Some(key);
    }

    /// It has been written, and has another value if `value` says one. True: the list is getting
    /// long.
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

    /// A write failed: only the tree knows.
    pub(super) fn doubt(&mut self, key: u64) {
        self.work_off();
        self.writing = None;
        self.values.remove(&key);
        (self.is_complete, self.is_doubtful) = (false, true);
    }

    fn put(&mut self, key: u64, value: u64) {
        // As long as keys are still to be recalled from the tree, what is gone is remembered.
        if value == GONE && self.is_complete {
            self.values.remove(&key);
        } else {
            self.values.insert(key, value);
        }
    }

    pub(super) fn work_off(&mut self) {
        let mut list = std::mem::take(&mut self.list);
        list.drain(..).for_each(|(key, value)| self.put(key, value));
        // Its room is used again.
        self.list = list;
    }

    /// The tree had this some time ago: nothing that is known since gives way to it.
    pub(super) fn recall(&mut self, key: u64, value: u64) {
        if !self.is_doubtful {
            self.values.entry(key).or_insert(value);
        }
    }

    /// All keys that were in the tree have been recalled.
    pub(super) fn complete(&mut self) {
        self.is_complete = !self.is_doubtful;
        if self.is_complete {
            self.values.retain(|_, value| *value != GONE);
        }
    }

    /// Bytes in DRAM: a byte beside each record, an eighth of the places unused at least.
    pub(super) fn bytes(&self) -> u64 {
        (self.values.capacity() * 17 * 8 / 7 + self.list.capacity() * 16) as u64
    }
}
