//! Queues served by the kernel's io_uring.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Duration;

use super::{IoBuffer, IoCompletion, IoQueue, IoRequest, OpenFile};
use crate::event::Event;
use crate::raw::ring::{Completion, Ring};

/// A queue of reads and writes through io_uring. Requests that the file cannot serve are refused
/// here, without asking the kernel.
pub(super) struct RingQueue {
    ring: Ring,
    completion: Completion,
    file: Arc<OpenFile>,
    refused: Vec<IoCompletion>,
    /// Signalled by the kernel at each completion, and by the queue when it refuses a request.
    event: Event,
}

impl RingQueue {
    /// Makes a queue for `depth` requests at once.
    pub(super) fn new(
        file: Arc<OpenFile>,
        depth: usize,
        completion: Completion,
    ) -> io::Result<RingQueue> {
        let event = Event::new()?;
        let ring = Ring::new(&*file, event.as_fd(), depth, completion)?;
        Ok(RingQueue { ring, completion, file, refused: Vec::new(), event })
    }

    /// Polls the disk until there is a completion.
    fn poll(&mut self) -> io::Result<()> {
        if !self.refused.is_empty() || self.in_flight() == 0 {
            return Ok(());
        }
        self.ring.wait_for_one()
    }
}

impl IoQueue for RingQueue {
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.ring.depth() {
            return Err(request);
        }
        if let Err(error) = self.file.check(&request) {
            let IoRequest { token, buffer, .. } = request;
            self.refused.push(IoCompletion { token, result: Err(error), buffer });
            self.event.signal();
            return Ok(());
        }
        self.ring.submit(request)
    }

    fn kick(&mut self) -> io::Result<()> {
        self.ring.kick()
    }

    fn reap(&mut self, out: &mut Vec<IoCompletion>) {
        self.event.clear();
        out.append(&mut self.refused);
        self.ring.collect(out);
        // The rest of a write that was cut short is submitted; if the kernel lacks memory just now,
        // the next kick or wait does it.
        let _ = self.ring.kick();
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.ring.kick()?;
        if self.completion == Completion::Polling {
            return self.poll();
        }
        self.event.clear();
        if !self.refused.is_empty() || self.ring.has_completed() {
            // Cleared too early: a poller of the descriptor must see it again.
            self.event.signal();
            return Ok(());
        }
        if self.in_flight() == 0 {
            return Ok(());
        }
        self.event.wait(timeout)
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.ring.under_way() + self.refused.len()
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        self.ring.buffer(len)
    }
}
