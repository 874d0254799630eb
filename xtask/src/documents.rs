//! Rules for the documents: one title each, links that lead somewhere, dependencies explained.

use crate::metadata::{Metadata, manifest};
use crate::problem::Problem;
use crate::repository::Repository;

const DEPENDENCIES: &str = "docs/dependencies.md";

/// Checks that every document has one title and no dead link.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let documents = repository.texts("md");
    documents.flat_map(|(path, text)| check_document(repository, path, text)).collect()
}

fn check_document(repository: &Repository, path: &str, text: &str) -> Vec<Problem> {
    let titles: Vec<usize> =
        prose(text).filter_map(|(line, words)| words.starts_with("# ").then_some(line)).collect();
    let mut problems = Vec::new();
    if titles.len() != 1 {
        let line = titles.get(1).copied().unwrap_or(1);
        let what = format!("{} first-level headings, exactly one wanted", titles.len());
        problems.push(Problem::new(path, line, what, "one `# Title`, the rest `##` and below"));
    }
    for (line, words) in prose(text) {
        let dead = targets(words).into_iter().filter(|target| !resolves(repository, path, target));
        problems.extend(dead.map(|target| {
            let fix = "name a file of the repository and a heading in it";
            Problem::new(path, line, format!("the link {target} leads nowhere"), fix)
        }));
    }
    problems
}

/// Returns the lines outside fenced code, counted from 1.
pub(crate) fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!is_fence && !fenced).then_some((index + 1, line))
    })
}

/// Returns the targets of a line's `[words](target)` links.
fn targets(line: &str) -> Vec<&str> {
    let ends = line.match_indices("](");
    ends.filter_map(|(at, opening)| {
        let rest = &line[at + opening.len()..];
        rest.find(')').map(|end| &rest[..end])
    })
    .collect()
}

fn resolves(repository: &Repository, from: &str, target: &str) -> bool {
    if target.starts_with("https://") || target.starts_with("http://") {
        return true;
    }
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { Some(from.to_owned()) } else { join(from, file) };
    let Some(path) = path else { return false };
    if heading.is_empty() {
        return repository.holds(&path);
    }
    let text = repository.files.get(&path).and_then(|file| file.text.as_deref());
    text.is_some_and(|text| {
        let titles = prose(text).filter(|(_, line)| line.starts_with('#'));
        titles.into_iter().any(|(_, line)| anchor(line.trim_start_matches('#')) == heading)
    })
}

/// Resolves a link of a document to a path; none if it leaves the repository.
fn join(from: &str, to: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in to.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns a heading's anchor, as the usual viewers form it.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter_map(|c| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        c if c.is_alphanumeric() => Some(c),
        _ => None,
    });
    kept.flat_map(char::to_lowercase).collect()
}

/// Checks that the document on dependencies names every direct dependency in backticks.
pub(crate) fn check_dependencies(repository: &Repository, metadata: &Metadata) -> Vec<Problem> {
    let file = repository.files.get(DEPENDENCIES);
    let Some(text) = file.and_then(|file| file.text.as_deref()) else {
        let fix = "write it: each direct dependency, why, and the runner-up";
        return vec![Problem::new(DEPENDENCIES, 0, "there is no such document", fix)];
    };
    let mut problems = Vec::new();
    for member in metadata.members() {
        let foreign = member.dependencies.iter().filter(|dependency| dependency.path.is_none());
        problems.extend(foreign.filter(|d| !text.contains(&format!("`{}`", d.name))).map(|d| {
            let what = format!("the dependency `{}` is not explained", d.name);
            let fix = format!("explain in {DEPENDENCIES} why it is there, and name the runner-up");
            Problem::new(&manifest(&member.name), 0, what, fix)
        }));
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::{Problem, Repository, anchor, check, check_dependencies, join};
    use crate::metadata::{Dependency, Metadata, Package};

    fn problems(text: &str) -> Vec<Problem> {
        let other = "# Other\n\n## Two words, and more\n";
        check(&Repository::of(&[("docs/a.md", text), ("docs/b.md", other), ("top.rs", "")]))
    }

    #[test]
    fn one_title() {
        assert_eq!(problems("# A\n\n```sh\n# a comment\n```\n"), []);
        assert_eq!(problems("## A\n").len(), 1);
        assert_eq!(problems("# A\n# B\n")[0].line, 2);
    }

    #[test]
    fn links_resolve() {
        for (link, dead) in [
            ("b.md", 0),
            ("../top.rs", 0),
            ("../docs", 0),
            ("b.md#two-words-and-more", 0),
            ("#a", 0),
            ("https://example.org/", 0),
            ("c.md", 1),
            ("b.md#three", 1),
            ("../../outside.md", 1),
        ] {
            let text = format!("# A\n\nSee [that]({link}).\n");
            assert_eq!(problems(&text).len(), dead, "{link}");
        }
    }

    #[test]
    fn paths_and_anchors() {
        assert_eq!(join("docs/a.md", "./b.md").as_deref(), Some("docs/b.md"));
        assert_eq!(join("a.md", "../b.md"), None);
        assert_eq!(anchor(" The `mg` command: flags"), "the-mg-command-flags");
    }

    #[test]
    fn dependencies_are_explained() {
        let member = Package {
            id: "1".into(),
            name: "entresol-base".into(),
            version: "0.1.0".into(),
            license: None,
            dependencies: vec![Dependency { name: "crc32c".into(), ..Dependency::default() }],
        };
        let metadata = Metadata { packages: vec![member], workspace_members: vec!["1".into()] };
        let with = |text| Repository::of(&[("docs/dependencies.md", text)]);
        assert_eq!(check_dependencies(&with("`crc32c`: why"), &metadata), []);
        assert_eq!(check_dependencies(&with("crc"), &metadata).len(), 1);
        assert_eq!(check_dependencies(&Repository::default(), &metadata).len(), 1);
    }
}
