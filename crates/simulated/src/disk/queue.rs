//! Requests in flight to a simulated disk, which complete at the times of the drive's model, in any
//! order.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::Picos;
use entresol_media::Access;
use entresol_media::Event;
use entresol_media::block::{BlockFile, IoBuffer, IoCompletion, IoQueue, IoRequest};

use super::file::Flight;
use super::handle::DiskFile;
use super::{Call, Moved};
use crate::crash::PointKind;

/// One simulated thread's requests to a file.
pub(super) struct DiskQueue {
    file: Arc<DiskFile>,
    /// Requests submitted and not kicked.
    waiting: Vec<IoRequest>,
    flights: Vec<Pending>,
    depth: usize,
    /// Signalled when a request was started, since all complete at once in real time; no thread can
    /// wait for a descriptor in virtual time.
    event: Event,
}

/// A request whose outcome is settled, but not yet known.
struct Pending {
    done: Picos,
    write: Option<Flight>,
    completion: IoCompletion,
}

impl DiskQueue {
    pub(super) fn new(file: Arc<DiskFile>, depth: usize) -> io::Result<DiskQueue> {
        let (waiting, flights) = (Vec::new(), Vec::new());
        Ok(DiskQueue { file, waiting, flights, depth, event: Event::new()? })
    }

    fn start(&mut self) {
        for request in std::mem::take(&mut self.waiting) {
            let flight = self.launch(request);
            self.flights.push(flight);
        }
        if !self.flights.is_empty() {
            self.event.signal();
        }
    }

    fn launch(&self, request: IoRequest) -> Pending {
        let IoRequest { access, offset, mut buffer, token } = request;
        let moved = self.moved(access, offset, &mut buffer);
        let Moved { result, done, flight: write } = moved.unwrap_or_else(|error| {
            let done = self.file.machine.core.world().now();
            Moved { result: Err(error), done, flight: None }
        });
        Pending { done, write, completion: IoCompletion { token, result, buffer } }
    }

    fn moved(&self, access: Access, offset: u64, buffer: &mut IoBuffer) -> io::Result<Moved> {
        let (machine, node) = (&self.file.machine, self.file.node);
        self.file.check(access, offset, buffer.len())?;
        match access {
            Access::Read => {
                let effect = machine.begin(Call::Read, self.file.path())?;
                Ok(machine.start_read(node, offset, buffer, effect))
            }
            Access::Write => {
                let effect = machine.begin(Call::Write, self.file.path())?;
                machine.point(PointKind::Write, Location::caller());
                Ok(machine.start_write(node, offset, buffer, effect))
            }
        }
    }

    /// Notes that the program knows of a request's completion.
    fn finish(&self, pending: &Pending) {
        if let Some(write) = pending.write {
            self.file.machine.finish(self.file.node, write);
        }
    }

    fn next_done(&self) -> Option<Picos> {
        self.flights.iter().map(|flight| flight.done).min()
    }
}

impl IoQueue for DiskQueue {
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        if self.in_flight() >= self.depth {
            return Err(request);
        }
        self.waiting.push(request);
        Ok(())
    }

    fn kick(&mut self) -> io::Result<()> {
        self.start();
        Ok(())
    }

    fn reap(&mut self, out: &mut Vec<IoCompletion>) {
        self.event.clear();
        let now = self.file.machine.core.world().now();
        let mut done: Vec<Pending> =
            self.flights.extract_if(.., |flight| flight.done <= now).collect();
        // Stable: requests that complete at one time keep the order in which they were started.
        done.sort_by_key(|flight| flight.done);
        done.iter().for_each(|pending| self.finish(pending));
        out.extend(done.into_iter().map(|flight| flight.completion));
    }

    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.start();
        let world = self.file.machine.core.world();
        let Some(done) = self.next_done() else { return Ok(()) };
        let until = match timeout {
            Some(timeout) => done.min(world.now().after(Picos::from(timeout))),
            None => done,
        };
        if world.crashed() {
            // Nothing completes any more, and an unwinding thread must not wait for it.
            self.flights.iter_mut().for_each(|flight| flight.done = Picos(0));
            return Ok(());
        }
        self.file.machine.wait(until);
        Ok(())
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    fn in_flight(&self) -> usize {
        self.waiting.len() + self.flights.len()
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        IoBuffer::new(len)
    }
}

impl Drop for DiskQueue {
    /// Carries out and completes all requests, as every queue does, but without waiting for their
    /// time, which no thread would see.
    fn drop(&mut self) {
        self.start();
        self.flights.iter().for_each(|pending| self.finish(pending));
    }
}
