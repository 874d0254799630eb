//! Errors of a store.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use entresol_base::{ByteSize, mutation_site};
use entresol_index::IndexError;
use entresol_media::{FileError, RegionError, lacks_descriptors};

use crate::names::{LABEL, is_own, of_segment};
use crate::policy::MediaClass;
use crate::scheduler::Hindrance;
use crate::types::SegmentNumber;

/// Reason why a store cannot do what it was asked to. Every variant names the subject, the place
/// and the way out.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file of the store cannot be opened, created or locked.
    #[error("{}", of_file(.0))]
    File(FileError),
    /// Reading from or writing to a disk failed.
    #[error("cannot {doing} {path} at {offset}: {cause}")]
    Io {
        /// The operation that failed, as a verb.
        doing: &'static str,
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// Answer of the operating system.
        cause: io::Error,
    },
    /// A file holds something other than what the store wrote there.
    #[error(
        "{path} is damaged at {offset}: {what}; other data can still be read: `store check` lists \
         the damage, `store salvage` copies the rest"
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Offset in the file.
        offset: u64,
        /// Description of the damage.
        what: String,
    },
    /// The file has a format version that this program does not know.
    #[error(
        "{path} has format version {found}, but this program reads version {known}: open it with \
         the program that wrote it"
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
        /// Version that this program knows.
        known: u32,
    },
    /// The only room left is the reserve for deletes and compactions, or there is none to flush
    /// with and too much waits to be flushed.
    #[error("no room: {what}; data can be read, and writes work again once there is room")]
    NoRoom {
        /// The operation that was refused.
        what: String,
    },
    /// The system refuses another thread.
    #[error(
        "cannot start the thread {name}: {cause}: raise the limit of processes and threads \
         (`ulimit -u`, or that of the service), then try again"
    )]
    Thread {
        /// Name of the thread.
        name: &'static str,
        /// Answer of the operating system.
        cause: io::Error,
    },
    /// This process, or the system, has as many files open as it may.
    #[error(
        "{what}: raise the limit of open files (`ulimit -n`); the store needs about {needed}, one \
         for each run and segment, besides other open files"
    )]
    Descriptors {
        /// Message about the file that could not be opened.
        what: String,
        /// Approximate number of descriptors that the store needs.
        needed: usize,
    },
    /// One run cannot hold this many range deletes.
    #[error("{path} cannot hold more than {most} range deletes: compact the store, then try again")]
    TooManyPrefixes {
        /// The file.
        path: PathBuf,
        /// Most range deletes that the file holds if their prefixes are short.
        most: usize,
    },
    /// An invariant of this program does not hold.
    #[error("internal error, please report it: {what}")]
    Internal {
        /// Description of the contradiction.
        what: String,
    },
    /// An earlier write or sync failed, and the store takes no more writes.
    #[error(
        "the store takes no more writes, since one failed: {what}; durable data can still be read: \
         find the cause, then open the store again"
    )]
    Failed {
        /// Message of the earlier error.
        what: String,
    },
    /// An earlier sync of a directory failed, so its new names may be lost, and no others are made
    /// durable in it.
    #[error(
        "{directory} takes no new files, since a sync of it failed: {what}: find the cause, then \
         open the store again"
    )]
    DirectoryFailed {
        /// The directory.
        directory: PathBuf,
        /// Message of the earlier error.
        what: String,
    },
    /// This process is a child of the one that opened the store, made by `fork`.
    #[error(
        "the store was opened by another process, of which this one is a copy: open it in this \
         process once the other one has closed it"
    )]
    Forked,
    /// A memtable's index failed.
    #[error("the memtable's index: {0}")]
    Index(#[from] IndexError),
    /// Memory could not be allocated or mapped.
    #[error("{}", of_memory(.0))]
    Memory(RegionError),
    /// The directory holds no store.
    #[error("there is no store in {directory}: {what}")]
    NoStore {
        /// The directory.
        directory: PathBuf,
        /// Description of what it holds instead, and of the way out.
        what: String,
    },
    /// The directory holds a copy of a store that was not completed.
    #[error(
        "{directory} holds an incomplete copy of a store: make the copy again, which replaces it, \
         or remove it"
    )]
    Unfinished {
        /// The directory.
        directory: PathBuf,
    },
    /// A volume of the store is missing.
    #[error(
        "the store's {class} volume {path} is missing: {what}. {readable}. Bring it back, give its \
         new path, or open the store read-only"
    )]
    VolumeMissing {
        /// Class of the volume.
        class: MediaClass,
        /// Last known path of the volume.
        path: PathBuf,
        /// Description of what was found at that path.
        what: String,
        /// Description of what can be read without the volume.
        readable: String,
    },
    /// The label of a volume is missing or damaged.
    #[error(
        "{path} has files of the store, but its label {} cannot be used: {what}. Nothing was \
         changed. The store can be read, and `store salvage` copies all of it; or bring the label \
         back from a backup",
        path.join(LABEL).display()
    )]
    VolumeLabel {
        /// Path of the volume.
        path: PathBuf,
        /// Description of the label.
        what: String,
    },
    /// The volume belongs to another home.
    #[error(
        "{path} is a volume of the store in {home}, and one of the two stores is a copy of the \
         other: {what}; nothing was changed. Give the copy volumes of its own (copy them, and give \
         their paths to `store volume found`), or remove {home} if this store replaces it. Both \
         can be opened read-only"
    )]
    VolumeOfAnother {
        /// Path of the volume.
        path: PathBuf,
        /// Home that the volume's label names.
        home: PathBuf,
        /// Description of what that home says.
        what: String,
    },
    /// Part of the log lies on a volume that is missing.
    #[error(
        "the store's volumes {volumes} are missing, and with them the log's writes after number \
         {last}, of which those up to number {durable} were durable: the rest is an older state. \
         Bring the volumes back, give their new paths, or salvage the older state"
    )]
    LogMissing {
        /// Last known paths of the missing volumes.
        volumes: String,
        /// Last write that was found.
        last: u64,
        /// A later write that was known to be durable.
        durable: u64,
    },
    /// The policy or the volumes of a store do not permit a request.
    #[error("{what}")]
    Policy {
        /// Description of the request, and of the way out.
        what: String,
    },
    /// The directory is not empty, or is used already.
    #[error("{directory} is not empty: {what}")]
    Exists {
        /// The directory.
        directory: PathBuf,
        /// Description of what it holds, and of the way out.
        what: String,
    },
    /// A value lies in a segment that the store does not have.
    #[error(
        "a value is in {}: if a volume of the store is missing, bring it back; otherwise the file \
         is missing or damaged, `store check` lists what is lost, and `store salvage` copies the \
         rest",
        of_segment(SegmentNumber(*number))
    )]
    NoSegment {
        /// Number of the segment.
        number: u64,
    },
    /// The store has no `Kvs` of this name.
    #[error("there is no Kvs '{name}'; the store has: {there}")]
    NoKvs {
        /// The name.
        name: String,
        /// Names of the `Kvs` that exist.
        there: String,
    },
    /// The `Kvs` of this handle was dropped.
    #[error("Kvs '{name}' was dropped: create it again, and use the new handle")]
    KvsDropped {
        /// Name of the `Kvs`.
        name: String,
    },
    /// The transaction is older than its options allow.
    #[error("the transaction has exceeded its maximum age: begin it again")]
    Aged,
    /// A run of the `Kvs` cannot be opened.
    #[error(
        "Kvs '{name}' cannot be read: {what}; other Kvs can, and `store salvage` copies what can \
         be read"
    )]
    KvsDamaged {
        /// Name of the `Kvs`.
        name: String,
        /// Description of the damage.
        what: String,
    },
    /// A `Kvs` of this name exists already.
    #[error("there is a Kvs '{name}' already: open it")]
    KvsExists {
        /// The name.
        name: String,
    },
    /// The name is not valid for a `Kvs`.
    #[error("'{name}' is not a valid name of a Kvs: use 1 to 64 letters, digits, '_', '-' and '.'")]
    KvsName {
        /// The name.
        name: String,
    },
    /// The key is empty or too long.
    #[error("a key of {bytes} bytes; keys have 1 to {most}")]
    Key {
        /// Bytes of the key.
        bytes: usize,
        /// Most bytes of a key.
        most: usize,
    },
    /// The prefix of a range delete is empty or too long.
    #[error(
        "a prefix of {bytes} bytes; prefixes have 1 to {most}: to delete all keys, drop the Kvs \
         and create it again"
    )]
    Prefix {
        /// Bytes of the prefix.
        bytes: usize,
        /// Most bytes of a prefix.
        most: usize,
    },
    /// The path lies inside a store, where nothing else may be.
    #[error("{path} is inside {store}, which belongs to a store: give a path outside of it")]
    Nested {
        /// The path.
        path: PathBuf,
        /// Directory of the store.
        store: PathBuf,
    },
    /// The value is too long.
    #[error("a value of {bytes} bytes; values have at most {most}")]
    Value {
        /// Bytes of the value.
        bytes: usize,
        /// Most bytes of a value.
        most: usize,
    },
    /// The group of writes, or the transaction, is too large to be written at once.
    #[error("a group of writes of {bytes} bytes; a group has at most {most}: split it")]
    Group {
        /// Bytes of the group.
        bytes: u64,
        /// Most bytes of a group.
        most: u64,
    },
    /// The event loop has more requests pending than its options allow.
    #[error(
        "{pending} answers of {bytes} bytes are pending or were not taken: take the finished ones, \
         then try again"
    )]
    TooMuchPending {
        /// Number of requests that are pending or whose answers were not taken.
        pending: usize,
        /// Bytes of these requests and answers.
        bytes: u64,
    },
    /// Another writer changed what this write depends on.
    #[error("the key was changed in the meantime: read it again, and decide again")]
    Conflict,
    /// A file of the store is held by something that outlived its handle.
    #[error(
        "{path} is held by a snapshot, cursor or transaction that is left of a store that was \
         closed: drop it, or end its process, then open the store again"
    )]
    Held {
        /// The file.
        path: PathBuf,
    },
    /// The callback of a compaction called what must wait for the compaction.
    #[error(
        "{call} was called by the callback that a compaction of the same store reports to, and \
         would wait for that compaction: end the compaction first"
    )]
    WithinReport {
        /// The call.
        call: &'static str,
    },
    /// The store was opened to be read only.
    #[error("the store was opened read-only: open it for writing")]
    ReadOnly,
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// An object of one store was given to another.
    #[error("{what} belongs to another store")]
    OtherStore {
        /// Description of the object.
        what: String,
    },
    /// The options are not valid.
    #[error("{what}")]
    Options {
        /// Name of the option, and the values that it may have.
        what: String,
    },
}

