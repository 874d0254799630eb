//! Maximum lengths of files, functions and lines. Tests are not counted.

use std::collections::BTreeSet;

use proc_macro2::{Span, TokenStream, TokenTree};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::source::{is_test_attribute, is_test_path};

const FILE_LINES_MAX: usize = 1000;
const FUNCTION_LINES_MAX: usize = 70;
const LINE_CHARACTERS_MAX: usize = 100;

/// Exceptions as `path::function` with the current number of lines, or `path` for a whole file. A
/// ratchet: numbers may fall and entries may go, but neither may come back.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// Returns everything too long in one Rust file.
pub(crate) fn check(path: &str, text: &str, syntax: &syn::File) -> Vec<Problem> {
    check_with(path, text, syntax, EXCEPTIONS)
}

/// Returns exceptions for files that no longer exist.
pub(crate) fn stale_exceptions(paths: &[&str]) -> Vec<Problem> {
    let gone = EXCEPTIONS.iter().filter(|(name, _)| {
        let file = name.split("::").next().unwrap_or(name);
        !paths.contains(&file)
    });
    let fix = "remove it from EXCEPTIONS";
    gone.map(|(name, _)| Problem::new("xtask/src/sizes.rs", 0, format!("{name} is gone"), fix))
        .collect()
}

fn check_with(
    path: &str,
    text: &str,
    syntax: &syn::File,
    exceptions: &[(&str, usize)],
) -> Vec<Problem> {
    let mut problems = long_lines(path, text);
    if is_test_path(path) {
        return problems;
    }
    let mut measure = Measure::default();
    measure.visit_file(syntax);

    let lines = text.lines().count().saturating_sub(measure.test_lines);
    problems.extend(judge(path, path, 1, lines, FILE_LINES_MAX, exceptions));
    for function in &measure.functions {
        let name = format!("{path}::{}", function.name);
        let (line, lines) = (function.line, function.lines);
        problems.extend(judge(path, &name, line, lines, FUNCTION_LINES_MAX, exceptions));
    }
    problems.extend(outgrown(path, &measure, exceptions));
    problems
}

fn long_lines(path: &str, text: &str) -> Vec<Problem> {
    // Tables of test data are easier to read with one row on a line, however long.
    let data = if is_test_path(path) { literal_lines(text) } else { BTreeSet::new() };
    let long = text.lines().enumerate().filter_map(|(index, line)| {
        let (number, characters) = (index + 1, line.chars().count());
        (characters > LINE_CHARACTERS_MAX && !data.contains(&number))
            .then_some((number, characters))
    });
    long.map(|(line, characters)| {
        let what = format!("line of {characters} characters, at most {LINE_CHARACTERS_MAX}");
        Problem::new(path, line, what, "break it")
    })
    .collect()
}

/// Returns the lines that hold a part of a string literal.
fn literal_lines(text: &str) -> BTreeSet<usize> {
    let mut lines = BTreeSet::new();
    let mut left: Vec<TokenStream> = text.parse().into_iter().collect();
    while let Some(stream) = left.pop() {
        for token in stream {
            match token {
                TokenTree::Group(group) => left.push(group.stream()),
                TokenTree::Literal(literal) if literal.to_string().contains('"') => {
                    let span = literal.span();
                    lines.extend(span.start().line..=span.end().line);
                }
                _ => {}
            }
        }
    }
    lines
}

fn judge(
    path: &str,
    name: &str,
    line: usize,
    lines: usize,
    wall: usize,
    exceptions: &[(&str, usize)],
) -> Option<Problem> {
    let exception = exceptions.iter().find(|(known, _)| *known == name).map(|(_, lines)| *lines);
    match exception {
        None if lines > wall => {
            let what = format!("{name} has {lines} lines, at most {wall}");
            Some(Problem::new(path, line, what, "split it where it changes its subject"))
        }
        Some(allowed) if lines > allowed => {
            let what = format!("{name} has grown to {lines} lines from {allowed}");
            Some(Problem::new(path, line, what, "exceptions only shrink: split it"))
        }
        Some(allowed) if lines < allowed => {
            let what = format!("{name} has shrunk to {lines} lines from {allowed}");
            let fix = format!("write {lines} in EXCEPTIONS, or remove it at {wall} and below");
            Some(Problem::new(path, line, what, fix))
        }
        _ => None,
    }
}

/// Returns exceptions for functions that this file no longer has.
fn outgrown(path: &str, measure: &Measure, exceptions: &[(&str, usize)]) -> Vec<Problem> {
    let prefix = format!("{path}::");
    let gone = exceptions.iter().filter_map(|(name, _)| {
        let function = name.strip_prefix(&prefix)?;
        let there = measure.functions.iter().any(|known| known.name == function);
        (!there).then_some(*name)
    });
    gone.map(|name| Problem::new(path, 0, format!("{name} is gone"), "remove it from EXCEPTIONS"))
        .collect()
}

