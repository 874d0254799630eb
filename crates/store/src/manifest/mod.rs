//! The manifest: one small file that lists the parts of a store.
//!
//! Its first line is a JSON object. Its second line is `crc32c` and the CRC-32C of the first in
//! hexadecimal digits. Lines of edits may follow (`file`, `edit`). A file that no manifest names is
//! no part of the store.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use entresol_base::checksum;
use entresol_media::{Directory, FileError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::names::{self, LABEL, MANIFEST, READ_FREQUENCY};
use crate::policy::{MediaClass, Policy};
use crate::types::{KvsId, Mark, RunNumber, SegmentNumber};

mod edit;
mod file;

pub(crate) use file::ManifestFile;

/// Format version that this code writes.
pub(crate) const FORMAT: u32 = 5;
/// First format version whose manifests may have edits.
const FORMAT_OF_EDITS: u32 = 5;
/// Oldest format version that this code reads. It has neither volumes, policies nor marks of runs.
const FORMAT_OLDEST: u32 = 1;
/// Upper bound for the numbers that a process takes without saving a manifest that records them.
const NUMBERS_APART: u64 = 1 << 20;
/// Largest number of a `Kvs`: records have two bytes for it.
const KVS_NUMBER_MAX: u32 = u16::MAX as u32;
/// Approximate number of descriptors for files other than runs and flushed segments: the log,
/// directories with their locks, and files that are being written.
pub(crate) const DESCRIPTORS_BESIDE: usize = 64;
/// Number of the volume that holds the manifest.
pub(crate) const HOME: u32 = 0;

/// Parts of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// Version of the format.
    format: u32,
    /// Identity of the store, by which its segments and runs are told from those of other stores.
    pub(crate) store: u64,
    /// Latest time that the store has seen, in seconds since 1970. It keeps expired keys expired.
    pub(crate) seconds: u32,
    /// Seconds by which that time was ahead of the clock. Mostly it is not, and the manifest does
    /// not name it.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seconds_ahead: u32,
    pub(crate) log: LogState,
    /// Flushed segments that hold values.
    pub(crate) segments: Vec<u64>,
    /// Number of the next run.
    pub(crate) next_run: u64,
    /// Number of the next segment for values moved out of other segments.
    pub(crate) next_value_segment: u64,
    /// Number of the next `Kvs`; above the maximum once all numbers were used.
    pub(crate) next_kvs: u32,
    pub(crate) kvs: Vec<KvsState>,
    /// Directories that hold files of the store. The first one holds the manifest.
    #[serde(default = "only_home", rename = "places")]
    pub(crate) volumes: Vec<VolumeState>,
    /// Number of the next volume.
    #[serde(default = "first_volume")]
    pub(crate) next_place: u32,
}

/// Directory that holds files of a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeState {
    pub(crate) place: u32,
    pub(crate) class: MediaClass,
    /// Last known path; empty for the home.
    pub(crate) path: String,
    pub(crate) bytes_max: Option<u64>,
    /// True if nothing new is put there, and its files are to be moved elsewhere.
    pub(crate) is_retiring: bool,
    #[serde(default, skip_serializing_if = "LifeState::is_empty")]
    pub(crate) life: LifeState,
}

/// Bytes written to a volume: those of callers, and by cause those of the log, of flushes, of
/// compactions, of values collected, demoted, promoted, misplaced and hot, and of manifests.
pub(crate) type LifeCounts = [u64; 10];

/// Bytes written to a volume since it was added, and its budget.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LifeState {
    pub(crate) written: LifeCounts,
    /// Budget of bytes a day, which background work keeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) writes_per_day: Option<u64>,
    /// Bytes of the budget that were used when the manifest was saved.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) owed: u64,
    /// Time of the saving in seconds since 1970; 0 without a budget.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seconds: u64,
}

impl LifeState {
    fn is_empty(&self) -> bool {
        *self == LifeState::default()
    }
}

fn is_zero<T: Default + PartialEq>(number: &T) -> bool {
    *number == T::default()
}

fn only_home() -> Vec<VolumeState> {
    vec![VolumeState::home(MediaClass::Capacity, None)]
}

