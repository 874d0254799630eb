//! Measurements of other people's stores under the same workloads as Entresol, by the same loop.
//!
//! The arguments and the report of `ycsb` are those of `entresol bench ycsb`. Their files are
//! shared, because a command is no library.
#![deny(unsafe_code)]

mod compare;
mod compared;
mod group;
mod interval;
mod lmdb;
mod lsm;
#[path = "../../crates/cli/src/output.rs"]
mod output;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[path = "../../crates/cli/src/standard.rs"]
#[expect(dead_code, reason = "other commands need more of it")]
mod standard;
#[path = "../../crates/cli/src/written.rs"]
#[expect(dead_code, reason = "other commands need more of it")]
mod written;
#[path = "../../crates/cli/src/ycsb.rs"]
mod ycsb;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use entresol_measure::BenchError;
use entresol_bench::ycsb::{Engine, Entresol, Opening};

/// Compare Entresol with other people's stores.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a store under YCSB's workloads or RocksDB's mixgraph.
    Ycsb(Box<Ycsb>),
    /// Put several stores under the same workloads in turns, each with the same memory, including
    /// the system's cache of its files, and print how Entresol compares.
    Compare(Box<compare::Arguments>),
}

#[derive(Debug, Args)]
struct Ycsb {
    /// Store to measure.
    #[arg(long)]
    engine: Name,
    /// Join this control group before anything is opened.
    #[arg(long, value_name = "PATH")]
    control_group: Option<PathBuf>,
    #[command(flatten)]
    arguments: ycsb::Arguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Entresol,
    Fjall,
    Redb,
    Lmdb,
    /// Available if built with the feature of this name.
    #[cfg(feature = "rocksdb")]
    Rocksdb,
}

impl Name {
    fn open(self, opening: &Opening<'_>) -> Result<Box<dyn Engine>, BenchError> {
        if opening.options.model.is_some() {
            let text = "only entresol can be slowed to a model: leave --model out";
            return Err(BenchError::Usage(text.to_owned()));
        }
        Ok(match self {
            Name::Entresol => Box::new(Entresol::open(opening)?),
            Name::Fjall => Box::new(lsm::Fjall::open(opening)?),
            Name::Redb => Box::new(redb::Redb::open(opening)?),
            Name::Lmdb => Box::new(lmdb::Lmdb::open(opening)?),
            #[cfg(feature = "rocksdb")]
            Name::Rocksdb => Box::new(rocksdb::Rocksdb::open(opening)?),
        })
    }

    fn name(self) -> &'static str {
        match self {
            Name::Entresol => Entresol::NAME,
            Name::Fjall => "fjall",
            Name::Redb => "redb",
            Name::Lmdb => "lmdb",
            #[cfg(feature = "rocksdb")]
            Name::Rocksdb => "rocksdb",
        }
    }

    /// Returns the data that a crash may cost, as the stores run here.
    fn durability(self) -> &'static str {
        match self {
            Name::Entresol | Name::Fjall => "synced every 100 ms",
            Name::Redb => "synced every 100 ms; a killed process loses as much",
            Name::Lmdb => "synced every 100 ms; a power cut may damage all",
            #[cfg(feature = "rocksdb")]
            Name::Rocksdb => "synced every 100 ms",
        }
    }
}

fn main() -> anyhow::Result<()> {
    match Arguments::parse().command {
        Command::Compare(arguments) => compare::run(&arguments),
        Command::Ycsb(given) => {
            if let Some(path) = &given.control_group {
                group::join(path)?;
            }
            let name = given.engine;
            if name == Name::Entresol {
                return ycsb::run(&given.arguments, |_, _| Ok(()));
            }
            let open = |opening: &Opening<'_>| name.open(opening);
            ycsb::measure(&given.arguments, name.name(), &open, |_, _| Ok(()))
        }
    }
}
