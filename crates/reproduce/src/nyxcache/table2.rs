//! Table 2: kinds of loads and stores, by one thread at random.

use entresol_measure::report::svg::{Bar, bars_beside};
use entresol_media::model::memory::{AEP2, MemoryOp, Parameters};

use super::core::{Accesses, Scene, run};
use crate::{Check, Outcome, Settings};

const ACCESSES: u64 = 40_000;

/// Row of the table: its name, the operation, and the paper's GB/s and microseconds for 256 B and 4
/// KB.
struct Kind {
    name: &'static str,
    op: MemoryOp,
    prefetch: bool,
    paper: [(f64, f64); 2],
}

const KINDS: [Kind; 6] = [
    Kind { name: "load", op: MemoryOp::Load, prefetch: true, paper: [(1.59, 0.49), (4.08, 1.22)] },
    Kind {
        name: "load without prefetch",
        op: MemoryOp::Load,
        prefetch: false,
        paper: [(1.53, 0.52), (2.92, 1.69)],
    },
    Kind {
        name: "NT load",
        op: MemoryOp::NtLoad,
        prefetch: true,
        paper: [(0.29, 0.84), (2.24, 1.84)],
    },
    Kind {
        name: "store",
        op: MemoryOp::Store,
        prefetch: true,
        paper: [(1.12, 0.38), (1.03, 4.14)],
    },
    Kind {
        name: "store + clwb",
        op: MemoryOp::StoreFlush,
        prefetch: true,
        paper: [(0.52, 0.47), (1.50, 2.71)],
    },
    Kind {
        name: "NT store",
        op: MemoryOp::NtStore,
        prefetch: true,
        paper: [(3.73, 0.08), (3.44, 1.22)],
    },
];

const SIZES: [(u64, &str); 2] = [(256, "256 B"), (4096, "4 KB")];

pub(super) fn table2(settings: &Settings) -> Outcome {
    let measure = |kind: &Kind, bytes| {
        let prefetch = AEP2.prefetch.filter(|_| kind.prefetch);
        let parameters = Parameters { prefetch, ..AEP2 };
        let scene = Scene::alone(Accesses { op: kind.op, bytes }, ACCESSES);
        run(&parameters, &scene, settings.seed)
    };
    let mut cells = Vec::new();
    let mut gb_s = [[0.0; KINDS.len()]; 2];
    let (mut rates, mut times) = (Vec::new(), Vec::new());
    for (column, (bytes, size)) in SIZES.into_iter().enumerate() {
        for (row, kind) in KINDS.iter().enumerate() {
            let measured = measure(kind, bytes);
            gb_s[column][row] = measured.gb_s;
            let (paper_gb_s, paper_us) = kind.paper[column];
            let why = "the cells need a model of the processor";
            let what = |what: &str| format!("{} {size}, {what}", kind.name);
            cells.push(Check::report(what("rate"), "GB/s", Some(paper_gb_s), measured.gb_s, why));
            let us = measured.latency.mean_us();
            cells.push(Check::report(what("latency"), "us", Some(paper_us), us, why));
            let label = format!("{}, {size}", kind.name);
            let bar = |value| Bar { label: label.clone(), value, series: column };
            rates.push((bar(measured.gb_s), Some(paper_gb_s)));
            times.push((bar(us), Some(paper_us)));
        }
    }
    let mut checks = Vec::new();
    for ((_, size), gb_s) in SIZES.into_iter().zip(gb_s) {
        checks.extend(comparisons(size, &gb_s));
    }
    checks.append(&mut cells);
    let scenario = vec![
        "One thread; 12 fill buffers of a line each let loads of 256 B overlap threefold; what \
         goes past the caches or is flushed does not overlap."
            .to_owned(),
        "Plain stores leave the cache one line at a time, each of which costs the medium a unit."
            .to_owned(),
    ];
    let drawings = vec![
        bars_beside("Rate by one thread (model)", "GB/s", &rates),
        bars_beside("Latency by one thread (model)", "us", &times),
    ];
    Outcome { scenario, checks, drawings }
}

/// Returns the checks of the ratios that the table's columns give, and of the best kinds.
fn comparisons(size: &str, gb_s: &[f64; KINDS.len()]) -> Vec<Check> {
    let [load, unaided, nt_load, store, flushed, nt_store] = *gb_s;
    let (small, about) = (size == "256 B", 25);
    let pick = |of_256, of_4096| if small { of_256 } else { of_4096 };
    let ratio =
        |what: &str, paper, ours| Check::about(format!("{what}, {size}"), "", paper, ours, about);
    vec![
        ratio("NT store / store", pick(3.3, 3.3), nt_store / store),
        ratio("NT store / store + clwb", pick(7.2, 2.3), nt_store / flushed),
        ratio("load / load without prefetch", pick(1.04, 1.40), load / unaided),
        ratio("load / NT load", pick(5.5, 1.8), load / nt_load),
        Check::shape(
            format!("of the loads the plain one is best, {size}"),
            "regular loads perform best",
            format!("{load:.2} {unaided:.2} {nt_load:.2} GB/s"),
            load >= unaided && load > nt_load,
        ),
        Check::shape(
            format!("of the stores the NT one is best, {size}"),
            "NT stores perform much better",
            format!("{store:.2} {flushed:.2} {nt_store:.2} GB/s"),
            nt_store > store && nt_store > flushed,
        ),
    ]
}
