//! Space for items on a medium, as segments: they are opened, emptied and freed here, and items are
//! declared dead.

use std::sync::atomic::Ordering;

use entresol_base::{Seconds, mutation_site, thread};

use crate::config::Favour;
use crate::config::plan::Plan;
use crate::error::OpenError;
use crate::index::Found;
use crate::record::{Head, UNIT, mark};
use crate::restart::heads::{self, Life};
use crate::restart::{Restart, closing};
use crate::segment::{Kind, Opened, Queues, State, Writing};
use crate::shared::append::{Hole, NoPlace, Open};
use crate::shared::budget::Budget;
use crate::shared::flushes::Flushes;
use crate::shared::logs::Logs;
use crate::shared::records::Records;
use crate::shared::vacancy::Vacancy;
use crate::values::Values;

/// Segments, their contents, and what decides about them.
pub(crate) struct Space {
    pub(crate) records: Records,
    pub(crate) budget: Budget,
    pub(crate) logs: Logs,
    pub(crate) vacancy: Vacancy,
    pub(crate) flushes: Flushes,
    /// Segments whose holes shards are writing to, one entry a shard.
    pub(crate) writing: Box<[Writing]>,
    pub(crate) restart: Option<Restart>,
}

/// Result of looking at a record.
pub(crate) enum Seen {
    Live(Found, Head),
    Expired(Found, Head),
    Flushed(Found, Head),
    Absent,
}

impl Space {
    /// Makes the space of an empty cache, beside a table of an index of this many bytes.
    pub(crate) fn new(
        plan: &Plan,
        favour: Favour,
        records: Records,
        restart: Option<Restart>,
        table_bytes: u64,
    ) -> Result<Self, OpenError> {
        let logs = Logs::new(plan, favour)?;
        let metadata_bytes = records.segments.bytes_for(plan.segments) + logs.young.bytes();
        let elsewhere = records.values.is_elsewhere();
        Ok(Space {
            records,
            budget: Budget::new(plan, elsewhere, metadata_bytes, table_bytes),
            logs,
            vacancy: Vacancy::new(),
            flushes: Flushes::new(),
            writing: (0..plan.shards).map(|_| Writing::default()).collect(),
            restart,
        })
    }

    /// Returns true if a segment can hold this many bytes of records and of values elsewhere.
    pub(crate) fn fits(&self, record_bytes: u64, value_bytes: u64) -> bool {
        match &self.records.values {
            Values::Inline => record_bytes <= self.records.segment_bytes,
            Values::Pmem(_) | Values::File(_) => {
                // A sealed segment's records and closing block lie behind its values.
                let closing =
                    if self.restart.is_some() { closing::OVERHEAD_BYTES + record_bytes } else { 0 };
                record_bytes <= self.records.segment_bytes
                    && value_bytes + closing <= self.records.segment_bytes
            }
        }
    }

    /// Carries out an ordered flush whose time has come.
    #[inline]
    pub(crate) fn check_flush(&self, now: Seconds) {
        if self.flushes.is_due(now) {
            self.flushes.carry_out(now, self.restart.as_ref());
        }
    }

    /// Returns true if every item has its value beside its key and none was flushed.
    #[inline(always)]
    pub(crate) fn is_simple(&self) -> bool {
        self.flushes.below() | self.records.elsewhere() == 0
    }

    /// Returns true if the item at a location was flushed.
    #[inline]
    pub(crate) fn is_flushed(&self, location: u64) -> bool {
        let below = self.flushes.below();
        below != 0 && !mutation_site!("a flushed item is found by its segment's number") && {
            let segment = self.records.segment_at(location);
            segment.sequence.load(Ordering::SeqCst) < below
        }
    }

    /// Decides if an item that was found is live, expired or flushed.
    #[inline(always)]
    pub(crate) fn judge(&self, found: Found, head: Head, now: Seconds) -> Seen {
        let is_past = head.has(mark::EXPIRY) && head.expiry(&self.records.arena).is_past(now);
        if is_past && !mutation_site!("an item that has expired is not served") {
            return Seen::Expired(found, head);
        }
        if self.is_flushed(found.location()) {
            return Seen::Flushed(found, head);
        }
        Seen::Live(found, head)
    }

    /// Opens a segment if the quota has one left, or in any case if it is `over` its limit.
    pub(crate) fn try_open_segment(&self, kind: Kind, over: bool) -> Result<Option<Open>, NoPlace> {
        if !self.budget.take_segment(over) {
            return Ok(None);
        }
        let Some(id) = self.logs.queues.lock().take_free(kind.log()) else {
            self.budget.give_back_segment();
            return Ok(None);
        };
        let segment = self.records.segments.get(id);
        if let Values::File(file) = &self.records.values {
            let Some(buffer) = file.take_buffer() else {
                self.logs.queues.lock().give_back(id, kind.log());
                self.budget.give_back_segment();
                return Err(NoPlace::Busy);
            };
            let before = segment.buffer.swap(buffer + 1, Ordering::AcqRel);
            assert!(before == 0, "segment {id} was free, but had write buffer {}", before - 1);
        }
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        let sequence = self.flushes.take_sequence();
        segment.start(sequence, kind);
        segment.go_on(&[State::Free], State::Open);
        let opened = Opened { id, sequence, weight: 1 };
        self.logs.note_opened(kind.log(), opened, &self.records.segments, &self.budget);
        Ok(Some(Open::new(id, sequence)))
    }

