//! Run of one workload: its threads, and the kernel's counts while they work.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::ScopedJoinHandle;
use std::time::Duration;

use entresol_base::{Clock, Nanos, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::process::{
    Resident, bytes_written, on_threads, own_cpu_ns, resident, stolen_ns, thread_cpu_ns,
};
use entresol_measure::progress::Progress;
use entresol_measure::ycsb::Population;
use entresol_media::files;

use super::engine::Nothing;
use super::result::{Counted, VolumeResult, WorkloadResult};
use super::space::SpaceWatch;
use super::worker::{Share, Shared, Tally, Worker};
use super::{Engine, VolumeWritten, Workload, YcsbOptions};

/// Interval at which progress is shown and memory is measured.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// Operations without a store that measure the cost of the generator.
const GENERATOR_OPERATIONS: u64 = 100_000;

/// Results of the threads of a workload.
struct Worked {
    tally: Tally,
    /// Tally of the writer beside the workload.
    writer: Option<Tally>,
    /// End of the last thread.
    ended: Nanos,
    /// Largest memory that was measured.
    memory: Resident,
}

/// One workload on a store.
pub(super) struct Phase<'a> {
    pub(super) options: &'a YcsbOptions,
    pub(super) workload: Workload,
    pub(super) population: &'a Population,
}

