//! Catalogue of all checks, `catalogue.toml`, against which every entry is compared.
//!
//! The file is written for people who read it beside the papers. An entry fails if one of its
//! checks vanishes, is not listed or is suddenly only reported. It also fails if the tolerance, the
//! paper's number or the subject of a check differs from the listed one.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use serde::Deserialize;

use super::check::{Check, Figure, RUN_FAILED, Subject};
use super::tolerance::Tolerance;

const TEXT: &str = include_str!("../../catalogue.toml");

/// Check as the catalogue lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct Listed {
    /// Name of the check.
    pub what: String,
    /// Figure that the paper prints.
    pub paper: Option<Figure>,
    /// Unit of both figures.
    pub unit: String,
    /// Permitted difference from the paper.
    pub tolerance: Tolerance,
    /// Algorithm whose result is compared.
    pub subject: Subject,
    /// Number of a model that was set to the paper's.
    pub given: Option<String>,
    /// Reason why the number is only reported.
    pub reason: Option<String>,
    /// True for a check of this project's own, beyond the required ones.
    pub is_own: bool,
    /// Reason why the check does not exist yet, if it does not.
    pub missing: Option<String>,
}

/// Entry as the catalogue lists it.
#[derive(Debug, Clone, PartialEq)]
pub struct ListedEntry {
    /// Full name of the entry: `002-fig1a`.
    pub name: String,
    /// Approximate run time in seconds; the longest entries begin first.
    pub seconds: u32,
    /// Checks of the entry.
    pub checks: Vec<Listed>,
}

/// All entries of the catalogue.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalogue {
    /// Entries in the order of the file.
    pub entries: Vec<ListedEntry>,
}

/// Content of the file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    /// Named lists of words that several rows share.
    #[serde(default)]
    lists: std::collections::BTreeMap<String, Vec<String>>,
    entry: Vec<Section>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Section {
    name: String,
    #[serde(default)]
    seconds: u32,
    check: Vec<Row>,
}

/// Row of the file: one check, or one for each of several words, which replace `{}` in its name.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    what: String,
    each: Option<Each>,
    paper: Option<Paper>,
    #[serde(default)]
    unit: String,
    tolerance: String,
    #[serde(default)]
    subject: Subject,
    given: Option<String>,
    reason: Option<String>,
    #[serde(default)]
    own: bool,
    missing: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Each {
    /// Name of a list.
    Of(String),
    Words(Vec<String>),
}

#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
enum Paper {
    Number(f64),
    Text(String),
    Each(Vec<Paper>),
}

impl Paper {
    fn figure(&self) -> Result<Figure, String> {
        match self {
            Paper::Number(value) => Ok(Figure::Number(*value)),
            Paper::Text(text) => Ok(Figure::Text(text.clone())),
            Paper::Each(_) => Err("a list in a list".to_owned()),
        }
    }
}

impl Row {
    fn listed(&self, lists: &File) -> Result<Vec<Listed>, String> {
        let wrong = |what: &str| format!("'{}': {what}", self.what);
        let none = [String::new()];
        let words: &[String] = match &self.each {
            None => &none,
            Some(Each::Words(words)) => words,
            Some(Each::Of(name)) => {
                lists.lists.get(name).ok_or_else(|| wrong(&format!("there is no list {name}")))?
            }
        };
        if self.each.is_some() != self.what.contains("{}") {
            return Err(wrong("a name has {} where it stands for several, and only there"));
        }
        let papers: Vec<Option<Figure>> = match &self.paper {
            Some(Paper::Each(each)) if each.len() == words.len() => {
                each.iter().map(|paper| paper.figure().map(Some)).collect::<Result<_, _>>()?
            }
            Some(Paper::Each(_)) => return Err(wrong("as many numbers as words")),
            one => vec![one.as_ref().map(Paper::figure).transpose()?; words.len()],
        };
        let tolerance: Tolerance = self.tolerance.parse().map_err(|text: String| wrong(&text))?;
        let is_report = tolerance == Tolerance::Report;
        if is_report != self.reason.is_some() {
            return Err(wrong("a report has a reason, and nothing else has one"));
        }
        let one = |(word, paper): (&String, Option<Figure>)| Listed {
            what: self.what.replace("{}", word),
            paper,
            unit: self.unit.clone(),
            tolerance: tolerance.clone(),
            subject: self.subject,
            given: self.given.clone(),
            reason: self.reason.clone(),
            is_own: self.own,
            missing: self.missing.clone(),
        };
        Ok(words.iter().zip(papers).map(one).collect())
    }
}