#[derive(Debug)]
struct Function {
    name: String,
    line: usize,
    lines: usize,
}

/// Walks a file, counting the lines of functions and of tests.
#[derive(Debug, Default)]
struct Measure {
    functions: Vec<Function>,
    test_lines: usize,
    owner: Option<String>,
}

impl Measure {
    /// Counts from the word `fn` (or `pub`) to the closing brace; comments above are not counted.
    fn function(&mut self, signature: &syn::Signature, body: Span) {
        let (first, last) = (signature.span().start().line, body.end().line);
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        self.functions.push(Function { name, line: first, lines: last - first + 1 });
    }

    /// Returns true if the item is a test, and then leaves out its lines.
    fn sets_aside(&mut self, attributes: &[syn::Attribute], span: Span) -> bool {
        let is_test = attributes.iter().any(is_test_attribute);
        if is_test {
            self.test_lines += span.end().line - span.start().line + 1;
        }
        is_test
    }

    fn within(&mut self, owner: Option<String>, walk: impl FnOnce(&mut Self)) {
        let outer = std::mem::replace(&mut self.owner, owner);
        walk(self);
        self.owner = outer;
    }
}

impl<'ast> Visit<'ast> for Measure {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !self.sets_aside(&item.attrs, item.span()) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !self.sets_aside(&item.attrs, item.span()) {
            self.function(&item.sig, item.block.span());
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !self.sets_aside(&item.attrs, item.span()) {
            self.function(&item.sig, item.block.span());
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(body) = &item.default {
            self.function(&item.sig, body.span());
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if self.sets_aside(&item.attrs, item.span()) {
            return;
        }
        let owner = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|last| last.ident.to_string()),
            _ => None,
        };
        self.within(owner, |measure| visit::visit_item_impl(measure, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let owner = Some(item.ident.to_string());
        self.within(owner, |measure| visit::visit_item_trait(measure, item));
    }
}

#[cfg(test)]
mod tests {
    use super::{Problem, check_with};

    fn problems(path: &str, text: &str, exceptions: &[(&str, usize)]) -> Vec<Problem> {
        check_with(path, text, &syn::parse_file(text).unwrap(), exceptions)
    }

    fn function(lines: usize) -> String {
        format!("impl Long {{\n    fn way(&self) {{\n{}    }}\n}}\n", "\n".repeat(lines - 2))
    }

    #[test]
    fn a_function_at_the_wall_passes_and_one_line_more_does_not() {
        assert_eq!(problems("a.rs", &function(70), &[]), []);
        let found = problems("a.rs", &function(71), &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 2);
        assert!(found[0].what.contains("a.rs::Long::way has 71 lines"), "{}", found[0]);
    }

    #[test]
    fn tests_are_not_counted() {
        let body = "\n".repeat(1200);
        for text in [
            format!("#[cfg(test)]\nmod tests {{\n    fn long() {{{body}}}\n}}\n"),
            format!("#[test]\nfn long() {{{body}}}\n"),
        ] {
            assert_eq!(problems("a.rs", &text, &[]), []);
        }
        assert_eq!(problems("crates/a/tests/b.rs", &function(200), &[]), []);
    }

    #[test]
    fn a_file_may_have_a_thousand_lines() {
        assert_eq!(problems("a.rs", &"\n".repeat(1000), &[]), []);
        assert_eq!(problems("a.rs", &"\n".repeat(1001), &[]).len(), 1);
    }

    #[test]
    fn exceptions_only_shrink() {
        let exceptions = [("a.rs::Long::way", 80)];
        assert_eq!(problems("a.rs", &function(80), &exceptions), []);
        for (lines, part) in [(81, "has grown"), (79, "has shrunk"), (20, "has shrunk")] {
            let found = problems("a.rs", &function(lines), &exceptions);
            assert_eq!(found.len(), 1, "{lines}");
            assert!(found[0].what.contains(part), "{lines}: {}", found[0]);
        }
        let found = problems("a.rs", "//! Empty.\n", &exceptions);
        assert!(found[0].what.contains("is gone"), "{}", found[0]);
    }

    #[test]
    fn a_line_is_measured_in_characters() {
        let line = |characters: usize| format!("// {}\n", "ü".repeat(characters - 3));
        assert_eq!(problems("a.rs", &line(100), &[]), []);
        assert_eq!(problems("a.rs", &line(101), &[])[0].line, 1);
        assert_eq!(problems("crates/a/tests/b.rs", &line(101), &[]).len(), 1);
        let data = format!("const A: &str = \"{}\";\n", "a".repeat(100));
        assert_eq!(problems("a.rs", &data, &[]).len(), 1);
        assert_eq!(problems("crates/a/tests/b.rs", &data, &[]), []);
        let data = format!("fn a() {{\n    b!(r\"\n{}\n\");\n}}\n", "a".repeat(101));
        assert_eq!(problems("a.rs", &data, &[])[0].line, 3);
        assert_eq!(problems("crates/a/tests/b.rs", &data, &[]), []);
    }
}
