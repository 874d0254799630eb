//! Holdout test of the model. The fitted parameters are found again from every other row of tables
//! 3 to 8 and predict the rows between, which shows whether the model predicts or merely repeats.

use entresol_base::clock::Picos;
use entresol_base::size::ByteSize;
use entresol_measure::report::table::number;
use entresol_media::model::memory::{
    Accessor, Fence, MemoryAccess, MemoryModel, MemoryOp, Parameters,
};

use super::tables::{
    Column, LARGE, SMALL, TABLE3, TABLE4, TABLE5, TABLE6, TABLE7_DRAM, TABLE8_DRAM,
};
use super::{AEP, DRAM, Outcome, Settings, scenario};
use crate::check::Check;

/// The two devices, which share a processor.
#[derive(Debug, Clone, Copy)]
struct Devices {
    aep: Parameters,
    dram: Parameters,
}

/// Cell of a table.
#[derive(Debug, Clone, Copy)]
struct Row {
    table: u32,
    dram: bool,
    op: MemoryOp,
    sequential: bool,
    bytes: u64,
    paper_ns: f64,
    /// True if the parameters are fitted to this row.
    fitted: bool,
}

/// Parameter whose shipped value is discarded and found again.
struct Free {
    name: &'static str,
    /// Operation whose latency depends on the parameter.
    op: MemoryOp,
    /// Value from which the search begins: a round number, equal for parameters of one kind.
    begin: u64,
    at: fn(&mut Devices) -> &mut u64,
}

const fn free(
    name: &'static str,
    op: MemoryOp,
    begin: u64,
    at: fn(&mut Devices) -> &mut u64,
) -> Free {
    Free { name, op, begin, at }
}

const LOAD: MemoryOp = MemoryOp::Load;
const STORE: MemoryOp = MemoryOp::NtStore;
const GUESS: u64 = 100_000;

/// Every parameter that devices.rs calls fitted. Those of the processor are read from `aep` and
/// copied.
const FREE: [Free; 18] = [
    free("AEP unit_read, ps", LOAD, GUESS, |d| &mut d.aep.module.unit_read.0),
    free("AEP jump, ps", LOAD, GUESS, |d| &mut d.aep.module.jump.0),
    free("AEP unit_read_ahead, ps", LOAD, GUESS, |d| &mut d.aep.module.unit_read_ahead.0),
    free("AEP line_read, ps", LOAD, GUESS / 10, |d| &mut d.aep.module.line_read.0),
    free("AEP buffered_line, ps", LOAD, GUESS, |d| &mut d.aep.module.buffered_line.0),
    free("cached_word, ps", LOAD, GUESS / 10, |d| &mut d.aep.processor.cached_word.0),
    free("refetch, 1/1000", LOAD, 1_000, |d| &mut d.aep.processor.refetch_milli),
    free("AEP store_latency, ps", STORE, GUESS, |d| &mut d.aep.module.store_latency.0),
    free("AEP partial_line, ps", STORE, GUESS, |d| &mut d.aep.module.partial_line.0),
    free("AEP write_bytes_s", STORE, 1_000_000_000, |d| &mut d.aep.module.write_bytes_s),
    free("store_line, ps", STORE, GUESS / 10, |d| &mut d.aep.processor.store_line.0),
    free("store_pace, ps", STORE, GUESS / 10, |d| &mut d.aep.processor.store_pace.0),
    free("late, 1/1000", STORE, 1_000, |d| &mut d.aep.processor.late_milli),
    free("DRAM unit_read, ps", LOAD, GUESS / 10, |d| &mut d.dram.module.unit_read.0),
    free("DRAM jump, ps", LOAD, GUESS / 10, |d| &mut d.dram.module.jump.0),
    free("DRAM line_read, ps", LOAD, GUESS / 10, |d| &mut d.dram.module.line_read.0),
    free("DRAM store_latency, ps", STORE, GUESS, |d| &mut d.dram.module.store_latency.0),
    free("DRAM partial_line, ps", STORE, GUESS, |d| &mut d.dram.module.partial_line.0),
];

fn rows(fit_even: bool) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut table = |table, dram, op, sequential, sizes: [u64; 8], column: &Column| {
        for (position, (bytes, paper_ns)) in sizes.into_iter().zip(*column).enumerate() {
            let fitted = position.is_multiple_of(2) == fit_even;
            rows.push(Row { table, dram, op, sequential, bytes, paper_ns, fitted });
        }
    };
    for sequential in [false, true] {
        let column = usize::from(sequential);
        table(3, false, LOAD, sequential, SMALL, &TABLE3[column]);
        table(4, false, LOAD, sequential, LARGE, &TABLE4[column]);
        table(5, false, STORE, sequential, SMALL, &TABLE5[column]);
        table(6, false, STORE, sequential, LARGE, &TABLE6[column]);
    }
    table(7, true, LOAD, false, SMALL, &TABLE7_DRAM);
    table(8, true, STORE, false, SMALL, &TABLE8_DRAM);
    rows
}

/// Returns the mean time of one thread from as few accesses as possible, since the search calls
/// this some thousand times.
fn predict(devices: &Devices, row: &Row) -> f64 {
    let parameters = if row.dram { devices.dram } else { devices.aep };
    let mut model = MemoryModel::new(parameters);
    let fence = if row.op == STORE { Fence::AtEnd } else { Fence::None };
    let counted = (4096 / row.bytes).clamp(1, 64);
    // Stores proceed at the pace of the medium only after its buffer is full.
    let warm = if row.op == STORE { ((256 << 10) / row.bytes).min(128) } else { 0 };
    let stride = if row.sequential { row.bytes } else { row.bytes.max(4096) + 4096 };
    let (mut now, mut begun) = (Picos::ZERO, Picos::ZERO);
    for number in 0..warm + counted {
        if number == warm {
            begun = now;
        }
        let access = MemoryAccess { op: row.op, offset: number * stride, bytes: row.bytes, fence };
        now = model.access(now, Accessor(0), access);
    }
    now.since(begun).0 as f64 / 1e3 / counted as f64
}

