//! Replay of a trace: against a cache in this process or a server over its socket, and through
//! simulated policies beside it.

mod direct;
mod pace;
mod report;
mod server;
mod simulate;
mod socket;
mod tally;

use std::path::PathBuf;
use std::time::Duration;

use entresol_base::histogram::Histogram;
use entresol_base::{ByteSize, Clock, Nanos, SystemClock};
use entresol_cache::Statistics;
use serde::Serialize;

use crate::load::{Address, Dialect, LatencySummary};
use crate::policies::PolicyName;
pub use entresol_cache::Favour;
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
pub use entresol_media::MediumSpec;
pub use pace::{Day, Pace};
pub use simulate::{CurvePoint, MissRatioCurve, PolicyHits, Sizing};
pub use tally::{HitRatios, Hits, SizeClass};

use entresol_measure::trace::{
    Operation, Recorded, Recording, SizeDistribution, TraceFormat, ValueSizes,
};
use simulate::{CURVE_RUNS, Room, Scene};
use tally::Tally;

/// Bytes that a simulated object costs beside its key and value unless told otherwise: our record's
/// head and its share of the index. With a key of 16 bytes that is 34 bytes beside the value.
pub const OVERHEAD_BYTES: u64 = 18;
/// Requests between two updates of the progress bar.
const PROGRESS_EVERY: u64 = 10_000;

/// Tenant that answers the requests.
#[derive(Debug, Clone)]
pub enum Tenant {
    /// Cache in this process; its clock follows the trace.
    Direct(DirectTenant),
    /// Server; it uses the wall clock, by which items expire later than in the trace unless the
    /// trace's own times are kept.
    Server(ServerTenant),
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
    /// Quota of the values' medium in per cent of the trace's footprint, instead of the above.
    pub footprint_percent: Option<f64>,
    /// Size of a segment; derived from the quota if absent.
    pub segment_bytes: Option<ByteSize>,
    /// Largest value that the cache accepts; derived from the segments if absent.
    pub value_bytes_max: Option<ByteSize>,
    /// Misses that eviction keeps few.
    pub favour: Favour,
    /// Number of threads that the cache is made for. One of them sends all requests, as one
    /// connection of a server does, but the others have open segments of their own.
    pub threads: usize,
}

/// A server and the way in which the trace is sent to it.
#[derive(Debug, Clone)]
pub struct ServerTenant {
    /// Address of the server.
    pub address: Address,
    /// Dialect of the protocol.
    pub dialect: Dialect,
    /// Number of connections; the requests for one key share one.
    pub connections: usize,
    /// Pace of the trace's own times; as fast as the server answers if absent.
    pub pace: Option<Pace>,
    /// Time between a miss and the store that follows it.
    pub miss_cost: Duration,
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
    /// Size of values for which the trace has none.
    pub value_bytes: Option<u32>,
    /// Stores a value after a miss, as applications do (look-aside).
    pub store_on_miss: bool,
    /// Largest number of requests.
    pub requests_max: Option<u64>,
    /// Number of times that the trace is run, one after the other.
    pub loops: u32,
    /// Share of the requests that count as warm-up.
    pub warm_up: f64,
    /// Policies to simulate beside the cache in this process.
    pub policies: Vec<PolicyName>,
    /// Bytes that a simulated object costs beside its key and value.
    pub overhead_bytes: u64,
    /// Adds a miss-ratio curve of each simulated policy.
    pub curve: bool,
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
    /// True if the sizes of values do not come from the trace. Keys and sizes together are then not
    /// the load of any real system.
    pub composed: bool,
    /// Requests of the trace.
    pub requests: u64,
    /// Different keys.
    pub objects: u32,
    /// Bytes of all objects with their keys and the overhead of a simulated one.
    pub footprint_bytes: u64,
    /// Requests for which the trace records no size.
    pub sizes_assumed: u64,
    /// Hits of the tenant.
    #[serde(flatten)]
    pub hits: Hits,
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
    /// Bytes of keys and values that a cache in this process held at the end.
    pub held_bytes: Option<u64>,
    /// Statistics of a cache in this process.
    pub statistics: Option<Statistics>,
    /// Hits of the simulated policies.
    pub policies: Vec<PolicyHits>,
    /// Miss-ratio curves of the simulated policies.
    pub curves: Vec<MissRatioCurve>,
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
    /// Runs the background work that a server runs between requests.
    fn rest(&mut self);
}

/// Replays a trace from its beginning.
///
/// # Errors
/// Fails if a file cannot be read, the cache cannot be opened, or the server fails.
pub fn replay(options: &ReplayOptions, progress: &Progress) -> Result<ReplayResult, BenchError> {
    progress.say("reading the trace");
    let recorded = record(options, progress)?;
    let requests = recorded.requests().len();
    if requests == 0 {
        let what = format!("{}: no request in it", options.file.display());
        return Err(BenchError::Usage(what));
    }
    let curves = if options.curve { CURVE_RUNS } else { 0 };
    let runs = 1 + options.policies.len() as u64 * (2 + curves);
    progress.expect(requests as u64 * runs);
    progress.say("replaying");
    let warm_up = (requests as f64 * options.warm_up) as usize;
    match &options.tenant {
        Tenant::Direct(tenant) => in_process(options, tenant, &recorded, warm_up, progress),
        Tenant::Server(tenant) => {
            let sent = server::replay(options, tenant, &recorded, warm_up, progress)?;
            Ok(result(options, &recorded, sent, format!("server {}", tenant.address)))
        }
    }
}

