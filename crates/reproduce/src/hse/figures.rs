//! Figures of the test: throughput, the tail latency of reads, bytes written.

use super::scene::{DRIVES, Pair, Phase, Runs, WORKLOADS, runs, stream_rate};
use crate::{Check, Outcome, Settings, Side};
use entresol_measure::report::svg::{Bar, bars, bars_beside};
use entresol_measure::ycsb::Workload;
use entresol_media::model::ModelName;

fn outcome(settings: &Settings, of: impl Fn(&Runs) -> (Vec<Check>, String)) -> Outcome {
    match &*runs(settings) {
        Ok(runs) => {
            let (checks, drawing) = of(runs);
            Outcome { scenario: runs.scenario(), checks, drawings: vec![drawing] }
        }
        Err(what) => Outcome::failed(what.clone()),
    }
}

/// Draws bars of both set-ups for each workload, and for the load if `loads` is set.
fn drawn(runs: &Runs, title: &str, unit: &str, loads: bool, of: impl Fn(&Phase) -> f64) -> String {
    let first = loads.then_some(Workload::Load);
    let both = |workload: Workload| {
        let Pair { alone, staged } = runs.of(workload);
        let bar = |what: &str, phase, series| Bar {
            label: format!("{workload}, {what}"),
            value: of(phase),
            series,
        };
        [bar("capacity alone", alone, 0), bar("with staging", staged, 1)]
    };
    let all: Vec<Bar> = first.into_iter().chain(WORKLOADS).flat_map(both).collect();
    bars(title, unit, &all)
}

pub(super) fn fig1(settings: &Settings) -> Outcome {
    outcome(settings, |runs| {
        let ratio = |workload| runs.of(workload).ratio(Phase::per_second);
        let (load, a, f) = (ratio(Workload::Load), ratio(Workload::A), ratio(Workload::F));
        let (b, c, d) = (ratio(Workload::B), ratio(Workload::C), ratio(Workload::D));
        let times = "times as many a second with staging";
        let mut checks = vec![
            Check::at_least(format!("load: {times}"), "", 2.0, load).beside(4.0),
            Check::at_least(format!("a: {times}"), "", 2.0, a).beside(2.3),
            Check::at_least(format!("f: {times}"), "", 2.0, f).beside(2.1),
            Check::within(format!("c: {times}"), "", 0.95..=1.3, c),
        ];
        let little = "little, as reads come from capacity";
        for (name, ratio) in [("b", b), ("d", d)] {
            let what = format!("{name}: {times}");
            checks.push(Check::limit(what, "", Side::Above, 1.0, ratio).beside(little));
            let what = format!("{name}: {times}, over a's");
            checks.push(Check::limit(what, "", Side::Below, 1.0, ratio / a).beside(little));
        }
        checks.extend(of_drives(runs));
        for workload in [Workload::Load].into_iter().chain(WORKLOADS) {
            let Pair { alone, staged } = runs.of(workload);
            for (what, phase) in [("capacity alone", alone), ("with staging", staged)] {
                let what = format!("{workload}, {what}");
                let why = "no number in the text";
                checks.push(Check::report(what, "1/s", None, phase.per_second(), why));
            }
        }
        let title = "Operations in a second (model)";
        (checks, drawn(runs, title, "1/s", true, Phase::per_second))
    })
}

/// Compares the bytes per second that the load writes with the write rate of its drives.
fn of_drives(runs: &Runs) -> Vec<Check> {
    let Pair { alone, staged } = runs.of(Workload::Load);
    let capacity = stream_rate(ModelName::Qlc5210, DRIVES);
    let staging = stream_rate(ModelName::Nvme9300, 1);
    let what = |set_up: &str| {
        format!("load, {set_up}: bytes a second, of what the drives take of one stream")
    };
    let share = |bytes: u64, phase: &Phase, rate: f64| bytes as f64 / phase.seconds / rate;
    let why = "writers wait for generations before theirs, which are synced and then flushed";
    let of_capacity = share(alone.written.capacity, alone, capacity);
    let of_staging = share(staged.written.staging, staged, staging);
    vec![
        Check::report(what("capacity alone"), "", None, of_capacity, why),
        Check::at_least(what("with staging"), "", 0.9, of_staging),
    ]
}

