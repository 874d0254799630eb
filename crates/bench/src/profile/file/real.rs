//! File of this machine under measurement: the project's own block files and queues, one thread,
//! the system's clock.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, Nanos, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::arrivals::PoissonArrivals;
use entresol_media::block::BlockFile;
use entresol_media::cost::Access;
use entresol_media::machine::{DiskReads, FileDisk};
use entresol_media::model::ModelName;
use entresol_media::probe::{Order, PROFILE_MAGIC, Positions};
use entresol_media::{
    BlockOptions, IoBuffer, IoCompletion, IoQueue, IoRequest, files, machine, open_block_file,
};
use fastrand::Rng;

use super::{Closed, FileSubject, Open, Outcome, PAGE_BYTES, TimeSplit, draw_access};
use crate::profile::{Fact, ProfileOptions, ROUNDS, today};

const SIZE_QUICK: ByteSize = ByteSize::gib(1);
const SIZE_FULL: ByteSize = ByteSize::gib(4);
const SIZE_MIN: ByteSize = ByteSize::mib(64);
/// Size of the header at the beginning of the file, which is not measured.
const HEADER_BYTES: u64 = 1 << 20;
/// Size of the requests that fill the file before the measurement.
const FILL_BYTES: usize = 1 << 20;
/// Largest number of requests in flight in an open loop; further requests wait, and their time
/// counts.
const OPEN_DEPTH: usize = 256;
/// Least time until the next request for which the thread sleeps in the kernel, whose timers are
/// about 60 us late.
const SLEEP_MIN: Duration = Duration::from_micros(200);
/// Pause before reads, since a drive still processes buffered writes for some time.
const REST: Duration = Duration::from_millis(250);
/// Delay from which the generator submitted a request late.
const LATE: Duration = Duration::from_micros(50);

/// File under measurement.
pub(super) struct RealFile {
    file: Arc<dyn BlockFile>,
    model: Option<ModelName>,
    made: Option<PathBuf>,
    time: Duration,
    /// True if there were writes since the file was last at rest.
    has_written: bool,
    rng: Rng,
    clock: SystemClock,
}

fn failed(path: &Path) -> impl Fn(std::io::Error) -> BenchError + use<'_> {
    move |source| BenchError::File { path: path.into(), source }
}

impl RealFile {
    /// Opens or creates the file and writes all of it, since blocks that were never written are not
    /// read from the disk.
    pub(super) fn open(
        path: &Path,
        model: Option<ModelName>,
        options: &ProfileOptions,
    ) -> Result<RealFile, BenchError> {
        let size = options.size.unwrap_or(if options.full { SIZE_FULL } else { SIZE_QUICK });
        if size < SIZE_MIN {
            return Err(BenchError::Usage(format!("--size {size}: at least {SIZE_MIN}")));
        }
        let made = (!files::exists(path) && !options.keep).then(|| path.to_path_buf());
        let block = BlockOptions {
            create: Some(size.0),
            grow: true,
            magic: Some(PROFILE_MAGIC),
            model,
            ..BlockOptions::default()
        };
        let file = open_block_file(path, &block).map_err(|e| BenchError::Usage(e.to_string()))?;
        let measured = RealFile {
            file,
            model,
            made,
            time: Duration::from_millis(if options.full { 250 } else { 25 }),
            has_written: true,
            rng: Rng::with_seed(options.seed),
            clock: SystemClock::new(),
        };
        measured.fill().map_err(failed(path))?;
        Ok(measured)
    }

    fn fill(&self) -> std::io::Result<()> {
        // A slowed file takes the model's time for this. Holes would be read without the disk.
        let mut buffer = IoBuffer::new(FILL_BYTES);
        Rng::with_seed(7).fill(&mut buffer);
        let mut at = HEADER_BYTES;
        while at + FILL_BYTES as u64 <= self.file.len() {
            self.file.write_at(at, &buffer)?;
            at += FILL_BYTES as u64;
        }
        self.file.sync()
    }

    fn positions(&mut self, order: Order, bytes: usize) -> Positions {
        let end = self.file.len() / HEADER_BYTES * HEADER_BYTES;
        Positions::new(HEADER_BYTES..end, order, bytes, self.rng.u64(..1 << 40))
    }

    /// Returns the next position, aligned to a sector.
    fn place(&self, positions: &mut Positions) -> u64 {
        let sector = self.file.alignment().offset;
        positions.next_offset() / sector * sector
    }

    fn queue(&self, depth: usize) -> Result<Box<dyn IoQueue>, BenchError> {
        Arc::clone(&self.file).queue(depth).map_err(failed(self.file.path()))
    }

