//! What can go wrong with a store.

use std::io;
use std::path::PathBuf;

use entresol_index::IndexError;
use entresol_media::{FileError, RegionError, lacks_descriptors};

use crate::volumes::policy::MediaClass;

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
        "{path} is damaged at {offset}: {what}; other data can still be read: `store check` lists \
         the damage, `store salvage` copies the rest"
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
        "{path} has format version {found}, but this program reads version {known}: open it with \
         the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// What it has.
        found: u32,
        /// What is known.
        known: u32,
    },
    /// There is no room but what is kept for deleting and merging, or none to flush what was
    /// written, and too much waits for that.
    #[error("no room: {what}; data can be read, and writes work again once there is room")]
    NoRoom {
        /// What was refused.
        what: String,
    },
    /// This process, or the system, has as many files open as it may.
    #[error(
        "{cause}: raise the limit of open files (`ulimit -n`); the store needs about {needed}, one \
         for each run and segment, besides other open files"
    )]
    Descriptors {
        /// The file that could not be opened.
        cause: Box<StoreError>,
        /// How many the store needs, about.
        needed: usize,
    },
    /// More prefixes of keys were removed than one run can say.
    #[error("{path} cannot hold more than {most} range deletes: compact the store, then try again")]
    TooManyPrefixes {
        /// The file.
        path: PathBuf,
        /// How many it can hold, if they are short.
        most: usize,
    },
    /// The program contradicts itself.
    #[error("internal error, please report it: {what}")]
    Internal {
        /// What is wrong.
        what: String,
    },
    /// An earlier write or sync failed.
    #[error(
        "the store takes no more writes, since one failed: {what}; durable data can still be read: \
         find the cause, then open the store again"
    )]
    Failed {
        /// What it said.
        what: String,
    },
    /// The index of the youngest data.
    #[error("the memtable's index: {0}")]
    Index(#[from] IndexError),
    /// Memory cannot be had.
    #[error(transparent)]
    Memory(#[from] RegionError),
    /// There is no store.
    #[error("there is no store in {directory}: create one there, or give another directory")]
    NoStore {
        /// Where.
        directory: PathBuf,
    },
    /// A place that the store's files lie in is not there.
    #[error(
        "the store's {class} volume {path} is missing: {what}. {readable}. Bring it back, give its \
         new path, or open the store read-only"
    )]
    VolumeMissing {
        /// Its class.
        class: MediaClass,
        /// Where it was last.
        path: PathBuf,
        /// What was found there.
        what: String,
        /// What can be read without it.
        readable: String,
    },
    /// A place that another home has.
    #[error(
        "{path} is a volume of the store in {home}, and one of the two stores is a copy of the \
         other: {what}; nothing was changed. Give the copy volumes of its own (copy them, and give \
         their paths to `store volume found`), or remove {home} if this store replaces it. Both \
         can be opened read-only"
    )]
    VolumeOfAnother {
        /// The place.
        path: PathBuf,
        /// The home that it says that it belongs to.
        home: PathBuf,
        /// What that home says.
        what: String,
    },
    /// A part of the log lies in a place that is missing.
    #[error(
        "the store's volumes {volumes} are missing, and with them the log's writes after number \
         {last}, of which those up to number {durable} were durable: the rest is an older state. \
         Bring the volumes back, give their new paths, or salvage the older state"
    )]
    LogMissing {
        /// Where they were last.
        volumes: String,
        /// The last write that is there.
        last: u64,
        /// One that was durable.
        durable: u64,
    },
    /// A class of media that a policy asks for, and the store has not.
    #[error("{what}")]
    Policy {
        /// What is asked for, and what to do.
        what: String,
    },
    /// There is something already.
    #[error("{directory} contains a store or other files: open it, or give an empty directory")]
    Exists {
        /// Where.
        directory: PathBuf,
    },
    /// A value is in a segment that the store does not have.
    #[error(
        "a value is in segment {number}, which is missing: if a volume of the store is missing, \
         bring it back; otherwise the store is damaged, and `store check` lists what is lost"
    )]
    NoSegment {
        /// The segment.
        number: u64,
    },
    /// There is no `Kvs` of this name.
    #[error("there is no Kvs '{name}'; the store has: {there}")]
    NoKvs {
        /// The name.
        name: String,
        /// Those that there are.
        there: String,
    },
    /// A handle of a `Kvs` that was dropped.
    #[error("Kvs '{name}' was dropped: create it again, and use the new handle")]
    KvsDropped {
        /// Its name.
        name: String,
    },
    /// A transaction that is older than it may be.
    #[error("the transaction has exceeded its maximum age: begin it again")]
    Aged,
    /// A run of a `Kvs` cannot be opened.
    #[error(
        "Kvs '{name}' cannot be read: {what}; other Kvs can, and `store salvage` copies undamaged \
         data"
    )]
    KvsDamaged {
        /// Its name.
        name: String,
        /// What is damaged.
        what: String,
    },
    /// There is a `Kvs` of this name already.
    #[error("there is a Kvs '{name}' already: open it")]
    KvsExists {
        /// The name.
        name: String,
    },
    /// Not a name for a `Kvs`.
    #[error("'{name}' is not a valid name of a Kvs: use 1 to 64 letters, digits, '_', '-' and '.'")]
    KvsName {
        /// The name.
        name: String,
    },
    /// A key that cannot be kept.
    #[error("a key of {bytes} bytes; keys have 1 to {most}")]
    Key {
        /// Its bytes.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A prefix that keys cannot be removed by.
    #[error(
        "a prefix of {bytes} bytes; prefixes have 1 to {most}: to delete all keys, drop the Kvs \
         and create it again"
    )]
    Prefix {
        /// Its bytes.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A directory in the store, where another store cannot be, nor a place.
    #[error("{path} is inside {store}, which belongs to a store: give a directory beside it")]
    Nested {
        /// The directory.
        path: PathBuf,
        /// The store's.
        store: PathBuf,
    },
    /// A value that cannot be kept.
    #[error("a value of {bytes} bytes; values have at most {most}")]
    Value {
        /// Its bytes.
        bytes: usize,
        /// The most.
        most: usize,
    },
    /// A group of writes that is too large to be written at once.
    #[error("a group of writes of {bytes} bytes; a group has at most {most}: split it")]
    Group {
        /// Its bytes.
        bytes: u64,
        /// The most.
        most: u64,
    },
    /// An event loop has asked for more than it takes.
    #[error(
        "{pending} answers of {bytes} bytes are pending or were not taken: take the finished ones, \
         then try again"
    )]
    TooMuchPending {
        /// How many.
        pending: usize,
        /// Their bytes.
        bytes: u64,
    },
    /// Somebody else has changed what this write depends on.
    #[error("the key was changed in the meantime: read it again, and decide again")]
    Conflict,
    /// The store was opened to be read.
    #[error("the store was opened read-only: open it for writing")]
    ReadOnly,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// Something of one store was given to another.
    #[error("{what} belongs to another store")]
    OtherStore {
        /// What it is.
        what: String,
    },
    /// Options that cannot be had.
    #[error("{what}")]
    Options {
        /// Which, and what would do.
        what: String,
    },
}

