//! Words that the glossary has replaced: refused in documents, in doc comments and in identifiers.

use proc_macro2::{TokenStream, TokenTree};

use crate::documents::prose;
use crate::problem::Problem;
use crate::repository::Repository;

/// The one home of the list: the table of this document whose first column is headed `HEAD`.
const GLOSSARY: &str = "docs/glossary.md";
const HEAD: &str = "not used here";

/// Documents that name replaced words: the list itself, and the history of renamings.
const EXEMPT: [&str; 2] = [GLOSSARY, "CHANGELOG.md"];

/// A word or phrase that is refused, and the ones to use instead.
struct Replaced<'a> {
    word: &'a str,
    instead: &'a str,
}

/// Returns the replaced words in documents, outside code, in doc comments and in identifiers.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let glossary = repository.texts("md").find(|(path, _)| *path == GLOSSARY);
    let replaced = replaced(glossary.map_or("", |(_, text)| text));
    if replaced.is_empty() {
        let what = format!("no table of words headed «{HEAD}»");
        return vec![Problem::new(GLOSSARY, 0, what, "list the replaced words there")];
    }
    let mut problems = Vec::new();
    for (path, text) in repository.texts("md").filter(|(path, _)| !EXEMPT.contains(path)) {
        problems.extend(prose(text).flat_map(|(line, words)| found(path, line, words, &replaced)));
    }
    for (path, text) in repository.texts("rs") {
        problems.extend(doc_comments(text).flat_map(|(line, it)| found(path, line, it, &replaced)));
    }
    problems.extend(old_names(repository, &replaced));
    problems
}

