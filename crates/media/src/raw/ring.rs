//! Reads and writes of one file through the kernel's io_uring.
//!
//! Access rule: the buffer of a request that was pushed belongs to the kernel until the completion
//! has been seen. Until then it lies in `flights`, and its bytes are not accessed. A ring that is
//! dropped first waits for the kernel to finish; should waiting fail, the buffers are leaked, since
//! lost memory is better than overwritten memory.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;

use io_uring::{IoUring, opcode, squeue, types};

use super::buffer::{IoBuffer, SLOT_BYTES, SlotPool, SpareBuffers};
use crate::access::Access;

/// Maximum number of registered buffers.
const SLOTS_MAX: usize = 64;
/// Entry of the file in the ring's table of files.
const FILE: types::Fixed = types::Fixed(0);

/// A read or write to be done.
#[derive(Debug)]
pub struct IoRequest {
    /// Read or write.
    pub access: Access,
    /// Offset in the file.
    pub offset: u64,
    /// Buffer to read into or write from; its length is that of the request.
    pub buffer: IoBuffer,
    /// Value that comes back with the completion.
    pub token: u64,
}

/// A read or write that was done.
#[derive(Debug)]
pub struct IoCompletion {
    /// Token of the request.
    pub token: u64,
    /// Bytes moved: for a write all of them, for a read fewer only at the end of the file.
    pub result: io::Result<usize>,
    /// Buffer of the request.
    pub buffer: IoBuffer,
}

/// A request that the kernel has, and its progress.
struct Flight {
    request: IoRequest,
    done: usize,
}

/// Means by which completions are learned of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Completion {
    /// The disk interrupts.
    Interrupt,
    /// The kernel polls the disk whenever it is entered for completions.
    Polling,
}

/// Reads and writes under way through io_uring.
pub(crate) struct Ring {
    ring: IoUring,
    /// Requests by their numbers in the kernel.
    flights: Vec<Option<Flight>>,
    /// Free numbers.
    free: Vec<usize>,
    /// Registered buffers, if the kernel allows them.
    pool: Option<Arc<SlotPool>>,
    /// Buffers that are too large for the pool.
    spares: Arc<SpareBuffers>,
}

impl Ring {
    /// Makes a ring for `depth` requests at once to a file. The kernel signals `event` at each
    /// completion.
    pub(crate) fn new(
        file: &impl AsRawFd,
        event: BorrowedFd<'_>,
        depth: usize,
        completion: Completion,
    ) -> io::Result<Ring> {
        let entries = u32::try_from(depth).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut builder = IoUring::builder();
        builder.dontfork();
        if completion == Completion::Polling {
            builder.setup_iopoll();
        }
        let ring = builder.build(entries)?;
        ring.submitter().register_eventfd(event.as_raw_fd())?;
        ring.submitter().register_files(&[file.as_raw_fd()])?;
        let pool = register_pool(&ring, depth.min(SLOTS_MAX));
        Ok(Ring {
            ring,
            flights: (0..depth).map(|_| None).collect(),
            free: (0..depth).rev().collect(),
            pool,
            spares: Arc::default(),
        })
    }

    /// Returns the number of requests that can be under way at once.
    pub(crate) fn depth(&self) -> usize {
        self.flights.len()
    }

    /// Returns the number of requests under way.
    pub(crate) fn under_way(&self) -> usize {
        self.flights.len() - self.free.len()
    }

    /// Returns true if the kernel has completed a request that was not collected yet.
    pub(crate) fn has_completed(&mut self) -> bool {
        !self.ring.completion().is_empty()
    }

