//! No circles: top-level modules of a crate do not import each other, directly or by others.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::repository::Repository;
use crate::source::{is_test_attribute, is_test_path};

/// Modules that stand in a circle today, by crate. The lists only shrink.
const EXCEPTIONS: &[(&str, &[&str])] = &[(
    "store",
    &[
        "api", "cache", "error", "memtable", "options", "repair", "run", "upkeep", "version",
        "volumes", "wal",
    ],
)];

/// Module by module, the top-level modules of its crate that it names.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// Modules that reach themselves and are not excepted, and exceptions that no longer do.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    check_with(repository, EXCEPTIONS)
}

fn check_with(repository: &Repository, exceptions: &[(&str, &[&str])]) -> Vec<Problem> {
    let mut problems = Vec::new();
    let roots = repository.texts("rs").filter_map(|(path, _)| path.strip_suffix("/src/lib.rs"));
    for root in roots.filter(|root| root.starts_with("crates/")) {
        let name = root.trim_start_matches("crates/");
        let excepted = exceptions.iter().find(|(known, _)| *known == name);
        let excepted = excepted.map_or(&[][..], |(_, modules)| modules);
        let circle = circle(&arrows(repository, root));
        for module in circle.iter().filter(|module| !excepted.contains(&module.as_str())) {
            let what = format!("the module {module} stands in a circle: {}", joined(&circle));
            let fix = "move what both sides need below them";
            problems.push(Problem::new(&format!("{root}/src/lib.rs"), 1, what, fix));
        }
        for module in excepted.iter().filter(|module| !circle.contains(**module)) {
            let what = format!("{name}::{module} stands in no circle");
            problems.push(Problem::new("xtask/src/circles.rs", 1, what, "take it off EXCEPTIONS"));
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
    for (_, file) in files.iter().filter(|(path, _)| *path == "lib.rs") {
        exports = exported(file);
    }
    for (path, file) in &files {
        let module = path.split('/').next().unwrap_or(path).trim_end_matches(".rs");
        if module == "lib" {
            continue;
        }
        let is_top =
            !path.contains('/') || path.ends_with("/mod.rs") && path.matches('/').count() == 1;
        let mut finder = Finder { is_top, found: BTreeSet::new() };
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
            for name in leaves(&path.tree) {
                exports.insert(name, path.ident.to_string());
            }
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

/// Collects the first names behind `crate::`, and behind `super::` in a top-level module.
struct Finder {
    is_top: bool,
    found: BTreeSet<String>,
}

impl Finder {
    fn leads_to_root(&self, ident: &syn::Ident) -> bool {
        ident == "crate" || self.is_top && ident == "super"
    }

    fn first_names(&mut self, tree: &syn::UseTree) {
        match tree {
            syn::UseTree::Path(path) => drop(self.found.insert(path.ident.to_string())),
            syn::UseTree::Name(name) => drop(self.found.insert(name.ident.to_string())),
            syn::UseTree::Rename(rename) => drop(self.found.insert(rename.ident.to_string())),
            syn::UseTree::Group(group) => group.items.iter().for_each(|it| self.first_names(it)),
            syn::UseTree::Glob(_) => {}
        }
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

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        if let syn::UseTree::Path(path) = &item.tree
            && self.leads_to_root(&path.ident)
        {
            self.first_names(&path.tree);
        }
    }

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let mut segments = path.segments.iter();
        if let (Some(first), Some(second)) = (segments.next(), segments.next())
            && self.leads_to_root(&first.ident)
        {
            self.found.insert(second.ident.to_string());
        }
        visit::visit_path(self, path);
    }
}

#[cfg(test)]
mod tests {
    use super::{Repository, check_with};

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
        ] {
            let files = [ROOT, ("crates/a/src/b.rs", b), ("crates/a/src/c/mod.rs", c)];
            let found = check_with(&Repository::of(&files), &[]);
            assert_eq!(found.len(), count, "{b} {c}");
        }
    }

    #[test]
    fn an_exception_is_for_a_circle_that_is_there() {
        let files =
            [ROOT, ("crates/a/src/b.rs", "use crate::c;"), ("crates/a/src/c.rs", "use crate::b;")];
        let repository = Repository::of(&files);
        assert_eq!(check_with(&repository, &[("a", &["b", "c"])]), []);
        assert_eq!(check_with(&repository, &[("a", &["b"])]).len(), 1);
        let straight = Repository::of(&files[..2]);
        assert_eq!(check_with(&straight, &[("a", &["b"])]).len(), 1);
    }
}
