//! Removing files for good: a power cut brings none of them back, whatever fails before.

use std::sync::Arc;

use entresol_base::mutation_site;

use super::{Known, OpenVolume, Volumes};
use crate::StoreError;
use crate::names;
use crate::types::SegmentNumber;

/// What the name of a file begins with that is about to be removed.
const ASIDE: &str = "removed-";

impl Volumes {
    /// Removes files whose numbers may be given again, to files in other volumes: no power cut may
    /// bring one back then, whatever fails before. So they get other names first, which tell the
    /// next process of them if it has to make that sure.
    ///
    /// # Errors
    /// If a disk fails: see [`remove_the_rest`](Volumes::remove_the_rest).
    pub(crate) fn remove_for_good(&self, names: &[String]) -> Result<(), StoreError> {
        let mut removed: Vec<(Arc<OpenVolume>, Option<String>)> = Vec::new();
        for name in names {
            // A crash while what was set aside had its name again may have left two of it.
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

    /// Takes a file's name away, and answers the one that it has then, by which it is to be removed
    /// once that is durable. The only place that there is needs none: whoever gives the name again
    /// does so there.
    ///
    /// # Errors
    /// If the disk fails.
    pub(crate) fn set_aside(
        &self,
        place: &Arc<OpenVolume>,
        name: &str,
    ) -> Result<Option<String>, StoreError> {
        if let Some(Known { place, bytes }) = self.files.write().remove(name) {
            place.give_back(bytes);
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

    /// Removes what a process before has set aside. The sync behind which it was to be removed may
    /// have failed: then nobody knows which name it has, until it was given both again. The
    /// segments `behind` the end of the log are about to be removed as well.
    ///
    /// # Errors
    /// If a disk fails.
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
                // If the log has gone on behind it, or its name was given again, it was known to be
                // away; and a crash that left it by its name would end the log there.
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