    /// Queues a sealed segment, under the lock of the queues.
    pub(crate) fn queue_sealed(&self, queues: &mut Queues, id: u32) {
        let segment = self.records.segments.get(id);
        queues.push_sealed(segment.kind(), id);
        self.vacancy.note_sealed(segment);
    }

    /// Puts a segment back that was taken out of its queue as the first one there.
    pub(crate) fn put_back(&self, id: u32) {
        let segment = self.records.segments.get(id);
        let mut queues = self.logs.queues.lock();
        queues.put_back_sealed(segment.kind(), id);
        self.vacancy.note_sealed(segment);
    }

    /// Takes sole ownership of a segment that was taken out of its queue.
    pub(crate) fn begin_eviction(&self, id: u32) {
        let segment = self.records.segments.get(id);
        let ours = segment.change_state(State::Sealed, State::Evicting);
        let state = segment.state();
        assert!(ours, "segment {id} was in the queue of sealed ones, but is {state:?}");
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        while self.writing.iter().any(|writing| writing.is_into(id)) {
            thread::yield_now();
        }
    }

    /// Declares a record dead under its bucket's lock, and calls `change` to update its slot. The
    /// room may be used again, unless a client could mistake the next item there for this one.
    ///
    /// The mark comes last: a thread that empties the segment skips records that bear it, and waits
    /// for the bucket's lock at any other. Once it is set, the segment may begin another life.
    pub(crate) fn retire(&self, location: u64, head: &Head, change: impl FnOnce()) -> Option<Hole> {
        let leader = self.records.leader_of_item(head);
        let value_bytes = match leader {
            Some(_) => self.records.bytes_beside(head),
            None if self.records.values.is_elsewhere() => head.value_len as u64,
            None => 0,
        };
        let hole = self.retire_record(location, head, value_bytes, change);
        if let Some(leader) = leader {
            // Its pieces are free for others now: a restart would not find the record, and no slot
            // names it.
            self.end_value(leader);
        }
        hole
    }

    /// Declares a record dead like `retire`, but leaves the pieces of its value, which has another
    /// record now.
    pub(crate) fn retire_moved(
        &self,
        location: u64,
        head: &Head,
        change: impl FnOnce(),
    ) -> Option<Hole> {
        self.retire_record(location, head, self.records.bytes_beside(head), change)
    }

    #[inline(always)]
    fn retire_record(
        &self,
        location: u64,
        head: &Head,
        value_bytes: u64,
        change: impl FnOnce(),
    ) -> Option<Hole> {
        let id = self.records.segment_of(location);
        let segment = self.records.segments.get(id);
        self.forget_saved(location);
        change();
        let bytes = head.record_bytes();
        let elsewhere = self.records.values.is_elsewhere();
        self.vacancy.remove_live(segment, bytes + value_bytes);
        let seen =
            head.has(mark::CAS_SEEN) && !mutation_site!("a place whose token is known stays empty");
        let reusable = !elsewhere && !seen;
        let sequence = segment.sequence.load(Ordering::SeqCst);
        head.set_marks(&self.records.arena, mark::DEAD, 0);
        reusable.then_some(Hole { at: location * UNIT, bytes, segment: id, sequence })
    }

    /// Ensures that a restart restores the record of a value in pieces, though its segment is open.
    /// Returns false if that segment must be sealed for it.
    pub(crate) fn keep_head(&self, location: u64) -> bool {
        let records = &self.records;
        let Some(restart) = self.restart.as_ref().filter(|_| records.values.is_elsewhere()) else {
            return true;
        };
        if mutation_site!("a large value is in the map before its segment is sealed") {
            return true;
        }
        let (id, segment) = (records.segment_of(location), records.segment_at(location));
        let at = location * UNIT;
        let mut record = vec![0; records.head(location).record_bytes() as usize];
        records.arena.read(at, &mut record);
        let life = Life { id, sequence: segment.sequence.load(Ordering::SeqCst) };
        let head = heads::Head {
            at: (at - records.base_of(id)) as u32,
            value_used: segment.value_used.load(Ordering::Relaxed),
            kind: segment.kind().as_u8(),
        };
        restart.keep_head(life, head, &record)
    }

    /// Ensures that a restart does not restore the record at a location as it was saved.
    pub(crate) fn forget_saved(&self, location: u64) {
        if let Some(restart) = &self.restart
            && self.records.values.is_elsewhere()
            && !mutation_site!("a record that died is void in the map")
        {
            let id = self.records.segment_of(location);
            restart.forget_record(id, location * UNIT - self.records.base_of(id));
        }
    }
}
