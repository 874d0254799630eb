//! Rules for the English of doc comments: openings, and words for actors without a name.

use crate::problem::Problem;

/// Openings that a doc comment must not have: rustdoc shows it alone, so it must name its subject.
const OPENINGS: [&str; 24] = [
    "What ", "Who ", "Whoever ", "Whom ", "Whose ", "Whether ", "How ", "Where ", "When ",
    "The same", "So many", "So much", "As many", "As much", "Those ", "And ", "But ", "Nor ",
    "Or ", "That ", "...", "It ", "One's ", "He ",
];

/// Openings that the comment of an item must not have either; the head of a module may begin so.
const ITEM_OPENINGS: [&str; 13] = [
    "There ", "In ", "No ", "None ", "By ", "Not ", "To ", "For ", "On ", "Has ", "Have ",
    "All of ", "Because ",
];

/// Words that stand for an actor with a name: writer, reader, caller, client, recovery.
const NOBODIES: [&str; 6] = ["whoever", "whomever", "somebody", "anybody", "nobody", "everybody"];

/// Returns doc comments that begin in the middle of a thought, and comments without named actors.
pub(crate) fn check(path: &str, text: &str) -> Vec<Problem> {
    let mut found = Vec::new();
    let mut before = "";
    for (index, line) in text.lines().enumerate() {
        let Some((marker, words)) = comment(line) else {
            before = "";
            continue;
        };
        let begins = marker != "//" && marker != before;
        let item_openings = if marker == "///" { ITEM_OPENINGS.as_slice() } else { &[] };
        let mut openings = OPENINGS.iter().chain(item_openings);
        if begins && openings.any(|opening| words.starts_with(opening)) {
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

#[cfg(test)]
mod tests {
    use super::check;

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
            ("/// In a record.\na,\n/// No room is left.\n", vec![1, 3]),
            ("//! No circles.\nfn a() {}\n// In order.\n/// None.\n/// Nothing\n", vec![]),
        ] {
            let found: Vec<usize> = check("a.rs", text).iter().map(|it| it.line).collect();
            assert_eq!(found, lines, "{text}");
        }
    }
}
