//! Aerospike's certification tool (ACT): small reads in an open loop beside the large reads and
//! writes of a log-structured store, on one drive behind a host.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::convert::Infallible;

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::cost::Access;
use entresol_media::model::{BlockModel, ModelName};

use super::drive;
use super::host::Host;

/// Small reads a second of the baseline, 1.5 KB each.
pub(super) const SMALL_PER_SECOND: f64 = 1_000.0;
pub(super) const SMALL_BYTES: u32 = 1_536;
/// Bytes a second of the baseline's large reads, and of its large writes.
const LARGE_BYTES_PER_SECOND: f64 = 1_536_000.0;
const LARGE_BYTES: u32 = 128 << 10;
/// Queues of small reads, and the threads of each.
pub(super) const QUEUES: usize = 8;
pub(super) const THREADS: usize = 8;
/// Part of each drive that is used.
const SPAN_BYTES: u64 = 100 << 30;
/// Intervals of a run that are judged apart, and the small reads of each.
pub(super) const INTERVALS: u64 = 2;
const READS_OF_INTERVAL: u64 = 60_000;

/// Limits of response times in microseconds at the 95th, 99th and 99.9th percentile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits(pub(super) [f64; 3]);

impl Limits {
    /// Limits of the tool.
    pub(super) const STANDARD: Limits = Limits([1_000.0, 8_000.0, 64_000.0]);
    /// Limits that the paper tightens.
    pub(super) const TIGHT: Limits = Limits([128.0, 8_000.0, 64_000.0]);

    pub(super) fn hold(self, response: &Histogram) -> bool {
        [95.0, 99.0, 99.9]
            .iter()
            .zip(self.0)
            .all(|(percent, most)| response.percentile_us(*percent) <= most)
    }
}

/// Stream of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Stream {
    Small,
    LargeRead,
    LargeWrite,
}

/// Event of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// The next request of a stream arrives.
    Arrives(Stream),
    /// A queue's small read that arrived at a time reaches the drive.
    Rings { queue: usize, arrived: Picos },
    /// The drive has completed a queue's small read.
    Completes { queue: usize, arrived: Picos },
}

/// Small reads of a queue that wait for a thread, and its threads that wait for reads.
#[derive(Debug, Clone)]
struct Queue {
    waiting: VecDeque<Picos>,
    free: usize,
}

struct Run {
    drive: BlockModel,
    rng: Rng,
    multiple: f64,
    events: BinaryHeap<Reverse<(Picos, u64, Event)>>,
    number: u64,
    queues: Vec<Queue>,
    next_queue: usize,
}

impl Run {
    fn expect(&mut self, at: Picos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// Schedules the next arrival of a stream.
    fn go_on(&mut self, now: Picos, stream: Stream) {
        let baseline = match stream {
            Stream::Small => SMALL_PER_SECOND,
            _ => LARGE_BYTES_PER_SECOND / f64::from(LARGE_BYTES),
        };
        let mean = Picos((1e12 / (baseline * self.multiple)) as u64);
        let gap = self.rng.poisson_gap(mean);
        self.expect(now.after(gap), Event::Arrives(stream));
    }

    fn submit(&mut self, at: Picos, access: Access, bytes: u32) -> Picos {
        let offset = self.rng.below(SPAN_BYTES / u64::from(bytes)) * u64::from(bytes);
        self.drive.submit(at, access, offset, bytes)
    }

    fn arrive(&mut self, now: Picos, stream: Stream) {
        self.go_on(now, stream);
        match stream {
            Stream::Small => {
                let queue = self.next_queue;
                self.next_queue = (queue + 1) % QUEUES;
                self.queues[queue].waiting.push_back(now);
                self.begin(now, queue);
            }
            Stream::LargeRead => drop(self.submit(now, Access::Read, LARGE_BYTES)),
            Stream::LargeWrite => drop(self.submit(now, Access::Write, LARGE_BYTES)),
        }
    }

    /// Lets a free thread of a queue take the next read.
    fn begin(&mut self, now: Picos, queue: usize) {
        let all = &mut self.queues[queue];
        if all.free == 0 {
            return;
        }
        let Some(arrived) = all.waiting.pop_front() else { return };
        all.free -= 1;
        self.expect(now.after(Host::NVME.submit), Event::Rings { queue, arrived });
    }

    /// Measures response times from arrival, for each interval.
    fn run(mut self) -> Vec<Histogram> {
        for stream in [Stream::Small, Stream::LargeRead, Stream::LargeWrite] {
            self.go_on(Picos::ZERO, stream);
        }
        let mut all = Vec::new();
        let mut response = Histogram::new();
        while (all.len() as u64) < INTERVALS
            && let Some(Reverse((now, _, event))) = self.events.pop()
        {
            match event {
                Event::Arrives(stream) => self.arrive(now, stream),
                Event::Rings { queue, arrived } => {
                    let done = self.submit(now, Access::Read, SMALL_BYTES);
                    let done = done.after(Host::NVME.complete);
                    self.expect(done, Event::Completes { queue, arrived });
                }
                Event::Completes { queue, arrived } => {
                    self.queues[queue].free += 1;
                    self.begin(now, queue);
                    response.record(now.since(arrived).into());
                    if response.count() == READS_OF_INTERVAL {
                        all.push(std::mem::take(&mut response));
                    }
                }
            }
        }
        all
    }
}

/// Runs a multiple of the baseline on a drive. Returns the response times of each interval.
fn run(name: ModelName, multiple: u32, seed: u64) -> Vec<Histogram> {
    let run = Run {
        drive: drive(name),
        rng: Rng::named(seed, &format!("act {name} {multiple}")),
        multiple: f64::from(multiple),
        events: BinaryHeap::new(),
        number: 0,
        queues: vec![Queue { waiting: VecDeque::new(), free: THREADS }; QUEUES],
        next_queue: 0,
    };
    run.run()
}

/// Finds the largest multiple of the baseline at which every interval on a drive keeps the limits.
pub(super) fn best_multiple(name: ModelName, limits: Limits, seed: u64) -> u32 {
    let holds = |multiple| Ok(run(name, multiple, seed).iter().all(|it| limits.hold(it)));
    largest::<Infallible>(holds).unwrap_or_else(|never| match never {})
}

/// Finds the largest multiple that holds: doubled until one does not, then halved between. Zero if
/// the baseline fails.
pub(super) fn largest<E>(mut holds: impl FnMut(u32) -> Result<bool, E>) -> Result<u32, E> {
    let mut above = 1;
    while holds(above)? {
        above *= 2;
    }
    let mut best = above / 2;
    while above - best > 1 {
        let between = best.midpoint(above);
        if holds(between)? { best = between } else { above = between }
    }
    Ok(best)
}

/// Description of the load, for the scenario.
pub(super) fn scenario() -> String {
    format!(
        "ACT's baseline: {SMALL_PER_SECOND} random reads of {SMALL_BYTES} B a second, {QUEUES} \
         queues of {THREADS} threads, beside 1.536 MB/s of 128 KiB reads and of 128 KiB writes, \
         times the multiple. Chosen: Poisson arrivals, response times from arrival, {INTERVALS} \
         intervals of {READS_OF_INTERVAL} small reads for the two hours, {} GiB of each drive.",
        SPAN_BYTES >> 30,
    )
}
