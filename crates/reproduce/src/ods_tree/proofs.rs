//! Proofs of the reasons in `expected-failures.toml`: lines that each operation flushes, in the
//! published form of a tree and in the one that ships, with the same keys in the same order; and
//! the times of figure 4 with one count replaced.

use entresol_measure::index::Workload;

use super::core::{Form, Run, Tree};
use super::counts::{Single, fewer, single};
use super::emulated::Counted;
use super::mixed::Mix;
use super::times::LATENCIES;
use crate::Settings;

/// Most lines of an operation in one node of four, with those of a compaction. A split flushes six
/// at least.
const LINES_OF_A_NODE: f64 = 5.0;

/// Operations of one kind, and the lines that they flushed.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Lines {
    operations: f64,
    lines: f64,
}

impl Lines {
    fn add(&mut self, lines: f64) {
        self.operations += 1.0;
        self.lines += lines;
    }

    fn each(self) -> f64 {
        self.lines / self.operations
    }
}

/// Lines by what flushed them.
#[derive(Debug, Clone, Copy, Default)]
struct Causes {
    inserts: Lines,
    /// Inserts that split a node.
    splits: Lines,
    deletes: Lines,
    /// Deletes that merged nodes, or shared their records.
    merges: Lines,
}

impl Causes {
    fn of(run: &mut Run, order: &[Workload]) -> Causes {
        let mut causes = Causes::default();
        for &kind in order {
            let lines = run.counted(kind, 1).expect("right answers").lines_flushed;
            let is_in_a_node = lines <= LINES_OF_A_NODE;
            match kind {
                Workload::Insert if is_in_a_node => causes.inserts.add(lines),
                Workload::Insert => causes.splits.add(lines),
                Workload::Delete if is_in_a_node => causes.deletes.add(lines),
                Workload::Delete => causes.merges.add(lines),
                _ => assert_eq!(lines, 0.0, "a find flushes nothing"),
            }
        }
        causes
    }

    fn lines(&self) -> f64 {
        let Causes { inserts, splits, deletes, merges } = self;
        inserts.lines + splits.lines + deletes.lines + merges.lines
    }

    /// Replaces what a split flushes by what it does in another form.
    fn with_splits_of(mut self, other: Causes) -> Causes {
        self.splits.lines = self.splits.operations * other.splits.each();
        self
    }

    fn print(&self, what: &str) {
        let told = |name: &str, of: Lines| {
            let (count, each) = (of.operations, of.each());
            format!("{count} {name} of {each:.3} lines")
        };
        println!(
            "{what}: {:.0} lines: {}, {}, {}, {}",
            self.lines(),
            told("inserts", self.inserts),
            told("that split", self.splits),
            told("deletes", self.deletes),
            told("that merge", self.merges),
        );
    }
}

/// Runs the same operations on both forms of a tree: as published, and crash-safe.
fn both(tree: Tree, of: impl Fn(Form) -> Causes) -> [Causes; 2] {
    [Form::Published, Form::CrashSafe].map(|form| {
        let causes = of(form);
        causes.print(&format!("{} {}", tree.name(), form.name()));
        causes
    })
}

/// Seed of the first run of the tables.
const SEED: u64 = 10;

fn mixed(mix: Mix, tree: Tree, form: Form) -> Causes {
    let run = Mix::warmed((tree, form), Counted::Flushes, SEED);
    let mut run = run.expect("right answers");
    let order = run.shuffled(mix.parts());
    Causes::of(&mut run, &order)
}

/// Asserts that a number is within so many per cent of another.
#[track_caller]
fn near(what: &str, ours: f64, paper: f64, percent: f64) {
    assert!((ours / paper - 1.0).abs() * 100.0 <= percent, "{what}: {ours}, not {paper}");
}

#[test]
#[ignore = "run by .ci/slow: slow tests"]
fn slow_a_split_alone_flushes_fewer_lines_than_published() {
    for (mix, of_published) in Mix::BOTH.into_iter().zip([21.0..=25.0, 36.8..=38.0]) {
        let (mut all, mut with_splits, mut published) = (vec![], vec![], vec![]);
        for (tree, paper) in Tree::BOTH.into_iter().zip(mix.lines()) {
            let [theirs, ours] = both(tree, |form| mixed(mix, tree, form));
            let what = format!("{}, {}", mix.name(), tree.name());
            near("an insert that splits no node", ours.inserts.each(), theirs.inserts.each(), 0.3);
            if tree != Tree::FastFair {
                assert_eq!(ours.deletes, theirs.deletes, "{what}: deletes flush the same");
            }
            let counted = ours.with_splits_of(theirs).lines();
            println!("{what}: {counted:.0} if splits flushed as many as published, paper {paper}");
            if (mix, tree) != (Mix::W2, Tree::FastFair) {
                near(&what, counted, paper, 4.0);
            }
            all.push(ours.lines());
            with_splits.push(counted);
            published.push(theirs.lines());
        }
        let saved = [&all, &with_splits, &published].map(|it| fewer(it[3], it[0]));
        println!("{}: ODS0.2 saves {saved:.2?}%, paper {}", mix.name(), mix.fewer_at_most());
        assert!(saved.is_sorted_by(|more, less| more > less), "{saved:?}");
        assert!(of_published.contains(&saved[2]), "{saved:?}");
    }
}

