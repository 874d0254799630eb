//! Looking at all that a store has, to say what is damaged and what is lost by it.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

use entresol_media::{Directory, FileError, LocalDirectory};
use serde::Serialize;

use crate::StoreError;
use crate::entry::{Entry, KvsId, RunNumber, SegmentNumber, Value};
use crate::log::record::Record;
use crate::log::scan as log_scan;
use crate::log::segment::{self, Segment};
use crate::manifest::{self, Manifest};
use crate::pages::Pages;
use crate::places::{Access, Missing, Places};
use crate::run::scan::{Piece, scan};
use crate::run::{self, Run};

pub(crate) mod guess;

/// So many findings are told one by one.
const FINDINGS_MAX: usize = 1000;
/// The cache that a check or a salvage reads through.
pub(crate) const CACHE_BYTES: u64 = 4 << 20;
/// So much of a key is shown.
const KEY_SHOWN_BYTES: usize = 40;

/// Something that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// The file in the store's directory.
    pub file: String,
    /// Where in it.
    pub offset: u64,
    /// What is wrong there.
    pub what: String,
    /// What is lost by it.
    pub lost: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Finding { file, offset, what, lost } = self;
        write!(f, "{file} at {offset}: {what}; {lost}")
    }
}

/// What a store was found to be.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct CheckReport {
    /// What is damaged, up to a thousand places.
    pub findings: Vec<Finding>,
    /// How many more there are.
    pub findings_left_out: u64,
    /// What is odd and no damage.
    pub remarks: Vec<String>,
    /// Files that were looked at.
    pub files: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Versions of keys in sorted runs.
    pub versions: u64,
    /// Values in segments that these lead to, each of which was read.
    pub values: u64,
    /// Writes in the log that are not frozen.
    pub log_records: u64,
}

impl CheckReport {
    /// Whether nothing is damaged.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.findings.is_empty()
    }

    pub(crate) fn find(&mut self, file: &str, offset: u64, what: String, lost: String) {
        if self.findings.len() == FINDINGS_MAX {
            self.findings_left_out += 1;
            return;
        }
        self.findings.push(Finding { file: file.to_owned(), offset, what, lost });
    }
}

/// How far a check has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CheckProgress {
    /// Files that were looked at.
    pub files_done: u64,
    /// Files that there are.
    pub files: u64,
    /// Bytes of files that were looked at.
    pub bytes_done: u64,
}

/// Looks at all that a store in a directory of this machine has. See [`check`].
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
/// As [`check`].
pub fn check_at(
    path: &Path,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let directory: Arc<dyn Directory> = Arc::new(LocalDirectory::open_existing(path)?);
    check(&directory, progress)
}

/// Looks at all that a store has, which must not be open: the manifest, every page of every run and
/// what leads to it, every value that one leads to, and the log. Nothing is changed, and it goes on
/// after whatever it finds.
///
/// What lies behind the end of the log of a store that was not closed cannot be told from what a
/// crash left there, and is not looked at.
///
/// # Errors
/// If there is no store, somebody has it open, or its format is not known. What is damaged is in
/// the report.
pub fn check(
    directory: &Arc<dyn Directory>,
    progress: &mut dyn FnMut(CheckProgress),
) -> Result<CheckReport, StoreError> {
    let _lock = directory.lock()?;
    let mut report = CheckReport::default();
    let manifest = load_or_guess(directory, &mut report)?;
    let places = open_places(directory, &manifest, &mut report)?;
    let names = places.names().len() as u64 + 1;
    let mut checker = Checker {
        places: &places,
        pages: Pages::new(CACHE_BYTES),
        segments: BTreeMap::new(),
        missing: BTreeMap::new(),
        report,
        progress,
        so_far: CheckProgress { files: names, ..CheckProgress::default() },
    };
    checker.done(0);
    checker.open_segments(&manifest);
    for kvs in &manifest.kvs {
        for run in &kvs.runs {
            checker.run(&kvs.name, KvsId(kvs.id), RunNumber(*run))?;
        }
    }
    checker.tell_missing();
    checker.log(&manifest)?;
    checker.strangers(&manifest)?;
    Ok(checker.report)
}

