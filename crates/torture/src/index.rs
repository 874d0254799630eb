//! Torture of indexes: the histories of [`entresol_index::trial`] with crashes, until time is up.

use entresol_base::Stop;
use entresol_index::keys::{Bytes, Inline};
use entresol_index::trial::{self, Op, TrialOptions};
use entresol_index::{
    FastFair, FastFairOptions, FpTree, FpTreeOptions, HashTableOptions, HybridIndex,
    HybridIndexPlus, HybridOptions, HybridPlusOptions, Ods, OdsOptions, SkipList, SvTree, WbTree,
    WbTreeOptions,
};
use entresol_measure::BenchError;
use entresol_measure::index::IndexName;
use entresol_measure::progress::Progress;
use entresol_media::crash::{RecordedRegion, Report};

use super::drive::{Plan, Ran, Tried, domain, drive};
use super::outcome::Outcome;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Time and histories; each index in turn runs one history of each seed.
    pub plan: Plan,
    /// Indexes to try, in turn.
    pub indexes: Vec<IndexName>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings { plan: Plan::default(), indexes: IndexName::PERSISTENT.to_vec() }
    }
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// Fails if there is nothing to try or an index is not persistent.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    if let Some(none) = settings.indexes.iter().find(|it| !IndexName::PERSISTENT.contains(it)) {
        let problem = format!("{none} keeps nothing, so no crash can be survived");
        return Err(BenchError::Usage(problem));
    }
    let outcome = Outcome { subject: "index", ..Outcome::default() };
    let mut outcome = drive(outcome, &settings.plan, |number| trial(settings, number), progress)?;
    // Only a run that is limited by time can miss a subject.
    if outcome.failure.is_none() && settings.plan.histories.is_none() {
        let of = settings.indexes.len() as u64 * settings.plan.domains().count() as u64;
        let names = (outcome.histories..of).flat_map(|number| trial(settings, number));
        outcome.subjects_missing = names.map(|trial| trial.name()).collect();
    }
    Ok(outcome)
}

/// History of one index.
struct Trial {
    index: IndexName,
    options: TrialOptions,
}

/// Returns the trial of a number. Every index runs the history of a seed with volatile caches, then
/// every index runs it with durable ones.
fn trial(settings: &Settings, number: u64) -> Vec<Trial> {
    let Settings { plan, indexes } = settings;
    let (of, domains) = (indexes.len().max(1) as u64, plan.domains().count() as u64);
    let domain = plan.domains().nth((number / of % domains) as usize);
    let Some(&index) = indexes.get((number % of) as usize) else { return Vec::new() };
    let trial = |caches_survive| {
        let seed = plan.seed.wrapping_add(number / of / domains);
        let mut options = TrialOptions { caches_survive, ..TrialOptions::seeded(seed) };
        options.explore.nested.one_in = plan.nested_one_in;
        options.in_world = index.has_threads();
        Trial { index, options }
    };
    domain.map(trial).into_iter().collect()
}

impl Tried for Trial {
    type Op = Op;

    fn name(&self) -> String {
        format!("{}, {}", self.index, domain(self.options.caches_survive))
    }

    fn history(&self) -> Vec<Op> {
        trial::history(&self.options)
    }

    /// Counts a wrong result without a crash as a failure as well.
    fn run(&self, ops: &[Op], stop: &Stop) -> Result<Ran, BenchError> {
        Ok(match run(self.index, &self.options, ops, stop) {
            Ok(report) => report.into(),
            Err(what) => {
                let wrong = Some(format!("{}: {what}", self.index));
                Ran { report: Report::default(), wrong }
            }
        })
    }

    fn command(&self) -> String {
        let TrialOptions { seed, caches_survive, explore, .. } = &self.options;
        format!(
            "entresol torture index --seed {seed} --histories 1 --index {} --domain {} --nested {}",
            self.index,
            domain(*caches_survive),
            explore.nested.one_in
        )
    }
}