fn first_volume() -> u32 {
    HOME + 1
}

impl VolumeState {
    /// Returns the state of the volume that holds the manifest.
    pub(crate) fn home(class: MediaClass, bytes_max: Option<u64>) -> VolumeState {
        VolumeState {
            place: HOME,
            class,
            path: String::new(),
            bytes_max,
            is_retiring: false,
            life: LifeState::default(),
        }
    }
}

/// Position in the log where the unflushed writes begin.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogState {
    pub(crate) first_segment: u64,
    /// Last flushed write.
    #[serde(rename = "frozen")]
    pub(crate) flushed: u64,
    /// Last write that is known to be durable, with all before it.
    pub(crate) durable: u64,
}

/// State of a `Kvs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KvsState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Largest value that lies beside its key, in bytes.
    pub(crate) inline_bytes: u32,
    /// Seconds that a key lives by default; 0 means for ever.
    pub(crate) time_to_live_s: u32,
    /// Runs, the newest first.
    pub(crate) runs: Vec<RunState>,
    /// Result of the last compaction of all runs, hence the last in `runs`; 0 if there is none.
    #[serde(default)]
    pub(crate) aged_run: u64,
    /// Classes that its keys and values lie on.
    #[serde(default)]
    pub(crate) policy: Policy,
}

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RunForm")]
pub(crate) struct RunState {
    pub(crate) run: u64,
    /// Mark that the file must bear.
    pub(crate) mark: Mark,
}

impl RunState {
    pub(crate) fn number(self) -> RunNumber {
        RunNumber(self.run)
    }
}

/// Form of a run in the file: with its mark, or as a number alone, as before version 3.
#[derive(Deserialize)]
#[serde(untagged)]
enum RunForm {
    Marked { run: u64, mark: Mark },
    Number(u64),
}

impl From<RunForm> for RunState {
    fn from(form: RunForm) -> RunState {
        match form {
            RunForm::Marked { run, mark } => RunState { run, mark },
            RunForm::Number(run) => RunState { run, mark: Mark::NONE },
        }
    }
}

