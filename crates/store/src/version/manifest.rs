//! The manifest: what a store consists of, in one small file that is replaced as a whole.
//!
//! Its first line is a JSON object, its second `crc32c` and the CRC-32C of the first in hexadecimal
//! digits. What no manifest names is no part of the store.

use std::collections::BTreeSet;
use std::path::Path;

use entresol_base::checksum;
use entresol_media::{Directory, FileError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::memtable::image;
use crate::run;
use crate::types::{KvsId, Mark, RunNumber, SegmentNumber};
use crate::upkeep::read_frequency;
use crate::volumes::policy::{MediaClass, Policy};
use crate::volumes::{LABEL, Volume, shown};
use crate::wal::segment;

/// The manifest's name.
pub(crate) const FILE: &str = "MANIFEST";

/// The version of the format that is written.
pub(crate) const FORMAT: u32 = 3;
/// The oldest that is read: it has neither volumes nor policies, nor marks of runs.
const FORMAT_OLDEST: u32 = 1;
/// No process gives so many numbers without a manifest that says so.
const NUMBERS_APART: u64 = 1 << 20;
/// The greatest number of a `Kvs`: records have two bytes for it.
const KVS_NUMBER_MAX: u32 = u16::MAX as u32;
/// What a store has open beside its runs and flushed segments, about: the log, directories and
/// their locks, and what is being written.
const DESCRIPTORS_BESIDE: usize = 64;
/// The number of the place that has the manifest.
pub(crate) const HOME: u32 = 0;

/// What a store consists of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Manifest {
    /// The version of the format.
    format: u32,
    /// The store's identity, by which its segments and runs are told from others'.
    pub(crate) store: u64,
    /// The latest time that was seen, in seconds since 1970: what expired stays expired.
    pub(crate) seconds: u32,
    pub(crate) log: LogState,
    /// Flushed segments that values lie in.
    pub(crate) segments: Vec<u64>,
    /// The number that the next run gets.
    pub(crate) next_run: u64,
    /// The number that the next segment gets whose values come from others.
    pub(crate) next_value_segment: u64,
    /// The number that the next `Kvs` gets, unless it is above all that there can be.
    pub(crate) next_kvs: u32,
    pub(crate) kvs: Vec<KvsState>,
    /// The directories that files lie in, the one with the manifest first.
    #[serde(default = "only_home", rename = "places")]
    pub(crate) volumes: Vec<VolumeState>,
    /// The number that the next place gets.
    #[serde(default = "first_volume")]
    pub(crate) next_place: u32,
}

/// A directory that files lie in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct VolumeState {
    pub(crate) place: u32,
    pub(crate) class: MediaClass,
    /// Where it was last; that of the home is empty.
    pub(crate) path: String,
    pub(crate) bytes_max: Option<u64>,
    /// Nothing new is put there: what is there is to be moved elsewhere.
    pub(crate) is_retiring: bool,
}

fn only_home() -> Vec<VolumeState> {
    vec![VolumeState::home(MediaClass::Capacity, None)]
}

fn first_volume() -> u32 {
    HOME + 1
}

impl VolumeState {
    /// The place that has the manifest.
    pub(crate) fn home(class: MediaClass, bytes_max: Option<u64>) -> VolumeState {
        VolumeState { place: HOME, class, path: String::new(), bytes_max, is_retiring: false }
    }
}

/// Where the log begins that is not flushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogState {
    pub(crate) first_segment: u64,
    /// The last write that is flushed.
    #[serde(rename = "frozen")]
    pub(crate) flushed: u64,
    /// A write up to which all are durable.
    pub(crate) durable: u64,
}

/// A `Kvs`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct KvsState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// Values of at most so many bytes lie beside their keys.
    pub(crate) inline_bytes: u32,
    /// How many seconds a key lives if nothing is said; 0 is for ever.
    pub(crate) time_to_live_s: u32,
    /// Its runs, the newest first.
    pub(crate) runs: Vec<RunState>,
    /// The run that all runs were merged into last, which is the last of them; 0 if there is none.
    #[serde(default)]
    pub(crate) aged_run: u64,
    /// Where it lies.
    #[serde(default)]
    pub(crate) policy: Policy,
}

/// A run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "RunForm")]
pub(crate) struct RunState {
    pub(crate) run: u64,
    /// What the file must bear.
    pub(crate) mark: Mark,
}

impl RunState {
    pub(crate) fn number(self) -> RunNumber {
        RunNumber(self.run)
    }
}

