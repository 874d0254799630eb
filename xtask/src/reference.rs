//! The configuration reference compared with the code: it has every key and flag, and no other.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use crate::problem::Problem;
use crate::repository::Repository;

const REFERENCE: &str = "docs/configuration.md";

/// File that declares keys, as the fields of structs called `Raw...`.
const KEYS: &str = "crates/service/src/config/file.rs";

/// File that declares the flags of `entresol serve`, as fields with `#[arg(long)]`.
const FLAGS: &str = "crates/cli/src/serve.rs";

/// Returns keys and flags that the reference lacks, and those that do not exist.
pub(crate) fn check(repository: &Repository) -> Vec<Problem> {
    let text = |path: &str| repository.files.get(path)?.text.as_deref();
    let (Some(keys), Some(flags)) = (text(KEYS), text(FLAGS)) else {
        return Vec::new();
    };
    let Some(reference) = text(REFERENCE) else {
        let fix = "write it: every key and every flag of `entresol serve`";
        return vec![Problem::new(REFERENCE, 0, "there is no such document", fix)];
    };
    let mut problems = compare(KEYS, &declared_keys(keys), &written_keys(reference), "key");
    problems.extend(compare(FLAGS, &declared_flags(flags), &written_flags(reference), "flag"));
    problems
}

/// Names, each with its line.
type Names = BTreeMap<String, usize>;

fn compare(code: &str, declared: &Names, written: &Names, kind: &str) -> Vec<Problem> {
    let missing = declared.iter().filter(|(name, _)| !written.contains_key(*name));
    let surplus = written.iter().filter(|(name, _)| !declared.contains_key(*name));
    let missing = missing.map(|(name, line)| {
        let what = format!("the {kind} {name} is not in {REFERENCE}");
        Problem::new(code, *line, what, "describe it there: meaning, default, bounds")
    });
    let surplus = surplus.map(|(name, line)| {
        let what = format!("the {kind} {name} does not exist");
        Problem::new(REFERENCE, *line, what, format!("take it out, or declare it in {code}"))
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

/// Returns the first cells of the tables whose first column is called `key`.
fn written_keys(reference: &str) -> Names {
    let mut keys = Names::new();
    let mut within = false;
    for (index, line) in reference.lines().enumerate() {
        let Some(row) = line.strip_prefix('|') else {
            within = false;
            continue;
        };
        let cell = row.split('|').next().unwrap_or_default().trim();
        within |= cell == "key";
        if let Some(key) = cell.strip_prefix('`').and_then(|cell| cell.strip_suffix('`'))
            && within
        {
            keys.insert(key.to_owned(), index + 1);
        }
    }
    keys
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

/// Collects the named fields of all structs.
#[derive(Default)]
struct Fields {
    all: Vec<Field>,
}

impl<'ast> Visit<'ast> for Fields {
    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        for field in &item.fields {
            let Some(ident) = &field.ident else { continue };
            let name = ident.to_string();
            self.all.push(Field {
                owner: item.ident.to_string(),
                flag: field.attrs.iter().find_map(|attribute| long_flag(attribute, &name)),
                line: ident.span().start().line,
                name,
            });
        }
        visit::visit_item_struct(self, item);
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
    use super::{FLAGS, KEYS, REFERENCE, Repository, check};

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
}
