//! The manifest: what a store consists of, in one small file that is replaced as a whole.
//!
//! Its first line is a JSON object, its second `crc32c` and the CRC-32C of the first in hexadecimal
//! digits. What no manifest names is no part of the store.

use entresol_base::checksum;
use entresol_media::{Directory, FileError};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::entry::{KvsId, RunNumber, SegmentNumber};
use crate::log::segment;
use crate::run;
use crate::young::image;

/// The manifest's name.
pub(crate) const FILE: &str = "MANIFEST";

const FORMAT: u32 = 1;

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
    /// Frozen segments that values lie in.
    pub(crate) segments: Vec<u64>,
    /// The number that the next run gets.
    pub(crate) next_run: u64,
    /// The number that the next segment gets whose values come from others.
    pub(crate) next_value_segment: u64,
    /// The number that the next `Kvs` gets.
    pub(crate) next_kvs: u32,
    pub(crate) kvs: Vec<KvsState>,
}

/// Where the log begins that is not frozen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LogState {
    pub(crate) first_segment: u64,
    /// The last write that is frozen.
    pub(crate) frozen: u64,
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
    pub(crate) runs: Vec<u64>,
}

impl Manifest {
    /// That of a store without data.
    pub(crate) fn new(store: u64) -> Manifest {
        Manifest {
            format: FORMAT,
            store,
            seconds: 0,
            log: LogState { first_segment: 1, frozen: 0, durable: 0 },
            segments: Vec::new(),
            next_run: 1,
            next_value_segment: SegmentNumber::FIRST_OF_VALUES.0,
            next_kvs: 1,
            kvs: Vec::new(),
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
        let path = directory.path().join(FILE);
        let damaged = |what: String| StoreError::Damaged { path: path.clone(), offset: 0, what };
        let Some((object, crc)) = parts(&bytes) else {
            return Err(damaged("it is not two lines".to_owned()));
        };
        if !checksum::matches(crc, object) {
            return Err(damaged("its checksum is wrong".to_owned()));
        }
        let Head { format: found } =
            serde_json::from_slice(object).map_err(|error| damaged(error.to_string()))?;
        if found != FORMAT {
            return Err(StoreError::Version { path, found, known: FORMAT });
        }
        let manifest = serde_json::from_slice(object);
        manifest.map(Some).map_err(|error| damaged(error.to_string()))
    }

    /// Puts it in the place of the one before, durably, with all names changed earlier;
    /// answers its bytes.
    ///
    /// # Errors
    /// If the disk fails: then either may be there.
    pub(crate) fn save(&self, directory: &dyn Directory) -> Result<u64, StoreError> {
        let object = serde_json::to_string(self).map_err(|error| StoreError::Io {
            doing: "encode",
            path: directory.path().join(FILE),
            offset: 0,
            cause: error.into(),
        })?;
        let crc = checksum::crc32c(object.as_bytes());
        let text = format!("{object}\ncrc32c {crc:08x}\n");
        directory.replace(FILE, text.as_bytes())?;
        Ok(text.len() as u64)
    }

    /// A `Kvs` by its number.
    pub(crate) fn kvs_mut(&mut self, id: KvsId) -> Option<&mut KvsState> {
        self.kvs.iter_mut().find(|kvs| kvs.id == id.0)
    }

    /// A number for a run.
    pub(crate) fn take_run(&mut self) -> RunNumber {
        self.next_run += 1;
        RunNumber(self.next_run - 1)
    }

    /// A number for a segment whose values come from others.
    pub(crate) fn take_value_segment(&mut self) -> SegmentNumber {
        self.next_value_segment += 1;
        SegmentNumber(self.next_value_segment - 1)
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
            (_, Some(RunNumber(number))) => self.kvs.iter().any(|kvs| kvs.runs.contains(&number)),
            (None, None) => match image::number_of(name) {
                Some(number) => number.0 >= self.log.first_segment,
                None => name == FILE,
            },
        }
    }

    /// The frozen segments.
    pub(crate) fn segments(&self) -> impl Iterator<Item = SegmentNumber> {
        self.segments.iter().copied().map(SegmentNumber)
    }
}

/// What is read before the version is known.
#[derive(Deserialize)]
struct Head {
    format: u32,
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