    /// Accepts a request; gives it back if as many are under way as the ring is deep.
    pub(crate) fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        let Some(number) = self.free.pop() else { return Err(request) };
        assert!(self.flights[number].is_none(), "number {number} is free, but under way");
        self.flights[number] = Some(Flight { request, done: 0 });
        if self.push(number) {
            return Ok(());
        }
        self.free.push(number);
        match self.flights[number].take() {
            Some(flight) => Err(flight.request),
            None => Ok(()),
        }
    }

    /// Hands all submitted requests to the kernel.
    pub(crate) fn kick(&mut self) -> io::Result<()> {
        while !self.ring.submission().is_empty() {
            match self.ring.submit() {
                Ok(_) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Waits in the kernel until there is a completion. On a ring that polls, this is what polls.
    pub(crate) fn wait_for_one(&mut self) -> io::Result<()> {
        match self.ring.submit_and_wait(1) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns a buffer of `len` bytes, if possible one that is registered with the kernel.
    pub(crate) fn buffer(&self, len: usize) -> IoBuffer {
        let slot = self.pool.as_ref().and_then(|pool| pool.buffer(len));
        slot.unwrap_or_else(|| self.spares.buffer(len))
    }

    /// Puts the rest of a request into the submission queue; false if that is full.
    fn push(&mut self, number: usize) -> bool {
        let Some(flight) = self.flights[number].as_mut() else { return false };
        let known = self.pool.as_ref().is_some_and(|pool| flight.request.buffer.is_of(pool));
        let entry = entry(flight, known);
        let entry = entry.user_data(number as u64);
        // SAFETY: the entry names bytes of a buffer that stays in `flights` until the completion
        // has been seen, and a file that is registered, so that the kernel keeps it open.
        unsafe { self.ring.submission().push(&entry) }.is_ok()
    }

    /// Moves the kernel's completions into `out`; writes that it cut short are continued.
    pub(crate) fn collect(&mut self, out: &mut Vec<IoCompletion>) {
        let mut again = Vec::new();
        for completion in self.ring.completion() {
            let number = completion.user_data() as usize;
            let result = completion.result();
            let flight = self.flights.get_mut(number).and_then(Option::take);
            debug_assert!(flight.is_some(), "request {number} is complete, but not under way");
            let Some(mut flight) = flight else { continue };
            if result > 0 {
                flight.done += result as usize;
                let (done, whole) = (flight.done, flight.request.buffer.len());
                debug_assert!(done <= whole, "{done} bytes were moved, {whole} asked for");
                let rest = flight.request.access == Access::Write
                    && flight.done < flight.request.buffer.len();
                if rest {
                    self.flights[number] = Some(flight);
                    again.push(number);
                    continue;
                }
            }
            debug_assert!(!self.free.contains(&number), "number {number} was freed twice");
            self.free.push(number);
            let result = match result {
                0 if flight.request.access == Access::Write => Err(io::ErrorKind::WriteZero.into()),
                0.. => Ok(flight.done),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
            let IoRequest { token, buffer, .. } = flight.request;
            out.push(IoCompletion { token, result, buffer });
        }
        for number in again {
            // There is room, since the kernel took this very entry before.
            let pushed = self.push(number);
            debug_assert!(pushed, "no room to go on with a write");
        }
    }
}

/// Returns the ring's entry for the rest of a request; `known` tells if its buffer is registered.
fn entry(flight: &mut Flight, known: bool) -> squeue::Entry {
    let offset = flight.request.offset + flight.done as u64;
    let rest = flight.request.buffer.len() - flight.done;
    // `OpenFile::check` keeps lengths far below this.
    let len = u32::try_from(rest).unwrap_or(u32::MAX);
    let start = flight.request.buffer.start().wrapping_add(flight.done);
    match (flight.request.access, known) {
        (Access::Read, false) => opcode::Read::new(FILE, start, len).offset(offset).build(),
        (Access::Read, true) => opcode::ReadFixed::new(FILE, start, len, 0).offset(offset).build(),
        (Access::Write, false) => opcode::Write::new(FILE, start, len).offset(offset).build(),
        (Access::Write, true) => {
            opcode::WriteFixed::new(FILE, start, len, 0).offset(offset).build()
        }
    }
}

/// Registers a pool of buffers with the kernel. If the kernel refuses (for a limit on locked
/// memory, say), the ring works without.
fn register_pool(ring: &IoUring, slots: usize) -> Option<Arc<SlotPool>> {
    let pool = SlotPool::new(u32::try_from(slots).ok()?, SLOT_BYTES).ok()?;
    let (start, bytes) = pool.span();
    let span = libc::iovec { iov_base: start.cast(), iov_len: bytes };
    // SAFETY: the ring's owner keeps the pool for as long as the ring, and the kernel touches the
    // memory only as requests tell it to.
    unsafe { ring.submitter().register_buffers(&[span]) }.ok()?;
    Some(pool)
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut done = Vec::new();
        while self.under_way() > 0 {
            if self.wait_for_one().is_err() {
                return self.flights.drain(..).for_each(std::mem::forget);
            }
            self.collect(&mut done);
        }
        // The kernel takes a closed ring apart in its own time, and until then keeps the file open,
        // and with it the file's lock.
        let _ = self.ring.submitter().unregister_files();
    }
}
