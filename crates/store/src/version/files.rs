//! State of a store's files: volumes, manifest and view, and the saving of changes.

use std::collections::BTreeMap;
use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;

use crate::StoreError;
use crate::cache::block::BlockCache;
use crate::failure::Failure;
use crate::manifest::{KvsState, Manifest};
use crate::memtable::range_deletes::DeletedPrefix;
use crate::names;
use crate::policy::{Classes, MediaClass, Policy};
use crate::run::{RunOptions, RunWriter};
use crate::segment::Segment;
use crate::types::{KvsId, RunNumber, SegmentNumber};
use crate::version::kvs_bits::KvsBits;
use crate::version::time::StoreTime;
use crate::version::view::{Current, View, ViewRun};
use crate::volumes::{FileKind, Moment, OpenVolume, Volumes};

/// Files of a store. Flushes, compactions, file moves and changes of volumes or `Kvs` replace them.
pub(crate) struct Files {
    pub(crate) volumes: Arc<Volumes>,
    /// Manifest, whose lock guards every change: the manifest is saved first, the view follows.
    pub(crate) manifest: Mutex<Manifest>,
    pub(crate) current: Arc<Current>,
    /// Block cache of the runs.
    pub(crate) pages: Arc<BlockCache>,
    /// `Kvs` dropped since the store was opened, and those dropped before whose writes are still in
    /// the log.
    pub(crate) dropped: KvsBits,
    /// Names of those that were dropped since.
    pub(crate) dropped_names: Mutex<BTreeMap<KvsId, String>>,
    /// `Kvs` too damaged to be opened. Background work leaves their files alone.
    pub(crate) unreadable: Unreadable,
    pub(crate) time: StoreTime,
    pub(crate) failure: Arc<Failure>,
}

/// Reason why a run of the `Kvs` cannot be opened, for each such `Kvs`.
pub(crate) type Unreadable = BTreeMap<KvsId, String>;

impl Files {
    /// Returns the error of a write to a `Kvs` that was dropped.
    pub(crate) fn dropped_error(&self, kvs: KvsId) -> StoreError {
        let name = self.dropped_names.lock().get(&kvs).cloned();
        StoreError::KvsDropped { name: name.unwrap_or_else(|| format!("number {}", kvs.0)) }
    }

    /// Returns the error of a `Kvs` whose runs could not be opened.
    pub(crate) fn unreadable_error(&self, kvs: &KvsState) -> Option<StoreError> {
        let what = self.unreadable.get(&KvsId(kvs.id))?.clone();
        Some(StoreError::KvsDamaged { name: kvs.name.clone(), what })
    }

    /// Returns the manifest and its view, with all runs and all segments of values: neither a copy
    /// of the store nor one volume less could have a missing one.
    ///
    /// # Errors
    /// Fails if a run or a segment that the manifest names could not be opened.
    pub(crate) fn whole(&self) -> Result<(Manifest, Arc<View>), StoreError> {
        let manifest = self.manifest.lock();
        let view = self.current.get();
        if let Some(error) = manifest.kvs.iter().find_map(|kvs| self.unreadable_error(kvs)) {
            return Err(error);
        }
        match manifest.segments().find(|number| !view.segments.contains_key(number)) {
            Some(number) => Err(StoreError::NoSegment { number: number.0 }),
            None => Ok((manifest.clone(), view)),
        }
    }

    /// Creates a segment for values that are moved. Its name is not durable yet.
    ///
    /// # Errors
    /// Fails if there is no room.
    pub(crate) fn make_value_segment(
        &self,
        classes: Classes,
        bytes: u64,
    ) -> Result<(Arc<OpenVolume>, Segment), StoreError> {
        let (store, number) = {
            let manifest = &mut *self.manifest.lock();
            (manifest.store, manifest.take_value_segment())
        };
        let place = self.volumes.choose_of_reserve(FileKind::Values, classes, bytes);
        let name = names::of_segment(number);
        // It counts first: after an error, the file may be there all the same.
        self.volumes.made(name.clone(), &place, bytes);
        let made = Segment::create(&*place.directory, store, number, bytes, place.pmem);
        let segment = made.inspect_err(|_| _ = self.volumes.remove(&name))?;
        self.volumes.made(name, &place, segment.len());
        Ok((place, segment))
    }

    /// Begins a run with its range deletes. Its blocks enter the block cache as they are written.
    ///
    /// # Errors
    /// Fails if the file cannot be created, or if one run cannot hold all the range deletes.
    pub(crate) fn begin_run(
        &self,
        place: &OpenVolume,
        (number, kvs): (RunNumber, KvsId),
        gone: impl IntoIterator<Item = DeletedPrefix>,
    ) -> Result<RunWriter, StoreError> {
        let mut writer = RunWriter::create(&place.directory, number, kvs, RunOptions::default())?;
        writer.cache_in(&self.pages);
        writer.count_in(place.growing());
        for (prefix, sequence) in gone {
            writer.push_range_delete(&prefix, sequence)?;
        }
        Ok(writer)
    }

