//! Simulated threads that access a memory model in virtual time, and their measurements.
//!
//! Each thread runs a closed loop, one access after the other. Counting starts when every thread
//! has warmed up and ends when every thread has been counted often enough. All threads keep running
//! in the meantime, which keeps the load constant.

use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_media::model::memory::{
    Accessor, Fence, MediumCounts, MemoryAccess, MemoryModel, MemoryOp, Parameters,
};

/// Bytes of the device that belong to one thread alone.
const AREA_BYTES: u64 = 4 << 30;
/// Bytes that a thread accesses to warm up. As many again are counted.
const WARM_BYTES: u64 = 2 << 20;
/// Least number of accesses in either phase.
const ACCESSES_MIN: u64 = 2;
/// Largest number of accesses in either phase. It covers whole units of the device however small
/// the accesses are.
const ACCESSES_MAX: u64 = 640;

/// Addresses of a thread's accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pattern {
    /// Random offsets in the thread's area, aligned to the size of an access or to a page.
    Random,
    /// Each access begins where the last one ended.
    Sequential,
}

impl Pattern {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Pattern::Random => "random",
            Pattern::Sequential => "sequential",
        }
    }
}

/// Threads that do the same work.
#[derive(Debug, Clone, Copy)]
pub(super) struct Group {
    pub threads: u32,
    pub op: MemoryOp,
    pub fence: Fence,
    pub bytes: u64,
    pub pattern: Pattern,
    /// Least time between the beginnings of two accesses of a thread; zero for none.
    pub period: Picos,
}

impl Group {
    /// Creates a group of threads that load.
    pub(super) fn readers(threads: u32, bytes: u64, pattern: Pattern) -> Group {
        let (op, fence, period) = (MemoryOp::Load, Fence::None, Picos::ZERO);
        Group { threads, op, fence, bytes, pattern, period }
    }

    /// Creates a group of threads that store past the caches, with a fence after each block.
    pub(super) fn writers(threads: u32, bytes: u64, pattern: Pattern) -> Group {
        let (op, fence, period) = (MemoryOp::NtStore, Fence::AtEnd, Picos::ZERO);
        Group { threads, op, fence, bytes, pattern, period }
    }

    fn accesses(&self) -> u64 {
        (WARM_BYTES / self.bytes.max(1)).clamp(ACCESSES_MIN, ACCESSES_MAX)
    }
}

/// Measurements of one group.
#[derive(Debug, Clone, Default)]
pub(super) struct Measured {
    /// Latency of each access.
    pub latencies: Vec<Picos>,
    /// Bytes transferred during the measurement.
    pub bytes: u64,
    /// Length of the measurement.
    pub time: Picos,
}

impl Measured {
    pub(super) fn mean_ns(&self) -> f64 {
        let sum: u64 = self.latencies.iter().map(|latency| latency.0).sum();
        sum as f64 / 1e3 / self.latencies.len().max(1) as f64
    }

    pub(super) fn gb_s(&self) -> f64 {
        self.bytes as f64 / self.time.as_secs_f64().max(f64::MIN_POSITIVE) / 1e9
    }
}

/// Result of a run: the groups in order, and the counts of the medium over the same time.
#[derive(Debug, Clone, Default)]
pub(super) struct Scene {
    pub groups: Vec<Measured>,
    pub counts: MediumCounts,
}

/// Runs the groups on an idle device.
pub(super) fn run(parameters: &Parameters, groups: &[Group], seed: u64) -> Scene {
    let world = World::new(WorldOptions::seeded(seed));
    let threads = groups.iter().map(|group| u64::from(group.threads)).sum();
    let state = Arc::new(Mutex::new(State {
        model: MemoryModel::new(*parameters),
        phase: Phase::Warming { threads },
        since: Picos::ZERO,
        scene: Scene { groups: vec![Measured::default(); groups.len()], ..Scene::default() },
    }));
    let (shared, groups, inner) = (Arc::clone(&state), groups.to_vec(), world.clone());
    let ended = world.run(move || {
        let mut handles = Vec::new();
        for (position, group) in groups.into_iter().enumerate() {
            for _ in 0..group.threads {
                let id = handles.len() as u32;
                let worker = Worker {
                    world: inner.clone(),
                    state: Arc::clone(&shared),
                    accessor: Accessor(id),
                    position,
                    group,
                    threads,
                    rng: inner.rng(&format!("thread {id}")),
                    done: 0,
                    counted: 0,
                };
                handles.push(thread::spawn(&format!("thread {id}"), move || worker.work()));
            }
        }
        for handle in handles {
            assert!(handle.join().is_ok(), "a simulated thread panicked");
        }
    });
    assert!(ended.is_ok(), "{ended:?}");
    state.lock().scene.clone()
}

