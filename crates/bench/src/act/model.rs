//! The load on a model of a drive behind a host, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_base::{Picos, Stop};
use entresol_measure::host::Host;
use entresol_media::cost::Access;
use entresol_media::model::{BlockModel, ModelName};

use super::load::{INTERVALS, Interval, LARGE_BYTES, Load, Queues, Ran};

/// Part of a drive that is used.
const SPAN_BYTES: u64 = 100 << 30;
/// Events between two looks at the wish to end.
const EVENTS_AT_ONCE: u64 = 1 << 16;

/// Drive and the load on it.
#[derive(Debug, Clone)]
pub struct OnModel {
    /// Drive.
    pub model: ModelName,
    /// Load of one multiple.
    pub load: Load,
    /// Length of an interval.
    pub interval: Interval,
    /// Seed of arrivals and addresses.
    pub seed: u64,
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

struct Run {
    drive: BlockModel,
    load: Load,
    rng: Rng,
    multiple: f64,
    events: BinaryHeap<Reverse<(Picos, u64, Event)>>,
    number: u64,
    queues: Queues,
}

impl Run {
    fn expect(&mut self, at: Picos, event: Event) {
        self.number += 1;
        self.events.push(Reverse((at, self.number, event)));
    }

    /// Schedules the next arrival of a stream.
    fn go_on(&mut self, now: Picos, stream: Stream) {
        let baseline = match stream {
            Stream::Small => self.load.small_per_second,
            _ => self.load.large_per_second,
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
                let queue = self.queues.arrive(now);
                self.begin(now, queue);
            }
            Stream::LargeRead => drop(self.submit(now, Access::Read, LARGE_BYTES)),
            Stream::LargeWrite => drop(self.submit(now, Access::Write, LARGE_BYTES)),
        }
    }

    /// Lets a free thread of a queue take the next read.
    fn begin(&mut self, now: Picos, queue: usize) {
        if let Some(arrived) = self.queues.begin(queue) {
            self.expect(now.after(Host::NVME.submit), Event::Rings { queue, arrived });
        }
    }

    /// Measures response times from arrival, for each interval. Returns `None` if it was ended.
    fn run(mut self, reads_of_interval: u64, stop: &Stop) -> Option<Vec<Histogram>> {
        for stream in [Stream::Small, Stream::LargeRead, Stream::LargeWrite] {
            self.go_on(Picos::ZERO, stream);
        }
        let mut all = Vec::new();
        let mut response = Histogram::new();
        while (all.len() as u64) < INTERVALS
            && let Some(Reverse((now, number, event))) = self.events.pop()
        {
            if number.is_multiple_of(EVENTS_AT_ONCE) && stop.is_due() {
                return None;
            }
            match event {
                Event::Arrives(stream) => self.arrive(now, stream),
                Event::Rings { queue, arrived } => {
                    let done = self.submit(now, Access::Read, self.load.small_bytes);
                    let done = done.after(Host::NVME.complete);
                    self.expect(done, Event::Completes { queue, arrived });
                }
                Event::Completes { queue, arrived } => {
                    self.queues.end(queue);
                    self.begin(now, queue);
                    response.record(now.since(arrived).into());
                    if response.count() == reads_of_interval {
                        all.push(std::mem::take(&mut response));
                    }
                }
            }
        }
        Some(all)
    }
}

impl OnModel {
    /// Runs a multiple of the load. Returns `None` if it was ended, or the model is no drive.
    #[must_use]
    pub fn run(&self, multiple: u32, stop: &Stop) -> Option<Ran> {
        self.run_on(BlockModel::of(self.model)?, multiple, stop)
    }

    /// Runs a multiple of the load on a drive that differs from the model of this name. Returns
    /// `None` if it was ended.
    #[must_use]
    pub fn run_on(&self, drive: BlockModel, multiple: u32, stop: &Stop) -> Option<Ran> {
        let OnModel { model: name, load, interval, seed } = *self;
        let run = Run {
            drive,
            load,
            rng: Rng::named(seed, &format!("act {name} {multiple}")),
            multiple: f64::from(multiple),
            events: BinaryHeap::new(),
            number: 0,
            queues: Queues::new(&load),
        };
        let reads = interval.reads(load.small_per_second * f64::from(multiple));
        let intervals = run.run(reads.max(1), stop)?;
        // The drive takes large requests when they arrive: what it cannot do in time makes small
        // reads wait.
        Some(Ran { intervals, kept_up: true, late: 0.0 })
    }

    /// Describes the parts that a paper leaves open, for a report.
    #[must_use]
    pub fn choices(&self) -> String {
        let interval = match self.interval {
            Interval::Reads(reads) => format!("of {reads} small reads"),
            Interval::Time(time) => format!("of {} s", time.as_secs_f64()),
        };
        format!(
            "Poisson arrivals, response times from arrival, {INTERVALS} intervals {interval}, {} \
             GiB of each drive",
            SPAN_BYTES >> 30,
        )
    }
}
