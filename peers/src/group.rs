//! Control group that bounds the memory of one process, including the system's cache of its files.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::Context;

const FIRST_ROOT: &str = "/sys/fs/cgroup/memory";
const SECOND_ROOT: &str = "/sys/fs/cgroup";
const NAME: &str = "entresol-peers-";
/// Attempts to empty a group before it is removed with the rest in it.
const EMPTYING_MAX: u32 = 8;

/// Interfaces that the kernel may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    First,
    Second,
}

/// Control group for one process. Dropping it removes the group with the file pages cached in it,
/// so the next process finds none.
#[derive(Debug)]
pub(crate) struct Group {
    path: PathBuf,
    version: Version,
}

impl Group {
    /// Creates a group with room for `bytes` bytes.
    pub(crate) fn new(bytes: u64) -> anyhow::Result<Group> {
        let group = make(bytes).context(
            "no control group can be made: run as root where the memory controller is mounted \
             (/sys/fs/cgroup/memory, or version 2 at /sys/fs/cgroup), or go on with \
             --without-cgroup, where nothing bounds the system's cache",
        )?;
        Ok(group)
    }

    /// Returns the path of the group. A process joins it with [`join`].
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the number of processes in the group that were killed for lack of memory.
    pub(crate) fn killed(&self) -> u64 {
        let file = match self.version {
            Version::First => "memory.oom_control",
            Version::Second => "memory.events",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "));
        count.and_then(|count| count.trim().parse().ok()).unwrap_or(0)
    }

    /// Writes back and drops the cached pages of files.
    fn empty(&self) {
        for _ in 0..EMPTYING_MAX {
            let (file, how) = match self.version {
                Version::First => ("memory.force_empty", "0".to_owned()),
                Version::Second => ("memory.reclaim", self.usage().to_string()),
            };
            if put(&self.path.join(file), &how).is_ok() || self.usage() == 0 {
                return;
            }
        }
    }

    fn usage(&self) -> u64 {
        let file = match self.version {
            Version::First => "memory.usage_in_bytes",
            Version::Second => "memory.current",
        };
        let text = fs::read_to_string(self.path.join(file)).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.empty();
        if let Err(error) = fs::remove_dir(&self.path) {
            eprintln!("peers: {} stays: {error}", self.path.display());
        }
    }
}

fn make(bytes: u64) -> anyhow::Result<Group> {
    let (root, version) = root()?;
    remove_left(root);
    let path = root.join(format!("{NAME}{}", std::process::id()));
    fs::create_dir(&path).with_context(|| path.display().to_string())?;
    let group = Group { path, version };
    let limits: &[(&str, String)] = &match version {
        Version::First => {
            [("memory.limit_in_bytes", bytes.to_string()), ("memory.swappiness", "0".to_owned())]
        }
        Version::Second => [("memory.max", bytes.to_string()), ("memory.swap.max", "0".to_owned())],
    };
    for (position, (file, text)) in limits.iter().enumerate() {
        let path = group.path.join(file);
        // A kernel without swapping has no limit of it.
        match put(&path, text) {
            Err(error) if position > 0 && error.kind() == io::ErrorKind::NotFound => {}
            done => done.with_context(|| path.display().to_string())?,
        }
    }
    Ok(group)
}

fn root() -> anyhow::Result<(&'static Path, Version)> {
    let first = Path::new(FIRST_ROOT);
    if first.join("memory.limit_in_bytes").exists() {
        return Ok((first, Version::First));
    }
    let second = Path::new(SECOND_ROOT);
    let controllers = second.join("cgroup.controllers");
    let text =
        fs::read_to_string(&controllers).with_context(|| controllers.display().to_string())?;
    anyhow::ensure!(
        text.split_whitespace().any(|name| name == "memory"),
        "{} does not name memory",
        controllers.display()
    );
    let subtree = second.join("cgroup.subtree_control");
    put(&subtree, "+memory").with_context(|| subtree.display().to_string())?;
    Ok((second, Version::Second))
}

/// Removes groups that killed runs have left. One that is in use cannot be removed.
fn remove_left(root: &Path) {
    for entry in fs::read_dir(root).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let pid = name.to_str().and_then(|name| name.strip_prefix(NAME));
        if pid.is_some_and(|pid| !Path::new("/proc").join(pid).exists()) {
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// Puts this process into the group at `path`.
pub(crate) fn join(path: &Path) -> anyhow::Result<()> {
    let file = path.join("cgroup.procs");
    put(&file, &std::process::id().to_string()).with_context(|| file.display().to_string())
}

/// Writes to an existing file of the kernel's, and creates none.
fn put(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    fs::OpenOptions::new().write(true).open(path)?.write_all(text.as_bytes())
}
