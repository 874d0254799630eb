//! Threads of a processor on a memory model, each with as many accesses under way as its fill
//! buffers hold lines for, and streams beside them that come whatever happens.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use entresol_base::Picos;
use entresol_base::histogram::Histogram;
use entresol_base::rng::Rng;
use entresol_media::model::memory::{
    Accessor, Fence, LINE_BYTES, MemoryAccess, MemoryModel, MemoryOp, Parameters,
};

/// What accesses are drawn from: far more than any cache holds.
const AREA_BYTES: u64 = 8 << 30;
const PAGE_BYTES: u64 = 4096;

/// Random accesses of one kind and size.
#[derive(Debug, Clone, Copy)]
pub(super) struct Accesses {
    pub(super) op: MemoryOp,
    pub(super) bytes: u64,
}

/// What was measured of a thread.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) latency: Histogram,
    pub(super) gb_s: f64,
    pub(super) per_second: f64,
}

impl Accesses {
    /// Blocks of a power of two lie on multiples of themselves, other multiples of 256 bytes on
    /// those, all others anywhere on the grid of lines.
    fn offset(&self, rng: &mut Rng) -> u64 {
        let grid = match self.bytes {
            bytes if bytes.is_power_of_two() => bytes,
            bytes if bytes.is_multiple_of(256) => 256,
            _ => LINE_BYTES,
        };
        rng.below((AREA_BYTES - PAGE_BYTES) / grid) * grid
    }

    /// How many of them a thread has under way: loads, and stores that need the line first, as
    /// many as the fill buffers hold. What goes past the caches or is flushed line by line waits
    /// for its own lines.
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

/// A stream beside the thread that is looked at: a Poisson process of so many bytes a second, as
/// many threads yield it together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Beside {
    pub(super) accesses: Accesses,
    pub(super) bytes_s: f64,
}

/// What runs: threads that do the same, and what runs beside them.
#[derive(Debug, Clone, Copy)]
pub(super) struct Scene {
    pub(super) thread: Accesses,
    pub(super) threads: u32,
    pub(super) beside: Option<Beside>,
    /// Accesses to measure, all threads together.
    pub(super) count: u64,
}

impl Scene {
    /// One thread alone.
    pub(super) fn alone(thread: Accesses, count: u64) -> Scene {
        Scene { thread, threads: 1, beside: None, count }
    }
}

/// Lets the threads run until they are warm, and then for as long as is to be measured.
pub(super) fn run(parameters: &Parameters, scene: &Scene, seed: u64) -> Measured {
    let Scene { thread, threads, beside, count } = *scene;
    let mut model = MemoryModel::new(*parameters);
    let [mut rng, mut rng_beside] = ["thread", "beside"].map(|name| Rng::named(seed, name));
    let slots = thread.under_way(parameters) * u64::from(threads);
    // A cache of changed lines takes a while to fill; other accesses only need to mix.
    let cached = match thread.op {
        MemoryOp::Store => parameters.processor.cache_bytes / thread.bytes.max(LINE_BYTES),
        _ => 0,
    };
    let warm_up = 2 * cached.max(2_000).max(slots * 4);
    let other = Accessor(slots as u32);
    let mut turns: BinaryHeap<Reverse<(Picos, u32)>> =
        (0..slots).map(|slot| Reverse((Picos::ZERO, slot as u32))).collect();
    let gap = beside.map(|b| Picos((b.accesses.bytes as f64 / b.bytes_s * 1e12) as u64));
    if gap.is_some() {
        turns.push(Reverse((Picos::ZERO, other.0)));
    }
    let (mut done, mut from, mut last) = (0, Picos::ZERO, Picos::ZERO);
    let mut latency = Histogram::new();
    while let Some(Reverse((at, slot))) = turns.pop() {
        if let (Some(beside), Some(gap), true) = (beside, gap, slot == other.0) {
            model.access(at, other, beside.accesses.access(&mut rng_beside));
            turns.push(Reverse((at.after(rng_beside.poisson_gap(gap)), slot)));
            continue;
        }
        last = at;
        done += 1;
        if done == warm_up {
            from = at;
        } else if done == warm_up + count {
            break;
        }
        let end = model.access(at, Accessor(slot), thread.access(&mut rng));
        if done > warm_up {
            latency.record(end.since(at).into());
        }
        turns.push(Reverse((end, slot)));
    }
    let per_second = count as f64 / last.since(from).as_secs_f64();
    Measured { latency, gb_s: per_second * thread.bytes as f64 / 1e9, per_second }
}
