//! The two logs as a whole: the log of a new item, young segments, the first fill, the mean size of
//! an item, and the size of the table of ghost tags.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::sync::Mutex;
use entresol_media::RegionError;

use crate::config::Favour;
use crate::config::plan::Plan;
use crate::index::{Heat, Index};
use crate::segment::{Front, Log, Opened, Queues, SharedQueues, State, Table};
use crate::shared::balance::Balance;
use crate::shared::budget::Budget;
use crate::shared::ghost::Ghosts;

/// Part of the small log whose reads do not count yet: those that follow a store at once say little
/// about later ones.
const YOUNG_OF_SMALL: f64 = 0.3;
const YOUNG_OF_MAIN: f64 = 0.1;
/// Mean sizes above which an item that is back starts in the small log, in tenths.
const BACK_SIZES_TENTHS: u64 = 29;
/// One in this many of the items that the main log let go starts in the small log in any case, so
/// that it stays known how often such items are read.
const TRIAL_EVERY: u8 = 8;
/// Segments counted for the mean size whenever one is opened.
const SAMPLED: u32 = 4;

/// Passes without a read that an item smaller than the mean outlives at most.
const PASSES_MAX: u8 = 3;
/// An item without a read stays up to this part of the mean size, halved by each pass.
const UNREAD_NUMERATOR: u64 = 72;
const UNREAD_DENOMINATOR: u64 = 100;
/// An item stays up to this many mean sizes for each read.
const READ_SIZES: u64 = 8;

/// Bits of the segments whose reads do not count.
pub(crate) struct Young(Box<[AtomicU64]>);

