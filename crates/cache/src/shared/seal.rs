//! Sealing: a full segment is written to its medium and then queued for eviction; an empty one is
//! freed.

use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use entresol_base::mutation_site;
use entresol_media::Access;
use entresol_media::block::IoBuffer;

use crate::error::OpenError;
use crate::restart::closing::Closing;
use crate::segment::State;
use crate::shared::Shared;
use crate::shared::budget::PAGE;
use crate::shared::space::Space;
use crate::statistics::count_shared;
use crate::values::Values;
use crate::values::file::{FileValues, PIECE_BYTES};
use crate::values::pmem::PmemValues;

impl Space {
    /// Closes a segment for appends: it can be evicted from now on, or once it is written and no
    /// value arrives in it.
    pub(crate) fn seal(&self, id: u32) {
        if self.records.segments.get(id).close()
            || mutation_site!("a full segment waits for the values that arrive in it")
        {
            self.seal_closed(id);
        }
    }

    /// Ends the reservation of a place in a segment, which may wait for that to be sealed.
    pub(crate) fn end_reservation(&self, id: u32) {
        if self.records.segments.get(id).end_reservation() {
            self.seal_closed(id);
        }
    }

    fn seal_closed(&self, id: u32) {
        let segment = self.records.segments.get(id);
        if segment.used.load(Ordering::Relaxed) == 0 {
            segment.go_on(&[State::Open], State::Evicting);
            self.release_segment(id);
            return;
        }
        match &self.records.values {
            Values::Inline => self.make_evictable(id),
            Values::Pmem(pmem) => {
                if self.restart.is_some() {
                    self.close_segment(pmem, id, &self.records.closing(id));
                }
                self.make_evictable(id);
            }
            Values::File(file) => {
                segment.go_on(&[State::Open], State::Writing);
                file.write_soon(id);
            }
        }
    }

    /// Queues a segment whose bytes are all on their medium.
    pub(crate) fn make_evictable(&self, id: u32) {
        let segment = self.records.segments.get(id);
        if let Some(restart) = &self.restart {
            restart.keep_segment(id, segment.sequence.load(Ordering::SeqCst));
        }
        let mut queues = self.logs.queues.lock();
        segment.go_on(&[State::Open, State::Writing], State::Sealed);
        self.queue_sealed(&mut queues, id);
    }

    /// Frees a segment that no slot names any more.
    pub(crate) fn release_segment(&self, id: u32) {
        let segment = self.records.segments.get(id);
        let state = segment.state();
        assert!(state == State::Evicting, "segment {id} is to be freed, but is {state:?}");
        segment.assert_nothing_lives();
        let used = u64::from(segment.used.load(Ordering::Relaxed));
        if let Values::File(file) = &self.records.values {
            file.give_back_buffer(segment);
        }
        if self.records.values.is_elsewhere() {
            let base = self.records.base_of(id);
            self.records.arena.discard(base, used.next_multiple_of(PAGE));
            self.budget.give_back_pages(0, used);
        } else if self.budget.is_used_up() {
            // The quota was lowered: the memory goes back to the system.
            self.records.arena.discard(self.records.base_of(id), self.records.segment_bytes);
        }
        segment.sequence.store(0, Ordering::SeqCst);
        let log = segment.kind().log();
        self.logs.young.set(id, false);
        segment.go_on(&[State::Evicting], State::Free);
        self.logs.queues.lock().give_back(id, log);
        self.budget.give_back_segment();
    }

    /// Writes a sealed segment's records and closing block behind its values.
    fn close_segment(&self, pmem: &PmemValues, id: u32, closing: &Closing) {
        closing.assert_fits(self.records.segment_bytes);
        let base = self.records.medium_base_of(id);
        pmem.write(base + closing.records_at(), &closing.records);
        pmem.drain();
        // The closing block vouches for the records, so they must be durable first.
        pmem.write(base + closing.block_at(self.records.segment_bytes), &closing.block());
        pmem.drain();
    }

