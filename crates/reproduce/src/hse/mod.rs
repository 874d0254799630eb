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
    use super::scene::{CLIENTS, Phase, SetUp, Size, run, stream_rate};
    use crate::Settings;
    use entresol_base::Picos;
    use entresol_measure::ycsb::Workload;
    use entresol_media::model::ModelName;
    use entresol_media::model::block::{BlockParameters, Rate};
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

    /// Loads a store and runs workloads at the usual scale. Returns the last one's operations a
    /// second.
    fn per_second(all: &'static [Workload], is_staged: bool, free: Option<MediaClass>) -> f64 {
        let size = Size::of(&Settings::default());
        let staging = is_staged.then_some(size.staging);
        let set_up = SetUp { workloads: all, free, ..SetUp::of(staging) };
        let phases = run(size, set_up, 1).expect("every operation is answered rightly");
        let last = &phases[all.len()];
        println!(
            "staged {is_staged}, free {free:?}: {:.0}/s, reads {:.1} us on average, writes {:.1}",
            last.per_second(),
            last.seen.reads.mean_us(),
            last.seen.writes.mean_us(),
        );
        last.per_second()
    }

    /// Gains of the last workload with staging: as the drives are, and if those of the class
    /// capacity, or that of staging, took no time.
    fn gains(all: &'static [Workload]) -> [f64; 3] {
        let alone = per_second(all, false, None);
        let gain = |free| per_second(all, true, free) / alone;
        let free = [MediaClass::Capacity, MediaClass::Staging].map(|class| gain(Some(class)));
        let gains = [gain(None), free[0], free[1]];
        println!("{all:?} gains, and if capacity or staging took no time: {gains:.3?}");
        gains
    }

    /// Proves the reason in `expected-failures.toml` for A: reads wait for the drives of both
    /// classes, and without the waits for either A would gain enough.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_a_gains_too_little_since_reads_wait_for_both_classes() {
        let [as_they_are, capacity, staging] = gains(&[Workload::A]);
        assert!(as_they_are < 1.9 && capacity > 2.0 && staging > 2.0);
    }

    /// Proves the reason in `expected-failures.toml` for F, which runs after A: reads wait for the
    /// drives of both classes, and without the waits for either F would gain enough.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_f_gains_too_little_since_reads_wait_for_both_classes() {
        let [as_they_are, capacity, staging] = gains(&[Workload::A, Workload::F]);
        assert!(as_they_are < 1.9 && capacity > 2.0 && staging > 2.0);
    }

    /// Lets dies program in no time, at the same rate of all of them together, so that no read
    /// waits for one that programs.
    fn program_at_once(drive: &mut BlockParameters) {
        let bytes_s =
            drive.program_bytes as f64 * f64::from(drive.dies) / drive.program.as_secs_f64();
        let rate = Rate::megabytes_s((bytes_s / 1e6) as u64);
        drive.program_limit = drive.program_limit.or(Some(rate));
        drive.program = Picos::from_micros(1);
    }

    /// Lets dies read in no time.
    fn read_at_once(drive: &mut BlockParameters) {
        drive.read = Picos::ZERO;
    }

    /// Lets writes of any order be followed by no relocations, as those in sequence are.
    fn relocate_nothing(drive: &mut BlockParameters) {
        drive.amplification_percent = 100;
    }

    /// Proves the reason in `expected-failures.toml` for the load: all processors put, and the
    /// drive relocates data for writes that continue none before them, as the first of each file,
    /// so that dies keep the flush's reads waiting. With a processor for each client it is enough
    /// if nothing is relocated, or if dies read in no time; neither helps alone.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_the_load_waits_for_processors_and_for_what_the_drive_relocates() {
        let share = |cores: Option<usize>, drives: fn(&mut BlockParameters)| {
            let size = Size::of(&Settings::default());
            let default = SetUp::of(Some(size.staging));
            let cores = cores.unwrap_or(default.cores);
            let set_up = SetUp { workloads: &[], drives, cores, ..default };
            let phases = run(size, set_up, 1).expect("every operation is answered rightly");
            let load = &phases[0];
            let rate = load.written.staging as f64 / load.seconds;
            rate / stream_rate(ModelName::Nvme9300, 1)
        };
        let [as_it_is, still] = [share(None, |_| {}), share(None, relocate_nothing)];
        let enough_cores = Some(CLIENTS as usize);
        let [cores, cores_reads, cores_still] =
            [|_: &mut BlockParameters| {}, read_at_once, relocate_nothing]
                .map(|drives: fn(&mut BlockParameters)| share(enough_cores, drives));
        println!(
            "the load writes {as_it_is:.3} of what the drives take of one stream, {still:.3} if \
             nothing is relocated; with a processor for each client {cores:.3}, {cores_still:.3} \
             if nothing is relocated, and {cores_reads:.3} if dies read in no time"
        );
        let enough = 0.9 * 0.95;
        let too_little = [as_it_is, still, cores];
        assert!(too_little.iter().all(|share| *share < enough), "{too_little:?}");
        assert!(cores_reads > enough && cores_still > 0.9, "{cores_reads}, {cores_still}");
    }

    /// Proves the reason in `expected-failures.toml` for the tails of A and F: they are as much
    /// lower as the paper says with dies that program in no time, at the same rate, in either
    /// set-up.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_tails_of_reads_are_those_of_dies_that_program() {
        let size = Size::of(&Settings::default());
        let lower = |what: &str, drives: fn(&mut BlockParameters)| {
            let [alone, staged] = [None, Some(size.staging)].map(|staging| {
                let workloads: &[Workload] = &[Workload::A, Workload::F];
                let set_up = SetUp { workloads, drives, ..SetUp::of(staging) };
                let phases = run(size, set_up, 1).expect("every operation is answered rightly");
                [1, 2].map(|at| phases[at].seen.reads.percentile_us(99.9))
            });
            let lower = [0, 1].map(|at| alone[at] / staged[at]);
            println!(
                "{what}: reads' 99.9% in A and F {alone:.0?} us, with staging {staged:.0?}: \
                 {lower:.2?} times lower"
            );
            lower
        };
        let as_they_are = lower("as they are", |_| {});
        let at_once = lower("dies program in no time", program_at_once);
        assert!(as_they_are.iter().all(|times| *times < 1.9), "{as_they_are:?}");
        assert!(at_once.iter().all(|times| *times > 1.9), "{at_once:?}");
    }

    /// Proves the reason in `expected-failures.toml` for what is written until everything is
    /// compacted: that alone writes about what lives in either set-up. Without it, staging saves
    /// all.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_compacting_everything_writes_what_lives_in_either_set_up() {
        let size = Size::of(&Settings::default());
        let to_capacity = |is_staged: bool| {
            let workloads: &[Workload] = &[Workload::A, Workload::F];
            let staging = is_staged.then_some(size.staging);
            let set_up = SetUp { workloads, ..SetUp::of(staging) };
            let phases = run(size, set_up, 1).expect("every operation is answered rightly");
            let live = phases[0].seen.user_bytes as f64 / 1e9;
            [1, 2].map(|at| {
                let Phase { written, written_aged, .. } = &phases[at];
                let (ran, all) = (written.capacity as f64, written_aged.capacity as f64);
                let (ran, compacted) = (ran / 1e9, (all - ran) / 1e9);
                println!(
                    "staged {is_staged}: {ran:.3} GB while it runs and {compacted:.3} then, where \
                     {live:.3} live"
                );
                assert!(compacted > 0.8 * live, "{compacted} of {live}");
                (ran, compacted)
            })
        };
        for (alone, staged) in to_capacity(false).into_iter().zip(to_capacity(true)) {
            let (ran, compacted) = (staged.0 / alone.0, staged.1 / alone.1);
            let all = (staged.0 + staged.1) / (alone.0 + alone.1);
            println!("with staging {ran:.3} while it runs, {compacted:.3} then, {all:.3} in all");
            assert!(ran < 0.5 && compacted > 0.8 && all > 0.525, "{ran}, {compacted}, {all}");
        }
    }
}
