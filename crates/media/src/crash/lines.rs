//! What caches hold of a region: for each line the stores that may not be durable yet.
//!
//! A line is written back as a whole, at any time, so what is durable of it is its state after some
//! of its stores, in their order. A copy of several words is one store whose words have no order.
//! Lines know nothing of each other.

use crate::observe::LINE_BYTES;
use crate::region::Direct;

/// More states than this of one line are not told apart one by one: of a copy of several words
/// only those that a copy in ascending order passes through, and in the end only the whole copy.
const STATES_FINE: u32 = 4096;
const STATES_MAX: u32 = u16::MAX as u32;

/// A line with more states is not searched for states that look the same.
const STATES_COMPARED: u32 = 64;

/// The words of a line.
pub(super) type Words = [u64; 8];

/// A word of a line and what it is after a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) word: u8,
    pub(super) value: u64,
    /// Whether poison waits for it, so that even what is no other value makes a difference.
    pub(super) heals: bool,
}

/// The lines whose newest contents may not be durable.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// For each line of the region its index in `dirty`, plus one.
    slots: Vec<u32>,
    dirty: Vec<Line>,
    spare: Vec<Line>,
    /// Lines that were flushed, and by which thread.
    flushed: Vec<(u32, u64)>,
    orders: Vec<Order>,
}

#[derive(Debug, Default)]
struct Line {
    number: u64,
    durable: Words,
    atoms: Vec<Atom>,
    stores: Vec<Store>,
    /// A thread's latest flush: the sequence number.
    marks: Vec<(u32, u64)>,
    /// Whether some word was stored more than once.
    rewritten: bool,
    /// Whether poison waits for some atom.
    heals: bool,
}

/// Some atoms of a line that were stored in one access.
#[derive(Debug, Clone, Copy)]
struct Store {
    thread: u32,
    sequence: u64,
    /// Where its atoms end in the line's list.
    end: u32,
    /// The number of the state after it; those between it and the last one's are its parts.
    state: u32,
    parts: Parts,
}

/// Which parts of a store may be durable without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Any: bit by bit, the state's number says which.
    Any,
    /// The first so many.
    First,
    /// None.
    Whole,
}

/// A `clflush`: this thread's later stores are not durable before what was in the line.
#[derive(Debug, Clone, Copy)]
struct Order {
    thread: u32,
    sequence: u64,
    line: u64,
}

impl Lines {
    /// Readies it for a region of this many bytes.
    pub(super) fn reset(&mut self, region_bytes: u64) {
        for line in self.dirty.drain(..) {
            self.slots[line.number as usize] = 0;
            self.spare.push(line);
        }
        self.flushed.clear();
        self.orders.clear();
        self.slots.resize((region_bytes / LINE_BYTES) as usize, 0);
    }

    pub(super) fn is_dirty(&self, line: u64) -> bool {
        self.slots[line as usize] != 0
    }

    fn get(&self, line: u64) -> Option<&Line> {
        self.slots[line as usize].checked_sub(1).map(|slot| &self.dirty[slot as usize])
    }

    /// Notes that `atoms`, which make a difference, are about to be stored in `line`.
    pub(super) fn store(
        &mut self,
        bytes: &Direct,
        line: u64,
        atoms: &[Atom],
        (thread, sequence): (u32, u64),
    ) {
        if atoms.is_empty() {
            return;
        }
        if !self.is_dirty(line) {
            let mut fresh = self.spare.pop().unwrap_or_default();
            fresh.begin(line, bytes.load_line(line * LINE_BYTES));
            self.dirty.push(fresh);
            self.slots[line as usize] = self.dirty.len() as u32;
        }
        let slot = self.slots[line as usize] as usize - 1;
        self.dirty[slot].push(atoms, thread, sequence);
    }

    /// Notes that a thread flushes a line; with `ordered` its later stores wait for that.
    pub(super) fn flush(&mut self, line: u64, (thread, sequence): (u32, u64), ordered: bool) {
        let Some(slot) = self.slots[line as usize].checked_sub(1) else { return };
        let marks = &mut self.dirty[slot as usize].marks;
        match marks.iter_mut().find(|(who, _)| *who == thread) {
            Some((_, latest)) => *latest = sequence,
            None => {
                marks.push((thread, sequence));
                self.flushed.push((thread, line));
            }
        }
        if ordered {
            self.orders.push(Order { thread, sequence, line });
        }
    }

