//! Media policies: the classes of media that hold the keys and the values of a `Kvs`, while they
//! are new and once they are old.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Class of media, from the fastest to the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MediaClass {
    /// Persistent memory, or CXL memory that keeps its contents.
    Pmem,
    /// Fast drive that endures many writes.
    Staging,
    /// Drives with a large capacity for their price.
    Capacity,
}

impl MediaClass {
    /// All classes, the fastest first.
    pub const ALL: [MediaClass; 3] = [MediaClass::Pmem, MediaClass::Staging, MediaClass::Capacity];

    /// Returns the name of the class.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            MediaClass::Pmem => "pmem",
            MediaClass::Staging => "staging",
            MediaClass::Capacity => "capacity",
        }
    }
}

impl fmt::Display for MediaClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for MediaClass {
    type Err = String;

    fn from_str(text: &str) -> Result<MediaClass, String> {
        let found = MediaClass::ALL.into_iter().find(|class| class.name() == text);
        found.ok_or_else(|| {
            format!("'{text}' is not a class of media: use pmem, staging or capacity")
        })
    }
}

/// Classes in the order in which they are tried: the next one is taken where one has no room. Data
/// on any of them may stay there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Vec<MediaClass>", into = "Vec<MediaClass>")]
pub struct Classes {
    all: [MediaClass; 3],
    len: u8,
}

impl Classes {
    /// All classes, the fastest first.
    pub const FASTEST: Classes = Classes { all: MediaClass::ALL, len: 3 };
    /// Persistent memory only.
    pub const PMEM: Classes = Classes::one(MediaClass::Pmem);
    /// Staging only.
    pub const STAGING: Classes = Classes::one(MediaClass::Staging);
    /// Capacity only.
    pub const CAPACITY: Classes = Classes::one(MediaClass::Capacity);
    /// Staging, and capacity if that has no room.
    pub const STAGING_THEN_CAPACITY: Classes = Classes::pair(MediaClass::Staging);
    /// Persistent memory, and capacity if that has no room.
    pub const PMEM_THEN_CAPACITY: Classes = Classes::pair(MediaClass::Pmem);

    const fn one(class: MediaClass) -> Classes {
        Classes { all: [class; 3], len: 1 }
    }

    /// Returns a class, and capacity behind it.
    const fn pair(class: MediaClass) -> Classes {
        Classes { all: [class, MediaClass::Capacity, MediaClass::Capacity], len: 2 }
    }

    /// Creates a list of classes, in order of preference.
    ///
    /// # Errors
    /// Fails if the list is empty or names a class twice.
    pub fn new(classes: &[MediaClass]) -> Result<Classes, String> {
        let is_twice = |at: usize| classes[..at].contains(&classes[at]);
        if (1..classes.len()).any(is_twice) {
            return Err("a class is given twice: give each once".to_owned());
        }
        let Some(&last) = classes.last() else {
            return Err("no class is given: use pmem, staging or capacity".to_owned());
        };
        let mut all = [last; 3];
        all.iter_mut().zip(classes).for_each(|(place, class)| *place = *class);
        Ok(Classes { all, len: classes.len().min(all.len()) as u8 })
    }

    /// Returns the classes in order.
    #[must_use]
    pub fn as_slice(&self) -> &[MediaClass] {
        &self.all[..self.len as usize]
    }

    /// Returns true if a class is in the list.
    #[must_use]
    pub fn has(&self, class: MediaClass) -> bool {
        self.as_slice().contains(&class)
    }

    /// Returns true if both classes are in the list, and `one` is preferred to `other`.
    pub(crate) fn prefers(&self, one: MediaClass, other: MediaClass) -> bool {
        let rank = |class| self.as_slice().iter().position(|it| *it == class);
        rank(one).zip(rank(other)).is_some_and(|(one, other)| one < other)
    }

    /// Returns the classes that are preferred to `class`; all if there are none.
    pub(crate) fn before(&self, class: MediaClass) -> Classes {
        self.filtered(|it| self.prefers(it, class))
    }

