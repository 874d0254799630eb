//! The shards that threads write through, as a whole: sealing of what they have open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use entresol_base::Seconds;
use entresol_base::sync::{Mutex, MutexGuard};
use entresol_media::Account;

use crate::config::plan::Plan;
use crate::segment::State;
use crate::shared::append::{EVICTIONS_MAX, Shard};
use crate::shared::evict::How;
use crate::shared::items::Items;
use crate::shared::space::Space;

/// Stores together take at most one part in this many of the quota without waiting for a turn.
const TURN_SHARE: u64 = 8;
/// Evictions without effect before a store is refused: some segments may be full of what stays, and
/// those behind them of what goes.
const IN_VAIN_MAX: usize = 4 * EVICTIONS_MAX;

/// Shards of writers, and that of upkeep.
pub(crate) struct Writers {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Shard whose open segments upkeep copies items into.
    pub(crate) upkeep: Mutex<Shard>,
    /// Second at whose expiries upkeep last sealed open segments.
    sealed_expired_s: AtomicU32,
    /// Held by a store that takes a large part of the quota.
    turn: Mutex<()>,
    /// Number of threads that hold a worker.
    workers: u64,
}

impl Writers {
    pub(crate) fn new(plan: &Plan, seed: u64, account: &Arc<Account>) -> Self {
        let shard =
            |number| Mutex::new(Shard::new(number, plan.open_slots, seed, account.handle()));
        Writers {
            shards: (0..plan.shards).map(shard).collect(),
            upkeep: shard(plan.shards),
            sealed_expired_s: AtomicU32::new(0),
            turn: Mutex::new(()),
            workers: plan.workers,
        }
    }

    /// Iterates over the shards of writers and that of upkeep.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Mutex<Shard>> {
        self.shards.iter().chain(std::iter::once(&self.upkeep))
    }

    /// Seals the open segments whose items have all expired, once a second: that is the unit of
    /// expiry.
    #[inline]
    pub(crate) fn seal_expired(&self, space: &Space, now: Seconds) {
        if self.sealed_expired_s.load(Ordering::Relaxed) != now.0 {
            self.seal_expired_now(space, now);
        }
    }

    fn seal_expired_now(&self, space: &Space, now: Seconds) {
        let mut all = true;
        for shard in self.all() {
            match shard.try_lock() {
                Some(mut shard) => shard.seal_expired(space, now),
                None => all = false,
            }
        }
        if all {
            self.sealed_expired_s.store(now.0, Ordering::Relaxed);
        }
    }

    /// Ends the flush once no segment from before it is left.
    #[inline]
    pub(crate) fn finish_flush(&self, space: &Space) {
        let below = space.flushes.below();
        if below != 0 {
            self.finish_flush_below(space, below);
        }
    }

    fn finish_flush_below(&self, space: &Space, below: u64) {
        for shard in self.all() {
            shard.lock().seal_flushed(space);
        }
        let left = (0..space.logs.queues.lock().high_water()).any(|id| {
            let segment = space.records.segments.get(id);
            // Pieces go with the records that name them.
            !matches!(segment.state(), State::Free | State::Piece | State::Leader)
                && segment.sequence.load(Ordering::SeqCst) < below
        });
        if !left {
            space.flushes.end(below);
        }
    }

    /// Waits for the turn of a store of so many segments, if these are a large part of the quota:
    /// of several that take what they need bit by bit, none might get it all. The turn ends with
    /// the guard, once the value is published.
    pub(crate) fn wait_for_turn(&self, space: &Space, pieces: usize) -> Option<MutexGuard<'_, ()>> {
        let at_once = space.budget.segments() / (TURN_SHARE * self.workers);
        (pieces as u64 > at_once.max(1)).then(|| self.turn.lock())
    }

    /// Takes segments for the pieces of a value, if need be from items that are evicted for it, but
    /// not from the one whose hash is `keep`. Returns false if there is nothing left to evict:
    /// others may be about to let go what they hold, for which this does not wait.
    pub(crate) fn take_room(
        &self,
        items: &Items,
        shard: usize,
        wanted: usize,
        keep: Option<u64>,
        now: Seconds,
        taken: &mut Vec<u32>,
    ) -> bool {
        let space = &items.space;
        let free = |taken: &Vec<u32>| {
            space.budget.of_segments().left() + taken.len() as u64 * space.records.segment_bytes
        };
        let (mut in_vain, mut sealed) = (0, false);
        while !space.take_pieces(wanted, taken) {
            let before = free(taken);
            space.budget.press();
            let evicted = {
                let mut shard = self.shards[shard].lock();
                shard.keep = keep;
                let how = How::for_segment(in_vain >= EVICTIONS_MAX);
                let evicted = items.evict_one(&mut shard, now, how);
                shard.keep = None;
                evicted
            };
            if free(taken) > before {
                (in_vain, sealed) = (0, false);
            } else if evicted {
                in_vain += 1;
            } else if !sealed {
                // All that is left to evict may be in open segments.
                self.seal_all(space);
                sealed = true;
            } else {
                return false;
            }
            if in_vain > IN_VAIN_MAX {
                return false;
            }
        }
        true
    }

    /// Seals every open segment.
    pub(crate) fn seal_all(&self, space: &Space) {
        for shard in self.all() {
            shard.lock().seal_all(space);
        }
    }
}
