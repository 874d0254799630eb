//! Figure 3: the largest rate of random accesses for each size, and the cost table derived from it.

use entresol_bench::profile::model_costs;
use entresol_measure::report::svg::{Axis, Line, Scale, lines_beside};
use entresol_media::cost::{Access, CostTable};
use entresol_media::model::ModelName;
use entresol_media::model::memory::{AEP2, MemoryOp};

use super::core::{Accesses, Scene, run};
use crate::{Check, Outcome, Settings, Side};

/// Number of threads; enough to keep both modules busy at every size.
const THREADS: u32 = 128;
const ACCESSES: u64 = 30_000;
const LARGEST: u64 = 4096;
/// Relative difference between sizes that touch equally many units. The fewer accesses are in
/// flight, the more often one of the modules is idle.
const NOISE: f64 = 0.002;

/// Operations per second for 64, 128 ... 4096 bytes.
struct Row(Vec<(u64, f64)>);

impl Row {
    fn of(op: MemoryOp, seed: u64) -> Row {
        let most = |bytes| {
            let scene =
                Scene { threads: THREADS, ..Scene::alone(Accesses { op, bytes }, ACCESSES) };
            (bytes, run(&AEP2, &scene, seed).per_second)
        };
        Row((64..=LARGEST).step_by(64).map(most).collect())
    }

    fn at(&self, bytes: u64) -> f64 {
        let point = self.0.iter().find(|(size, _)| *size == bytes);
        point.map_or(f64::NAN, |(_, per_second)| *per_second)
    }

    /// Returns the size that exceeds the next multiple of 256 the most, among those that are no
    /// multiple.
    fn worst(&self) -> (u64, f64) {
        let odd = self.0.iter().filter(|(bytes, _)| !bytes.is_multiple_of(256));
        odd.map(|(bytes, most)| (*bytes, most / self.at(bytes.next_multiple_of(256))))
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .unwrap_or((0, f64::NAN))
    }

    fn line(&self, label: &str) -> Line {
        let points = self.0.iter().map(|(bytes, most)| (*bytes as f64, most / 1e6)).collect();
        Line { label: label.to_owned(), points }
    }
}

fn module_gb_s(op: MemoryOp, seed: u64) -> f64 {
    let one =
        entresol_media::model::memory::Parameters { interleave: None, prefetch: None, ..AEP2 };
    let scene = Scene { threads: THREADS, ..Scene::alone(Accesses { op, bytes: 256 }, ACCESSES) };
    run(&one, &scene, seed).gb_s
}

pub(super) fn fig3(settings: &Settings) -> Outcome {
    let seed = settings.seed;
    let (reads, writes) = (Row::of(MemoryOp::Load, seed), Row::of(MemoryOp::NtStore, seed));
    let mut checks = of_sizes(&reads, &writes);
    checks.extend([
        Check::about("one module, loads", "GB/s", 6.6, module_gb_s(MemoryOp::Load, seed), 15)
            .given("the model's read_bytes_s (section 1)"),
        Check::about("one module, stores", "GB/s", 2.3, module_gb_s(MemoryOp::NtStore, seed), 15)
            .given("the model's write_bytes_s (section 1)"),
    ]);
    checks.extend(of_table(&reads, &writes));
    let axis =
        |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear, ticks: Vec::new() };
    let label = "paper: loads of 4 KB".to_owned();
    let paper = Line { label, points: vec![(LARGEST as f64, 3.0)] };
    let drawing = lines_beside(
        "Most random accesses a second (model)",
        &axis("bytes"),
        &axis("million/s"),
        &[reads.line("loads"), writes.line("stores")],
        &[(0, paper)],
    );
    let scenario = vec![format!(
        "{THREADS} threads (chosen) of random accesses, stores past the caches; powers of two lie \
         on multiples of themselves, other multiples of 256 on those, all others anywhere on the \
         grid of lines."
    )];
    Outcome { scenario, checks, drawings: vec![drawing] }
}

/// Returns the checks of the statements about sizes.
fn of_sizes(reads: &Row, writes: &Row) -> Vec<Check> {
    let below = reads.0.iter().all(|(bytes, most)| writes.at(*bytes) < *most);
    let small = writes.at(64) / writes.at(256);
    let load = reads.at(64) / reads.at(256);
    let asked = reads.at(1024) * 1024.0 / reads_bytes_s();
    let mut checks = vec![
        Check::about("loads of 4 KB", "1/s", 3.0e6, reads.at(LARGEST), 15),
        Check::shape("stores are below loads at every size", "lower", yes(below), below),
        Check::about("stores of 64 B over 256 B", "", 1.0, small, 10),
        Check::about("a load of 64 B over one of 256 B", "", 1.0, load, 2),
        Check::about("of the traffic of 1 KB loads, what was asked for", "", 0.6, asked, 15),
    ];
    for (what, row) in [("loads", reads), ("stores", writes)] {
        let (bytes, ratio) = row.worst();
        let what =
            format!("{what}: sizes that are no multiple of 256, the most over the next multiple");
        let check = Check::limit(what, "", Side::AtMost, 1.0 + NOISE, ratio);
        checks.push(check.beside("lower MaxIOPS").noting(format!("at {bytes} B")));
    }
    checks
}

/// Checks the end of the sweep, and the cost table that `profile` makes and saves of the same
/// model.
fn of_table(reads: &Row, writes: &Row) -> [Check; 3] {
    let full = reads.at(LARGEST) * LARGEST as f64 / reads_bytes_s();
    let table = model_costs(ModelName::Aep2).ok();
    let again = table.as_ref().and_then(|table| CostTable::from_json(&table.to_json()).ok());
    let same = table.is_some() && table == again;
    let apart = table.as_ref().map_or(f64::NAN, |table| {
        let rows = [(Access::Read, reads), (Access::Write, writes)];
        let apart = |(access, row): (Access, &Row)| {
            let one = |(bytes, most): &(u64, f64)| {
                (table.cost_ns(access, *bytes as usize) * most / 1e9 - 1.0).abs()
            };
            row.0.iter().map(one).fold(0.0, f64::max)
        };
        rows.into_iter().map(apart).fold(0.0, f64::max)
    });
    [
        Check::limit(
            "the sweep stops at 4 KB, where bandwidth is full: of the bandwidth",
            "",
            Side::AtLeast,
            0.95,
            full,
        ),
        Check::limit(
            "the table that `profile` makes of the model: costs off one over these, at most",
            "%",
            Side::AtMost,
            10.0,
            apart * 100.0,
        )
        .beside("cost = 1 / MaxIOPS"),
        Check::shape(
            "that table, saved and loaded, costs the same to the bit",
            "profiled once per server",
            yes(same),
            same,
        ),
    ]
}

/// Returns the bytes per second that the two modules can read.
fn reads_bytes_s() -> f64 {
    let modules = AEP2.interleave.map_or(1, |interleave| interleave.modules);
    AEP2.module.read_bytes_s as f64 * modules as f64
}

fn yes(holds: bool) -> &'static str {
    if holds { "it is so" } else { "it is not" }
}
