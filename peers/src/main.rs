//! Other people's stores under the same workloads as ours, measured by the same loop.
//!
//! The arguments and the report are those of `entresol bench ycsb`: their files are shared, since a
//! command is no library.
#![deny(unsafe_code)]

mod interval;
mod lmdb;
mod lsm;
#[path = "../../crates/cli/src/output.rs"]
mod output;
mod redb;
#[path = "../../crates/cli/src/ycsb.rs"]
mod ycsb;

use clap::{Args, Parser, Subcommand, ValueEnum};
use entresol_bench::BenchError;
use entresol_bench::ycsb::{Engine, Entresol, Opening};

/// Stores of others, for comparisons.
#[derive(Debug, Parser)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Put a store under YCSB's workloads or RocksDB's mixgraph.
    Ycsb(Box<Ycsb>),
}

#[derive(Debug, Args)]
struct Ycsb {
    /// Which store.
    #[arg(long)]
    engine: Name,
    #[command(flatten)]
    arguments: ycsb::Arguments,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Name {
    Entresol,
    Fjall,
    Redb,
    Lmdb,
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
        })
    }

    fn name(self) -> &'static str {
        match self {
            Name::Entresol => Entresol::NAME,
            Name::Fjall => "fjall",
            Name::Redb => "redb",
            Name::Lmdb => "lmdb",
        }
    }
}

fn main() -> anyhow::Result<()> {
    let Command::Ycsb(given) = Arguments::parse().command;
    let name = given.engine;
    if name == Name::Entresol {
        return ycsb::run(&given.arguments);
    }
    ycsb::measure(&given.arguments, name.name(), &|opening: &Opening<'_>| name.open(opening))
}
