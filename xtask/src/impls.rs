//! Types of one piece: the inherent `impl` blocks of a type lie in at most three files.

use std::collections::{BTreeMap, BTreeSet};

use crate::problem::Problem;
use crate::repository::Repository;
use crate::source::{is_test_attribute, is_test_path};

const FILES_MAX: usize = 3;

/// Exceptions as `file::Type`, with the file that defines the type and the current number of files
/// that implement it. A ratchet: numbers may fall and entries may go, but neither may come back.
const EXCEPTIONS: &[(&str, usize)] = &[];

/// Names of types, each with the files that belong to it.
type Files<'a> = BTreeMap<String, BTreeSet<&'a str>>;

/// Returns the types whose `impl` blocks are scattered, and the exceptions that do not fit.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    check_with(repository, EXCEPTIONS)
}

fn check_with(repository: &Repository, exceptions: &[(&str, usize)]) -> Vec<Problem> {
    let mut crates: BTreeMap<&str, Vec<(&str, syn::File)>> = BTreeMap::new();
    for (path, text) in repository.texts("rs").filter(|(path, _)| !is_test_path(path)) {
        // A file that does not parse is reported elsewhere.
        if let (Some((root, _)), Ok(file)) = (path.split_once("/src/"), syn::parse_file(text)) {
            crates.entry(root).or_default().push((path, file));
        }
    }
    let scattered: Files<'_> = crates.values().flat_map(|files| implemented(files)).collect();
    let mut problems: Vec<Problem> =
        scattered.iter().filter_map(|(name, files)| judge(name, files, exceptions)).collect();
    let stale = exceptions.iter().filter(|(name, _)| !scattered.contains_key(*name));
    problems.extend(stale.map(|(name, _)| {
        let what = format!("{name} has no impl block any more");
        Problem::new("xtask/src/impls.rs", 0, what, "remove it from EXCEPTIONS")
    }));
    problems
}

fn judge(name: &str, files: &BTreeSet<&str>, exceptions: &[(&str, usize)]) -> Option<Problem> {
    let path = name.split("::").next().unwrap_or(name);
    let count = files.len();
    let allowed = exceptions.iter().find(|(known, _)| *known == name).map(|(_, count)| *count);
    match allowed {
        None if count > FILES_MAX => {
            let files = files.iter().copied().collect::<Vec<_>>().join(", ");
            let what = format!("{name} has impl blocks in {count} files: {files}");
            let fix = format!("at most {FILES_MAX}: make parts of it types of their own");
            Some(Problem::new(path, 0, what, fix))
        }
        Some(allowed) if count > allowed => {
            let what = format!("{name} has impl blocks in {count} files, up from {allowed}");
            Some(Problem::new(path, 0, what, "exceptions only shrink: make parts of it types"))
        }
        Some(allowed) if count < allowed || allowed <= FILES_MAX => {
            let what = format!("{name} has impl blocks in {count} files, not in {allowed}");
            let fix = format!("write {count} in EXCEPTIONS, or remove it at {FILES_MAX} and below");
            Some(Problem::new(path, 0, what, fix))
        }
        _ => None,
    }
}

/// Returns the types of a crate as `file::Type`, each with the files that have inherent `impl`
/// blocks of it.
fn implemented<'a>(files: &[(&'a str, syn::File)]) -> Files<'a> {
    let mut defined = Files::new();
    let mut blocks = Files::new();
    for (path, file) in files {
        collect(path, &file.items, &mut defined, &mut blocks);
    }
    let mut types = Files::new();
    for (name, paths) in blocks {
        for path in paths {
            let homes = defined.get(&name).into_iter().flatten();
            // A macro may define a type: then it counts as defined at the crate's root.
            let home = homes.max_by_key(|home| closeness(home, path)).copied().unwrap_or("");
            types.entry(format!("{home}::{name}")).or_default().insert(path);
        }
    }
    types
}

/// Returns how likely an `impl` in `path` is of the type of this name that `home` defines: most if
/// it is the same file, else by the number of folders that both lie in.
fn closeness(home: &str, path: &str) -> (bool, usize) {
    let folders = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let common = folders(home).iter().zip(&folders(path)).take_while(|(a, b)| a == b).count();
    (home == path, common)
}