/// Returns the deviation of the model from the rows: the sum of squared symmetric relative errors.
fn error(devices: &Devices, rows: &[Row]) -> f64 {
    let mut devices = *devices;
    devices.dram.processor = devices.aep.processor;
    let one = |row: &Row| {
        let ratio = predict(&devices, row) / row.paper_ns;
        let off = (ratio - 1.0 / ratio) / 2.0;
        off * off
    };
    rows.iter().map(one).sum()
}

/// Fits the parameters by coordinate descent. Each parameter in turn grows and shrinks by a step
/// for as long as the error falls; then the steps become finer.
fn fit(rows: &[Row]) -> Devices {
    let mut devices = Devices { aep: AEP, dram: DRAM };
    FREE.iter().for_each(|free| *(free.at)(&mut devices) = free.begin);
    for op in [LOAD, STORE] {
        let rows: Vec<Row> =
            rows.iter().filter(|row| row.fitted && row.op == op).copied().collect();
        let mut least = error(&devices, &rows);
        for step in [2.0, 1.5, 1.25, 1.1, 1.04, 1.015] {
            for _ in 0..SWEEPS {
                let before = least;
                for free in FREE.iter().filter(|free| free.op == op) {
                    least = search(&mut devices, free, step, least, &rows);
                }
                if least > 0.999 * before {
                    break;
                }
            }
        }
    }
    devices.dram.processor = devices.aep.processor;
    devices
}

/// Largest number of rounds over all parameters for each size of step.
const SWEEPS: usize = 4;
/// Largest number of steps in one direction.
const STEPS: usize = 8;

fn search(devices: &mut Devices, free: &Free, step: f64, least: f64, rows: &[Row]) -> f64 {
    let mut least = least;
    for factor in [step, 1.0 / step] {
        for moved in 0..STEPS {
            let held = *(free.at)(devices);
            *(free.at)(devices) = (held as f64 * factor).round().max(1.0) as u64;
            let error = error(devices, rows);
            if error >= least {
                *(free.at)(devices) = held;
                if moved > 0 {
                    return least;
                }
                break;
            }
            least = error;
        }
    }
    least
}

fn name(row: &Row) -> String {
    let device = if row.dram { ", DRAM" } else { "" };
    let order = if row.sequential { "sequential" } else { "random" };
    format!("table {}, {} {order}{device}", row.table, ByteSize(row.bytes))
}

pub(super) fn run(_: &Settings) -> Outcome {
    let rows = rows(true);
    let mut devices = fit(&rows);
    let mut checks = Vec::new();
    for row in rows.iter().filter(|row| !row.fitted) {
        let ours = predict(&devices, row);
        checks.push(Check::about(name(row), "ns", row.paper_ns, ours, 25));
    }
    checks.extend(other_way_round());
    let mut shipped = Devices { aep: AEP, dram: DRAM };
    for free in &FREE {
        let (found, ships) = (*(free.at)(&mut devices), *(free.at)(&mut shipped));
        let what = format!("{} of the model that ships", free.name);
        let reason = "found again from half of the rows";
        checks.push(Check::report(what, "", Some(ships as f64), found as f64, reason));
    }
    let names = FREE.map(|free| free.name.split(',').next().unwrap_or_default()).join(", ");
    let scenario = scenario(&[
        "fitted on the first, third, fifth and seventh row of each table (chosen), the others \
         are predicted; one thread",
        &format!("free, and begun from round guesses: {names}"),
        &format!(
            "fixed: the unit of 256 B, the second-level cache of table 2 ({}), the page after \
             which a copy runs ahead, what a further line out of the cache takes, 7 GB/s, the \
             buffers of 64 units, the floor",
            ByteSize(AEP.processor.cache_bytes),
        ),
        &format!("error on the rows that were fitted: {}", number(left_over(&devices, &rows))),
    ]);
    Outcome { scenario, checks, drawings: Vec::new() }
}

/// Fits the even rows and predicts the odd ones. The result is only reported, since no even row
/// shows the cost of a word.
fn other_way_round() -> Vec<Check> {
    let rows = rows(false);
    let devices = fit(&rows);
    let ratio = |row: &Row| predict(&devices, row) / row.paper_ns;
    let predicted: Vec<&Row> = rows.iter().filter(|row| !row.fitted).collect();
    let far = |row: &&&Row| (ratio(row) - 1.0).abs() > 0.25;
    let names: Vec<String> = predicted.iter().filter(far).map(|row| name(row)).collect();
    let share = 1.0 - names.len() as f64 / predicted.len() as f64;
    let what = "fitted on the even rows: share of the odd within 25%";
    let reason = "the halves with their roles exchanged";
    vec![Check::report(what, "", None, share, reason).noting(format!("but for {names:?}"))]
}

/// Returns the mean error of the fitted rows in per cent.
fn left_over(devices: &Devices, rows: &[Row]) -> f64 {
    let off = |row: &Row| (predict(devices, row) / row.paper_ns - 1.0).abs() * 100.0;
    let fitted: Vec<f64> = rows.iter().filter(|row| row.fitted).map(off).collect();
    fitted.iter().sum::<f64>() / fitted.len() as f64
}
