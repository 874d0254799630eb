//! File of this machine under measurement: the project's own block files and queues, one thread,
//! the system's clock.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, Nanos, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::PoissonArrivals;
use entresol_media::cost::Access;
use entresol_media::machine::{DiskReads, FileDisk};
use entresol_media::model::ModelName;
use entresol_media::probe::{Order, Positions};
use entresol_media::{IoBuffer, IoCompletion, IoQueue, IoRequest, machine};
use fastrand::Rng;

use super::{Closed, FileSubject, Open, Outcome, PAGE_BYTES, TimeSplit, draw_access};
use crate::profile::{Fact, ProfileOptions, ROUNDS, today};
use crate::raw_file::{RawFile, failed, pause, submit};

const SIZE_QUICK: ByteSize = ByteSize::gib(1);
const SIZE_FULL: ByteSize = ByteSize::gib(4);
/// Largest number of requests in flight in an open loop; further requests wait, and their time
/// counts.
const OPEN_DEPTH: usize = 256;
/// Pause before reads, since a drive still processes buffered writes for some time.
const REST: Duration = Duration::from_millis(250);

/// File under measurement.
pub(super) struct RealFile {
    raw: RawFile,
    time: Duration,
    /// True if there were writes since the file was last at rest.
    has_written: bool,
    rng: Rng,
    clock: SystemClock,
}

impl RealFile {
    /// Opens or creates the file and fills it.
    pub(super) fn open(
        path: &Path,
        model: Option<ModelName>,
        options: &ProfileOptions,
        stop: &Stop,
    ) -> Result<RealFile, BenchError> {
        let size = options.size.unwrap_or(if options.full { SIZE_FULL } else { SIZE_QUICK });
        Ok(RealFile {
            raw: RawFile::open(path, model, size, options.keep, stop)?,
            time: Duration::from_millis(if options.full { 250 } else { 25 }),
            has_written: true,
            rng: Rng::with_seed(options.seed),
            clock: SystemClock::new(),
        })
    }

    fn positions(&mut self, order: Order, bytes: usize) -> Positions {
        Positions::new(self.raw.span(), order, bytes, self.rng.u64(..1 << 40))
    }

    /// Returns the next position, aligned to a sector.
    fn place(&self, positions: &mut Positions) -> u64 {
        let sector = self.raw.file.alignment().offset;
        positions.next_offset() / sector * sector
    }

