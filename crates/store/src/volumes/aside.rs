//! Removal of files for good: no power cut brings one of them back, whatever fails before.

use std::sync::Arc;

use entresol_base::mutation_site;

use super::{FileLocation, OpenVolume, Volumes};
use crate::StoreError;
use crate::names;
use crate::types::SegmentNumber;

/// Prefix of the name of a file that is about to be removed.
const ASIDE: &str = "removed-";

impl Volumes {
    /// Removes files whose numbers may be given again, to files on other volumes. A power cut must
    /// not bring one back then, whatever fails before. Each file therefore gets another name first,
    /// which tells the next process to make sure of the removal.
    ///
    /// # Errors
    /// Fails if a disk fails: see [`remove_the_rest`](Volumes::remove_the_rest).
    pub(crate) fn remove_for_good(&self, names: &[String]) -> Result<(), StoreError> {
        let mut removed: Vec<(Arc<OpenVolume>, Option<String>)> = Vec::new();
        for name in names {
            // A crash while a file regained its name may have left two files of that name.
            let twins =
                self.copies.lock().extract_if(.., |(_, twin)| twin == name).collect::<Vec<_>>();
            let twins = twins.into_iter().map(|(place, _)| place);
            for place in self.find(name).into_iter().chain(twins) {
                let aside = self.set_aside(&place, name)?;
                removed.push((place, aside));
            }
        }
        for (at, (place, _)) in removed.iter().enumerate() {
            if !removed[..at].iter().any(|(synced, _)| Arc::ptr_eq(synced, place)) {
                place.sync_names()?;
            }
        }
        let mut aside = removed.iter().filter_map(|(place, name)| Some((place, name.as_ref()?)));
        aside.try_for_each(|(place, name)| Ok(place.directory.remove(name)?))
    }

    /// Takes a file's name away, and returns the new name, by which to remove the file once the
    /// change is durable. With a single volume the file is removed at once: a new file of the name
    /// replaces it in the same directory.
    ///
    /// # Errors
    /// Fails if the disk fails.
    pub(crate) fn set_aside(
        &self,
        place: &Arc<OpenVolume>,
        name: &str,
    ) -> Result<Option<String>, StoreError> {
        if let Some(FileLocation { place, bytes }) = self.files.write().remove(name) {
            place.give_back(bytes);
            self.gauge.give_back(bytes);
        }
        if self.count_volumes() == 1
            || mutation_site!("a file's name is taken away before the file is removed")
        {
            place.directory.remove(name)?;
            return Ok(None);
        }
        let aside = format!("{ASIDE}{name}");
        if place.directory.find(name)?.is_some() {
            place.directory.rename(name, &aside)?;
        }
        Ok(Some(aside))
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
