//! Wake-ups between threads, and from the kernel: descriptors that can be polled together with
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
pub struct Event(OwnedFd);

impl Event {
    /// Makes an event that is not signalled.
    ///
    /// # Errors
    /// If the system refuses another descriptor.
    pub fn new() -> io::Result<Event> {
        Ok(Event(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Makes the descriptor readable.
    pub fn signal(&self) {
        // Fails only after 2^64 signals without a clear; the descriptor is readable then.
        let _ = rustix::io::write(&self.0, &1_u64.to_ne_bytes());
    }

    /// Makes the descriptor unreadable.
    pub fn clear(&self) {
        // Fails if there was no signal; there is nothing to clear then.
        let _ = rustix::io::read(&self.0, &mut [0; 8]);
    }

    /// Waits for a signal, at most for `timeout`.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(&self.0, timeout)
    }
}

fn wait_readable(descriptor: &OwnedFd, timeout: Option<Duration>) -> io::Result<()> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut watched = [PollFd::new(descriptor, PollFlags::IN)];
    match poll(&mut watched, timeout.as_ref()) {
        // Interrupted by a signal: callers check and wait again in any case.
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

/// A descriptor that is readable while another descriptor is, and once a timer has expired.
#[derive(Debug)]
pub(crate) struct Alarm {
    epoll: OwnedFd,
    timer: OwnedFd,
}

impl Alarm {
    /// Returns an alarm that is not set. `other` must outlive it. `other` is watched all the time,
    /// since adding it only when needed loses wake-ups: an epoll instance that is itself watched
    /// edge-triggered reports nothing when an entry is modified that was ready before, even if no
    /// thread has looked since.
    pub(crate) fn new(other: BorrowedFd<'_>) -> io::Result<Alarm> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        epoll::add(&epoll, &timer, epoll::EventData::new_u64(0), epoll::EventFlags::IN)?;
        epoll::add(&epoll, other, epoll::EventData::new_u64(1), epoll::EventFlags::IN)?;
        Ok(Alarm { epoll, timer })
    }

    /// Sets the timer to expire after `next`, or turns it off. Replaces the time set before.
    pub(crate) fn set(&self, next: Option<Duration>) -> io::Result<()> {
        // A timer that is set to zero is off.
        let next = next.map(|next| next.max(Duration::from_nanos(1))).unwrap_or_default();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = Timespec::try_from(next).unwrap_or(zero);
        let value = Itimerspec { it_interval: zero, it_value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &value)?;
        Ok(())
    }

    /// Waits until the descriptor is readable, at most for `timeout`.
    pub(crate) fn wait(&self, timeout: Option<Duration>) -> io::Result<()> {
        wait_readable(&self.epoll, timeout)
    }

    pub(crate) fn event(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}
