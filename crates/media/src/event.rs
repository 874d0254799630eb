//! A bell between threads, and from the kernel: a descriptor that can be waited for together with
//! sockets.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, epoll, eventfd, poll};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

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
        wait_readable(&self.0, timeout)
    }
}

fn wait_readable(descriptor: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    match poll(&mut watched, timeout.as_ref()) {
        // Interrupted by a signal: callers look and wait again in any case.
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno.into()),
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

/// A descriptor that is readable once a time has come, and while another is.
#[derive(Debug)]
pub(crate) struct Alarm {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Alarm {
    /// An alarm that is not set, beside a descriptor that must live as long. That one is watched
    /// all the time: to turn watching it on only when it is needed loses wake-ups. (An epoll
    /// instance that is itself watched for edges tells of none when an entry is changed that was
    /// ready before, though nobody has looked since.)
    pub(crate) fn new(other: BorrowedFd<'_>) -> io::Result<Alarm> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&epoll, other, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Alarm { epoll, timer })
    }

    /// Wakes after `next`, if given. What it was set to before does not count any more.
    pub(crate) fn set(&self, next: Option<Duration>) -> io::Result<()> {
        // A timer that is set to zero is off.
        let next = next.map(|next| next.max(Duration::from_nanos(1))).unwrap_or_default();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(next).unwrap_or(zero);
        let value = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Waits until it is readable, at most for `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(&self.epoll, timeout)
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
