//! Documents compared with the code: they have every key and every flag of a command, and no other.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::repository::Repository;

const REFERENCE: &str = "docs/configuration.md";

/// File that declares keys, as the fields of structs called `Raw...`.
const KEYS: &str = "crates/service/src/config/file.rs";

/// Folder of the files that declare flags, as fields with `#[arg(long)]`.
const COMMANDS: &str = "crates/cli/src/";

/// Files below [`COMMANDS`] with the flags of `entresol serve` and `entresol config`, which stand
/// in the reference.
const CONFIGURED: [&str; 2] = ["serve.rs", "config.rs"];

/// Documents with the flags of other commands, in tables whose first column is called `flag`, and
/// the files below [`COMMANDS`] that declare them.
const PAGES: [(&str, &[&str]); 6] = [
    (
        "docs/measuring.md",
        &[
            "bench/act.rs",
            "bench/mod.rs",
            "bench/curve.rs",
            "bench/extend.rs",
            "trace.rs",
            "ycsb.rs",
            "reproduce.rs",
            "output.rs",
        ],
    ),
    ("docs/profiling.md", &["profile.rs", "output.rs"]),
    ("docs/security.md", &["user.rs"]),
    ("docs/sharing.md", &["top.rs"]),
    ("docs/store.md", &["store/mod.rs", "store/volumes.rs", "store/whole.rs"]),
    ("docs/crashes.md", &["torture.rs"]),
];

/// Returns keys and flags that the documents lack, and those that do not exist.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let text = |path: &str| repository.files.get(path)?.text.as_deref();
    let Some(keys) = text(KEYS) else { return Vec::new() };
    let Some(reference) = text(REFERENCE) else {
        let fix = "write it: every key and every flag of `entresol serve`";
        return vec![Problem::new(REFERENCE, 0, "there is no such document", fix)];
    };
    let keys = located(KEYS, declared_keys(keys));
    let mut problems = compare(&keys, REFERENCE, &written_keys(reference), "key");
    let flags = declared(repository, &CONFIGURED);
    problems.extend(compare(&flags, REFERENCE, &written_flags(reference), "flag"));
    for (page, files) in PAGES {
        let flags = declared(repository, files);
        let written = tabled_flags(text(page).unwrap_or_default());
        problems.extend(compare(&flags, page, &written, "flag"));
    }
    problems.extend(without_page(repository));
    problems
}

/// Returns the flags that are declared in files without a document.
fn without_page(repository: &Repository) -> Vec<Problem> {
    let has_page = |name: &str| {
        CONFIGURED.contains(&name) || PAGES.iter().any(|(_, files)| files.contains(&name))
    };
    let mut problems = Vec::new();
    for (path, _) in repository.texts("rs") {
        let Some(name) = path.strip_prefix(COMMANDS).filter(|name| !has_page(name)) else {
            continue;
        };
        for (flag, (path, line)) in declared(repository, &[name]) {
            let fix = "name the file in PAGES of xtask/src/reference.rs, with its document";
            let what = format!("the flag {flag} is in no document");
            problems.push(Problem::new(&path, line, what, fix));
        }
    }
    problems
}

/// Names, each with its line.
type Names = BTreeMap<String, usize>;

/// Names, each with its file and line.
type Located = BTreeMap<String, (String, usize)>;

fn located(path: &str, names: Names) -> Located {
    names.into_iter().map(|(name, line)| (name, (path.to_owned(), line))).collect()
}

/// Returns the flags that files below [`COMMANDS`] declare.
fn declared(repository: &Repository, files: &[&str]) -> Located {
    let mut all = Located::new();
    for file in files {
        let path = format!("{COMMANDS}{file}");
        let text = repository.files.get(&path).and_then(|file| file.text.as_deref());
        all.extend(located(&path, declared_flags(text.unwrap_or_default())));
    }
    all
}

fn compare(declared: &Located, page: &str, written: &Names, kind: &str) -> Vec<Problem> {
    let missing = declared.iter().filter(|(name, _)| !written.contains_key(*name));
    let surplus = written.iter().filter(|(name, _)| !declared.contains_key(*name));
    let missing = missing.map(|(name, (code, line))| {
        let what = format!("the {kind} {name} is not in {page}");
        Problem::new(code, *line, what, "describe it there: meaning, default, bounds")
    });
    let surplus = surplus.map(|(name, line)| {
        let what = format!("the {kind} {name} does not exist");
        Problem::new(page, *line, what, "take it out, or declare it")
    });
    missing.chain(surplus).collect()
}

fn declared_keys(code: &str) -> Names {
    let mut fields = Fields::default();
    if let Ok(syntax) = syn::parse_file(code) {
        fields.visit_file(&syntax);
    }
    let raw = fields.all.into_iter().filter(|field| field.owner.starts_with("Raw"));
    raw.map(|field| (field.name, field.line)).collect()
}

fn declared_flags(code: &str) -> Names {
    let mut fields = Fields::default();
    if let Ok(syntax) = syn::parse_file(code) {
        fields.visit_file(&syntax);
    }
    let flags = fields.all.into_iter().filter_map(|field| Some((field.flag?, field.line)));
    flags.map(|(flag, line)| (format!("--{flag}"), line)).collect()
}

/// Returns the keys in the tables whose first column is called `key`.
fn written_keys(reference: &str) -> Names {
    tabled(reference, "key")
}

/// Returns the flags in the tables whose first column is called `flag`.
fn tabled_flags(page: &str) -> Names {
    tabled(page, "flag")
}