/// Returns the identifiers with replaced words.
fn old_names(repository: &Repository, replaced: &[Replaced<'_>]) -> Vec<Problem> {
    let spaced = |word: &str| word.replace('-', " ");
    let replaced: Vec<(String, &str)> =
        replaced.iter().map(|it| (spaced(it.word), it.instead)).collect();
    let mut problems = Vec::new();
    for (path, text) in repository.texts("rs") {
        let mut names = Vec::new();
        // A file that does not parse is reported elsewhere.
        identifiers(&text.parse().unwrap_or_default(), &mut names);
        for (line, name) in names {
            let words = words_of(&name);
            let Some((word, instead)) = replaced.iter().find(|(word, _)| holds(&words, word))
            else {
                continue;
            };
            let what = format!("«{word}» in the identifier {name} is not used here");
            problems.push(Problem::new(path, line, what, format!("use {instead}")));
        }
    }
    problems
}

/// Collects the identifiers among `tokens`, each with its line.
fn identifiers(tokens: &TokenStream, names: &mut Vec<(usize, String)>) {
    for token in tokens.clone() {
        match token {
            TokenTree::Ident(ident) => names.push((ident.span().start().line, ident.to_string())),
            TokenTree::Group(group) => identifiers(&group.stream(), names),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

/// Splits an identifier into words in small letters, with a space between them.
fn words_of(name: &str) -> String {
    let mut words = String::new();
    let mut before = ' ';
    for c in name.chars() {
        if c == '_' || before.is_lowercase() && c.is_uppercase() {
            words.push(' ');
        }
        words.extend(c.to_lowercase().filter(|c| *c != '_'));
        before = c;
    }
    words
}

/// Reads the rows of the glossary's table, in which commas separate words with one meaning.
fn replaced(glossary: &str) -> Vec<Replaced<'_>> {
    let cells = |line: &'_ str| -> Option<(usize, usize)> {
        let second = 1 + line.strip_prefix('|')?.find('|')?;
        Some((second, second + 1 + line[second + 1..].find('|')?))
    };
    let rows = glossary.lines().filter_map(|line| {
        let (second, end) = cells(line)?;
        Some((line[1..second].trim(), line[second + 1..end].trim()))
    });
    // The heads, with a row of dashes behind them, begin a table; a line without cells ends it.
    let table = rows.skip_while(|(first, _)| *first != HEAD).skip(2);
    let words = table.flat_map(|(words, instead)| {
        words.split(',').map(move |word| Replaced { word: word.trim(), instead })
    });
    words.filter(|it| !it.word.is_empty()).collect()
}

/// Returns the lines of doc comments without their markers, counted from 1, outside fenced code.
fn doc_comments(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut fenced = false;
    text.lines().enumerate().filter_map(move |(index, line)| {
        let line = line.trim_start();
        let Some(words) = line.strip_prefix("///").or_else(|| line.strip_prefix("//!")) else {
            fenced = false;
            return None;
        };
        let is_fence = words.trim_start().starts_with("```");
        fenced ^= is_fence;
        (!is_fence && !fenced).then_some((index + 1, words))
    })
}

fn found(path: &str, line: usize, words: &str, replaced: &[Replaced<'_>]) -> Vec<Problem> {
    // Between backticks stand names of code and of files, which may be older than the glossary.
    let text: String = words.split('`').step_by(2).collect::<Vec<_>>().join("`");
    let hits = replaced.iter().filter(|it| holds(&text, it.word));
    let problem = |it: &Replaced<'_>| {
        let what = format!("«{}» is not used here", it.word);
        Problem::new(path, line, what, format!("use {}", it.instead))
    };
    hits.map(problem).collect()
}

/// Returns true if `text` has the word by itself, in small letters or with a capital at its start.
fn holds(text: &str, word: &str) -> bool {
    let first = word.chars().next().unwrap_or_default();
    let capital = first.to_uppercase().chain(word.chars().skip(1)).collect::<String>();
    [word, capital.as_str()].iter().any(|word| {
        text.match_indices(word).any(|(at, it)| {
            let before = text[..at].chars().next_back();
            let after = text[at + it.len()..].chars().next();
            ![before, after].into_iter().flatten().any(char::is_alphanumeric)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    const GLOSSARY: &str = "# Glossary\n\n| term | means |\n|---|---|\n| run | a frozen file |\n\n\
                            | not used here | use |\n|---|---|\n| frozen, freeze | flushed |\n\
                            | cache of entries | row cache |\n";

    fn lines(path: &str, text: &str) -> Vec<usize> {
        let files = [("docs/glossary.md", GLOSSARY), (path, text)];
        let problems = check(&Repository::of(&files)).into_iter();
        problems.filter(|it| it.path == path).map(|it| it.line).collect()
    }

    #[test]
    fn replaced_words_are_found_in_documents_outside_code() {
        for (text, expected) in [
            ("# A\n\nFrozen data, and the cache of entries.\n", vec![3, 3]),
            ("`log.frozen`, `a` frozen `b`\n", vec![1]),
            ("```\nfrozen\n```\nunfrozen, freezer\n", vec![]),
            ("| frozen | run |\n", vec![1]),
        ] {
            assert_eq!(lines("docs/a.md", text), expected, "{text}");
        }
        assert_eq!(lines("CHANGELOG.md", "frozen\n"), [0; 0]);
    }

    #[test]
    fn replaced_words_are_found_in_doc_comments_alone() {
        let text = [
            "//! Frozen.",
            "// frozen",
            "fn flushed() {} // frozen",
            "    /// A freeze.",
            "/// ```",
            "/// frozen",
            "/// ```",
        ];
        assert_eq!(lines("crates/media/a.rs", &text.join("\n")), [1, 4]);
    }

    #[test]
    fn replaced_words_are_found_in_identifiers() {
        let text = "struct OneFreeze;\nfn cache_of_entries() { let unfrozen = \"frozen\"; }\n\
                    const FROZEN: u8 = 1; // freeze\nfn f() { g!(was_frozen, Freezer) }\n";
        assert_eq!(lines("crates/media/a.rs", text), [1, 2, 3, 4]);
        assert_eq!(lines("crates/store/a.rs", text), [1, 2, 3, 4]);
    }

    #[test]
    fn a_glossary_without_the_table_is_reported() {
        let found = check(&Repository::of(&[("docs/a.md", "frozen\n")]));
        assert!(found.len() == 1 && found[0].path == "docs/glossary.md", "{found:?}");
    }
}