    /// Waits until the drive has processed earlier writes.
    fn come_to_rest(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.has_written) {
            self.raw.file.sync()?;
            std::thread::sleep(REST);
        }
        Ok(())
    }

    fn run_closed(&mut self, load: &Closed, queue: &mut dyn IoQueue) -> std::io::Result<Outcome> {
        if load.reads >= 1.0 {
            self.come_to_rest()?;
        } else {
            self.has_written = true;
        }
        let mut positions = self.positions(load.order, load.bytes);
        let mut began = vec![Nanos(0); load.depth];
        let mut spare: Vec<(u64, IoBuffer)> =
            (0..load.depth as u64).map(|token| (token, queue.buffer(load.bytes))).collect();
        let mut done: Vec<IoCompletion> = Vec::new();
        let mut outcome = Outcome::default();
        let mut now = self.clock.now();
        let filled_at = if load.fills_buffers() { now.after(self.time) } else { now };
        let (mut start, mut end) = (None, filled_at.after(self.time));
        loop {
            if start.is_none() && now >= filled_at {
                (start, end) = (Some(now), now.after(self.time));
                outcome = Outcome::default();
            }
            if now < end {
                for (token, buffer) in spare.drain(..) {
                    let access = draw_access(&mut self.rng, load.reads);
                    let offset = self.place(&mut positions);
                    began[token as usize] = now;
                    submit(queue, IoRequest { access, offset, buffer, token })?;
                }
            }
            if queue.in_flight() == 0 {
                break;
            }
            queue.wait(None)?;
            queue.reap(&mut done);
            now = self.clock.now();
            for completion in done.drain(..) {
                completion.result?;
                outcome.times.record(now.since(began[completion.token as usize]));
                outcome.requests += 1;
                spare.push((completion.token, completion.buffer));
            }
        }
        let start = start.unwrap_or(filled_at);
        outcome.elapsed_ns = self.clock.now().since(start).as_nanos() as f64;
        Ok(outcome)
    }

    fn run_open(
        &mut self,
        load: &Open,
        queue: &mut dyn IoQueue,
        stop: &Stop,
    ) -> std::io::Result<Outcome> {
        self.has_written |= load.reads < 1.0;
        let mut positions = self.positions(Order::Random, load.bytes);
        let mut due_of = vec![Nanos(0); OPEN_DEPTH];
        let mut spare: Vec<(u64, IoBuffer)> =
            (0..OPEN_DEPTH as u64).map(|token| (token, queue.buffer(load.bytes))).collect();
        let mut waiting: VecDeque<Nanos> = VecDeque::new();
        let mut done: Vec<IoCompletion> = Vec::new();
        let mut outcome = Outcome::default();
        let start = self.clock.now();
        let end = start.after(load.time);
        // The load is abandoned after four times its length.
        let limit = end.after(load.time * 3);
        let mut arrivals = PoissonArrivals::new(start, load.per_second, self.rng.u64(..));
        let (mut now, mut due_all) = (start, 0_u64);
        loop {
            while arrivals.due() < end
                && let Some(due) = arrivals.take(now)
            {
                due_all += 1;
                // Waiting behind other requests is due to the medium; late detection is due to the
                // generator.
                let late = if spare.is_empty() { Duration::ZERO } else { now.since(due) };
                outcome.late.record(late);
                waiting.push_back(due);
            }
            while !waiting.is_empty()
                && let Some((token, buffer)) = spare.pop()
            {
                due_of[token as usize] = waiting.pop_front().unwrap_or(now);
                let access = draw_access(&mut self.rng, load.reads);
                let offset = self.place(&mut positions);
                submit(queue, IoRequest { access, offset, buffer, token })?;
            }
            queue.kick()?;
            let over = arrivals.due() >= end && waiting.is_empty() && queue.in_flight() == 0;
            if over || now > limit || stop.is_due() {
                break;
            }
            pause(queue, arrivals.due().since(now))?;
            queue.reap(&mut done);
            now = self.clock.now();
            for completion in done.drain(..) {
                completion.result?;
                outcome.times.record(now.since(due_of[completion.token as usize]));
                outcome.requests += 1;
                spare.push((completion.token, completion.buffer));
            }
        }
        outcome.elapsed_ns = self.clock.now().since(start).as_nanos() as f64;
        outcome.due = due_all;
        Ok(outcome)
    }

    /// Returns true if reads go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.raw.file.is_direct()
    }

    /// Breaks down reads that complete by interrupt, then those that are polled for.
    pub(super) fn both_splits(&mut self) -> Result<[TimeSplit; 2], BenchError> {
        let path = self.raw.file.path().to_path_buf();
        let mut queue = self.raw.queue(1)?;
        let interrupt = self.split("interrupt", queue.as_mut()).map_err(failed(&path))?;
        drop(queue);
        let polls = FileDisk::of(&path).map(|disk| (disk.can_be_polled(), disk.name()));
        let polled = match (polls, Arc::clone(&self.raw.file).polled_queue(1)) {
            (Some((true, _)), Ok(mut queue)) => {
                self.split("polling", queue.as_mut()).map_err(failed(&path))?
            }
            (Some((false, name)), _) => TimeSplit::refused(
                "polling",
                format!("{name} has no queues to poll (queue/io_poll in /sys/block is 0)"),
            ),
            (None, _) => TimeSplit::refused("polling", "the file lies on no disk".to_owned()),
            (_, Err(error)) => TimeSplit::refused("polling", error.to_string()),
        };
        Ok([interrupt, polled])
    }

    /// Runs one read after another and reads the clock before and after each call into the queue.
    fn split(
        &mut self,
        completion: &'static str,
        queue: &mut dyn IoQueue,
    ) -> std::io::Result<TimeSplit> {
        self.come_to_rest()?;
        let disk = FileDisk::of(self.raw.file.path());
        let before = disk.as_ref().and_then(FileDisk::reads);
        let mut positions = self.positions(Order::Random, PAGE_BYTES);
        let mut buffer = Some(queue.buffer(PAGE_BYTES));
        let mut done: Vec<IoCompletion> = Vec::new();
        let (mut reads, mut inside_ns) = (0_u64, 0_u128);
        let start = self.clock.now();
        let end = start.after(self.time * 40);
        let mut now = start;
        while now < end {
            let offset = self.place(&mut positions);
            let Some(bytes) = buffer.take() else { break };
            let request = IoRequest { access: Access::Read, offset, buffer: bytes, token: 0 };
            submit(queue, request)?;
            let entered = self.clock.now();
            while done.is_empty() {
                queue.wait(None)?;
                queue.reap(&mut done);
            }
            now = self.clock.now();
            inside_ns += now.since(entered).as_nanos();
            for completion in done.drain(..) {
                completion.result?;
                buffer = Some(completion.buffer);
            }
            reads += 1;
        }
        let total_us = now.since(start).as_nanos() as f64 / 1000.0 / reads.max(1) as f64;
        let inside_us = inside_ns as f64 / 1000.0 / reads.max(1) as f64;
        let after = disk.as_ref().and_then(FileDisk::reads);
        Ok(split_up(completion, [total_us, inside_us], reads, before.zip(after)))
    }
}