impl StoreError {
    /// Whether a file is missing, or not what was written.
    pub(crate) fn is_damage(&self) -> bool {
        use FileError::{Foreign, NoFile, NotFound, TooSmall};
        match self {
            StoreError::Damaged { .. } => true,
            StoreError::File(error) => {
                matches!(error, Foreign { .. } | NoFile { .. } | NotFound { .. } | TooSmall { .. })
            }
            _ => false,
        }
    }

    /// Whether the system lets nobody, or not this one, have the file: that says nothing of what is
    /// in it.
    pub(crate) fn is_refused(&self) -> bool {
        use io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem};
        let kind = match self {
            StoreError::File(error) => error.kind(),
            StoreError::Io { cause, .. } => cause.kind(),
            _ => return false,
        };
        matches!(kind, PermissionDenied | ReadOnlyFilesystem)
    }

    /// The same of a file of the store. Whoever is told that a file is not what he meant may well
    /// remove it; this one has what was acknowledged.
    pub(crate) fn of_own_file(self) -> StoreError {
        use FileError::{Foreign, NoFile, NotFound, TooSmall};
        let what = self.reason();
        match self {
            StoreError::File(
                Foreign { path } | NoFile { path } | NotFound { path } | TooSmall { path, .. },
            ) => StoreError::Damaged { path, offset: 0, what },
            other => other,
        }
    }

    /// What is wrong, without the file and the place.
    pub(crate) fn reason(&self) -> String {
        use FileError::{Foreign, NoFile, NotFound, TooSmall};
        match self {
            StoreError::File(Foreign { .. }) => "its first bytes were changed".to_owned(),
            StoreError::File(NoFile { .. } | NotFound { .. }) => "it is missing".to_owned(),
            StoreError::File(TooSmall { found, .. }) => {
                format!("it was truncated: it has {found} bytes")
            }
            StoreError::Damaged { what, .. } => what.clone(),
            StoreError::Io { doing, cause, .. } => format!("cannot {doing} it: {cause}"),
            other => other.to_string(),
        }
    }

    /// The name of the file that is wrong, if it is known.
    pub(crate) fn file(&self) -> Option<String> {
        let path = match self {
            StoreError::Damaged { path, .. } | StoreError::Io { path, .. } => path,
            StoreError::File(FileError::Io { path, .. }) => path,
            _ => return None,
        };
        Some(path.file_name()?.to_string_lossy().into_owned())
    }

    /// Where in its file it is wrong.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            StoreError::Damaged { offset, .. } | StoreError::Io { offset, .. } => *offset,
            _ => 0,
        }
    }

    /// Whether a file could not be opened because too many are. Nothing was changed then, and it
    /// may work later.
    #[must_use]
    pub fn is_no_descriptors(&self) -> bool {
        match self {
            StoreError::Io { cause, .. } | StoreError::File(FileError::Io { cause, .. }) => {
                lacks_descriptors(cause)
            }
            StoreError::Descriptors { .. } => true,
            _ => false,
        }
    }

    /// The same, with what to do if descriptors are what is missing, of which the store needs so
    /// many.
    pub(crate) fn with_descriptors(self, needed: usize) -> StoreError {
        match self {
            StoreError::Descriptors { .. } => self,
            _ if self.is_no_descriptors() => {
                StoreError::Descriptors { cause: Box::new(self), needed }
            }
            _ => self,
        }
    }

    /// Whether a disk has no room: then it may work later.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        let is_full = |cause: &io::Error| cause.kind() == io::ErrorKind::StorageFull;
        match self {
            StoreError::Io { cause, .. } => is_full(cause),
            StoreError::NoRoom { .. } | StoreError::File(FileError::NoSpace { .. }) => true,
            StoreError::File(FileError::Io { cause, .. }) => is_full(cause),
            _ => false,
        }
    }
}