impl Catalogue {
    /// Parses a catalogue.
    ///
    /// # Errors
    /// Fails if the text is no valid catalogue, with the position and the reason.
    pub fn parse(text: &str) -> Result<Catalogue, String> {
        let file: File = toml::from_str(text).map_err(|error| error.to_string())?;
        let mut entries: Vec<ListedEntry> = Vec::new();
        for section in &file.entry {
            let in_entry = |error: String| format!("{}: {error}", section.name);
            if entries.iter().any(|entry| entry.name == section.name) {
                return Err(in_entry("is there twice".to_owned()));
            }
            let mut checks: Vec<Listed> = Vec::new();
            for row in &section.check {
                checks.extend(row.listed(&file).map_err(in_entry)?);
            }
            let mut names = BTreeSet::new();
            if let Some(twice) = checks.iter().find(|check| !names.insert(&check.what)) {
                return Err(in_entry(format!("'{}' is there twice", twice.what)));
            }
            let Section { name, seconds, .. } = section;
            entries.push(ListedEntry { name: name.clone(), seconds: *seconds, checks });
        }
        Ok(Catalogue { entries })
    }

    /// Returns the catalogue that is part of the program.
    ///
    /// # Panics
    /// Panics if the catalogue is malformed; a test detects this earlier.
    #[must_use]
    pub fn built_in() -> &'static Catalogue {
        static BUILT_IN: OnceLock<Catalogue> = OnceLock::new();
        BUILT_IN.get_or_init(|| {
            Catalogue::parse(TEXT).unwrap_or_else(|error| panic!("catalogue.toml: {error}"))
        })
    }

    /// Returns the entry of this full name.
    #[must_use]
    pub fn entry(&self, name: &str) -> Option<&ListedEntry> {
        self.entries.iter().find(|entry| entry.name == name)
    }

    /// Returns the required checks that do not exist: the entry, the check and the reason.
    pub fn missing(&self) -> impl Iterator<Item = (&str, &str, &str)> {
        let checks = self
            .entries
            .iter()
            .flat_map(|entry| entry.checks.iter().map(|check| (entry.name.as_str(), check)));
        checks.filter_map(|(entry, check)| {
            Some((entry, check.what.as_str(), check.missing.as_deref()?))
        })
    }

    /// Compares the checks of an entry with the listed ones and returns the differences in words.
    #[must_use]
    pub fn differences(&self, name: &str, checks: &[Check]) -> Vec<String> {
        // An entry whose run failed has failed already, with a reason.
        if let [only] = checks
            && only.what == RUN_FAILED
            && only.fails()
        {
            return Vec::new();
        }
        let Some(entry) = self.entry(name) else {
            return vec!["the catalogue does not list this entry".to_owned()];
        };
        let mut differences = Vec::new();
        for listed in &entry.checks {
            let found: Vec<&Check> = checks.iter().filter(|it| it.what == listed.what).collect();
            match (&listed.missing, found.as_slice()) {
                (Some(_), []) => {}
                (Some(_), _) => differences
                    .push(format!("'{}' is listed as missing, but it is there", listed.what)),
                (None, []) => {
                    differences.push(format!("'{}' is listed and has vanished", listed.what));
                }
                (None, [one]) => differences.extend(listed.differs(one)),
                (None, _) => differences.push(format!("'{}' came twice", listed.what)),
            }
        }
        let is_listed = |check: &Check| entry.checks.iter().any(|it| it.what == check.what);
        let unlisted = checks.iter().filter(|check| !is_listed(check));
        differences.extend(unlisted.map(|check| format!("'{}' is not listed", check.what)));
        differences
    }
}

impl Listed {
    /// Returns true if the check exists and can fail.
    pub(super) fn is_judged(&self) -> bool {
        self.missing.is_none() && self.tolerance != Tolerance::Report
    }

    /// Describes the difference between a check and this one.
    fn differs(&self, check: &Check) -> Option<String> {
        let figure = |it: Option<&Figure>| match it {
            Some(Figure::Number(value)) => value.to_string(),
            Some(Figure::Text(text)) => format!("'{text}'"),
            None => "none".to_owned(),
        };
        let pairs = [
            ("tolerance", self.tolerance.to_string(), check.tolerance().to_string()),
            ("paper", figure(self.paper.as_ref()), figure(check.paper.as_ref())),
            ("unit", self.unit.clone(), check.unit.to_owned()),
            ("subject", format!("{:?}", self.subject), format!("{:?}", check.subject())),
            (
                "given",
                self.given.clone().unwrap_or_default(),
                check.given_number().unwrap_or_default().to_owned(),
            ),
            (
                "reason",
                self.reason.clone().unwrap_or_default(),
                check.reason().unwrap_or_default().to_owned(),
            ),
        ];
        let differs: Vec<String> = pairs
            .into_iter()
            .filter(|(_, listed, found)| listed != found)
            .map(|(what, listed, found)| format!("{what} is {found}, listed {listed}"))
            .collect();
        (!differs.is_empty()).then(|| format!("'{}': {}", self.what, differs.join("; ")))
    }
}

#[cfg(test)]
mod tests;
