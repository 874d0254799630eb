//! Segments without live items: those that have expired, were flushed or lost their last item. They
//! are freed before anything else, and searched for only when there may be one.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use entresol_base::Seconds;

use crate::segment::{NEVER, Queues, Segment, State, Table};

/// Signs that a search for segments without live items would find one.
pub(crate) struct Vacancy {
    /// Second before which sealed segments have no deadline. Changed under the queues' lock.
    next_deadline: AtomicU32,
    /// Set when a segment may have lost its last live item.
    emptied: AtomicBool,
}

impl Vacancy {
    pub(crate) fn new() -> Self {
        Vacancy { next_deadline: AtomicU32::new(u32::MAX), emptied: AtomicBool::new(true) }
    }

    /// Counts an item out of its segment, and notes if that leaves the segment without live items:
    /// it need not wait for its turn to be freed.
    #[inline]
    pub(crate) fn remove_live(&self, segment: &Segment, bytes: u64) {
        if segment.remove_live(bytes) && segment.state() != State::Evicting {
            self.emptied.store(true, Ordering::Relaxed);
        }
    }

    /// Notes that a segment was sealed, under the queues' lock.
    pub(crate) fn note_sealed(&self, segment: &Segment) {
        let deadline = segment.deadline.load(Ordering::Relaxed);
        if deadline != NEVER {
            self.next_deadline.fetch_min(deadline, Ordering::Relaxed);
        }
        if segment.live_items() == 0 {
            self.emptied.store(true, Ordering::Relaxed);
        }
    }

    /// Returns false if a search, which passes all segments, would find none: none has expired, was
    /// flushed or lost its last item since the last search. Segments `below` a number are flushed.
    pub(crate) fn may_be_any(&self, now: Seconds, below: u64) -> bool {
        self.next_deadline.load(Ordering::Relaxed) <= now.0
            || below != 0
            || self.emptied.load(Ordering::Relaxed)
    }

    /// Takes a segment without live items out of its queue.
    pub(crate) fn take_one(
        &self,
        queues: &mut Queues,
        segments: &Table,
        now: Seconds,
        below: u64,
    ) -> Option<u32> {
        if !self.may_be_any(now, below) {
            return None;
        }
        self.emptied.store(false, Ordering::Relaxed);
        let found = queues.all_sealed().find(|id| is_useless(segments.get(*id), now, below));
        let Some(id) = found else {
            self.find_next_deadline(queues, segments);
            return None;
        };
        // There may be others.
        self.emptied.store(true, Ordering::Relaxed);
        queues.remove_sealed(segments.get(id).kind(), id);
        Some(id)
    }

    /// Takes all segments without live items out of their queues.
    pub(crate) fn take_all(
        &self,
        queues: &mut Queues,
        segments: &Table,
        now: Seconds,
        below: u64,
    ) -> Vec<u32> {
        self.emptied.store(false, Ordering::Relaxed);
        let useless = |id: &u32| is_useless(segments.get(*id), now, below);
        let ids: Vec<u32> = queues.all_sealed().filter(useless).collect();
        for id in &ids {
            queues.remove_sealed(segments.get(*id).kind(), *id);
        }
        self.find_next_deadline(queues, segments);
        ids
    }

    fn find_next_deadline(&self, queues: &Queues, segments: &Table) {
        let deadlines = queues.all_sealed().map(|id| {
            let deadline = segments.get(id).deadline.load(Ordering::Relaxed);
            if deadline == NEVER { u32::MAX } else { deadline }
        });
        self.next_deadline.store(deadlines.min().unwrap_or(u32::MAX), Ordering::Relaxed);
    }
}

fn is_useless(segment: &Segment, now: Seconds, below: u64) -> bool {
    segment.is_expired(now)
        || segment.live_items() == 0
        || segment.sequence.load(Ordering::SeqCst) < below
}
