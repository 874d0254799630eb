//! Rules for the English of doc comments: openings, and words for actors without a name.

use crate::problem::Problem;
use crate::repository::Repository;

/// Openings that a doc comment must not have: rustdoc shows it alone, so it must name its subject.
const OPENINGS: [&str; 24] = [
    "What ", "Who ", "Whoever ", "Whom ", "Whose ", "Whether ", "How ", "Where ", "When ",
    "The same", "So many", "So much", "As many", "As much", "Those ", "And ", "But ", "Nor ",
    "Or ", "That ", "...", "It ", "One's ", "He ",
];

/// Words that stand for an actor with a name: writer, reader, caller, client, recovery.
const NOBODIES: [&str; 6] = ["whoever", "whomever", "somebody", "anybody", "nobody", "everybody"];

/// Places whose comments are not rewritten yet. The list only shrinks.
const NOT_YET: &[&str] = &[
    "crates/cli/",
    "crates/index/",
    "crates/protocol/",
    "crates/server/",
    "crates/sharing/",
    "crates/store/",
    "peers/",
];

/// Returns doc comments that begin in the middle of a thought, and comments without named actors.
pub(crate) fn check(path: &str, text: &str) -> Vec<Problem> {
    match NOT_YET.iter().any(|place| path.starts_with(place)) {
        true => Vec::new(),
        false => problems(path, text),
    }
}

fn problems(path: &str, text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let Some((marker, words)) = comment(line) else {
            before = "";
            continue;
        };
        let begins = marker != "//" && marker != before;
        if begins && OPENINGS.iter().any(|opening| words.starts_with(opening)) {
            let what = format!("a doc comment that begins «{}»", first_words(words));
            let fix = "begin with the thing itself or with a verb: «Bytes of ...», «Returns ...»";
            found.push(Problem::new(path, index + 1, what, fix));
        }
        if let Some(word) = NOBODIES.iter().find(|word| holds(words, word)) {
            let fix = "name the actor: writer, reader, caller, client, recovery";
            found.push(Problem::new(path, index + 1, format!("«{word}» in a comment"), fix));
        }
        before = marker;
    }
    found
}

/// Splits a line that is a comment into its marker and its words.
fn comment(line: &str) -> Option<(&'static str, &str)> {
    let line = line.trim_start();
    ["//!", "///", "//"].into_iter().find_map(|marker| {
        let rest = line.strip_prefix(marker)?;
        Some((marker, rest.trim_start()))
    })
}

fn first_words(words: &str) -> String {
    words.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

fn holds(words: &str, word: &str) -> bool {
    words.split(|c: char| !c.is_alphabetic()).any(|part| part.eq_ignore_ascii_case(word))
}

/// Exceptions that name no place of the repository.
pub(crate) fn stale_exceptions(repository: &Repository) -> Vec<Problem> {
    let is_stale = |place: &&&str| !repository.holds(place);
    let stale = NOT_YET.iter().filter(is_stale);
    stale
        .map(|place| {
            let what = format!("{place} of NOT_YET is no place of the repository");
            Problem::new("xtask/src/comments.rs", 1, what, "take it off the list")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::problems;

    #[test]
    fn openings_and_nobodies_are_found_where_they_stand() {
        for (text, lines) in [
            ("/// What a segment holds.\n", vec![1]),
            ("/// Bytes of a segment.\n/// What follows is free.\n", vec![]),
            ("/// Bytes.\nfn a() {}\n    /// The same for keys.\n", vec![3]),
            ("//! Whoever reads.\n", vec![1, 1]),
            ("fn a() {} // Nobody waits.\n// nobody waits\n", vec![2]),
            ("// What follows is a remark.\n", vec![]),
            ("/// Whatever fits.\n", vec![]),
        ] {
            let found: Vec<usize> = problems("a.rs", text).iter().map(|it| it.line).collect();
            assert_eq!(found, lines, "{text}");
        }
    }
}
