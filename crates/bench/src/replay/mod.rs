//! Replay of a trace against a tenant: a cache in this process, or a server over its socket.

mod direct;
mod report;
mod socket;

use std::path::PathBuf;

use entresol_base::histogram::Histogram;
use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_cache::Statistics;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_measure::trace::{
    Operation, SizeDistribution, TraceFormat, TraceReader, TraceRequest,
};
use serde::Serialize;

use crate::load::{Address, Dialect, LatencySummary};
pub use entresol_cache::Favour;
pub use entresol_media::MediumSpec;

/// Size of a value for which neither the trace nor a distribution gives one.
pub const UNKNOWN_VALUE_BYTES: u32 = 100;
/// Requests between two updates of the progress bar.
const PROGRESS_EVERY: u64 = 10_000;

/// Tenant that answers the requests.
#[derive(Debug, Clone)]
pub enum Tenant {
    /// Cache in this process; its clock follows the trace.
    Direct(DirectTenant),
    /// Server; it uses the wall clock, by which items expire later than in the trace.
    Server(Address, Dialect),
}

/// Settings of a cache in this process.
#[derive(Debug, Clone)]
pub struct DirectTenant {
    /// Medium of the values.
    pub medium: MediumSpec,
    /// Quota of DRAM.
    pub dram_bytes: ByteSize,
    /// Quota of a medium other than DRAM.
    pub medium_bytes: ByteSize,
    /// Size of a segment; derived from the quota if absent.
    pub segment_bytes: Option<ByteSize>,
    /// Largest value that the cache accepts; derived from the segments if absent.
    pub value_bytes_max: Option<ByteSize>,
    /// Misses that eviction keeps few.
    pub favour: Favour,
}

/// Options of a replay.
#[derive(Debug, Clone)]
pub struct ReplayOptions {
    /// File of the trace.
    pub file: PathBuf,
    /// Format of the file.
    pub format: TraceFormat,
    /// Distribution of value sizes that replaces those of the trace.
    pub sizes: Option<PathBuf>,
    /// Stores a value after a miss, as applications do (look-aside).
    pub store_on_miss: bool,
    /// Largest number of requests.
    pub requests_max: Option<u64>,
    /// Seed of sizes and of the cache.
    pub seed: u64,
    /// Tenant that answers the requests.
    pub tenant: Tenant,
}

/// Results of a replay.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ReplayResult {
    /// File of the trace.
    pub trace: String,
    /// Description of the tenant.
    pub tenant: String,
    /// True if the keys come from the trace and the sizes from another distribution. The
    /// combination is then not the load of any real system.
    pub composed: bool,
    /// Requests of the trace.
    pub requests: u64,
    /// Number of gets.
    pub gets: u64,
    /// Gets that found a value.
    pub hits: u64,
    /// Share of gets that found a value.
    pub hit_ratio: f64,
    /// Stores of the trace, and stores after misses.
    pub stores: u64,
    /// Stores that were refused.
    pub stores_refused: u64,
    /// Number of deletes.
    pub deletes: u64,
    /// Increments and decrements.
    pub counts: u64,
    /// Bytes of all values stored.
    pub stored_bytes: u64,
    /// Seconds that the replayed trace covers.
    pub trace_s: u32,
    /// Seconds that the replay took.
    pub duration_s: f64,
    /// Requests of the trace per second.
    pub throughput_ops_s: f64,
    /// Response times of gets.
    pub get_latency: LatencySummary,
    /// Response times of stores.
    pub store_latency: LatencySummary,
    /// Statistics of a cache in this process.
    pub statistics: Option<Statistics>,
}

/// Arguments of a store.
#[derive(Debug, Clone, Copy)]
struct StoreCall<'a> {
    operation: Operation,
    key: &'a [u8],
    value: &'a [u8],
    ttl_s: u32,
}

