//! The two logs as a whole: the log of a new item, young segments, the first fill, the mean size of
//! an item, and the size of the table of ghost tags.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::config::Favour;
use crate::index::Heat;
use crate::segment::{Kind, Log, Queues, State};
use crate::shared::Shared;

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
const SAMPLED: u32 = 64;

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

impl Shared {
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

    /// Notes that a segment was opened: older ones cease to be young, and the logs are balanced
    /// anew.
    pub(crate) fn note_opened(&self, kind: Kind, id: u32, sequence: u64) {
        let (used, high_water) = {
            let mut queues = self.queues.lock();
            let log = kind.log();
            queues.young[log as usize].push_back((id, sequence));
            self.young.set(id, true);
            self.let_age(&mut queues, log);
            if log == Log::Small && !self.pressed.load(Ordering::Relaxed) {
                self.fill_main(&mut queues);
            }
            (queues.used(), queues.high_water())
        };
        if kind.log() == Log::Small {
            self.balance.adapt(used);
            self.sample_sizes(high_water);
        }
    }

    /// Lets the oldest of a log's young segments be young no more.
    fn let_age(&self, queues: &mut Queues, log: Log) {
        let share = self.balance.share();
        let part = match log {
            Log::Small => YOUNG_OF_SMALL * share,
            Log::Main => YOUNG_OF_MAIN * (1.0 - share),
        };
        let most = 1 + (part * f64::from(queues.used())) as usize;
        let young = &mut queues.young[log as usize];
        while young.len() > most {
            let Some((id, sequence)) = young.pop_front() else { break };
            // It may have been freed, and may even be in another life.
            if self.segments.get(id).sequence.load(Ordering::SeqCst) == sequence {
                self.young.set(id, false);
            }
        }
    }

    /// Moves the oldest segments of the small log to the main one, while the cache is not full:
    /// there is room for everything, and the first items are as good as any.
    fn fill_main(&self, queues: &mut Queues) {
        let segments = self.segment_quota().limit() / self.segment_bytes;
        let most = self.balance.share_of(segments as u32);
        while queues.in_use[Log::Small as usize] > most {
            let sequence = |id: u32| self.segments.get(id).sequence.load(Ordering::SeqCst);
            let oldest = queues.fronts(Log::Small).min_by_key(|(_, id)| sequence(*id));
            let Some((kind, id)) = oldest else { break };
            let state = self.segments.get(id).state();
            assert!(state == State::Sealed, "segment {id} changes its log as {state:?}");
            self.segments.get(id).set_kind(queues.move_to_main(kind, id));
            self.young.set(id, false);
        }
    }

    /// Counts the live items of some more segments; the mean size is known anew whenever all were
    /// counted.
    fn sample_sizes(&self, high_water: u32) {
        let mut counts = self.balance.counts();
        for _ in 0..SAMPLED.min(high_water) {
            let segment = self.segments.get(counts.next_sample);
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
    pub(crate) fn prepare_ghosts(&self) {
        if self.ghosts.wanted_bytes(self.index.items()).is_none() {
            return;
        }
        let _alone = self.balance.counts();
        let Some(bytes) = self.ghosts.wanted_bytes(self.index.items()) else { return };
        let before = self.ghosts.bytes();
        self.dram.force(bytes);
        self.ghosts.resize(bytes);
        self.dram.give_back(before);
    }
}