impl Young {
    pub(crate) fn new(segments_max: u32) -> Self {
        Young((0..segments_max.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    /// Returns true if the segment's reads do not count.
    #[inline(always)]
    pub(crate) fn has(&self, id: u32) -> bool {
        let word = self.0.get(id as usize / 64);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (id % 64) & 1 == 1)
    }

    pub(crate) fn set(&self, id: u32, young: bool) {
        let (word, bit) = (&self.0[id as usize / 64], 1 << (id % 64));
        if young {
            word.fetch_or(bit, Ordering::Relaxed);
        } else {
            word.fetch_and(!bit, Ordering::Relaxed);
        }
    }

    /// Returns the bytes of the bits.
    pub(crate) fn bytes(&self) -> u64 {
        size_of_val(&*self.0) as u64
    }
}

/// The two logs: their segments in order, and what decides which items they keep.
pub(crate) struct Logs {
    pub(crate) queues: SharedQueues,
    /// Keys that eviction let go.
    pub(crate) ghosts: Ghosts,
    pub(crate) balance: Balance,
    /// Segments whose reads do not count.
    pub(crate) young: Young,
    /// Misses that eviction keeps few: of objects or of bytes.
    favour: Favour,
}

impl Logs {
    pub(crate) fn new(plan: &Plan, favour: Favour) -> Result<Self, RegionError> {
        Ok(Logs {
            queues: Mutex::new(Queues::new(plan.segments_max)),
            ghosts: Ghosts::new(plan.tags_bytes_max)?,
            balance: Balance::new(),
            young: Young::new(plan.segments_max),
            favour,
        })
    }

    /// Chooses the log of a new item of so many bytes, and its heat.
    pub(crate) fn log_of_new(
        &self,
        hash: u64,
        bytes: u64,
        random: &mut fastrand::Rng,
    ) -> (Log, Heat) {
        let Some(ghost) = self.ghosts.take(hash) else { return (Log::Small, Heat::NEW) };
        let mean = self.balance.mean_bytes();
        if ghost.is_newest {
            let weight = match self.favour {
                Favour::Objects => 1.0,
                Favour::Bytes => bytes as f64 / mean.max(1) as f64,
            };
            self.balance.came_back(ghost.from, weight);
        }
        if self.favour == Favour::Objects && mean > 0 && bytes * 10 > BACK_SIZES_TENTHS * mean {
            return (Log::Small, Heat::LARGE);
        }
        match ghost.from {
            Log::Small => (Log::Main, Heat::NEW),
            Log::Main if self.balance.main_pays() && random.u8(..TRIAL_EVERY) > 0 => {
                (Log::Main, Heat::NEW)
            }
            Log::Main => (Log::Small, Heat::BACK),
        }
    }

    /// Notes that a segment was opened, or a value in pieces stored: older ones cease to be young,
    /// and the logs are balanced anew.
    pub(crate) fn note_opened(&self, log: Log, opened: Opened, segments: &Table, budget: &Budget) {
        let (used, high_water) = {
            let mut queues = self.queues.lock();
            queues.young[log as usize].push_back(opened);
            queues.young_weight[log as usize] += opened.weight;
            self.young.set(opened.id, true);
            self.let_age(&mut queues, log, segments);
            if log == Log::Small && !budget.is_pressed() {
                self.fill_main(&mut queues, segments, budget.segments());
            }
            (queues.used(), queues.high_water())
        };
        if log == Log::Small {
            self.balance.adapt(used);
            self.sample_sizes(high_water, segments);
        }
    }

    /// Lets the oldest of a log's young segments be young no more.
    fn let_age(&self, queues: &mut Queues, log: Log, segments: &Table) {
        let share = self.balance.share();
        let part = match log {
            Log::Small => YOUNG_OF_SMALL * share,
            Log::Main => YOUNG_OF_MAIN * (1.0 - share),
        };
        let most = 1 + (part * f64::from(queues.used())) as u32;
        let (young, weighs) =
            (&mut queues.young[log as usize], &mut queues.young_weight[log as usize]);
        while young.len() > 1 && *weighs > most {
            let Some(Opened { id, sequence, weight }) = young.pop_front() else { break };
            *weighs -= weight;
            // It may have been freed, and may even be in another life.
            if segments.get(id).sequence.load(Ordering::SeqCst) == sequence {
                self.young.set(id, false);
            }
        }
    }

    /// Moves the oldest segments of the small log to the main one, while the cache is not full:
    /// there is room for everything, and the first items are as good as any.
    fn fill_main(&self, queues: &mut Queues, segments: &Table, limit: u64) {
        let most = self.balance.share_of(limit as u32);
        while queues.used_by(Log::Small) > most {
            match Logs::oldest(queues, Log::Small, segments) {
                Some(Front::Segment(kind, id)) => {
                    let state = segments.get(id).state();
                    assert!(state == State::Sealed, "segment {id} changes its log as {state:?}");
                    segments.get(id).set_kind(queues.move_to_main(kind, id));
                    self.young.set(id, false);
                }
                Some(Front::Leader(id)) => {
                    let leader = segments.get(id);
                    queues.remove_leader(Log::Small, id, leader.pieces());
                    leader.set_kind(leader.kind().in_main());
                    queues.push_leader(Log::Main, id, leader.pieces());
                    self.young.set(id, false);
                }
                None => break,
            }
        }
    }

    /// Returns the oldest part of a log that can be evicted.
    fn oldest(queues: &Queues, log: Log, segments: &Table) -> Option<Front> {
        let sequence = |id: u32| segments.get(id).sequence.load(Ordering::SeqCst);
        let segment = queues.fronts(log).min_by_key(|(_, id)| sequence(*id));
        match (segment, queues.oldest_leader(log)) {
            (Some((kind, id)), leader) if leader.is_none_or(|led| sequence(id) < sequence(led)) => {
                Some(Front::Segment(kind, id))
            }
            (_, leader) => leader.map(Front::Leader),
        }
    }

    /// Counts the live items of some more segments; the mean size is known anew whenever all were
    /// counted.
    fn sample_sizes(&self, high_water: u32, segments: &Table) {
        let mut counts = self.balance.counts();
        for _ in 0..SAMPLED.min(high_water) {
            let segment = segments.get(counts.next_sample);
            counts.sample_items += segment.live_items();
            counts.sample_bytes += segment.live_bytes();
            counts.next_sample += 1;
            let is_first = self.balance.mean_bytes() == 0;
            if (counts.next_sample >= high_water || is_first)
                && let Some(mean) = counts.sample_bytes.checked_div(counts.sample_items)
            {
                self.balance.set_mean_bytes(mean);
            }
            if counts.next_sample >= high_water {
                (counts.next_sample, counts.sample_items, counts.sample_bytes) = (0, 0, 0);
            }
        }
    }

    /// Gives the table of ghost tags its size, once there is something to let go.
    pub(crate) fn prepare_ghosts(&self, index: &Index, budget: &Budget) {
        if self.ghosts.wanted_bytes(index.items()).is_none() {
            return;
        }
        let _alone = self.balance.counts();
        let Some(bytes) = self.ghosts.wanted_bytes(index.items()) else { return };
        budget.change_tags(self.ghosts.bytes(), bytes);
        self.ghosts.resize(bytes);
    }

    /// Takes the oldest part of one log out of its queue: of the small log, if that has more than
    /// its share. A value in pieces is as old as its item. If `with_values` is false, segments
    /// alone are looked at.
    pub(crate) fn take_oldest(
        &self,
        queues: &mut Queues,
        segments: &Table,
        with_values: bool,
    ) -> Option<Front> {
        let sequence = |id: u32| segments.get(id).sequence.load(Ordering::SeqCst);
        let [small, main] = [Log::Small, Log::Main].map(|log| {
            if with_values {
                return Logs::oldest(queues, log, segments);
            }
            let oldest = queues.fronts(log).min_by_key(|(_, id)| sequence(*id));
            oldest.map(|(kind, id)| Front::Segment(kind, id))
        });
        let excess = queues.used_by(Log::Small) > self.balance.share_of(queues.used());
        let front = if excess { small.or(main) } else { main.or(small) }?;
        match front {
            Front::Segment(kind, id) => queues.remove_sealed(kind, id),
            Front::Leader(id) => {
                let taken = queues.pop_leader(segments.get(id).kind().log());
                assert!(taken == Some(id), "value {id} is the oldest, but {taken:?} was taken");
            }
        }
        Some(front)
    }

    /// Returns true if an item of so many bytes stays when eviction passes it.
    pub(crate) fn stays(&self, log: Log, heat: Heat, bytes: u64) -> bool {
        let count = u64::from(heat.count());
        let mean = self.balance.mean_bytes();
        if self.favour == Favour::Bytes || mean == 0 {
            return count > 0;
        }
        if count > 0 {
            return bytes <= READ_SIZES * count * mean;
        }
        // The mark of an item that is back stands beside the count of passes, which only the main
        // log keeps.
        let passes = if log == Log::Main { heat.passes() } else { 0 };
        passes < PASSES_MAX && (bytes << passes) * UNREAD_DENOMINATOR <= UNREAD_NUMERATOR * mean
    }
}
