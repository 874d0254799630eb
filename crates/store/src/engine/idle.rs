//! Watch for times in which nothing is written, in which dead space is given back at once.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use entresol_base::Nanos;

use crate::engine::Core;
use crate::types::Sequence;
use crate::upkeep::compaction::DEAD_BYTES_MIN;
use crate::version::view::View;
use crate::wal::Log;

/// Time without a write after which a store is idle.
const IDLE_AFTER: Duration = Duration::from_secs(3);
/// Time between looks at what has expired meanwhile.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Last write that was seen, and the time of it.
#[derive(Debug, Default)]
pub(super) struct IdleWatch {
    last: Sequence,
    since: Nanos,
    looked: Nanos,
}

impl IdleWatch {
    /// Notes whether anything was written since the last call. Once the store is idle, closes the
    /// memtable if its flush may free much, and wakes compaction.
    pub(super) fn look(&mut self, core: &Core, log: &Log) {
        let (last, now) = (log.published(), core.files.time.instant());
        if last != self.last {
            (self.last, self.since) = (last, now);
            core.background.is_idle.store(false, Relaxed);
            return;
        }
        if now.since(self.since) < IDLE_AFTER || now.since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        core.background.is_idle.store(true, Relaxed);
        if may_free_much(&core.files.current.get(), log.unflushed()) {
            // Without room for another segment it is tried again.
            let _ = log.close_generation();
        }
        core.background.scheduler.tell();
    }
}

/// Returns true if a flush of the active memtable, which has so many records, may free much: the
/// log that it covers, or flushed data that it deletes or overwrites.
fn may_free_much(view: &View, (bytes, records): (u64, u64)) -> bool {
    let runs = || view.runs.values().flat_map(|runs| runs.iter()).map(|run| run.run.summary());
    let flushed: u64 =
        runs().map(|run| run.file_bytes + run.live.iter().map(|it| it.bytes).sum::<u64>()).sum();
    let versions = runs().map(|run| run.entries).sum::<u64>().max(1);
    let has_range_deletes =
        || view.runs.keys().any(|kvs| view.young.prefixes(*kvs).is_some_and(|it| it.any()));
    bytes >= DEAD_BYTES_MIN
        || flushed / versions * records >= DEAD_BYTES_MIN
        || flushed >= DEAD_BYTES_MIN && records > 0 && has_range_deletes()
}
