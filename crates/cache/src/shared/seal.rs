//! Sealing: a full segment is written to its medium and then queued for eviction; an empty one is
//! freed.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use entresol_media::Access;
use entresol_media::block::IoBuffer;

use crate::error::OpenError;
use crate::restart::closing::Closing;
use crate::segment::State;
use crate::shared::Shared;
use crate::shared::append::PAGE;
use crate::statistics::count_shared;
use crate::values::Values;
use crate::values::file::{FileValues, PIECE_BYTES};
use crate::values::pmem::PmemValues;

impl Shared {
    /// Closes a segment for appends: it can be evicted from now on, or once it is written.
    pub(crate) fn seal(&self, id: u32) {
        let segment = self.segments.get(id);
        if segment.used.load(Ordering::Relaxed) == 0 {
            segment.go_on(&[State::Open], State::Evicting);
            self.release_segment(id);
            return;
        }
        match &self.values {
            Values::Inline => self.make_evictable(id),
            Values::Pmem(pmem) => {
                if self.restart.is_some() {
                    self.close_segment(pmem, id);
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
        let segment = self.segments.get(id);
        if let Some(restart) = &self.restart {
            restart.keep_segment(id, segment.sequence.load(Ordering::SeqCst));
        }
        let deadline = segment.deadline.load(Ordering::Relaxed);
        let mut queues = self.queues.lock();
        segment.go_on(&[State::Open, State::Writing], State::Sealed);
        queues.push_sealed(segment.kind(), id, deadline);
    }

    /// Frees a segment that no slot names any more.
    pub(crate) fn release_segment(&self, id: u32) {
        let segment = self.segments.get(id);
        let state = segment.state();
        assert!(state == State::Evicting, "segment {id} is to be freed, but is {state:?}");
        segment.assert_nothing_lives();
        let used = u64::from(segment.used.load(Ordering::Relaxed));
        if let Values::File(file) = &self.values {
            file.give_back_buffer(segment);
        }
        if self.values.is_elsewhere() {
            let pages = used.div_ceil(PAGE) * PAGE;
            self.arena.discard(self.base_of(id), pages);
            self.dram.give_back(pages);
        } else if self.dram.left() == 0 {
            // The quota was lowered: the memory goes back to the system.
            self.arena.discard(self.base_of(id), self.segment_bytes);
        }
        segment.sequence.store(0, Ordering::SeqCst);
        let log = segment.kind().log();
        self.young.set(id, false);
        segment.go_on(&[State::Evicting], State::Free);
        self.queues.lock().give_back(id, log);
        self.segment_quota().give_back(self.segment_bytes);
    }

    /// Copies a segment's records as they are now.
    pub(crate) fn closing(&self, id: u32) -> Closing {
        let segment = self.segments.get(id);
        let used = segment.used.load(Ordering::Acquire) as usize;
        let mut records = Vec::with_capacity(used);
        self.arena.append_to(self.base_of(id), used, &mut records);
        Closing {
            sequence: segment.sequence.load(Ordering::SeqCst),
            class: segment.kind().as_u8(),
            value_used: segment.value_used.load(Ordering::Acquire),
            records,
        }
    }

    /// Writes a sealed segment's records and closing block behind its values.
    fn close_segment(&self, pmem: &PmemValues, id: u32) {
        let closing = self.closing(id);
        closing.assert_fits(self.segment_bytes);
        let base = self.medium_base_of(id);
        pmem.write(base + closing.records_at(), &closing.records);
        pmem.drain();
        // The closing block vouches for the records, so they must be durable first.
        pmem.write(base + closing.block_at(self.segment_bytes), &closing.block());
        pmem.drain();
    }

    /// Starts the thread that writes full segments, if values lie on a block file.
    pub(crate) fn start_writer(self: &Arc<Self>) -> Result<(), OpenError> {
        let Values::File(file) = &self.values else { return Ok(()) };
        let weak = Arc::downgrade(self);
        file.start(&self.name, move || write_segments(&weak))
    }
}

/// Runs the writer until the cache ends.
fn write_segments(shared: &Weak<Shared>) {
    let mut piece: Option<IoBuffer> = None;
    loop {
        let Some(shared) = shared.upgrade() else { return };
        let Values::File(file) = &shared.values else { return };
        let id = match file.next() {
            Some(Some(id)) => id,
            Some(None) => continue,
            None => return,
        };
        let piece = piece.get_or_insert_with(|| IoBuffer::new(file.piece().0));
        write_segment(&shared, file, id, piece);
        file.finish(id);
    }
}

fn write_segment(shared: &Shared, file: &FileValues, id: u32, piece: &mut IoBuffer) {
    let segment = shared.segments.get(id);
    assert!(file.has_buffer(segment), "segment {id} is to be written, but has no write buffer");
    let closing = shared.closing(id);
    let value_used = closing.value_used as usize;
    let whole = shared.segment_bytes as usize;
    let base = shared.medium_base_of(id);
    if shared.restart.is_some() {
        closing.assert_fits(shared.segment_bytes);
    }
    let written = (0..whole).step_by(PIECE_BYTES).try_for_each(|start| {
        piece.set_len(PIECE_BYTES.min(whole - start));
        let values = value_used.saturating_sub(start).min(piece.len());
        file.read_buffered(segment, start as u64, &mut piece[..values]);
        piece[values..].fill(0);
        if shared.restart.is_some() {
            put(piece, start, closing.records_at() as usize, &closing.records);
            let block_at = closing.block_at(shared.segment_bytes) as usize;
            put(piece, start, block_at, &closing.block());
        }
        file.file.write_at(base + start as u64, piece)
    });
    // The values were charged when they entered the buffer; this charges the rest.
    let mut account = shared.account.handle();
    account.charge_part(Access::Write, whole - value_used, file.piece());
    if written.is_ok() {
        file.give_back_buffer(segment);
        shared.make_evictable(id);
    } else {
        count_shared(&shared.counters.write_errors, 1);
        shared.abandon(id);
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