/// Runs the deletes of table 2.
fn deletes(tree: Tree, form: Form) -> (Causes, f64) {
    let extra = if let Tree::Ods(percent) = tree { 500 * percent } else { 0 };
    let run = Run::warmed((tree, form), (50_000, extra), Counted::Flushes, SEED);
    let mut run = run.expect("right answers");
    run.counted(Workload::Insert, 50_000).expect("right answers");
    let merges = |run: &Run| run.statistics().expect("no damage").merges as f64;
    let before = merges(&run);
    let causes = Causes::of(&mut run, &[Workload::Delete; 50_000]);
    (causes, merges(&run) - before)
}

#[test]
fn fast_fair_flushes_fewer_lines_for_merges_and_more_for_the_other_deletes() {
    let [theirs, ours] = both(Tree::FastFair, |form| deletes(Tree::FastFair, form).0);
    near("deletes as published", theirs.lines(), 158_347.0, 3.0);
    // The published code leaves the last line that it changes unflushed.
    assert!((1.4..1.6).contains(&theirs.deletes.each()), "{:?}", theirs.deletes);
    assert!((2.2..2.4).contains(&ours.deletes.each()), "{:?}", ours.deletes);
    // It inserts the records of a node singly into the one before, and shares those of two.
    assert!((12.0..13.5).contains(&theirs.merges.each()), "{:?}", theirs.merges);
    assert!((7.0..8.5).contains(&ours.merges.each()), "{:?}", ours.merges);
    assert!(ours.merges.operations < 0.7 * theirs.merges.operations);
    let safe = Causes { merges: theirs.merges, ..ours };
    println!("crash-safe deletes with the published merges: {:.0} lines", safe.lines());
    assert!(safe.lines() > 1.2 * 158_347.0);
}

#[test]
fn a_delete_flushes_one_line_unless_it_gives_a_node_back() {
    for tree in [Tree::Ods(0), Tree::Ods(10), Tree::Ods(20)] {
        let extra = if let Tree::Ods(percent) = tree { 500 * percent } else { 0 };
        let run = Run::warmed((tree, Form::CrashSafe), (50_000, extra), Counted::Flushes, SEED);
        let mut run = run.expect("right answers");
        run.counted(Workload::Insert, 50_000).expect("right answers");
        let before = run.statistics().expect("no damage").merges;
        let (mut more, mut lines) = (0, 0.0);
        for _ in 0..50_000 {
            let flushed = run.counted(Workload::Delete, 1).expect("right answers").lines_flushed;
            more += u64::from(flushed > 1.0);
            lines += flushed;
        }
        let freed = run.statistics().expect("no damage").merges - before;
        println!("{}: {lines} lines, {freed} nodes given back by {more} deletes", tree.name());
        assert!(freed > 0 && (more..more + 5).contains(&freed), "{more} deletes of {freed} nodes");
    }
}

/// Runs a tree as figure 4 does.
fn timed(tree: Tree, form: Form) -> Single {
    let run = single((tree, form), Counted::Everything, 2, &Settings::default());
    run.expect("right answers")
}

#[test]
fn inserts_take_less_than_the_wb_trees_if_that_flushes_what_the_paper_counts() {
    let ods = timed(Tree::Ods(10), Form::CrashSafe).inserts;
    let ours = timed(Tree::Wb, Form::CrashSafe).inserts;
    let mut theirs = ours;
    theirs.lines_flushed = 377_204.0;
    let [low, ..] = LATENCIES;
    let ratios = [ours, theirs].map(|wb| low.ratio(&ods, &wb));
    println!("low: inserts, ODS0.1 / wB+-tree: {ratios:.4?}; ours flushes {}", ours.lines_flushed);
    assert!(ratios[0] > 0.55 * 1.05 && ratios[1] <= 0.55, "{ratios:?}");
}

#[test]
fn deletes_save_enough_over_fast_fair_if_that_flushes_what_the_paper_counts() {
    let ours = timed(Tree::FastFair, Form::CrashSafe).deletes;
    let mut theirs = ours;
    theirs.lines_flushed = 158_347.0;
    let [low, ..] = LATENCIES;
    for tree in [Tree::Ods(0), Tree::Ods(10), Tree::Ods(20)] {
        let ods = timed(tree, Form::CrashSafe).deletes;
        let ratios = [ours, theirs].map(|fast_fair| low.ratio(&ods, &fast_fair));
        println!("low: deletes, {} / FAST&FAIR: {ratios:.4?}", tree.name());
        assert!(ratios[0] > 0.42 && ratios[1] <= 0.42, "{ratios:?}");
    }
}

#[test]
fn a_find_fetches_fewer_lines_than_the_wb_trees_and_more_of_them_from_memory() {
    let wb = timed(Tree::Wb, Form::CrashSafe).finds;
    for tree in [Tree::Ods(10), Tree::Ods(20)] {
        let [theirs, ours] = [Form::Published, Form::CrashSafe].map(|form| timed(tree, form).finds);
        let each = |lines: f64| lines / ours.operations;
        println!(
            "{}: {:.2} lines for a find, as published {:.2}, wB+-tree {:.2}; from memory {:.3}, \
             wB+-tree {:.3}",
            tree.name(),
            each(ours.fetched),
            each(theirs.fetched),
            each(wb.fetched),
            each(ours.misses),
            each(wb.misses),
        );
        assert!(ours.fetched < wb.fetched && theirs.fetched > wb.fetched);
        assert!(ours.misses > 1.2 * wb.misses);
    }
}
