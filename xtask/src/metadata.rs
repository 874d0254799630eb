//! Output of `cargo metadata`: the workspace and all its dependencies.

use std::process::Command;

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_members: Vec<String>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) dependencies: Vec<Dependency>,
}

#[derive(Debug, Default, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// Kind of dependency: `dev` for tests, absent for what a crate is built of.
    pub(crate) kind: Option<String>,
    /// True if only a feature asks for it.
    pub(crate) optional: bool,
    /// Its path, if it is a member of the workspace.
    pub(crate) path: Option<String>,
}

impl Metadata {
    pub(crate) fn read() -> Result<Metadata, String> {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--quiet"])
            .current_dir(crate::repository::root())
            .output()
            .map_err(|error| format!("cargo metadata: {error}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", String::from_utf8_lossy(&output.stderr)));
        }
        serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
    }

    /// Returns the packages of this repository.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| self.workspace_members.contains(&package.id))
    }

    /// Returns the packages of others.
    pub(crate) fn strangers(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| !self.workspace_members.contains(&package.id))
    }
}

/// Returns the path of a member's manifest in the repository.
pub(crate) fn manifest(member: &str) -> String {
    match member.strip_prefix("entresol-") {
        Some(short) => format!("crates/{short}/Cargo.toml"),
        None => format!("{member}/Cargo.toml"),
    }
}
