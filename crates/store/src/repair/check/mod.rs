//! Check of all data of a store: reports damage, and what it costs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_media::{Directory, LocalDirectory};
use serde::Serialize;

use crate::StoreError;
use crate::cache::block::BlockCache;
use crate::engine::statistics::MissingVolume;
use crate::manifest::{Manifest, RunState, is_unfinished};
use crate::names;
use crate::repair::source::Source;
use crate::run::Run;
use crate::run::read::scan::{Piece, scan};
use crate::segment::Segment;
use crate::segment::record::Record;
use crate::types::{Entry, KvsId, RecordPlace, SegmentNumber, Sequence, Value};
use crate::upkeep::read_frequency;
use crate::volumes::{
    MissingVolumeState, VolumeAccess, Volumes, is_volume, judge_manifest, no_store,
};
use crate::wal::scan as log_scan;
use values::{Lead, Leads, Proofs};

pub(crate) mod guess;
mod images;
mod values;

/// Number of findings that are reported one by one.
const FINDINGS_MAX: usize = 1000;
/// Size of the block cache that a check or a salvage reads through.
pub(crate) const CACHE_BYTES: u64 = 4 << 20;
/// Bytes of a key that are shown.
const KEY_SHOWN_BYTES: usize = 40;

/// Damage in a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Name of the damaged file in the store's directory.
    pub file: String,
    /// Offset of the damage.
    pub offset: u64,
    /// Description of the damage.
    pub what: String,
    /// Description of the lost data.
    pub lost: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, offset, what, lost } = self;
        write!(f, "{file} at {offset}: {what}; {lost}")
    }
}

/// Data that could not be checked, because volumes are missing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Unchecked {
    /// Sorted runs.
    pub runs: u64,
    /// Names of the `Kvs` of these runs.
    pub kvs: Vec<String>,
    /// Segments of values.
    pub segments: u64,
    /// Values in these segments that the other runs refer to.
    pub values: u64,
    /// Bytes of these values, with their keys.
    pub value_bytes: u64,
    /// Last write of the log that was found, if there are or may be later ones on missing volumes.
    pub log_behind: Option<u64>,
}

/// Report of a check.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// Damage, up to a thousand findings.
    pub findings: Vec<Finding>,
    /// Number of further findings.
    pub findings_left_out: u64,
    /// Volumes that are missing. Data on them counts neither as damaged nor as intact.
    pub missing: Vec<MissingVolume>,
    /// Data on these volumes, as far as the others tell.
    pub unchecked: Unchecked,
    /// Oddities that are no damage.
    pub remarks: Vec<String>,
    /// Files that were checked.
    pub files: u64,
    /// Bytes of these files.
    pub bytes: u64,
    /// Versions of keys in sorted runs.
    pub versions: u64,
    /// Values in segments that these refer to. Each of them was read.
    pub values: u64,
    /// Writes in the log that are not flushed.
    pub log_records: u64,
    /// Latest time that the store has seen, in seconds since 1970. If it is ahead of the clock, new
    /// values expire by it all the same.
    pub time_s: u32,
}

impl CheckReport {
    /// Returns true if all data were checked, and none are damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty() && self.missing.is_empty()
    }

    /// Returns true if the check goes by a reconstructed manifest.
    pub(crate) fn is_manifest_lost(&self) -> bool {
        self.findings.iter().any(|it| it.file == names::MANIFEST)
    }

    /// Reports labels that cannot be used.
    pub(crate) fn find_labels(&mut self, volumes: &Volumes) {
        for MissingVolumeState { state, what } in volumes.unlabelled() {
            let label = Path::new(&state.path).join(names::LABEL).display().to_string();
            let lost = "nothing else: the files beside it are the store's, and are read; the store \
                        cannot be opened for writing";
            self.find(&label, 0, what.clone(), lost.to_owned());
        }
    }

    pub(crate) fn find(&mut self, file: &str, offset: u64, what: String, lost: String) {
        if self.findings.len() == FINDINGS_MAX {
            self.findings_left_out += 1;
            return;
        }
        self.findings.push(Finding { file: file.to_owned(), offset, what, lost });
    }
}

/// Progress of a check.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Number of files checked so far.
    pub files_done: u64,
    /// Number of files in all.
    pub files: u64,
    /// Bytes of the files checked so far.
    pub bytes_done: u64,
}

