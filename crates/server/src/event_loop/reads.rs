//! Values from and to block files. Requests are collected during a wake-up and submitted together;
//! their completions fill the holes that the replies have for them, and let large values go on.

use std::collections::VecDeque;
use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_cache::{FileIo, OldValue, PendingRead};
use entresol_media::{Access, BlockFile, IoBuffer, IoCompletion, IoQueue, IoRequest};
use entresol_service::tenant::Seat;

use super::buffers::BufferQuota;
use super::seats::LoopSeat;
use super::table::Table;
use crate::connection::Connection;
use crate::fault::Fault;
use crate::slab::{Key, Slab};

/// Reads that one loop has under way for one tenant; further ones wait.
const QUEUE_DEPTH: usize = 128;

/// Delay before reads that the kernel refused to start are tried again.
const TRY_AGAIN: Duration = Duration::from_millis(1);

/// A tenant's reads in one loop.
#[derive(Default)]
pub(super) struct Reads {
    queue: Option<Box<dyn IoQueue>>,
    under_way: Slab<ReadFor>,
    /// Requests that the queue had no room for; bounded by connections and their pending reads.
    waiting: VecDeque<IoRequest>,
    completions: Vec<IoCompletion>,
    /// Requests of one large value, on their way to those that wait.
    requests: Vec<FileIo>,
    /// True if a read was submitted and not started.
    submitted: bool,
}

/// Purpose of a read.
struct ReadFor {
    connection: Key,
    part: Part,
}

enum Part {
    /// A hole of the connection's output, by its number.
    Hole(usize),
    /// The old value of the connection's next request.
    Old(Box<PendingRead>),
    /// A part of a large value, which looks for the result itself.
    Large(FileIo),
}

impl Reads {
    pub(super) fn new(file: Option<Arc<dyn BlockFile>>) -> io::Result<Self> {
        let queue = file.map(|file| file.queue(QUEUE_DEPTH)).transpose()?;
        Ok(Reads { queue, ..Reads::default() })
    }

    pub(super) fn event_fd(&self) -> Option<RawFd> {
        self.queue.as_ref().map(|queue| queue.event_fd())
    }

    /// Starts the reads of all holes of the connection's output.
    pub(super) fn fill_holes(&mut self, key: Key, connection: &mut Connection) {
        for (number, hole) in connection.output.holes.iter().enumerate() {
            let (offset, length) = (hole.read.offset, hole.read.length);
            self.start(ReadFor { connection: key, part: Part::Hole(number) }, offset, length);
        }
        connection.reads += connection.output.holes.len();
    }

    /// Starts the read of the old value that the connection's next request needs.
    pub(super) fn fetch(&mut self, key: Key, connection: &mut Connection, read: PendingRead) {
        let (offset, length) = (read.offset, read.length);
        connection.reads += 1;
        self.start(ReadFor { connection: key, part: Part::Old(Box::new(read)) }, offset, length);
    }

    /// Starts the reads that bring what the connection sends next of large values, as far as its
    /// tenant's buffers have room. Returns false if they have none for what it needs first.
    pub(super) fn read_ahead(
        &mut self,
        key: Key,
        connection: &mut Connection,
        buffers: &BufferQuota,
    ) -> bool {
        if !connection.output.has_values() {
            return true;
        }
        connection.output.let_go(connection.sent);
        let mut room = buffers.room_of(connection.counted_bytes, connection.held_bytes());
        let mut requests = std::mem::take(&mut self.requests);
        let has_room = connection.output.read_ahead(connection.sent, &mut room, &mut requests);
        self.start_all(key, requests);
        has_room
    }

    /// Starts the reads and writes that the large value needs which arrives or is put together.
    pub(super) fn go_on(&mut self, key: Key, connection: &mut Connection) {
        let mut requests = std::mem::take(&mut self.requests);
        connection.session.take_requests(&mut requests);
        self.start_all(key, requests);
    }

    fn start_all(&mut self, connection: Key, mut requests: Vec<FileIo>) {
        for mut io in requests.drain(..) {
            let (access, offset) = (io.access(), io.offset());
            let Some(buffer) = io.take_buffer() else { continue };
            self.add(ReadFor { connection, part: Part::Large(io) }, (access, offset), buffer);
        }
        self.requests = requests;
    }

    fn start(&mut self, read: ReadFor, offset: u64, length: usize) {
        debug_assert!(self.queue.is_some(), "a tenant without a block file reads from one");
        if let Some(queue) = &self.queue {
            let buffer = queue.buffer(length);
            self.add(read, (Access::Read, offset), buffer);
        }
    }

    fn add(&mut self, read: ReadFor, (access, offset): (Access, u64), buffer: IoBuffer) {
        let token = self.under_way.insert(read).pack();
        self.waiting.push_back(IoRequest { access, offset, buffer, token });
    }