impl StoreError {
    /// Returns true if a file is missing, or does not hold what was written.
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

    /// Returns true if the error lies in what surrounds the store: rights, limits of open files and
    /// memory, another user of the file, or a directory that is no longer there. Such an error says
    /// nothing about the contents of the file. A disk that fails to read does: what lies there is
    /// lost.
    pub(crate) fn is_of_surroundings(&self) -> bool {
        match self {
            StoreError::File(error) => is_file_surrounded(error),
            StoreError::Io { cause, .. } => is_call_surrounded(cause),
            StoreError::Descriptors { .. } | StoreError::Memory(_) | StoreError::Thread { .. } => {
                true
            }
            _ => false,
        }
    }

    /// Turns the error of a locked file into one that says by what it is held. The caller has
    /// locked the directory, so no store has the file open.
    pub(crate) fn of_what_is_held(self) -> StoreError {
        let is_own = |path: &Path| path.file_name().and_then(OsStr::to_str).is_some_and(is_own);
        match self {
            StoreError::File(FileError::Locked { path }) if is_own(&path) => {
                StoreError::Held { path }
            }
            other => other,
        }
    }

    /// Turns errors about foreign and missing files into damage, for a file of the store. A user
    /// who reads that a file is not a store's may well remove it, but this one holds acknowledged
    /// writes.
    pub(crate) fn of_own_file(self) -> StoreError {
        use FileError::{Foreign, NoFile, NotFound, TooSmall, WrongType};
        let what = self.reason();
        match self {
            StoreError::File(
                Foreign { path }
                | NoFile { path }
                | NotFound { path }
                | TooSmall { path, .. }
                | WrongType { path, .. },
            ) => StoreError::Damaged { path, offset: 0, what },
            other => other,
        }
    }

