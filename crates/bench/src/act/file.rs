//! The load on a file or a drive of this machine, past the page cache, by one thread.

use std::collections::VecDeque;

use entresol_base::histogram::Histogram;
use entresol_base::{Clock, Nanos, Picos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::PoissonArrivals;
use entresol_media::cost::Access;
use entresol_media::{IoBuffer, IoCompletion, IoQueue, IoRequest};
use fastrand::Rng;

use super::load::{INTERVALS, Interval, LARGE_BYTES, LATE_MAX, Load, Queues, Ran, Span};
use crate::raw_file::{LATE, RawFile, failed, pause, submit};

/// Largest number of large requests in flight. More wait, as all but one of each kind do in the
/// tool.
const LARGE_DEPTH: usize = 64;
/// Longest time by which requests may fall behind, as in the tool.
const LAG_MAX: Picos = Picos::from_secs(10);
/// Divisor of an interval that gives a shorter such time: then a tenth of the interval's reads have
/// waited, and it has failed.
const LAG_PART: u64 = 10;

/// File and the load on it.
pub(super) struct OnFile {
    pub(super) raw: RawFile,
    pub(super) load: Load,
    pub(super) interval: Interval,
    pub(super) seed: u64,
}

/// Request that a token stands for.
#[derive(Debug, Clone, Copy)]
enum Flight {
    /// Small read of a queue.
    Small { queue: usize, due: Picos },
    /// Large request.
    Large { due: Picos },
}

/// Stream of large requests.
struct Large {
    access: Access,
    arrivals: PoissonArrivals,
    waiting: VecDeque<Picos>,
}

/// State of a run.
struct Run<'a> {
    on: &'a OnFile,
    span: Span,
    rng: Rng,
    small: PoissonArrivals,
    small_bytes: u64,
    queues: Queues,
    large: [Large; 2],
    flights: Vec<Option<Flight>>,
    spare_small: Vec<(u64, IoBuffer)>,
    spare_large: Vec<(u64, IoBuffer)>,
    arrived: u64,
    late: u64,
    intervals: Vec<Histogram>,
    /// Times of the large requests that arrive in the last interval.
    last_large: Histogram,
}

impl OnFile {
    /// Runs a multiple of the load. Returns `None` if it was ended.
    pub(super) fn run(&self, multiple: u32, stop: &Stop) -> Result<Option<Ran>, BenchError> {
        let small = self.load.queues * self.load.threads;
        let mut queue = self.raw.queue(small + LARGE_DEPTH)?;
        let clock = SystemClock::new();
        let run = Run::new(self, f64::from(multiple), clock.now(), queue.as_mut());
        let path = self.raw.file.path().to_path_buf();
        run.run(queue.as_mut(), &clock, stop).map_err(failed(&path))
    }

    pub(super) fn small_bytes(&self) -> u64 {
        u64::from(self.load.small_bytes).next_multiple_of(self.raw.file.alignment().offset)
    }
}

