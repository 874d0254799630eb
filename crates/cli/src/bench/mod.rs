//! `entresol bench`: measures the cache, indexes or a store in process, loads a server, replays a
//! trace.

mod act;
mod curve;
mod extend;

use std::time::Duration;

use crate::interrupt;
use crate::output::Output;
use crate::trace;
use crate::ycsb;
use clap::{Args, Subcommand};
use entresol_base::{ByteSize, duration};
use entresol_bench::direct::lab::known_models;
use entresol_bench::direct::{
    DirectOptions, ModelledOptions, direct_steps, modelled_steps, run_direct, run_modelled,
};
use entresol_bench::index::{IndexName, IndexOptions, Probing, Workload, index_steps, run_indexes};
use entresol_bench::load::{Address, CompareOptions, Dialect, LoadOptions, compare, run_load};
use entresol_bench::replay::MediumSpec;
use entresol_measure::BenchError;
use entresol_measure::popularity::Popularity;
use entresol_measure::progress::Progress;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Find the largest load of Aerospike's certification tool (ACT) that a medium or a store keeps
    /// up with.
    Act(Box<act::Arguments>),
    /// Measure the cache in process beside a plain map, or with --server load a server.
    Cache(Box<CacheArguments>),
    /// Measure the response time at load of a cache, a store, a server or a raw medium.
    Curve(Box<curve::Arguments>),
    /// Measure data beyond the memory: in mapped files, which the system pages, and in a cache that
    /// reads its file itself.
    Extend(Box<extend::Arguments>),
    /// Measure indexes in process: in real time on memory, or with counts on a model in virtual
    /// time.
    Index(Box<IndexArguments>),
    /// Replay a trace against a cache in process, or with --server against a server.
    Trace(Box<trace::Arguments>),
    /// Measure a store under YCSB's workloads or RocksDB's mixgraph, in process.
    Ycsb(Box<ycsb::Arguments>),
}

#[derive(Debug, Args)]
struct CacheArguments {
    #[command(flatten)]
    output: Output,
    /// Number of objects.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u32,
    /// Size of a key.
    #[arg(long, value_name = "SIZE", default_value = "16")]
    key_size: ByteSize,
    /// Size of a value.
    #[arg(long, value_name = "SIZE", default_value = "100")]
    value_size: ByteSize,
    /// Seed of keys, orders and arrivals.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Threads: of the generator [default: 1], or in process of the mixed loop [default: 2].
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    #[command(flatten)]
    direct: DirectArguments,
    #[command(flatten)]
    load: LoadArguments,
    #[command(flatten)]
    against: AgainstArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "In process")]
struct DirectArguments {
    /// Medium of the values: dram, or model:NAME, which runs the cache on a model of a device in
    /// virtual time.
    #[arg(long, value_name = "MEDIUM", default_value_t = MediumSpec::Dram,
        conflicts_with = "server")]
    medium: MediumSpec,
    /// Operations in a timed loop.
    #[arg(long, value_name = "N", default_value_t = 1_000_000, conflicts_with = "server")]
    operations: u32,
    /// Number of runs of every loop; medians are reported.
    #[arg(long, value_name = "N", default_value_t = 5, conflicts_with = "server")]
    rounds: usize,
    /// Request huge pages for the cache.
    #[arg(long, value_name = "true|false", default_value_t = true, action = clap::ArgAction::Set)]
    #[arg(conflicts_with = "server")]
    huge_pages: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Load on a server")]
