//! Room for values in pieces: whole segments are taken, linked to the first of them, which leads
//! them and stands for the value in a log's queue, and freed as whole segments.
//!
//! A value is freed when its item has died and nothing pins it. Its writer pins it until it is
//! queued, a reader while it copies; both hold no lock meanwhile.

use std::sync::atomic::Ordering;

use entresol_base::mutation_site;

use crate::record::Head;
use crate::segment::{Kind, Log, Opened, State};
use crate::shared::items::Items;
use crate::shared::space::Space;
use crate::values::Values;

impl Space {
    /// Takes segments that are free, and that the quota has left, until there are so many.
    pub(crate) fn take_pieces(&self, wanted: usize, taken: &mut Vec<u32>) -> bool {
        while taken.len() < wanted {
            if !self.budget.has_segment() || !self.budget.take_segment(false) {
                return false;
            }
            let Some(id) = self.logs.queues.lock().take_for_piece() else {
                self.budget.give_back_segment();
                return false;
            };
            self.begin_piece(id);
            taken.push(id);
        }
        true
    }

    /// Takes the segments that a saved record names, if they are free, on the medium, and in the
    /// quota. Only a damaged record names one that another value has.
    pub(crate) fn take_pieces_again(&self, wanted: &[u32]) -> bool {
        for (number, &id) in wanted.iter().enumerate() {
            let taken = self.records.is_on_medium(id) && self.budget.take_segment(false) && {
                let taken = self.logs.queues.lock().take_this_for_piece(id);
                if !taken {
                    self.budget.give_back_segment();
                }
                taken
            };
            if !taken {
                self.free_pieces(&wanted[..number]);
                return false;
            }
            self.begin_piece(id);
        }
        true
    }

    fn begin_piece(&self, id: u32) {
        if let Some(restart) = &self.restart {
            restart.forget_segment(id);
        }
        let segment = self.records.segments.get(id);
        segment.start(self.flushes.take_sequence(), Kind::new(Log::Small, 0));
        segment.go_on(&[State::Free], State::Piece);
    }

    /// Links the pieces of a value, and pins it for the writer that fills and publishes it.
    pub(crate) fn link_pieces(&self, ids: &[u32]) {
        for (number, id) in ids.iter().enumerate() {
            let pieces = if number == 0 { ids.len() as u32 } else { 0 };
            self.records.segments.get(*id).link(ids.get(number + 1).copied(), pieces);
        }
    }

    /// Queues a value whose record was published, unless the item has died since, and ends its
    /// writer's pin.
    pub(crate) fn queue_value(&self, id: u32, log: Log) {
        let leader = self.records.segments.get(id);
        let weight = leader.pieces();
        let sequence = self.flushes.take_sequence();
        let is_queued = {
            let mut queues = self.logs.queues.lock();
            let lives = !leader.is_dead();
            if lives {
                leader.set_kind(Kind::new(log, 0));
                leader.sequence.store(sequence, Ordering::SeqCst);
                leader.go_on(&[State::Piece], State::Leader);
                queues.push_leader(log, id, weight);
            }
            lives
        };
        if is_queued {
            let opened = Opened { id, sequence, weight };
            self.logs.note_opened(log, opened, &self.records.segments, &self.budget);
        }
        self.unpin(id);
    }

    /// Puts a value that eviction has passed to the end of a log, under the lock of its item's
    /// buckets.
    pub(crate) fn requeue_value(&self, id: u32, log: Log) {
        let leader = self.records.segments.get(id);
        let sequence = self.flushes.take_sequence();
        let mut queues = self.logs.queues.lock();
        queues.remove_leader(leader.kind().log(), id, leader.pieces());
        leader.set_kind(Kind::new(log, 0));
        leader.sequence.store(sequence, Ordering::SeqCst);
        queues.push_leader(log, id, leader.pieces());
        self.logs.young.set(id, false);
    }

    /// Ends the life of a value whose record has died, under the lock of its buckets.
    #[cold]
    pub(crate) fn end_value(&self, id: u32) {
        if mutation_site!("the pieces of a value go with its record") {
            return;
        }
        let leader = self.records.segments.get(id);
        let is_free = {
            let mut queues = self.logs.queues.lock();
            if leader.state() == State::Leader {
                queues.remove_leader(leader.kind().log(), id, leader.pieces());
                leader.go_on(&[State::Leader], State::Piece);
            }
            leader.mark_dead() || mutation_site!("a value that is read is not freed")
        };
        if is_free {
            self.free_value(id);
        }
    }