fn record(options: &ReplayOptions, progress: &Progress) -> Result<Recorded, BenchError> {
    let sizes = match options.sizes.as_deref() {
        Some(path) => ValueSizes::Drawn(SizeDistribution::load(path, options.seed)?),
        None => ValueSizes::Trace(options.value_bytes),
    };
    let file = (options.file.as_path(), options.format);
    let recorded = Recorded::read(file, &sizes, options.requests_max, progress)?;
    Ok(recorded.repeated(options.loops))
}

fn in_process(
    options: &ReplayOptions,
    tenant: &DirectTenant,
    recorded: &Recorded,
    warm_up: usize,
    progress: &Progress,
) -> Result<ReplayResult, BenchError> {
    let footprint = recorded.footprint_bytes(options.overhead_bytes);
    let tenant = tenant.with_quota_of(footprint);
    let mut cache = direct::DirectAnswers::open(&tenant, options.seed)?;
    let clock = SystemClock::new();
    let mut session = Session::new(options, recorded, warm_up, &clock);
    let began = clock.now();
    let mut trace_s = 0;
    for (number, request) in recorded.requests().iter().enumerate() {
        if number == 0 || request.at_s != trace_s {
            cache.time(request.at_s);
            trace_s = request.at_s;
        }
        session.step(&mut cache, number, request)?;
        cache.rest();
        if (number as u64).is_multiple_of(PROGRESS_EVERY) {
            progress.advance(PROGRESS_EVERY);
            if progress.is_stopped() {
                break;
            }
        }
    }
    session.sent.duration = clock.now().since(began);
    let name = format!("cache in process, {}, {}", tenant.medium, tenant.quota());
    let mut result = result(options, recorded, session.sent, name);
    result.statistics = Some(cache.statistics());
    let held = cache.held_bytes(recorded)?;
    result.held_bytes = Some(held);
    simulate_all(options, recorded, warm_up, (tenant.quota(), held), progress, &mut result);
    Ok(result)
}

/// Runs the policies beside each other, as many at once as there are processors.
fn simulate_all(
    options: &ReplayOptions,
    recorded: &Recorded,
    warm_up: usize,
    (quota, held): (ByteSize, u64),
    progress: &Progress,
    result: &mut ReplayResult,
) {
    if options.policies.is_empty() {
        return;
    }
    progress.say("simulating policies");
    let next = recorded.next_requests();
    let store_on_miss = options.store_on_miss;
    let scene = Scene { recorded, next: &next, store_on_miss, warm_up };
    let memory = Room {
        sizing: Sizing::EqualMemory,
        capacity_bytes: quota.0,
        overhead_bytes: options.overhead_bytes,
    };
    let objects =
        Room { sizing: Sizing::EqualObjectBytes, capacity_bytes: held, overhead_bytes: 0 };
    let mut done: Vec<Option<(PolicyHits, PolicyHits, Option<MissRatioCurve>)>> = Vec::new();
    done.resize_with(options.policies.len(), || None);
    let left = entresol_base::sync::Mutex::new(options.policies.iter().zip(&mut done));
    let work = || {
        while let Some((&name, slot)) = { left.lock().next() } {
            let by_memory = simulate::simulate(scene, name, memory, progress);
            let by_objects = simulate::simulate(scene, name, objects, progress);
            let curve = options
                .curve
                .then(|| simulate::curve(scene, name, options.overhead_bytes, progress));
            *slot = Some((by_memory, by_objects, curve));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 1..threads {
            scope.spawn(work);
        }
        work();
    });
    for (by_memory, by_objects, curve) in done.into_iter().flatten() {
        result.policies.extend([by_memory, by_objects]);
        result.curves.extend(curve);
    }
    result.policies.sort_by_key(|it| it.sizing == Sizing::EqualObjectBytes);
}

fn result(
    options: &ReplayOptions,
    recorded: &Recorded,
    sent: Sent,
    tenant: String,
) -> ReplayResult {
    let seconds = sent.duration.as_secs_f64();
    let requests = sent.requests;
    let last = recorded.requests().get(requests.saturating_sub(1) as usize);
    ReplayResult {
        trace: options.file.display().to_string(),
        tenant,
        composed: options.sizes.is_some() || recorded.sizes_assumed() > 0,
        requests,
        objects: recorded.objects(),
        footprint_bytes: recorded.footprint_bytes(options.overhead_bytes),
        sizes_assumed: recorded.sizes_assumed(),
        hits: sent.tally.hits(),
        stores: sent.stores,
        stores_refused: sent.stores_refused,
        deletes: sent.deletes,
        counts: sent.counts,
        stored_bytes: sent.stored_bytes,
        trace_s: last.map_or(0, |request| request.at_s),
        duration_s: seconds,
        throughput_ops_s: requests as f64 / seconds.max(1e-9),
        get_latency: LatencySummary::of(&sent.get_times),
        store_latency: LatencySummary::of(&sent.store_times),
        held_bytes: None,
        statistics: None,
        policies: Vec::new(),
        curves: Vec::new(),
    }
}

