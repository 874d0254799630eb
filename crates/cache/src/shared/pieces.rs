//! Room for values in pieces: slices are taken, counted and freed here, whole segments at a time
//! where a value fills them.
//!
//! The logs hold the values' records alone. Their slices are counted for the log that the record
//! is in, so that a log's share of the quota is what its items take.

use std::sync::atomic::Ordering;

use entresol_base::sync::Mutex;
use entresol_base::{Seconds, mutation_site};

use crate::pieces::List;
use crate::record::Head;
use crate::segment::{Kind, Log, Queues, State};
use crate::shared::append::{EVICTIONS_MAX, Shard};
use crate::shared::items::Items;
use crate::shared::space::Space;
use crate::values::Values;

/// Parts of the quota that the values of one open segment's items take before it is sealed, for
/// each shard: what is open cannot be evicted.
const HEAVY_SHARE: u64 = 8;

impl Space {
    /// Takes slices that are free, or that the quota has left, until there are so many.
    pub(crate) fn take_slices(&self, wanted: usize, taken: &mut Vec<u32>) -> bool {
        let per_segment = self.records.slices.per_segment as usize;
        while taken.len() + per_segment <= wanted && self.take_from_new(wanted, taken) {}
        self.take_from_shared(wanted, taken);
        while taken.len() < wanted && self.take_from_new(wanted, taken) {}
        taken.len() == wanted
    }

    fn take_from_shared(&self, wanted: usize, taken: &mut Vec<u32>) {
        let mut queues = self.logs.queues.lock();
        while taken.len() < wanted
            && let Some(id) = queues.shared.last().copied()
        {
            self.take_of(&mut queues, id, wanted, taken);
        }
    }

    /// Takes slices of a segment that no value has a piece in yet.
    fn take_from_new(&self, wanted: usize, taken: &mut Vec<u32>) -> bool {
        if !self.budget.has_segment() || !self.budget.take_segment(false) {
            return false;
        }
        let mut queues = self.logs.queues.lock();
        let Some(id) = queues.take_for_pieces() else {
            self.budget.give_back_segment();
            return false;
        };
        self.begin_pieces(&mut queues, id);
        self.take_of(&mut queues, id, wanted, taken);
        true
    }

    /// Begins the life of a segment of pieces, all of whose slices are free.
    fn begin_pieces(&self, queues: &mut Queues, id: u32) {
        let segment = self.records.segments.get(id);
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        segment.start(self.flushes.take_sequence(), Kind::new(Log::Main, 0));
        segment.go_on(&[State::Free], State::Pieces);
        queues.shared.push(id);
    }

    fn take_of(&self, queues: &mut Queues, id: u32, wanted: usize, taken: &mut Vec<u32>) {
        let slices = self.records.slices;
        let segment = self.records.segments.get(id);
        let mut bits = segment.taken_slices();
        while taken.len() < wanted && bits != slices.all_taken() {
            let index = bits.trailing_ones();
            bits |= 1 << index;
            taken.push(slices.number(id, index));
        }
        segment.set_taken_slices(bits);
        if bits == slices.all_taken() {
            queues.shared.retain(|shared| *shared != id);
        }
    }

    /// Frees slices, and segments of which none is left.
    pub(crate) fn free_slices(&self, freed: &[u32]) {
        let slices = self.records.slices;
        let mut queues = self.logs.queues.lock();
        for &slice in freed {
            let (id, index) = slices.segment_of(slice);
            let segment = self.records.segments.get(id);
            let bits = segment.taken_slices();
            let (state, bit) = (segment.state(), 1 << index);
            assert!(
                state == State::Pieces,
                "slice {slice} is freed, but segment {id} is {state:?}"
            );
            assert!(bits & bit != 0, "slice {slice} of segment {id} was freed twice");
            segment.set_taken_slices(bits & !bit);
            if bits == slices.all_taken() {
                queues.shared.push(id);
            }
            if bits == bit {
                queues.shared.retain(|shared| *shared != id);
                self.release_pieces(&mut queues, id);
            }
        }
    }

    fn release_pieces(&self, queues: &mut Queues, id: u32) {
        let segment = self.records.segments.get(id);
        if matches!(self.records.values, Values::Inline) && self.budget.is_used_up() {
            // The quota was lowered: the memory goes back to the system.
            self.records.arena.discard(self.records.base_of(id), self.records.segment_bytes);
        }
        segment.sequence.store(0, Ordering::SeqCst);
        segment.go_on(&[State::Pieces], State::Free);
        queues.give_back_of_pieces(id);
        self.budget.give_back_segment();
    }

    /// Takes the slices that a saved record names, if they are free and the quota has room. Only a
    /// damaged record names one that another value has.
    pub(crate) fn take_slices_again(&self, wanted: &[u32]) -> bool {
        let mut taken = Vec::with_capacity(wanted.len());
        for &slice in wanted {
            if !self.take_slice_again(slice) {
                self.free_slices(&taken);
                return false;
            }
            taken.push(slice);
        }
        true
    }