/// How a run is named: with its mark, or as it was before version 3.
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
    /// That of a store without data.
    pub(crate) fn new(store: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            store,
            seconds: 0,
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

    /// Reads it; none if there is no store.
    ///
    /// # Errors
    /// If it cannot be read, is damaged, or of a format that is not known.
    pub(crate) fn load(directory: &dyn Directory) -> Result<Option<Manifest>, StoreError> {
        let bytes = match directory.read(FILE) {
            Ok(bytes) => bytes,
            Err(FileError::NoFile { .. }) => return Ok(None),
            Err(error) => return Err(error.into()),
        };
        let mut manifest: Manifest = read_checked(&bytes, &directory.path().join(FILE))?;
        manifest.format = FORMAT;
        if manifest.volumes.first().is_none_or(|place| place.place != HOME) {
            let what = "its first volume is not its own directory".to_owned();
            let path = directory.path().join(FILE);
            return Err(StoreError::Damaged { path, offset: 0, what });
        }
        Ok(Some(manifest))
    }

    /// Puts it in the place of the one before, durably, with all names changed earlier;
    /// answers its bytes.
    ///
    /// # Errors
    /// If the disk fails: then either may be there.
    pub(crate) fn save(&self, directory: &dyn Directory) -> Result<u64, StoreError> {
        save_checked(self, directory, FILE)
    }

    /// A `Kvs` by its number.
    pub(crate) fn kvs_mut(&mut self, id: KvsId) -> Option<&mut KvsState> {
        self.kvs.iter_mut().find(|kvs| kvs.id == id.0)
    }

    /// Leaves out numbers that a process before may have given to files that no manifest names:
    /// when these are removed, a power cut may bring them back, beside others of the same names in
    /// other volumes.
    pub(crate) fn leave_out_numbers(&mut self) {
        self.next_run += NUMBERS_APART;
        self.next_value_segment += NUMBERS_APART;
    }

    /// A number for a run.
    pub(crate) fn take_run(&mut self) -> RunNumber {
        self.next_run += 1;
        RunNumber(self.next_run - 1)
    }

    /// What is to be said of a new place.
    pub(crate) fn take_place(&mut self, place: &Volume) -> VolumeState {
        self.next_place += 1;
        VolumeState {
            place: self.next_place - 1,
            class: place.class,
            path: shown(place.directory.path()),
            bytes_max: place.bytes_max,
            is_retiring: false,
        }
    }

    /// A number for a `Kvs`: one that none ever had or, when there are no more of these, one that
    /// none has and that is not used otherwise.
    pub(crate) fn take_kvs(&mut self, is_used: &dyn Fn(KvsId) -> bool) -> Option<KvsId> {
        if self.next_kvs <= KVS_NUMBER_MAX {
            self.next_kvs += 1;
            return Some(KvsId(self.next_kvs - 1));
        }
        let is_free = |id: &KvsId| !is_used(*id) && self.kvs.iter().all(|kvs| kvs.id != id.0);
        (1..=KVS_NUMBER_MAX).map(KvsId).find(is_free)
    }

    /// A number for a segment whose values come from others.
    pub(crate) fn take_value_segment(&mut self) -> SegmentNumber {
        self.next_value_segment += 1;
        SegmentNumber(self.next_value_segment - 1)
    }

    /// Gives no number to a new file that a file has already, which no manifest may have named.
    pub(crate) fn skip(&mut self, names: &[String]) {
        // Whoever has numbers so far ahead has not got them from here.
        const NEAR: u64 = 1 << 32;
        let behind = |next: u64, taken: u64| match taken.checked_sub(next) {
            Some(ahead) if ahead < NEAR => taken + 1,
            _ => next,
        };
        for name in names {
            match (segment::number_of(name), run::number_of(name)) {
                (Some(SegmentNumber(number)), _) => {
                    self.next_value_segment = behind(self.next_value_segment, number);
                }
                (None, Some(RunNumber(number))) => self.next_run = behind(self.next_run, number),
                (None, None) => {}
            }
        }
    }

    /// That there is no `Kvs` of a name.
    pub(crate) fn no_kvs(&self, name: &str) -> StoreError {
        let names: Vec<&str> = self.kvs.iter().map(|kvs| kvs.name.as_str()).collect();
        let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        StoreError::NoKvs { name: name.to_owned(), there }
    }

    /// Whether a file is the store's, or may be that of its log.
    pub(crate) fn has_file(&self, name: &str) -> bool {
        match (segment::number_of(name), run::number_of(name)) {
            (Some(number), _) => {
                let is_ahead = number.is_of_log() && number.0 >= self.log.first_segment;
                is_ahead || self.segments.contains(&number.0)
            }
            (_, Some(RunNumber(number))) => self.runs().any(|it| it.run == number),
            (None, None) => match image::number_of(name) {
                Some(number) => number.0 >= self.log.first_segment,
                None => [FILE, LABEL, read_frequency::kept::FILE].contains(&name),
            },
        }
    }

    /// The runs of all `Kvs`.
    fn runs(&self) -> impl Iterator<Item = &RunState> {
        self.kvs.iter().flat_map(|kvs| &kvs.runs)
    }

    fn run_numbers(&self) -> Vec<u64> {
        self.runs().map(|run| run.run).collect()
    }

    /// Asserts that it may take the place of another one: nothing that only grows goes back, what
    /// is new has numbers of its own, and its file is there.
    pub(crate) fn assert_follows(&self, before: &Manifest, is_there: impl Fn(&str) -> bool) {
        let grown = |it: &Manifest| {
            let LogState { first_segment, flushed, durable } = it.log;
            let numbers = [it.next_run, it.next_value_segment, it.next_kvs.into()];
            [[first_segment, flushed, durable], numbers]
        };
        let (now, then) = (grown(self), grown(before));
        let has_grown = now.as_flattened().iter().zip(then.as_flattened()).all(|(n, t)| n >= t);
        assert!(has_grown, "the manifest's numbers go back from {then:?} to {now:?}");
        let name = |number| run::file_name(RunNumber(number));
        assert_added(&self.run_numbers(), &before.run_numbers(), |number| {
            assert!(number < self.next_run, "run {number} is new, so is {}", self.next_run);
            assert!(is_there(&name(number)), "run {number} is new, and has no file");
        });
        assert_added(&self.segments, &before.segments, |number| {
            let name = segment::file_name(SegmentNumber(number));
            assert!(is_there(&name), "segment {number} is new, and has no file");
        });
    }

    /// How many descriptors a store needs, about: for each run and flushed segment, and for a run
    /// of each `Kvs` that is about to be.
    pub(crate) fn descriptors(&self) -> usize {
        DESCRIPTORS_BESIDE + self.runs().count() + self.segments.len() + self.kvs.len()
    }

    /// The flushed segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentNumber> {
        self.segments.iter().copied().map(SegmentNumber)
    }
}

