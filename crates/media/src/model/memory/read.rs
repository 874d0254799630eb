//! Loads.

use super::outgrown_millionths;
use super::{Accessor, Kind, MemoryModel, PIECE_BYTES, Picos, Piece};

/// Locations of a load's lines.
#[derive(Debug, Clone, Copy, Default)]
struct Found {
    /// Lines in the processor's cache.
    cached: u64,
    /// Lines from the module.
    lines: u64,
    /// Units that must be read from the medium.
    missing: u64,
    /// True if the first line's unit is one of them.
    first_missing: bool,
    /// True if that unit follows one that was just read.
    first_adjacent: bool,
}

impl MemoryModel {
    pub(super) fn load(&mut self, at: Picos, accessor: Accessor, piece: &Piece) -> Picos {
        let found = self.find(at, piece, true);
        let cached = self.cached_copy(piece, found.cached);
        if found.lines == 0 {
            return at.after(cached);
        }
        // The first unit of a load wakes nothing.
        let further = (found.missing + u64::from(!piece.first)).saturating_sub(1);
        let awake = self.parameters.prefetch.filter(|_| further > 0);
        let extra =
            awake.map_or(0, |prefetch| self.prefetch(at, piece, further.min(prefetch.units_max)));
        let again = self.refetched(accessor, piece.whole_bytes, found.missing);
        let paced = match awake {
            Some(prefetch) => Picos(prefetch.unit_pace.0 * (found.missing + again)),
            None => self.paced(piece, found.missing, again),
        };
        let own = paced.max(self.latency(&found, piece.first)).after(cached);
        let waited = self.read_medium(at, piece.offset, found.missing + extra + again);
        let stalled = std::mem::take(&mut self.stalled);
        at.after(own).after(waited).after(stalled)
    }

    /// Returns the time to copy cached lines.
    fn cached_copy(&self, piece: &Piece, lines: u64) -> Picos {
        let processor = &self.parameters.processor;
        let further = Picos(processor.cached_line.0 * lines.saturating_sub(1));
        match (lines, piece.whole_bytes) {
            (0, _) => Picos::ZERO,
            (_, ..=8) => processor.cached_word,
            // The call takes about as long again.
            _ if lines == piece.line_count() && piece.first => {
                Picos(2 * processor.cached_word.0).after(further)
            }
            _ => Picos(processor.cached_line.0 * lines),
        }
    }

    /// Returns the time of a piece's units at one thread's pace, which is faster once a copy runs
    /// ahead.
    fn paced(&self, piece: &Piece, missing: u64, again: u64) -> Picos {
        let module = &self.parameters.module;
        let slow = self.parameters.processor.read_ahead_from.saturating_sub(piece.done);
        let slow = slow.div_ceil(module.unit_bytes).min(missing);
        let fast = missing - slow + again;
        Picos(module.unit_read.0 * slow + module.unit_read_ahead.0 * fast)
    }

    /// Loads past the cache, which neither finds nor keeps anything there.
    pub(super) fn nt_load(&mut self, at: Picos, piece: &Piece) -> Picos {
        let found = self.find(at, piece, false);
        let paced = Picos(self.parameters.module.unit_read.0 * found.missing);
        let own = paced.max(self.latency(&found, piece.first));
        let further = self.parameters.further.filter(|_| piece.first);
        let extra = further.map_or(Picos::ZERO, |further| further.past_caches);
        let waited = self.read_medium(at, piece.offset, found.missing);
        at.after(own).after(extra).after(waited)
    }

    /// Returns the time until a piece's last line arrives, if there is no other thread.
    fn latency(&self, found: &Found, first: bool) -> Picos {
        let module = &self.parameters.module;
        let begun = match (found.first_missing, found.first_adjacent) {
            _ if !first => Picos::ZERO,
            (true, true) => module.unit_read,
            (true, false) => module.unit_read.after(module.jump),
            (false, _) => module.buffered_line,
        };
        let further = found.lines.saturating_sub(u64::from(first));
        begun.after(Picos(module.line_read.0 * further))
    }

    /// Locates a piece's lines, and puts them into the buffers on the way.
    fn find(&mut self, at: Picos, piece: &Piece, cached: bool) -> Found {
        let mut found = Found::default();
        let (index, mut last) = (self.module_of(piece.offset), None);
        for line in piece.lines() {
            if cached && self.cached(at, line) {
                found.cached += 1;
                continue;
            }
            let (unit, _) = self.unit_of(line);
            found.lines += 1;
            if last == Some(unit) {
                continue;
            }
            last = Some(unit);
            let state = &mut self.modules[index];
            if state.read.has(unit) || state.combining.has(unit) {
                continue;
            }
            if found.lines == 1 {
                found.first_missing = true;
                found.first_adjacent = unit > 0 && state.read.has(unit - 1);
            }
            state.read.insert(unit);
            found.missing += 1;
        }
        found
    }

    /// Returns true if the processor has a line; from now on it has.
    pub(super) fn cached(&mut self, at: Picos, line: u64) -> bool {
        if self.cache.touch(line) {
            return true;
        }
        if let Some(changed) = self.cache.insert(line) {
            self.write_back(at, changed);
        }
        false
    }

    /// Returns the units of a block whose lines were lost from the cache before they were used.
    fn refetched(&mut self, accessor: Accessor, block_bytes: u64, missing: u64) -> u64 {
        let processor = &self.parameters.processor;
        // A copy needs room for its source and its target.
        let outgrown = outgrown_millionths(2 * block_bytes, processor.cache_bytes);
        let thread = &mut self.threads[accessor.0 as usize];
        let billionths = thread.refetch_rest + missing * processor.refetch_milli * outgrown;
        thread.refetch_rest = billionths % 1_000_000_000;
        billionths / 1_000_000_000
    }

    /// Prefetches units behind a load's end, and returns how many of them were missing.
    fn prefetch(&mut self, at: Picos, piece: &Piece, units: u64) -> u64 {
        if !piece.last {
            return 0;
        }
        let unit = self.parameters.module.unit_bytes;
        let end = (piece.offset + piece.bytes).next_multiple_of(unit);
        let page = (piece.offset + piece.bytes).next_multiple_of(PIECE_BYTES);
        let bytes = (units * unit).min(page.saturating_sub(end));
        if bytes == 0 {
            return 0;
        }
        let behind = Piece { offset: end, bytes, ..*piece };
        self.find(at, &behind, true).missing
    }

    /// Takes the medium's time for reading units, and returns the time that a thread waits for
    /// others.
    pub(super) fn read_medium(&mut self, at: Picos, offset: u64, units: u64) -> Picos {
        if units == 0 {
            return Picos::ZERO;
        }
        self.counts.units_read += units;
        let module = &self.parameters.module;
        let demand = Picos(module.read_demand().0 * units);
        let index = self.module_of(offset);
        let channel = &mut self.modules[index].channel;
        // A write in progress is not interrupted.
        let write = channel.backlog(Kind::Write, at).0 % module.write_demand().0;
        let served = channel.serve(Kind::Read, at, demand);
        served.since(at.after(demand)).after(Picos(write))
    }
}