    /// Returns the classes that satisfy a condition; all if none does.
    pub(crate) fn filtered(&self, is_wanted: impl Fn(MediaClass) -> bool) -> Classes {
        let kept: Vec<_> = self.as_slice().iter().copied().filter(|it| is_wanted(*it)).collect();
        Classes::new(&kept).unwrap_or(*self)
    }
}

impl TryFrom<Vec<MediaClass>> for Classes {
    type Error = String;

    fn try_from(classes: Vec<MediaClass>) -> Result<Classes, String> {
        Classes::new(&classes)
    }
}

impl From<Classes> for Vec<MediaClass> {
    fn from(classes: Classes) -> Vec<MediaClass> {
        classes.as_slice().to_vec()
    }
}

impl fmt::Debug for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Classes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, class) in self.as_slice().iter().enumerate() {
            let slash = if number == 0 { "" } else { "/" };
            write!(f, "{slash}{class}")?;
        }
        Ok(())
    }
}

impl FromStr for Classes {
    type Err = String;

    fn from_str(text: &str) -> Result<Classes, String> {
        let classes: Result<Vec<MediaClass>, String> = text.split('/').map(str::parse).collect();
        Classes::new(&classes?)
    }
}

/// Classes that hold the keys and the values of a `Kvs` once they are flushed.
///
/// Data are new until a compaction of all runs of the `Kvs`, which makes them old. Values small
/// enough to lie beside their keys are stored with these.
///
/// As text, a policy is the name of a template, or `new-keys=`, `new-values=`, `old-keys=` and
/// `old-values=`, separated by commas, each with classes separated by slashes.
///
/// ```
/// use entresol_store::Policy;
///
/// let template: Policy = "staging-max-capacity".parse()?;
/// let same = "new-keys=staging,new-values=staging,old-keys=staging,old-values=staging/capacity";
/// assert_eq!(template, same.parse()?);
/// # Ok::<(), String>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Policy {
    /// Classes for the keys of new data.
    #[serde(rename = "young_keys")]
    pub new_keys: Classes,
    /// Classes for the values of new data.
    #[serde(rename = "young_values")]
    pub new_values: Classes,
    /// Classes for the keys of old data.
    #[serde(rename = "aged_keys")]
    pub old_keys: Classes,
    /// Classes for the values of old data.
    #[serde(rename = "aged_values")]
    pub old_values: Classes,
}