/// Checks all data of a store in a directory of this machine. See [`check`].
///
/// ```
/// # fn main() -> Result<(), entresol_store::StoreError> {
/// # let scratch = tempfile::tempdir().expect("a directory");
/// # let path = scratch.path().join("store");
/// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, check_at};
///
/// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
/// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
/// store.close()?;
/// let report = check_at(&path, &mut |_| {})?;
/// assert!(report.is_whole() && report.log_records == 1);
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// Fails as [`check`] does.
pub fn check_at(
    path: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(path)?);
    check(&directory, progress)
}

/// Checks all data of a closed store: the manifest, every page of every run and the index above it,
/// every value that a run refers to, and the log. Nothing is changed, and no damage ends the check.
///
/// Behind the end of the log of a store that was not closed, damage looks like the remains of a
/// crash. That part is not checked, unless a segment there was synced: then the end itself is
/// damage.
///
/// # Errors
/// Fails if there is no store, another process has it open, its format is unknown, or something
/// around it keeps it from being read: rights, a limit of open files, a renamed directory. Damage
/// is in the report.
pub fn check(
    directory: &Arc<dyn Directory>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    check_with(directory, values::LEADS_MAX, progress)
}

/// Checks a store with room for `leads_max` positions of values at once.
fn check_with(
    directory: &Arc<dyn Directory>,
    leads_max: usize,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let source = Source::over(directory);
    let checked = check_source(&source, leads_max, progress);
    source.judge(checked, |report| report.findings.is_empty())
}

fn check_source(
    source: &Source,
    leads_max: usize,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let directory = source.directory();
    let _lock = directory.lock()?;
    let mut report = CheckReport::default();
    let manifest = load_or_guess(directory, &mut report)?;
    source.needs(manifest.descriptors());
    let volumes = open_volumes(directory, &manifest)?;
    report.missing = volumes.missing().iter().map(MissingVolume::of).collect();
    report.find_labels(&volumes);
    report.time_s = manifest.seconds;
    let names = volumes.names().len() as u64 + 1;
    let mut checker = Checker {
        volumes: &volumes,
        pages: BlockCache::new(CACHE_BYTES),
        segments: BTreeMap::new(),
        missing: BTreeMap::new(),
        away: BTreeSet::new(),
        unverified: Vec::new(),
        newer: Vec::new(),
        proofs: Proofs::new(),
        leads_max,
        report,
        progress,
        // The manifest is checked already.
        so_far: CheckProgress { files_done: 1, files: names, ..CheckProgress::default() },
    };
    checker.done(0);
    checker.open_segments(&manifest)?;
    let mut leads = Leads::behind(None, leads_max);
    for kvs in &manifest.kvs {
        for run in &kvs.runs {
            checker.run(&kvs.name, (KvsId(kvs.id), *run), &mut leads)?;
        }
        // Files that are open are locked, and are read once more.
        checker.newer.clear();
    }
    checker.tell_missing();
    checker.values(&manifest, leads);
    checker.log(&manifest)?;
    checker.images(&manifest);
    checker.strangers(&manifest)?;
    if let Some(what) = read_frequency::kept::what_is_wrong(&**directory) {
        let (file, lost) = (names::READ_FREQUENCY, "read frequencies are learned anew");
        checker.report.remarks.push(format!("{file} cannot be used: {what}; {lost}"));
    }
    Ok(checker.report)
}