impl Phase<'_> {
    pub(super) fn run(
        &self,
        engine: &dyn Engine,
        clock: &SystemClock,
        progress: &Progress,
    ) -> Result<WorkloadResult, BenchError> {
        let generator_cpu_ns = self.generator_cpu_ns(clock)?;
        let (written, to_volumes) = (bytes_written().ok(), engine.written()?);
        let (began, cpu, stolen) = (clock.now(), own_cpu_ns(), stolen_ns()?);
        let mut space = SpaceWatch::new(self, engine, began);
        let Worked { mut tally, writer, ended, memory } =
            self.work(engine, clock, (progress, &mut space))?;
        tally.user_bytes += writer.as_ref().map_or(0, |writer| writer.user_bytes);
        // Writes that are not durable yet, and memtables that are being flushed, belong to the
        // workload that issued them.
        if tally.user_bytes > 0 {
            engine.sync()?;
            engine.finish_flushes(&|| progress.is_stopped())?;
            if self.options.settle && !progress.is_stopped() {
                engine.settle()?;
                engine.sync()?;
            }
        }
        let written = written.zip(bytes_written().ok()).map(|(from, to)| to.saturating_sub(from));
        let volumes = volumes(&to_volumes, engine.written()?);
        let space = space.finish(&volumes)?;
        let counted = Counted {
            duration: ended.since(began),
            with_settling: clock.now().since(began),
            cpu_ns: own_cpu_ns() - cpu,
            generator_cpu_ns,
            stolen_ns: stolen_ns()?.saturating_sub(stolen),
            // File systems in memory are not counted.
            bytes_written: written.filter(|bytes| *bytes > 0 || tally.user_bytes == 0),
            memory,
            directory_bytes: self.options.directories().map(bytes_of).sum(),
            volumes,
            space,
            writer,
        };
        Ok(WorkloadResult::new(self.options, self.workload, &tally, counted))
    }

    fn shared<'a>(&'a self, engine: &'a dyn Engine, clock: &'a SystemClock) -> Shared<'a> {
        Shared {
            options: self.options,
            workload: self.workload,
            population: self.population,
            engine,
            clock,
            done: AtomicU64::new(0),
            is_over: AtomicBool::new(false),
        }
    }

    /// Runs the workload on all threads, and the writer beside it until they have ended.
    fn work(
        &self,
        engine: &dyn Engine,
        clock: &SystemClock,
        (progress, space): (&Progress, &mut SpaceWatch<'_>),
    ) -> Result<Worked, BenchError> {
        let shared = self.shared(engine, clock);
        let working = AtomicU64::new(self.options.threads as u64);
        let (tallies, writer, memory) = std::thread::scope(|scope| {
            let watch = scope.spawn(|| self.watch(&shared, &working, (progress, space)));
            let rate = self.options.writer_ops_s.filter(|_| self.workload != Workload::Load);
            let beside = &shared;
            let writer = rate.map(|rate| scope.spawn(move || self.write_beside(beside, rate)));
            let tallies = on_threads(0..self.options.threads as u64, |number| {
                let worker = Worker::new(&shared, self.seed(number));
                let tally = worker.and_then(|worker| worker.work(self.share(number, clock)));
                if tally.is_err() {
                    shared.is_over.store(true, Relaxed);
                }
                let ended = clock.now();
                working.fetch_sub(1, Relaxed);
                tally.map(|tally| (tally, ended))
            });
            shared.is_over.store(true, Relaxed);
            let join = |writer: ScopedJoinHandle<'_, _>| match writer.join() {
                Ok(written) => written,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            (tallies, writer.map(join), watch.join().unwrap_or_default())
        });
        let (mut tally, mut ended) = (Tally::default(), Nanos(0));
        for result in tallies {
            let (of_thread, at) = result?;
            tally.merge(&of_thread);
            ended = ended.max(at);
        }
        Ok(Worked { tally, writer: writer.transpose()?, ended, memory })
    }

    /// Overwrites keys at a rate until the workload is over. A failure ends the workload.
    fn write_beside(&self, shared: &Shared<'_>, rate: f64) -> Result<Tally, BenchError> {
        let seed = self.seed(self.options.threads as u64);
        let share = Share { operations: u64::MAX, until: None, rate_ops_s: Some(rate), seed };
        let written = Worker::beside(shared, seed).and_then(|worker| worker.work(share));
        if written.is_err() {
            shared.is_over.store(true, Relaxed);
        }
        written
    }

    /// Shows progress until all threads have ended and returns the largest memory that was
    /// measured.
    fn watch(
        &self,
        shared: &Shared<'_>,
        working: &AtomicU64,
        (progress, space): (&Progress, &mut SpaceWatch<'_>),
    ) -> Resident {
        let mut most = Resident::default();
        let mut told = 0;
        loop {
            let is_last = working.load(Relaxed) == 0;
            let done = shared.done.load(Relaxed);
            progress.advance(done - std::mem::replace(&mut told, done));
            space.look(shared.clock.now(), done);
            let now = resident().unwrap_or_default();
            most.all_bytes = most.all_bytes.max(now.all_bytes);
            most.anonymous_bytes = most.anonymous_bytes.max(now.anonymous_bytes);
            if progress.is_stopped() {
                shared.is_over.store(true, Relaxed);
            }
            if is_last {
                // A shorter run leaves a part of the bar.
                progress.advance(self.operations().saturating_sub(done));
                return most;
            }
            std::thread::park_timeout(LOOK_EVERY);
        }
    }

    fn operations(&self) -> u64 {
        match self.workload {
            Workload::Load => self.options.keys,
            _ => self.options.operations,
        }
    }

    fn seed(&self, number: u64) -> u64 {
        let workload = self.workload as u64;
        self.options.seed.wrapping_mul(1 << 16).wrapping_add(workload << 8).wrapping_add(number)
    }

    fn share(&self, number: u64, clock: &SystemClock) -> Share {
        let threads = self.options.threads as u64;
        let (each, rest) = (self.operations() / threads, self.operations() % threads);
        let duration = self.options.duration.filter(|_| self.workload != Workload::Load);
        Share {
            operations: each + u64::from(number < rest),
            until: duration.map(|duration| clock.now().after(duration)),
            rate_ops_s: self.options.rate_ops_s.map(|rate| rate / threads as f64),
            seed: self.seed(number),
        }
    }

    /// Returns the processor time of one operation without a store: keys, values, draws and clocks.
    fn generator_cpu_ns(&self, clock: &SystemClock) -> Result<f64, BenchError> {
        let options = YcsbOptions { verify: false, ..self.options.clone() };
        let population = Population::of(self.options.keys);
        let phase = Phase { options: &options, workload: self.workload, population: &population };
        let shared = phase.shared(&Nothing, clock);
        let worker = Worker::new(&shared, 1)?;
        let operations = GENERATOR_OPERATIONS.min(self.operations());
        let share = Share { operations, until: None, rate_ops_s: None, seed: 1 };
        let before = thread_cpu_ns();
        worker.work(share)?;
        Ok((thread_cpu_ns() - before) as f64 / operations as f64)
    }
}

/// Returns the bytes written to each volume since `before`, and the size of its files.
fn volumes(before: &[VolumeWritten], now: Vec<VolumeWritten>) -> Vec<VolumeResult> {
    let result = |VolumeWritten { class, directory, written }: VolumeWritten| {
        let before = before.iter().find(|before| before.directory == directory);
        let written = before.map_or(written, |before| written.since(&before.written));
        VolumeResult {
            class,
            bytes_written: written.sum(),
            written,
            directory_bytes: bytes_of(&directory),
            directory: directory.display().to_string(),
        }
    };
    now.into_iter().map(result).collect()
}

pub(super) fn bytes_of(directory: &Path) -> u64 {
    files::tree_bytes(directory).unwrap_or(0)
}
