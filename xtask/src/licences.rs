//! Licences of all dependencies: only permissive ones are allowed.

use crate::metadata::Metadata;
use crate::problem::Problem;

const ALLOWED: [&str; 13] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "BSL-1.0",
    "CC0-1.0",
    "ISC",
    "MIT",
    "MIT-0",
    "Unicode-3.0",
    "Unlicense",
    "Zlib",
];

/// Returns every package whose licence leaves no allowed choice.
pub(crate) fn check(metadata: &Metadata) -> Vec<Problem> {
    let strangers = metadata.strangers();
    let refused = strangers.filter(|package| !package.license.as_deref().is_some_and(allows));
    refused
        .map(|package| {
            let licence = package.license.as_deref().unwrap_or("no licence");
            let what = format!("{} {} has {licence}", package.name, package.version);
            let fix = "choose another package, or add the licence to xtask/src/licences.rs";
            Problem::new("Cargo.lock", 0, what, fix)
        })
        .collect()
}

/// Returns true if allowed licences satisfy the SPDX expression. `/` is the old way of writing OR.
fn allows(expression: &str) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let tokens: Vec<&str> = spaced.split_whitespace().collect();
    let mut parser = Parser { tokens: &tokens };
    parser.any() && parser.tokens.is_empty()
}

/// A recursive-descent parser; anything left over or missing is not allowed.
struct Parser<'a> {
    tokens: &'a [&'a str],
}

impl Parser<'_> {
    fn any(&mut self) -> bool {
        let mut allowed = self.all();
        while self.take("OR") {
            // Both sides are read, regardless of the first one's result.
            allowed |= self.all();
        }
        allowed
    }

    fn all(&mut self) -> bool {
        let mut allowed = self.one();
        while self.take("AND") {
            allowed &= self.one();
        }
        allowed
    }

    fn one(&mut self) -> bool {
        if self.take("(") {
            let allowed = self.any();
            return self.take(")") && allowed;
        }
        let Some((name, rest)) = self.tokens.split_first() else { return false };
        self.tokens = rest;
        if !self.take("WITH") {
            return ALLOWED.contains(name);
        }
        let Some((exception, rest)) = self.tokens.split_first() else { return false };
        self.tokens = rest;
        ALLOWED.contains(&format!("{name} WITH {exception}").as_str())
    }

    fn take(&mut self, token: &str) -> bool {
        match self.tokens.split_first() {
            Some((first, rest)) if *first == token => {
                self.tokens = rest;
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::allows;

    #[test]
    fn a_choice_needs_one_allowed_licence_and_a_sum_needs_all() {
        for (expression, expected) in [
            ("MIT", true),
            ("MIT OR GPL-3.0", true),
            ("GPL-3.0", false),
            ("MIT/Apache-2.0", true),
            ("(MIT OR Apache-2.0) AND Unicode-3.0", true),
            ("(MIT OR Apache-2.0) AND GPL-2.0", false),
            ("Apache-2.0 WITH LLVM-exception OR MIT", true),
            ("GPL-2.0 WITH Classpath-exception-2.0", false),
            ("(MIT", false),
            ("MIT)", false),
            ("", false),
        ] {
            assert_eq!(allows(expression), expected, "{expression:?}");
        }
    }
}
