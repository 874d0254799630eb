//! Indexes under crashes: the histories of [`entresol_index::trial`], until time is up.

use std::collections::BTreeSet;
use std::time::Duration;

use entresol_index::keys::Inline;
use entresol_index::trial::{self, Op, TrialOptions};
use entresol_index::{
    FastFair, FastFairOptions, FpTree, FpTreeOptions, HashTableOptions, HybridIndex,
    HybridIndexPlus, HybridOptions, HybridPlusOptions, Ods, OdsOptions, SkipList, SvTree, WbTree,
    WbTreeOptions,
};
use entresol_media::crash::{Nested, RecordedRegion, Report};

use super::drive::{Plan, Tried, drive};
use super::outcome::Outcome;
use crate::error::BenchError;
use crate::index::IndexName;
use crate::progress::Progress;

/// What is tried, and for how long.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The seed of the first history; each next one has the next.
    pub seed: u64,
    /// For so long, if given.
    pub time: Option<Duration>,
    /// So many histories, if given.
    pub histories: Option<u64>,
    /// These, in turn.
    pub indexes: Vec<IndexName>,
    /// Whether caches keep their contents when the power fails; both if not given.
    pub caches_survive: Option<bool>,
    /// One recovery in so many is cut off by crashes itself; 0 is none.
    pub nested_one_in: u32,
    /// Places that ought to be reached.
    pub known_places: BTreeSet<String>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            seed: 1,
            time: None,
            histories: None,
            indexes: IndexName::PERSISTENT.to_vec(),
            caches_survive: None,
            nested_one_in: Nested::default().one_in,
            known_places: BTreeSet::new(),
        }
    }
}

/// Tries histories until time is up or one fails.
///
/// # Errors
/// If nothing is to be tried.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<Outcome, BenchError> {
    if let Some(none) = settings.indexes.iter().find(|it| !IndexName::PERSISTENT.contains(it)) {
        let problem = format!("{none} keeps nothing, so no crash can be survived");
        return Err(BenchError::Usage(problem));
    }
    let plan = Plan {
        subject: "index",
        seed: settings.seed,
        planted: false,
        time: settings.time,
        histories: settings.histories,
        known_places: settings.known_places.clone(),
    };
    drive(&plan, |number| trials(settings, number), progress)
}

/// One history of one index.
struct Trial {
    index: IndexName,
    options: TrialOptions,
}

/// Each index in turn has its history of each seed, once with volatile and once with durable
/// caches.
fn trials(settings: &Settings, number: u64) -> Vec<Trial> {
    let of = settings.indexes.len().max(1) as u64;
    let Some(&index) = settings.indexes.get((number % of) as usize) else { return Vec::new() };
    let seed = settings.seed.wrapping_add(number / of);
    let domains = [false, true].into_iter();
    let domains = domains.filter(|it| settings.caches_survive.is_none_or(|wanted| wanted == *it));
    let trial = |caches_survive| {
        let mut options = TrialOptions { caches_survive, ..TrialOptions::seeded(seed) };
        options.explore.nested.one_in = settings.nested_one_in;
        options.in_world = index.has_threads();
        Trial { index, options }
    };
    domains.map(trial).collect()
}

impl Tried for Trial {
    type Op = Op;

    fn history(&self) -> Vec<Op> {
        trial::history(&self.options)
    }

    fn run(&self, ops: &[Op]) -> Result<Report, String> {
        let report = run(self.index, &self.options, ops);
        report.map_err(|what| format!("{}: {what}", self.index))
    }

    fn command(&self) -> String {
        let TrialOptions { seed, caches_survive, explore, .. } = &self.options;
        let domain = if *caches_survive { "caches" } else { "memory" };
        format!(
            "entresol torture index --seed {seed} --histories 1 --index {} --domain {domain} \
             --nested {}",
            self.index, explore.nested.one_in
        )
    }
}

fn run(index: IndexName, options: &TrialOptions, ops: &[Op]) -> Result<Report, String> {
    type On = RecordedRegion;
    match index {
        // Small nodes: more splits.
        IndexName::FastFair => {
            trial::run::<FastFair<On>>(options, &FastFairOptions { node_bytes: 128 }, ops)
        }
        IndexName::Ods => {
            let small = OdsOptions { node_bytes: 128, ..OdsOptions::default() };
            trial::run::<Ods<On>>(options, &small, ops)
        }
        IndexName::SvTree => trial::run::<SvTree<On>>(options, &Inline, ops),
        IndexName::WbTree => {
            trial::run::<WbTree<On>>(options, &WbTreeOptions { node_entries: 4 }, ops)
        }
        IndexName::FpTree => {
            trial::run::<FpTree<On>>(options, &FpTreeOptions { leaf_records: 6 }, ops)
        }
        IndexName::SkipList => trial::run::<SkipList<On>>(options, &(), ops),
        IndexName::HybridIndex => {
            let table = HashTableOptions { segment_bytes: 256, ..HashTableOptions::default() };
            let small = HybridOptions { table, queue_entries: 4 };
            trial::run::<HybridIndex<On>>(options, &small, ops)
        }
        IndexName::HybridIndexPlus => {
            let tree = FastFairOptions { node_bytes: 128 };
            let small = HybridPlusOptions { tree, ..HybridPlusOptions::default() };
            trial::run::<HybridIndexPlus<FastFair<On>>>(options, &small, ops)
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
        let settings = Settings { histories, ..Settings::default() };
        let outcome = torture(&settings, &Progress::hidden()).expect("histories");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.images > 1_000 * IndexName::PERSISTENT.len() as u64, "{outcome}");
    }

    #[test]
    fn what_keeps_nothing_is_not_tried() {
        let settings = Settings { indexes: vec![IndexName::BTreeMap], ..Settings::default() };
        let error = torture(&settings, &Progress::hidden()).expect_err("volatile");
        assert!(error.is_usage() && error.to_string().contains("btree-map"), "{error}");
    }
}
