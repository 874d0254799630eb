//! Floors of the crates. Arrows between crates run down only.

use crate::metadata::{Metadata, Package, manifest};
use crate::problem::Problem;

/// Every crate of the plan, including those still to come.
const FLOORS: [(&str, u8); 13] = [
    ("base", 0),
    ("media", 1),
    ("protocol", 1),
    ("cache", 2),
    ("index", 2),
    ("sharing", 2),
    ("measure", 3),
    ("store", 3),
    ("bench", 4),
    ("server", 4),
    ("torture", 4),
    ("reproduce", 5),
    ("cli", 6),
];

/// Arrows that run down but are forbidden: the server reaches indexes through the store only.
const FORBIDDEN: [(&str, &str); 1] = [("server", "index")];

const PREFIX: &str = "entresol-";

/// Returns every arrow of the workspace that runs up or sideways, and every crate without a floor.
pub(crate) fn check(metadata: &Metadata) -> Vec<Problem> {
    metadata.members().flat_map(check_member).collect()
}

fn check_member(member: &Package) -> Vec<Problem> {
    let path = manifest(&member.name);
    let ours = member.dependencies.iter().filter(|dependency| dependency.path.is_some());
    let Some(from) = member.name.strip_prefix(PREFIX) else {
        return check_outsider(&path, &member.name);
    };
    let Some(height) = floor(from) else {
        return vec![Problem::new(
            &path,
            0,
            format!("the crate {from} has no floor"),
            "add it to FLOORS in xtask/src/floors.rs and to the drawing, or fold it into another",
        )];
    };
    ours.filter_map(|dependency| {
        let to = dependency.name.strip_prefix(PREFIX).unwrap_or(&dependency.name);
        let what = complaint(from, height, to)?;
        let fix = "move what is shared down, or turn the arrow round with a trait";
        Some(Problem::new(&path, 0, what, fix))
    })
    .collect()
}

/// Returns the fault of an arrow, if it has one.
fn complaint(from: &str, height: u8, to: &str) -> Option<String> {
    let Some(below) = floor(to) else {
        return Some(format!("{from} uses {to}, which is outside the drawing"));
    };
    if FORBIDDEN.contains(&(from, to)) {
        return Some(format!("{from} may not use {to}, though it lies below"));
    }
    match below.cmp(&height) {
        std::cmp::Ordering::Less => None,
        std::cmp::Ordering::Equal => Some(format!("{from} uses {to} beside it on floor {height}")),
        std::cmp::Ordering::Greater => {
            Some(format!("{from} (floor {height}) uses {to} above it (floor {below})"))
        }
    }
}

fn floor(name: &str) -> Option<u8> {
    FLOORS.iter().find(|(known, _)| *known == name).map(|(_, floor)| *floor)
}

/// Checks the name of a package that is no library: only xtask stands outside the drawing.
fn check_outsider(path: &str, name: &str) -> Vec<Problem> {
    if name == "xtask" {
        return Vec::new();
    }
    let fix = format!("call it {PREFIX}{name} and give it a floor, or make it part of xtask");
    vec![Problem::new(path, 0, format!("the package {name} has no place in the drawing"), fix)]
}

#[cfg(test)]
mod tests {
    use super::{Metadata, check};
    use crate::metadata::{Dependency, Package};

    fn workspace(arrows: &[(&str, &[&str])]) -> Metadata {
        let packages: Vec<Package> = arrows
            .iter()
            .map(|(name, uses)| Package {
                id: format!("{name} id"),
                name: (*name).to_owned(),
                version: "0.1.0".to_owned(),
                license: None,
                dependencies: uses
                    .iter()
                    .map(|name| Dependency { name: (*name).to_owned(), path: Some("/".into()) })
                    .collect(),
            })
            .collect();
        let workspace_members = packages.iter().map(|package| package.id.clone()).collect();
        Metadata { packages, workspace_members }
    }

    fn complaints(from: &str, to: &str) -> Vec<String> {
        check(&workspace(&[(from, &[to])])).into_iter().map(|problem| problem.what).collect()
    }

    #[test]
    fn arrows_down_pass() {
        for (from, to) in [("cli", "server"), ("server", "base"), ("store", "index")] {
            let (from, to) = (format!("entresol-{from}"), format!("entresol-{to}"));
            assert_eq!(complaints(&from, &to), [""; 0], "{from} -> {to}");
        }
    }

    #[test]
    fn arrows_up_sideways_and_out_of_the_drawing_fail() {
        for (from, to, part) in [
            ("entresol-base", "entresol-media", "above it"),
            ("entresol-cache", "entresol-sharing", "beside it"),
            ("entresol-bench", "entresol-server", "beside it"),
            ("entresol-torture", "entresol-bench", "beside it"),
            ("entresol-measure", "entresol-store", "beside it"),
            ("entresol-bench", "entresol-reproduce", "above it"),
            ("entresol-server", "entresol-index", "may not use"),
            ("entresol-media", "xtask", "outside the drawing"),
            ("entresol-attic", "entresol-base", "has no floor"),
            ("helper", "entresol-base", "no place in the drawing"),
        ] {
            let found = complaints(from, to);
            assert_eq!(found.len(), 1, "{from} -> {to}");
            assert!(found[0].contains(part), "{from} -> {to}: {}", found[0]);
        }
    }
}
