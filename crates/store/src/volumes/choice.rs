//! The choice of a volume for a new file, by the room that each has, and by what is kept free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::ByteSize;

use super::{FileKind, OpenVolume, Volumes};
use crate::policy::{Classes, MediaClass};
use crate::types::RunNumber;
use crate::{StoreError, manifest, names};

/// Most bytes that garbage collection leaves free for the manifest and for deletes.
const KEPT_WHILE_COLLECTING: u64 = 1 << 20;

/// Most bytes that a compaction leaves free in any case.
const LAST_BYTES: u64 = 64 << 10;

/// Size of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct ClassFill {
    /// Bytes of the store's files, plus the free bytes.
    pub(crate) bytes: u64,
    /// Free bytes without the reserve.
    pub(crate) free: u64,
}

impl Volumes {
    /// Chooses the volume for a file of a flush or compaction: of the first given class that has
    /// room. If none has, the volume is of any class with room, the largest class first.
    /// Acknowledged writes are kept, though not where they should lie.
    ///
    /// # Errors
    /// Fails if no volume has room.
    pub(crate) fn choose(
        &self,
        what: FileKind,
        classes: Classes,
        bytes: u64,
    ) -> Result<Arc<OpenVolume>, StoreError> {
        self.choose_strictly(what, classes, bytes).or_else(|_| {
            let others = MediaClass::ALL.into_iter().rev().map(|class| (class, 0.0));
            self.first_with_room(others, bytes, false)
        })
    }

    /// Chooses the volume for a file of a flush or compaction, of the given classes only.
    ///
    /// # Errors
    /// Fails if none of them has room.
    pub(crate) fn choose_strictly(
        &self,
        what: FileKind,
        classes: Classes,
        bytes: u64,
    ) -> Result<Arc<OpenVolume>, StoreError> {
        let last = classes.as_slice().last().copied();
        let kept = |class| if Some(class) == last { 0.0 } else { what.kept_free() };
        let classes = classes.as_slice().iter();
        let is_for_writes = what == FileKind::Log;
        let classes = classes.map(|class| (*class, kept(*class)));
        self.first_with_room(classes, bytes, is_for_writes)
    }

    /// Chooses a volume as [`Volumes::choose`] does, but takes from the reserve if nothing else is
    /// left.
    pub(crate) fn choose_of_reserve(
        &self,
        what: FileKind,
        classes: Classes,
        bytes: u64,
    ) -> Arc<OpenVolume> {
        self.choose(what, classes, bytes).unwrap_or_else(|_| self.with_most_room(classes))
    }

    /// Chooses the volume for a new file of the log: the fastest with room.
    ///
    /// # Errors
    /// Fails if no volume has room.
    pub(crate) fn choose_for_log(&self, bytes: u64) -> Result<Arc<OpenVolume>, StoreError> {
        let has = MediaClass::ALL.map(|class| (class, self.has(class)));
        let had: Vec<MediaClass> =
            has.into_iter().filter(|(_, has)| *has).map(|(class, _)| class).collect();
        let classes = Classes::new(&had).unwrap_or(Classes::FASTEST);
        self.choose_strictly(FileKind::Log, classes, bytes)
    }

    /// Chooses a volume for new writes of a `Kvs` whose policy names only the given classes.
    ///
    /// # Errors
    /// Fails if none of them has room.
    pub(crate) fn choose_for_writes(&self, classes: Classes) -> Result<(), StoreError> {
        let last = classes.as_slice().last().copied();
        let kept = |class| if Some(class) == last { 0.0 } else { FileKind::Keys.kept_free() };
        let classes = classes.as_slice().iter().map(|class| (*class, kept(*class)));
        self.first_with_room(classes, 0, true).map(drop)
    }

    /// Sets the bytes that the largest compaction of the runs of one `Kvs` takes on each volume.
    /// New values leave room for it: without it, nothing comes back of what is deleted.
    pub(crate) fn set_merging(&self, kvs: impl Iterator<Item = Vec<(RunNumber, u64)>>) {
        let mut most = BTreeMap::<u32, u64>::new();
        for runs in kvs {
            let mut of_kvs = BTreeMap::<u32, u64>::new();
            for (number, bytes) in runs {
                let place = self.find(&names::of_run(number));
                *of_kvs.entry(place.map_or(manifest::HOME, |it| it.number)).or_default() += bytes;
            }
            for (place, bytes) in of_kvs {
                most.entry(place).and_modify(|it| *it = bytes.max(*it)).or_insert(bytes);
            }
        }
        for place in self.all.read().iter() {
            place.merging.store(most.get(&place.number).copied().unwrap_or_default(), Relaxed);
        }
    }

    /// Returns the reserve for deletes and compactions that was asked for.
    pub(crate) fn reserve_bytes(&self) -> u64 {
        self.reserve_bytes
    }

    /// Refuses to take the last bytes of a volume for a compaction: deletes and the manifest need
    /// them, while readers may hold all that the compaction frees.
    ///
    /// # Errors
    /// Fails if there is no room but these.
    pub(crate) fn check_not_last(&self, place: &OpenVolume) -> Result<(), StoreError> {
        let last = LAST_BYTES.min(self.reserve_of(place) / 16);
        let room = place.directory.free_bytes().unwrap_or(u64::MAX);
        if room >= last {
            return Ok(());
        }
        let path = place.directory.path().display();
        let what = format!("{path} has {} left to compact with", ByteSize(room));
        Err(StoreError::NoRoom { what })
    }

