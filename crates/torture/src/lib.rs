//! Torture: seeded histories with crashes, one after the other, until time is up or one fails. A
//! failure is reported with the command that repeats it and the shortest history that still fails.
//!
//! Each subject has a file: [`media`] tests the crash machine itself, [`mod@index`], [`store`] and
//! [`cache`] simulate crashes, [`flips`] flips bits of a store, [`processes`] kills its real
//! processes, [`fill`] fills one, and [`connections`] lets clients and signals loose on a server.
#![forbid(unsafe_code)]

pub mod cache;
pub mod connections;
mod drive;
pub mod fill;
pub mod flips;
mod history;
pub mod index;
pub mod media;
mod outcome;
pub mod processes;
pub mod store;
mod toys;

use std::fmt;
use std::str::FromStr;

use entresol_base::suggest;

pub use drive::Plan;
pub use outcome::{FailureFound, Outcome, PlaceSeen};
pub use toys::Plant;

/// Toy structure to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Structure {
    /// Tree of sorted leaves.
    Tree,
    /// Log with a commit word.
    Log,
    /// Cells that threads write and read.
    Cells,
    /// Records in files, with their index in the region.
    Files,
}

impl Structure {
    /// All structures.
    pub const ALL: [Structure; 4] =
        [Structure::Tree, Structure::Log, Structure::Cells, Structure::Files];

    /// Returns the name on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Structure::Tree => "tree",
            Structure::Log => "log",
            Structure::Cells => "cells",
            Structure::Files => "files",
        }
    }
}

impl fmt::Display for Structure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Structure {
    type Err = String;

    fn from_str(text: &str) -> Result<Structure, String> {
        let found = Structure::ALL.into_iter().find(|structure| structure.name() == text);
        found.ok_or_else(|| {
            suggest::unknown("structure", text, &Structure::ALL.map(Structure::name))
        })
    }
}

#[cfg(test)]
mod tests;
