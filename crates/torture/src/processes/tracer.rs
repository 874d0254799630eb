//! The tracer of a child whose system calls fail. The kernel stops the child at each call that
//! changes files, by a seccomp filter that it installs itself, and at no other. The parent sees
//! which file the call is for, and lets it happen or answers in the kernel's place.
//!
//! io_uring passes by such filters, so it is refused, as containers refuse it: block files are
//! written by a pool of threads then.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::{IoSliceMut, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use entresol_measure::BenchError;
use nix::errno::Errno;
use nix::libc;
use nix::sys::ptrace::{self, Options};
use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter,
    SeccompRule,
};

use super::faults::{CALLS, Faults, Subject};

/// Longest path that is read from a child.
const PATH_BYTES_MAX: usize = 4096;
/// Bytes of a path that are read at a time; a page's end is never crossed.
const STEP_BYTES: usize = 256;

fn system<E: Into<std::io::Error>>(what: &'static str) -> impl Fn(E) -> BenchError {
    move |source| BenchError::System { what, source: source.into() }
}

fn filtered(error: impl std::fmt::Display) -> BenchError {
    BenchError::Failed(format!("system calls cannot be made to fail: {error}"))
}

/// Waits until the parent traces this process, and then stops at the calls that it may let fail.
/// Threads that are made later do so too.
pub(super) fn be_traced() -> Result<(), BenchError> {
    let gone = std::io::stdin().read(&mut [0]);
    gone.map_err(system("waiting for the tracer"))?;
    let program: Result<BpfProgram, _> = filter().and_then(TryInto::try_into);
    let program = program.map_err(filtered)?;
    seccompiler::apply_filter(&program).map_err(filtered)
}

fn filter() -> Result<SeccompFilter, seccompiler::BackendError> {
    let mut rules = BTreeMap::from_iter(CALLS.iter().map(|(number, ..)| (*number, Vec::new())));
    rules.insert(libc::SYS_io_uring_setup, Vec::new());
    // Reports to the parent need not stop.
    let is_other = SeccompCondition::new(
        0,
        SeccompCmpArgLen::Dword,
        SeccompCmpOp::Gt,
        libc::STDERR_FILENO as u64,
    )?;
    rules.insert(libc::SYS_write, vec![SeccompRule::new(vec![is_other])?]);
    let arch = std::env::consts::ARCH.try_into()?;
    SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Trace(0), arch)
}

/// Seizes a child that waits in [`be_traced`].
pub(super) fn seize(child: u32) -> Result<Pid, BenchError> {
    let child = Pid::from_raw(child as i32);
    let options =
        Options::PTRACE_O_TRACESECCOMP | Options::PTRACE_O_TRACECLONE | Options::PTRACE_O_EXITKILL;
    ptrace::seize(child, options).map_err(system("tracing a child"))?;
    Ok(child)
}

/// Lets a child go on until it ends, and lets the faults' calls to files in the directory fail.
/// Returns its end.
pub(super) fn trace(
    child: Pid,
    faults: &mut Faults,
    directory: &Path,
) -> Result<WaitStatus, BenchError> {
    let of_this_thread = Some(WaitPidFlag::__WALL | WaitPidFlag::__WNOTHREAD);
    loop {
        let met = match waitpid(None, of_this_thread) {
            Ok(end @ (WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, ..))) => {
                if pid == child {
                    return Ok(end);
                }
                Ok(())
            }
            Ok(WaitStatus::PtraceEvent(pid, _, libc::PTRACE_EVENT_SECCOMP)) => {
                answer(pid, faults, directory).and_then(|()| ptrace::cont(pid, None))
            }
            Ok(WaitStatus::PtraceEvent(pid, ..)) => ptrace::cont(pid, None),
            Ok(WaitStatus::Stopped(pid, signal)) => ptrace::cont(pid, signal),
            Ok(_) | Err(Errno::EINTR) => Ok(()),
            Err(errno) => Err(errno),
        };
        match met {
            // It was killed meanwhile; its end is reported next.
            Ok(()) | Err(Errno::ESRCH) => {}
            Err(errno) => return Err(system("tracing a child")(errno)),
        }
    }
}

/// Decides on a call at which a thread of the child has stopped.
fn answer(pid: Pid, faults: &mut Faults, directory: &Path) -> Result<(), Errno> {
    let (number, arguments) = call_of(pid)?;
    if number == libc::SYS_io_uring_setup {
        return refuse(pid, Errno::EPERM);
    }
    let known = CALLS.iter().find(|(of, ..)| *of == number);
    let known = known.filter(|(.., subject)| is_within(pid, *subject, arguments, directory));
    known.and_then(|(_, call, _)| faults.meet(*call)).map_or(Ok(()), |error| refuse(pid, error))
}

/// Returns the number of the call at which a thread has stopped, and its first arguments.
#[cfg(target_arch = "x86_64")]
fn call_of(pid: Pid) -> Result<(i64, [u64; 4]), Errno> {
    let registers = ptrace::getregs(pid)?;
    let arguments = [registers.rdi, registers.rsi, registers.rdx, registers.r10];
    Ok((registers.orig_rax as i64, arguments))
}

/// Lets the call at which a thread has stopped return an error instead of being carried out.
#[cfg(target_arch = "x86_64")]
fn refuse(pid: Pid, error: Errno) -> Result<(), Errno> {
    let mut registers = ptrace::getregs(pid)?;
    // No call has this number, so the kernel returns what the other register holds.
    registers.orig_rax = u64::MAX;
    registers.rax = (error as i64).wrapping_neg() as u64;
    ptrace::setregs(pid, registers)
}

#[cfg(not(target_arch = "x86_64"))]
fn call_of(_: Pid) -> Result<(i64, [u64; 4]), Errno> {
    Err(Errno::ENOSYS)
}

#[cfg(not(target_arch = "x86_64"))]
fn refuse(_: Pid, _: Errno) -> Result<(), Errno> {
    Err(Errno::ENOSYS)
}

fn is_within(pid: Pid, subject: Subject, arguments: [u64; 4], directory: &Path) -> bool {
    let path = match subject {
        Subject::Mapping => return true,
        Subject::Descriptor(at) => {
            let link = format!("/proc/{pid}/fd/{}", arguments[at] as i32);
            let found = rustix::fs::readlink(link, Vec::new());
            found.ok().map(|it| it.into_bytes())
        }
        Subject::Path(at) => path_at(pid, arguments[at]),
    };
    path.is_some_and(|it| Path::new(&OsString::from_vec(it)).starts_with(directory))
}

/// Reads a path from a stopped child's memory.
fn path_at(pid: Pid, address: u64) -> Option<Vec<u8>> {
    let mut path = Vec::new();
    while path.len() < PATH_BYTES_MAX {
        let mut step = [0; STEP_BYTES];
        let base = address as usize + path.len();
        let len = STEP_BYTES - base % STEP_BYTES;
        let part = &mut step[..len];
        process_vm_readv(pid, &mut [IoSliceMut::new(part)], &[RemoteIoVec { base, len }]).ok()?;
        match part.iter().position(|byte| *byte == 0) {
            Some(end) => {
                path.extend_from_slice(&part[..end]);
                return Some(path);
            }
            None => path.extend_from_slice(part),
        }
    }
    None
}
