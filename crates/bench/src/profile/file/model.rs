//! Model of a drive under measurement: requests in virtual time, with equal results on every
//! machine.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::clock::{Nanos, Picos};
use entresol_base::histogram::Histogram;
use entresol_measure::BenchError;
use entresol_measure::arrivals::PoissonArrivals;
use entresol_media::model::ModelName;
use entresol_media::model::block::BlockModel;
use entresol_media::probe::{Order, Positions};
use fastrand::Rng;

use super::{Closed, FileSubject, Open, Outcome, TimeSplit, draw_access};
use crate::profile::{Fact, ProfileOptions};

/// Bytes of the drive that requests touch.
const DRIVE_BYTES: u64 = 64 << 30;
/// Least length of a closed loop in virtual time.
const SAMPLE: Picos = Picos(100_000_000_000);
/// Least number of requests of a closed loop.
const REQUESTS_MIN: u64 = 400;
/// Requests of an open loop between two looks at the wish to end.
const STOP_LOOKED_AT: u64 = 1 << 16;
/// Largest number of requests of a closed loop.
const REQUESTS_MAX: u64 = 20_000;
/// Multiples of the drive's buffer that are written before a loop with writes counts.
const FILLINGS: u64 = 2;

/// Model under measurement.
pub(super) struct ModelFile {
    name: ModelName,
    idle: BlockModel,
    /// Drive of the open loops, with the virtual time below; each load continues from the previous
    /// one.
    open: BlockModel,
    now: Picos,
    rng: Rng,
}

impl ModelFile {
    pub(super) fn new(name: ModelName, options: &ProfileOptions) -> Result<ModelFile, BenchError> {
        let model = BlockModel::of(name).ok_or_else(|| {
            BenchError::Usage(format!("model:{name} is no model of a drive in this version"))
        })?;
        let (open, rng) = (model.clone(), Rng::with_seed(options.seed));
        Ok(ModelFile { name, idle: model, open, now: Picos(0), rng })
    }
}

impl ModelFile {
    /// Returns the number of requests of a load until the drive's buffer is full, 0 if it need not
    /// be.
    fn requests_to_fill(&self, load: &Closed) -> u64 {
        let drive = self.idle.parameters();
        let piece = match load.order {
            Order::Random => (load.bytes as u64).next_multiple_of(drive.mapping_bytes),
            _ => load.bytes as u64,
        };
        let writes = FILLINGS * drive.buffer_bytes / piece.max(1);
        match load.fills_buffers() {
            true => ((writes as f64 / (1.0 - load.reads)) as u64).min(REQUESTS_MAX),
            false => 0,
        }
    }
}

fn duration(from: Picos, to: Picos) -> Duration {
    Duration::from_nanos((to.0 - from.0) / 1000)
}

impl FileSubject for ModelFile {
    fn sector_bytes(&self) -> usize {
        512
    }

    fn closed(&mut self, load: &Closed) -> Result<Outcome, BenchError> {
        // Each load has a new drive, unaffected by the buffers that the previous load filled.
        let mut drive = self.idle.clone();
        let mut to_fill = self.requests_to_fill(load);
        let seed = self.rng.u64(..);
        let mut positions = Positions::new(0..DRIVE_BYTES, load.order, load.bytes, seed);
        let mut flights: BinaryHeap<Reverse<(Picos, Picos)>> = BinaryHeap::new();
        let mut times = Histogram::new();
        let (mut submitted, mut requests) = (0_u64, 0_u64);
        let (mut now, mut start) = (Picos(0), Picos(0));
        loop {
            let more = submitted < REQUESTS_MIN || (now.0 - start.0) < SAMPLE.0;
            while flights.len() < load.depth && more && submitted < REQUESTS_MAX {
                let access = draw_access(&mut self.rng, load.reads);
                let offset = positions.next_offset() / 512 * 512;
                let done = drive.submit(now, access, offset, load.bytes as u32);
                flights.push(Reverse((done, now)));
                submitted += 1;
            }
            let Some(Reverse((done, began))) = flights.pop() else { break };
            now = now.max(done);
            if to_fill > 0 {
                to_fill -= 1;
                (submitted, start) = (0, now);
                continue;
            }
            times.record(duration(began, done));
            requests += 1;
        }
        let elapsed_ns = (now.0 - start.0) as f64 / 1000.0;
        Ok(Outcome { requests, due: requests, elapsed_ns, times, late: Histogram::new() })
    }

    fn open(&mut self, load: &Open, stop: &Stop) -> Result<Outcome, BenchError> {
        let start = self.now;
        let mut arrivals = PoissonArrivals::new(Nanos(0), load.per_second, self.rng.u64(..));
        let mut positions =
            Positions::new(0..DRIVE_BYTES, Order::Random, load.bytes, self.rng.u64(..));
        let mut times = Histogram::new();
        let (mut requests, mut last) = (0, start);
        while let Some(due) = arrivals.take(Nanos(load.time.as_nanos() as u64)) {
            if requests % STOP_LOOKED_AT == 0 && stop.is_due() {
                break;
            }
            let at = Picos(start.0 + due.0 * 1000);
            let access = draw_access(&mut self.rng, load.reads);
            let offset = positions.next_offset() / 512 * 512;
            let done = self.open.submit(at, access, offset, load.bytes as u32);
            times.record(duration(at, done));
            last = last.max(done);
            requests += 1;
        }
        self.now = last;
        let elapsed_ns = (last.0 - start.0) as f64 / 1000.0;
        Ok(Outcome { requests, due: requests, elapsed_ns, times, late: Histogram::new() })
    }

    fn splits(&mut self) -> Result<Vec<TimeSplit>, BenchError> {
        // All of a model's time is the device's.
        Ok(Vec::new())
    }

    fn facts(&self) -> Vec<Fact> {
        vec![Fact {
            name: "virtual time",
            text: "a model of a drive answered, not a drive: every figure is exact and the same \
                   on any machine, and as right as the model; there is no host in it"
                .to_owned(),
        }]
    }

    fn kind(&self) -> String {
        "model in virtual time".to_owned()
    }

    fn origin(&self) -> [String; 2] {
        [format!("a model of {}, in virtual time", self.name), String::new()]
    }
}
