//! The code map of ARCHITECTURE.md: it names every top-level module of every crate.

use std::collections::BTreeSet;

use crate::problem::Problem;
use crate::repository::Repository;

const ARCHITECTURE: &str = "ARCHITECTURE.md";

/// Files that are no modules of their own, or have the same meaning in every crate.
const NOT_NAMED: [&str; 5] = ["lib", "main", "error", "tests", "testing"];

/// Returns the modules that the section of their crate does not name.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let map = repository.files.get(ARCHITECTURE).and_then(|file| file.text.as_deref());
    let map = map.unwrap_or_default();
    let mut problems = Vec::new();
    for (root, module) in modules(repository) {
        let (line, names) = section(map, root);
        if !names.contains(module) {
            let what = format!("the code map does not name the module {module} of {root}");
            let fix = format!("say in backticks, in the section `{root}`, what it is for");
            problems.push(Problem::new(ARCHITECTURE, line, what, fix));
        }
    }
    problems
}

/// Returns the top-level modules, each with its crate.
fn modules(repository: &Repository) -> BTreeSet<(&str, &str)> {
    let below = repository.texts("rs").filter_map(|(path, _)| {
        let (root, file) = path.strip_prefix("crates/")?.split_once("/src/")?;
        let module = file.split('/').next()?.trim_end_matches(".rs");
        (!NOT_NAMED.contains(&module)).then_some((root, module))
    });
    below.collect()
}

/// Returns the line of a crate's section and the words in backticks in it.
fn section<'a>(map: &'a str, root: &str) -> (usize, BTreeSet<&'a str>) {
    let title = format!("### `{root}`");
    let Some(start) = map.lines().position(|line| line == title) else {
        return (0, BTreeSet::new());
    };
    let lines = map.lines().skip(start + 1).take_while(|line| !line.starts_with("##"));
    let quoted = lines.flat_map(|line| line.split('`').skip(1).step_by(2));
    let words = quoted.flat_map(|it| it.split(|c: char| !c.is_alphanumeric() && c != '_'));
    (start + 1, words.collect())
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    #[test]
    fn a_module_is_named_in_the_section_of_its_crate() {
        for (map, missing) in [
            ("### `a`\n\nThe module `b`, and `c/d`.\n\n### `e`\n\n`f`\n", 0),
            ("### `a`\n\nThe module b, and `c/d`.\n\n### `e`\n\n`f`\n", 1),
            ("### `a`\n\n`c`\n\n### `e`\n\n`b`, `f`\n", 1),
            ("### `a`\n\n`b`, `c`\n", 1),
            ("", 3),
        ] {
            let files = [
                ("ARCHITECTURE.md", map),
                ("crates/a/src/lib.rs", ""),
                ("crates/a/src/b.rs", ""),
                ("crates/a/src/c/mod.rs", ""),
                ("crates/a/src/c/d.rs", ""),
                ("crates/e/src/error.rs", ""),
                ("crates/e/src/f.rs", ""),
            ];
            assert_eq!(check(&Repository::of(&files)).len(), missing, "{map}");
        }
    }
}