/// Interface of a replay to its tenant.
trait Answers {
    /// Advances the trace's clock to `at_s`.
    fn time(&mut self, at_s: u32);
    /// Gets a key and returns true if it was found.
    fn get(&mut self, key: &[u8]) -> Result<bool, BenchError>;
    /// Stores a value and returns false if the tenant refused it.
    fn store(&mut self, call: StoreCall<'_>) -> Result<bool, BenchError>;
    fn delete(&mut self, key: &[u8]) -> Result<(), BenchError>;
    fn count(&mut self, key: &[u8], down: bool) -> Result<(), BenchError>;
    fn statistics(&self) -> Option<Statistics>;
}

/// Replays a trace from its beginning.
///
/// # Errors
/// Fails if a file cannot be read, the cache cannot be opened, or the server fails.
pub fn replay(options: &ReplayOptions, progress: &Progress) -> Result<ReplayResult, BenchError> {
    let reader = TraceReader::open(&options.file, options.format)?;
    let sizes = options.sizes.as_deref();
    let sizes = sizes.map(|path| SizeDistribution::load(path, options.seed)).transpose()?;
    progress.say("replaying");
    let mut replay = Replay::new(options, reader, sizes);
    match &options.tenant {
        Tenant::Direct(tenant) => {
            let mut cache = direct::DirectAnswers::open(tenant, options.seed)?;
            replay.run(&mut cache, progress)?;
            Ok(replay.result(&cache, format!("cache in process, {}", tenant.medium)))
        }
        Tenant::Server(address, dialect) => {
            let mut server = socket::SocketAnswers::connect(address, *dialect)?;
            replay.run(&mut server, progress)?;
            Ok(replay.result(&server, format!("server {address}")))
        }
    }
}

struct Replay<'a> {
    options: &'a ReplayOptions,
    reader: TraceReader,
    sizes: Option<SizeDistribution>,
    clock: SystemClock,
    pattern: Vec<u8>,
    result: ReplayResult,
    get_times: Histogram,
    store_times: Histogram,
}

