//! The path of every write: room and back-pressure are checked, then the write-ahead log takes the
//! records and enters them into the memtables, then the row cache learns of them.

use std::collections::BTreeSet;
use std::time::Duration;

use entresol_base::mutation_site;

use crate::StoreError;
use crate::cache::row::KeyLocks;
use crate::engine::Core;
use crate::engine::sync_deadline::SyncDeadline;
use crate::engine::threads::RETRY;
use crate::options::GROUP_BYTES_MAX;
use crate::policy::{Classes, MediaClass, Policy};
use crate::scheduler::StallCount;
use crate::segment::record::{Draft, Kind};
use crate::types::{KvsId, Sequence};
use crate::version::kvs_bits::KvsBits;
use crate::wal::Log;

/// Delay of a writer for each byte it writes and each excess generation that waits to be flushed.
const DELAY_NS: u64 = 4;

/// State that writers change.
pub(crate) struct WriteSide {
    /// `None` if the store is opened read-only.
    pub(crate) log: Option<Log>,
    pub(crate) last_recovered: Sequence,
    /// `Kvs` whose preferred classes had no room at the last check.
    pub(crate) full: KvsBits,
    pub(crate) stalls: WriterStalls,
    pub(crate) deadline: SyncDeadline,
}

/// Waits of writers, by their causes.
#[derive(Debug, Default)]
pub(crate) struct WriterStalls {
    pub(crate) slope: StallCount,
    pub(crate) wall: StallCount,
    pub(crate) sync: StallCount,
    pub(crate) late_sync: StallCount,
    pub(crate) image: StallCount,
    pub(crate) space: StallCount,
}