/// Counts and times of the requests that one connection, or a cache in this process, was sent.
#[derive(Debug, Clone)]
struct Sent {
    tally: Tally,
    requests: u64,
    stores: u64,
    stores_refused: u64,
    deletes: u64,
    counts: u64,
    stored_bytes: u64,
    duration: Duration,
    get_times: Histogram,
    store_times: Histogram,
}

impl Sent {
    fn new(requests: usize, warm_up: usize) -> Sent {
        Sent {
            tally: Tally::new(requests, warm_up),
            requests: 0,
            stores: 0,
            stores_refused: 0,
            deletes: 0,
            counts: 0,
            stored_bytes: 0,
            duration: Duration::ZERO,
            get_times: Histogram::new(),
            store_times: Histogram::new(),
        }
    }

    fn merge(&mut self, other: &Sent) {
        self.tally.merge(&other.tally);
        self.requests += other.requests;
        self.stores += other.stores;
        self.stores_refused += other.stores_refused;
        self.deletes += other.deletes;
        self.counts += other.counts;
        self.stored_bytes += other.stored_bytes;
        self.duration = self.duration.max(other.duration);
        self.get_times.merge(&other.get_times);
        self.store_times.merge(&other.store_times);
    }
}

/// Sends requests to one tenant and counts the answers.
struct Session<'a> {
    recorded: &'a Recorded,
    store_on_miss: bool,
    miss_cost: Duration,
    clock: &'a SystemClock,
    pattern: Vec<u8>,
    sent: Sent,
}

impl<'a> Session<'a> {
    fn new(
        options: &ReplayOptions,
        recorded: &'a Recorded,
        warm_up: usize,
        clock: &'a SystemClock,
    ) -> Session<'a> {
        Session {
            recorded,
            store_on_miss: options.store_on_miss,
            miss_cost: Duration::ZERO,
            clock,
            pattern: Vec::new(),
            sent: Sent::new(recorded.requests().len(), warm_up),
        }
    }

    /// Sends one request now.
    fn step(
        &mut self,
        tenant: &mut impl Answers,
        number: usize,
        request: &Recording,
    ) -> Result<(), BenchError> {
        let now = self.clock.now();
        self.step_due(tenant, number, request, now)
    }

    /// Sends one request that was due at `due`, from which its response time counts.
    fn step_due(
        &mut self,
        tenant: &mut impl Answers,
        number: usize,
        request: &Recording,
        due: Nanos,
    ) -> Result<(), BenchError> {
        let key = self.recorded.key(request.object);
        self.sent.requests += 1;
        match request.operation {
            Operation::Get => {
                let found = tenant.get(key)?;
                self.sent.get_times.record(self.clock.now().since(due));
                self.sent.tally.get(number, request.value_bytes, found);
                if !found && self.store_on_miss {
                    if !self.miss_cost.is_zero() {
                        std::thread::sleep(self.miss_cost);
                    }
                    let begun = self.clock.now();
                    let set = Recording { operation: Operation::Set, ..*request };
                    self.store(tenant, key, &set, begun)?;
                }
            }
            Operation::Delete => {
                tenant.delete(key)?;
                self.sent.deletes += 1;
            }
            Operation::Increment | Operation::Decrement => {
                tenant.count(key, request.operation == Operation::Decrement)?;
                self.sent.counts += 1;
            }
            _ => self.store(tenant, key, request, due)?,
        }
        Ok(())
    }

    fn store(
        &mut self,
        tenant: &mut impl Answers,
        key: &[u8],
        request: &Recording,
        due: Nanos,
    ) -> Result<(), BenchError> {
        let length = request.value_bytes as usize;
        if self.pattern.len() < length {
            self.pattern.resize(length, b'v');
        }
        let (operation, ttl_s) = (request.operation, request.ttl_s);
        let call = StoreCall { operation, key, value: &self.pattern[..length], ttl_s };
        let taken = tenant.store(call)?;
        self.sent.store_times.record(self.clock.now().since(due));
        self.sent.stores += 1;
        self.sent.stores_refused += u64::from(!taken);
        self.sent.stored_bytes += length as u64;
        Ok(())
    }
}

impl DirectTenant {
    fn with_quota_of(&self, footprint_bytes: u64) -> DirectTenant {
        let mut tenant = self.clone();
        if let Some(percent) = self.footprint_percent {
            let quota = ByteSize((footprint_bytes as f64 * percent / 100.0) as u64);
            match self.medium {
                MediumSpec::Dram => tenant.dram_bytes = quota,
                _ => tenant.medium_bytes = quota,
            }
        }
        tenant
    }

    /// Quota of the medium on which values lie.
    fn quota(&self) -> ByteSize {
        match self.medium {
            MediumSpec::Dram => self.dram_bytes,
            _ => self.medium_bytes,
        }
    }
}

#[cfg(test)]
mod tests;