/// Loads the manifest, or reconstructs it from the files.
///
/// # Errors
/// Fails if there is no store or an incomplete copy, or its format is unknown.
pub(crate) fn load_or_guess(
    directory: &Arc<dyn Directory>,
    report: &mut CheckReport,
) -> Result<Manifest, StoreError> {
    if is_unfinished(&**directory)? {
        return Err(StoreError::Unfinished { directory: directory.path().to_owned() });
    }
    let error = match Manifest::load(&**directory) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) => None,
        Err(error @ StoreError::Version { .. }) => return Err(error),
        Err(error) if error.is_of_surroundings() => return Err(error),
        Err(error) => Some(error),
    };
    if error.is_none() && is_volume(directory) {
        return Err(no_store(&**directory));
    }
    let earlier = Manifest::load_intact(&**directory);
    let places = earlier.clone().unwrap_or_else(|| Manifest::new(0));
    let Some(mut guessed) = guess::manifest(&open_volumes(directory, &places)?)? else {
        return Err(match error {
            None => no_store(&**directory),
            Some(error) => judge_manifest(error, &**directory),
        });
    };
    let lost = match earlier {
        Some(earlier) => {
            guess::complete(&mut guessed, &earlier);
            "the store cannot be opened; the names and options of its Kvs are those of an earlier \
             state; the rest of the check goes by the files, and by those that this state names: \
             what later states have removed counts as missing, and what they have added and was \
             lost is not noticed"
        }
        None => {
            "the store cannot be opened, and the names and options of its Kvs are lost; the rest \
             of the check goes by the files alone, and does not notice one that is missing"
        }
    };
    let offset = error.as_ref().map_or(0, StoreError::offset);
    let what = error.map_or_else(|| "there is none".to_owned(), |error| error.reason());
    report.find(names::MANIFEST, offset, what, lost.to_owned());
    Ok(guessed)
}

/// Describes writes of the log that are of no `Kvs` of the manifest, if there are any. A
/// reconstructed manifest does not tell dropped `Kvs` from others.
fn remark_on(writes: u64, is_guessed: bool) -> Option<String> {
    let writes = match writes {
        0 => return None,
        1 => "1 write".to_owned(),
        more => format!("{more} writes"),
    };
    Some(match is_guessed {
        true => format!("the log has {writes} of Kvs whose names are lost, and nothing else is"),
        false => format!("the log has {writes} of dropped Kvs, which a flush leaves out"),
    })
}

/// Opens the volumes of a store for reading. Volumes may be missing.
///
/// # Errors
/// Fails if one of the others cannot be read.
pub(crate) fn open_volumes(
    home: &Arc<dyn Directory>,
    manifest: &Manifest,
) -> Result<Volumes, StoreError> {
    let access = VolumeAccess { pmem: None, reserve_bytes: 0, is_partial: true };
    Volumes::open(home, &[], manifest, access)
}

/// Callback for versions, with the names of their runs.
type Visit<'v> = dyn FnMut(&mut Checker<'_>, &str, KvsId, &Entry<'_>) + 'v;

struct Checker<'a> {
    volumes: &'a Volumes,
    pages: Arc<BlockCache>,
    /// Flushed segments that were opened.
    segments: BTreeMap<SegmentNumber, Segment>,
    /// Segments that could not be opened, with the number of lost values and the first key.
    missing: BTreeMap<SegmentNumber, (u64, String)>,
    /// Segments on missing volumes.
    away: BTreeSet<SegmentNumber>,
    /// Opened segments whose values were not read yet, with their bytes, in descending order.
    unverified: Vec<(SegmentNumber, u64)>,
    /// Runs of the `Kvs` that are newer than the one being checked.
    newer: Vec<Arc<Run>>,
    proofs: Proofs,
    leads_max: usize,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress),
    so_far: CheckProgress,
}

