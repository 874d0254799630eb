//! Files slowed in real time to a drive that is not present: every request to a block file
//! completes only when both the file and the drive's model have served it, and so does every
//! persist of a mapped file.
//!
//! This simulates a slower tier on any faster disk. The bytes stay in the file; only completions
//! are held back.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use entresol_base::Place;
use entresol_base::clock::{Clock, Nanos, Picos, SystemClock};

use super::{Alignment, Backend, BlockFile, Blocks, IoBuffer, IoCompletion, IoQueue, IoRequest};
use crate::access::Access;
use crate::ahead::Begun;
use crate::event::Alarm;
use crate::medium::MediumSpec;
use crate::model::ModelName;
use crate::model::block::BlockModel;
use crate::placement::FileError;

mod mapped;

pub(crate) use mapped::SlowMapped;

/// Time after which a model is replaced by a new, idle one: its clock lasts for 213 days.
const MODEL_LIFE: Duration = Duration::from_secs(100 * 24 * 3600);
/// Distance between the beginnings of files on the drive.
const FILE_STEP: u64 = 1 << 30;

/// Drives of the files that were opened by their paths, by device, see [`MediumSpec::device`]. A
/// drive lives as long as one of its files is open.
static DRIVES: Mutex<BTreeMap<String, Weak<Drive>>> = Mutex::new(BTreeMap::new());

/// A drive to which files are slowed; all of them share it.
pub(crate) struct Drive {
    name: ModelName,
    clock: SystemClock,
    state: Mutex<State>,
}

struct State {
    model: BlockModel,
    /// Time at which the model's clock began.
    epoch: Nanos,
    /// Time at which the drive has finished all requests so far.
    busy_until: Nanos,
    /// Position on the drive at which the next file begins.
    end: u64,
}

impl Drive {
    /// Makes an idle drive of this name.
    pub(crate) fn new(name: ModelName) -> io::Result<Arc<Drive>> {
        let model = BlockModel::of(name).ok_or_else(|| {
            let text = format!("{name} is a model of memory, not of a disk");
            io::Error::new(io::ErrorKind::InvalidInput, text)
        })?;
        let clock = SystemClock::new();
        let epoch = clock.now();
        let state = State { model, epoch, busy_until: epoch, end: 0 };
        Ok(Arc::new(Drive { name, clock, state: Mutex::new(state) }))
    }

    /// Returns the drive that a file of this path shares with the others of its folder, in this
    /// process.
    pub(crate) fn of(path: &Path, name: ModelName) -> io::Result<Arc<Drive>> {
        let medium = MediumSpec::File { path: path.into(), model: Some(name) };
        let mut drives = DRIVES.lock().unwrap_or_else(PoisonError::into_inner);
        drives.retain(|_, drive| drive.strong_count() > 0);
        if let Some(drive) = drives.get(&medium.device()).and_then(Weak::upgrade) {
            return Ok(drive);
        }
        let drive = Drive::new(name)?;
        drives.insert(medium.device(), Arc::downgrade(&drive));
        Ok(drive)
    }

    fn place(&self, bytes: u64) -> u64 {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let place = state.end;
        state.end += bytes.max(1).next_multiple_of(FILE_STEP);
        place
    }

    /// Returns the time at which a request submitted now completes.
    fn due(&self, access: Access, offset: u64, bytes: usize) -> Nanos {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = self.clock.now();
        if now.since(state.epoch) > MODEL_LIFE
            && let Some(model) = BlockModel::of(self.name)
        {
            (state.model, state.epoch) = (model, now);
        }
        let at = Picos::from(now.since(state.epoch));
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        let done = state.model.submit(at, access, offset, bytes);
        // Rounded up, so that a completion is never earlier than the model's.
        let due = Nanos(state.epoch.0 + done.0.div_ceil(1_000));
        state.busy_until = state.busy_until.max(due);
        due
    }

    fn busy_until(&self) -> Nanos {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).busy_until
    }

    /// Blocks the thread until that time.
    fn sleep(&self, until: Nanos) {
        let left = until.since(self.clock.now());
        if !left.is_zero() {
            std::thread::sleep(left);
        }
    }
}

impl fmt::Debug for Drive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Drive").field("name", &self.name).finish()
    }
}

