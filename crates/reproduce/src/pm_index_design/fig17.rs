//! Figure 17: HybridIndex, and HybridIndex+, which exchanges the media of table and tree.

use std::ops::Bound;
use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_index::keys::Inline;
use entresol_index::{
    Direction, Flow, HybridIndexPlus, HybridPlusOptions, Persistent, Pool, SvTree,
};
use entresol_measure::BenchError;
use entresol_measure::index::{
    AnyIndex, Charged, DramLines, IndexName, Keys, Lab, OnModel, Worker, Workload, failed, in_world,
};
use entresol_measure::report::svg::{Axis, Line, Scale, lines};
use entresol_media::model::memory::{AEP, Parameters};

use super::THREADS;
use crate::{Check, Outcome, Settings, Side};

/// Reads of all threads together.
const READS: u64 = 32_000;
/// Updates of all threads together, followed by as many inserts.
const WRITES: u64 = 16_000;
/// Sizes of the figure.
#[derive(Debug, Clone, Copy)]
struct Size {
    keys: u64,
    /// Divisor of the scenario's numbers.
    one_to: u64,
}

impl Size {
    /// Number of keys at full scale: 10 M, chosen.
    const FULL: u64 = 10_000_000;

    fn of(settings: &Settings) -> Size {
        let one_to = if settings.full_scale { 1 } else { 20 };
        Size { keys: Size::FULL / one_to, one_to }
    }

    /// Returns the size of the pool: room for all keys, also in runs that load fewer.
    fn pool_bytes(self) -> u64 {
        (128 << 20) + self.keys * 200
    }