    /// Seals a segment that was open when the last process died, with what was kept of it.
    pub(crate) fn close_kept(&self, id: u32, closing: &Closing) -> io::Result<()> {
        match &self.records.values {
            Values::Inline => Ok(()),
            Values::Pmem(pmem) => {
                self.close_segment(pmem, id, closing);
                Ok(())
            }
            // Those in its write buffer are lost.
            Values::File(file) => self.write_without_values(file, id, closing),
        }
    }

    /// Writes a segment to its block file from its buffer, with what closes it behind its values.
    fn write_buffered(&self, file: &FileValues, id: u32, closing: &Closing) -> io::Result<()> {
        let segment = self.records.segments.get(id);
        let whole = self.records.segment_bytes as usize;
        let base = self.records.medium_base_of(id);
        file.clear_behind(segment, closing.value_used.into());
        if self.restart.is_some() {
            closing.assert_fits(self.records.segment_bytes);
            file.write_buffered(segment, closing.records_at(), &closing.records);
            file.write_buffered(segment, closing.block_at(whole as u64), &closing.block());
        }
        (0..whole).step_by(PIECE_BYTES).try_for_each(|start| {
            let bytes = PIECE_BYTES.min(whole - start);
            file.write_out(base + start as u64, segment, start as u64, bytes)
        })
    }

    /// Writes a segment to its block file with zeroes for values.
    fn write_without_values(
        &self,
        file: &FileValues,
        id: u32,
        closing: &Closing,
    ) -> io::Result<()> {
        let whole = self.records.segment_bytes as usize;
        let base = self.records.medium_base_of(id);
        let mut piece = IoBuffer::new(file.piece().0);
        closing.assert_fits(self.records.segment_bytes);
        (0..whole).step_by(PIECE_BYTES).try_for_each(|start| {
            piece.set_len(PIECE_BYTES.min(whole - start));
            piece.fill(0);
            put(&mut piece, start, closing.records_at() as usize, &closing.records);
            put(&mut piece, start, closing.block_at(whole as u64) as usize, &closing.block());
            file.file.write_at(base + start as u64, &piece)
        })
    }
}

/// Starts the thread that writes full segments, if values lie on a block file.
pub(crate) fn start_writer(shared: &Arc<Shared>) -> Result<(), OpenError> {
    let Values::File(file) = &shared.records().values else { return Ok(()) };
    let weak = Arc::downgrade(shared);
    file.start(&shared.name, move || write_segments(&weak))
}

/// Runs the writer until the cache ends.
fn write_segments(shared: &Weak<Shared>) {
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let Values::File(file) = &shared.records().values else { return };
        let id = match file.next() {
            Some(Some(id)) => id,
            Some(None) => continue,
            None => return,
        };
        write_segment(&shared, file, id);
        file.finish(id);
    }
}

fn write_segment(shared: &Shared, file: &FileValues, id: u32) {
    let space = shared.space();
    let records = &space.records;
    let segment = records.segments.get(id);
    assert!(file.has_buffer(segment), "segment {id} is to be written, but has no write buffer");
    let closing = records.closing(id);
    let written = space.write_buffered(file, id, &closing);
    // The values were charged when they entered the buffer; this charges the rest.
    let mut account = shared.account.handle();
    let rest = records.segment_bytes - u64::from(closing.value_used);
    account.charge_part(Access::Write, rest as usize, file.piece());
    if written.is_ok() {
        file.give_back_buffer(segment);
        space.make_evictable(id);
    } else {
        count_shared(&shared.items.counters.write_errors, 1);
        shared.items.abandon(id);
    }
}

/// Copies the bytes at `at` of a segment into the piece that begins at `start`, as far as they
/// overlap.
fn put(piece: &mut [u8], start: usize, at: usize, bytes: &[u8]) {
    let from = at.max(start);
    let to = (at + bytes.len()).min(start + piece.len());
    if from < to {
        piece[from - start..to - start].copy_from_slice(&bytes[from - at..to - at]);
    }
}
