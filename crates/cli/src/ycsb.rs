//! `entresol bench ycsb`: measures a store under YCSB's workloads and RocksDB's mixgraph.

use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use entresol_base::{ByteSize, duration};
use entresol_bench::ycsb::{
    Capacity, Engine, Entresol, Open, Opening, Workload, YcsbOptions, run_ycsb, ycsb_steps,
};
use entresol_measure::StorePlace;
use entresol_measure::progress::Progress;
use entresol_media::{ModelName, files};
use entresol_store::Policy;

use crate::output::Output;
use crate::standard::tell;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// Directory of the store. It is made, and must not exist, if load is among the workloads;
    /// otherwise the store must be there. pmem:PATH is persistent memory, pmem:PATH,assume-dax lets
    /// an ordinary file system stand in for it.
    #[arg(long, value_name = "PATH",
        value_parser = OsStringValueParser::new().try_map(StorePlace::parse))]
    directory: StorePlace,
    /// Workload: load, a, b, c, d, e, f, overwrite, overwrite-zipf, read (uniform keys)
    /// or mixgraph; may be given more than once, and they run in that order [default: load, a, b,
    /// c, f, d, e].
    #[arg(long, value_name = "NAME")]
    workload: Vec<Workload>,
    /// Keys to load.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Operations of each workload except load, all threads together [default: as many as keys].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// End each workload except load after this time.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    duration: Option<Duration>,
    /// Size of a key.
    #[arg(long, value_name = "SIZE", default_value = "16")]
    key_size: ByteSize,
    /// Size of a value; mixgraph draws its own.
    #[arg(long, value_name = "SIZE", default_value = "1000")]
    value_size: ByteSize,
    /// Records of each scan of workload e [default: drawn uniformly from 1 to 100].
    #[arg(long, value_name = "N")]
    scan_records: Option<usize>,
    /// Concurrent threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Open loop: this many operations per second fall due (Poisson), and times count from then.
    /// Without it, a closed loop.
    #[arg(long, value_name = "OPERATIONS/S")]
    rate: Option<f64>,
    /// Beside each workload except load, overwrite this many keys per second by one more thread, in
    /// an open loop; every key is equally popular.
    #[arg(long, value_name = "OPERATIONS/S")]
    writer_rate: Option<f64>,
    /// Spread the keys over this many stores, in directories of their own, which share --cache and
    /// --memory.
    #[arg(long, value_name = "N", default_value_t = 1)]
    shards: usize,
    /// Store a checksum and the key in each value, check everything that is read, and finally
    /// reopen the store and read every key.
    #[arg(long)]
    verify: bool,
    /// After each workload that writes, perform the work that the store has postponed, and count it
    /// as part of the workload.
    #[arg(long)]
    settle: bool,
    /// Keep the loaded store; otherwise it is removed in the end.
    #[arg(long)]
    keep: bool,
    /// Bytes of the store's cache [default: the store's choice].
    #[arg(long, value_name = "SIZE")]
    cache: Option<ByteSize>,
    /// Bytes of memory that our store may use in total, apart from mapped files [default: the
    /// store's choice].
    #[arg(long, value_name = "SIZE")]
    memory: Option<ByteSize>,
    /// Bytes that are collected before they are flushed [default: the store's choice].
    #[arg(long, value_name = "SIZE")]
    generation: Option<ByteSize>,
    /// Slow the directory down to this model of a drive, in real time.
    #[arg(long, value_name = "MODEL")]
    model: Option<ModelName>,
    /// Make a second volume of the class capacity for our store. The directory is then its fast
    /// volume: pmem if it is pmem:PATH, otherwise staging.
    #[arg(long, value_name = "PATH")]
    capacity: Option<PathBuf>,
    /// Slow the volume of the class capacity down to this model of a drive, in real time.
    #[arg(long, value_name = "MODEL", requires = "capacity")]
    capacity_model: Option<ModelName>,
    /// Largest number of bytes on the fast volume [default: what the file system has].
    #[arg(long, value_name = "SIZE", requires = "capacity")]
    staging_most: Option<ByteSize>,
    /// Classes of media for keys and values, as in `entresol store policy` [default: fastest].
    #[arg(long, value_name = "POLICY")]
    policy: Option<Policy>,
    /// Share of a class of media that values may use because they are read often, 0 to 0.5
    /// [default: the store's choice, 0.1].
    #[arg(long, value_name = "SHARE")]
    hot_share: Option<f64>,
    /// Space that may be taken for each live byte, 1.1 to 100: sets it as our store's bound, and
    /// prints by the second what is live and what the files take.
    #[arg(long, value_name = "RATIO")]
    space_bound: Option<f64>,
    /// Seed of orders and arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Arguments {
    fn options(&self, engine: &'static str) -> YcsbOptions {
        let usual = Workload::ALL.into_iter().take(Workload::OF_YCSB);
        YcsbOptions {
            engine,
            directory: self.directory.path.clone(),
            model: self.model,
            pmem: self.directory.pmem,
            capacity: self.capacity.clone().map(|directory| Capacity {
                directory,
                model: self.capacity_model,
                fast_bytes_max: self.staging_most,
            }),
            policy: self.policy,
            hot_share: self.hot_share,
            workloads: match self.workload.as_slice() {
                [] => usual.collect(),
                given => given.to_vec(),
            },
            keys: self.keys,
            operations: self.operations.unwrap_or(self.keys),
            duration: self.duration,
            key_bytes: usize::try_from(self.key_size.0).unwrap_or(usize::MAX),
            value_bytes: usize::try_from(self.value_size.0).unwrap_or(usize::MAX),
            scan_records: self.scan_records,
            threads: self.threads,
            rate_ops_s: self.rate,
            writer_ops_s: self.writer_rate,
            shards: self.shards,
            verify: self.verify,
            settle: self.settle,
            keep: self.keep,
            cache_bytes: self.cache,
            memory_bytes: self.memory,
            generation_bytes: self.generation,
            space_bound: self.space_bound,
            seed: self.seed,
        }
    }
}

/// Measures one store; `watch` receives the progress, through which it can request an end.
pub(crate) fn measure(
    arguments: &Arguments,
    engine: &'static str,
    open: Open<'_>,
    watch: impl FnOnce(&Progress, &YcsbOptions) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let options = arguments.options(engine);
    let made: Vec<&Path> = options.directories().collect();
    arguments.output.check("bench-ycsb", &made)?;
    let progress = Progress::new(ycsb_steps(&options), engine);
    watch(&progress, &options)?;
    let result = run_ycsb(&options, open, &progress);
    progress.finish();
    if progress.is_stopped() && options.keep && !files::exists(&options.directory) {
        tell(&format!(
            "{} was removed in spite of --keep, since not all keys were loaded",
            options.directory.display()
        ));
    }
    let result = result?;
    arguments.output.put(("bench-ycsb", &progress), &result, &result.tables(), || result.page())
}

pub(crate) fn run(
    arguments: &Arguments,
    watch: impl FnOnce(&Progress, &YcsbOptions) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    entresol_media::machine::give_large_buffers_back();
    let open = |opening: &Opening<'_>| {
        Entresol::open(opening).map(|engine| Box::new(engine) as Box<dyn Engine>)
    };
    measure(arguments, Entresol::NAME, &open, watch)
}
