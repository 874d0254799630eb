//! Rounds of workloads, and their summary.

use entresol_measure::statistics::Spread;

use super::{IndexOptions, PerOperation, WorkResult};

/// Result of one round of one workload.
#[derive(Debug, Clone)]
pub(super) struct Round {
    pub(super) operations_s: f64,
    pub(super) ns: f64,
    /// Additional results of a model.
    pub(super) modelled: Option<Modelled>,
    pub(super) hit_ratio: Option<f64>,
}

/// Results that only a model has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Modelled {
    pub(super) p50_ns: f64,
    pub(super) p99_ns: f64,
    pub(super) counts: PerOperation,
}

/// Summarizes the rounds of each workload.
pub(super) fn results(options: &IndexOptions, rounds: Vec<Vec<Round>>) -> Vec<WorkResult> {
    let result = |(&workload, rounds): (_, Vec<Round>)| {
        let of = |what: fn(&Round) -> f64| Spread::of(&rounds.iter().map(what).collect::<Vec<_>>());
        let modelled: Vec<Modelled> = rounds.iter().filter_map(|round| round.modelled).collect();
        let median = |what: fn(&Modelled) -> f64| {
            let values: Vec<f64> = modelled.iter().map(what).collect();
            (!values.is_empty()).then(|| Spread::of(&values).median)
        };
        WorkResult {
            workload,
            operations: options.operations,
            operations_s: of(|round| round.operations_s),
            ns: of(|round| round.ns),
            p50_ns: median(|modelled| modelled.p50_ns),
            p99_ns: median(|modelled| modelled.p99_ns),
            counts: modelled.first().map(|modelled| modelled.counts),
            hit_ratio: rounds.first().and_then(|round| round.hit_ratio),
        }
    };
    let measured = options.workloads.iter().zip(rounds);
    // An interrupted run has workloads without any round.
    measured.filter(|(_, rounds)| !rounds.is_empty()).map(result).collect()
}