/// Separates the parts of the time by the kernel's counts over the same reads.
fn split_up(
    completion: &'static str,
    [total_us, inside_us]: [f64; 2],
    reads: u64,
    counted: Option<(DiskReads, DiskReads)>,
) -> TimeSplit {
    let counted = counted.map(|(before, after)| DiskReads {
        count: after.count - before.count,
        time_ms: after.time_ms - before.time_ms,
    });
    let Some(counted) = counted.filter(|counted| counted.count >= reads) else {
        let why = "the kernel counts no reads for what this file lies on".to_owned();
        return TimeSplit { total_us, ..TimeSplit::refused(completion, why) };
    };
    let device_us = (counted.time_ms as f64 * 1000.0 / counted.count as f64).min(inside_us);
    let others_share = 1.0 - reads as f64 / counted.count.max(1) as f64;
    TimeSplit {
        completion,
        refused: None,
        total_us,
        application_us: total_us - inside_us,
        system_us: inside_us - device_us,
        device_us,
        reads,
        others_share,
        method: format!(
            "application: time outside the queue's calls; device: the kernel's own count of read \
             time (/sys/dev/block/*/stat) over {} reads, from making the block request to its \
             completion, so the driver, the interrupt and on a virtual machine the host are in it, \
             and it is an upper bound; its unit of 1 ms makes an error of {:.2} us; {:.1}% of \
             these reads were of other programs; system: the rest",
            counted.count,
            1000.0 / counted.count as f64,
            others_share * 100.0,
        ),
    }
}

impl FileSubject for RealFile {
    fn sector_bytes(&self) -> usize {
        self.raw.file.alignment().offset as usize
    }

    fn closed(&mut self, load: &Closed) -> Result<Outcome, BenchError> {
        let mut queue = self.raw.queue(load.depth)?;
        let path = self.raw.file.path().to_path_buf();
        self.run_closed(load, queue.as_mut()).map_err(failed(&path))
    }

    fn open(&mut self, load: &Open, stop: &Stop) -> Result<Outcome, BenchError> {
        let mut queue = self.raw.queue(OPEN_DEPTH)?;
        let path = self.raw.file.path().to_path_buf();
        self.run_open(load, queue.as_mut(), stop).map_err(failed(&path))
    }

    fn splits(&mut self) -> Result<Vec<TimeSplit>, BenchError> {
        self.both_splits().map(Vec::from)
    }

    fn facts(&self) -> Vec<Fact> {
        let mut facts = vec![
            Fact { name: "file", text: self.raw.describe() },
            Fact {
                name: "samples",
                text: format!(
                    "median of {ROUNDS} rounds over all figures, samples of {} ms, one thread; ± \
                     is half the range; response times over load are of one round",
                    self.time.as_millis()
                ),
            },
            Fact {
                name: "not controlled",
                text: "other programs, other machines on the same hardware, the disk's own cache \
                       and its state of wear"
                    .to_owned(),
            },
        ];
        for remark in self.raw.file.remarks() {
            facts.push(Fact { name: "remark", text: remark.clone() });
        }
        facts
    }

    fn kind(&self) -> String {
        self.raw.kind()
    }

    fn origin(&self) -> [String; 2] {
        [machine::describe(), today()]
    }
}
