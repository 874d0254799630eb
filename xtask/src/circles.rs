//! No circles: top-level modules of a crate do not import each other, directly or by others.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::repository::Repository;
use crate::source::{is_test_attribute, is_test_path};

/// Module by module, the top-level modules of its crate that it names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Files that are the root of a crate.
const ROOTS: [&str; 2] = ["lib.rs", "main.rs"];

/// Modules that reach themselves.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let mut problems = Vec::new();
    for (path, _) in repository.texts("rs") {
        let Some((root, file)) = path.split_once("/src/") else { continue };
        if !ROOTS.contains(&file) {
            continue;
        }
        let circle = circle(&arrows(repository, root));
        for module in &circle {
            let what = format!("the module {module} stands in a circle: {}", joined(&circle));
            let fix = "move what both sides need below them";
            problems.push(Problem::new(path, 1, what, fix));
        }
    }
    problems
}

fn joined(modules: &BTreeSet<String>) -> String {
    modules.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
}

/// Modules from which a way leads back to themselves.
fn circle(arrows: &Arrows) -> BTreeSet<String> {
    let reaches_itself = |start: &&String| {
        let mut left = vec![*start];
        let mut seen = BTreeSet::new();
        while let Some(module) = left.pop() {
            for next in arrows.get(module).into_iter().flatten() {
                if next == *start {
                    return true;
                }
                if seen.insert(next) {
                    left.push(next);
                }
            }
        }
        false
    };
    arrows.keys().filter(reaches_itself).cloned().collect()
}

fn arrows(repository: &Repository, root: &str) -> Arrows {
    let prefix = format!("{root}/src/");
    let mut exports = BTreeMap::new();
    let mut arrows = Arrows::new();
    let files: Vec<(&str, syn::File)> = repository
        .texts("rs")
        .filter(|(path, _)| path.starts_with(&prefix) && !is_test_path(path))
        .filter_map(|(path, text)| Some((&path[prefix.len()..], syn::parse_file(text).ok()?)))
        .collect();
    for (_, file) in files.iter().filter(|(path, _)| ROOTS.contains(path)) {
        exports.extend(exported(file));
    }
    for (path, file) in files.iter().filter(|(path, _)| !ROOTS.contains(path)) {
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        let depth = path.trim_end_matches("/mod.rs").split('/').count();
        let mut finder = Finder { depth, found: BTreeSet::new() };
        finder.visit_file(file);
        let targets =
            finder.found.into_iter().map(|name| exports.get(&name).cloned().unwrap_or(name));
        arrows.entry(module.to_owned()).or_default().extend(targets.filter(|name| name != module));
    }
    let modules: BTreeSet<String> = arrows.keys().cloned().collect();
    arrows.values_mut().for_each(|targets| targets.retain(|target| modules.contains(target)));
    arrows
}

/// Names that the crate's root exports, each with the module that it comes from.
fn exported(root: &syn::File) -> BTreeMap<String, String> {
    let mut exports = BTreeMap::new();
    for item in &root.items {
        if let syn::Item::Use(it) = item
            && let syn::UseTree::Path(path) = &it.tree
        {
            let (first, rest) = match (&*path.tree, path.ident == "crate") {
                (syn::UseTree::Path(below), true) => (&below.ident, &below.tree),
                _ => (&path.ident, &path.tree),
            };
            exports.extend(leaves(rest).into_iter().map(|name| (name, first.to_string())));
        }
    }
    exports
}

fn leaves(tree: &syn::UseTree) -> Vec<String> {
    match tree {
        syn::UseTree::Path(path) => leaves(&path.tree),
        syn::UseTree::Name(name) => vec![name.ident.to_string()],
        syn::UseTree::Rename(rename) => vec![rename.rename.to_string()],
        syn::UseTree::Group(group) => group.items.iter().flat_map(leaves).collect(),
        syn::UseTree::Glob(_) => Vec::new(),
    }
}

/// Collects the first names below the crate's root in paths that begin with `crate` or `super`.
struct Finder {
    /// Number of modules from the root down to the present one.
    depth: usize,
    found: BTreeSet<String>,
}

impl Finder {
    /// Takes the names of a path in order, up to the one below the root.
    fn follow(&mut self, names: impl IntoIterator<Item = String>) {
        let mut depth = self.depth;
        for name in names {
            match name.as_str() {
                "crate" => depth = 0,
                "self" => {}
                "super" => depth = depth.saturating_sub(1),
                _ => {
                    if depth == 0 {
                        self.found.insert(name);
                    }
                    return;
                }
            }
        }
    }

