//! A bell between threads, and from the kernel: a descriptor that can be waited for together with
//! sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

/// A descriptor that is readable from [`Event::signal`] to [`Event::clear`].
#[derive(Debug)]
pub(crate) struct Event(OwnedFd);

impl Event {
    pub(crate) fn new() -> io::Result<Event> {
        Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    pub(crate) fn signal(&self) {
        // Fails only if it was signalled 2^64 times without being cleared: it is readable then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    pub(crate) fn clear(&self) {
        // Fails if it was not signalled: it is clear then.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits until it is signalled, at most for `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut watched = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut watched, timeout.as_ref()) {
            // Interrupted by a signal: callers look and wait again in any case.
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl AsFd for Event {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}