    /// Returns the numbers of keys with which an index is reopened: 1 M and 10 M, chosen.
    fn opened(self) -> [u64; 2] {
        [self.keys / 10, self.keys]
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hybrid {
    /// Table on the medium, tree in DRAM.
    Index,
    /// FAST&FAIR on the medium, table in DRAM.
    PlusFair,
    /// This library's own tree on the medium, table in DRAM.
    PlusOwn,
}

impl Hybrid {
    const ALL: [Hybrid; 3] = [Hybrid::Index, Hybrid::PlusFair, Hybrid::PlusOwn];

    const fn name(self) -> &'static str {
        match self {
            Hybrid::Index => "HybridIndex",
            Hybrid::PlusFair => "HybridIndex+ of FAST&FAIR",
            Hybrid::PlusOwn => "HybridIndex+ of sv-tree",
        }
    }

    fn open(self, world: &World, pool: &Arc<Pool<OnModel>>) -> Result<AnyIndex, BenchError> {
        type Own = HybridIndexPlus<SvTree<OnModel, Inline, 4>>;
        let (index, lines) = match self {
            Hybrid::Index => {
                (IndexName::HybridIndex.open(pool, None)?, DramLines::of(IndexName::HybridIndex))
            }
            Hybrid::PlusFair => {
                let name = IndexName::HybridIndexPlus;
                (name.open(pool, None)?, DramLines::of(name))
            }
            Hybrid::PlusOwn => {
                let options = HybridPlusOptions::default();
                let index = Own::open(pool, 0, &options).map_err(failed)?;
                let (table, tree) =
                    (DramLines::of(IndexName::HybridIndexPlus), DramLines::of(IndexName::SvTree));
                let lines = DramLines {
                    get: table.get,
                    change: table.change + tree.change,
                    range: tree.range,
                    records_a_line: tree.records_a_line,
                };
                (Arc::new(index) as AnyIndex, lines)
            }
        };
        Ok(Charged::over(world, index, lines))
    }
}

/// Operations per second at one number of threads.
#[derive(Debug, Clone, Copy)]
struct Rates {
    threads: u32,
    reads: f64,
    updates: f64,
    inserts: f64,
}

fn rates(hybrid: Hybrid, size: Size, seed: u64) -> Result<Vec<Rates>, BenchError> {
    rates_on(AEP, size, seed, move |world, pool| hybrid.open(world, pool))
}

fn rates_on(
    device: Parameters,
    size: Size,
    seed: u64,
    open: impl FnOnce(&World, &Arc<Pool<OnModel>>) -> Result<AnyIndex, BenchError> + Send + 'static,
) -> Result<Vec<Rates>, BenchError> {
    let keys = size.keys;
    in_world(seed, move |world| {
        let lab = Lab::new(world, device, size.pool_bytes())?;
        let index = open(world, lab.pool())?;
        let most = THREADS[THREADS.len() - 1];
        let mut adding = lab.load(&index, (seed, most as usize), keys)?;
        // Warms the processor's cache.
        let mut first = vec![Worker::over(seed, keys, u64::from(most))];
        lab.measure(&index, &mut first, Workload::Read, READS)?;
        let mut all = Vec::new();
        for threads in THREADS {
            let any = |number| Worker::over(seed, keys, number);
            let mut workers: Vec<Worker> = (0..u64::from(threads)).map(any).collect();
            let each = |operations| operations / u64::from(threads);
            let rate = |workers: &mut Vec<Worker>, workload, operations| {
                let measured = lab.measure(&index, workers, workload, operations)?;
                Ok::<f64, BenchError>(measured.operations_s())
            };
            let reads = rate(&mut workers, Workload::Read, each(READS))?;
            let updates = rate(&mut workers, Workload::Update, each(WRITES))?;
            // Each thread adds its own keys.
            let mut first: Vec<Worker> = adding.drain(..threads as usize).collect();
            let share = each(WRITES) * u64::from(most);
            let inserts = rate(&mut first, Workload::Insert, share)?;
            adding.splice(..0, first);
            all.push(Rates { threads, reads, updates, inserts });
        }
        Ok(all)
    })
}

/// Results of one index: the rates at each number of threads, and reopening with few and with many
/// keys.
type Run = (Hybrid, Vec<Rates>, [Opening; 2]);

/// Times from reopening an index until the first point read and the first range read are answered.
#[derive(Debug, Clone, Copy)]
struct Opening {
    point: Picos,
    range: Picos,
}

fn opening(hybrid: Hybrid, size: Size, keys: u64, seed: u64) -> Result<Opening, BenchError> {
    in_world(seed, move |world| {
        let lab = Lab::new(world, AEP, size.pool_bytes())?;
        let index = hybrid.open(world, lab.pool())?;
        lab.load(&index, (seed, 1), keys)?;
        drop(index);
        let began = world.now();
        let (answered, _) = lab.timed(|| {
            let index = hybrid.open(world, &lab.reopened()?)?;
            let key = Keys::new(seed).key(keys / 2);
            let found = index.get(&key).map_err(failed)?;
            let point = world.now().since(began);
            let mut shown = None;
            let first = &mut |&key: &u64, _| {
                shown = Some(key);
                Flow::Stop
            };
            index.range(Bound::Included(&key), Direction::Forward, first).map_err(failed)?;
            if found.is_none() || shown != Some(key) {
                return Err(BenchError::Failed("what was there is not found again".to_owned()));
            }
            Ok(Opening { point, range: world.now().since(began) })
        });
        answered
    })
}

pub(super) fn figure17(settings: &Settings) -> Outcome {
    let (seed, size) = (settings.seed, Size::of(settings));
    let [few, many] = size.opened();
    let runs = || {
        let mut all = Vec::new();
        for hybrid in Hybrid::ALL {
            let opened = [opening(hybrid, size, few, seed)?, opening(hybrid, size, many, seed)?];
            all.push((hybrid, rates(hybrid, size, seed)?, opened));
        }
        Ok(all)
    };
    let all: Vec<Run> = match runs() {
        Ok(all) => all,
        Err(error) => {
            let error: BenchError = error;
            return Outcome::failed(error.to_string());
        }
    };
    let [(_, index, opened), plus @ ..] = all.as_slice() else { return Outcome::default() };
    let mut checks = Vec::new();
    for (hybrid, rates, _) in plus {
        checks.extend(of_reads(*hybrid, index, rates));
        checks.extend(of_writes(*hybrid, index, rates));
    }
    checks.extend(of_openings(opened, plus));
    let scenario = vec![
        format!(
            "{} uniform keys and values of 8 B (10 M chosen, 1:{}) on model aep; uniform load. 1 \
             to 16 simulated threads; all together make {READS} reads, {WRITES} updates and \
             {WRITES} inserts.",
            size.keys, size.one_to
        ),
        "An operation takes 50 ns of processor and 40 ns for each line of DRAM that is touched: 2 \
         for a look-up in the table of +, 6 more for a change of sv-tree. The thread that updates \
         HybridIndex's tree in DRAM takes no time, so it is never what writers wait for."
            .to_owned(),
        format!(
            "Full service: a point and a range are answered; after {few} and {many} keys (1 M and \
             10 M chosen, 1:{}).",
            size.one_to
        ),
    ];
    let drawings = vec![
        drawing("Reads (model)", &all, |rates| rates.reads),
        drawing("Updates (model)", &all, |rates| rates.updates),
        drawing("Inserts (model)", &all, |rates| rates.inserts),
    ];
    Outcome { scenario, checks, drawings }
}

/// Returns the ratios of one index to the other at each number of threads.
fn ratios(of: &[Rates], to: &[Rates], what: fn(&Rates) -> f64) -> Vec<f64> {
    of.iter().zip(to).map(|(of, to)| what(of) / what(to)).collect()
}

fn words(ratios: &[f64]) -> String {
    ratios.iter().map(|ratio| format!("{ratio:.2}")).collect::<Vec<_>>().join(" ")
}

fn of_reads(hybrid: Hybrid, index: &[Rates], plus: &[Rates]) -> Vec<Check> {
    let reads = ratios(plus, index, |rates| rates.reads);
    let most = reads.iter().copied().fold(0.0, f64::max);
    let name = hybrid.name();
    vec![
        Check::at_least(format!("{name}: reads, to HybridIndex at best"), "", 1.8, most),
        Check::shape(
            format!("{name}: reads, the ratio never falls with threads"),
            "the gap grows with threads",
            words(&reads),
            reads.is_sorted(),
        ),
    ]
}

fn of_writes(hybrid: Hybrid, index: &[Rates], plus: &[Rates]) -> Vec<Check> {
    let updates = ("updates", ratios(plus, index, |rates| rates.updates));
    let inserts = ("inserts", ratios(plus, index, |rates| rates.inserts));
    let of = |(kind, found): (&str, Vec<f64>)| {
        let at = |(threads, ratio): (u32, f64)| {
            let what = format!("{}: {kind}, to HybridIndex, {threads} threads", hybrid.name());
            Check::at_least(what, "", 0.70, ratio)
        };
        THREADS.into_iter().zip(found).map(at).collect::<Vec<_>>()
    };
    [updates, inserts].into_iter().flat_map(of).collect()
}

fn of_openings(opened: &[Opening; 2], plus: &[Run]) -> Vec<Check> {
    let us = |time: Picos| time.0 as f64 / 1e6;
    let said = |[small, large]: &[Opening; 2]| {
        format!("{:.1} us, {:.1} us", us(small.range), us(large.range))
    };
    let growth = |[small, large]: &[Opening; 2]| us(large.range) / us(small.range);
    let what = "HybridIndex: time to full service, 10 times the keys";
    let point = format!("{}; a point after {:.1} us", said(opened), us(opened[1].point));
    let mut checks = vec![
        Check::limit(what, "times", Side::Above, 5.0, growth(opened))
            .beside("waits for its whole tree")
            .noting(point),
    ];
    for (hybrid, _, opened) in plus {
        // The limit allows for one more level of the tree.
        let what = format!("{}: time to full service, 10 times the keys", hybrid.name());
        let check = Check::limit(what, "times", Side::AtMost, 1.5, growth(opened));
        checks.push(check.beside("constant").noting(said(opened)));
    }
    let sooner = plus.iter().all(|(_, _, plus)| plus[1].range < opened[1].range);
    checks.push(Check::shape("+ serves sooner", "yes", if sooner { "yes" } else { "no" }, sooner));
    checks
}

fn drawing(title: &str, all: &[Run], of: fn(&Rates) -> f64) -> String {
    let line = |(hybrid, rates, _): &Run| Line {
        label: hybrid.name().to_owned(),
        points: rates.iter().map(|it| (f64::from(it.threads), of(it) / 1e6)).collect(),
    };
    let rows: Vec<Line> = all.iter().map(line).collect();
    let axis =
        |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear, ticks: Vec::new() };
    lines(title, &axis("threads"), &axis("million a second"), &rows)
}

