//! The shards that threads write through, as a whole: sealing of what they have open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use entresol_base::Seconds;
use entresol_base::sync::Mutex;
use entresol_media::Account;

use crate::config::plan::Plan;
use crate::segment::State;
use crate::shared::append::Shard;
use crate::shared::space::Space;

/// Shards of writers, and that of upkeep.
pub(crate) struct Writers {
    pub(crate) shards: Box<[Mutex<Shard>]>,
    /// Shard whose open segments upkeep copies items into.
    pub(crate) upkeep: Mutex<Shard>,
    /// Second at whose expiries upkeep last sealed open segments.
    sealed_expired_s: AtomicU32,
}

impl Writers {
    pub(crate) fn new(plan: &Plan, seed: u64, account: &Arc<Account>) -> Self {
        let shard =
            |number| Mutex::new(Shard::new(number, plan.open_slots, seed, account.handle()));
        Writers {
            shards: (0..plan.shards).map(shard).collect(),
            upkeep: shard(plan.shards),
            sealed_expired_s: AtomicU32::new(0),
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
            !matches!(segment.state(), State::Free | State::Pieces)
                && segment.sequence.load(Ordering::SeqCst) < below
        });
        if !left {
            space.flushes.end(below);
        }
    }

    /// Seals the open segments whose items have values in pieces, for another thread that needs
    /// their room; returns true if there was one.
    pub(crate) fn seal_heavy(&self, space: &Space) -> bool {
        let mut sealed = false;
        for shard in self.all() {
            sealed |= shard.lock().seal_heavy(space, 1);
        }
        sealed
    }

    /// Seals every open segment.
    pub(crate) fn seal_all(&self, space: &Space) {
        for shard in self.all() {
            shard.lock().seal_all(space);
        }
    }
}
