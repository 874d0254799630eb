//! `entresol bench curve`: response time at load, of one system or two by turns.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use entresol_base::{ByteSize, duration};
use entresol_bench::curve::{CurveOptions, CurveSubject, curve_steps, run_curve};
use entresol_measure::progress::Progress;
use entresol_media::files;

use crate::interrupt;
use crate::output::Output;
use crate::written::check_file;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// System to measure: raw:MEDIUM (a file, a drive or a model of one), cache:dram or
    /// cache:file:PATH, store:PATH (a new directory), or server:HOST:PORT; given twice, two
    /// systems are measured by turns.
    #[arg(long, value_name = "SYSTEM", required = true)]
    system: Vec<CurveSubject>,
    /// Size of a block of a raw medium, or of a value.
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    size: ByteSize,
    /// Share of reads; the remaining requests are writes.
    #[arg(long, value_name = "SHARE", default_value_t = 0.7)]
    read_share: f64,
    /// Keys of a cache, a store or a server.
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: u64,
    /// Threads that call a cache or a store, or connections to a server.
    #[arg(long, value_name = "N", default_value_t = 2)]
    clients: usize,
    /// Length of each load. For a model, the time of 1,100,000 requests is taken.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    duration: Duration,
    /// Number of rounds; their response times are taken together.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Size of the file of a raw medium.
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    file_size: ByteSize,
    /// Seed of orders and arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = CurveOptions {
        subjects: arguments.system.clone(),
        size: arguments.size,
        read_share: arguments.read_share,
        keys: arguments.keys,
        clients: arguments.clients,
        duration: arguments.duration,
        rounds: arguments.rounds,
        file_size: arguments.file_size,
        seed: arguments.seed,
    };
    let made: Vec<PathBuf> = options.subjects.iter().filter_map(CurveSubject::made).collect();
    let made: Vec<&Path> = made.iter().map(PathBuf::as_path).collect();
    made.iter().try_for_each(|path| check_file(path))?;
    arguments.output.check("bench-curve", &made)?;
    let made = made.iter().filter(|path| !files::exists(path));
    let made: Vec<String> = made.map(|it| it.display().to_string()).collect();
    if !made.is_empty() {
        interrupt::leaves(format!("left: {}, which may be removed", made.join(" and ")));
    }
    let progress = Progress::new(curve_steps(&options), "curve");
    let result = interrupt::measured(&progress, |progress| run_curve(&options, progress))?;
    arguments.output.put(("bench-curve", &progress), &result, &result.tables(), || result.page())
}