/// A block file that is no faster than a drive.
#[derive(Debug)]
pub(super) struct SlowFile {
    inner: Arc<dyn BlockFile>,
    drive: Arc<Drive>,
    /// Position on the drive at which the file begins.
    base: u64,
    begun: Mutex<Begun<Nanos>>,
    remarks: Vec<String>,
}

impl SlowFile {
    pub(super) fn new(inner: Arc<dyn BlockFile>, drive: Arc<Drive>) -> SlowFile {
        let mut remarks = inner.remarks().to_vec();
        let name = drive.name;
        remarks.push(format!(
            "slowed to model {name}: requests take the model's time, or this disk's if it is longer"
        ));
        let base = drive.place(inner.len());
        SlowFile { inner, drive, base, begun: Mutex::default(), remarks }
    }

    /// Locks the reads that are under way and not waited for.
    fn begun(&self) -> MutexGuard<'_, Begun<Nanos>> {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the time at which a request submitted now completes; zero if it will be refused.
    fn due(&self, access: Access, offset: u64, bytes: usize) -> Nanos {
        let blocks = Blocks { alignment: self.alignment(), file_bytes: self.len() };
        match blocks.check_request(access, offset, bytes) {
            Ok(()) => self.drive.due(access, self.base + offset, bytes),
            Err(_) => Nanos(0),
        }
    }
}

impl BlockFile for SlowFile {
    fn read_at(&self, offset: u64, buffer: &mut IoBuffer) -> io::Result<usize> {
        let begun = self.begun().take(offset, buffer.len() as u64);
        let due = begun.unwrap_or_else(|| self.due(Access::Read, offset, buffer.len()));
        let read = self.inner.read_at(offset, buffer)?;
        self.drive.sleep(due);
        Ok(read)
    }

    fn try_read_out(&self, offset: u64, len: usize, out: &mut Vec<u8>) -> bool {
        if self.is_direct() {
            return false;
        }
        let (begin, bytes) = self.alignment().whole_blocks(offset, len);
        let is_begun = self.begun().find(begin, bytes as u64).is_some();
        if !is_begun {
            let due = self.due(Access::Read, begin, bytes);
            self.begun().add(begin, bytes as u64, due);
            let before = out.len();
            self.inner.try_read_out(offset, len, out);
            out.truncate(before);
        }
        false
    }

    fn write_at(&self, offset: u64, buffer: &IoBuffer) -> io::Result<()> {
        let due = self.due(Access::Write, offset, buffer.len());
        self.inner.write_at(offset, buffer)?;
        self.drive.sleep(due);
        Ok(())
    }

    /// Ends when the drive has finished all that was submitted before.
    fn sync_at(&self, place: Place) -> io::Result<()> {
        let busy_until = self.drive.busy_until();
        self.inner.sync_at(place)?;
        self.drive.sleep(busy_until);
        Ok(())
    }

    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn set_len(&self, bytes: u64) -> Result<(), FileError> {
        self.inner.set_len(bytes)
    }

    fn discard(&self, offset: u64, bytes: u64) -> io::Result<()> {
        self.inner.discard(offset, bytes)
    }

    fn allocate(&self, offset: u64, bytes: u64) -> Result<(), FileError> {
        self.inner.allocate(offset, bytes)
    }

    fn alignment(&self) -> Alignment {
        self.inner.alignment()
    }

    fn is_direct(&self) -> bool {
        self.inner.is_direct()
    }

    fn backend(&self) -> Backend {
        self.inner.backend()
    }

    fn remarks(&self) -> &[String] {
        &self.remarks
    }

    fn path(&self) -> &Path {
        self.inner.path()
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        self.inner.buffer(len)
    }

    fn queue(self: Arc<Self>, depth: usize) -> io::Result<Box<dyn IoQueue>> {
        let inner = Arc::clone(&self.inner).queue(depth)?;
        Ok(Box::new(SlowQueue {
            alarm: Alarm::new(inner.event())?,
            inner,
            file: self,
            depth,
            seats: Vec::new(),
            free: Vec::new(),
            fresh: Vec::new(),
            held: BinaryHeap::new(),
            done: Vec::new(),
        }))
    }
}

/// One thread's requests to a slowed file. The file's own queue works below it, with seat numbers
/// for tokens.
struct SlowQueue {
    alarm: Alarm,
    inner: Box<dyn IoQueue>,
    file: Arc<SlowFile>,
    depth: usize,
    seats: Vec<Seat>,
    free: Vec<usize>,
    /// Requests submitted and not kicked.
    fresh: Vec<Fresh>,
    /// Completions of the file that are not due yet.
    held: BinaryHeap<Reverse<Held>>,
    done: Vec<IoCompletion>,
}

