//! Figures 9 and 10: gets of a store over threads, on two drives.

use super::drawn_lines;
use super::gets::{CORES, Curves, Drives, Point, THREADS, drives, scenario};
use crate::{Check, Outcome, Settings, Side};

/// Returns a figure of each number of threads.
fn row(points: &[Point], of: impl Fn(&Point) -> f64) -> Vec<f64> {
    points.iter().map(of).collect()
}

/// Returns the ratios of one row to another.
fn ratios(above: &[f64], below: &[f64]) -> Vec<f64> {
    above.iter().zip(below).map(|(above, below)| above / below).collect()
}

fn listed(values: &[f64]) -> String {
    values.iter().map(|value| format!("{value:.1}")).collect::<Vec<_>>().join(" ")
}

fn p99(point: &Point) -> f64 {
    point.times.percentile_us(99.0)
}

fn drawing(title: &str, y: (&str, bool), drives: &Drives, of: fn(&Point) -> f64) -> String {
    let line = |points: &[Point]| {
        let threads = THREADS.iter().map(|&threads| threads as f64);
        threads.zip(row(points, of)).collect::<Vec<_>>()
    };
    let Drives { optane, nand } = drives;
    let rows = [
        ("Optane, reading", line(&optane.reading)),
        ("Optane, beside a writer", line(&optane.beside)),
        ("P3600, reading", line(&nand.reading)),
        ("P3600, beside a writer", line(&nand.beside)),
    ];
    drawn_lines(title, ("threads", false), y, &rows)
}

fn outcome(settings: &Settings, of: impl Fn(&Drives) -> (Vec<Check>, String)) -> Outcome {
    match &*drives(settings) {
        Ok(drives) => {
            let (checks, drawing) = of(drives);
            Outcome { scenario: scenario(), checks, drawings: vec![drawing] }
        }
        Err(what) => Outcome::failed(what.clone()),
    }
}

pub(super) fn fig9(settings: &Settings) -> Outcome {
    outcome(settings, |drives| {
        let rate = |point: &Point| point.per_second;
        let of = |curve: fn(&Curves) -> &Vec<Point>| {
            let (optane, nand) = (row(curve(&drives.optane), rate), row(curve(&drives.nand), rate));
            (ratios(&optane, &nand), optane, nand)
        };
        let (reading, optane, nand) = of(|curves| &curves.reading);
        let (beside, ..) = of(|curves| &curves.beside);
        let at_cores = THREADS.iter().position(|&it| it == CORES).unwrap_or_default();
        let fewer = &reading[..at_cores];
        let mut checks = vec![
            Check::about("gets/s, Optane / P3600, a thread a core", "", 3.0, reading[at_cores], 30),
            Check::limit(
                "gets/s, Optane / P3600, at fewer threads, the least, over that at a thread a core",
                "",
                Side::AtLeast,
                1.0,
                fewer.iter().copied().fold(f64::INFINITY, f64::min) / reading[at_cores],
            )
            .beside("too few requests under way for NAND")
            .noting(listed(fewer)),
        ];
        let why = "no number in the text";
        for (what, value) in [
            ("gets/s, Optane, a thread a core", optane[at_cores]),
            ("gets/s, P3600, a thread a core", nand[at_cores]),
            ("gets/s beside the writer, Optane / P3600, a thread a core", beside[at_cores]),
        ] {
            checks.push(Check::report(what, "", None, value, why));
        }
        let title = "Gets in a second over threads (model)";
        (checks, drawing(title, ("gets/s", false), drives, |point| point.per_second))
    })
}

pub(super) fn fig10(settings: &Settings) -> Outcome {
    outcome(settings, |drives| {
        let Drives { optane, nand } = drives;
        let beside = ratios(&row(&nand.beside, p99), &row(&optane.beside, p99));
        let (with, without) = (row(&nand.beside, p99), row(&nand.reading, p99));
        let worse = ratios(&with, &without);
        let least = |of: &[f64]| of.iter().copied().fold(f64::INFINITY, f64::min);
        let what = "P3600: 99% with the writer over that without, at every number of threads";
        let mut checks = vec![
            Check::limit(what, "", Side::Above, 1.0, least(&worse))
                .beside("worse")
                .noting(listed(&worse)),
        ];
        let what = "99% beside the writer, P3600 / Optane, at every number of threads";
        checks.push(Check::at_least(what, "", 10.0, least(&beside)));
        for (threads, ratio) in THREADS.iter().zip(&beside) {
            let what = format!("99% beside the writer, P3600 / Optane, {threads} threads");
            checks.push(Check::about(what, "", 10.0, *ratio, 30));
        }
        let title = "The 99th percentile of gets over threads (model)";
        (checks, drawing(title, ("us", true), drives, p99))
    })
}

#[cfg(test)]
mod tests {
    use entresol_base::Picos;
    use entresol_media::model::ModelName;

    use super::super::gets::{Beside, Leveled, curves};
    use super::*;

    /// Returns the 99th percentiles beside the writer on both drives, in microseconds.
    fn beside(differs: Beside) -> [Vec<f64>; 2] {
        [ModelName::OptaneSsd, ModelName::NandP3600].map(|model| {
            let all = row(&curves(model, differs, 1).expect("every key is found").beside, p99);
            println!("{model}, {differs:?}: {} us", listed(&all));
            all
        })
    }

    /// `RocksDB`'s compactions as published. Files of 64 MiB are written at their end, since its
    /// page of flash benchmarks (wiki, 2014) sets no `bytes_per_sync`; that page compresses from
    /// level 2 on. The compaction statistics in its tuning guide (2015) have 5.1 and 7.6 bytes
    /// written for each that enters levels 1 and 2, which hold a shard of 10 GB, so 2 (1 + 5.1) +
    /// 7.6 for each compressed one that is put, and 690 GB read for 719 written. A thread writes
    /// 183 MB a second (`overwrite` with 7.3, its author's results in mytools, 2022).
    const ROCKSDB: Leveled =
        Leveled { written_for_ten: 198, thread_bytes_s: 183_000_000, burst: 64 << 20 };

    /// Proves the reason in `expected-failures.toml`: with `RocksDB`'s compactions beside the gets
    /// the ratio is the paper's at every number of threads. Processor time as `RocksDB`'s does not
    /// do.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_beside_rocksdbs_compactions_gets_have_the_papers_ratio_at_every_number_of_threads() {
        let [optane, nand] = beside(Beside { own: Picos::from_micros(5), ..Beside::default() });
        let ratio = ratios(&nand, &optane);
        println!("P3600 / Optane with 5 us more of a processor: {}", listed(&ratio));
        assert!(ratio[..6].iter().all(|ratio| *ratio > 13.0), "{ratio:?}");
        let [optane, nand] = beside(Beside { leveled: ROCKSDB, ..Beside::default() });
        let ratio = ratios(&nand, &optane);
        println!("P3600 / Optane with compactions: {}", listed(&ratio));
        assert!(ratio.iter().all(|ratio| (7.0..=13.0).contains(ratio)), "{ratio:?}");
    }
}
