//! Facts about the machine: for defaults, for checks of quotas, and for the line beside every
//! measurement.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use entresol_base::ByteSize;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::files;

mod disk;
mod process;
mod shutdown;

pub use disk::{DiskReads, FileDisk};
pub use process::ProcessMark;
pub use shutdown::{ShutDown, shut_down_file_system};

/// Makes the allocator return large buffers to the system when they are freed, regardless of their
/// size. A server calls it once, when it starts.
pub fn give_large_buffers_back() {
    crate::raw::allocator::give_large_buffers_back();
}

/// Returns the memory that this process may use at most: the machine's, or its control group's
/// limit if that is lower.
#[must_use]
pub fn memory_bytes() -> u64 {
    let system = rustix::system::sysinfo();
    let machine = (system.totalram as u64).saturating_mul(u64::from(system.mem_unit.max(1)));
    control_group_limit().map_or(machine, |limit| limit.min(machine))
}

/// Returns the limit of this process's control group (version 2), if it has one. Limits of parent
/// groups are ignored: in practice a system that sets them sets this one too.
fn control_group_limit() -> Option<u64> {
    let groups = files::read_to_string(Path::new("/proc/self/cgroup")).ok()?;
    let group = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    let file = format!("/sys/fs/cgroup{}/memory.max", group.trim_end_matches('/'));
    files::read_to_string(Path::new(&file)).ok()?.trim().parse().ok()
}

/// Limits on open files and connections of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DescriptorLimit {
    /// Limit in force.
    pub soft: u64,
    /// Limit up to which the process may raise `soft` by itself.
    pub hard: u64,
}

/// Returns this process's limits on open files and connections.
#[must_use]
pub fn descriptor_limit() -> DescriptorLimit {
    let limit = getrlimit(Resource::Nofile);
    let number = |limit: Option<u64>| limit.unwrap_or(u64::MAX);
    DescriptorLimit { soft: number(limit.current), hard: number(limit.maximum) }
}

/// Returns the limit on this process's address space, if it has one.
#[must_use]
pub fn address_space_limit() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Raises the limit of open files to `wanted`, or as far as possible, and returns the limit then in
/// force. It is never lowered.
///
/// # Errors
/// If the system refuses a value within its own hard limit.
pub fn raise_descriptor_limit(wanted: u64) -> io::Result<u64> {
    let DescriptorLimit { soft, hard } = descriptor_limit();
    let reached = wanted.min(hard).max(soft);
    if reached > soft {
        let maximum = getrlimit(Resource::Nofile).maximum;
        setrlimit(Resource::Nofile, Rlimit { current: Some(reached), maximum })?;
    }
    Ok(reached)
}

/// Returns a text that differs after each boot of the machine, if the system provides one. Bytes
/// that were written but not flushed under another id may be lost.
#[must_use]
pub fn boot_id() -> Option<String> {
    let text = files::read_to_string(Path::new("/proc/sys/kernel/random/boot_id")).ok()?;
    Some(text.trim().to_owned())
}

/// Returns the number of processors that this process may use.
#[must_use]
pub fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// The address that `HOST:PORT` means here. Of several that a name has it is one of IPv4, so that
/// who listens at `localhost` and who connects there mean the same.
///
/// # Errors
/// If it is no such text, or the name has no address.
pub fn address_of(text: &str) -> Result<SocketAddr, String> {
    let resolved = text.to_socket_addrs().map(|found| {
        let all: Vec<SocketAddr> = found.collect();
        all.iter().find(|address| address.is_ipv4()).or(all.first()).copied()
    });
    match resolved {
        Ok(Some(address)) => Ok(address),
        Ok(None) => Err(format!("'{text}' has no address")),
        Err(error) => Err(format!("'{text}' is no address ({error})")),
    }
}

/// The machine in one line, for reports: processor, cores, memory, kernel.
#[must_use]
pub fn describe() -> String {
    let processor = processor_name().unwrap_or_else(|| "unknown processor".to_owned());
    let memory = ByteSize::gib((memory_bytes() + (1 << 29)) >> 30);
    let system = rustix::system::uname();
    let text = |part: &std::ffi::CStr| part.to_string_lossy().into_owned();
    format!(
        "{processor}, {} processors, {memory}, {} {}",
        processors(),
        text(system.sysname()),
        text(system.release()),
    )
}

/// Returns the size of the processor's largest cache, as the system reports it. Other virtual
/// machines may share it.
#[must_use]
pub fn cache_bytes() -> Option<u64> {
    let of_index = |index: u32| -> Option<u64> {
        let file = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let size: ByteSize = files::read_to_string(Path::new(&file)).ok()?.trim().parse().ok()?;
        Some(size.0)
    };
    (0..10).filter_map(of_index).max()
}

/// Returns how much of this process's own memory the system currently backs by huge pages.
#[must_use]
pub fn huge_page_bytes() -> Option<u64> {
    let text = files::read_to_string(Path::new("/proc/self/smaps_rollup")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("AnonHugePages:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

fn processor_name() -> Option<String> {
    let text = files::read_to_string(Path::new("/proc/cpuinfo")).ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    let name = line.split_once(':')?.1;
    Some(name.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_has_memory_and_a_name() {
        assert!(memory_bytes() > 64 << 20, "{}", memory_bytes());
        let line = describe();
        assert!(line.contains("Linux ") && !line.contains('\n'), "{line}");
        assert!(cache_bytes().is_none_or(|bytes| bytes >= 16 << 10), "{:?}", cache_bytes());
        assert!(huge_page_bytes().is_none_or(|bytes| bytes <= memory_bytes()));
        assert_eq!(boot_id(), boot_id());
        assert!(boot_id().is_some_and(|id| id.len() == 36));
    }

    #[test]
    fn the_limit_of_descriptors_is_raised_and_never_lowered() {
        let before = descriptor_limit();
        assert_eq!(raise_descriptor_limit(1).expect("no change"), before.soft);
        let reached = raise_descriptor_limit(u64::MAX).expect("as far as it goes");
        assert_eq!(reached, before.hard);
        assert_eq!(descriptor_limit().soft, reached);
    }
}