/// Slot of a request that the file's own queue has.
#[derive(Clone, Copy)]
struct Seat {
    token: u64,
    due: Nanos,
}

struct Fresh {
    seat: usize,
    access: Access,
    offset: u64,
    bytes: usize,
}

/// A completion that is held back. Ordered by its due time.
struct Held {
    due: Nanos,
    completion: IoCompletion,
}

impl PartialEq for Held {
    fn eq(&self, other: &Held) -> bool {
        self.due == other.due
    }
}

impl Eq for Held {}

impl PartialOrd for Held {
    fn partial_cmp(&self, other: &Held) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Held {
    fn cmp(&self, other: &Held) -> std::cmp::Ordering {
        self.due.cmp(&other.due)
    }
}

impl SlowQueue {
    /// Asks the model for the due times of the requests that are about to start.
    fn assign(&mut self) {
        for Fresh { seat, access, offset, bytes } in std::mem::take(&mut self.fresh) {
            self.seats[seat].due = self.file.due(access, offset, bytes);
        }
    }

    /// Takes completions from the file's own queue.
    fn collect(&mut self) {
        self.inner.reap(&mut self.done);
        for mut completion in self.done.drain(..) {
            let number = completion.token as usize;
            debug_assert!(!self.free.contains(&number), "seat {number} completes twice");
            let seat = &mut self.seats[number];
            completion.token = seat.token;
            let due = seat.due;
            self.free.push(number);
            self.held.push(Reverse(Held { due, completion }));
        }
    }

    /// Sets the alarm to the first due time of a held completion. For requests that the file has
    /// not served yet, the file's own descriptor wakes.
    fn arm(&self, now: Nanos) -> io::Result<()> {
        let next = self.held.peek().map(|held| held.0.due);
        self.alarm.set(next.map(|due| due.since(now)))
    }

    fn is_something_due(&self, now: Nanos) -> bool {
        self.held.peek().is_some_and(|held| held.0.due <= now)
    }
}

impl IoQueue for SlowQueue {
    fn submit(&mut self, request: IoRequest) -> Result<(), IoRequest> {
        let IoRequest { access, offset, token, .. } = request;
        let bytes = request.buffer.len();
        let number = self.free.pop().unwrap_or_else(|| {
            self.seats.push(Seat { token: 0, due: Nanos(0) });
            self.seats.len() - 1
        });
        let inner = IoRequest { token: number as u64, ..request };
        // Held completions count towards the depth as well; the queue below does not know of them.
        let full = self.in_flight() >= self.depth;
        let refused = if full { Err(inner) } else { self.inner.submit(inner) };
        if let Err(inner) = refused {
            self.free.push(number);
            return Err(IoRequest { token, ..inner });
        }
        self.seats[number].token = token;
        self.fresh.push(Fresh { seat: number, access, offset, bytes });
        // What the queue below has is in a seat, and so is what it has completed.
        let (taken, below) = (self.seats.len() - self.free.len(), self.inner.in_flight());
        debug_assert!(taken == below, "{taken} seats are taken, {below} requests are under way");
        Ok(())
    }

    fn kick(&mut self) -> io::Result<()> {
        self.assign();
        self.inner.kick()
    }

    fn reap(&mut self, out: &mut Vec<IoCompletion>) {
        self.collect();
        let now = self.file.drive.clock.now();
        while self.is_something_due(now)
            && let Some(Reverse(held)) = self.held.pop()
        {
            out.push(held.completion);
        }
        // Without an alarm no thread would wake, so everything is handed out early.
        if self.arm(now).is_err() {
            out.extend(self.held.drain().map(|held| held.0.completion));
        }
    }

    /// Also wakes when the file has served a request that is not due yet; the next wait then sleeps
    /// until it is.
    fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        self.kick()?;
        if self.is_something_due(self.file.drive.clock.now()) || self.in_flight() == 0 {
            return Ok(());
        }
        self.alarm.wait(timeout)
    }

    fn event(&self) -> BorrowedFd<'_> {
        self.alarm.event()
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight() + self.held.len()
    }

    fn buffer(&self, len: usize) -> IoBuffer {
        self.inner.buffer(len)
    }
}

#[cfg(test)]
mod tests;