    fn take_slice_again(&self, slice: u32) -> bool {
        let (id, index) = self.records.slices.segment_of(slice);
        let mut queues = self.logs.queues.lock();
        if id >= queues.segments_max() {
            return false;
        }
        let segment = self.records.segments.get(id);
        match segment.state() {
            State::Pieces => {}
            State::Free if self.budget.take_segment(false) => {
                if !queues.take_this_for_pieces(id) {
                    self.budget.give_back_segment();
                    return false;
                }
                self.begin_pieces(&mut queues, id);
            }
            _ => return false,
        }
        let bits = segment.taken_slices();
        if bits >> index & 1 == 1 {
            return false;
        }
        let bits = bits | 1 << index;
        segment.set_taken_slices(bits);
        if bits == self.records.slices.all_taken() {
            queues.shared.retain(|shared| *shared != id);
        }
        true
    }

    /// Returns the bytes that values in pieces could take without an eviction.
    fn free_room(&self) -> u64 {
        let queues = self.logs.queues.lock();
        let slices = self.records.slices;
        let free = |id: &u32| slices.all_taken() & !self.records.segments.get(*id).taken_slices();
        let shared: u64 = queues.shared.iter().map(|id| u64::from(free(id).count_ones())).sum();
        self.budget.of_segments().left() + shared * slices.bytes
    }

    /// Counts the slices and the bytes of a value for the segment and the log that its record is
    /// in, or takes them out.
    pub(crate) fn count_pieces(&self, location: u64, head: &Head, is_new: bool) {
        let value_len = self.records.list_of(head).value_len.into();
        let slices = self.records.slices.for_value(value_len) as i64;
        let segment = self.records.segment_at(location);
        segment.change_live_bytes(value_len, is_new);
        let slices = if is_new { slices } else { -slices };
        self.logs.queues.lock().count_slices(segment, slices);
    }

    /// Frees the pieces of a value whose record has died, under its bucket's lock.
    #[cold]
    pub(crate) fn free_pieces(&self, head: &Head) {
        if mutation_site!("the pieces of a value go with its record") {
            return;
        }
        let list: List = self.records.list_of(head);
        let pieces = list.pieces(&self.records.arena);
        self.free_slices(&pieces.map(|piece| piece.slice).collect::<Vec<u32>>());
    }

    /// Returns the slices of its items' values with which an open segment is sealed.
    pub(crate) fn heavy_slices(&self) -> i64 {
        let quota = self.budget.segments() * u64::from(self.records.slices.per_segment);
        (quota / (HEAVY_SHARE * self.writing.len() as u64)).max(1) as i64
    }

    /// Returns true if the values of a segment's items take more room in pieces than the segment:
    /// eviction then frees it item by item.
    pub(crate) fn is_heavy(&self, id: u32) -> bool {
        let slices = self.records.segments.get(id).item_slices();
        slices >= i64::from(self.records.slices.per_segment)
    }
}

impl Items {
    /// Takes slices for a value, if need be from items that are evicted for it. `None` if there is
    /// nothing left to evict.
    pub(crate) fn take_room(
        &self,
        shard: &Mutex<Shard>,
        wanted: usize,
        taken: &mut Vec<u32>,
        now: Seconds,
    ) -> bool {
        let mut in_vain = 0;
        while !self.space.take_slices(wanted, taken) {
            let before = self.space.free_room();
            self.space.budget.press();
            let mut shard = shard.lock();
            let hard = in_vain >= EVICTIONS_MAX;
            if !self.evict_one(&mut shard, now, hard) && !shard.seal_heavy(&self.space, 1) {
                return false;
            }
            drop(shard);
            in_vain = if self.space.free_room() > before { 0 } else { in_vain + 1 };
            if in_vain > 4 * EVICTIONS_MAX {
                return false;
            }
        }
        true
    }

    /// Checks, while no thread runs, that each slice that is taken belongs to one item, and that
    /// every segment is counted.
    ///
    /// # Errors
    /// Returns a text that tells what does not add up.
    #[cfg(any(test, feature = "trial"))]
    pub(crate) fn check_pieces(&self) -> Result<(), String> {
        let records = &self.space.records;
        let mut named = std::collections::HashSet::new();
        let mut wrong = None;
        for bucket in 0..self.index.buckets() {
            self.index.visit(bucket, |found| {
                let head = records.head(found.location());
                if !head.has(crate::record::mark::PIECES) {
                    return;
                }
                for piece in records.list_of(&head).pieces(&records.arena) {
                    let (id, index) = records.slices.segment_of(piece.slice);
                    let segment = records.segments.get(id);
                    let taken = segment.taken_slices() >> index & 1 == 1;
                    if segment.state() != State::Pieces || !taken {
                        wrong = Some(format!("slice {} of an item is not taken", piece.slice));
                    } else if !named.insert(piece.slice) {
                        wrong = Some(format!("slice {} belongs to two items", piece.slice));
                    }
                }
            });
        }
        let queues = self.space.logs.queues.lock();
        let segments = (0..queues.high_water()).map(|id| records.segments.get(id));
        let (mut taken, mut of_pieces, mut in_use) = (0, 0, 0);
        for segment in segments.filter(|segment| segment.state() != State::Free) {
            in_use += 1;
            if segment.state() == State::Pieces {
                of_pieces += 1;
                taken += segment.taken_slices().count_ones() as usize;
            }
        }
        let counted = (queues.of_pieces, queues.used());
        if taken != named.len() {
            let named = named.len();
            wrong = Some(format!("{taken} slices are taken, and items have {named}"));
        } else if counted != (of_pieces, in_use) {
            let found = (of_pieces, in_use);
            wrong = Some(format!("segments of pieces and all: {found:?}, counted {counted:?}"));
        }
        wrong.map_or(Ok(()), Err)
    }
}
