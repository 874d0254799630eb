//! Stores past the caches: each word of eight bytes arrives separately, in no order, until the
//! thread that stored it executes a fence.

use std::collections::HashMap;

use entresol_media::observe::LINE_BYTES;

/// Pending words.
#[derive(Debug, Default)]
pub(super) struct Streams {
    slots: HashMap<u64, usize>,
    words: Vec<Word>,
}

#[derive(Debug)]
struct Word {
    /// Number of the word in the region.
    number: u64,
    durable: u64,
    /// Values stored in it.
    values: Vec<Value>,
    /// True if storing it heals poison.
    heals: bool,
}

#[derive(Debug)]
struct Value {
    thread: u32,
    sequence: u64,
    value: u64,
}

impl Streams {
    pub(super) fn reset(&mut self) {
        self.slots.clear();
        self.words.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Returns true if some word of the line is pending.
    pub(super) fn touches(&self, line: u64) -> bool {
        let per_line = LINE_BYTES / 8;
        let mut words = line * per_line..(line + 1) * per_line;
        !self.is_empty() && words.any(|word| self.slots.contains_key(&word))
    }

    /// Notes that a word with the value `before` will be stored; `heals` tells if that heals
    /// poison.
    pub(super) fn store(
        &mut self,
        number: u64,
        (before, value): (u64, u64),
        heals: bool,
        (thread, sequence): (u32, u64),
    ) {
        let known = self.slots.get(&number).copied();
        if known.is_none() && before == value && !heals {
            return;
        }
        let slot = known.unwrap_or_else(|| {
            self.words.push(Word { number, durable: before, values: Vec::new(), heals: false });
            self.slots.insert(number, self.words.len() - 1);
            self.words.len() - 1
        });
        self.words[slot].values.push(Value { thread, sequence, value });
        self.words[slot].heals |= heals;
    }

    /// Returns the unit of a pending word that heals poison.
    pub(super) fn healer(&self, number: u64) -> Option<usize> {
        self.slots.get(&number).copied().filter(|&slot| self.words[slot].heals)
    }

    /// Returns true if a fence of this thread makes anything durable.
    pub(super) fn has_stored(&self, thread: u32) -> bool {
        self.words.iter().any(|word| word.values.iter().any(|value| value.thread == thread))
    }

    /// Makes this thread's stores durable.
    pub(super) fn fence(&mut self, thread: u32) {
        if self.is_empty() {
            return;
        }
        self.words.retain_mut(|word| {
            if let Some(last) = word.values.iter().rposition(|value| value.thread == thread) {
                word.durable = word.values[last].value;
                word.values.drain(..=last);
                word.heals = false;
            }
            !word.values.is_empty()
        });
        self.slots.clear();
        self.slots.extend(self.words.iter().enumerate().map(|(slot, word)| (word.number, slot)));
    }

    pub(super) fn flip(&mut self, number: u64, bit: u64) {
        if let Some(&slot) = self.slots.get(&number) {
            let word = &mut self.words[slot];
            word.durable ^= bit;
            word.values.iter_mut().for_each(|value| value.value ^= bit);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.words.len()
    }

    /// Returns the word number of a unit.
    pub(super) fn number(&self, unit: usize) -> u64 {
        self.words[unit].number
    }

    pub(super) fn units(&self, units: &mut Vec<u16>) {
        let states = |word: &Word| word.values.len().min(usize::from(u16::MAX)) as u16;
        units.extend(self.words.iter().map(states));
    }

    /// Returns the moments of the stores that are not durable.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.words.iter().flat_map(|word| word.values.iter().map(|value| value.sequence))
    }

    /// Chooses the states with all stores before a moment.
    pub(super) fn cut(&self, moment: u64, choices: &mut [u16]) {
        for (word, choice) in self.words.iter().zip(choices) {
            let before = word.values.partition_point(|value| value.sequence < moment);
            *choice = before.min(usize::from(u16::MAX)) as u16;
        }
    }

    /// Returns a word's value in a state.
    pub(super) fn value(&self, unit: usize, choice: u16) -> u64 {
        let word = &self.words[unit];
        match usize::from(choice) {
            0 => word.durable,
            state => word.values[state - 1].value,
        }
    }

    /// Takes the first of equal states.
    pub(super) fn settle(&self, choices: &mut [u16]) {
        for (unit, choice) in choices.iter_mut().enumerate() {
            if self.words[unit].heals {
                continue;
            }
            let value = self.value(unit, *choice);
            let same = (0..*choice).find(|&earlier| self.value(unit, earlier) == value);
            *choice = same.unwrap_or(*choice);
        }
    }
}
