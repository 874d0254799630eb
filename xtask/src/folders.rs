//! Folders are the architecture: not too flat, and a module with a folder lies in it.

use std::collections::BTreeMap;

use crate::problem::Problem;
use crate::repository::Repository;
use crate::source::is_test_path;

const FILES_MAX: usize = 20;

/// Folders with too many source files, and modules that lie beside their folder.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for (path, _) in repository.texts("rs").filter(|(path, _)| path.contains("/src/")) {
        if let Some((folder, _)) = path.rsplit_once('/')
            && !is_test_path(path)
        {
            *counts.entry(folder).or_default() += 1;
        }
        if let Some(stem) = path.strip_suffix(".rs")
            && repository.holds(&format!("{stem}/"))
        {
            let what = "a module beside its folder";
            problems.push(Problem::new(path, 1, what, format!("move it to {stem}/mod.rs")));
        }
    }
    for (folder, count) in &counts {
        if *count > FILES_MAX {
            let what = format!("{count} source files in one folder, at most {FILES_MAX}");
            problems.push(Problem::new(folder, 0, what, "make a folder of what belongs together"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{FILES_MAX, Repository, check};

    #[test]
    fn flat_folders_and_modules_beside_their_folder_are_found() {
        let names: Vec<String> = (0..=FILES_MAX).map(|it| format!("a/src/b/f{it}.rs")).collect();
        let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "//! A.")).collect();
        assert_eq!(check(&Repository::of(&files)).len(), 1);
        assert_eq!(check(&Repository::of(&files[1..])), []);
        let beside = Repository::of(&[("a/src/b.rs", "//! B."), ("a/src/b/c.rs", "//! C.")]);
        assert_eq!(check(&beside).len(), 1);
        let inside = Repository::of(&[("a/src/b/mod.rs", "//! B."), ("a/src/b/c.rs", "//! C.")]);
        assert_eq!(check(&inside), []);
    }
}