impl<'a> Run<'a> {
    fn new(on: &'a OnFile, multiple: f64, begun: Nanos, queue: &mut dyn IoQueue) -> Run<'a> {
        let Load { small_per_second, large_per_second, queues, threads, .. } = on.load;
        let mut rng = Rng::with_seed(on.seed ^ multiple.to_bits());
        let per_second = small_per_second * multiple;
        let length = on.interval.length(per_second);
        let small_bytes = on.small_bytes();
        let depth = queues * threads;
        let mut buffers = |tokens: std::ops::Range<usize>, bytes: usize| {
            let buffer = |token| {
                let mut buffer = queue.buffer(bytes);
                rng.fill(&mut buffer);
                (token as u64, buffer)
            };
            tokens.map(buffer).collect::<Vec<_>>()
        };
        let spare_small = buffers(0..depth, small_bytes as usize);
        let spare_large = buffers(depth..depth + LARGE_DEPTH, LARGE_BYTES as usize);
        let mut arrivals = |rate| PoissonArrivals::new(begun, rate, rng.u64(..));
        let small = arrivals(per_second);
        let large = [Access::Read, Access::Write].map(|access| Large {
            access,
            arrivals: arrivals(large_per_second * multiple),
            waiting: VecDeque::new(),
        });
        Run {
            on,
            span: Span { begun: begun.into(), length },
            small,
            small_bytes,
            queues: Queues::new(&on.load),
            large,
            flights: vec![None; depth + LARGE_DEPTH],
            spare_small,
            spare_large,
            arrived: 0,
            late: 0,
            intervals: vec![Histogram::new(); INTERVALS as usize],
            last_large: Histogram::new(),
            rng,
        }
    }

    fn run(
        mut self,
        queue: &mut dyn IoQueue,
        clock: &SystemClock,
        stop: &Stop,
    ) -> std::io::Result<Option<Ran>> {
        let lag_max = LAG_MAX.min(Picos(self.span.length.0 / LAG_PART));
        let end = Nanos::from(self.span.end());
        let mut done: Vec<IoCompletion> = Vec::new();
        let mut kept_up = true;
        loop {
            let now = clock.now();
            self.take_small(now.min(end), now, queue)?;
            self.take_large(now.min(end), queue)?;
            queue.kick()?;
            let oldest = self.oldest();
            if now >= end && oldest.is_none() && queue.in_flight() == 0 {
                break;
            }
            if oldest.is_some_and(|due| Picos::from(now).since(due) > lag_max) {
                kept_up = false;
                break;
            }
            if stop.is_due() {
                return Ok(None);
            }
            let all = self.large.iter().map(|large| large.arrivals.due());
            let due = all.fold(self.small.due(), Nanos::min);
            pause(queue, if due >= end { LATE * 4 } else { due.since(now) })?;
            queue.reap(&mut done);
            let now = Picos::from(clock.now());
            for completion in done.drain(..) {
                self.complete(completion, now, queue)?;
            }
        }
        let late_max_us = self.span.end().since(self.span.begun).as_secs_f64() * LATE_MAX * 1e6;
        Ok(Some(Ran {
            intervals: self.intervals,
            kept_up: kept_up && self.last_large.percentile_us(50.0) <= late_max_us,
            late: self.late as f64 / self.arrived.max(1) as f64,
        }))
    }

    /// Returns the earliest arrival of the requests that wait.
    fn oldest(&self) -> Option<Picos> {
        let large = self.large.iter().filter_map(|large| large.waiting.front().copied());
        self.queues.oldest().into_iter().chain(large).min()
    }

    /// Takes the small reads that are due by `until`, and begins those that a thread is free for.
    fn take_small(
        &mut self,
        until: Nanos,
        now: Nanos,
        queue: &mut dyn IoQueue,
    ) -> std::io::Result<()> {
        while let Some(due) = self.small.take(until) {
            self.arrived += 1;
            let number = self.queues.arrive(due.into());
            // Waiting behind other requests is due to the medium; late detection is due to the
            // generator.
            if self.begin_small(number, queue)? && now.since(due) > LATE {
                self.late += 1;
            }
        }
        Ok(())
    }

    /// Begins the next read of a queue if one of its threads is free. Returns true if so.
    fn begin_small(&mut self, number: usize, queue: &mut dyn IoQueue) -> std::io::Result<bool> {
        let Some(due) = self.queues.begin(number) else { return Ok(false) };
        // There are as many buffers as threads.
        let Some((token, buffer)) = self.spare_small.pop() else { return Ok(false) };
        self.flights[token as usize] = Some(Flight::Small { queue: number, due });
        let offset = self.place(self.small_bytes);
        submit(queue, IoRequest { access: Access::Read, offset, buffer, token })?;
        Ok(true)
    }

    fn take_large(&mut self, until: Nanos, queue: &mut dyn IoQueue) -> std::io::Result<()> {
        for stream in 0..self.large.len() {
            while let Some(due) = self.large[stream].arrivals.take(until) {
                self.large[stream].waiting.push_back(due.into());
            }
            let access = self.large[stream].access;
            while let Some(&due) = self.large[stream].waiting.front()
                && let Some((token, buffer)) = self.spare_large.pop()
            {
                self.large[stream].waiting.pop_front();
                self.flights[token as usize] = Some(Flight::Large { due });
                let offset = self.place(u64::from(LARGE_BYTES));
                submit(queue, IoRequest { access, offset, buffer, token })?;
            }
        }
        Ok(())
    }

    /// Draws the place of a request.
    fn place(&mut self, bytes: u64) -> u64 {
        let span = self.on.raw.span();
        span.start + self.rng.u64(..(span.end - span.start) / bytes) * bytes
    }

    fn complete(
        &mut self,
        completion: IoCompletion,
        now: Picos,
        queue: &mut dyn IoQueue,
    ) -> std::io::Result<()> {
        completion.result?;
        let spare = (completion.token, completion.buffer);
        match self.flights[completion.token as usize].take() {
            Some(Flight::Small { queue: number, due }) => {
                self.intervals[self.span.interval(due)].record(now.since(due).into());
                self.spare_small.push(spare);
                self.queues.end(number);
                self.begin_small(number, queue)?;
            }
            Some(Flight::Large { due }) => {
                if due >= self.span.last() {
                    self.last_large.record(now.since(due).into());
                }
                self.spare_large.push(spare);
            }
            None => {}
        }
        Ok(())
    }
}
