//! The end of a file system at an instant, by the ioctl that ext4, XFS and F2FS have for tests.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// `_IOR('X', 125, __u32)`.
const GOING_DOWN: u64 = 0x8004_587D;

/// Shuts down the file system that `file` lies on, in the way of this number.
///
/// # Errors
/// If the file system cannot be shut down, or the caller may not do so.
pub(crate) fn shut_down(file: BorrowedFd<'_>, way: u32) -> io::Result<()> {
    let way = &raw const way;
    // SAFETY: the request reads one number of 32 bits, which outlives the call.
    let status = unsafe { libc::ioctl(file.as_raw_fd(), GOING_DOWN as _, way) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