impl Core {
    /// Writes drafts whose keys the caller has locked. Returns the number of the last write.
    ///
    /// # Errors
    /// Fails if the drafts are too large, if there is no room, or if an earlier write failed.
    pub(crate) fn append(
        &self,
        drafts: &[Draft<'_>],
        mut held: KeyLocks<'_>,
    ) -> Result<Sequence, StoreError> {
        let log = self.log()?;
        if let Some(draft) = drafts.iter().find(|draft| self.files.dropped.has(draft.kvs)) {
            return Err(self.files.dropped_error(draft.kvs));
        }
        let is_put = |draft: &Draft<'_>| matches!(draft.kind, Kind::Put | Kind::PutUntil);
        let takes_room = |draft: &&Draft<'_>| is_put(draft) && self.writes.full.has(draft.kvs);
        if let Some(draft) = drafts.iter().find(takes_room) {
            self.check_not_full(draft.kvs)?;
        }
        let bytes = drafts.iter().map(Draft::bytes).sum();
        if bytes > GROUP_BYTES_MAX {
            return Err(StoreError::Group { bytes, most: GROUP_BYTES_MAX });
        }
        self.apply_back_pressure(bytes)?;
        let done = log.append(drafts, || {
            self.dead_keys.note_puts(drafts);
            held.remove(drafts);
        });
        let last = done.map_err(|error| self.files.with_descriptors(error))?;
        self.sample(drafts, held.hash(), last);
        if let [draft] = drafts {
            held.put(draft, last);
        }
        Ok(last)
    }

    /// Tells the estimate of what is live of the writes that it samples, up to a number. `hash` is
    /// that of the key if a single one is written.
    #[inline]
    fn sample(&self, drafts: &[Draft<'_>], hash: Option<u64>, last: Sequence) {
        let (space, gauge) = (&self.background.space, &self.files.volumes.gauge);
        match (drafts, hash) {
            ([draft], Some(hash)) if space.is_sampled(hash) => {
                space.note((draft, hash), last, gauge);
            }
            ([_], Some(_)) => {}
            _ => space.note_all(drafts, last, gauge),
        }
    }

    /// Slows a writer down if flushes lag: a short delay at first, a wait for the flush at the
    /// limit. A lagging memtable image also costs a short delay, and a late sync a wait for it. The
    /// less space is left that the store may take, the longer is a delay for that.
    ///
    /// # Errors
    /// Fails if the store fails or is closed meanwhile.
    pub(crate) fn apply_back_pressure(&self, bytes: u64) -> Result<(), StoreError> {
        if self.waits_for_sync() && !mutation_site!("writers wait for a sync that is late") {
            self.wait_for_sync()?;
        }
        if let owed @ 1.. = self.files.volumes.gauge.delay(bytes).as_nanos()
            && !mutation_site!("writers are slowed down before too much space is taken")
            && let Some(slept) = self.background.scheduler.pay(Duration::from_nanos(owed as u64))
        {
            self.writes.stalls.space.add(slept);
        }
        let most = self.options.generations_waiting_max as usize;
        let waiting = self.background.scheduler.waiting();
        if let owed @ 1.. = self.image_delay().as_nanos()
            && let Some(slept) = self.background.scheduler.pay(Duration::from_nanos(owed as u64))
        {
            self.writes.stalls.image.add(slept);
        }
        if waiting <= most / 2 {
            return Ok(());
        }
        if waiting < most {
            let owed = Duration::from_nanos(bytes * DELAY_NS * (waiting - most / 2) as u64);
            if let Some(slept) = self.background.scheduler.pay(owed) {
                self.writes.stalls.slope.add(slept);
            }
            return Ok(());
        }
        let begun = self.files.time.instant();
        let done = self.wait_for_room(most);
        self.writes.stalls.wall.add(self.files.time.instant().since(begun));
        done
    }

    /// Returns true if a writer would have to wait for a sync, a flush, a memtable image or space.
    pub(crate) fn would_wait(&self) -> bool {
        self.waits_for_sync()
            || self.background.scheduler.waiting()
                > self.options.generations_waiting_max as usize / 2
            || !self.image_delay().is_zero()
            || !self.files.volumes.gauge.delay(1).is_zero()
    }

    #[inline]
    fn waits_for_sync(&self) -> bool {
        self.writes.deadline.stops(self.published(), || self.files.time.instant())
    }

    /// Waits until acknowledged writes that are not durable are young enough again.
    ///
    /// # Errors
    /// Fails if the store fails or is closed meanwhile.
    #[cold]
    fn wait_for_sync(&self) -> Result<(), StoreError> {
        let begun = self.files.time.instant();
        loop {
            let seen = self.background.scheduler.events();
            if !self.writes.deadline.is_over(self.files.time.instant()) {
                break;
            }
            self.files.failure.check()?;
            self.check_open()?;
            self.background.scheduler.wait(seen, RETRY);
        }
        self.writes.stalls.late_sync.add(self.files.time.instant().since(begun));
        Ok(())
    }

    fn wait_for_room(&self, most: usize) -> Result<(), StoreError> {
        let (before, _) = self.background.scheduler.attempts();
        loop {
            let seen = self.background.scheduler.events();
            if self.background.scheduler.waiting() < most {
                return Ok(());
            }
            if let (tried, Some(lacked)) = self.background.scheduler.attempts()
                && tried > before
            {
                return Err(lacked.into());
            }
            self.files.failure.check()?;
            self.check_open()?;
            self.background.scheduler.wait(seen, RETRY);
        }
    }

    /// Returns the delay of each write while the memtable image lags.
    fn image_delay(&self) -> Duration {
        self.background.images.delay(self.writes.log.as_ref())
    }

    /// Updates the set of `Kvs` whose preferred classes have no room. Acknowledged writes of these
    /// then lie elsewhere for as long as they must.
    pub(crate) fn look_for_full(&self) {
        if self.files.volumes.count_volumes() < 2 {
            return;
        }
        let all: Vec<(KvsId, Policy)> = {
            let manifest = self.files.manifest.lock();
            manifest.kvs.iter().map(|state| (KvsId(state.id), state.policy)).collect()
        };
        for (kvs, policy) in all {
            match self.room_of(&policy) {
                Ok(()) => self.writes.full.remove(kvs),
                Err(_) => self.writes.full.add(kvs),
            }
        }
    }

    /// Checks again that a `Kvs` in that set has no room on its preferred classes, and takes it off
    /// the set if it has.
    ///
    /// # Errors
    /// Fails if there is still no room.
    pub(crate) fn check_not_full(&self, kvs: KvsId) -> Result<(), StoreError> {
        let Some((policy, _)) = self.files.policy(kvs) else { return Ok(()) };
        self.room_of(&policy)?;
        self.writes.full.remove(kvs);
        Ok(())
    }

    /// Checks that one of the classes that a policy names has room.
    ///
    /// # Errors
    /// Fails if none of them has.
    fn room_of(&self, policy: &Policy) -> Result<(), StoreError> {
        let named = policy.parts().into_iter().map(|(_, classes)| self.files.volumes.had(classes));
        let named: BTreeSet<MediaClass> =
            named.flat_map(|classes| classes.as_slice().to_vec()).collect();
        let named: Vec<MediaClass> = named.into_iter().collect();
        let classes = Classes::new(&named).unwrap_or(Classes::FASTEST);
        let room = self.files.volumes.choose_for_writes(classes);
        room.map_err(|error| match error {
            StoreError::NoRoom { what } => StoreError::NoRoom {
                what: format!(
                    "the policy puts everything on {classes}, and {what}: delete keys, add a \
                     volume, or choose a policy that allows other classes"
                ),
            },
            error => error,
        })
    }
}
