//! Rules for the text of every file: first lines, unfinished work, large files, modes.

use crate::problem::Problem;
use crate::repository::{File, Repository};

/// Maximum size of a file. Larger ones belong in a registry, or are generated when needed.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Files maintained by tools, which may be larger.
const LARGE: [&str; 1] = ["Cargo.lock"];

/// Written in halves, so that this file passes its own rule.
const UNFINISHED: [&str; 5] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
    concat!("to", "do!("),
    concat!("unimple", "mented!("),
];

/// Checks the rules for any file.
pub(crate) fn check_files(repository: &Repository) -> Vec<Problem> {
    repository.files.iter().flat_map(|(path, file)| check_file(path, file)).collect()
}

fn check_file(path: &str, file: &File) -> Vec<Problem> {
    let mut problems = Vec::new();
    if file.bytes > FILE_BYTES_MAX && !LARGE.contains(&path) {
        let what = format!("{} bytes, at most {FILE_BYTES_MAX}", file.bytes);
        problems.push(Problem::new(path, 0, what, "make it where it is needed, or fetch it"));
    }
    let Some(text) = &file.text else { return problems };
    if text.starts_with("#!/") && !file.executable {
        problems.push(Problem::new(path, 1, "a script that cannot be run", "chmod +x it"));
    }
    // Licence texts are quoted verbatim.
    if !path.starts_with("LICENSE") {
        problems.extend(unfinished(path, text));
    }
    problems
}

fn unfinished(path: &str, text: &str) -> Vec<Problem> {
    let found = text.lines().enumerate().filter_map(|(index, line)| {
        let word = UNFINISHED.iter().find(|word| holds_word(line, word))?;
        Some((index + 1, *word))
    });
    found
        .map(|(line, word)| {
            Problem::new(path, line, format!("{word} in the text"), "finish it or take it out")
        })
        .collect()
}

/// Returns true if the line has the word on its own, not as part of a longer one.
fn holds_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(start, _)| {
        let is_letter = |c: char| c.is_alphanumeric() || c == '_';
        let before = line[..start].chars().next_back();
        let after = line[start + word.len()..].chars().next();
        let ends_open = word.ends_with('(');
        !before.is_some_and(is_letter) && (ends_open || !after.is_some_and(is_letter))
    })
}

/// Checks that a Rust file describes itself in its first line.
pub(crate) fn check_first_line(path: &str, text: &str) -> Option<Problem> {
    let says = text.lines().next().is_some_and(|line| line.len() > 4 && line.starts_with("//! "));
    let fix = "describe the file in one sentence";
    (!says).then(|| Problem::new(path, 1, "the first line is not a `//!` sentence", fix))
}

/// Returns true for files that hold only tests.
pub(crate) fn is_test_path(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.contains("/benches/")
}

/// Returns true for `#[test]`, `#[cfg(test)]` and `#[cfg(all(test, ..))]`.
pub(crate) fn is_test_attribute(attribute: &syn::Attribute) -> bool {
    if attribute.path().is_ident("test") {
        return true;
    }
    let syn::Meta::List(list) = &attribute.meta else { return false };
    let condition = list.tokens.to_string();
    attribute.path().is_ident("cfg")
        && (condition == "test"
            || condition.starts_with("all (test")
            || condition.starts_with("all(test"))
}

#[cfg(test)]
mod tests {
    use super::{File, check_file, check_first_line, is_test_attribute};

    fn file(text: &str) -> File {
        File { bytes: text.len() as u64, text: Some(text.to_owned()), executable: false }
    }

    #[test]
    fn unfinished_work_is_found_by_whole_words() {
        for (text, count) in [
            (concat!("fn a() {\n    to", "do!()\n}\n"), 1),
            (concat!("// TO", "DO: later\n"), 1),
            (concat!("// FIX", "ME\n// and TO", "DO\n"), 2),
            (concat!("MASTO", "DON and unimple", "mented\n"), 0),
        ] {
            assert_eq!(check_file("a.rs", &file(text)).len(), count, "{text}");
        }
    }

    #[test]
    fn large_files_and_scripts_without_the_bit_are_found() {
        let large = File { bytes: 1 << 20, ..File::default() };
        assert_eq!(check_file("a.bin", &large).len(), 1);
        assert_eq!(check_file("Cargo.lock", &large), []);
        assert_eq!(check_file("run", &file("#!/bin/sh\n")).len(), 1);
        assert_eq!(check_file("run", &File { executable: true, ..file("#!/bin/sh\n") }), []);
    }

    #[test]
    fn the_first_line_is_a_sentence() {
        assert_eq!(check_first_line("a.rs", "//! What it is.\n"), None);
        for text in ["", "//!\n", "// What it is.\n", "use a;\n//! late\n"] {
            assert!(check_first_line("a.rs", text).is_some(), "{text:?}");
        }
    }

    #[test]
    fn test_attributes_are_known() {
        for (text, expected) in [
            ("#[test] fn a() {}", true),
            ("#[cfg(test)] fn a() {}", true),
            ("#[cfg(all(test, unix))] fn a() {}", true),
            ("#[cfg(not(test))] fn a() {}", false),
            ("#[cfg(feature = \"test\")] fn a() {}", false),
            ("#[inline] fn a() {}", false),
        ] {
            let item: syn::ItemFn = syn::parse_str(text).unwrap();
            assert_eq!(item.attrs.iter().any(is_test_attribute), expected, "{text}");
        }
    }
}