/// Runs one group alone.
pub(super) fn alone(parameters: &Parameters, group: Group, seed: u64) -> Measured {
    run(parameters, &[group], seed).groups.swap_remove(0)
}

#[derive(Debug, Clone, Copy)]
enum Phase {
    /// Threads that have yet to warm up.
    Warming {
        threads: u64,
    },
    /// Threads that have yet to be counted often enough.
    Measuring {
        threads: u64,
    },
    Over,
}

struct State {
    model: MemoryModel,
    phase: Phase,
    since: Picos,
    scene: Scene,
}

struct Worker {
    world: World,
    state: Arc<Mutex<State>>,
    accessor: Accessor,
    position: usize,
    group: Group,
    threads: u64,
    rng: Rng,
    done: u64,
    counted: u64,
}

impl Worker {
    fn work(mut self) {
        while !matches!(self.state.lock().phase, Phase::Over) {
            let began = self.world.now();
            self.access();
            self.count(began);
            self.world.wait_until(began.after(self.group.period).max(self.world.now()));
        }
    }

    fn offset(&mut self) -> u64 {
        let bytes = self.group.bytes;
        let align = bytes.next_power_of_two().min(4096);
        let within = match self.group.pattern {
            Pattern::Random => self.rng.below((AREA_BYTES - bytes) / align) * align,
            Pattern::Sequential => self.done * bytes % (AREA_BYTES - bytes),
        };
        u64::from(self.accessor.0) * AREA_BYTES + within
    }

    fn access(&mut self) {
        let Group { op, fence, bytes, .. } = self.group;
        let access = MemoryAccess { op, offset: self.offset(), bytes, fence };
        let mut transfer = self.state.lock().model.begin(self.accessor, access);
        loop {
            let before = transfer.done();
            let later = self.state.lock().model.advance(self.world.now(), &mut transfer);
            let Some(later) = later else { return };
            self.world.wait_until(later);
            let mut state = self.state.lock();
            if matches!(state.phase, Phase::Measuring { .. }) {
                state.scene.groups[self.position].bytes += transfer.done() - before;
            }
        }
    }

    fn count(&mut self, began: Picos) {
        let now = self.world.now();
        let mut guard = self.state.lock();
        let state = &mut *guard;
        self.done += 1;
        let enough = self.group.accesses();
        if let Phase::Warming { threads } = &mut state.phase {
            *threads -= u64::from(self.done == enough);
            if *threads == 0 {
                state.phase = Phase::Measuring { threads: self.threads };
                state.since = now;
                state.scene.counts = state.model.counts();
            }
        } else if let Phase::Measuring { threads } = &mut state.phase
            && began >= state.since
        {
            self.counted += 1;
            // Every thread of a group contributes equally many latencies.
            if self.counted <= enough {
                state.scene.groups[self.position].latencies.push(now.since(began));
            }
            *threads -= u64::from(self.counted == enough);
            if *threads == 0 {
                state.phase = Phase::Over;
                state.finish(now);
            }
        }
    }
}

impl State {
    fn finish(&mut self, now: Picos) {
        let (before, after) = (self.scene.counts, self.model.counts());
        self.scene.counts = after.since(before);
        for group in &mut self.scene.groups {
            group.time = now.since(self.since);
        }
    }
}

#[cfg(test)]
mod tests {
    use entresol_media::model::memory::AEP;

    use super::*;

    #[test]
    fn bandwidth_and_latency_belong_together() {
        let readers = alone(&AEP, Group::readers(16, 256, Pattern::Random), 1);
        let from_latency = 16.0 * 256.0 / readers.mean_ns();
        assert!((readers.gb_s() / from_latency - 1.0).abs() < 0.02, "{}", readers.gb_s());
    }

    #[test]
    fn a_period_sets_the_rate() {
        let group =
            Group { period: Picos::from_micros(1), ..Group::readers(4, 256, Pattern::Random) };
        let gb_s = alone(&AEP, group, 1).gb_s();
        assert!((gb_s / 1.024 - 1.0).abs() < 0.02, "{gb_s}");
    }
}