impl Checker<'_> {
    /// Reports a checked file of `bytes` bytes to `progress`.
    fn done(&mut self, bytes: u64) {
        if bytes > 0 {
            self.report.files += 1;
            self.report.bytes += bytes;
            self.so_far.files_done += 1;
            self.so_far.bytes_done += bytes;
        }
        (self.progress)(self.so_far);
    }

    /// Returns true if a file may lie on a missing volume.
    fn is_away(&self, name: &str) -> bool {
        !self.volumes.missing().is_empty() && self.volumes.find(name).is_none()
    }

    fn open_segments(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        for number in manifest.segments() {
            let name = names::of_segment(number);
            if self.is_away(&name) {
                self.report.unchecked.segments += 1;
                self.away.insert(number);
                continue;
            }
            match Segment::open_blocks(&*self.volumes.directory_of(&name), manifest.store, number) {
                Ok(segment) => {
                    if let Some(error) = segment.header_error() {
                        let lost = match segment.is_lost() {
                            true => "the values in it are lost; they follow below",
                            false => "nothing is lost: each record in it has a checksum",
                        };
                        self.report.find(&name, error.offset(), error.reason(), lost.to_owned());
                    }
                    self.unverified.push((number, segment.len()));
                    self.segments.insert(number, segment);
                }
                Err(error) if error.is_of_surroundings() => return Err(error),
                Err(error) => {
                    let lost = "the values in it are lost; their number follows below";
                    self.report.find(&name, error.offset(), error.reason(), lost.to_owned());
                    self.done(1);
                }
            }
        }
        self.unverified.sort_unstable_by(|one, other| other.cmp(one));
        Ok(())
    }

    /// Checks a run: each page and, if all are intact, the index tree above them. Collects the
    /// positions of its values.
    fn run(
        &mut self,
        kvs: &str,
        (id, state): (KvsId, RunState),
        leads: &mut Leads,
    ) -> Result<(), StoreError> {
        let name = names::of_run(state.number());
        if self.is_away(&name) {
            let unchecked = &mut self.report.unchecked;
            unchecked.runs += 1;
            if unchecked.kvs.last().is_none_or(|last| last != kvs) {
                unchecked.kvs.push(kvs.to_owned());
            }
            return Ok(());
        }
        let pages = self.pages.clone();
        let (mut damaged, mut before) = (Vec::new(), None::<Vec<u8>>);
        let directory = self.volumes.directory_of(&name);
        let scanned = scan(&directory, state, &pages, &mut |piece| {
            match piece {
                Piece::Entry(entry) => {
                    self.entry(id, &entry, leads);
                    let last = before.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(entry.key);
                }
                Piece::RangeDelete(_) => {}
                Piece::Damaged { offset, bytes, what } => {
                    let behind = before.as_deref().map(shown);
                    damaged.push((offset, bytes, what, behind));
                }
            }
            Ok(())
        });
        let scanned = match scanned {
            Ok(scanned) => scanned,
            Err(error) if error.is_of_surroundings() => return Err(error),
            Err(error) => {
                let lost = format!("everything that the run has of Kvs '{kvs}' is lost");
                self.report.find(&name, error.offset(), error.reason(), lost);
                return Ok(());
            }
        };
        self.report.versions += scanned.shown;
        let entries = match scanned.said {
            Some(said) => format!("{} of the run's {said} entries", scanned.shown),
            None => format!("{} entries of the run", scanned.shown),
        };
        let is_whole = damaged.is_empty();
        for (offset, bytes, what, behind) in damaged {
            let behind =
                behind.map_or_else(|| "its first key".to_owned(), |key| format!("key {key}"));
            let lost = format!(
                "{bytes} bytes of Kvs '{kvs}' from {behind} on cannot be read; {entries} can"
            );
            self.report.find(&name, offset, what, lost);
        }
        let opened = Run::open(&directory, state.number(), &pages);
        self.newer.extend(opened.as_ref().ok().cloned());
        if is_whole {
            let verified = opened.and_then(|run| run.verify(&mut |_| {}));
            if let Err(error) = verified {
                let lost =
                    format!("reads of Kvs '{kvs}' that reach it fail; {entries} can be salvaged");
                self.report.find(&name, error.offset(), error.reason(), lost);
            }
        }
        self.done(scanned.bytes);
        Ok(())
    }

    /// Collects the position of a version's value.
    fn entry(&mut self, kvs: KvsId, entry: &Entry<'_>, leads: &mut Leads) {
        let Value::Apart(place) = entry.value else { return };
        if let Some(segment) = self.segments.get(&place.segment) {
            if segment.has_left_out(place) {
                if !self.is_superseded(entry.key) {
                    self.report.values += 1;
                    self.tell_wrong("a run", kvs, entry, place);
                }
                return;
            }
            self.report.values += 1;
            leads.add(self.lead(kvs, entry, place));
        } else if self.away.contains(&place.segment) {
            self.report.unchecked.values += 1;
            self.report.unchecked.value_bytes += u64::from(place.bytes);
        } else {
            let first = || (0, shown(entry.key));
            self.missing.entry(place.segment).or_insert_with(first).0 += 1;
        }
    }

    /// Returns true if a newer run has a key. One that cannot be read is reported already.
    fn is_superseded(&self, key: &[u8]) -> bool {
        self.newer.iter().any(|run| !matches!(run.get(key, Sequence::MAX), Ok(None)))
            || mutation_site!("check finds what is missing from a segment")
    }

    fn lead(&self, kvs: KvsId, entry: &Entry<'_>, place: RecordPlace) -> Lead {
        self.proofs.lead(place, (kvs, entry.key, entry.sequence))
    }

    /// Reads the values that runs refer to, in the order of their files, starting with the
    /// collected positions.
    fn values(&mut self, manifest: &Manifest, mut leads: Leads) {
        let mut wrong = BTreeSet::new();
        loop {
            let (volumes, last) = leads.finish();
            self.verify(&volumes, &mut wrong);
            let Some(last) = last else { break };
            leads = Leads::behind(Some(last), self.leads_max);
            self.each_entry(manifest, &mut |checker, _, kvs, entry| {
                if let Value::Apart(place) = entry.value
                    && let Some(segment) = checker.segments.get(&place.segment)
                    && !segment.has_left_out(place)
                {
                    leads.add(checker.lead(kvs, entry, place));
                }
            });
        }
        while let Some((_, bytes)) = self.unverified.pop() {
            self.done(bytes);
        }
        if wrong.is_empty() {
            return;
        }
        self.each_entry(manifest, &mut |checker, run, kvs, entry| {
            if let Value::Apart(place) = entry.value
                && wrong.contains(&checker.lead(kvs, entry, place))
            {
                checker.tell_wrong(run, kvs, entry, place);
            }
        });
    }

    /// Reads values in the order of their files. Collects wrong ones, as long as findings are
    /// reported one by one.
    fn verify(&mut self, volumes: &[Lead], wrong: &mut BTreeSet<Lead>) {
        for of_segment in volumes.chunk_by(|one, other| one.segment() == other.segment()) {
            let Some(number) = of_segment.first().map(Lead::segment) else { continue };
            while let Some((_, bytes)) = self.unverified.pop_if(|(before, _)| *before < number) {
                self.done(bytes);
            }
            let Some(segment) = self.segments.get(&number) else { continue };
            let (told, left_out) = (self.report.findings.len(), &mut self.report.findings_left_out);
            values::verify(segment, of_segment, &self.proofs, &mut |lead| {
                if told + wrong.len() < FINDINGS_MAX {
                    wrong.insert(*lead);
                } else {
                    *left_out += 1;
                }
            });
        }
    }

    /// Passes the versions of all readable runs to `visit` once more.
    fn each_entry(&mut self, manifest: &Manifest, visit: &mut Visit<'_>) {
        for kvs in &manifest.kvs {
            for state in &kvs.runs {
                let (name, pages) = (names::of_run(state.number()), self.pages.clone());
                let directory = self.volumes.directory_of(&name);
                // Damage of the run itself is reported already.
                _ = scan(&directory, *state, &pages, &mut |piece| {
                    if let Piece::Entry(entry) = piece {
                        visit(self, &name, KvsId(kvs.id), &entry);
                    }
                    Ok(())
                });
            }
        }
    }

    /// Reports the damage of a version's value.
    fn tell_wrong(&mut self, run: &str, kvs: KvsId, entry: &Entry<'_>, place: RecordPlace) {
        let Some(segment) = self.segments.get(&place.segment) else { return };
        let mut bytes = Vec::new();
        let (offset, what) = match segment.record(place, &mut bytes) {
            Ok(record) if leads_there(&record, kvs, entry) => {
                (place.offset, "one read returned wrong bytes, the next one right ones".to_owned())
            }
            Ok(_) => (place.offset, format!("{run} points here for another key")),
            Err(error) => (error.offset(), error.reason()),
        };
        let lost = format!("the value of key {} is lost", shown(entry.key));
        self.report.find(&names::of_segment(place.segment), offset, what, lost);
    }

    fn tell_missing(&mut self) {
        for (number, (values, first)) in std::mem::take(&mut self.missing) {
            let name = names::of_segment(number);
            let what = "it holds values, but cannot be opened or is no part of the store";
            let lost = format!("{values} values are lost, among them that of key {first}");
            self.report.find(&name, 0, what.to_owned(), lost);
        }
    }

    fn log(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        let names: BTreeMap<u32, &str> =
            manifest.kvs.iter().map(|kvs| (kvs.id, kvs.name.as_str())).collect();
        let mut unknown = 0u64;
        let found = log_scan::scan(self.volumes, manifest, &mut |record| {
            unknown += u64::from(!names.contains_key(&record.header.kvs.0));
            Ok(())
        })?;
        self.report.log_records = found.records;
        let is_away = !self.report.missing.is_empty();
        if is_away && (found.is_short || !found.is_over) {
            self.report.unchecked.log_behind = Some(found.last.0);
        }
        if is_away && found.is_short {
            // The rest of the log is on a missing volume, and not damaged.
        } else if let Some((file, offset, what)) = found.damage {
            let lost = format!(
                "the store cannot be opened; {} writes before this can be read, and {} after it",
                found.records, found.behind
            );
            self.report.find(&file, offset, what, lost);
        }
        for (file, offset, what) in found.strangers {
            let lost = "nothing is lost, but the store cannot be opened for writing while the \
                        file is there";
            self.report.find(&file, offset, what, lost.to_owned());
        }
        let is_guessed = self.report.is_manifest_lost();
        if let Some(what) = remark_on(unknown, is_guessed) {
            self.report.remarks.push(what);
        }
        self.report.files += found.files;
        self.report.bytes += found.bytes;
        self.so_far.files_done += found.files;
        self.so_far.bytes_done += found.bytes;
        (self.progress)(self.so_far);
        Ok(())
    }

    fn strangers(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        for name in self.volumes.names() {
            if !manifest.has_file(&name) {
                let what = format!(
                    "{name} is no part of the store: either a crash left it, and the next opening \
                     removes it, or it is another program's"
                );
                self.report.remarks.push(what);
            }
        }
        Ok(())
    }
}