pub(super) fn fig2(settings: &Settings) -> Outcome {
    outcome(settings, |runs| {
        let tail = |phase: &Phase| phase.seen.reads.percentile_us(99.9);
        let mut checks = Vec::new();
        for workload in WORKLOADS {
            let pair = runs.of(workload);
            let lower = 1.0 / pair.ratio(tail);
            let what = format!("{workload}: reads' 99.9% is lower with staging, times");
            checks.push(match workload {
                Workload::C => {
                    let what = "c: reads' 99.9% with staging, of that without";
                    Check::limit(what, "", Side::AtMost, 1.15, 1.0 / lower).beside(1.0)
                }
                _ => Check::at_least(what, "", 2.0, lower).beside("2 to 3"),
            });
        }
        for workload in [Workload::A, Workload::B, Workload::F, Workload::D] {
            let pair = runs.of(workload);
            let ratio = pair.ratio(|phase| phase.seen.writes.percentile_us(99.9));
            let apart = ratio.max(1.0 / ratio);
            let what = format!("{workload}: writes' 99.9%, the larger over the smaller");
            let check = Check::limit(what, "times", Side::AtMost, 1.5, apart);
            checks.push(check.beside("alike").noting(format!("with over without {ratio:.2}")));
        }
        for workload in WORKLOADS {
            let Pair { alone, staged } = runs.of(workload);
            for (what, phase) in [("capacity alone", alone), ("with staging", staged)] {
                let what = format!("{workload}, {what}: reads' 99.9%");
                let why = "no number in the text";
                checks.push(Check::report(what, "us", None, tail(phase), why));
            }
        }
        let title = "The 99.9th percentile of reads (model)";
        (checks, drawn(runs, title, "us", false, tail))
    })
}

pub(super) fn fig3(settings: &Settings) -> Outcome {
    outcome(settings, |runs| {
        let in_time = |phase: &Phase| phase.written.capacity as f64;
        let aged = |phase: &Phase| phase.written_aged.capacity as f64;
        let mut checks = Vec::new();
        for workload in WORKLOADS {
            let pair = runs.of(workload);
            if workload == Workload::C {
                let most = in_time(pair.alone).max(in_time(pair.staged));
                let each = most / pair.alone.seen.operations as f64;
                let what = "c: bytes to capacity in either, for each operation";
                checks.push(Check::limit(what, "", Side::Below, 1.0, each).beside("none"));
                continue;
            }
            let what = format!("{workload}: bytes to capacity with staging, of those without");
            let what_aged =
                format!("{workload}: the same until all is demoted, and dead data are freed");
            let (ratio, ratio_aged) = (pair.ratio(in_time), pair.ratio(aged));
            let both = [(what, ratio), (what_aged, ratio_aged)];
            checks.extend(both.map(|(what, ratio)| Check::at_most(what, "", 0.5, ratio)));
            let per_user_byte = |bytes: u64| bytes as f64 / pair.staged.seen.user_bytes as f64;
            let staging = per_user_byte(pair.staged.written.staging);
            let what = format!("{workload}: bytes to staging, for each of the user's");
            checks.push(Check::report(what, "", None, staging, "no number in the text"));
        }
        let title = "Bytes written to capacity until all is demoted (model)";
        (checks, drawn(runs, title, "GB", false, |phase| aged(phase) / 1e9))
    })
}

pub(super) fn table5(settings: &Settings) -> Outcome {
    outcome(settings, |runs| {
        let Pair { alone, staged } = runs.of(Workload::Load);
        let user = staged.seen.user_bytes as f64;
        let (to_alone, to_capacity, to_staging) = (
            alone.written_aged.capacity as f64 / user,
            staged.written_aged.capacity as f64 / user,
            staged.written_aged.staging as f64 / user,
        );
        let byte = "bytes for each of the user's, once all is demoted";
        let why = "our store writes values once where they come, and once where they stay";
        let checks = vec![
            Check::at_most(format!("with staging, to capacity: {byte}"), "", 1.1, to_capacity),
            Check::report(
                "fewer to capacity with staging, times",
                "",
                Some(2.44),
                to_alone / to_capacity,
                why,
            ),
            Check::report(format!("capacity alone: {byte}"), "", Some(3.63), to_alone, why),
            Check::report(
                format!("with staging, to capacity, beside: {byte}"),
                "",
                Some(1.49),
                to_capacity,
                why,
            ),
            Check::report(
                format!("with staging, to staging: {byte}"),
                "",
                Some(2.08),
                to_staging,
                why,
            ),
            Check::report(
                "time that tiering takes after the load, with staging",
                "s",
                None,
                staged.tiering_s,
                "no number in the text",
            ),
        ];
        let bar = |label: &str, value, paper, series| {
            (Bar { label: label.to_owned(), value, series }, Some(paper))
        };
        let all = [
            bar("capacity alone, to capacity", to_alone, 3.63, 0),
            bar("with staging, to capacity", to_capacity, 1.49, 1),
            bar("with staging, to staging", to_staging, 2.08, 1),
        ];
        let title = "Bytes written by the load, for each of the user's (model)";
        (checks, bars_beside(title, "", &all))
    })
}
