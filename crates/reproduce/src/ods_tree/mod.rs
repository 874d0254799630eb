//! ODS-Tree: its tables and figures.

mod core;
mod counts;
mod emulated;
mod mixed;
#[cfg(test)]
mod proofs;
mod times;

use super::Entry;

const SOURCE: &str = "One-Direction Shift B+-Tree Based on Persistent Memory";

pub(super) const ENTRIES: &[Entry] = &[
    Entry {
        name: "003-table2",
        part: "",
        source: SOURCE,
        about: "lines flushed by inserts and deletes",
        run: counts::table2,
    },
    Entry {
        name: "003-table3",
        part: "",
        source: SOURCE,
        about: "lines flushed by mixed loads",
        run: mixed::table3,
    },
    Entry {
        name: "003-fig4",
        part: "",
        source: SOURCE,
        about: "time of inserts, finds and deletes at three latencies",
        run: times::fig4,
    },
    Entry {
        name: "003-fig5",
        part: "a",
        source: SOURCE,
        about: "time of W1 at three latencies",
        run: times::fig5a,
    },
    Entry {
        name: "003-fig5",
        part: "b",
        source: SOURCE,
        about: "time of W2 at three latencies",
        run: times::fig5b,
    },
];

#[cfg(test)]
mod tests {
    use entresol_measure::index::Workload;

    use super::core::{Form, Run, Tree};
    use super::emulated::{Counted, Counts};

    /// Runs a mix of 3:1:1 on a small tree.
    fn small(tree: Tree, form: Form, counted: Counted) -> Counts {
        let run = Run::warmed((tree, form), (8_000, 0), counted, 3);
        run.and_then(|mut run| run.mixed([3_000, 1_000, 1_000])).expect("right answers")
    }

    #[test]
    fn a_run_repeats_and_what_else_is_counted_changes_no_flush() {
        for tree in Tree::BOTH {
            for form in [Form::Published, Form::CrashSafe] {
                let all = small(tree, form, Counted::Everything);
                assert_eq!(all, small(tree, form, Counted::Everything), "{tree:?} {form:?}");
                let flushes = small(tree, form, Counted::Flushes);
                assert_eq!(all.lines_flushed, flushes.lines_flushed, "{tree:?} {form:?}");
                assert!(all.misses > 0.0 && flushes.misses == 0.0, "{tree:?} {form:?}");
            }
        }
    }

    #[test]
    fn statistics_are_no_part_of_the_load() {
        let counts = |has_statistics: bool| {
            let warmed =
                Run::warmed((Tree::Ods(0), Form::CrashSafe), (8_000, 0), Counted::Everything, 3);
            let mut run = warmed.expect("right answers");
            if has_statistics {
                run.statistics().expect("no damage");
            }
            run.counted(Workload::Read, 1_000).expect("right answers")
        };
        let without = counts(false);
        assert!(without.misses > 0.0 && counts(true) == without, "{without:?}");
    }

    #[test]
    fn a_tree_that_removes_in_place_flushes_less() {
        for form in [Form::Published, Form::CrashSafe] {
            let lines = |tree| small(tree, form, Counted::Flushes).lines_flushed;
            let saved = 1.0 - lines(Tree::Ods(0)) / lines(Tree::FastFair);
            assert!((0.05..0.3).contains(&saved), "{form:?}: {saved}");
        }
    }
}