#[cfg(test)]
mod tests {
    use entresol_base::Picos;
    use entresol_media::model::memory::{DRAM, Module};

    use super::*;

    /// Returns the nanoseconds of an update and of an insert at 1, 2 and 4 threads.
    fn costs(rates: &[Rates]) -> Vec<[f64; 2]> {
        let few = rates.iter().take_while(|it| it.threads <= 4);
        let ns =
            |it: &Rates| [it.updates, it.inserts].map(|rate| f64::from(it.threads) * 1e9 / rate);
        few.map(ns).collect()
    }

    fn of(hybrid: Hybrid, device: Parameters) -> Vec<[f64; 2]> {
        let size = Size::of(&Settings::default());
        let ran = rates_on(device, size, 1, move |world, pool| hybrid.open(world, pool));
        costs(&ran.expect("rates"))
    }

    /// Proves the reason in `expected-failures.toml`: the ratios are low since nothing waits for
    /// HybridIndex's tree in DRAM. With the time that the same tree takes there on the same model
    /// all are as the paper says. That a write waits for the tree's nodes is not the cause: without
    /// the medium's times for reads the ratios of FAST&FAIR are lower still.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_nothing_waits_for_the_tree_in_dram_of_hybrid_index() {
        let size = Size::of(&Settings::default());
        let none = Picos::ZERO;
        // Nothing of it is flushed.
        let module = Module { store_latency: none, partial_line: none, ..DRAM.module };
        let name = IndexName::FastFair;
        let tree = rates_on(Parameters { module, ..DRAM }, size, 1, move |world, pool| {
            let index = name.open(pool, None)?;
            Ok(Charged::over(world, index, DramLines::of(name)) as AnyIndex)
        });
        let tree = costs(&tree.expect("rates"));
        let index = of(Hybrid::Index, AEP);
        for plus in [Hybrid::PlusFair, Hybrid::PlusOwn] {
            let mut least = f64::INFINITY;
            for ((own, index), tree) in of(plus, AEP).iter().zip(&index).zip(&tree) {
                let ratio = [0, 1].map(|at| index[at] / own[at]);
                let with_tree = [0, 1].map(|at| (index[at] + tree[at]) / own[at]);
                println!(
                    "{}: updates and inserts take {own:.0?} ns, HybridIndex {index:.0?}, ratios \
                     {ratio:.2?}; its tree in DRAM takes {tree:.0?}, with it {with_tree:.2?}",
                    plus.name()
                );
                assert!(with_tree.iter().all(|it| *it > 0.70), "{with_tree:?}");
                least = least.min(ratio[0]);
            }
            assert!(least < 0.70, "{least}");
        }
        let module = Module {
            unit_read: none,
            jump: none,
            unit_read_ahead: none,
            line_read: none,
            buffered_line: none,
            ..AEP.module
        };
        let quick = Parameters { module, ..AEP };
        let (index, own) = (of(Hybrid::Index, quick), of(Hybrid::PlusFair, quick));
        let ratios = [0, 1].map(|at| index[0][at] / own[0][at]);
        println!("without times for reads, one thread: {ratios:.2?}");
        assert!(ratios.iter().all(|ratio| *ratio < 0.3), "{ratios:?}");
    }
}
