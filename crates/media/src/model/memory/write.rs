//! Stores and flushes, and their way through the module.

use super::{Accessor, Kind, LINE_BYTES, MemoryModel, Picos, Piece, Written, outgrown_millionths};

impl MemoryModel {
    pub(super) fn nt_store(&mut self, at: Picos, accessor: Accessor, piece: &Piece) -> Picos {
        let lines = piece.lines();
        let (mut line, mut waited) = (lines.start, Picos::ZERO);
        while line < lines.end {
            let (unit, first) = self.unit_of(line);
            let count = (self.lines_per_unit() - first).min(lines.end - line);
            (line..line + count).for_each(|line| self.cache.drop_line(line));
            let bits = ((1 << count) - 1) << first;
            let bits = self.hold_back(accessor, piece.whole_bytes, line, bits);
            waited = waited.max(self.combine(at, unit, bits));
            self.threads[accessor.0 as usize].units_stored += 1;
            waited = waited.max(self.send_late_lines(at, accessor, false));
            line += count;
        }
        let (processor, module) = (&self.parameters.processor, &self.parameters.module);
        let count = lines.end - lines.start;
        let stored = Picos(processor.store_line.0 * count);
        let paced = Picos(processor.store_pace.0 * count);
        let partly = Picos(module.partial_line.0 * partial_lines(piece));
        let safe = module.store_latency.after(stored).after(partly).max(paced);
        self.safe_at(accessor, at.after(safe).after(waited));
        at.after(stored.max(paced)).after(waited)
    }

    pub(super) fn store(&mut self, at: Picos, accessor: Accessor, piece: &Piece) -> Picos {
        // The line comes into the cache before a part of it is changed.
        let fetched = self.load(at, accessor, piece);
        for line in piece.lines() {
            self.cached(at, line);
            self.cache.dirty(line);
        }
        fetched
    }

    /// Starts writing back the dirty lines of `bytes` at `offset`. Returns the time at which the
    /// thread can go on; a fence waits for the rest.
    pub fn flush(&mut self, at: Picos, accessor: Accessor, offset: u64, bytes: usize) -> Picos {
        let (mut count, mut waited) = (0, Picos::ZERO);
        for line in offset / LINE_BYTES..(offset + bytes as u64).div_ceil(LINE_BYTES) {
            count += 1;
            if self.cache.clean(line) {
                let (unit, place) = self.unit_of(line);
                waited = waited.max(self.combine(at, unit, 1 << place));
            }
        }
        let gone = at.after(Picos(self.parameters.processor.store_line.0 * count)).after(waited);
        self.know(accessor);
        self.safe_at(accessor, gone.after(self.parameters.module.store_latency));
        gone
    }

    /// Writes back a dirty line that was evicted. The line in its place is late by the wait for
    /// room in the module.
    pub(super) fn write_back(&mut self, at: Picos, line: u64) {
        let (unit, place) = self.unit_of(line);
        let waited = self.combine(at, unit, 1 << place);
        self.stalled = self.stalled.max(waited);
    }

    fn safe_at(&mut self, accessor: Accessor, at: Picos) {
        let thread = &mut self.threads[accessor.0 as usize];
        thread.safe = thread.safe.max(at);
    }

    /// Adds lines, one bit each, to the combining buffer, and returns the time they wait for room.
    fn combine(&mut self, at: Picos, unit: u64, lines: u64) -> Picos {
        let module = &self.parameters.module;
        let (read, write) = (module.read_demand().0, module.write_demand().0);
        let room = Picos(write * module.buffer_units as u64);
        let index = self.module_of(unit * module.unit_bytes);
        let state = &mut self.modules[index];
        state.read.forget(unit);
        let Written { whole, partial } = state.combining.add(unit, lines);
        if whole + partial == 0 {
            return Picos::ZERO;
        }
        self.counts.units_written += whole + partial;
        self.counts.units_read_to_write += partial;
        let share = self.parameters.further.map_or(1_000, |further| further.completing_milli);
        let completing = read * share / 1_000;
        let demand = Picos(write * (whole + partial) + completing * partial);
        state.channel.serve(Kind::Write, at, demand);
        state.channel.backlog(Kind::Write, at).since(room)
    }

    /// Removes the line that will be late, if there is one in this unit, from the unit's bits.
    fn hold_back(&mut self, accessor: Accessor, block_bytes: u64, line: u64, bits: u64) -> u64 {
        let processor = &self.parameters.processor;
        // Only the source of such a copy goes through the cache.
        let outgrown = outgrown_millionths(block_bytes, processor.cache_bytes);
        let thread = &mut self.threads[accessor.0 as usize];
        thread.late_rest += processor.late_milli * outgrown;
        if thread.late_rest < 1_000_000_000 || bits.count_ones() < 2 {
            return bits;
        }
        thread.late_rest -= 1_000_000_000;
        let due = thread.units_stored + self.parameters.module.buffer_units as u64;
        thread.late.push_back((line, due));
        bits & (bits - 1)
    }

    /// Sends lines that were held back once the thread has stored as much as the combining buffer
    /// holds, or all of them because of a fence.
    pub(super) fn send_late_lines(&mut self, at: Picos, accessor: Accessor, all: bool) -> Picos {
        let mut waited = Picos::ZERO;
        while let Some(thread) = self.threads.get_mut(accessor.0 as usize)
            && let Some(&(line, due)) = thread.late.front()
            && (all || due < thread.units_stored)
        {
            thread.late.pop_front();
            let (unit, place) = self.unit_of(line);
            waited = waited.max(self.combine(at, unit, 1 << place));
        }
        waited
    }
}

/// Returns the number of lines that a piece stores only in part.
fn partial_lines(piece: &Piece) -> u64 {
    let (begin, end) = (piece.offset, piece.offset + piece.bytes);
    let head = !begin.is_multiple_of(LINE_BYTES);
    let tail = !end.is_multiple_of(LINE_BYTES);
    let one_line = piece.lines().end - piece.lines().start == 1;
    if one_line { u64::from(head || tail) } else { u64::from(head) + u64::from(tail) }
}