struct LoadArguments {
    /// Server: HOST:PORT or unix:PATH.
    #[arg(long, value_name = "HOST:PORT")]
    server: Option<Address>,
    /// Process of the server, whose processor time is reported [default: found by its address on
    /// this machine].
    #[arg(long, value_name = "PID", requires = "server")]
    server_pid: Option<u32>,
    /// Dialect of the protocol: text or meta.
    #[arg(long, value_name = "DIALECT", default_value_t = Dialect::Text, requires = "server")]
    protocol: Dialect,
    /// Share of gets; the remaining requests are sets.
    #[arg(long, value_name = "SHARE", default_value_t = 0.9, requires = "server")]
    get_share: f64,
    /// Popularity of keys: uniform, zipf or zipf:THETA.
    #[arg(long, value_name = "LAW", default_value_t = Popularity::Uniform, requires = "server")]
    distribution: Popularity,
    /// Time to live of a stored value, rounded up to whole seconds; 0 means no expiry.
    #[arg(long, value_name = "TIME", default_value = "0", value_parser = duration::parse)]
    #[arg(requires = "server")]
    ttl: Duration,
    /// Number of connections.
    #[arg(long, value_name = "N", default_value_t = 16, requires = "server")]
    connections: usize,
    /// Requests in flight per connection. In a closed loop they are sent in one write, and the next
    /// ones after all replies. In an open loop it is an upper bound.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "server")]
    depth: usize,
    /// Length of the measurement.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = duration::parse)]
    #[arg(requires = "server")]
    duration: Duration,
    /// Length of the warm-up.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration::parse)]
    #[arg(requires = "server")]
    warm_up: Duration,
    /// Open loop: this many requests per second fall due (Poisson), and response times count from
    /// then. Without it, a closed loop.
    #[arg(long, value_name = "REQUESTS/S", requires = "server")]
    rate: Option<f64>,
    /// Store a checksum and the key in each value and check every value; a wrong one fails the run.
    #[arg(long, requires = "server")]
    verify: bool,
    /// Do not store every key once before the load.
    #[arg(long, requires = "server")]
    no_preload: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Comparison of two servers")]
struct AgainstArguments {
    /// Second server under the same load, in interleaved pairs; the first one again tests the
    /// method.
    #[arg(long, value_name = "HOST:PORT", requires = "server")]
    against: Option<Address>,
    /// Process of the second server.
    #[arg(long, value_name = "PID", requires = "against")]
    against_pid: Option<u32>,
    /// Number of pairs.
    #[arg(long, value_name = "N", default_value_t = 20, requires = "against")]
    pairs: usize,
}

#[derive(Debug, Args)]
struct IndexArguments {
    #[command(flatten)]
    output: Output,
    /// Index to measure; may be given more than once [default: all persistent ones].
    #[arg(long, value_name = "NAME")]
    index: Vec<IndexName>,
    /// Keys to load before the workloads.
    #[arg(long, value_name = "N", default_value_t = 1_000_000)]
    keys: u64,
    /// Operations of each workload, all threads together [default: half the keys].
    #[arg(long, value_name = "N")]
    operations: Option<u64>,
    /// Workload: insert, read, absent, update, scan (100 records), delete (the oldest), w1 (3:1:1
    /// of insert, delete, read) or w2 (1:1:3); may be given more than once, and they run in that
    /// order [default: insert, read, update, scan, delete].
    #[arg(long, value_name = "NAME")]
    workload: Vec<Workload>,
    /// Size of a node or a leaf: 256, 512 or 1024 for sv-tree, 128 to 1024 for fp-tree, 128 to 512
    /// for ods, fast-fair, wb-tree and hybrid-index-plus [default: 256, for wb-tree 512, for
    /// fp-tree 1024].
    #[arg(long, value_name = "SIZE")]
    node_size: Option<ByteSize>,
    /// Medium of the index: dram, pmem:PATH, pmem:PATH,assume-dax, or model:NAME in virtual time.
    #[arg(long, value_name = "MEDIUM", default_value_t = MediumSpec::Dram)]
    medium: MediumSpec,
    /// Concurrent threads.
    #[arg(long, value_name = "N", default_value_t = 1)]
    threads: usize,
    /// Put a cache in DRAM in front of the index, for this share of the loaded keys. It is empty at
    /// first: give many operations, or a read before the workload that matters.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0)]
    cache_fraction: f64,
    /// Way of probing that cache: serial (before the index is searched), parallel, or auto
    /// (parallel while most look-ups miss).
    #[arg(long, value_name = "HOW", default_value = "auto", value_parser = probing)]
    probing: Probing,
    /// Popularity of keys in look-ups: uniform, zipf or zipf:THETA.
    #[arg(long, value_name = "LAW", default_value_t = Popularity::Uniform)]
    distribution: Popularity,
    /// Number of rounds; medians are reported.
    #[arg(long, value_name = "N", default_value_t = 3)]
    rounds: usize,
    /// Seed of keys and orders.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

fn probing(text: &str) -> Result<Probing, String> {
    match text {
        "auto" => Ok(Probing::ByMisses),
        "serial" => Ok(Probing::Serial),
        "parallel" => Ok(Probing::Parallel),
        _ => Err("use auto, serial or parallel".to_owned()),
    }
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    match &arguments.command {
        Command::Act(arguments) => act::run(arguments),
        Command::Extend(arguments) => extend::run(arguments),
        Command::Cache(arguments) => match (&arguments.load.server, &arguments.against.against) {
            (None, _) => match &arguments.direct.medium {
                MediumSpec::Dram => in_process(arguments),
                medium => on_model(arguments, medium),
            },
            (Some(server), None) => load(arguments, server),
            (Some(server), Some(against)) => against_another(arguments, server, against),
        },
        Command::Curve(arguments) => curve::run(arguments),
        Command::Index(arguments) => indexes(arguments),
        Command::Trace(arguments) => trace::run(arguments),
        Command::Ycsb(arguments) => ycsb::run(arguments, |progress, options| {
            if options.is_temporary() {
                let made: Vec<_> =
                    options.directories().map(|it| it.display().to_string()).collect();
                interrupt::leaves(format!("left: {}, which may be removed", made.join(" and ")));
            }
            interrupt::watch(progress)
        }),
    }
}

fn bytes(size: ByteSize) -> usize {
    usize::try_from(size.0).unwrap_or(usize::MAX)
}

fn in_process(arguments: &CacheArguments) -> anyhow::Result<()> {
    let options = DirectOptions {
        count: arguments.keys,
        key_bytes: bytes(arguments.key_size),
        value_bytes: bytes(arguments.value_size),
        operations: arguments.direct.operations,
        rounds: arguments.direct.rounds,
        threads: arguments.threads.unwrap_or(2),
        huge_pages: arguments.direct.huge_pages,
        seed: arguments.seed,
    };
    arguments.output.check("bench-cache", &[])?;
    let progress = Progress::new(direct_steps(&options), "cache in process");
    let result = interrupt::measured(&progress, |progress| run_direct(&options, progress))?;
    arguments.output.put(("bench-cache", &progress), &result, &result.tables(), || result.page())
}

/// Measures a cache on a model, in virtual time.
fn on_model(arguments: &CacheArguments, medium: &MediumSpec) -> anyhow::Result<()> {
    let MediumSpec::Model(model) = medium else {
        let text = format!(
            "--medium {medium}: use dram or one of {}; bench trace and a server measure files",
            known_models()
        );
        return Err(BenchError::Usage(text).into());
    };
    let options = ModelledOptions {
        model: *model,
        count: arguments.keys,
        key_bytes: bytes(arguments.key_size),
        value_bytes: bytes(arguments.value_size),
        operations: arguments.direct.operations,
        rounds: arguments.direct.rounds,
        threads: arguments.threads.unwrap_or(2),
        seed: arguments.seed,
    };
    let progress = Progress::new(modelled_steps(&options), "cache on a model");
    let result = interrupt::measured(&progress, |progress| run_modelled(&options, progress))?;
    arguments.output.put(("bench-cache", &progress), &result, &result.tables(), || result.page())
}

fn load(arguments: &CacheArguments, server: &Address) -> anyhow::Result<()> {
    let options = arguments.load_options(server);
    arguments.output.check("bench-load", &[])?;
    let progress = Progress::new(options.duration.as_millis() as u64, "load");
    let result = interrupt::measured(&progress, |progress| run_load(&options, progress))?;
    arguments.output.put(("bench-load", &progress), &result, &result.tables(), || result.page())
}

fn against_another(
    arguments: &CacheArguments,
    server: &Address,
    against: &Address,
) -> anyhow::Result<()> {
    let options = CompareOptions {
        load: arguments.load_options(server),
        against: against.clone(),
        against_pid: arguments.against.against_pid,
        pairs: arguments.against.pairs,
    };
    let runs_ms = options.load.duration.as_millis() as u64 * 2 * options.pairs as u64;
    arguments.output.check("bench-compare", &[])?;
    let progress = Progress::new(runs_ms, "comparison");
    let result = interrupt::measured(&progress, |progress| compare(&options, progress))?;
    arguments.output.put(("bench-compare", &progress), &result, &result.tables(), || result.page())
}

fn indexes(arguments: &IndexArguments) -> anyhow::Result<()> {
    let usual =
        [Workload::Insert, Workload::Read, Workload::Update, Workload::Scan, Workload::Delete];
    let or = |given: &[Workload]| if given.is_empty() { usual.to_vec() } else { given.to_vec() };
    let options = IndexOptions {
        indexes: match arguments.index.as_slice() {
            [] => IndexName::PERSISTENT.to_vec(),
            given => given.to_vec(),
        },
        keys: arguments.keys,
        operations: arguments.operations.unwrap_or((arguments.keys / 2).max(1)),
        workloads: or(&arguments.workload),
        node_bytes: arguments.node_size.map(|bytes| bytes.0),
        medium: arguments.medium.clone(),
        threads: arguments.threads,
        cache_fraction: arguments.cache_fraction,
        probing: arguments.probing,
        popularity: arguments.distribution,
        rounds: arguments.rounds,
        seed: arguments.seed,
    };
    arguments.output.check("bench-index", &[])?;
    let progress = Progress::new(index_steps(&options), "indexes");
    let results = interrupt::measured(&progress, |progress| run_indexes(&options, progress))?;
    arguments.output.put(("bench-index", &progress), &results, &results.tables(), || results.page())
}

impl CacheArguments {
    fn load_options(&self, server: &Address) -> LoadOptions {
        let load = &self.load;
        LoadOptions {
            address: server.clone(),
            dialect: load.protocol,
            keys: u64::from(self.keys),
            key_bytes: bytes(self.key_size),
            value_bytes: bytes(self.value_size),
            ttl_s: u32::try_from(load.ttl.as_nanos().div_ceil(1_000_000_000)).unwrap_or(u32::MAX),
            get_share: load.get_share,
            popularity: load.distribution,
            connections: load.connections,
            depth: load.depth,
            threads: self.threads.unwrap_or(1),
            duration: load.duration,
            warm_up: load.warm_up,
            rate_ops_s: load.rate,
            verify: load.verify,
            preload: !load.no_preload,
            server_pid: load.server_pid,
            seed: self.seed,
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;
    use clap::error::ErrorKind;

    use crate::Arguments;

    #[test]
    fn a_flag_of_the_other_kind_of_measurement_is_refused() {
        let refused = |line: &str| {
            let words = format!("entresol bench {line}");
            let found = Arguments::command().try_get_matches_from(words.split(' '));
            found.err().map(|error| (error.kind(), error.to_string()))
        };
        for flag in [
            "--protocol meta",
            "--get-share 0.5",
            "--distribution zipf",
            "--ttl 1s",
            "--connections 2",
            "--depth 2",
            "--duration 1s",
            "--warm-up 1s",
            "--rate 10",
            "--verify",
            "--no-preload",
            "--server-pid 1",
        ] {
            let (kind, text) = refused(&format!("cache {flag}")).expect("refused without a server");
            assert_eq!(kind, ErrorKind::MissingRequiredArgument, "{flag}");
            assert!(text.contains("--server"), "{text}");
            assert_eq!(refused(&format!("cache {flag} --server localhost:1")), None);
        }
        for flag in ["--operations 5", "--rounds 1", "--huge-pages false"] {
            let (kind, text) = refused(&format!("cache {flag} --server localhost:1"))
                .expect("refused with a server");
            assert_eq!(kind, ErrorKind::ArgumentConflict, "{flag}");
            assert!(text.contains("--server"), "{text}");
            assert_eq!(refused(&format!("cache {flag}")), None);
        }
        let trace = "trace --file a --format keys --protocol meta";
        let (kind, _) = refused(trace).expect("refused without a server");
        assert_eq!(kind, ErrorKind::MissingRequiredArgument);
    }
}