    fn follow_tree(&mut self, tree: &syn::UseTree, before: &[String]) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.follow_tree(&path.tree, &with(&path.ident)),
            syn::UseTree::Name(name) => self.follow(with(&name.ident)),
            syn::UseTree::Rename(rename) => self.follow(with(&rename.ident)),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|it| self.follow_tree(it, before));
            }
            syn::UseTree::Glob(_) => self.follow(before.to_vec()),
        }
    }

    /// Follows the paths among the arguments of a macro or an attribute.
    fn follow_tokens(&mut self, tokens: &TokenStream) {
        let mut names = Vec::new();
        let mut colons = 0;
        for token in tokens.clone() {
            match token {
                TokenTree::Ident(ident) => {
                    if colons != 2 {
                        self.follow_path(&mut names);
                    }
                    names.push(ident.to_string());
                    colons = 0;
                }
                TokenTree::Punct(punct) if punct.as_char() == ':' => colons += 1,
                other => {
                    self.follow_path(&mut names);
                    colons = 0;
                    if let TokenTree::Group(group) = other {
                        self.follow_tokens(&group.stream());
                    }
                }
            }
        }
        self.follow_path(&mut names);
    }

    fn follow_path(&mut self, names: &mut Vec<String>) {
        if names.first().is_some_and(|first| first == "crate" || first == "super") {
            self.follow(names.drain(..));
        }
        names.clear();
    }
}

impl<'ast> Visit<'ast> for Finder {
    fn visit_item(&mut self, item: &'ast syn::Item) {
        let attributes = match item {
            syn::Item::Mod(it) => &it.attrs,
            syn::Item::Fn(it) => &it.attrs,
            syn::Item::Use(it) => &it.attrs,
            _ => return visit::visit_item(self, item),
        };
        if !attributes.iter().any(is_test_attribute) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.depth += 1;
        visit::visit_item_mod(self, item);
        self.depth -= 1;
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        let first = match &item.tree {
            syn::UseTree::Path(path) => path.ident.to_string(),
            _ => return,
        };
        if first == "crate" || first == "super" {
            self.follow_tree(&item.tree, &[]);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut names: Vec<String> = path.segments.iter().map(|it| it.ident.to_string()).collect();
        self.follow_path(&mut names);
        visit::visit_path(self, path);
    }

    fn visit_macro(&mut self, item: &'ast syn::Macro) {
        self.follow_tokens(&item.tokens);
        visit::visit_macro(self, item);
    }

    fn visit_meta_list(&mut self, list: &'ast syn::MetaList) {
        self.follow_tokens(&list.tokens);
        visit::visit_meta_list(self, list);
    }
}

#[cfg(test)]
mod tests {
    use super::{Repository, check};

    const ROOT: (&str, &str) = ("crates/a/src/lib.rs", "mod b;\nmod c;\npub use c::d::Thing;\n");

    #[test]
    fn a_circle_is_found_also_through_what_the_root_exports() {
        for (b, c, count) in [
            ("use crate::c::d;", "", 0),
            ("use crate::c::d;", "use crate::b::{self, e};", 2),
            ("use crate::Thing;", "fn f() { crate::b::g() }", 2),
            ("use super::c;", "use crate::b;", 2),
            ("use crate::c;", "#[cfg(test)]\nmod tests { use crate::b; }", 0),
            ("use crate::c;", "use super::f;", 0),
            ("use crate::c;", "fn f() { assert!(!crate::b::g(1), \"{}\", a::b) }", 2),
            ("use crate::c;", "#[arg(value_parser = super::b::g)]\nstruct S;", 2),
            ("use crate::c;", "mod inner { use super::super::b; }", 2),
            ("use crate::c;", "mod inner { use super::b; }", 0),
        ] {
            let files = [ROOT, ("crates/a/src/b.rs", b), ("crates/a/src/c/mod.rs", c)];
            let found = check(&Repository::of(&files));
            assert_eq!(found.len(), count, "{b} {c}");
        }
    }

    #[test]
    fn nested_files_and_programs_are_read() {
        for (path, text, count) in [
            ("crates/a/src/c/d.rs", "use super::super::b;", 2),
            ("crates/a/src/c/d.rs", "use super::b;", 0),
            ("crates/a/src/c/d/e.rs", "fn f() { super::super::super::b::g() }", 2),
            ("crates/a/src/c/d/mod.rs", "use super::super::b::{g, h};", 2),
        ] {
            let files = [
                ("crates/a/src/main.rs", "mod b;\nmod c;\n"),
                ("crates/a/src/b.rs", "use crate::c;"),
                ("crates/a/src/c/mod.rs", "mod d;"),
                (path, text),
            ];
            let found = check(&Repository::of(&files));
            assert_eq!(found.len(), count, "{path}: {text}");
        }
    }
}
