//! Figures of the kernel: processor time of threads and processes, resident memory, and the process
//! that listens at an address. The files read are those of `/proc`, which is no medium.
#![expect(clippy::disallowed_methods, reason = "the files are those of /proc, which is no medium")]

use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use rustix::param::clock_ticks_per_second;
use rustix::time::{ClockId, clock_gettime};

use crate::error::BenchError;

/// Runs `work` for each item in a thread of its own and returns the results in the order of the
/// items. A panic in a thread is resumed in the caller.
pub fn on_threads<T: Send, A: Send>(
    items: impl IntoIterator<Item = T>,
    work: impl Fn(T) -> A + Sync,
) -> Vec<A> {
    let work = &work;
    std::thread::scope(|scope| {
        let threads: Vec<_> =
            items.into_iter().map(|item| scope.spawn(move || work(item))).collect();
        let answers = threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        answers.collect()
    })
}

/// Returns the processor time of the calling thread in nanoseconds. Other work on a shared machine
/// does not add to it.
#[must_use]
#[inline]
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the processor time, user and system, of all living threads of process `pid` in
/// nanoseconds. It is read from the scheduler's counter (`schedstat`), since a tick of `stat` is a
/// hundredth of a second.
///
/// # Errors
/// Fails if the process does not exist or its figures may not be read.
pub fn process_cpu_ns(pid: u32) -> Result<u64, BenchError> {
    let error = |source| BenchError::System { what: "processor time of the server", source };
    let mut total_ns = 0;
    for task in fs::read_dir(format!("/proc/{pid}/task")).map_err(error)? {
        let path = task.map_err(error)?.path().join("schedstat");
        // A thread may end after the directory was listed.
        let Ok(text) = fs::read_to_string(path) else { continue };
        total_ns += text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
    }
    Ok(total_ns)
}

/// Returns the processor time in nanoseconds of all threads of this process, ended ones included.
#[must_use]
pub fn own_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the processor time in nanoseconds that a host has given to others while this machine, a
/// virtual one, wanted it: the sum of all processors, in steps of a tick.
///
/// # Errors
/// Fails if `/proc` is not mounted.
pub fn stolen_ns() -> Result<u64, BenchError> {
    let error = |source| BenchError::System { what: "processor time of the host", source };
    let text = fs::read_to_string("/proc/stat").map_err(error)?;
    Ok(stolen_ticks(&text) * (1_000_000_000 / clock_ticks_per_second()))
}

fn stolen_ticks(stat: &str) -> u64 {
    let all = stat.lines().next().unwrap_or_default();
    all.split_whitespace().nth(8).and_then(|ticks| ticks.parse().ok()).unwrap_or(0)
}

/// Returns the bytes that this process dirtied or wrote, less the bytes dropped before they reached
/// a disk. File systems in memory count none.
///
/// # Errors
/// Fails if `/proc` is not mounted or the kernel does not count bytes.
pub fn bytes_written() -> Result<u64, BenchError> {
    let written = counted("bytes written", "write_bytes:")?;
    Ok(written.saturating_sub(counted("bytes written", "cancelled_write_bytes:")?))
}

/// Returns the bytes that this process had read from disks. What the page cache held does not
/// count.
///
/// # Errors
/// Fails if `/proc` is not mounted or the kernel does not count bytes.
pub fn bytes_read() -> Result<u64, BenchError> {
    counted("bytes read", "read_bytes:")
}

fn counted(what: &'static str, field: &str) -> Result<u64, BenchError> {
    let error = |source| BenchError::System { what, source };
    let text = fs::read_to_string("/proc/self/io").map_err(error)?;
    Ok(field_of(&text, field).unwrap_or(0))
}

/// Resident memory of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Resident {
    /// All resident memory, in bytes.
    pub all_bytes: u64,
    /// Resident memory that is not backed by a file, in bytes.
    pub anonymous_bytes: u64,
}

/// Returns the memory of this process that is resident now.
///
/// # Errors
/// Fails if `/proc` is not mounted.
pub fn resident() -> Result<Resident, BenchError> {
    resident_of(std::process::id())
}

/// Returns the memory of process `pid` that is resident now.
///
/// # Errors
/// Fails if the process does not exist or its figures may not be read.
pub fn resident_of(pid: u32) -> Result<Resident, BenchError> {
    let error = |source| BenchError::System { what: "resident memory", source };
    let text = fs::read_to_string(format!("/proc/{pid}/status")).map_err(error)?;
    let bytes = |name| field_of(&text, name).unwrap_or(0) << 10;
    Ok(Resident { all_bytes: bytes("VmRSS:"), anonymous_bytes: bytes("RssAnon:") })
}

/// Returns the number of descriptors that process `pid` has open.
///
/// # Errors
/// Fails if the process does not exist or its figures may not be read.
pub fn descriptors_of(pid: u32) -> Result<u64, BenchError> {
    let error = |source| BenchError::System { what: "descriptors of a process", source };
    Ok(fs::read_dir(format!("/proc/{pid}/fd")).map_err(error)?.count() as u64)
}

fn field_of(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Returns the process that listens at a TCP address of this machine, if it is visible.
#[must_use]
pub fn listener_of_tcp(address: SocketAddr) -> Option<u32> {
    for table in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let Ok(text) = fs::read_to_string(table) else { continue };
        if let Some(inode) = tcp_listener_inode(&text, address) {
            return owner_of_socket(&inode);
        }
    }
    None
}

