//! `entresol profile`: measures a medium and writes its cost table.

use std::path::{Path, PathBuf};

use anyhow::Context;
use clap::Args;
use entresol_base::ByteSize;
use entresol_bench::profile::{ProfileOptions, default_place, profile, save_costs};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::{MediumSpec, files};

use crate::interrupt;
use crate::output::Output;
use crate::standard::note;
use crate::written::{check_file, check_writable};

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Medium to measure: dram, pmem:PATH, pmem:PATH,assume-dax, file:PATH or model:NAME. A file
    /// that another program made is refused.
    #[arg(long, value_name = "MEDIUM")]
    medium: MediumSpec,
    /// A second medium of the same kind, measured by turns with the first.
    #[arg(long, value_name = "MEDIUM")]
    against_medium: Option<MediumSpec>,
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

/// Returns the file in which a medium is measured.
fn path_of(medium: &MediumSpec) -> Option<&Path> {
    match medium {
        MediumSpec::Pmem { path, .. } | MediumSpec::File { path, .. } => Some(path),
        _ => None,
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = ProfileOptions {
        medium: arguments.medium.clone(),
        against: arguments.against_medium.clone(),
        full: arguments.full,
        threads: arguments.threads.map(usize::from),
        size: arguments.size,
        huge_pages: arguments.huge_pages,
        keep: arguments.keep,
        seed: arguments.seed,
    };
    arguments.output.check("profile", &[])?;
    let media = || std::iter::once(&arguments.medium).chain(&arguments.against_medium);
    media().filter_map(path_of).try_for_each(check_file)?;
    if let Some(path) = &arguments.save {
        let problem = || format!("cannot write the cost table {}", path.display());
        check_file(path).with_context(problem)?;
        check_writable(path).with_context(problem)?;
    }
    let made = media().filter_map(path_of).filter(|path| !files::exists(path));
    let made: Vec<String> = made.map(|it| it.display().to_string()).collect();
    if !arguments.keep && !made.is_empty() {
        interrupt::leaves(format!("left: {}, which may be removed", made.join(" and ")));
    }
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
        if let Some(folder) = path.parent().filter(|folder| !folder.as_os_str().is_empty()) {
            let error = |source| BenchError::File { path: folder.to_owned(), source };
            files::create_directories(folder).map_err(error)?;
        }
        let sentence = save_costs(&result, &path)?;
        note(sentence);
    }
    Ok(())
}
