//! Files of the repository: those that git tracks, and those it would track once added.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file. Its contents are kept only if they are text.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) bytes: u64,
    pub(crate) text: Option<String>,
    pub(crate) executable: bool,
}

/// All files by their paths from the root, with `/` between the parts.
#[derive(Debug, Default)]
pub(crate) struct Repository {
    pub(crate) files: BTreeMap<String, File>,
}

/// Maximum size of a file that is read; larger ones are only listed.
const TEXT_BYTES_MAX: u64 = 4 << 20;

impl Repository {
    /// Reads the repository that holds this crate.
    pub(crate) fn read() -> Result<Repository, String> {
        let root = root();
        let listing = Command::new("git")
            .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .map_err(|error| format!("git ls-files: {error}; install git"))?;
        if !listing.status.success() {
            return Err(format!("git ls-files: {}", String::from_utf8_lossy(&listing.stderr)));
        }
        let mut repository = Repository::default();
        for name in String::from_utf8_lossy(&listing.stdout).split('\0') {
            let path = root.join(name);
            // A file that was deleted but not yet committed is still listed.
            if !name.is_empty() && path.is_file() {
                repository.files.insert(name.to_owned(), read_file(&path)?);
            }
        }
        Ok(repository)
    }

    /// Returns the text files whose names end in `.extension`.
    pub(crate) fn texts(&self, extension: &str) -> impl Iterator<Item = (&str, &str)> {
        let ending = format!(".{extension}");
        self.files.iter().filter_map(move |(path, file)| {
            let text = file.text.as_deref()?;
            path.ends_with(&ending).then_some((path.as_str(), text))
        })
    }

    /// Returns true if a file or folder of this name exists.
    pub(crate) fn holds(&self, path: &str) -> bool {
        let folder = format!("{}/", path.trim_end_matches('/'));
        path.is_empty()
            || self.files.contains_key(path)
            || self
                .files
                .range(folder.clone()..)
                .next()
                .is_some_and(|(p, _)| p.starts_with(&folder))
    }

    #[cfg(test)]
    pub(crate) fn of(files: &[(&str, &str)]) -> Repository {
        let file = |text: &str| File {
            bytes: text.len() as u64,
            text: Some(text.to_owned()),
            executable: false,
        };
        Repository { files: files.iter().map(|(p, t)| ((*p).to_owned(), file(t))).collect() }
    }
}

/// Returns the root of the repository, which is the parent of this crate.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

#[expect(clippy::disallowed_methods, reason = "a tool outside the drawing reads the repository")]
fn read_file(path: &Path) -> Result<File, String> {
    use std::os::unix::fs::PermissionsExt;
    let describe = |error: std::io::Error| format!("{}: {error}", path.display());
    let metadata = path.metadata().map_err(describe)?;
    let text =
        if metadata.len() <= TEXT_BYTES_MAX { std::fs::read_to_string(path).ok() } else { None };
    let executable = metadata.permissions().mode() & 0o111 != 0;
    Ok(File { bytes: metadata.len(), text, executable })
}

#[cfg(test)]
mod tests {
    use super::Repository;

    #[test]
    fn folders_are_held_like_files() {
        let repository = Repository::of(&[("docs/a.md", ""), ("docs.md", "")]);
        for (path, held) in [("docs", true), ("docs/", true), ("docs/a.md", true), ("doc", false)] {
            assert_eq!(repository.holds(path), held, "{path}");
        }
    }
}
