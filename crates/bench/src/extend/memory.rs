//! Limit of this process's memory: a control group below the one that it is in.

use std::io;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use entresol_base::ByteSize;
use entresol_measure::BenchError;
use entresol_media::{files, machine};

/// Root of control groups.
const ROOT: &str = "/sys/fs/cgroup";
const PROCESSES: &str = "cgroup.procs";
/// Controllers that groups below a group of version 2 have.
const CONTROLLERS: &str = "cgroup.subtree_control";

/// Version of the control groups that limit memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

impl Version {
    fn limit_file(self) -> &'static str {
        match self {
            Version::One => "memory.limit_in_bytes",
            Version::Two => "memory.max",
        }
    }
}

/// Limit in force while this lives. Then the process is back in its old group.
#[derive(Debug)]
pub(super) struct MemoryLimit {
    /// Bytes that this process may use.
    pub(super) bytes: ByteSize,
    /// Group that was made, if the process was not within such a limit already.
    group: Option<Group>,
}

impl MemoryLimit {
    /// Limits this process to `bytes`, unless it is already limited to no more than that.
    pub(super) fn enter(bytes: ByteSize) -> Result<MemoryLimit, BenchError> {
        let present = machine::memory_bytes();
        if present <= bytes.0 {
            return Ok(MemoryLimit { bytes: ByteSize(present), group: None });
        }
        let refused = |problem: String| {
            BenchError::Usage(format!(
                "this process's memory cannot be limited to {bytes}: {problem}; run it as root, or \
                 within a limit: systemd-run --user --scope -p MemoryMax={} COMMAND",
                bytes.0,
            ))
        };
        let group = Group::enter(bytes).map_err(refused)?;
        Ok(MemoryLimit { bytes, group: Some(group) })
    }

    /// Describes how the limit came about.
    pub(super) fn how(&self) -> &'static str {
        match self.group.as_ref().map(|group| group.version) {
            None => "a limit that the process was started with",
            Some(Version::One) => "a control group of its own, version 1",
            Some(Version::Two) => "a control group of its own, version 2",
        }
    }
}

/// Control group with this process in it.
#[derive(Debug)]
struct Group {
    version: Version,
    parent: PathBuf,
    own: PathBuf,
    /// True if groups below the parent had no memory controller before.
    is_enabled: bool,
}

impl Group {
    fn enter(bytes: ByteSize) -> Result<Group, String> {
        let listed = files::read_to_string(Path::new("/proc/self/cgroup"));
        let (version, mut parent) = listed
            .ok()
            .and_then(|groups| memory_group(&groups))
            .ok_or_else(|| "the system has no control groups".to_owned())?;
        if !files::is_directory(&parent) {
            // In a container the group has the name that the host knows, and is mounted as root.
            parent = root(version);
        }
        let own = parent.join(format!("entresol-{}", std::process::id()));
        files::create_directories(&own).map_err(|error| told(&own, &error))?;
        // From here on, the drop of this undoes what was done.
        let mut group = Group { version, parent, own, is_enabled: false };
        put(&group.own.join(PROCESSES), &std::process::id().to_string())?;
        if version == Version::Two {
            // The controller is given to groups below a group without processes only.
            let controllers = group.parent.join(CONTROLLERS);
            let listed = files::read_to_string(&controllers).unwrap_or_default();
            if !listed.split_whitespace().any(|name| name == "memory") {
                put(&controllers, "+memory")?;
                group.is_enabled = true;
            }
        }
        put(&group.own.join(version.limit_file()), &bytes.0.to_string())?;
        Ok(group)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // If a step fails, the group remains, without a process once this one ends.
        if self.is_enabled {
            let _ = put(&self.parent.join(CONTROLLERS), "-memory");
        }
        let _ = put(&self.parent.join(PROCESSES), &std::process::id().to_string());
        let _ = files::remove_directory(&self.own);
    }
}

/// Finds the group that limits the memory of a process with these groups: that of version 1 if
/// memory is limited by it, since a controller has one version at a time.
fn memory_group(groups: &str) -> Option<(Version, PathBuf)> {
    let at = |version, path: &str| (version, root(version).join(path.trim_start_matches('/')));
    let lines = || groups.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let first = lines().find(|(names, _)| names.split(',').any(|name| name == "memory"));
    let first = first.map(|(_, path)| at(Version::One, path));
    first.or_else(|| {
        let second = lines().find(|(names, _)| names.is_empty());
        second.map(|(_, path)| at(Version::Two, path))
    })
}

fn root(version: Version) -> PathBuf {
    match version {
        Version::One => Path::new(ROOT).join("memory"),
        Version::Two => PathBuf::from(ROOT),
    }
}

fn told(path: &Path, error: &io::Error) -> String {
    format!("{}: {error}", path.display())
}

/// Writes a file of a control group, by one system call.
fn put(path: &Path, text: &str) -> Result<(), String> {
    let written = files::create_writer(path).and_then(|mut file| file.write_all(text.as_bytes()));
    written.map_err(|error| told(path, &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_group_that_limits_memory_is_found_in_either_version() {
        let check = |groups: &str, found: Option<(Version, &str)>| {
            let expected = found.map(|(version, path)| (version, PathBuf::from(path)));
            assert_eq!(memory_group(groups), expected, "{groups}");
        };
        check("4:memory:/a/b\n1:cpu:/\n0::/\n", Some((Version::One, "/sys/fs/cgroup/memory/a/b")));
        check("7:hugetlb,memory:/a\n0::/c\n", Some((Version::One, "/sys/fs/cgroup/memory/a")));
        check("1:name=systemd:/x\n0::/user.slice/run-1.scope\n", {
            Some((Version::Two, "/sys/fs/cgroup/user.slice/run-1.scope"))
        });
        check("0::/\n", Some((Version::Two, "/sys/fs/cgroup")));
        check("1:cpu:/a:memory\n", None);
        check("", None);
    }

    #[test]
    fn a_limit_above_that_of_the_machine_makes_no_group() {
        let limit = MemoryLimit::enter(ByteSize(u64::MAX)).expect("no group is needed");
        assert!(limit.group.is_none() && limit.bytes.0 == machine::memory_bytes());
    }
}
