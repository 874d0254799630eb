//! Which medium bytes are put on: how it is named in configurations and what kind it is.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A medium as people name it: `dram`, `pmem:PATH`, `pmem:PATH,assume-dax` or `file:PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum MediumSpec {
    /// The process's own memory.
    #[default]
    Dram,
    /// Persistent memory, as a file on a DAX filesystem.
    Pmem {
        /// The file that is mapped.
        path: PathBuf,
        /// Whether a file that is not on a DAX filesystem is taken for persistent memory, for
        /// trials. Everything that is reported about it says «emulated».
        assume_dax: bool,
    },
    /// A file on a disk that is read and written in blocks.
    File {
        /// The file.
        path: PathBuf,
    },
}

/// The kinds of media, without their places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum MediumKind {
    /// The process's own memory.
    Dram,
    /// Persistent memory.
    Pmem,
    /// A file that is read and written in blocks.
    File,
}

impl MediumKind {
    /// The word for this kind, as it stands in configurations and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MediumKind::Dram => "dram",
            MediumKind::Pmem => "pmem",
            MediumKind::File => "file",
        }
    }
}

impl fmt::Display for MediumKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl MediumSpec {
    /// What kind of medium this is.
    #[must_use]
    pub const fn kind(&self) -> MediumKind {
        match self {
            MediumSpec::Dram => MediumKind::Dram,
            MediumSpec::Pmem { .. } => MediumKind::Pmem,
            MediumSpec::File { .. } => MediumKind::File,
        }
    }
}

/// Why a text names no medium.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not a medium: {reason}")]
pub struct ParseMediumError {
    text: String,
    reason: &'static str,
}

const PATH_MISSING: &str = "a path must follow the colon (file:/var/cache/entresol/a.dat)";
const FORMS: &str = "write dram, pmem:PATH, pmem:PATH,assume-dax or file:PATH";
const OPTION_UNKNOWN: &str = "pmem takes one option behind a comma, assume-dax; \
                              a path that holds a comma cannot be used";

impl FromStr for MediumSpec {
    type Err = ParseMediumError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let error = |reason| ParseMediumError { text: text.to_owned(), reason };
        if text == "dram" {
            return Ok(MediumSpec::Dram);
        }
        let (kind, place) = text.split_once(':').ok_or_else(|| error(FORMS))?;
        match kind {
            "pmem" => {
                let (path, assume_dax) = match place.split_once(',') {
                    None => (place, false),
                    Some((path, "assume-dax")) => (path, true),
                    Some(_) => return Err(error(OPTION_UNKNOWN)),
                };
                if path.is_empty() {
                    return Err(error(PATH_MISSING));
                }
                Ok(MediumSpec::Pmem { path: path.into(), assume_dax })
            }
            "file" if place.is_empty() => Err(error(PATH_MISSING)),
            "file" => Ok(MediumSpec::File { path: place.into() }),
            _ => Err(error(FORMS)),
        }
    }
}

impl fmt::Display for MediumSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            MediumSpec::Dram => f.write_str("dram"),
            MediumSpec::Pmem { path, assume_dax: false } => write!(f, "pmem:{}", path.display()),
            MediumSpec::Pmem { path, assume_dax: true } => {
                write!(f, "pmem:{},assume-dax", path.display())
            }
            MediumSpec::File { path } => write!(f, "file:{}", path.display()),
        }
    }
}

impl Serialize for MediumSpec {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for MediumSpec {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str, medium: &MediumSpec) {
        assert_eq!(text.parse().as_ref(), Ok(medium), "{text}");
        assert_eq!(medium.to_string(), text);
    }

    #[test]
    fn media_as_people_name_them() {
        check("dram", &MediumSpec::Dram);
        check("file:/a b/c,d", &MediumSpec::File { path: "/a b/c,d".into() });
        check("pmem:/mnt/x", &MediumSpec::Pmem { path: "/mnt/x".into(), assume_dax: false });
        check("pmem:x,assume-dax", &MediumSpec::Pmem { path: "x".into(), assume_dax: true });
    }

    #[test]
    fn nonsense_is_refused_with_the_forms_that_exist() {
        for text in ["", "DRAM", "ssd:/x", "pmem", "pmem:", "file:", "pmem:/x,dax", "pmem:,x"] {
            let error = text.parse::<MediumSpec>().expect_err(text).to_string();
            assert!(error.starts_with(&format!("'{text}' is not a medium")), "{error}");
        }
    }

    #[test]
    fn media_travel_as_strings() {
        let medium: MediumSpec = serde_json::from_str("\"pmem:/x,assume-dax\"").expect("parses");
        assert_eq!(serde_json::to_string(&medium).expect("prints"), "\"pmem:/x,assume-dax\"");
    }
}
