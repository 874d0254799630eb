//! A small device in virtual time that the tests script: at each moment it says what every tenant
//! gets, given how each is slowed.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_media::Usage;
use entresol_sharing::{
    Action, Controller, MediumId, PolicySettings, Reading, Settings, Sketch, TenantId,
    TenantSettings, Throttle,
};

pub(crate) const MS: u64 = 1_000_000;
pub(crate) const SECOND: u64 = 1_000_000_000;
/// Response times that are recorded in a millisecond, however many requests there were.
const SAMPLES_MS: u64 = 100;

/// Speed of a tenant at the moment.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rates {
    pub(crate) operations_s: f64,
    /// Device time of one operation.
    pub(crate) cost_ns: f64,
    pub(crate) bytes_each: f64,
    pub(crate) is_writing: bool,
    /// The 99th percentile; half of it is the median.
    pub(crate) latency_ns: f64,
}

impl Rates {
    pub(crate) fn used(&self) -> f64 {
        self.operations_s * self.cost_ns / 1e9
    }
}

/// Throttles of all tenants on the first medium.
#[derive(Debug, Clone, Default)]
pub(crate) struct Slowed(pub(crate) BTreeMap<TenantId, Throttle>);

impl Slowed {
    pub(crate) fn of(&self, id: u32) -> Throttle {
        self.0.get(&TenantId(id)).copied().unwrap_or_default()
    }
}

#[derive(Default)]
struct Counters {
    used_ns: f64,
    operations: f64,
    bytes: f64,
    writes: f64,
    written_bytes: f64,
}

/// The controller and what it acts upon.
pub(crate) struct Bench {
    pub(crate) controller: Controller,
    pub(crate) now: Nanos,
    pub(crate) slowed: Slowed,
    pub(crate) actions: u64,
    pub(crate) last: BTreeMap<u32, Rates>,
    next: Nanos,
    end: Nanos,
    counters: BTreeMap<u32, Counters>,
}

impl Bench {
    pub(crate) fn new(policy: PolicySettings, tenants: Vec<TenantSettings>) -> Bench {
        Bench::of(Settings::new("pmem", policy, tenants))
    }

    pub(crate) fn of(settings: Settings) -> Bench {
        Bench {
            controller: Controller::new(settings).expect("good settings"),
            now: Nanos(0),
            slowed: Slowed::default(),
            actions: 0,
            last: BTreeMap::new(),
            next: Nanos(0),
            end: Nanos(0),
            counters: BTreeMap::new(),
        }
    }

    /// Runs for so long; `device` says what each tenant gets. Who is not in its answer hangs.
    pub(crate) fn run(
        &mut self,
        time: Duration,
        mut device: impl FnMut(Nanos, &Slowed) -> BTreeMap<u32, Rates>,
    ) {
        // A run may end between two ticks: the next one goes on from there.
        self.end = self.end.after(time);
        while self.next <= self.end {
            let step = self.next.since(self.now);
            let rates = device(self.now, &self.slowed);
            self.last.clone_from(&rates);
            self.now = self.next;
            let readings: Vec<Reading> =
                rates.iter().map(|(&id, rates)| self.reading(id, rates, step)).collect();
            self.tick(&readings);
        }
    }

    pub(crate) fn tick(&mut self, readings: &[Reading]) {
        let turn = self.controller.tick(self.now, readings);
        assert!(turn.next > self.now, "time goes on");
        for Action { tenant, medium, throttle } in turn.actions {
            self.actions += 1;
            if medium == MediumId(0) {
                self.slowed.0.insert(tenant, throttle);
            }
        }
        self.next = turn.next;
    }