/// Returns the first words in the first cells of the tables whose first column is called `head`.
fn tabled(page: &str, head: &str) -> Names {
    let mut names = Names::new();
    let mut within = false;
    for (index, line) in page.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            within = false;
            continue;
        };
        let cell = row.split('|').next().unwrap_or_default().trim();
        within |= cell == head;
        if let Some(quoted) = cell.strip_prefix('`')
            && within
        {
            let name = quoted.split([' ', '`']).next().unwrap_or_default();
            names.insert(name.to_owned(), index + 1);
        }
    }
    names
}

/// Returns every word in backticks that begins like a flag.
fn written_flags(reference: &str) -> Names {
    let mut flags = Names::new();
    for (index, line) in reference.lines().enumerate() {
        for (_, quoted) in line.split('`').enumerate().filter(|(part, _)| part % 2 == 1) {
            let word = quoted.split_whitespace().next().unwrap_or_default();
            if word.starts_with("--") {
                flags.entry(word.to_owned()).or_insert(index + 1);
            }
        }
    }
    flags
}

struct Field {
    owner: String,
    name: String,
    flag: Option<String>,
    line: usize,
}

/// Collects the named fields of all structs and of the variants of all enums.
#[derive(Default)]
struct Fields {
    all: Vec<Field>,
}

impl Fields {
    fn take(&mut self, owner: &syn::Ident, fields: &syn::Fields) {
        for field in fields {
            let Some(ident) = &field.ident else { continue };
            let name = ident.to_string();
            self.all.push(Field {
                owner: owner.to_string(),
                flag: field.attrs.iter().find_map(|attribute| long_flag(attribute, &name)),
                line: ident.span().start().line,
                name,
            });
        }
    }
}

impl<'ast> Visit<'ast> for Fields {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.take(&item.ident, &item.fields);
        visit::visit_item_struct(self, item);
    }

    fn visit_variant(&mut self, variant: &'ast syn::Variant) {
        self.take(&variant.ident, &variant.fields);
        visit::visit_variant(self, variant);
    }
}

/// Returns the flag of `#[arg(long)]` or `#[arg(long = "name")]` on the field `name`.
fn long_flag(attribute: &syn::Attribute, name: &str) -> Option<String> {
    if !attribute.path().is_ident("arg") {
        return None;
    }
    let mut flag = None;
    // The next keys may have values of any form. From the first form that is not understood on, the
    // rest does not matter.
    let _ = attribute.parse_nested_meta(|meta| {
        if meta.path.is_ident("long") {
            let named = meta.value().and_then(|value| value.parse::<syn::LitStr>());
            flag = Some(named.map_or_else(|_| name.replace('_', "-"), |named| named.value()));
        } else if let Ok(value) = meta.value() {
            value.parse::<syn::Expr>()?;
        }
        Ok(())
    });
    flag
}

#[cfg(test)]
mod tests {
    use super::{KEYS, REFERENCE, Repository, check};

    const FLAGS: &str = "crates/cli/src/serve.rs";

    const DECLARED_KEYS: &str = "struct RawConfig { threads: i64 }\nstruct Place { line: u32 }\n";
    const DECLARED_FLAGS: &str = "struct Serve {\n\
        #[arg(long, value_name = \"N\")]\nthreads: i64,\n\
        #[arg(short, long = \"dram-quota\")]\ndram: u64,\n\
        other: u64,\n}\n";

    fn problems(reference: &str) -> Vec<String> {
        let files = [(KEYS, DECLARED_KEYS), (FLAGS, DECLARED_FLAGS), (REFERENCE, reference)];
        check(&Repository::of(&files)).into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn a_complete_reference_passes() {
        let reference = "| key | flag |\n|---|---|\n| `threads` | `--threads N` |\n\n\
            | word | flag |\n|---|---|\n| `other` | `--dram-quota SIZE` |\n";
        assert_eq!(problems(reference), [""; 0]);
    }

    #[test]
    fn what_is_missing_or_surplus_is_named() {
        let reference = "| key | flag |\n|---|---|\n| `loops` | `--threads` |\n";
        let found = problems(reference);
        for part in ["key threads is not in", "key loops does not", "flag --dram-quota is not in"] {
            assert!(found.iter().any(|what| what.contains(part)), "{part}: {found:?}");
        }
        assert_eq!(found.len(), 3);
    }

    #[test]
    fn every_command_has_its_flags_in_a_table_of_its_document() {
        let top = "struct Top {\n#[arg(long)]\nonce: bool,\n}\n\
            enum Command { Go {\n#[arg(long, value_name = \"A|B\")]\nway: String,\n} }\n";
        let other = "struct Other {\n#[arg(long)]\nlost: bool,\n}\n";
        let table = "| flag | meaning |\n|---|---|\n";
        for (rows, expected) in [
            ("| `--once` | Once |\n| `--way A\\|B` | Way |\n", vec![]),
            ("| `--once` | Once |\n", vec!["the flag --way is not in docs/sharing.md"]),
            (
                "| `--way A\\|B` | Way |\n| `--twice N` | |\n",
                vec![
                    "the flag --once is not in docs/sharing.md",
                    "the flag --twice does not exist",
                ],
            ),
        ] {
            let page = format!("`--other`\n\n{table}{rows}");
            let files = [
                (KEYS, ""),
                (REFERENCE, ""),
                ("crates/cli/src/top.rs", top),
                ("crates/cli/src/other.rs", other),
                ("docs/sharing.md", page.as_str()),
            ];
            let found = check(&Repository::of(&files)).into_iter().map(|problem| problem.what);
            let expected = [expected, vec!["the flag --lost is in no document"]].concat();
            assert_eq!(found.collect::<Vec<_>>(), expected, "{rows}");
        }
    }
}