/// What is read before the version is known.
/// Asserts of numbers that came since before that each came once, and what else is said.
fn assert_added(now: &[u64], before: &[u64], is_right: impl Fn(u64)) {
    let before: BTreeSet<u64> = before.iter().copied().collect();
    let mut added = BTreeSet::new();
    for number in now.iter().copied().filter(|number| !before.contains(number)) {
        assert!(added.insert(number), "{number} comes twice into the manifest");
        is_right(number);
    }
}

#[derive(Deserialize)]
struct Head {
    format: u32,
}

/// What a small file says that is a JSON object with its checksum behind it.
///
/// # Errors
/// If it is damaged, or of a format that is not known.
pub(crate) fn read_checked<T: DeserializeOwned>(
    bytes: &[u8],
    path: &Path,
) -> Result<T, StoreError> {
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
    serde_json::from_slice(object).map_err(|error| damaged(error.to_string()))
}

/// Puts such a file in the place of the one before, durably, with all names changed earlier in its
/// directory; answers its bytes.
///
/// # Errors
/// If the disk fails: then either may be there.
pub(crate) fn save_checked(
    what: &impl Serialize,
    directory: &dyn Directory,
    name: &str,
) -> Result<u64, StoreError> {
    let object = serde_json::to_string(what).map_err(|error| StoreError::Io {
        doing: "encode",
        path: directory.path().join(name),
        offset: 0,
        cause: error.into(),
    })?;
    let crc = checksum::crc32c(object.as_bytes());
    let text = format!("{object}\ncrc32c {crc:08x}\n");
    directory.replace(name, text.as_bytes())?;
    Ok(text.len() as u64)
}

/// The object, and the checksum that stands behind it.
fn parts(bytes: &[u8]) -> Option<(&[u8], u32)> {
    let line = bytes.iter().position(|&byte| byte == b'\n')?;
    let (object, rest) = bytes.split_at(line);
    let digits = rest.strip_prefix(b"\ncrc32c ")?.strip_suffix(b"\n")?;
    let digits = std::str::from_utf8(digits).ok().filter(|digits| digits.len() == 8)?;
    let is_plain = digits.bytes().all(|digit| matches!(digit, b'0'..=b'9' | b'a'..=b'f'));
    if !is_plain {
        return None;
    }
    Some((object, u32::from_str_radix(digits, 16).ok()?))
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
            let files = [run::file_name(RunNumber(7)), segment::file_name(SegmentNumber(4))];
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