    /// Waits until the drive has processed earlier writes.
    fn come_to_rest(&mut self) -> std::io::Result<()> {
        if std::mem::take(&mut self.has_written) {
            self.file.sync()?;
            self.clock_sleep(REST);
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

    fn run_open(&mut self, load: &Open, queue: &mut dyn IoQueue) -> std::io::Result<Outcome> {
        self.has_written |= load.reads < 1.0;
        let mut positions = self.positions(Order::Random, PAGE_BYTES);
        let mut due_of = vec![Nanos(0); OPEN_DEPTH];
        let mut spare: Vec<(u64, IoBuffer)> =
            (0..OPEN_DEPTH as u64).map(|token| (token, queue.buffer(PAGE_BYTES))).collect();
        let mut waiting: VecDeque<Nanos> = VecDeque::new();
        let mut done: Vec<IoCompletion> = Vec::new();
        let mut outcome = Outcome::default();
        let start = self.clock.now();
        let end = start.after(load.time);
        // The load is abandoned after four times its length.
        let limit = end.after(load.time * 3);
        let mut arrivals = PoissonArrivals::new(start, load.per_second, self.rng.u64(..));
        let (mut late, mut now, mut due_all) = (0_u64, start, 0_u64);
        loop {
            while arrivals.due() < end
                && let Some(due) = arrivals.take(now)
            {
                due_all += 1;
                // Waiting behind other requests is due to the medium; late detection is due to the
                // generator.
                late += u64::from(now.since(due) > LATE && !spare.is_empty());
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
            if over || now > limit {
                break;
            }
            self.pause(queue, &arrivals, now)?;
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
        outcome.late = late as f64 / due_all.max(1) as f64;
        Ok(outcome)
    }

    /// Sleeps until a completion if no request falls due for a while; otherwise returns at once.
    fn pause(
        &self,
        queue: &mut dyn IoQueue,
        arrivals: &PoissonArrivals,
        now: Nanos,
    ) -> std::io::Result<()> {
        let until_due = arrivals.due().since(now);
        if until_due < SLEEP_MIN {
            return Ok(());
        }
        let time = until_due - SLEEP_MIN / 2;
        if queue.in_flight() == 0 {
            self.clock_sleep(time)
        } else {
            queue.wait(Some(time))?
        }
        Ok(())
    }

    fn clock_sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }

    /// Returns true if reads go past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        self.file.is_direct()
    }

    /// Breaks down reads that complete by interrupt, then those that are polled for.
    pub(super) fn both_splits(&mut self) -> Result<[TimeSplit; 2], BenchError> {
        let path = self.file.path().to_path_buf();
        let mut queue = self.queue(1)?;
        let interrupt = self.split("interrupt", queue.as_mut()).map_err(failed(&path))?;
        drop(queue);
        let polls = FileDisk::of(&path).map(|disk| (disk.can_be_polled(), disk.name()));
        let polled = match (polls, Arc::clone(&self.file).polled_queue(1)) {
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
        let disk = FileDisk::of(self.file.path());
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

fn submit(queue: &mut dyn IoQueue, request: IoRequest) -> std::io::Result<()> {
    let full = |_| std::io::Error::other("the queue takes fewer requests than it was made for");
    queue.submit(request).map_err(full)
}

impl FileSubject for RealFile {
    fn sector_bytes(&self) -> usize {
        self.file.alignment().offset as usize
    }

    fn closed(&mut self, load: &Closed) -> Result<Outcome, BenchError> {
        let mut queue = self.queue(load.depth)?;
        let path = self.file.path().to_path_buf();
        self.run_closed(load, queue.as_mut()).map_err(failed(&path))
    }

    fn open(&mut self, load: &Open) -> Result<Outcome, BenchError> {
        let mut queue = self.queue(OPEN_DEPTH)?;
        let path = self.file.path().to_path_buf();
        self.run_open(load, queue.as_mut()).map_err(failed(&path))
    }

    fn splits(&mut self) -> Result<Vec<TimeSplit>, BenchError> {
        self.both_splits().map(Vec::from)
    }

    fn facts(&self) -> Vec<Fact> {
        let disk = FileDisk::of(self.file.path())
            .map_or_else(|| "no disk that the kernel names".to_owned(), |disk| disk.name());
        let way = if self.file.is_direct() { "past the page cache" } else { "the page cache" };
        let mut facts = vec![
            Fact {
                name: "file",
                text: format!(
                    "{} on {disk}, written before; by {}, {way}; sectors of {}",
                    ByteSize(self.file.len()),
                    self.file.backend(),
                    ByteSize(self.sector_bytes() as u64),
                ),
            },
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
        for remark in self.file.remarks() {
            facts.push(Fact { name: "remark", text: remark.clone() });
        }
        facts
    }

    fn kind(&self) -> String {
        match self.model {
            Some(model) => format!("file slowed to the model of {model} (emulated)"),
            None => "file".to_owned(),
        }
    }

    fn origin(&self) -> [String; 2] {
        [machine::describe(), today()]
    }
}

impl Drop for RealFile {
    fn drop(&mut self) {
        if let Some(path) = &self.made {
            // If this fails, the file remains; its first bytes show that it may be removed.
            let _ = files::remove(path);
        }
    }
}