    /// Describes the error without naming the file and the offset.
    pub(crate) fn reason(&self) -> String {
        use FileError::{Foreign, NoFile, NotFound, TooSmall, WrongType};
        match self {
            StoreError::File(WrongType { found, .. }) => {
                format!("it is {found}, and none of the store's: move it away")
            }
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

    /// Returns the name of the file that the error is about, if it is known.
    pub(crate) fn file(&self) -> Option<String> {
        let path = match self {
            StoreError::Damaged { path, .. } | StoreError::Io { path, .. } => path,
            StoreError::File(FileError::Io { path, .. } | FileError::WrongType { path, .. }) => {
                path
            }
            _ => return None,
        };
        Some(path.file_name()?.to_string_lossy().into_owned())
    }

    /// Returns the offset in the file at which the error lies, or 0.
    pub(crate) fn offset(&self) -> u64 {
        match self {
            StoreError::Damaged { offset, .. } | StoreError::Io { offset, .. } => *offset,
            _ => 0,
        }
    }

    /// Returns true if a file could not be opened because too many are open. Nothing was changed,
    /// and a later attempt may succeed.
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

    /// Adds the remedy if the error is a lack of descriptors, of which the store needs about
    /// `needed`.
    pub(crate) fn with_descriptors(self, needed: usize) -> StoreError {
        match self {
            StoreError::Descriptors { what, needed: before } => {
                StoreError::Descriptors { what, needed: needed.max(before) }
            }
            _ if self.is_no_descriptors() => {
                StoreError::Descriptors { what: self.to_string(), needed }
            }
            _ => self,
        }
    }

    /// Returns true if a manifest could not be saved, and the last one is certain to stay in force:
    /// too many files are open, or there was no room for its bytes. A part of them is there at
    /// most, and no sync was begun. A sync that fails for lack of room leaves unknown what is
    /// durable.
    pub(crate) fn leaves_the_manifest(&self) -> bool {
        matches!(self, StoreError::File(FileError::NoSpace { .. }))
            || self.is_no_descriptors()
            || self.is_no_room()
                && mutation_site!("a sync of the manifest that failed is the last word")
    }

    /// Returns true if a disk is full, a quota is used up, or a file would exceed the largest size
    /// allowed. A later attempt may succeed.
    #[must_use]
    pub fn is_no_room(&self) -> bool {
        use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
        let is_full =
            |cause: &io::Error| matches!(cause.kind(), StorageFull | QuotaExceeded | FileTooLarge);
        match self {
            StoreError::Io { cause, .. } => is_full(cause),
            StoreError::NoRoom { .. } | StoreError::File(FileError::NoSpace { .. }) => true,
            StoreError::File(FileError::Io { cause, .. }) => is_full(cause),
            _ => false,
        }
    }

    /// Returns true if a file would exceed the largest size that the process may write.
    #[must_use]
    pub fn is_limit_of_file_sizes(&self) -> bool {
        match self {
            StoreError::Io { cause, .. }
            | StoreError::File(FileError::NoSpace { cause, .. } | FileError::Io { cause, .. }) => {
                cause.kind() == io::ErrorKind::FileTooLarge
            }
            _ => false,
        }
    }
}

impl From<FileError> for StoreError {
    fn from(error: FileError) -> StoreError {
        StoreError::File(error)
    }
}

impl From<RegionError> for StoreError {
    fn from(error: RegionError) -> StoreError {
        StoreError::Memory(error)
    }
}

/// Returns the message of a file's error for the user of a store, who knows neither tenants nor
/// their quotas.
fn of_file(error: &FileError) -> String {
    match error {
        FileError::NoSpace { path, bytes, cause } => {
            let advice = match cause.kind() {
                io::ErrorKind::FileTooLarge => "raise the limit of file sizes (`ulimit -f`)",
                _ => "free some",
            };
            format!("no room for {bytes} bytes in {}: {cause}; {advice}", path.display())
        }
        FileError::Io { cause, .. } if cause.kind() == io::ErrorKind::OutOfMemory => {
            format!("{error}; raise the limit of the process's memory (`ulimit -v`)")
        }
        FileError::Locked { path } => format!(
            "{} is in use by another process, or by a store that is open in this one: close that \
             first",
            path.display()
        ),
        other => other.to_string(),
    }
}

/// Returns the message of an error of memory for the user of a store.
fn of_memory(error: &RegionError) -> String {
    match error {
        RegionError::Reserve { bytes, cause } => format!(
            "cannot reserve {} of memory: {cause}; raise the limit of the process (`ulimit -v`). A \
             store reserves more than it uses; a program can lower that with `memory_bytes`",
            ByteSize(*bytes)
        ),
        RegionError::File(error) => of_file(error),
        other => other.to_string(),
    }
}

/// Implements [`StoreError::is_of_surroundings`] for files.
pub(crate) fn is_file_surrounded(error: &FileError) -> bool {
    match error {
        FileError::Moved { .. } | FileError::Locked { .. } => true,
        FileError::Io { cause, .. } | FileError::IoUring { cause, .. } => is_call_surrounded(cause),
        other => is_kind_surrounded(other.kind()),
    }
}

/// Implements [`StoreError::is_of_surroundings`] for system calls.
pub(crate) fn is_call_surrounded(cause: &io::Error) -> bool {
    lacks_descriptors(cause) || is_kind_surrounded(cause.kind())
}

fn is_kind_surrounded(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{
        OutOfMemory, PermissionDenied, ReadOnlyFilesystem, StaleNetworkFileHandle,
    };
    matches!(kind, PermissionDenied | ReadOnlyFilesystem | OutOfMemory | StaleNetworkFileHandle)
}

impl From<StoreError> for Hindrance {
    fn from(error: StoreError) -> Hindrance {
        match error {
            StoreError::Descriptors { what, needed } => Hindrance::Descriptors { what, needed },
            other => Hindrance::Room(other.to_string()),
        }
    }
}

impl From<Hindrance> for StoreError {
    fn from(hindrance: Hindrance) -> StoreError {
        match hindrance {
            Hindrance::Room(what) => StoreError::NoRoom { what },
            Hindrance::Descriptors { what, needed } => StoreError::Descriptors { what, needed },
        }
    }
}