impl Manifest {
    /// Creates the manifest of an empty store.
    pub(crate) fn new(store: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            store,
            seconds: 0,
            seconds_ahead: 0,
            log: LogState { first_segment: 1, flushed: 0, durable: 0 },
            segments: Vec::new(),
            next_run: 1,
            next_value_segment: SegmentNumber::FIRST_OF_VALUES.0,
            next_kvs: 1,
            kvs: Vec::new(),
            volumes: only_home(),
            next_place: first_volume(),
        }
    }

    /// Reads what is intact of a damaged manifest, which is an earlier state of the store.
    pub(crate) fn load_intact(directory: &dyn Directory) -> Option<Manifest> {
        file::load_intact(directory)
    }

    /// Reads the manifest. Returns `None` if there is no store.
    ///
    /// # Errors
    /// Fails if the file cannot be read, is damaged, or has an unknown format version.
    pub(crate) fn load(directory: &dyn Directory) -> Result<Option<Manifest>, StoreError> {
        let Some(manifest) = file::load(directory)? else { return Ok(None) };
        if manifest.volumes.first().is_none_or(|place| place.place != HOME) {
            let what = "its first volume is not its own directory".to_owned();
            let path = directory.path().join(MANIFEST);
            return Err(StoreError::Damaged { path, offset: 0, what });
        }
        Ok(Some(manifest))
    }

    /// Writes the manifest of a new store durably, together with all earlier changes of names.
    ///
    /// # Errors
    /// Fails if the disk fails. The manifest may be on the disk all the same.
    pub(crate) fn save(&self, directory: &dyn Directory) -> Result<(), StoreError> {
        save_checked(self, directory, MANIFEST).map(drop)
    }

    /// Returns the `Kvs` with a number.
    pub(crate) fn kvs_mut(&mut self, id: KvsId) -> Option<&mut KvsState> {
        self.kvs.iter_mut().find(|kvs| kvs.id == id.0)
    }

    /// Skips numbers that an earlier process may have given to files that no manifest names.
    ///
    /// Such files are removed, but a power cut may bring them back. They would then share their
    /// names with new files on other volumes.
    pub(crate) fn leave_out_numbers(&mut self) {
        self.next_run += NUMBERS_APART;
        self.next_value_segment += NUMBERS_APART;
    }

    /// Returns a number for a new run.
    pub(crate) fn take_run(&mut self) -> RunNumber {
        self.next_run += 1;
        RunNumber(self.next_run - 1)
    }

    /// Returns the state of a new volume, under a new number.
    pub(crate) fn take_place(
        &mut self,
        class: MediaClass,
        path: &Path,
        bytes_max: Option<u64>,
    ) -> VolumeState {
        self.next_place += 1;
        VolumeState {
            place: self.next_place - 1,
            class,
            path: shown(path),
            bytes_max,
            is_retiring: false,
            life: LifeState::default(),
        }
    }

    /// Returns a number for a new `Kvs`: one never used before, or, once all were used, one that is
    /// free in this manifest and by `is_used`.
    pub(crate) fn take_kvs(&mut self, is_used: &dyn Fn(KvsId) -> bool) -> Option<KvsId> {
        if self.next_kvs <= KVS_NUMBER_MAX {
            self.next_kvs += 1;
            return Some(KvsId(self.next_kvs - 1));
        }
        let is_free = |id: &KvsId| !is_used(*id) && self.kvs.iter().all(|kvs| kvs.id != id.0);
        (1..=KVS_NUMBER_MAX).map(KvsId).find(is_free)
    }

    /// Returns a number for a new segment of moved values.
    pub(crate) fn take_value_segment(&mut self) -> SegmentNumber {
        self.next_value_segment += 1;
        SegmentNumber(self.next_value_segment - 1)
    }

    /// Moves the next numbers past those of existing files, which a lost manifest may have named.
    pub(crate) fn skip(&mut self, names: &[String]) {
        // A number further ahead than this was not given by this store.
        const NEAR: u64 = 1 << 32;
        let behind = |next: u64, taken: u64| match taken.checked_sub(next) {
            Some(ahead) if ahead < NEAR => taken + 1,
            _ => next,
        };
        for name in names {
            match (names::segment_number(name), names::run_number(name)) {
                (Some(SegmentNumber(number)), _) => {
                    self.next_value_segment = behind(self.next_value_segment, number);
                }
                (None, Some(RunNumber(number))) => self.next_run = behind(self.next_run, number),
                (None, None) => {}
            }
        }
    }

    /// Returns the error for an unknown name of a `Kvs`.
    pub(crate) fn no_kvs(&self, name: &str) -> StoreError {
        let names: Vec<&str> = self.kvs.iter().map(|kvs| kvs.name.as_str()).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        StoreError::NoKvs { name: name.to_owned(), there }
    }

    /// Returns true if a file belongs to the store, or may belong to its log.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        match (names::segment_number(name), names::run_number(name)) {
            (Some(number), _) => {
                let is_ahead = number.is_of_log() && number.0 >= self.log.first_segment;
                is_ahead || self.segments.contains(&number.0)
            }
            (_, Some(RunNumber(number))) => self.runs().any(|it| it.run == number),
            (None, None) => match names::image_number(name) {
                Some(number) => number.0 >= self.log.first_segment,
                None => [MANIFEST, LABEL, READ_FREQUENCY, names::UNFINISHED].contains(&name),
            },
        }
    }

    /// Returns the runs of all `Kvs`.
    fn runs(&self) -> impl Iterator<Item = &RunState> {
        self.kvs.iter().flat_map(|kvs| &kvs.runs)
    }

    fn run_numbers(&self) -> Vec<u64> {
        self.runs().map(|run| run.run).collect()
    }

    /// Asserts that this manifest may replace another one: no counter goes back, and each new file
    /// exists and has a number of its own.
    pub(crate) fn assert_follows(&self, before: &Manifest, is_there: impl Fn(&str) -> bool) {
        let grown = |it: &Manifest| {
            let LogState { first_segment, flushed, durable } = it.log;
            let numbers = [it.next_run, it.next_value_segment, it.next_kvs.into()];
            [[first_segment, flushed, durable], numbers]
        };
        let (now, then) = (grown(self), grown(before));
        let has_grown = now.as_flattened().iter().zip(then.as_flattened()).all(|(n, t)| n >= t);
        assert!(has_grown, "the manifest's numbers go back from {then:?} to {now:?}");
        let name = |number| names::of_run(RunNumber(number));
        assert_added(&self.run_numbers(), &before.run_numbers(), |number| {
            assert!(number < self.next_run, "run {number} is new, so is {}", self.next_run);
            assert!(is_there(&name(number)), "run {number} is new, and has no file");
        });
        assert_added(&self.segments, &before.segments, |number| {
            let name = names::of_segment(SegmentNumber(number));
            assert!(is_there(&name), "segment {number} is new, and has no file");
        });
    }

    /// Returns the approximate number of descriptors that the store needs: one for each run and
    /// flushed segment, and one for the next run of each `Kvs`.
    pub(crate) fn descriptors(&self) -> usize {
        DESCRIPTORS_BESIDE + self.runs().count() + self.segments.len() + self.kvs.len()
    }

    /// Returns the flushed segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentNumber> {
        self.segments.iter().copied().map(SegmentNumber)
    }
}

