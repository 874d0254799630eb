//! `entresol profile`: measures a medium and writes its cost table.

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use entresol_base::ByteSize;
use entresol_bench::profile::{ProfileOptions, default_place, profile, save_costs};
use entresol_measure::progress::Progress;
use entresol_media::MediumSpec;

use crate::interrupt;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Medium to measure: dram, pmem:PATH, pmem:PATH,assume-dax, file:PATH or model:NAME. A file
    /// that another program made is refused.
    #[arg(long, value_name = "MEDIUM")]
    medium: MediumSpec,
    /// A second medium of the same kind, measured by turns with the first.
    #[arg(long, value_name = "MEDIUM")]
    against: Option<MediumSpec>,
    /// Measure everything, for minutes.
    #[arg(long, conflicts_with = "quick")]
    full: bool,
    /// Measure as much as fits into a minute; the default.
    #[arg(long)]
    quick: bool,
    /// Largest number of threads [default: the number of processors; for a model of memory as many
    /// as keep it busy: 16, doubled until that raises no rate of random reads or writes of 64 B,
    /// 256 B and 4 KiB by more than 2%].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: Option<u16>,
    /// Size of the area that is read; an area of half the size is written [default: 1GiB, with
    /// --full 4GiB].
    #[arg(long, value_name = "SIZE")]
    size: Option<ByteSize>,
    /// Request huge pages for memory.
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    huge_pages: bool,
    /// Keep a file that was made for measuring.
    #[arg(long)]
    keep: bool,
    /// Seed of random draws.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Save the cost table here instead of beside the medium.
    #[arg(long, value_name = "FILE", conflicts_with = "no_save")]
    save: Option<PathBuf>,
    /// Do not save the cost table.
    #[arg(long)]
    no_save: bool,
    #[command(flatten)]
    output: Output,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = ProfileOptions {
        medium: arguments.medium.clone(),
        against: arguments.against.clone(),
        full: arguments.full,
        threads: arguments.threads.map(usize::from),
        size: arguments.size,
        huge_pages: arguments.huge_pages,
        keep: arguments.keep,
        seed: arguments.seed,
    };
    let progress = Progress::new(0, "profile");
    interrupt::watch(&progress)?;
    let result = profile(&options, &progress);
    progress.finish();
    let result = result?;
    // Fails after an interruption: costs of fewer rounds are shown but not saved.
    let name = ("profile", &progress);
    arguments.output.put(name, &result, &result.tables(), || result.page())?;
    let place = match (&arguments.save, arguments.no_save) {
        (_, true) => None,
        (Some(path), _) => Some(path.clone()),
        (None, _) => default_place(&arguments.medium),
    };
    if let Some(path) = place {
        let sentence = save_costs(&result, &path)?;
        writeln!(std::io::stderr(), "{sentence}").context("standard error")?;
    }
    Ok(())
}
