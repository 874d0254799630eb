//! Load on a drive behind a host, in virtual time. In an open loop requests arrive independently of
//! the drive; in a closed loop a constant number is in flight.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::cost::Access;
use entresol_media::model::BlockModel;

use entresol_measure::host::{Completion, Host};

/// Bytes of a request in figures 5, 7 and 8 of 004: random blocks of 4 KiB, 70% reads.
pub(super) const BLOCK_BYTES: u32 = 4096;
const READS_PERCENT: u64 = 70;
/// Blocks of the drive from which addresses are drawn: 160 GB.
const BLOCKS: u64 = 40_000_000;
/// Divisor of the requests that gives the number at the start that is not counted.
const WARM_UP_SHARE: u64 = 10;

/// Arrival of requests.
#[derive(Debug, Clone, Copy)]
pub(super) enum Load {
    /// Poisson process of `per_second` requests.
    Open { per_second: f64 },
    /// Constant number of requests in flight.
    Closed { depth: usize },
}

/// Results of a run.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    /// Response times from the due time of a request until the application has its result.
    pub(super) response: Histogram,
    /// Completed requests per second.
    pub(super) per_second: f64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Due,
    Doorbell,
    Completed,
}

#[derive(Debug, Clone, Copy)]
struct Request {
    due: Picos,
    processor: usize,
    counted: bool,
}

/// State of a run.
struct Run<'a> {
    host: &'a Host,
    drive: &'a mut BlockModel,
    rng: Rng,
    events: BinaryHeap<Reverse<(Picos, Step, usize)>>,
    requests: Vec<Request>,
    unused: Vec<usize>,
    processors: Vec<Picos>,
    next_processor: usize,
}

/// Runs `count` requests and measures all but the first tenth.
pub(super) fn run(
    host: &Host,
    drive: &mut BlockModel,
    load: Load,
    count: u64,
    rng: Rng,
) -> Measured {
    let processors = match load {
        Load::Closed { depth } => depth.min(host.processors),
        Load::Open { .. } => host.processors,
    };
    let run = Run {
        host,
        drive,
        rng,
        events: BinaryHeap::new(),
        requests: Vec::new(),
        unused: Vec::new(),
        processors: vec![Picos::ZERO; processors],
        next_processor: 0,
    };
    run.run(load, count)
}

impl Run<'_> {
    fn run(mut self, load: Load, count: u64) -> Measured {
        let warm_up = count / WARM_UP_SHARE;
        let first = match load {
            Load::Closed { depth } => depth as u64,
            Load::Open { .. } => 1,
        };
        let (mut come, mut done, mut from) = (first, 0, Picos::ZERO);
        (0..first).for_each(|_| self.expect(Picos::ZERO, false));
        let mut response = Histogram::new();
        let mut last = Picos::ZERO;
        while let Some(Reverse((at, step, slot))) = self.events.pop() {
            match step {
                Step::Due => {
                    self.submit(at, slot);
                    if let Load::Open { per_second } = load
                        && come < count
                    {
                        let gap = self.rng.poisson_gap(Picos((1e12 / per_second) as u64));
                        self.expect(at.after(gap), come >= warm_up);
                        come += 1;
                    }
                }
                Step::Doorbell => self.ring(at, slot),
                Step::Completed => {
                    let end = self.complete(at, slot);
                    let request = self.requests[slot];
                    self.unused.push(slot);
                    done += 1;
                    if done == warm_up {
                        from = end;
                    }
                    if request.counted {
                        response.record(end.since(request.due).into());
                    }
                    last = last.max(end);
                    if matches!(load, Load::Closed { .. }) && come < count {
                        self.expect(end, come >= warm_up);
                        come += 1;
                    }
                }
            }
        }
        let seconds = last.since(from).as_secs_f64();
        Measured { response, per_second: (done - warm_up) as f64 / seconds }
    }

    /// Schedules a request that is due at `due`.
    fn expect(&mut self, due: Picos, counted: bool) {
        let processor = self.next_processor;
        self.next_processor = (processor + 1) % self.processors.len();
        let request = Request { due, processor, counted };
        let slot = self.unused.pop().unwrap_or_else(|| {
            self.requests.push(request);
            self.requests.len() - 1
        });
        self.requests[slot] = request;
        self.events.push(Reverse((due, Step::Due, slot)));
    }

    /// Submits a request as soon as its processor is free.
    fn submit(&mut self, at: Picos, slot: usize) {
        let processor = &mut self.processors[self.requests[slot].processor];
        *processor = at.max(*processor).after(self.host.submit);
        let doorbell = processor.after(Picos(self.host.adapter.0 / 2));
        self.events.push(Reverse((doorbell, Step::Doorbell, slot)));
    }

    fn ring(&mut self, at: Picos, slot: usize) {
        let reads = self.rng.below(100) < READS_PERCENT;
        let access = if reads { Access::Read } else { Access::Write };
        let offset = self.rng.below(BLOCKS) * u64::from(BLOCK_BYTES);
        let done = self.drive.submit(at, access, offset, BLOCK_BYTES);
        let seen = done.after(Picos(self.host.adapter.0 - self.host.adapter.0 / 2));
        if self.host.completion == Completion::Polled {
            // The processor does nothing but poll until then.
            self.processors[self.requests[slot].processor] = seen;
        }
        self.events.push(Reverse((seen, Step::Completed, slot)));
    }

    fn complete(&mut self, at: Picos, slot: usize) -> Picos {
        let processor = &mut self.processors[self.requests[slot].processor];
        *processor = at.max(*processor).after(self.host.complete);
        *processor
    }
}
