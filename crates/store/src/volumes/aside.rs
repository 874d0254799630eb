//! Removal of files for good: no power cut brings one of them back, whatever fails before.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;

use super::{FileLocation, OpenVolume, Volumes};
use crate::StoreError;
use crate::names;
use crate::types::SegmentNumber;

/// Prefix of the name of a file that is about to be removed.
const ASIDE: &str = "removed-";

/// File that nothing needs any more. Its bytes count until it is removed: dropping this does not
/// give them back.
#[derive(Debug)]
pub(crate) struct Leaving {
    pub(crate) place: Arc<OpenVolume>,
    /// Name under which it was set aside, if it was.
    name: Option<String>,
    bytes: u64,
}

impl Leaving {
    /// Counts a file as one that leaves its volume.
    pub(super) fn new(FileLocation { place, bytes }: FileLocation) -> Leaving {
        place.leaving.fetch_add(bytes, Relaxed);
        Leaving { place, name: None, bytes }
    }

    /// Marks a volume on which a file was removed, but not durably yet.
    pub(crate) fn nothing(place: &Arc<OpenVolume>) -> Leaving {
        Leaving { place: place.clone(), name: None, bytes: 0 }
    }

    /// Gives the bytes of the file back, which was removed.
    pub(crate) fn removed(&self, volumes: &Volumes) {
        self.place.leaving.fetch_sub(self.bytes, Relaxed);
        self.place.give_back(self.bytes);
        volumes.gauge.give_back(self.bytes);
    }

    /// Removes the file if it was set aside. Its names must be durable.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn remove(&self, volumes: &Volumes) -> Result<(), StoreError> {
        if let Some(name) = &self.name {
            self.place.directory.remove(name)?;
            self.removed(volumes);
        }
        Ok(())
    }
}

impl Volumes {
    /// Removes files whose numbers may be given again, to files on other volumes. A power cut must
    /// not bring one back then, whatever fails before. Each file therefore gets another name first,
    /// which tells the next process to make sure of the removal.
    ///
    /// # Errors
    /// Fails if a disk fails: see [`remove_the_rest`](Volumes::remove_the_rest).
    pub(crate) fn remove_for_good(&self, names: &[String]) -> Result<(), StoreError> {
        let mut removed: Vec<Leaving> = Vec::new();
        for name in names {
            // A crash while a file regained its name may have left two files of that name.
            let twins =
                self.copies.lock().extract_if(.., |(_, twin)| twin == name).collect::<Vec<_>>();
            let twins = twins.into_iter().map(|(place, _)| place);
            for place in self.find(name).into_iter().chain(twins) {
                removed.push(self.set_aside(&place, name)?);
            }
        }
        for (at, Leaving { place, .. }) in removed.iter().enumerate() {
            if !removed[..at].iter().any(|synced| Arc::ptr_eq(&synced.place, place)) {
                place.sync_names()?;
            }
        }
        removed.iter().try_for_each(|leaving| leaving.remove(self))
    }

    /// Takes a file's name away, and returns the file, to be removed once the change is durable.
    /// With a single volume it is removed at once: a new file of the name replaces it in the same
    /// directory.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn set_aside(
        &self,
        place: &Arc<OpenVolume>,
        name: &str,
    ) -> Result<Leaving, StoreError> {
        let known = self.files.write().remove(name).map(Leaving::new);
        let mut leaving = known.unwrap_or_else(|| Leaving::nothing(place));
        if self.count_volumes() == 1
            || mutation_site!("a file's name is taken away before the file is removed")
        {
            place.directory.remove(name)?;
            leaving.removed(self);
            return Ok(Leaving::nothing(place));
        }
        if place.directory.find(name)?.is_none() {
            leaving.removed(self);
            return Ok(Leaving::nothing(place));
        }
        let aside = format!("{ASIDE}{name}");
        place.directory.rename(name, &aside)?;
        leaving.name = Some(aside);
        Ok(leaving)
    }

    /// Removes files that an earlier process has set aside. The sync before their removal may have
    /// failed, which leaves their durable names unknown until each file was given both names again.
    /// The segments `behind` the end of the log are about to be removed as well.
    ///
    /// # Errors
    /// Fails if a disk fails.
    pub(crate) fn remove_the_rest(&self, behind: &[SegmentNumber]) -> Result<(), StoreError> {
        let mut rest = Vec::new();
        let last = self.names().into_iter().filter_map(|name| names::segment_number(&name));
        let is_left = |number: &SegmentNumber| {
            !behind.contains(number)
                || mutation_site!("segments behind the log's end say nothing of its length")
        };
        let last = last.filter(|number| number.is_of_log() && is_left(number)).max();
        for place in self.all() {
            for entry in place.directory.list()? {
                let Some(name) = entry.name.strip_prefix(ASIDE) else { continue };
                // Files before the log's end, and files whose names were given again, are left out.
                // Their new names are durable, and a crash between these renames would end the log
                // at such a file.
                if names::segment_number(name) > last && self.find(name).is_none() {
                    place.directory.rename(&entry.name, name)?;
                    place.directory.rename(name, &entry.name)?;
                }
                self.files.write().remove(&entry.name);
                rest.push((place.clone(), entry.name));
            }
        }
        if rest.is_empty() {
            return Ok(());
        }
        self.sync()?;
        rest.iter().try_for_each(|(place, name)| Ok(place.directory.remove(name)?))
    }
}