    /// Submits as many waiting requests as there is room for.
    fn submit(&mut self) -> io::Result<()> {
        let Some(queue) = &mut self.queue else { return Ok(()) };
        while let Some(request) = self.waiting.pop_front() {
            if let Err(request) = queue.submit(request) {
                self.waiting.push_front(request);
                break;
            }
            self.submitted = true;
        }
        if self.submitted {
            queue.kick()?;
            self.submitted = false;
        }
        Ok(())
    }
}

/// Reads of all tenants of one loop, and what goes wrong with them.
pub(super) struct Readings {
    /// Number of the loop.
    thread: usize,
    /// Lines about reads from block files that cannot be started or that fail.
    fault: Fault,
}

impl Readings {
    pub(super) fn new(thread: usize) -> Self {
        Readings { thread, fault: Fault::default() }
    }

    /// Submits the reads that the turns of this wake-up asked for. Returns the time by which those
    /// must be tried again that could not be started.
    pub(super) fn submit(&mut self, table: &mut Table, now: Nanos) -> Option<Nanos> {
        let mut again_at = None;
        for seat in table.seats.iter_mut().flatten() {
            if seat.reads.waiting.is_empty() && !seat.reads.submitted {
                continue;
            }
            if let Err(error) = seat.reads.submit() {
                if let Some(times) = self.fault.occurred(now) {
                    let tenant = &seat.name;
                    tracing::warn!(%tenant, %error, times, "cannot start reads; retrying");
                }
                again_at = Some(now.after(TRY_AGAIN));
            }
        }
        again_at
    }

    /// Takes completions; returns the connections whose last read has completed.
    pub(super) fn reap(&mut self, table: &mut Table, place: usize, now: Nanos) -> Vec<Key> {
        let mut finished = Vec::new();
        let Some(Some(seat)) = table.seats.get_mut(place) else { return finished };
        let LoopSeat { reads, seat, name, .. } = seat;
        let mut completions = std::mem::take(&mut reads.completions);
        if let Some(queue) = &mut reads.queue {
            queue.reap(&mut completions);
        }
        for completion in completions.drain(..) {
            let token = completion.token;
            let read = reads.under_way.remove(Key::unpack(token));
            debug_assert!(read.is_some(), "read {token} is complete, but not under way");
            let Some(read) = read else { continue };
            self.note(seat, name, &read.part, &completion, now);
            let Some(connection) = table.connections.get_mut(read.connection) else { continue };
            let has_waited = connection.reads > 0 || connection.waits_for_file;
            complete(seat, connection, read.part, completion);
            if !has_waited || connection.reads > 0 {
                continue;
            }
            // Behind the last hole, parts of large values may still be to come.
            connection.waits_for_file = connection.needs_file();
            if !connection.waits_for_file {
                connection.output.close_holes(&mut seat.worker, &seat.counters);
                finished.push(read.connection);
            }
        }
        reads.completions = completions;
        finished
    }

    /// Counts a request that is complete, and logs a failure.
    fn note(
        &mut self,
        seat: &Seat,
        tenant: &str,
        part: &Part,
        completion: &IoCompletion,
        now: Nanos,
    ) {
        let is_write = matches!(part, Part::Large(io) if io.access() == Access::Write);
        if !is_write {
            seat.counters.medium_reads.count();
        }
        if let Err(error) = &completion.result
            && let Some(times) = self.fault.occurred(now)
        {
            if is_write {
                tracing::warn!(%tenant, %error, times, "a write failed; refusing a large value");
            } else {
                tracing::warn!(%tenant, %error, times, "a read failed; answering with a miss");
            }
        }
    }

    /// Time at which the fault may be over.
    pub(super) fn next(&self) -> Option<Nanos> {
        self.fault.over_at()
    }

    /// Logs the end of a fault.
    pub(super) fn end_fault(&mut self, now: Nanos) {
        if let Some(times) = self.fault.is_over(now) {
            tracing::info!(thread = self.thread, times, "reads no longer fail");
        }
    }
}

/// Hands a completed read to its hole or its session, or to the large value that looks for it.
fn complete(seat: &mut Seat, connection: &mut Connection, part: Part, completion: IoCompletion) {
    let IoCompletion { buffer, result, .. } = completion;
    match part {
        Part::Large(io) => return io.finish(buffer, &result),
        Part::Hole(number) => {
            if let Some(hole) = connection.output.holes.get(number) {
                let value = seat.worker.end_read(&hole.read, &result, &buffer);
                connection.output.fill(number, value.map(|value| (buffer, value)));
            }
        }
        Part::Old(read) => {
            let value = seat.worker.end_read(&read, &result, &buffer);
            if let Some(value) = value.and_then(|value| buffer.get(value)) {
                connection.session.provide(OldValue::new(&read, value.to_vec()));
            }
        }
    }
    assert!(connection.reads > 0, "a read came for a connection that waits for none");
    connection.reads -= 1;
}