    /// Returns the bytes of a volume that garbage collection may fill before it frees segments,
    /// when the same volume takes the compacted keys, of so many bytes. `is_held` is true if
    /// readers hold the segments, which therefore come back later: the reserve is left alone then.
    pub(crate) fn room_to_collect(&self, place: &OpenVolume, keys: u64, is_held: bool) -> u64 {
        let kept = match is_held {
            true => self.reserve_of(place) + place.merging.load(Relaxed),
            false => KEPT_WHILE_COLLECTING.min(self.reserve_of(place) / 8),
        };
        place.room().map_or(u64::MAX, |room| room.saturating_sub(keys.saturating_add(kept)))
    }

    /// Returns a volume of the first class that has room for `bytes` bytes beside the reserve and
    /// the share of the class to keep free.
    fn first_with_room(
        &self,
        classes: impl Iterator<Item = (MediaClass, f64)>,
        bytes: u64,
        is_for_writes: bool,
    ) -> Result<Arc<OpenVolume>, StoreError> {
        let all = self.all();
        let mut looked_at = Vec::new();
        for (class, kept) in classes {
            let of_class = all.iter().filter(|it| it.class == class && !it.is_retiring());
            let with_room = of_class.map(|place| {
                let merging = if is_for_writes { place.merging.load(Relaxed) } else { 0 };
                (place.room(), self.reserve_of(place), merging, place)
            });
            // Volumes of one class may have reserves of different sizes.
            let most = with_room.max_by_key(|(room, reserve, merging, _)| {
                (room.map(|room| room.saturating_sub(reserve + merging)), *room)
            });
            let Some((room, reserve, merging, place)) = most else { continue };
            let fill = if kept > 0.0 { self.fill(class) } else { None };
            let kept = fill.map_or(0, |fill| (fill.bytes as f64 * kept) as u64);
            let needed = bytes.saturating_add((reserve + merging).max(kept));
            if room.is_none_or(|room| room >= needed) {
                return Ok(place.clone());
            }
            let (path, room) = (place.directory.path().display(), ByteSize(room.unwrap_or(0)));
            let keys = match merging {
                0 => String::new(),
                _ => format!(", {} are kept to rewrite keys", ByteSize(merging)),
            };
            let reserve = ByteSize(reserve);
            looked_at.push(format!("{path} has {room} left{keys}, and {reserve} are reserved"));
        }
        let what = format!("{} for deletes and compaction", looked_at.join(", "));
        Err(StoreError::NoRoom { what })
    }

    /// Returns the reserve of a volume for deletes and compactions. It is at most a quarter of a
    /// quota, because a volume with a narrow quota would otherwise stay empty.
    fn reserve_of(&self, place: &OpenVolume) -> u64 {
        place.bytes_max().map_or(self.reserve_bytes, |most| self.reserve_bytes.min(most / 4))
    }

    /// Refuses to retire a volume if the others lack room for `bytes` bytes.
    ///
    /// # Errors
    /// Fails if they lack the room.
    pub(crate) fn check_room_beside(
        &self,
        held: &OpenVolume,
        bytes: u64,
    ) -> Result<(), StoreError> {
        let others = self.all().into_iter();
        let others = others.filter(|other| other.number != held.number && !other.is_retiring());
        let mut rooms =
            others.map(|other| other.room().map(|it| it.saturating_sub(self.reserve_of(&other))));
        match rooms.try_fold(0u64, |sum, room| Some(sum.saturating_add(room?))) {
            Some(room) if room < bytes => {
                let (path, bytes) = (held.directory.path().display(), ByteSize(bytes));
                let room = ByteSize(room);
                let what = format!(
                    "{path} has {bytes} of files, but the other volumes have room for {room} \
                         only"
                );
                Err(StoreError::NoRoom { what })
            }
            _ => Ok(()),
        }
    }

    fn with_most_room(&self, classes: Classes) -> Arc<OpenVolume> {
        let all = self.all();
        let room = |place: &&Arc<OpenVolume>| {
            let is_wanted = classes.has(place.class);
            (!place.is_retiring(), place.room().unwrap_or(u64::MAX) > 0, is_wanted, place.room())
        };
        let most = all.iter().max_by_key(room);
        // The home is always there.
        most.unwrap_or(&all[0]).clone()
    }

    /// Returns the size and the free bytes of a class; `None` if it has no volume or no known
    /// limit.
    pub(crate) fn fill(&self, class: MediaClass) -> Option<ClassFill> {
        let mut fill = ClassFill::default();
        let all = self.all.read();
        for place in all.iter().filter(|it| it.class == class && !it.is_retiring()) {
            let room = place.room()?.saturating_sub(self.reserve_of(place));
            fill.free += room;
            fill.bytes += room + place.used.load(Relaxed);
        }
        (fill.bytes > 0).then_some(fill)
    }
}