fn collect<'a>(
    path: &'a str,
    items: &[syn::Item],
    defined: &mut Files<'a>,
    blocks: &mut Files<'a>,
) {
    for item in items {
        let (files, name) = match item {
            syn::Item::Struct(it) => (&mut *defined, it.ident.to_string()),
            syn::Item::Enum(it) => (&mut *defined, it.ident.to_string()),
            syn::Item::Union(it) => (&mut *defined, it.ident.to_string()),
            syn::Item::Impl(it) if it.trait_.is_none() && !tests(&it.attrs) => {
                let syn::Type::Path(of) = &*it.self_ty else { continue };
                let Some(last) = of.path.segments.last() else { continue };
                (&mut *blocks, last.ident.to_string())
            }
            syn::Item::Mod(it) if !tests(&it.attrs) => {
                let below = it.content.iter().flat_map(|(_, items)| items).cloned();
                collect(path, &below.collect::<Vec<_>>(), defined, blocks);
                continue;
            }
            _ => continue,
        };
        files.entry(name).or_default().insert(path);
    }
}

fn tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(is_test_attribute)
}

#[cfg(test)]
mod tests {
    use super::{Problem, Repository, check_with};

    const HOME: &str = "crates/a/src/home.rs";

    /// Checks a type with impl blocks in `count` files, of which one also defines it.
    fn problems(count: usize, block: &str, exceptions: &[(&str, usize)]) -> Vec<Problem> {
        let text = format!("pub struct Wide<T>(T);\n{block}");
        let paths: Vec<String> = (1..count).map(|it| format!("crates/a/src/{it}.rs")).collect();
        let mut files = vec![(HOME, text.as_str())];
        files.extend(paths.iter().map(|path| (path.as_str(), block)));
        check_with(&Repository::of(&files), exceptions)
    }

    #[test]
    fn a_type_is_implemented_in_three_files_at_most() {
        let block = "impl<T> super::Wide<T> { fn f() {} }\nimpl<T> Wide<T> {}\n";
        assert_eq!(problems(3, block, &[]), []);
        let found = problems(4, block, &[]);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].path, HOME);
        assert!(found[0].what.contains("home.rs::Wide has impl blocks in 4 files"), "{}", found[0]);
        let nested = "mod inner { impl Wide<u8> { fn f() {} } }\n";
        assert_eq!(problems(4, nested, &[]).len(), 1);
    }

    #[test]
    fn traits_tests_and_other_crates_do_not_count() {
        for block in [
            "impl<T> Drop for Wide<T> {}\n",
            "#[cfg(test)]\nimpl Wide<u8> {}\n",
            "#[cfg(test)]\nmod tests { impl Wide<u8> {} }\n",
        ] {
            assert_eq!(problems(5, block, &[]), [], "{block}");
        }
        let paths = ["a/src/b.rs", "b/src/b.rs", "c/src/b.rs", "d/src/b.rs", "a/src/c/tests.rs"];
        let files = paths.map(|path| (path, "struct Wide;\nimpl Wide {}\n"));
        assert_eq!(check_with(&Repository::of(&files), &[]), []);
    }

    #[test]
    fn two_types_of_one_name_are_told_apart_by_their_folders() {
        let (both, block) = ("struct Wide;\nimpl Wide {}\n", "impl Wide {}\n");
        let files = [
            ("a/src/b/mod.rs", both),
            ("a/src/b/1.rs", block),
            ("a/src/b/2.rs", block),
            ("a/src/c/mod.rs", both),
            ("a/src/c/1.rs", block),
            ("a/src/c/2.rs", block),
        ];
        assert_eq!(check_with(&Repository::of(&files), &[]), []);
        let more = [files.as_slice(), &[("a/src/c/3.rs", block)]].concat();
        let found = check_with(&Repository::of(&more), &[]);
        assert!(found.len() == 1 && found[0].path == "a/src/c/mod.rs", "{found:?}");
    }

    #[test]
    fn exceptions_only_shrink() {
        let block = "impl Wide<u8> { fn f() {} }\n";
        let exceptions = [("crates/a/src/home.rs::Wide", 5)];
        assert_eq!(problems(5, block, &exceptions), []);
        for (count, part) in [(6, "up from 5"), (4, "not in 5"), (2, "not in 5")] {
            let found = problems(count, block, &exceptions);
            assert_eq!(found.len(), 1, "{count}");
            assert!(found[0].what.contains(part), "{count}: {}", found[0]);
        }
        let found = problems(1, "", &exceptions);
        assert!(found.len() == 1 && found[0].what.contains("no impl block"), "{found:?}");
        assert_eq!(problems(3, block, &[("crates/a/src/home.rs::Wide", 3)]).len(), 1);
    }
}