/// The manifest, or what the files say that it might have said.
///
/// # Errors
/// If there is no store, or its format is not known.
pub(crate) fn load_or_guess(
    directory: &Arc<dyn Directory>,
    report: &mut CheckReport,
) -> Result<Manifest, StoreError> {
    let (offset, what) = match Manifest::load(&**directory) {
        Ok(Some(manifest)) => return Ok(manifest),
        Ok(None) => (0, "there is none".to_owned()),
        Err(error @ (StoreError::Version { .. } | StoreError::File(FileError::Locked { .. }))) => {
            return Err(error);
        }
        Err(error) => (error.offset(), error.reason()),
    };
    let Some(guessed) = guess::manifest(directory)? else {
        return Err(StoreError::NoStore { directory: directory.path().to_owned() });
    };
    let lost = "the store cannot be opened, and the names and options of its Kvs are lost; what \
                the files themselves say is gone by from here on";
    report.find(manifest::FILE, offset, what, lost.to_owned());
    Ok(guessed)
}

/// The places of a store, to be read; those that are missing are found so.
///
/// # Errors
/// If one of the others cannot be read.
pub(crate) fn open_places(
    home: &Arc<dyn Directory>,
    manifest: &Manifest,
    report: &mut CheckReport,
) -> Result<Places, StoreError> {
    let access = Access { pmem: None, reserve_bytes: 0, is_partial: true };
    let places = Places::open(home, &[], manifest, access)?;
    for Missing { state, what } in places.missing() {
        let what = format!("the {} place is missing: {what}", state.class);
        report.find(&state.path, 0, what, "the files in it; each is said below".to_owned());
    }
    Ok(places)
}

struct Checker<'a> {
    places: &'a Places,
    pages: Arc<Pages>,
    /// Frozen segments that could be opened.
    segments: BTreeMap<SegmentNumber, Segment>,
    /// Those that could not, with how many values are lost and the first key.
    missing: BTreeMap<SegmentNumber, (u64, String)>,
    report: CheckReport,
    progress: &'a mut dyn FnMut(CheckProgress),
    so_far: CheckProgress,
}