impl<'a> Replay<'a> {
    fn new(
        options: &'a ReplayOptions,
        reader: TraceReader,
        sizes: Option<SizeDistribution>,
    ) -> Replay<'a> {
        let latency = LatencySummary::of(&Histogram::new());
        let composed = sizes.is_some() || options.format == TraceFormat::Keys;
        Replay {
            options,
            reader,
            sizes,
            clock: SystemClock::new(),
            pattern: Vec::new(),
            result: ReplayResult {
                trace: options.file.display().to_string(),
                tenant: String::new(),
                composed,
                requests: 0,
                gets: 0,
                hits: 0,
                hit_ratio: 0.0,
                stores: 0,
                stores_refused: 0,
                deletes: 0,
                counts: 0,
                stored_bytes: 0,
                trace_s: 0,
                duration_s: 0.0,
                throughput_ops_s: 0.0,
                get_latency: latency.clone(),
                store_latency: latency,
                statistics: None,
            },
            get_times: Histogram::new(),
            store_times: Histogram::new(),
        }
    }

    fn run(&mut self, tenant: &mut impl Answers, progress: &Progress) -> Result<(), BenchError> {
        let began = self.clock.now();
        let mut key = Vec::new();
        let limit = self.options.requests_max.unwrap_or(u64::MAX);
        'trace: while let Some(request) = self.reader.next(&mut key)? {
            if request.at_s != self.result.trace_s {
                tenant.time(request.at_s);
                self.result.trace_s = request.at_s;
            }
            for _ in 0..request.count {
                if self.result.requests == limit {
                    break 'trace;
                }
                self.step(tenant, &key, request)?;
                self.result.requests += 1;
                if self.result.requests.is_multiple_of(PROGRESS_EVERY) {
                    progress.advance(PROGRESS_EVERY);
                    if progress.is_stopped() {
                        break 'trace;
                    }
                }
            }
        }
        self.result.duration_s = self.clock.now().since(began).as_secs_f64();
        Ok(())
    }

    fn step(
        &mut self,
        tenant: &mut impl Answers,
        key: &[u8],
        request: TraceRequest,
    ) -> Result<(), BenchError> {
        match request.operation {
            Operation::Get => {
                let before = self.clock.now();
                let found = tenant.get(key)?;
                self.get_times.record(self.clock.now().since(before));
                self.result.gets += 1;
                self.result.hits += u64::from(found);
                if !found && self.options.store_on_miss {
                    self.store(tenant, key, TraceRequest { operation: Operation::Set, ..request })?;
                }
            }
            Operation::Delete => {
                tenant.delete(key)?;
                self.result.deletes += 1;
            }
            Operation::Increment | Operation::Decrement => {
                tenant.count(key, request.operation == Operation::Decrement)?;
                self.result.counts += 1;
            }
            _ => self.store(tenant, key, request)?,
        }
        Ok(())
    }

    fn store(
        &mut self,
        tenant: &mut impl Answers,
        key: &[u8],
        request: TraceRequest,
    ) -> Result<(), BenchError> {
        let length = match &self.sizes {
            Some(sizes) => sizes.of_key(key),
            None => request.value_bytes.unwrap_or(UNKNOWN_VALUE_BYTES),
        } as usize;
        if self.pattern.len() < length {
            self.pattern.resize(length, b'v');
        }
        let (operation, ttl_s) = (request.operation, request.ttl_s);
        let call = StoreCall { operation, key, value: &self.pattern[..length], ttl_s };
        let before = self.clock.now();
        let taken = tenant.store(call)?;
        self.store_times.record(self.clock.now().since(before));
        self.result.stores += 1;
        self.result.stores_refused += u64::from(!taken);
        self.result.stored_bytes += length as u64;
        Ok(())
    }

    fn result(mut self, tenant: &impl Answers, name: String) -> ReplayResult {
        let result = &mut self.result;
        result.tenant = name;
        result.hit_ratio = result.hits as f64 / result.gets.max(1) as f64;
        result.throughput_ops_s = result.requests as f64 / result.duration_s.max(1e-9);
        result.get_latency = LatencySummary::of(&self.get_times);
        result.store_latency = LatencySummary::of(&self.store_times);
        result.statistics = tenant.statistics();
        self.result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write;

    fn options(folder: &std::path::Path, format: TraceFormat, trace: &[u8]) -> ReplayOptions {
        let file = folder.join("trace");
        entresol_media::files::write_atomically(&file, trace).unwrap();
        ReplayOptions {
            file,
            format,
            sizes: None,
            store_on_miss: true,
            requests_max: None,
            seed: 1,
            tenant: Tenant::Direct(DirectTenant {
                medium: MediumSpec::Dram,
                dram_bytes: ByteSize::mib(16),
                medium_bytes: ByteSize(0),
                segment_bytes: None,
                value_bytes_max: None,
                favour: Favour::Objects,
            }),
        }
    }

    fn run(options: &ReplayOptions) -> ReplayResult {
        replay(options, &Progress::hidden()).unwrap()
    }

    #[test]
    fn misses_are_stored_and_lives_pass_by_the_traces_clock() {
        let folder = tempfile::tempdir().unwrap();
        let trace = "100,a,5,10,1,get,60\n100,a,5,10,1,get,60\n159,a,5,10,1,get,60\n\
                     161,a,5,10,1,get,60\n162,b,5,10,1,set,0\n163,b,5,10,1,get,0\n\
                     164,b,5,10,1,delete,0\n165,b,5,10,1,get,0\n166,n,5,10,1,incr,0\n";
        let mut options = options(folder.path(), TraceFormat::Twitter, trace.as_bytes());
        let result = run(&options);
        // a: miss, hit, hit, expired after 60 s; b: hit, absent after the delete.
        assert_eq!((result.gets, result.hits), (6, 3), "{result:?}");
        assert_eq!((result.stores, result.deletes, result.counts), (4, 1, 1));
        assert_eq!((result.trace_s, result.stores_refused, result.composed), (66, 0, false));
        options.store_on_miss = false;
        assert_eq!(run(&options).hits, 1, "only b was ever set");
    }

    #[test]
    fn bare_keys_take_their_sizes_from_a_distribution_and_are_called_composed() {
        let folder = tempfile::tempdir().unwrap();
        let keys = [1_u32, 2, 1, 3, 2, 1].map(u32::to_be_bytes).concat();
        let mut options = options(folder.path(), TraceFormat::Keys, &keys);
        let sizes = folder.path().join("sizes.json");
        let text = r#"{"valSizeRange":[700],"valSizeRangeProbability":[1]}"#;
        entresol_media::files::write_atomically(&sizes, text.as_bytes()).unwrap();
        options.sizes = Some(sizes);
        let result = run(&options);
        assert!(result.composed);
        assert_eq!((result.requests, result.hits, result.stored_bytes), (6, 3, 2100));
    }

    #[test]
    fn a_cache_too_small_for_a_cycle_misses_and_says_what_it_evicted() {
        let folder = tempfile::tempdir().unwrap();
        let mut trace = String::from("key,op,size\n");
        for number in 0..60_000 {
            let _ = writeln!(trace, "{},GET,1000", number % 30_000);
        }
        let result = run(&options(folder.path(), TraceFormat::Csv, trace.as_bytes()));
        assert!(result.hit_ratio < 0.45, "{}", result.hit_ratio);
        assert!(result.statistics.is_some_and(|found| found.events.evicted_items > 1000));
        let limited = ReplayOptions {
            requests_max: Some(10),
            ..options(folder.path(), TraceFormat::Csv, trace.as_bytes())
        };
        assert_eq!(run(&limited).requests, 10);
    }
}