    fn reading(&mut self, id: u32, rates: &Rates, step: Duration) -> Reading {
        let counters = self.counters.entry(id).or_default();
        let operations = rates.operations_s * step.as_secs_f64();
        counters.operations += operations;
        counters.used_ns += operations * rates.cost_ns;
        counters.bytes += operations * rates.bytes_each;
        if rates.is_writing {
            counters.writes += operations;
            counters.written_bytes += operations * rates.bytes_each;
        }
        let used = Usage {
            used_ns: counters.used_ns as u64,
            reads: (counters.operations - counters.writes) as u64,
            writes: counters.writes as u64,
            read_bytes: (counters.bytes - counters.written_bytes) as u64,
            written_bytes: counters.written_bytes as u64,
        };
        let mut latency = Sketch::new();
        let most = step.as_nanos() as u64 * SAMPLES_MS / MS;
        let samples = (operations as u64).min(most);
        for index in 0..samples {
            let part = if index % 50 == 0 { 1.0 } else { 0.5 };
            latency.record(Duration::from_nanos((rates.latency_ns * part) as u64));
        }
        let operations = Some(counters.operations as u64);
        Reading { tenant: TenantId(id), used: vec![used], operations, latency }
    }

    /// All decisions, one a line.
    pub(crate) fn log(&self) -> String {
        self.controller.decisions().iter().map(|decision| format!("{decision}\n")).collect()
    }

    pub(crate) fn said(&self, words: &str) -> bool {
        self.log().contains(words)
    }
}

/// A tenant of the physical device: a closed loop of threads.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Load {
    pub(crate) threads: f64,
    pub(crate) think_ns: f64,
    pub(crate) cost_ns: f64,
    pub(crate) base_ns: f64,
    pub(crate) bytes_each: f64,
    pub(crate) is_writing: bool,
    /// Multiple by which a whole device's worth of this load lengthens others' response times.
    pub(crate) disturbs: f64,
}

impl Load {
    pub(crate) const READER: Load = Load {
        threads: 4.0,
        think_ns: 0.0,
        cost_ns: 100.0,
        base_ns: 500.0,
        bytes_each: 1024.0,
        is_writing: false,
        disturbs: 0.5,
    };
    pub(crate) const WRITER: Load =
        Load { cost_ns: 200.0, bytes_each: 512.0, is_writing: true, disturbs: 6.0, ..Load::READER };
}

/// Rates of all tenants on a device that serves one second in a second, where each load lengthens
/// the others' responses.
pub(crate) fn device(loads: &[(u32, Load)], slowed: &Slowed) -> BTreeMap<u32, Rates> {
    let mut rates: BTreeMap<u32, Rates> = BTreeMap::new();
    for round in 0..60 {
        let before = rates.clone();
        for &(id, load) in loads {
            let disturbed: f64 = loads
                .iter()
                .filter(|(other, _)| *other != id)
                .map(|(other, load)| load.disturbs * before.get(other).map_or(0.0, Rates::used))
                .sum();
            let all: f64 = before.values().map(Rates::used).sum();
            let crowd = all.max(1.0);
            let throttle = slowed.of(id);
            let delay = throttle.delay().as_nanos() as f64;
            let latency = load.base_ns * (1.0 + disturbed) * crowd;
            let free = load.threads * 1e9 / (latency + delay + load.think_ns);
            let most = throttle.share_max() * 1e9 / load.cost_ns;
            let wanted = free.min(most);
            let last = before.get(&id).map_or(wanted, |rates| rates.operations_s);
            let operations_s = if round == 0 { wanted } else { 0.6 * last + 0.4 * wanted };
            let seen = if wanted > 0.0 { load.threads * 1e9 / wanted - load.think_ns } else { 0.0 };
            let rate = Rates {
                operations_s,
                cost_ns: load.cost_ns,
                bytes_each: load.bytes_each,
                is_writing: load.is_writing,
                latency_ns: seen.max(latency),
            };
            rates.insert(id, rate);
        }
    }
    // A stopped tenant is stopped at once.
    for (id, rate) in &mut rates {
        if slowed.of(*id) == Throttle::Stopped {
            rate.operations_s = 0.0;
        }
    }
    rates
}

pub(crate) fn tenant(id: u32) -> TenantSettings {
    TenantSettings::new(TenantId(id), format!("t{id}"))
}

pub(crate) fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

pub(crate) fn millis(count: u64) -> Duration {
    Duration::from_millis(count)
}
