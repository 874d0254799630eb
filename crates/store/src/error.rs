//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use entresol_media::FileError;

/// Why a store cannot do what it was asked. Every variant names the thing, the place and the way
/// out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file of the store cannot be had.
    #[error(transparent)]
    File(#[from] FileError),
    /// A disk failed.
    #[error("cannot {doing} {path} at {offset}: {cause}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What the system said.
        cause: io::Error,
    },
    /// What lies there was not written so.
    #[error(
        "{path} is damaged at {offset}: {what}; other data can still be read, `store check` lists \
         what cannot"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The file has a format that this program does not know.
    #[error(
        "{path} has format version {found}, this program knows {known}; open it with the program \
         that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u32,
        /// What is known.
        known: u32,
    },
    /// More prefixes of keys were removed than one run can say.
    #[error("{path} cannot hold more than {most} prefixes that are gone; compact, then go on")]
    TooManyPrefixes {
        /// The file.
        path: PathBuf,
        /// How many it can hold, if they are short.
        most: usize,
    },
    /// The program contradicts itself.
    #[error("a mistake of this program, please report it: {what}")]
    Internal {
        /// What is wrong.
        what: String,
    },
}