impl Checker<'_> {
    /// Notes that a file of so many bytes was looked at.
    fn done(&mut self, bytes: u64) {
        if bytes > 0 {
            self.report.files += 1;
            self.report.bytes += bytes;
            self.so_far.files_done += 1;
            self.so_far.bytes_done += bytes;
        }
        (self.progress)(self.so_far);
    }

    fn open_segments(&mut self, manifest: &Manifest) {
        for number in manifest.segments() {
            let name = segment::file_name(number);
            match Segment::open_blocks(&*self.places.directory_of(&name), manifest.store, number) {
                Ok(segment) => {
                    if let Some(error) = segment.header_error() {
                        let lost = "nothing: each record in it proves itself";
                        self.report.find(&name, error.offset(), error.reason(), lost.to_owned());
                    }
                    let bytes = segment.len();
                    self.segments.insert(number, segment);
                    self.done(bytes);
                }
                Err(error) => {
                    let lost = "the values in it are lost; how many is said below";
                    self.report.find(&name, error.offset(), error.reason(), lost.to_owned());
                    self.done(1);
                }
            }
        }
    }

    /// Looks at a run: each page, each value that its entries lead to, and, if all that is whole,
    /// the tree over it.
    fn run(&mut self, kvs: &str, id: KvsId, number: RunNumber) -> Result<(), StoreError> {
        let name = run::file_name(number);
        let pages = self.pages.clone();
        let (mut damaged, mut before) = (Vec::new(), None::<Vec<u8>>);
        let directory = self.places.directory_of(&name);
        let scanned = scan(&directory, number, &pages, &mut |piece| {
            match piece {
                Piece::Entry(entry) => {
                    self.entry(&name, id, &entry);
                    let last = before.get_or_insert_default();
                    last.clear();
                    last.extend_from_slice(entry.key);
                }
                Piece::PrefixGone(_) => {}
                Piece::Damaged { offset, bytes, what } => {
                    let behind = before.as_deref().map(shown);
                    damaged.push((offset, bytes, what, behind));
                }
            }
            Ok(())
        });
        let scanned = match scanned {
            Ok(scanned) => scanned,
            Err(error) => {
                let lost = format!("all that the run has of Kvs '{kvs}' is lost");
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
                "{bytes} bytes of Kvs '{kvs}' at or behind {behind} cannot be read; {entries} can"
            );
            self.report.find(&name, offset, what, lost);
        }
        if is_whole {
            let verified =
                Run::open(&directory, number, &pages).and_then(|run| run.verify(&mut |_| {}));
            if let Err(error) = verified {
                let lost = format!(
                    "reads of Kvs '{kvs}' fail that come by there; {entries} can be salvaged"
                );
                self.report.find(&name, error.offset(), error.reason(), lost);
            }
        }
        self.done(scanned.bytes);
        Ok(())
    }

    /// Reads the value that an entry leads to.
    fn entry(&mut self, run: &str, kvs: KvsId, entry: &Entry<'_>) {
        let Value::Apart(place) = entry.value else { return };
        let Some(segment) = self.segments.get(&place.segment) else {
            let first = || (0, shown(entry.key));
            self.missing.entry(place.segment).or_insert_with(first).0 += 1;
            return;
        };
        self.report.values += 1;
        let mut bytes = Vec::new();
        let (offset, what) = match segment.record(place, &mut bytes) {
            Ok(record) if leads_there(&record, kvs, entry) => return,
            Ok(_) => (place.offset, format!("{run} leads here for another key")),
            Err(error) => (error.offset(), error.reason()),
        };
        let lost = format!("the value of key {} is lost", shown(entry.key));
        self.report.find(&segment::file_name(place.segment), offset, what, lost);
    }

    fn tell_missing(&mut self) {
        for (number, (values, first)) in std::mem::take(&mut self.missing) {
            let name = segment::file_name(number);
            let what = "values lie in it, and it cannot be opened or is no part of the store";
            let lost = format!("{values} values are lost, that of key {first} among them");
            self.report.find(&name, 0, what.to_owned(), lost);
        }
    }

    fn log(&mut self, manifest: &Manifest) -> Result<(), StoreError> {
        let names: BTreeMap<u32, &str> =
            manifest.kvs.iter().map(|kvs| (kvs.id, kvs.name.as_str())).collect();
        let mut dropped = 0u64;
        let found = log_scan::scan(self.places, manifest, &mut |record| {
            dropped += u64::from(!names.contains_key(&record.header.kvs.0));
            Ok(())
        })?;
        self.report.log_records = found.records;
        if let Some((file, offset, what)) = found.damage {
            let lost = format!(
                "the store cannot be opened; {} writes before that can be read, and {} behind it",
                found.records, found.behind
            );
            self.report.find(&file, offset, what, lost);
        }
        if dropped > 0 {
            let what = format!("the log has {dropped} writes of Kvs that were dropped");
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
        for name in self.places.names() {
            if !manifest.has_file(&name) {
                let what = format!(
                    "{name} is no part of the store: left from a crash, and removed when it is \
                     opened next, or somebody else's"
                );
                self.report.remarks.push(what);
            }
        }
        Ok(())
    }
}

/// Whether a record is the one that an entry means.
pub(crate) fn leads_there(record: &Record<'_>, kvs: KvsId, entry: &Entry<'_>) -> bool {
    let header = &record.header;
    record.key == entry.key && header.kvs == kvs && header.sequence == entry.sequence
}

/// A key as a person can read it.
pub(crate) fn shown(key: &[u8]) -> String {
    let short = &key[..key.len().min(KEY_SHOWN_BYTES)];
    let dots = if short.len() < key.len() { "..." } else { "" };
    format!("\"{}\"{dots}", short.escape_ascii())
}