/// Asserts that each number added since `before` was added once, and checks it with `is_right`.
fn assert_added(now: &[u64], before: &[u64], is_right: impl Fn(u64)) {
    let before: BTreeSet<u64> = before.iter().copied().collect();
    let mut added = BTreeSet::new();
    for number in now.iter().copied().filter(|number| !before.contains(number)) {
        assert!(added.insert(number), "{number} comes twice into the manifest");
        is_right(number);
    }
}

/// Part of a file that is read before its version is known.
#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// Reads a small file that consists of a JSON object and its checksum. Returns both.
///
/// # Errors
/// Fails if the file is damaged or has an unknown format version.
pub(crate) fn read_checked<T: DeserializeOwned>(
    bytes: &[u8],
    path: &Path,
) -> Result<(T, u32), StoreError> {
    let damaged = |what: String| StoreError::Damaged { path: path.to_owned(), offset: 0, what };
    let Some((object, crc)) = parts(bytes) else {
        return Err(damaged("it is not two lines".to_owned()));
    };
    if !checksum::matches(crc, object) {
        return Err(damaged("its checksum is wrong".to_owned()));
    }
    let Head { format: found } =
        serde_json::from_slice(object).map_err(|error| damaged(error.to_string()))?;
    if !(FORMAT_OLDEST..=FORMAT).contains(&found) {
        return Err(StoreError::Version { path: path.to_owned(), found, known: FORMAT });
    }
    let read = serde_json::from_slice(object).map_err(|error| damaged(error.to_string()))?;
    Ok((read, crc))
}

/// Replaces a small file durably by a JSON object and its checksum, together with all earlier
/// changes of names in its directory. Returns its bytes and the checksum.
///
/// # Errors
/// Fails if the disk fails. Either file may then be on the disk.
pub(crate) fn save_checked(
    what: &impl Serialize,
    directory: &dyn Directory,
    name: &str,
) -> Result<(u64, u32), StoreError> {
    let object = serde_json::to_string(what).map_err(|error| StoreError::Io {
        doing: "encode",
        path: directory.path().join(name),
        offset: 0,
        cause: error.into(),
    })?;
    let crc = checksum::crc32c(object.as_bytes());
    let text = format!("{object}\ncrc32c {crc:08x}\n");
    directory.replace(name, text.as_bytes())?;
    Ok((text.len() as u64, crc))
}

/// Splits a file into the object and the checksum behind it.
fn parts(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let line = bytes.iter().position(|&byte| byte == b'\n')?;
    let (object, rest) = bytes.split_at(line);
    let digits = rest.strip_prefix(b"\ncrc32c ")?.strip_suffix(b"\n")?;
    Some((object, digits_of(digits)?))
}

