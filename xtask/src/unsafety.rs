//! Modules in which `unsafe` may stand: listed ones of `media` and of `peers/`, no others.

use proc_macro2::Span;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::repository::Repository;

/// Modules that may hold unsafe code; a folder ends in `/`.
const UNSAFE_MODULES: [&str; 2] = ["crates/media/src/raw/", "peers/src/lmdb.rs"];

/// Crates whose roots need not forbid unsafe code; the second is never part of a build.
const UNSAFE_CRATES: [&str; 2] = ["crates/media/", "peers/"];

/// Returns unsafe code outside the listed modules, and crate roots that do not forbid it.
pub(crate) fn check(path: &str, syntax: &syn::File) -> Vec<Problem> {
    let mut problems = Vec::new();
    if is_root(path)
        && !UNSAFE_CRATES.iter().any(|it| path.starts_with(it))
        && !forbids_unsafe(syntax)
    {
        let what = "a crate root that does not forbid unsafe code";
        problems.push(Problem::new(path, 1, what, "write #![forbid(unsafe_code)] below the docs"));
    }
    if UNSAFE_MODULES.iter().any(|module| path.starts_with(module)) {
        return problems;
    }
    let mut finder = Finder::default();
    finder.visit_file(syntax);
    problems.extend(finder.lines.iter().map(|line| {
        let fix = "use what media offers, or move it into a module of UNSAFE_MODULES";
        Problem::new(path, *line, "unsafe code outside the listed modules of media", fix)
    }));
    problems
}

/// Returns the listed modules and crates that the repository lacks.
pub(crate) fn stale_names(repository: &Repository) -> Vec<Problem> {
    let names = UNSAFE_MODULES.iter().chain(&UNSAFE_CRATES);
    let stale = names.filter(|name| !repository.holds(name));
    let problem = |name: &&str| {
        let what = format!("{name} may hold unsafe code, and does not exist");
        Problem::new("xtask/src/unsafety.rs", 1, what, "take it off the list")
    };
    stale.map(problem).collect()
}

fn is_root(path: &str) -> bool {
    let mut parts = path.rsplit('/');
    let is_name = matches!(parts.next(), Some("lib.rs" | "main.rs"));
    is_name && parts.next() == Some("src")
}

fn forbids_unsafe(syntax: &syn::File) -> bool {
    syntax.attrs.iter().any(|attribute| match &attribute.meta {
        syn::Meta::List(list) => {
            list.path.is_ident("forbid") && list.tokens.to_string() == "unsafe_code"
        }
        _ => false,
    })
}

#[derive(Default)]
struct Finder {
    lines: Vec<usize>,
}

impl Finder {
    fn found(&mut self, span: Span) {
        self.lines.push(span.start().line);
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_expr_unsafe(&mut self, block: &'ast syn::ExprUnsafe) {
        self.found(block.unsafe_token.span());
        visit::visit_expr_unsafe(self, block);
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if let Some(token) = &signature.unsafety {
            self.found(token.span());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if let Some(token) = &item.unsafety {
            self.found(token.span());
        }
        visit::visit_item_impl(self, item);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        if let Some(token) = &item.unsafety {
            self.found(token.span());
        }
        visit::visit_item_trait(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::{Repository, check, stale_names};

    fn lines(path: &str, text: &str) -> Vec<usize> {
        check(path, &syn::parse_file(text).unwrap()).iter().map(|problem| problem.line).collect()
    }

    const ALL: &str = "//! A.\nfn a() {\n    unsafe { b() }\n}\nunsafe fn c() {}\n\
        unsafe impl Send for D {}\nunsafe trait E {}\n";

    #[test]
    fn unsafe_code_is_found_outside_its_home() {
        assert_eq!(lines("crates/cache/src/index.rs", ALL), [3, 5, 6, 7]);
        assert_eq!(lines("crates/media/src/region.rs", ALL), [3, 5, 6, 7]);
        assert_eq!(lines("crates/media/src/raw/mapping.rs", ALL), [0; 0]);
    }

    #[test]
    fn every_other_crate_root_forbids_it() {
        assert_eq!(lines("crates/cache/src/lib.rs", "//! A.\n"), [1]);
        assert_eq!(lines("crates/cache/src/lib.rs", "//! A.\n#![forbid(unsafe_code)]\n"), [0; 0]);
        assert_eq!(lines("crates/media/src/lib.rs", "//! A.\n"), [0; 0]);
        assert_eq!(lines("crates/cache/src/index/lib.rs", "//! A.\n"), [0; 0]);
    }

    #[test]
    fn a_listed_name_stands_for_something() {
        let files = [("crates/media/src/raw/mod.rs", ""), ("peers/src/lmdb.rs", "")];
        assert_eq!(stale_names(&Repository::of(&files)), []);
        assert_eq!(stale_names(&Repository::of(&files[..1])).len(), 2);
    }
}
