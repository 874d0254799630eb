//! Threads of a processor on a memory model, and a stream of accesses beside them that arrives
//! independently of the model's progress. A thread keeps as many accesses in flight as its fill
//! buffers hold lines for.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::model::memory::{
    Accessor, Fence, LINE_BYTES, MemoryAccess, MemoryModel, MemoryOp, Parameters, Transfer,
};

/// Bytes of the area from which addresses are drawn: far more than any cache holds.
const AREA_BYTES: u64 = 8 << 30;
const PAGE_BYTES: u64 = 4096;

/// Random accesses of one kind and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accesses {
    pub(super) op: MemoryOp,
    pub(super) bytes: u64,
}

/// Measurements of a thread.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) latency: Histogram,
    pub(super) gb_s: f64,
    pub(super) per_second: f64,
}

impl Accesses {
    /// Draws an offset. Blocks of a power of two are aligned to their size, other multiples of 256
    /// bytes to 256, and all others to a line.
    fn offset(&self, rng: &mut Rng) -> u64 {
        let grid = match self.bytes {
            bytes if bytes.is_power_of_two() => bytes,
            bytes if bytes.is_multiple_of(256) => 256,
            _ => LINE_BYTES,
        };
        rng.below((AREA_BYTES - PAGE_BYTES) / grid) * grid
    }

    /// Returns the number of accesses that a thread has in flight. Loads, and stores that need the
    /// line first, fill the fill buffers. Stores that go past the caches or flush each line wait
    /// for their own lines.
    fn under_way(&self, parameters: &Parameters) -> u64 {
        let lines = self.bytes.div_ceil(LINE_BYTES);
        match self.op {
            MemoryOp::Load | MemoryOp::Store => {
                let buffers = parameters.further.map_or(0, |further| further.fill_buffers);
                (buffers / lines).max(1)
            }
            _ => 1,
        }
    }

    fn access(&self, rng: &mut Rng) -> MemoryAccess {
        MemoryAccess {
            op: self.op,
            offset: self.offset(rng),
            bytes: self.bytes,
            fence: Fence::None,
        }
    }
}

/// Stream beside the measured threads: a Poisson process of `bytes_s` bytes per second, as many
/// threads together produce it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) accesses: Accesses,
    pub(super) bytes_s: f64,
}

/// Threads that do the same work, and a stream beside them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) thread: Accesses,
    pub(super) threads: u32,
    pub(super) beside: Option<Beside>,
    /// Accesses to measure, all threads together.
    pub(super) count: u64,
}

impl Scene {
    /// Creates a scene of one thread alone.
    pub(super) fn alone(thread: Accesses, count: u64) -> Scene {
        Scene { thread, threads: 1, beside: None, count }
    }
}

/// Access in flight.
#[derive(Debug)]
struct UnderWay {
    transfer: Transfer,
    since: Picos,
    /// True if a thread began the access after the warm-up.
    counted: bool,
}

/// Turn at which the next access of the stream arrives; all other turns are numbers of slots.
const ARRIVAL: u32 = u32::MAX;

struct Run {
    model: MemoryModel,
    /// Slots of accesses; those of the threads come first.
    places: Vec<Option<UnderWay>>,
    threads_places: usize,
    /// Empty slots of the stream.
    unused: Vec<u32>,
    turns: BinaryHeap<Reverse<(Picos, u32)>>,
    rng: Rng,
    rng_beside: Rng,
}

/// Runs the threads until they are warm, then measures them.
pub(super) fn run(parameters: &Parameters, scene: &Scene, seed: u64) -> Measured {
    let places = scene.thread.under_way(parameters) * u64::from(scene.threads);
    // A cache of modified lines takes a while to fill; other accesses only need to mix.
    let cached = match scene.thread.op {
        MemoryOp::Store => parameters.processor.cache_bytes / scene.thread.bytes.max(LINE_BYTES),
        _ => 0,
    };
    let mut run = Run {
        model: MemoryModel::new(*parameters),
        places: (0..places).map(|_| None).collect(),
        threads_places: places as usize,
        unused: Vec::new(),
        turns: (0..places).map(|place| Reverse((Picos::ZERO, place as u32))).collect(),
        rng: Rng::named(seed, "thread"),
        rng_beside: Rng::named(seed, "beside"),
    };
    if scene.beside.is_some() {
        run.turns.push(Reverse((Picos::ZERO, ARRIVAL)));
    }
    run.measure(scene, 2 * cached.max(2_000).max(places * 4))
}

impl Run {
    fn measure(mut self, scene: &Scene, warm_up: u64) -> Measured {
        let (mut begun, mut from, mut last) = (0, Picos::ZERO, Picos::ZERO);
        let mut latency = Histogram::new();
        while let Some(Reverse((at, place))) = self.turns.pop() {
            if place == ARRIVAL {
                self.arrive(at, scene);
                continue;
            }
            if let Some(under_way) = &mut self.places[place as usize] {
                // Each turn advances one page; accesses to the two modules take turns.
                if let Some(later) = self.model.advance(at, &mut under_way.transfer) {
                    self.turns.push(Reverse((later, place)));
                    continue;
                }
                if under_way.counted {
                    latency.record(at.since(under_way.since).into());
                }
                self.places[place as usize] = None;
            }
            if place as usize >= self.threads_places {
                self.unused.push(place);
                continue;
            }
            last = at;
            begun += 1;
            if begun == warm_up {
                from = at;
            } else if begun == warm_up + scene.count {
                break;
            }
            let access = scene.thread.access(&mut self.rng);
            self.begin(at, place, access, begun > warm_up);
        }
        let per_second = scene.count as f64 / last.since(from).as_secs_f64();
        let gb_s = per_second * scene.thread.bytes as f64 / 1e9;
        Measured { latency, gb_s, per_second }
    }

    fn begin(&mut self, at: Picos, place: u32, access: MemoryAccess, counted: bool) {
        let transfer = self.model.begin(Accessor(place), access);
        self.places[place as usize] = Some(UnderWay { transfer, since: at, counted });
        self.turns.push(Reverse((at, place)));
    }

    /// Begins the next access of the stream and schedules the one after it.
    fn arrive(&mut self, at: Picos, scene: &Scene) {
        let Some(Beside { accesses, bytes_s }) = scene.beside else { return };
        let place = self.unused.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        let access = accesses.access(&mut self.rng_beside);
        self.begin(at, place, access, false);
        let gap = Picos((accesses.bytes as f64 / bytes_s * 1e12) as u64);
        self.turns.push(Reverse((at.after(self.rng_beside.poisson_gap(gap)), ARRIVAL)));
    }
}