    /// Makes the next manifest durable.
    ///
    /// # Errors
    /// Fails if the disk fails. Either manifest may then be on the disk, and the store refuses all
    /// further writes. Also fails if too many files are open or there is no room, which leaves the
    /// last manifest in force: a later attempt may succeed.
    pub(crate) fn save(&self, held: &mut Manifest, mut next: Manifest) -> Result<(), StoreError> {
        self.failure.check()?;
        if !mutation_site!("the manifest keeps the time") {
            next.seconds = self.time.latest().max(next.seconds);
            next.seconds_ahead = match self.time.ahead() {
                // The smaller one is taken, or a clock that is wrong now would hasten the time.
                ahead if held.seconds_ahead > 0 => ahead.min(held.seconds_ahead),
                ahead => ahead,
            };
        }
        self.volumes.note_lives(&mut next, self.moment());
        next.assert_follows(held, |name| self.volumes.find(name).is_some());
        match self.volumes.save(&next) {
            Ok(()) => {
                if !mutation_site!("the next manifest is made from the last one") {
                    *held = next;
                }
                Ok(())
            }
            Err(error) if error.leaves_the_manifest() => {
                Err(error.with_descriptors(held.descriptors()))
            }
            Err(error) => {
                self.failure.set(&error);
                // The caller must not take it for a lack of room, after which writes go on.
                Err(match error.is_no_room() {
                    true => StoreError::Failed { what: error.to_string() },
                    false => error,
                })
            }
        }
    }

    /// Returns the present time for the lives of volumes.
    pub(crate) fn moment(&self) -> Moment {
        Moment { instant: self.time.instant(), seconds: self.time.now() }
    }

    /// Returns true if background work that can wait must not write to a volume today.
    pub(crate) fn is_used_up(&self, place: &OpenVolume) -> bool {
        place.life.is_used_up(self.moment())
    }

    /// Replaces the manifest by one that names new files. If a lack of descriptors or of room
    /// prevented the save, this removes the new files: the caller tries again with others, which
    /// need the room.
    ///
    /// # Errors
    /// Fails as [`save`](Files::save) does.
    pub(crate) fn save_with(
        &self,
        held: &mut Manifest,
        next: Manifest,
        made: &[String],
    ) -> Result<(), StoreError> {
        self.save(held, next).inspect_err(|error| {
            if error.leaves_the_manifest() {
                // A file that cannot be removed now is removed at the next opening.
                _ = self.remove(made);
            }
        })
    }

    /// Adds advice to an error about too many open files. The caller must not hold the manifest's
    /// lock.
    pub(crate) fn with_descriptors(&self, error: StoreError) -> StoreError {
        match error.is_no_descriptors() {
            true => error.with_descriptors(self.manifest.lock().descriptors()),
            false => error,
        }
    }

    /// Removes files that the manifest does not name, or names no longer.
    ///
    /// # Errors
    /// Fails if the disk fails. The next opening then removes them.
    pub(crate) fn remove(&self, names: &[String]) -> Result<(), StoreError> {
        let view = self.current.get();
        for name in names {
            assert!(!view.leads_to(name), "{name} is removed, and readers are still led to it");
        }
        names.iter().try_for_each(|name| self.volumes.remove(name))
    }

    /// Returns the policy of a `Kvs` and its aged run; `None` if there is no such `Kvs`.
    pub(crate) fn policy(&self, kvs: KvsId) -> Option<(Policy, RunNumber)> {
        let manifest = self.manifest.lock();
        let state = manifest.kvs.iter().find(|state| state.id == kvs.0)?;
        Some((state.policy, RunNumber(state.aged_run)))
    }

    /// Returns the class of a segment.
    pub(crate) fn class_of(&self, segment: SegmentNumber) -> Option<MediaClass> {
        self.volumes.class_of(&names::of_segment(segment))
    }
}

/// Bytes of records that runs refer to, for each flushed segment.
pub(crate) type LiveBytes = BTreeMap<SegmentNumber, u64>;

/// Returns the bytes live that the given runs refer to.
pub(crate) fn live_of<'a>(runs: impl IntoIterator<Item = &'a ViewRun>) -> LiveBytes {
    let mut live = LiveBytes::new();
    for of_segment in runs.into_iter().flat_map(|run| run.run.summary().live.iter()) {
        *live.entry(of_segment.segment).or_default() += of_segment.bytes;
    }
    live
}

/// Returns the bytes live that all runs of a view refer to.
pub(crate) fn live_segments(view: &View) -> LiveBytes {
    live_of(view.runs.values().flat_map(|runs| runs.iter()))
}
