//! Pending stores of a region: for each cache line those that may not be durable yet.
//!
//! A line is written back as a whole, at any time, so its durable content is its state after some
//! first stores, in order. A copy of several words is one store whose words have no order. Lines
//! are independent of each other.

use entresol_media::observe::LINE_BYTES;
use entresol_media::region::Direct;

/// Maximum number of states of one line that are all distinguished. Beyond, a copy of several words
/// has only the states of a copy in ascending order, and in the end only the whole copy.
const STATES_FINE: u32 = 4096;
const STATES_MAX: u32 = u16::MAX as u32;

/// Maximum number of states of a line that is searched for equal states.
const STATES_COMPARED: u32 = 64;

/// Words of a line.
pub(super) type Words = [u64; 8];

/// A word of a line and its value after a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Atom {
    pub(super) word: u8,
    pub(super) value: u64,
    /// True if storing it heals poison, so that even an equal value makes a difference.
    pub(super) heals: bool,
}

/// Lines whose newest contents may not be durable.
#[derive(Debug, Default)]
pub(super) struct Lines {
    /// Index in `dirty`, plus one, of each line of the region.
    slots: Vec<u32>,
    dirty: Vec<Line>,
    spare: Vec<Line>,
    /// Flushed lines, each with the thread that flushed it.
    flushed: Vec<(u32, u64)>,
    orders: Vec<Order>,
}

#[derive(Debug, Default)]
struct Line {
    number: u64,
    durable: Words,
    atoms: Vec<Atom>,
    stores: Vec<Store>,
    /// Each thread's latest flush: its sequence number.
    marks: Vec<(u32, u64)>,
    /// True if some word was stored more than once.
    rewritten: bool,
    /// True if storing some atom heals poison.
    heals: bool,
}

/// Atoms of a line that were stored in one access.
#[derive(Debug, Clone, Copy)]
struct Store {
    thread: u32,
    sequence: u64,
    /// End of its atoms in the line's list.
    end: u32,
    /// Number of the state after it; states since that of the previous store are its parts.
    state: u32,
    parts: Parts,
}

/// Parts of a store that may be durable without the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Parts {
    /// Any: the bits of the state's number tell which.
    Any,
    /// Any first atoms.
    First,
    /// None.
    Whole,
}

/// A `clflush`: the thread's later stores are not durable before the line's earlier content.
#[derive(Debug, Clone, Copy)]
struct Order {
    thread: u32,
    sequence: u64,
    line: u64,
}

impl Lines {
    /// Prepares it for a region of this many bytes.
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

    /// Notes that `atoms`, which make a difference, will be stored in `line`.
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

    /// Returns true if a fence of this thread makes anything durable.
    pub(super) fn has_flushed(&self, thread: u32) -> bool {
        self.flushed.iter().any(|&(who, _)| who == thread)
    }

    /// Makes this thread's flushed lines durable.
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

    /// Makes a line's stores up to this thread's latest flush durable.
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

    /// Flips a bit of a word, in all states.
    pub(super) fn flip(&mut self, line: u64, word: u8, bit: u64) {
        let Some(slot) = self.slots[line as usize].checked_sub(1) else { return };
        let dirty = &mut self.dirty[slot as usize];
        dirty.durable[usize::from(word)] ^= bit;
        dirty.atoms.iter_mut().filter(|atom| atom.word == word).for_each(|atom| atom.value ^= bit);
    }

    /// Returns the number of dirty lines.
    pub(super) fn len(&self) -> usize {
        self.dirty.len()
    }

    /// Returns the line number of a unit.
    pub(super) fn number(&self, unit: usize) -> u64 {
        self.dirty[unit].number
    }

    /// Adds the number of states that each dirty line has besides the durable one.
    pub(super) fn units(&self, units: &mut Vec<u16>) {
        units.extend(self.dirty.iter().map(|line| line.states() as u16));
    }

    /// Returns the moments of the stores that are not durable.
    pub(super) fn moments(&self) -> impl Iterator<Item = u64> {
        self.dirty.iter().flat_map(|line| line.stores.iter().map(|store| store.sequence))
    }

    /// Chooses the states with all stores before a moment.
    pub(super) fn cut(&self, moment: u64, choices: &mut [u16]) {
        for (line, choice) in self.dirty.iter().zip(choices) {
            *choice = line.state_before(moment) as u16;
        }
    }

    /// Returns the unit with a pending store that heals poison of this word.
    pub(super) fn healer(&self, word: u64) -> Option<usize> {
        let unit = self.slots[(word / 8) as usize].checked_sub(1)? as usize;
        let heals = |atom: &Atom| atom.heals && u64::from(atom.word) == word % 8;
        self.dirty[unit].atoms.iter().any(heals).then_some(unit)
    }

    /// Returns true if a state of the unit includes such a store.
    pub(super) fn is_healed(&self, unit: usize, word: u64, choice: u16) -> bool {
        let mut healed = false;
        let heals = |atom: &Atom| atom.heals && u64::from(atom.word) == word % 8;
        self.dirty[unit].each(choice.into(), |atom| healed |= heals(atom));
        healed
    }

    /// Returns a line's content in a state.
    pub(super) fn words(&self, unit: usize, choice: u16) -> Words {
        self.dirty[unit].words(u32::from(choice))
    }

    /// Raises choices until every `clflush` is respected, then takes the first of equal states.
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
            // Too many states to count: the last store grows.
            if let Some(last) = self.stores.last_mut() {
                (last.end, last.sequence, last.parts) = (end, sequence, Parts::Whole);
            }
            return;
        }
        self.stores.push(Store { thread, sequence, end, state: before + states, parts });
    }

    /// Makes the stores before `sequence` durable.
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

    /// Returns the state after all stores before `sequence`.
    fn state_before(&self, sequence: u64) -> u32 {
        let count = self.stores.partition_point(|store| store.sequence < sequence);
        count.checked_sub(1).map_or(0, |last| self.stores[last].state)
    }

    /// Returns true if the order concerns a store that is not durable.
    fn binds(&self, order: &Order) -> bool {
        self.state_before(order.sequence) > 0
    }

    /// Returns true if the state includes (part of) a store that the order delays.
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

    /// Visits the atoms that a state includes, in order.
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
