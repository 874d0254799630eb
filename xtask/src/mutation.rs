//! Names of mutation sites: a literal that begins with a small letter, once in a crate.

use std::collections::BTreeMap;

use proc_macro2::{TokenStream, TokenTree};

use crate::problem::Problem;

const MACRO: &str = "mutation_site";

/// The names that were seen, by crate, and where.
#[derive(Debug, Default)]
pub(crate) struct Names(BTreeMap<(String, String), String>);

impl Names {
    /// Notes the names in a file; answers which are wrong, or were given before.
    pub(crate) fn check(&mut self, path: &str, text: &str) -> Vec<Problem> {
        let mut sites = Vec::new();
        if let Ok(tokens) = text.parse() {
            find(tokens, &mut sites);
        }
        sites.into_iter().filter_map(|(line, name)| self.check_name(path, line, name)).collect()
    }

    fn check_name(&mut self, path: &str, line: usize, name: Option<String>) -> Option<Problem> {
        let name = name.filter(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
        let Some(name) = name else {
            let what = "a mutation site whose name is no literal with a small first letter";
            let fix = "name the step that others rely on by a sentence";
            return Some(Problem::new(path, line, what, fix));
        };
        let place = format!("{path}:{line}");
        let before = self.0.insert((crate_of(path), name.clone()), place)?;
        let what = format!("the mutation site \"{name}\" has its name from {before}");
        Some(Problem::new(path, line, what, "say what this one is relied on for"))
    }
}

/// The folder of a file's crate.
fn crate_of(path: &str) -> String {
    let of_crates = path.strip_prefix("crates/").and_then(|rest| rest.split_once('/'));
    match of_crates {
        Some((name, _)) => format!("crates/{name}"),
        None => path.split('/').next().unwrap_or_default().to_owned(),
    }
}

/// The lines and names of sites among tokens, in macros as well; none where it is no literal.
fn find(tokens: TokenStream, sites: &mut Vec<(usize, Option<String>)>) {
    let tokens: Vec<TokenTree> = tokens.into_iter().collect();
    for (index, token) in tokens.iter().enumerate() {
        let TokenTree::Group(group) = token else { continue };
        let is_site = matches!(
            &tokens[..index],
            [.., TokenTree::Ident(ident), TokenTree::Punct(mark)]
                if ident == MACRO && mark.as_char() == '!'
        );
        match is_site {
            true => {
                let name = syn::parse2::<syn::LitStr>(group.stream()).ok();
                let line = group.span_open().start().line;
                sites.push((line, name.map(|name| name.value())));
            }
            false => find(group.stream(), sites),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_a_literal_of_its_own_that_begins_small() {
        let mut names = Names::default();
        let file = |inside: &str| format!("fn a() -> bool {{\n    {inside}\n}}\n");
        for (path, inside, problems) in [
            ("crates/a/src/lib.rs", "mutation_site!(\"a lock is taken\")", 0),
            ("crates/b/src/lib.rs", "mutation_site!(\"a lock is taken\")", 0),
            ("crates/a/src/b.rs", "x == 1 || !mutation_site!(\"a lock is taken\")", 1),
            ("crates/a/src/b.rs", "matches!(x, 1 if mutation_site!(\"a lock is taken\"))", 1),
            ("crates/a/src/c.rs", "mutation_site!(\"A lock is kept\")", 1),
            ("crates/a/src/c.rs", "mutation_site!(concat!(\"a lock\", \" is kept\"))", 1),
            ("crates/a/src/c.rs", "mutation_site!()", 1),
            ("crates/a/src/c.rs", "site!(\"A lock\")", 0),
        ] {
            let found = names.check(path, &file(inside));
            assert_eq!(found.len(), problems, "{path}: {inside}");
            assert!(found.iter().all(|problem| problem.line == 2), "{found:?}");
        }
    }
}