/// Returns options for keys of any length if the seed is odd. Such keys take more room, and only
/// some indexes support them.
fn with_long_keys(options: &TrialOptions) -> Option<TrialOptions> {
    (options.seed % 2 == 1).then_some(TrialOptions { region_bytes: 1 << 20, ..*options })
}

fn run(
    index: IndexName,
    options: &TrialOptions,
    ops: &[Op],
    stop: &Stop,
) -> Result<Report, String> {
    type On = RecordedRegion;
    match index {
        // Small nodes cause more splits.
        IndexName::FastFair => trial::run_until::<FastFair<On>>(
            options,
            &FastFairOptions { node_bytes: 128 },
            ops,
            stop,
        ),
        IndexName::Ods => {
            let small = OdsOptions { node_bytes: 128, ..OdsOptions::default() };
            match with_long_keys(options) {
                Some(options) => trial::run_until::<Ods<On, Bytes>>(&options, &small, ops, stop),
                None => trial::run_until::<Ods<On>>(options, &small, ops, stop),
            }
        }
        IndexName::SvTree => match with_long_keys(options) {
            Some(options) => trial::run_until::<SvTree<On, Bytes>>(&options, &Bytes, ops, stop),
            None => trial::run_until::<SvTree<On>>(options, &Inline, ops, stop),
        },
        IndexName::WbTree => {
            trial::run_until::<WbTree<On>>(options, &WbTreeOptions { node_entries: 4 }, ops, stop)
        }
        IndexName::FpTree => {
            trial::run_until::<FpTree<On>>(options, &FpTreeOptions { leaf_records: 6 }, ops, stop)
        }
        IndexName::SkipList => trial::run_until::<SkipList<On>>(options, &(), ops, stop),
        IndexName::HybridIndex => {
            let table = HashTableOptions { segment_bytes: 256, ..HashTableOptions::default() };
            let small = HybridOptions { table, queue_entries: 4 };
            trial::run_until::<HybridIndex<On>>(options, &small, ops, stop)
        }
        IndexName::HybridIndexPlus => {
            let tree = FastFairOptions { node_bytes: 128 };
            let small = HybridPlusOptions { tree, ..HybridPlusOptions::default() };
            trial::run_until::<HybridIndexPlus<FastFair<On>>>(options, &small, ops, stop)
        }
        IndexName::BTreeMap | IndexName::SkipMap => Ok(Report::default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_index_survives_some_histories() {
        let histories = Some(2 * IndexName::PERSISTENT.len() as u64);
        let plan = Plan { histories, ..Plan::default() };
        let settings = Settings { plan, ..Settings::default() };
        let outcome = torture(&settings, &Progress::hidden()).expect("histories");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.images > 1_000 * IndexName::PERSISTENT.len() as u64, "{outcome}");
        assert_eq!(outcome.subjects.len(), 2 * IndexName::PERSISTENT.len(), "{outcome}");
    }

    #[test]
    fn what_there_was_no_time_for_is_named() {
        let time = Some(std::time::Duration::from_millis(1));
        let indexes = vec![IndexName::SkipList, IndexName::SvTree];
        let settings = Settings { plan: Plan { time, ..Plan::default() }, indexes };
        let outcome = torture(&settings, &Progress::hidden()).expect("a history");
        let missing = ["sv-tree, memory", "skip-list, caches", "sv-tree, caches"];
        assert_eq!(outcome.subjects_missing, missing, "{outcome}");
        assert!(outcome.to_string().contains("not tried, time was up: sv-tree, memory"));
    }

    #[test]
    fn what_keeps_nothing_is_not_tried() {
        let settings = Settings { indexes: vec![IndexName::BTreeMap], ..Settings::default() };
        let error = torture(&settings, &Progress::hidden()).expect_err("volatile");
        assert!(error.is_usage() && error.to_string().contains("btree-map"), "{error}");
    }
}