/// Returns true if a record is the one that a version refers to.
pub(crate) fn leads_there(record: &Record<'_>, kvs: KvsId, entry: &Entry<'_>) -> bool {
    let header = &record.header;
    record.key == entry.key && header.kvs == kvs && header.sequence == entry.sequence
}

/// Returns a key in readable form.
pub(crate) fn shown(key: &[u8]) -> String {
    let short = &key[..key.len().min(KEY_SHOWN_BYTES)];
    let dots = if short.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", short.escape_ascii())
}

#[cfg(test)]
mod tests {
    use entresol_base::world::{World, WorldOptions};
    use entresol_simulated::disk::{Disk, DiskOptions};

    use super::*;
    use crate::{Kvdb, KvdbOptions, KvsOptions};

    /// With room for a few values at a time, a check still verifies all of them, and names the
    /// damaged one with its key.
    #[test]
    fn values_are_looked_at_a_few_at_a_time() {
        let world = World::new(WorldOptions::seeded(1));
        let within = world.clone();
        let ran = world.run(move || {
            let disk = Disk::new(&within, DiskOptions::default()).expect("a disk");
            let clock = Arc::new(within.clone());
            let options = KvdbOptions {
                segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
                generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
                memory_bytes: 2 << 20,
                ..KvdbOptions::default()
            };
            let store = Kvdb::create(disk.root(), options, clock).expect("made");
            let options = KvsOptions { inline_bytes: 10, ..KvsOptions::default() };
            let kvs = ["one", "two"].map(|name| store.create_kvs(name, options).expect("new"));
            for number in 0..40_u8 {
                let value = vec![number + 100; 300];
                kvs[usize::from(number % 2)].put(&[b'k', number], &value).expect("room");
                if number % 16 == 15 {
                    store.core().flush_all(&mut || true).expect("room");
                }
            }
            store.compact().expect("room");
            store.close().expect("closes");
            let checked = |leads_max| {
                let mut last = CheckProgress::default();
                let report = check_with(&disk.root(), leads_max, &mut |it| last = it);
                assert_eq!(last.files_done, last.files);
                report.expect("a store")
            };
            let all = checked(values::LEADS_MAX);
            assert!(all.is_whole() && all.values == 40, "{all:?}");
            for leads_max in [1, 3, 20, 40] {
                assert_eq!(checked(leads_max), all);
            }
            for (name, bytes) in disk.contents() {
                for number in 0..40_u8 {
                    let value = vec![number + 100; 300];
                    let found = bytes.windows(300).position(|part| part == value);
                    let Some(at) = found.filter(|_| name.ends_with(".segment")) else { continue };
                    disk.flip(&name, at as u64 + 150, 2).expect("there");
                    let report = checked(3);
                    disk.flip(&name, at as u64 + 150, 2).expect("there");
                    let [finding] = &report.findings[..] else { panic!("{report:?}") };
                    let key = shown(&[b'k', number]);
                    assert!(finding.file == name && finding.lost.contains(&key), "{finding}");
                }
            }
        });
        ran.expect("the world comes to its end");
    }
}