    /// Whether a fence of this thread makes anything durable.
    pub(super) fn has_flushed(&self, thread: u32) -> bool {
        self.flushed.iter().any(|&(who, _)| who == thread)
    }

    /// Makes durable what this thread has flushed.
    pub(super) fn fence(&mut self, thread: u32) {
        let mut flushed = std::mem::take(&mut self.flushed);
        flushed.retain(|&(who, line)| {
            if who == thread {
                self.arrive(line, thread);
            }
            who != thread
        });
        self.flushed = flushed;
        if !self.orders.is_empty() {
            let mut orders = std::mem::take(&mut self.orders);
            orders.retain(|order| self.get(order.line).is_some_and(|line| line.binds(order)));
            self.orders = orders;
        }
    }

    /// A line's stores up to this thread's latest flush are durable.
    fn arrive(&mut self, line: u64, thread: u32) {
        let Some(slot) = self.slots[line as usize].checked_sub(1) else { return };
        let dirty = &mut self.dirty[slot as usize];
        let Some(mark) = dirty.marks.iter().position(|&(who, _)| who == thread) else { return };
        let (_, sequence) = dirty.marks.swap_remove(mark);
        dirty.settle_before(sequence);
        if dirty.stores.is_empty() {
            self.clean(slot);
        }
    }

    fn clean(&mut self, slot: u32) {
        let line = self.dirty.swap_remove(slot as usize);
        self.slots[line.number as usize] = 0;
        if let Some(moved) = self.dirty.get(slot as usize) {
            self.slots[moved.number as usize] = slot + 1;
        }
        self.spare.push(line);
    }

    /// Changes a bit of what is there, whatever state it is in.
    pub(super) fn flip(&mut self, line: u64, word: u8, bit: u64) {
        let Some(slot) = self.slots[line as usize].checked_sub(1) else { return };
        let dirty = &mut self.dirty[slot as usize];
        dirty.durable[usize::from(word)] ^= bit;
        dirty.atoms.iter_mut().filter(|atom| atom.word == word).for_each(|atom| atom.value ^= bit);
    }

    /// How many lines are dirty.
    pub(super) fn len(&self) -> usize {
        self.dirty.len()
    }

    /// The number of the line that is a unit.
    pub(super) fn number(&self, unit: usize) -> u64 {
        self.dirty[unit].number
    }

    /// How many states each dirty line has beside the durable one.
    pub(super) fn units(&self, units: &mut Vec<u16>) {
        units.extend(self.dirty.iter().map(|line| line.states() as u16));
    }

    /// When what is not durable was stored.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.dirty.iter().flat_map(|line| line.stores.iter().map(|store| store.sequence))
    }

    /// The states with everything that was stored before.
    pub(super) fn cut(&self, moment: u64, choices: &mut [u16]) {
        for (line, choice) in self.dirty.iter().zip(choices) {
            *choice = line.state_before(moment) as u16;
        }
    }

    /// The unit in which a word for which poison waits is on its way.
    pub(super) fn healer(&self, word: u64) -> Option<usize> {
        let unit = self.slots[(word / 8) as usize].checked_sub(1)? as usize;
        let heals = |atom: &Atom| atom.heals && u64::from(atom.word) == word % 8;
        self.dirty[unit].atoms.iter().any(heals).then_some(unit)
    }

    /// Whether such a word is there in a state.
    pub(super) fn is_healed(&self, unit: usize, word: u64, choice: u16) -> bool {
        let mut healed = false;
        let heals = |atom: &Atom| atom.heals && u64::from(atom.word) == word % 8;
        self.dirty[unit].each(choice.into(), |atom| healed |= heals(atom));
        healed
    }

    /// What a line holds in a state.
    pub(super) fn words(&self, unit: usize, choice: u16) -> Words {
        self.dirty[unit].words(u32::from(choice))
    }

    /// Raises choices until every `clflush` is kept, then takes the first that look the same.
    pub(super) fn settle(&self, choices: &mut [u16]) {
        while self.raise(choices) {}
        for (line, choice) in self.dirty.iter().zip(choices) {
            if line.rewritten && !line.heals && line.states() <= STATES_COMPARED {
                let words = line.words(u32::from(*choice));
                let same = (0..*choice).find(|&earlier| line.words(u32::from(earlier)) == words);
                *choice = same.unwrap_or(*choice);
            }
        }
    }

    fn raise(&self, choices: &mut [u16]) -> bool {
        let mut raised = false;
        for order in &self.orders {
            let Some(slot) = self.slots[order.line as usize].checked_sub(1) else { continue };
            let needed = self.dirty[slot as usize].state_before(order.sequence);
            let lines = self.dirty.iter().zip(&*choices);
            if u32::from(choices[slot as usize]) < needed
                && lines.clone().any(|(line, &choice)| line.holds(u32::from(choice), order))
            {
                choices[slot as usize] = needed as u16;
                raised = true;
            }
        }
        raised
    }
}