/// Reads a checksum, which has eight digits.
fn digits_of(digits: &[u8]) -> Option<u32> {
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
    let is_plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    is_plain.then(|| u32::from_str_radix(digits, 16).ok())?
}

/// Returns a path that stays valid wherever the store is opened the next time.
pub(crate) fn absolute(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    // Without a slash at its end.
    path.components().collect()
}

/// Returns the absolute path as text for the manifest.
pub(crate) fn shown(path: &Path) -> String {
    absolute(path).display().to_string()
}

/// Beginning of every file that [`save_checked`] writes.
const BEGINNING: &[u8] = b"{\"format\":";

/// Returns true if a file begins as those of a store do that hold an object and its checksum.
pub(crate) fn is_begun(bytes: &[u8]) -> bool {
    bytes.starts_with(BEGINNING)
}

/// Content of the mark of a copy that was not completed, for a user who finds it. By it the mark is
/// told from another file of that name.
pub(crate) const MARK: &[u8] =
    b"The files here are an incomplete copy of a store. Make the copy again, or remove \
      this directory.\n";

/// Returns true if a directory holds a copy of a store that was not completed.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn is_unfinished(directory: &dyn Directory) -> Result<bool, StoreError> {
    let is_marked = match directory.read(names::UNFINISHED) {
        Ok(bytes) => bytes == MARK,
        Err(
            FileError::NoFile { .. } | FileError::WrongType { .. } | FileError::TooLarge { .. },
        ) => false,
        Err(error) => return Err(error.into()),
    };
    Ok(is_marked && directory.find(MANIFEST)?.is_none())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::repair::check::guess;

    #[test]
    fn a_manifest_that_does_not_follow_is_not_saved() {
        let mut before = Manifest::new(1);
        before.log = LogState { first_segment: 3, flushed: 20, durable: 30 };
        before.next_run = 8;
        before.segments = vec![1, 2];
        let kvs = guess::state(KvsId(1), vec![RunState { run: 5, mark: Mark::NONE }]);
        before.kvs.push(kvs);
        let follows = |change: fn(&mut Manifest)| {
            let mut next = before.clone();
            change(&mut next);
            let files = [names::of_run(RunNumber(7)), names::of_segment(SegmentNumber(4))];
            let is_there = |name: &str| files.iter().any(|file| file == name);
            std::panic::catch_unwind(|| next.assert_follows(&before, is_there)).is_ok()
        };
        assert!(follows(|_| ()));
        assert!(follows(|next| next.segments = vec![4, 2]));
        assert!(follows(|next| next.kvs[0].runs = vec![RunState { run: 7, mark: Mark::NONE }]));
        let wrong: [fn(&mut Manifest); 7] = [
            |next| next.log.durable -= 1,
            |next| next.log.flushed -= 1,
            |next| next.log.first_segment = 0,
            |next| next.segments.extend([4, 4]),
            |next| next.segments.push(6),
            |next| next.kvs[0].runs.push(RunState { run: 6, mark: Mark::NONE }),
            |next| next.kvs[0].runs.push(RunState { run: 8, mark: Mark::NONE }),
        ];
        for (number, change) in wrong.into_iter().enumerate() {
            assert!(!follows(change), "change {number}");
        }
    }

    #[test]
    fn numbers_of_kvs_are_used_again_when_no_new_ones_are_left() {
        let mut manifest = Manifest::new(1);
        let nothing = |_| false;
        assert_eq!(manifest.take_kvs(&|_| true), Some(KvsId(1)), "that one is new");
        assert_eq!(manifest.take_kvs(&nothing), Some(KvsId(2)));
        manifest.next_kvs = KVS_NUMBER_MAX;
        assert_eq!(manifest.take_kvs(&nothing), Some(KvsId(KVS_NUMBER_MAX)));
        manifest.kvs.push(guess::state(KvsId(1), Vec::new()));
        assert_eq!(manifest.take_kvs(&nothing), Some(KvsId(2)));
        assert_eq!(manifest.take_kvs(&|id| id.0 != 7), Some(KvsId(7)));
        assert_eq!(manifest.take_kvs(&|id| id.0 != 1), None);
    }
}
