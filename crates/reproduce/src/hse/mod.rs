//! Micron's heterogeneous-memory storage engine: its table and the figures that report
//! measurements.
//!
//! All four show sides of one test: YCSB on a store with and without a drive of the class staging.

mod figures;
mod scene;

use super::{Entry, Outcome, Settings};

const SOURCE: &str = "What is the heterogeneous-memory storage engine?";

/// Entries that show sides of one run.
pub(super) const SHARED_RUN: &[&str] = &["001-fig1", "001-fig2", "001-fig3", "001-table5"];

pub(super) const ENTRIES: &[Entry] = &[
    entry("001-fig1", "YCSB's throughput, with and without a staging drive", figures::fig1),
    entry("001-fig2", "reads' 99.9th percentile, with and without it", figures::fig2),
    entry("001-fig3", "bytes written by the workloads, with and without it", figures::fig3),
    entry("001-table5", "bytes written by the load, with and without it", figures::table5),
];

const fn entry(name: &'static str, about: &'static str, run: fn(&Settings) -> Outcome) -> Entry {
    Entry { name, part: "", source: SOURCE, about, run }
}

#[cfg(test)]
mod tests {
    use super::scene::{Phase, SetUp, Size, run};
    use crate::Settings;
    use entresol_measure::ycsb::Workload;
    use entresol_store::MediaClass;

    fn phases(seed: u64, is_staged: bool) -> Vec<Phase> {
        let size = Size::scaled(100_000);
        let staging = is_staged.then_some(size.staging);
        let set_up = SetUp { workloads: &[Workload::A], ..SetUp::of(staging) };
        run(size, set_up, seed).expect("every operation is answered rightly")
    }

    /// Formats everything that the checks use, except whole histograms.
    fn figures(phases: &[Phase]) -> String {
        let one = |phase: &Phase| {
            let tail = phase.seen.reads.percentile_us(99.9);
            let Phase { seconds, written, written_aged, tiering_s, .. } = phase;
            format!("{seconds} {tail} {written:?} {written_aged:?} {tiering_s}")
        };
        phases.iter().map(one).collect()
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let first = figures(&phases(7, true));
        assert_eq!(figures(&phases(7, true)), first);
        assert_ne!(figures(&phases(8, true)), first, "the seed is heard");
    }

    #[test]
    fn what_is_aged_lies_on_capacity_and_what_is_new_on_staging() {
        let staged = phases(7, true);
        let [load, updates] = staged.as_slice() else { panic!("two phases") };
        let user = load.seen.user_bytes;
        assert!(load.written.staging >= user && load.written_aged.capacity >= user);
        assert!(updates.written.staging >= updates.seen.user_bytes);
        let alone = phases(7, false);
        assert!(alone.iter().all(|phase| phase.written_aged.staging == 0));
        assert!(alone[0].written.capacity >= user);
    }

    /// Loads a store and runs A at the usual scale. Returns A's operations a second.
    fn a_per_second(is_staged: bool, free: Option<MediaClass>) -> f64 {
        let size = Size::of(&Settings::default());
        let staging = is_staged.then_some(size.staging);
        let set_up = SetUp { workloads: &[Workload::A], free, ..SetUp::of(staging) };
        let phases = run(size, set_up, 1).expect("every operation is answered rightly");
        let a = &phases[1];
        println!(
            "staged {is_staged}, free {free:?}: {:.0}/s, reads {:.1} us on average, writes {:.1}",
            a.per_second(),
            a.seen.reads.mean_us(),
            a.seen.writes.mean_us(),
        );
        a.per_second()
    }

    /// Proves the reason in `expected-failures.toml` for A: reads wait for the drives of both
    /// classes, and without the waits for either A would gain enough.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_a_gains_too_little_since_reads_wait_for_both_classes() {
        let alone = a_per_second(false, None);
        let gain = |free| a_per_second(true, free) / alone;
        let as_they_are = gain(None);
        let free = [MediaClass::Capacity, MediaClass::Staging].map(|class| gain(Some(class)));
        println!("gains {as_they_are:.3}; if capacity or staging took no time, {free:.3?}");
        assert!(
            as_they_are < 1.9 && free.iter().all(|gain| *gain > 2.0),
            "{as_they_are}, {free:?}"
        );
    }
}
