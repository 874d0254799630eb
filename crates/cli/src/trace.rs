//! `entresol bench trace`: a recorded trace against a cache, a server and simulated policies.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use entresol_base::{ByteSize, duration};
use entresol_bench::load::{Address, Dialect};
use entresol_bench::policies::PolicyName;
use entresol_bench::replay::{
    Day, DirectTenant, Favour, MediumSpec, Pace, ReplayOptions, ServerTenant, Tenant, replay,
};
use entresol_measure::progress::Progress;
use entresol_measure::trace::TraceFormat;
use entresol_media::machine;

use crate::interrupt;
use crate::output::Output;

#[derive(Debug, Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    output: Output,
    /// File of the trace; zstd and xz are decompressed.
    #[arg(long, value_name = "FILE")]
    file: PathBuf,
    /// twitter (seven columns), csv (columns named by a header), keys or keys8 (numbers of 4 or 8
    /// bytes), or oracle-general (libCacheSim's records).
    #[arg(long, value_name = "FORMAT")]
    format: TraceFormat,
    /// Draw value sizes from this distribution (CacheLib's JSON) instead of the trace.
    #[arg(long, value_name = "FILE")]
    sizes: Option<PathBuf>,
    /// Size of values for which the trace records none.
    #[arg(long, value_name = "SIZE", conflicts_with = "sizes")]
    value_size: Option<ByteSize>,
    /// Do not store after a miss.
    #[arg(long)]
    no_store_on_miss: bool,
    /// Largest number of requests.
    #[arg(long, value_name = "N")]
    requests: Option<u64>,
    /// Run the trace so many times, one after the other.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = loops)]
    loops: u32,
    /// Share of the requests after which hits count as warm.
    #[arg(long, value_name = "SHARE", default_value_t = 0.0, value_parser = share)]
    warm_up_share: f64,
    /// Seed of sizes and of the cache.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    #[command(flatten)]
    policies: PolicyArguments,
    #[command(flatten)]
    server: ServerArguments,
    #[command(flatten)]
    tenant: TenantArguments,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Simulated policies beside the cache in process")]
struct PolicyArguments {
    /// Policies to simulate, separated by commas: fifo, lru, clock, sieve, s3-fifo, w-tinylfu,
    /// gdsf, belady, or all of them.
    #[arg(long, value_name = "NAMES", value_delimiter = ',', conflicts_with = "server")]
    policy: Vec<PolicyChoice>,
    /// Bytes that a simulated object costs beside its key and value.
    #[arg(long, value_name = "SIZE", default_value = "18")]
    overhead: ByteSize,
    /// Add the miss ratio of each policy over capacities, on a sample of the keys.
    #[arg(long, requires = "policy")]
    curve: bool,
}

/// One policy, or all of them.
#[derive(Debug, Clone, Copy)]
enum PolicyChoice {
    All,
    One(PolicyName),
}

impl std::str::FromStr for PolicyChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<PolicyChoice, String> {
        match text {
            "all" => Ok(PolicyChoice::All),
            _ => text.parse().map(PolicyChoice::One),
        }
    }
}

impl PolicyArguments {
    fn names(&self) -> Vec<PolicyName> {
        let mut names: Vec<PolicyName> = Vec::new();
        for choice in &self.policy {
            match choice {
                PolicyChoice::All => names.extend(PolicyName::ALL),
                PolicyChoice::One(name) => names.push(*name),
            }
        }
        names.sort_unstable();
        names.dedup();
        names
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "A server instead of the cache in process")]
struct ServerArguments {
    /// Replay against this server: HOST:PORT or unix:PATH.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "tenant")]
    server: Option<Address>,
    /// Dialect of the protocol: text or meta.
    #[arg(long, value_name = "DIALECT", default_value_t = Dialect::Text, requires = "server")]
    protocol: Dialect,
    /// Connections, each with one request at a time; all requests for a key take the same one.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "server")]
    #[arg(value_parser = connections)]
    connections: usize,
    /// Keep the trace's own times, so many times faster (0.5: at half speed) [default: as fast as
    /// the server answers].
    #[arg(long, value_name = "FACTOR", requires = "server", value_parser = speed)]
    speed: Option<f64>,
    /// Let the rate follow a day of this length: from the share of the night to full speed at noon
    /// and back, as a cosine.
    #[arg(long, value_name = "TIME", requires = "speed", value_parser = day)]
    day: Option<Duration>,
    /// Rate in the middle of the night, as a share of full speed.
    #[arg(long, value_name = "SHARE", default_value_t = 0.1, requires = "day")]
    #[arg(value_parser = night_share)]
    night_share: f64,
    /// Time between a miss and the store that follows it.
    #[arg(long, value_name = "TIME", default_value = "0", requires = "server")]
    #[arg(value_parser = duration::parse)]
    miss_cost: Duration,
}