impl Policy {
    /// Templates with their names. The first one is the default: everything lies as fast as there
    /// is room, and values are demoted first. Six are HSE's, with its names; «max» and «min» say
    /// what may be demoted to the capacity class: values, or keys as well. As in HSE, only a lack
    /// of room demotes them, since readers lose by it whatever is gained.
    pub const TEMPLATES: [(&'static str, Policy); 8] = [
        ("fastest", Policy::all(Classes::FASTEST)),
        ("staging-then-capacity", Policy::all(Classes::STAGING_THEN_CAPACITY)),
        ("capacity-only", Policy::all(Classes::CAPACITY)),
        ("staging-only", Policy::all(Classes::STAGING)),
        ("pmem-only", Policy::all(Classes::PMEM)),
        (
            "staging-max-capacity",
            Policy { old_values: Classes::STAGING_THEN_CAPACITY, ..Policy::all(Classes::STAGING) },
        ),
        (
            "staging-min-capacity",
            Policy {
                old_keys: Classes::STAGING_THEN_CAPACITY,
                old_values: Classes::STAGING_THEN_CAPACITY,
                ..Policy::all(Classes::STAGING)
            },
        ),
        (
            "pmem-max-capacity",
            Policy { old_values: Classes::PMEM_THEN_CAPACITY, ..Policy::all(Classes::PMEM) },
        ),
    ];

    /// Creates a policy that puts all data on the same classes.
    #[must_use]
    pub const fn all(classes: Classes) -> Policy {
        Policy { new_keys: classes, new_values: classes, old_keys: classes, old_values: classes }
    }

    /// Returns the four parts with their names.
    pub(crate) const fn parts(&self) -> [(&'static str, Classes); 4] {
        [
            ("new-keys", self.new_keys),
            ("new-values", self.new_values),
            ("old-keys", self.old_keys),
            ("old-values", self.old_values),
        ]
    }

    /// Returns the classes for keys.
    pub(crate) const fn keys(&self, is_aged: bool) -> Classes {
        if is_aged { self.old_keys } else { self.new_keys }
    }

    /// Returns the classes for values.
    pub(crate) const fn values(&self, is_aged: bool) -> Classes {
        if is_aged { self.old_values } else { self.new_values }
    }
}

impl Default for Policy {
    fn default() -> Policy {
        Policy::all(Classes::FASTEST)
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some((name, _)) = Policy::TEMPLATES.iter().find(|(_, policy)| policy == self) {
            return f.write_str(name);
        }
        for (number, (name, classes)) in self.parts().into_iter().enumerate() {
            let comma = if number == 0 { "" } else { "," };
            write!(f, "{comma}{name}={classes}")?;
        }
        Ok(())
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(text: &str) -> Result<Policy, String> {
        if let Some((_, policy)) = Policy::TEMPLATES.iter().find(|(name, _)| *name == text) {
            return Ok(*policy);
        }
        let mut found = [None; 4];
        for part in text.split(',') {
            let (name, classes) = part.split_once('=').ok_or_else(|| unknown(part))?;
            let names = Policy::default().parts().map(|(name, _)| name);
            let place = names.iter().position(|it| *it == name).ok_or_else(|| unknown(part))?;
            if found[place].replace(classes.parse::<Classes>()?).is_some() {
                return Err(format!("'{name}' is given twice: give it once"));
            }
        }
        let [new_keys, new_values, old_keys, old_values] = found;
        let all = (new_keys, new_values, old_keys, old_values);
        let (Some(new_keys), Some(new_values), Some(old_keys), Some(old_values)) = all else {
            return Err(format!(
                "the policy '{text}' does not name all four of new-keys, new-values, old-keys \
                 and old-values"
            ));
        };
        Ok(Policy { new_keys, new_values, old_keys, old_values })
    }
}

/// Names of parts that were renamed, with the new ones.
const RENAMED: [(&str, &str); 4] = [
    ("young-keys", "new-keys"),
    ("young-values", "new-values"),
    ("aged-keys", "old-keys"),
    ("aged-values", "old-values"),
];

fn unknown(part: &str) -> String {
    let name = part.split('=').next().unwrap_or_default();
    if let Some((from, to)) = RENAMED.iter().find(|(from, _)| *from == name) {
        return format!("{from} was renamed to {to}: write {to}=CLASSES");
    }
    let names = Policy::TEMPLATES.map(|(name, _)| name).join(", ");
    format!(
        "'{part}' is not a policy: use {names}, or new-keys=CLASSES, new-values=, \
         old-keys= and old-values=, separated by commas"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_are_read_as_they_are_written() {
        for (name, policy) in Policy::TEMPLATES {
            assert_eq!((name.parse(), policy.to_string()), (Ok(policy), name.to_owned()));
        }
        let custom = "new-keys=pmem,new-values=staging/capacity,old-keys=staging/capacity,\
                      old-values=capacity/pmem";
        let policy: Policy = custom.parse().expect("a policy");
        assert_eq!(policy.to_string(), custom);
        let json = serde_json::to_string(&policy).expect("writes");
        assert_eq!(serde_json::from_str::<Policy>(&json).expect("reads"), policy);
    }

    #[test]
    fn what_is_no_policy_is_refused_with_what_to_take() {
        let refused = |text: &str, names: &str| {
            let error = text.parse::<Policy>().expect_err(text);
            assert!(error.contains(names), "{text}: {error}");
        };
        refused("hot", "staging-max-capacity");
        refused("new-keys=staging", "all four");
        refused("new-keys=disk", "'disk'");
        refused("new-keys=", "''");
        refused("young-keys=staging", "young-keys was renamed to new-keys");
        refused("aged-values=staging", "aged-values was renamed to old-values");
        refused("new-keys=staging/staging", "twice");
        refused("new-keys=staging,new-keys=staging", "twice");
        assert!(Classes::new(&[]).is_err());
    }
}
