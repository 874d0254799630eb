//! Location of a store as the user types it: `PATH`, `pmem:PATH` or `pmem:PATH,assume-dax`.

use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use entresol_media::{MediumSpec, PmemMode};

/// Directory of a store and the kind of medium that it lies on. A directory whose name begins with
/// `pmem:` is written with a slash, as in `./pmem:a`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StorePlace {
    /// Directory of the store.
    pub path: PathBuf,
    /// Mode of persistent memory, or `None` for a disk.
    pub pmem: Option<PmemMode>,
}

impl StorePlace {
    /// Parses the location that `text` names.
    ///
    /// # Errors
    /// Fails if the text begins with `pmem:` and the rest is not valid.
    pub fn parse(text: OsString) -> Result<StorePlace, <MediumSpec as FromStr>::Err> {
        match text.to_str() {
            Some(medium) if medium.starts_with("pmem:") => match medium.parse()? {
                MediumSpec::Pmem { path, assume_dax } => {
                    Ok(StorePlace { path, pmem: Some(PmemMode { assume_dax }) })
                }
                _ => Ok(StorePlace { path: text.into(), pmem: None }),
            },
            _ => Ok(StorePlace { path: text.into(), pmem: None }),
        }
    }

    /// Returns the argument that names this location on the command line of another process.
    #[must_use]
    pub fn argument(&self) -> OsString {
        match self.pmem {
            None => self.path.clone().into(),
            Some(_) => self.to_string().into(),
        }
    }
}

impl fmt::Display for StorePlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pmem {
            None => write!(f, "{}", self.path.display()),
            Some(PmemMode { assume_dax }) => {
                MediumSpec::Pmem { path: self.path.clone(), assume_dax }.fmt(f)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_a_directory_or_one_on_persistent_memory() {
        let place = |text: &str| StorePlace::parse(text.into());
        let check = |text: &str, path: &str, pmem: Option<PmemMode>| {
            let expected = StorePlace { path: path.into(), pmem };
            assert_eq!(place(text).as_ref(), Ok(&expected));
            assert_eq!(expected.to_string(), text);
        };
        check("data", "data", None);
        check("/mnt/a,b", "/mnt/a,b", None);
        check("./pmem:a", "./pmem:a", None);
        check("pmem:/mnt/a", "/mnt/a", Some(PmemMode { assume_dax: false }));
        check("pmem:a,assume-dax", "a", Some(PmemMode { assume_dax: true }));
        for text in ["pmem:", "pmem:a,assume", "pmem:,assume-dax"] {
            assert!(place(text).is_err(), "{text}");
        }
    }
}
