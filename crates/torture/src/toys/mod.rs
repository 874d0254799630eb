//! Toy structures on which the crash machine tries itself. They are right as they are; each can be
//! given a bug that the machine must find. Used by nothing else.

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

/// A bug to plant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Plant {
    /// What was written is not flushed.
    MissingFlush,
    /// Nothing keeps the commit behind what it commits.
    MissingFence,
    /// The commit comes first.
    WrongOrder,
    /// A line is not flushed when writing goes on in the next.
    MissingFlushAtBorder,
    /// The last line is not flushed.
    MissingLastFlush,
    /// What a reader has seen need not be durable.
    VisibleBeforeDurable,
    /// A file's bytes are not synced before something speaks of them.
    MissingFileSync,
    /// A new file's name is not.
    MissingDirectorySync,
}

impl Plant {
    /// All of them.
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

    /// Its name on the command line.
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

/// A map that one thread at a time works with.
pub(super) trait Map<R: Region>: Sized {
    /// Opens what is in the region, after a crash or for the first time: all zero is empty.
    ///
    /// # Errors
    /// What is damaged.
    fn open(region: Arc<R>, plant: Option<Plant>) -> Result<Self, String>;

    /// Durable when it returns. A value is neither 0 nor `u64::MAX`.
    ///
    /// # Errors
    /// If there is no room.
    fn put(&mut self, key: u64, value: u64) -> Result<(), String>;

    /// Durable when it returns.
    ///
    /// # Errors
    /// If there is no room.
    fn remove(&mut self, key: u64) -> Result<(), String>;

    /// Every key and its value, in the order of the keys.
    fn each(&self, with: &mut dyn FnMut(u64, u64));
}