    /// Ends a pin of a value, and frees it if its item has died and this was the last.
    pub(crate) fn unpin(&self, id: u32) {
        if self.records.segments.get(id).unpin() {
            self.free_value(id);
        }
    }

    fn free_value(&self, id: u32) {
        let pieces = self.records.segments.get(id).pieces() as usize;
        let next = |id: &u32| self.records.segments.get(*id).next_piece();
        let ids: Vec<u32> = std::iter::successors(Some(id), next).take(pieces).collect();
        assert!(
            ids.len() == pieces,
            "value {id} has {pieces} pieces, and {} are linked",
            ids.len()
        );
        self.free_pieces(&ids);
    }

    /// Frees segments that are pieces of no value any more.
    pub(crate) fn free_pieces(&self, ids: &[u32]) {
        // The quota was lowered: the memory goes back to the system.
        let discards = matches!(self.records.values, Values::Inline) && self.budget.is_used_up();
        for &id in ids {
            if discards {
                self.records.arena.discard(self.records.base_of(id), self.records.segment_bytes);
            }
            self.logs.young.set(id, false);
            self.records.segments.get(id).end_piece();
        }
        let mut queues = self.logs.queues.lock();
        for &id in ids {
            queues.give_back_piece(id);
        }
        drop(queues);
        for _ in ids {
            self.budget.give_back_segment();
        }
    }

    /// Returns true if a value of so many pieces could be held once everything was evicted that can
    /// be, but for so many segments that are to be kept.
    pub(crate) fn could_hold(&self, pieces: u64, kept: u64) -> bool {
        let used = u64::from(self.logs.queues.lock().used());
        // One segment is that of its record.
        pieces + kept < self.budget.segments_beside(used)
    }

    /// Returns true if a value can have so many more pieces once everything was evicted that can
    /// be, but for so many segments that are to be kept. Values that no item has cannot be evicted.
    pub(crate) fn can_hold(&self, more: u64, kept: u64) -> bool {
        let held = u64::from(self.logs.queues.lock().held());
        self.could_hold(more + held, kept)
    }

    /// Returns the log that an item belongs to: that of its value in pieces, or of its record.
    pub(crate) fn log_of(&self, location: u64, head: &Head) -> Log {
        let segment = match self.records.leader_of_item(head) {
            Some(leader) => self.records.segments.get(leader),
            None => self.records.segment_at(location),
        };
        segment.kind().log()
    }
}

impl Items {
    /// Checks, while no thread runs, that each piece belongs to one item, and that every segment is
    /// counted.
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
                let Some(id) = records.leader_of_item(&head) else { return };
                let Some(list) = records.list_of(&head) else {
                    wrong =
                        Some(format!("the list of pieces at {} is not whole", found.location()));
                    return;
                };
                let leader = records.segments.get(id);
                let owner = leader.owner();
                if leader.state() != State::Leader || owner != found.location() {
                    wrong = Some(format!("value {id} is not queued for the item that has it"));
                }
                for piece in list.segments {
                    let state = records.segments.get(piece).state();
                    if !matches!(state, State::Piece | State::Leader) {
                        wrong = Some(format!("piece {piece} of an item is {state:?}"));
                    } else if !named.insert(piece) {
                        wrong = Some(format!("piece {piece} belongs to two items"));
                    }
                }
            });
        }
        let queues = self.space.logs.queues.lock();
        let segments = (0..queues.high_water()).map(|id| records.segments.get(id).state());
        let in_use: Vec<State> = segments.filter(|state| *state != State::Free).collect();
        let is_piece = |state: &&State| matches!(state, State::Piece | State::Leader);
        let pieces = in_use.iter().filter(is_piece).count();
        let counted = (queues.of_pieces as usize, queues.used() as usize);
        if pieces != named.len() {
            wrong = Some(format!("{pieces} segments are pieces, items have {}", named.len()));
        } else if counted != (pieces, in_use.len()) || queues.held() != 0 {
            let (found, held) = ((pieces, in_use.len()), queues.held());
            wrong = Some(format!(
                "pieces and segments in use: {found:?}, counted {counted:?}; {held} are held"
            ));
        }
        wrong.map_or(Ok(()), Err)
    }
}
