//! Toy structures that test the crash machine. They are correct, and each can be given a bug that
//! the machine must find. Nothing else uses them.

mod cells;
mod files;
mod log;
mod tree;

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use entresol_base::suggest;
use entresol_media::Region;

pub(super) use cells::Cells;
pub(super) use files::Files;
pub(super) use log::Log;
pub(super) use tree::Tree;

/// Bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// Written bytes are not flushed.
    MissingFlush,
    /// The commit is not ordered after its content by a fence.
    MissingFence,
    /// The commit precedes its content.
    WrongOrder,
    /// A line is not flushed when writing continues in the next one.
    MissingFlushAtBorder,
    /// The last line is not flushed.
    MissingLastFlush,
    /// A value that a reader returned need not be durable.
    VisibleBeforeDurable,
    /// The bytes of a file are not synced before the index points to them.
    MissingFileSync,
    /// The name of a new file is not synced.
    MissingDirectorySync,
}

impl Plant {
    /// All bugs.
    pub const ALL: [Plant; 8] = [
        Plant::MissingFlush,
        Plant::MissingFence,
        Plant::WrongOrder,
        Plant::MissingFlushAtBorder,
        Plant::MissingLastFlush,
        Plant::VisibleBeforeDurable,
        Plant::MissingFileSync,
        Plant::MissingDirectorySync,
    ];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Plant::MissingFlush => "missing-flush",
            Plant::MissingFence => "missing-fence",
            Plant::WrongOrder => "wrong-order",
            Plant::MissingFlushAtBorder => "missing-flush-at-border",
            Plant::MissingLastFlush => "missing-last-flush",
            Plant::VisibleBeforeDurable => "visible-before-durable",
            Plant::MissingFileSync => "missing-file-sync",
            Plant::MissingDirectorySync => "missing-directory-sync",
        }
    }
}

impl fmt::Display for Plant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Plant {
    type Err = String;

    fn from_str(text: &str) -> Result<Plant, String> {
        let found = Plant::ALL.into_iter().find(|plant| plant.name() == text);
        found.ok_or_else(|| suggest::unknown("bug", text, &Plant::ALL.map(Plant::name)))
    }
}

/// Map that one thread at a time uses.
pub(super) trait Map<R: Region>: Sized {
    /// Opens the map in a region, after a crash or for the first time. A zeroed region is an empty
    /// map.
    ///
    /// # Errors
    /// Returns a description of the damage.
    fn open(region: Arc<R>, plant: Option<Plant>) -> Result<Self, String>;

    /// Writes a record; it is durable on return. A value is neither 0 nor `u64::MAX`.
    ///
    /// # Errors
    /// Fails if the region is full.
    fn put(&mut self, key: u64, value: u64) -> Result<(), String>;

    /// Removes a record; the removal is durable on return.
    ///
    /// # Errors
    /// Fails if the region is full.
    fn remove(&mut self, key: u64) -> Result<(), String>;

    /// Calls `with` for every key and its value, in the order of the keys.
    fn each(&self, with: &mut dyn FnMut(u64, u64));
}