/// Returns the process that listens at a UNIX socket, if it is visible.
#[must_use]
pub fn listener_of_unix(path: &Path) -> Option<u32> {
    let text = fs::read_to_string("/proc/net/unix").ok()?;
    let path = path.to_str()?;
    // Columns: number, reference count, protocol, flags, type, state, inode, path. The flag
    // 00010000 marks a socket that accepts connections.
    let inode = text.lines().find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let listens = fields.get(3) == Some(&"00010000") && fields.get(7) == Some(&path);
        listens.then(|| (*fields.get(6).unwrap_or(&"")).to_owned())
    })?;
    owner_of_socket(&inode)
}

/// Finds the inode of the socket that listens at `address` in the text of `/proc/net/tcp` or
/// `tcp6`.
fn tcp_listener_inode(table: &str, address: SocketAddr) -> Option<String> {
    const LISTENING: &str = "0A";
    let port = format!("{:04X}", address.port());
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (ip, line_port) = fields.get(1)?.split_once(':')?;
        let matches = line_port == port
            && fields.get(3) == Some(&LISTENING)
            && (ip.bytes().all(|digit| digit == b'0') || ip == kernel_hex(address.ip()));
        if matches { fields.get(9).map(|inode| (*inode).to_owned()) } else { None }
    })
}

/// Formats an address like `/proc/net`: words of four bytes, each in the machine's byte order.
fn kernel_hex(ip: IpAddr) -> String {
    let bytes = match ip {
        IpAddr::V4(ip) => ip.octets().to_vec(),
        IpAddr::V6(ip) => ip.octets().to_vec(),
    };
    let word = |four: &[u8]| four.try_into().map_or(0, u32::from_ne_bytes);
    bytes.chunks(4).map(|four| format!("{:08X}", word(four))).collect()
}

fn owner_of_socket(inode: &str) -> Option<u32> {
    let wanted = format!("socket:[{inode}]");
    for process in fs::read_dir("/proc").ok()?.flatten() {
        let name = process.file_name();
        let Some(pid) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else { continue };
        let Ok(descriptors) = fs::read_dir(process.path().join("fd")) else { continue };
        for descriptor in descriptors.flatten() {
            let target = fs::read_link(descriptor.path());
            if target.is_ok_and(|target| target.as_os_str() == wanted.as_str()) {
                return Some(pid);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_busy_thread_uses_processor_time_and_a_sleeping_one_does_not() {
        let before = thread_cpu_ns();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let slept = thread_cpu_ns() - before;
        let mut x = 1_u64;
        while thread_cpu_ns() - before < 20_000_000 {
            x = std::hint::black_box(x.wrapping_mul(3));
        }
        assert!(slept < 10_000_000, "{slept} ns while asleep");
        assert!(process_cpu_ns(std::process::id()).unwrap() >= 15_000_000);
    }

    #[test]
    fn touched_memory_becomes_resident() {
        let before = resident().unwrap().all_bytes;
        let touched = std::hint::black_box(vec![1_u8; 64 << 20]);
        assert!(resident().unwrap().all_bytes >= before + (60 << 20));
        drop(touched);
    }

    #[test]
    fn stolen_time_is_the_eighth_of_a_processors_figures() {
        let stat = "cpu  10132153 290696 3084719 46828483 16683 0 25195 175628 0 0\ncpu0 1 2 3";
        assert_eq!(stolen_ticks(stat), 175_628);
        assert_eq!(stolen_ticks("cpu  1 2 3 4\n"), 0, "before Linux 2.6.11");
        assert!(stolen_ns().is_ok());
    }

    #[test]
    fn what_the_kernel_counts_of_this_process_is_seen() {
        let folder = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let (written, cpu) = (bytes_written().unwrap(), own_cpu_ns());
        std::fs::File::options()
            .create(true)
            .truncate(true)
            .write(true)
            .open(folder.path().join("file"))
            .and_then(|mut file| std::io::Write::write_all(&mut file, &[1; 1 << 20]))
            .unwrap();
        assert!(own_cpu_ns() > cpu);
        let resident = resident().unwrap();
        assert!(resident.anonymous_bytes > 0 && resident.all_bytes > resident.anonymous_bytes);
        // Other tests write as well; a file system in memory counts nothing.
        let written = bytes_written().unwrap().saturating_sub(written);
        assert!(written == 0 || written >= 1 << 20, "{written}");
    }

    #[test]
    fn the_process_behind_a_listener_is_found() {
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(listener_of_tcp(tcp.local_addr().unwrap()), Some(std::process::id()));
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _unix = UnixListener::bind(&path).unwrap();
        assert_eq!(listener_of_unix(&path), Some(std::process::id()));
        assert_eq!(listener_of_unix(Path::new("/nowhere")), None);
    }

    #[test]
    fn connections_are_not_mistaken_for_listeners() {
        let table = "head\n\
            0: 0100007F:2BCB 0100007F:9C40 01 0:0 0:0 0 0 0 111 1\n\
            1: 0200007F:2BCB 00000000:0000 0A 0:0 0:0 0 0 0 222 1\n\
            2: 0100007F:2BCB 00000000:0000 0A 0:0 0:0 0 0 0 333 1\n";
        let inode = tcp_listener_inode(table, "127.0.0.1:11211".parse().unwrap());
        assert_eq!(inode.as_deref(), Some("333"));
    }
}