impl Line {
    fn begin(&mut self, number: u64, durable: Words) {
        self.number = number;
        self.durable = durable;
        self.atoms.clear();
        self.stores.clear();
        self.marks.clear();
        self.rewritten = false;
        self.heals = false;
    }

    fn states(&self) -> u32 {
        self.stores.last().map_or(0, |store| store.state)
    }

    fn push(&mut self, atoms: &[Atom], thread: u32, sequence: u64) {
        let known = |atom: &Atom| self.atoms.iter().any(|other| other.word == atom.word);
        self.rewritten = self.rewritten || atoms.iter().any(known);
        self.heals = self.heals || atoms.iter().any(|atom| atom.heals);
        self.atoms.extend_from_slice(atoms);
        let (before, any, first) = (self.states(), (1 << atoms.len()) - 1, atoms.len() as u32);
        let (parts, states) = match before {
            _ if before + any <= STATES_FINE => (Parts::Any, any),
            _ if before + first < STATES_MAX => (Parts::First, first),
            _ => (Parts::Whole, u32::from(before < STATES_MAX)),
        };
        let end = self.atoms.len() as u32;
        if states == 0 {
            // Beyond all counting: the last store grows.
            if let Some(last) = self.stores.last_mut() {
                (last.end, last.sequence, last.parts) = (end, sequence, Parts::Whole);
            }
            return;
        }
        self.stores.push(Store { thread, sequence, end, state: before + states, parts });
    }

    /// The first `count` stores are no news any more.
    fn settle_before(&mut self, sequence: u64) {
        let count = self.stores.partition_point(|store| store.sequence < sequence);
        let Some(last) = count.checked_sub(1).map(|last| self.stores[last]) else { return };
        for atom in self.atoms.drain(..last.end as usize) {
            self.durable[usize::from(atom.word)] = atom.value;
        }
        self.stores.drain(..count);
        for store in &mut self.stores {
            store.end -= last.end;
            store.state -= last.state;
        }
    }

    /// The state after all stores before `sequence`.
    fn state_before(&self, sequence: u64) -> u32 {
        let count = self.stores.partition_point(|store| store.sequence < sequence);
        count.checked_sub(1).map_or(0, |last| self.stores[last].state)
    }

    /// Whether the order speaks of anything that is not durable.
    fn binds(&self, order: &Order) -> bool {
        self.state_before(order.sequence) > 0
    }

    /// Whether the state holds (part of) a store that the order lets wait.
    fn holds(&self, state: u32, order: &Order) -> bool {
        let mut before = 0;
        self.stores.iter().any(|store| {
            let begun = state > std::mem::replace(&mut before, store.state);
            begun && store.thread == order.thread && store.sequence > order.sequence
        })
    }

    fn words(&self, state: u32) -> Words {
        let mut words = self.durable;
        self.each(state, |atom| words[usize::from(atom.word)] = atom.value);
        words
    }

    /// The atoms that are there in a state, in their order.
    fn each(&self, state: u32, mut put: impl FnMut(&Atom)) {
        let (mut begin, mut before) = (0, 0);
        for store in &self.stores {
            if state <= before {
                break;
            }
            let atoms = &self.atoms[begin..store.end as usize];
            let part = state - before;
            match store.parts {
                _ if state >= store.state => atoms.iter().for_each(&mut put),
                Parts::Any => {
                    let chosen = atoms.iter().enumerate().filter(|(bit, _)| part >> bit & 1 == 1);
                    chosen.for_each(|(_, atom)| put(atom));
                }
                Parts::First => atoms[..part as usize].iter().for_each(&mut put),
                Parts::Whole => {}
            }
            (begin, before) = (store.end as usize, store.state);
        }
    }
}