impl ServerArguments {
    fn pace(&self) -> Option<Pace> {
        let night_share = self.night_share;
        let day = self.day.map(|length| Day { length, night_share });
        self.speed.map(|speed| Pace { speed, day })
    }
}

fn percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse() {
        Ok(percent) if (0.001..=1000.0).contains(&percent) => Ok(percent),
        _ => Err("write a percentage from 0.001 to 1000".to_owned()),
    }
}

fn share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (0.0..1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0 to below 1".to_owned()),
    }
}

fn speed(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(speed) if (1e-3..=1e6).contains(&speed) => Ok(speed),
        _ => Err("write a factor from 0.001 to 1000000".to_owned()),
    }
}

fn day(text: &str) -> Result<Duration, String> {
    match duration::parse(text) {
        Ok(day) if day.is_zero() => Err("a day is longer than 0".to_owned()),
        Ok(day) => Ok(day),
        Err(error) => Err(error.to_string()),
    }
}

fn night_share(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(share) if (1e-3..=1.0).contains(&share) => Ok(share),
        _ => Err("write a share from 0.001 to 1".to_owned()),
    }
}

fn loops(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(loops @ 1..) => Ok(loops),
        _ => Err("write a number from 1".to_owned()),
    }
}

fn connections(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(number) if (1..=1024).contains(&number) => Ok(number),
        _ => Err("write a number from 1 to 1024".to_owned()),
    }
}

#[derive(Debug, Args)]
#[command(next_help_heading = "The cache in process")]
#[group(id = "tenant", multiple = true)]
struct TenantArguments {
    /// Medium of the values: dram, pmem:PATH, pmem:PATH,assume-dax, file:PATH or
    /// file:PATH,model=NAME [default: dram].
    #[arg(long, value_name = "MEDIUM")]
    medium: Option<MediumSpec>,
    /// Quota of DRAM [default: 64MiB].
    #[arg(long, value_name = "SIZE")]
    dram_quota: Option<ByteSize>,
    /// Quota of a medium other than dram.
    #[arg(long, value_name = "SIZE")]
    medium_quota: Option<ByteSize>,
    /// Quota of the values' medium in per cent of the trace's footprint, instead of the above.
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    footprint: Option<f64>,
    /// Size of a segment; chosen from the quota unless given.
    #[arg(long, value_name = "SIZE")]
    segment_size: Option<ByteSize>,
    /// Largest value that is accepted [default: 1MiB less 64 bytes, or an eighth of a small quota].
    #[arg(long, value_name = "SIZE")]
    value_limit: Option<ByteSize>,
    /// Misses that eviction keeps few: objects or bytes [default: objects].
    #[arg(long, value_name = "WHAT")]
    favour: Option<Favour>,
    /// Threads that the cache is made for, as the server's [default: number of processors].
    #[arg(long, value_name = "N", value_parser = connections)]
    threads: Option<usize>,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    arguments.output.check("bench-trace", &[])?;
    let server = &arguments.server;
    let tenant = match &server.server {
        Some(address) => Tenant::Server(ServerTenant {
            address: address.clone(),
            dialect: server.protocol,
            connections: server.connections,
            pace: server.pace(),
            miss_cost: server.miss_cost,
        }),
        None => Tenant::Direct(arguments.tenant.direct()),
    };
    let options = ReplayOptions {
        file: arguments.file.clone(),
        format: arguments.format,
        sizes: arguments.sizes.clone(),
        value_bytes: arguments.value_size.map(|size| u32::try_from(size.0).unwrap_or(u32::MAX)),
        store_on_miss: !arguments.no_store_on_miss,
        requests_max: arguments.requests,
        loops: arguments.loops,
        warm_up: arguments.warm_up_share,
        policies: arguments.policies.names(),
        overhead_bytes: arguments.policies.overhead.0,
        curve: arguments.policies.curve,
        seed: arguments.seed,
        tenant,
    };
    let progress = Progress::new(0, "replay");
    let result = interrupt::measured(&progress, |progress| replay(&options, progress))?;
    arguments.output.put(("bench-trace", &progress), &result, &result.tables(), || result.page())
}

impl TenantArguments {
    fn direct(&self) -> DirectTenant {
        DirectTenant {
            medium: self.medium.clone().unwrap_or(MediumSpec::Dram),
            dram_bytes: self.dram_quota.unwrap_or(ByteSize::mib(64)),
            medium_bytes: self.medium_quota.unwrap_or(ByteSize(0)),
            footprint_percent: self.footprint,
            segment_bytes: self.segment_size,
            value_bytes_max: self.value_limit,
            favour: self.favour.unwrap_or_default(),
            threads: self.threads.unwrap_or_else(machine::processors),
        }
    }
}
