//! `entresol bench extend`: data beyond the memory, in mapped files and in a cache on a file.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use entresol_base::{ByteSize, duration};
use entresol_bench::extend::{ExtendOptions, extend_steps, run_extend};
use entresol_measure::progress::Progress;

use crate::interrupt;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// New directory for the files, on the drive to measure; it is removed in the end.
    #[arg(long, value_name = "DIR")]
    directory: PathBuf,
    /// Memory for data: the process is limited to this, and what the cache takes for keys and
    /// buffers, by a control group.
    #[arg(long, value_name = "SIZE", default_value = "128MiB")]
    memory: ByteSize,
    /// Size of the values, and of the columns as well. The files take five times as much.
    #[arg(long, value_name = "SIZE", default_value = "512MiB")]
    size: ByteSize,
    /// Let gets of a mapped file write nothing, instead of counting a reference in the item and
    /// moving it in a list by last use, as memcached does.
    #[arg(long)]
    read_only: bool,
    /// Threads of the key-value loop.
    #[arg(long, value_name = "N", default_value_t = 4)]
    threads: usize,
    /// Length of a loop of gets, after half as long of a warm-up, and at most of a scan.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = duration::parse)]
    duration: Duration,
    /// Number of rounds, in each of which every way runs once.
    #[arg(long, value_name = "N", default_value_t = 10)]
    rounds: usize,
    /// Seed of the order of gets.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let options = ExtendOptions {
        directory: arguments.directory.clone(),
        memory: arguments.memory,
        size: arguments.size,
        read_only: arguments.read_only,
        threads: arguments.threads,
        duration: arguments.duration,
        rounds: arguments.rounds,
        seed: arguments.seed,
    };
    arguments.output.check("bench-extend", &[])?;
    interrupt::leaves(format!("left: {}, which may be removed", options.directory.display()));
    let progress = Progress::new(extend_steps(&options), "extend");
    let result = interrupt::measured(&progress, |progress| run_extend(&options, progress))?;
    arguments.output.put(("bench-extend", &progress), &result, &result.tables(), || result.page())
}
