//! Memory of a model: simulated threads in virtual time. The same loads give the same nanoseconds
//! on every machine.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

use entresol_base::clock::Picos;
use entresol_measure::BenchError;
use entresol_media::model::ModelName;
use entresol_media::model::memory::{
    Accessor, Fence, MemoryAccess, MemoryModel, MemoryOp, Parameters, Transfer,
};
use entresol_media::probe::{
    Fences, LINE_BYTES, Order, Positions, StoreMethod, Task, Touch, UNIT_BYTES, permuted,
};

use super::{MemorySubject, Rate};

/// Bytes of the area that is read, and of the area after it that is written.
const PART_BYTES: u64 = 1 << 30;
/// Time before blocks count; the module's buffers fill in less. A thread's first block never
/// counts.
const WARM_UP: Picos = Picos(30_000_000);
/// Least length of a sample in virtual time. Shorter ones find the two modules of `aep2` unevenly
/// busy, by up to 14% of a rate.
const SAMPLE: Picos = Picos(240_000_000);
/// Least number of blocks of each thread in a sample.
const BLOCKS_MIN: u64 = 2;

/// Model under measurement.
pub(in crate::profile) struct ModelMemory {
    model: MemoryModel,
    now: Picos,
    /// Blocks touched so far, by kind of task.
    touched: BTreeMap<(bool, Order, usize), u64>,
}

impl ModelMemory {
    /// Creates the memory model of this name.
    pub(in crate::profile) fn new(name: ModelName) -> Result<ModelMemory, BenchError> {
        let parameters = Parameters::of(name).ok_or_else(|| {
            BenchError::Usage(format!("model:{name} is no model of memory in this version"))
        })?;
        let model = MemoryModel::new(parameters);
        Ok(ModelMemory { model, now: Picos(0), touched: BTreeMap::new() })
    }

    fn key(task: &Task) -> (bool, Order, usize) {
        (matches!(task.touch, Touch::Write(..)), task.order, task.block_bytes.max(LINE_BYTES))
    }
}

/// Simulated thread.
struct Thread {
    task: Task,
    /// Number of the next block of a chain.
    number: u64,
    positions: Positions,
    /// Range of the current block that has not begun yet.
    left: (u64, u64),
    transfer: Option<Transfer>,
    /// Blocks that count, and below it the blocks before them.
    blocks: u64,
    blocks_before: u64,
    since: Picos,
    ended_at: Picos,
}

impl Thread {
    fn new(task: Task, first: u64) -> Thread {
        let start = if matches!(task.touch, Touch::Write(..)) { PART_BYTES } else { 0 };
        let range = start..start + PART_BYTES;
        Thread {
            task,
            number: first,
            positions: Positions::new(range, task.order, task.block_bytes, first),
            left: (0, 0),
            transfer: None,
            blocks: 0,
            blocks_before: 0,
            since: Picos(0),
            ended_at: Picos(0),
        }
    }

    fn next_offset(&mut self) -> u64 {
        if (self.task.touch, self.task.order) != (Touch::ReadInTurn, Order::Random) {
            return self.positions.next_offset();
        }
        let stride = self.task.block_bytes.max(LINE_BYTES) as u64;
        let blocks = PART_BYTES / stride;
        self.number = (self.number + 1) % blocks;
        permuted(self.number, blocks) * stride
    }

    /// Begins the next access: the rest of the block up to its next fence, or a new block.
    fn begin(&mut self, model: &mut MemoryModel, accessor: Accessor) -> Transfer {
        if self.left.0 >= self.left.1 {
            let at = self.next_offset();
            self.left = (at, at + self.task.block_bytes as u64);
        }
        let (from, end) = self.left;
        let unit = UNIT_BYTES as u64;
        let to = match self.task.touch {
            Touch::Write(_, Fences::EachUnit) => ((from / unit + 1) * unit).min(end),
            _ => end,
        };
        self.left.0 = to;
        let (op, fence) = match self.task.touch {
            Touch::Write(StoreMethod::Streaming, _) => (MemoryOp::NtStore, Fence::AtEnd),
            Touch::Write(..) => (MemoryOp::StoreFlush, Fence::AtEnd),
            Touch::Read | Touch::ReadInTurn => (MemoryOp::Load, Fence::None),
        };
        model.begin(accessor, MemoryAccess { op, offset: from, bytes: to - from, fence })
    }
}

impl MemorySubject for ModelMemory {
    fn sample(&mut self, tasks: &[Task]) -> Result<Vec<Rate>, BenchError> {
        let mut threads: Vec<Thread> = tasks
            .iter()
            .enumerate()
            .map(|(number, task)| {
                let before = self.touched.get(&ModelMemory::key(task)).copied().unwrap_or(0);
                let blocks = PART_BYTES / task.block_bytes.max(LINE_BYTES) as u64;
                Thread::new(*task, before + blocks / tasks.len() as u64 * number as u64)
            })
            .collect();
        let start = self.now;
        let warm = start.after(WARM_UP);
        let end = warm.after(SAMPLE);
        let mut turns: BinaryHeap<Reverse<(Picos, usize)>> =
            (0..threads.len()).map(|number| Reverse((start, number))).collect();
        while let Some(Reverse((at, number))) = turns.pop() {
            let thread = &mut threads[number];
            let accessor = Accessor(number as u32);
            let mut transfer = match thread.transfer.take() {
                Some(transfer) => transfer,
                None => thread.begin(&mut self.model, accessor),
            };
            if let Some(later) = self.model.advance(at, &mut transfer) {
                thread.transfer = Some(transfer);
                turns.push(Reverse((later, number)));
                continue;
            }
            if thread.left.0 >= thread.left.1 {
                if at <= warm || thread.blocks_before == 0 {
                    thread.blocks_before += 1;
                    thread.since = at;
                } else {
                    thread.blocks += 1;
                }
                thread.ended_at = at;
            }
            if at < end || thread.blocks < BLOCKS_MIN {
                turns.push(Reverse((at, number)));
            }
        }
        self.now = threads.iter().map(|thread| thread.ended_at).max().unwrap_or(start);
        for thread in &threads {
            *self.touched.entry(ModelMemory::key(&thread.task)).or_default() +=
                thread.blocks + thread.blocks_before;
        }
        let rate = |thread: &Thread| Rate {
            blocks: thread.blocks,
            elapsed_ns: (thread.ended_at.0 - thread.since.max(start).0) as f64 / 1000.0,
        };
        Ok(threads.iter().map(rate).collect())
    }
}
