//! All rules, applied to the whole repository.

use crate::metadata::Metadata;
use crate::problem::Problem;
use crate::repository::Repository;
use crate::{
    circles, comments, documents, floors, folders, impls, licences, map, mutation, reference,
    sizes, source, unsafety, words,
};

/// Returns the number of files checked, and their problems.
pub(crate) fn run() -> Result<(usize, Vec<Problem>), String> {
    let repository = Repository::read()?;
    let metadata = Metadata::read()?;
    let mut problems = check_rust(&repository);
    problems.extend(source::check_files(&repository));
    problems.extend(unsafety::stale_names(&repository));
    problems.extend(documents::check(&repository));
    problems.extend(documents::check_dependencies(&repository, &metadata));
    problems.extend(words::check(&repository));
    problems.extend(reference::check(&repository));
    problems.extend(circles::check(&repository));
    problems.extend(map::check(&repository));
    problems.extend(folders::check(&repository));
    problems.extend(impls::check(&repository));
    problems.extend(floors::check(&metadata));
    problems.extend(licences::check(&metadata));
    problems.sort();
    problems.dedup();
    Ok((repository.files.len(), problems))
}

fn check_rust(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    let mut paths = Vec::new();
    let mut names = mutation::Names::default();
    for (path, text) in repository.texts("rs") {
        paths.push(path);
        problems.extend(source::check_first_line(path, text));
        problems.extend(comments::check(path, text));
        match syn::parse_file(text) {
            Ok(syntax) => {
                problems.extend(sizes::check(path, text, &syntax));
                problems.extend(unsafety::check(path, &syntax));
                problems.extend(names.check(path, text));
            }
            Err(error) => {
                let line = error.span().start().line;
                let what = format!("the file does not parse: {error}");
                problems.push(Problem::new(path, line, what, "mend it"));
            }
        }
    }
    problems.extend(sizes::stale_exceptions(&paths));
    problems
}

#[cfg(test)]
mod tests {
    use super::{Repository, check_rust};

    #[test]
    fn a_file_that_does_not_parse_is_reported_with_its_line() {
        let mut found = check_rust(&Repository::of(&[("a.rs", "//! A.\nfn a() {}\nfn (\n")]));
        // Exceptions for places that this repository lacks are reported as well.
        found.retain(|problem| problem.path == "a.rs");
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }
}
