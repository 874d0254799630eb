//! Threads: simulated ones inside a [`World`], the system's outside.
//!
//! There are no scoped threads: a simulated thread outlives the call that starts it, and keeping
//! its borrows alive would need unsafe code. Share data in an `Arc` instead.

use std::cell::Cell;
use std::io;
use std::panic::Location;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::clock::{Clock, Nanos};
use crate::sync::unpoisoned;
pub use crate::world::ThreadId;
use crate::world::{Schedule, Subject, Wait, World};

/// Starts a thread with this name.
///
/// # Panics
/// When the system cannot start a thread; [`try_spawn`] returns the error instead.
#[track_caller]
pub fn spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> JoinHandle<T> {
    match try_spawn(name, work) {
        Ok(handle) => handle,
        Err(error) => panic!("cannot start thread {name:?}: {error}"),
    }
}

/// Starts a thread with this name.
///
/// # Errors
/// When the system cannot start a thread.
#[track_caller]
pub fn try_spawn<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let result = Arc::new(Mutex::new(None));
    let slot = Arc::clone(&result);
    let job = Box::new(move || *unpoisoned(slot.lock()) = Some(work()));
    Ok(JoinHandle { thread: start(name, job, Location::caller())?, result })
}

/// Starts a thread that does a job. Apart from [`try_spawn`], which is compiled for each job.
fn start(name: &str, job: Job, place: &'static Location<'static>) -> io::Result<Started> {
    let Some(schedule) = Schedule::current() else {
        return std::thread::Builder::new().name(name.to_owned()).spawn(job).map(Started::System);
    };
    let id = schedule.spawn(name, job);
    schedule.step(place);
    Ok(Started::Simulated(Simulated::of(&schedule, id)))
}

type Job = Box<dyn FnOnce() + Send>;

/// Handle for waiting for a thread. Dropping it detaches the thread.
#[derive(Debug)]
pub struct JoinHandle<T> {
    thread: Started,
    result: Arc<Mutex<Option<T>>>,
}

#[derive(Debug)]
enum Started {
    System(std::thread::JoinHandle<()>),
    Simulated(Simulated),
}

impl<T> JoinHandle<T> {
    /// Waits until the thread has ended, and returns its result.
    ///
    /// # Errors
    /// The payload of the thread's panic. A panic of a simulated thread stops its world, so there
    /// only destructors see an error.
    ///
    /// # Panics
    /// When it is a simulated thread and the caller is not of the same world.
    #[track_caller]
    pub fn join(self) -> std::thread::Result<T> {
        match self.thread {
            Started::System(handle) => handle.join()?,
            Started::Simulated(thread) => thread.wait_for_end(Location::caller()),
        }
        let value = unpoisoned(self.result.lock()).take();
        value.ok_or_else(|| Box::new("the thread ended with its world") as _)
    }

    /// Returns true if the thread has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        match &self.thread {
            Started::System(handle) => handle.is_finished(),
            Started::Simulated(thread) => thread.schedule().has_ended(thread.id),
        }
    }

    /// Handle of the thread for unparking it.
    #[must_use]
    pub fn thread(&self) -> Thread {
        Thread(match &self.thread {
            Started::System(handle) => ThreadKind::System(handle.thread().clone()),
            Started::Simulated(thread) => ThreadKind::Simulated(thread.clone()),
        })
    }
}

/// A thread that can be unparked, by a thread of the same world or outside all worlds.
#[derive(Debug, Clone)]
pub struct Thread(ThreadKind);

#[derive(Debug, Clone)]
enum ThreadKind {
    System(std::thread::Thread),
    Simulated(Simulated),
}

impl Thread {
    /// Returns true if it is the calling thread, which would wait for ever if it joined itself.
    #[must_use]
    pub fn is_current(&self) -> bool {
        match (&self.0, Schedule::current()) {
            (ThreadKind::System(thread), None) => thread.id() == std::thread::current().id(),
            (ThreadKind::Simulated(thread), Some(schedule)) => {
                thread.world.is_same(schedule.world()) && thread.id == schedule.me()
            }
            _ => false,
        }
    }

    /// Gives the thread its token, which ends its [`park`] now or the next one at once.
    ///
    /// # Panics
    /// When it is a simulated thread and the caller is not of the same world.
    pub fn unpark(&self) {
        match &self.0 {
            ThreadKind::System(thread) => thread.unpark(),
            ThreadKind::Simulated(thread) => thread.schedule().unpark(thread.id),
        }
    }
}

/// A thread of a world.
#[derive(Debug, Clone)]
struct Simulated {
    world: World,
    id: ThreadId,
}

impl Simulated {
    fn of(schedule: &Schedule, id: ThreadId) -> Simulated {
        Simulated { world: schedule.world().clone(), id }
    }

    fn schedule(&self) -> std::rc::Rc<Schedule> {
        self.world.schedule()
    }

    fn wait_for_end(&self, place: &'static Location<'static>) {
        let schedule = self.schedule();
        schedule.step(place);
        if !schedule.has_ended(self.id) {
            let subject = Subject::Thread(self.id);
            schedule.wait_or_unwind(Wait { subject, place, until: None });
        }
    }
}

/// Handle of the calling thread.
#[must_use]
pub fn current() -> Thread {
    Thread(match Schedule::current() {
        Some(schedule) => ThreadKind::Simulated(Simulated::of(&schedule, schedule.me())),
        None => ThreadKind::System(std::thread::current()),
    })
}

/// Number of the calling thread, unique among them. Threads of the system are numbered from 0 in
/// the order in which they first ask.
#[inline]
#[must_use]
pub fn current_id() -> ThreadId {
    match Schedule::current() {
        Some(schedule) => schedule.me(),
        None => system_id(),
    }
}

#[inline]
fn system_id() -> ThreadId {
    thread_local! {
        static ID: Cell<Option<u32>> = const { Cell::new(None) };
    }
    let id = ID.get().unwrap_or_else(next_id);
    ID.set(Some(id));
    ThreadId(id)
}

#[cold]
fn next_id() -> u32 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    NEXT.fetch_add(1, Relaxed)
}

/// Waits for this time, which is virtual inside a world.
#[track_caller]
pub fn sleep(time: Duration) {
    match Schedule::current() {
        Some(schedule) => schedule.sleep(time, Location::caller()),
        None => std::thread::sleep(time),
    }
}

/// Time for which a thread of the background keeps a processor at most.
const TURN: Duration = Duration::from_millis(1);
/// Pause behind it; a system makes some 50 us of it.
const PAUSE: Duration = Duration::from_micros(1);

/// Calls after which the clock is looked at.
const CALLS_A_LOOK: u32 = 16;

thread_local! {
    /// Calls since the clock was looked at.
    static CALLS: Cell<u32> = const { Cell::new(0) };
    /// Beginning of the thread's turn.
    static BEGUN: Cell<Option<Nanos>> = const { Cell::new(None) };
}

/// Pauses for a moment if this thread has not done so for a millisecond. Work in the
/// background calls it for each record or so, so that a thread that answers a caller need not wait
/// for its processor until the system's slice ends, which may take 4 ms. A thread that yields
/// instead goes to the end of the queue, and gets too little beside others that never sleep. Inside
/// a world, where work takes no time, it does nothing. Returns true if it paused.
pub fn give_way(time: &dyn Clock) -> bool {
    let calls = CALLS.get() + 1;
    CALLS.set(calls % CALLS_A_LOOK);
    if calls < CALLS_A_LOOK || Schedule::is_inside() {
        return false;
    }
    let (begun, now) = (BEGUN.get(), time.now());
    let is_over = begun.is_some_and(|begun| now.since(begun) >= TURN);
    if is_over {
        std::thread::sleep(PAUSE);
    }
    if is_over || begun.is_none() {
        BEGUN.set(Some(time.now()));
    }
    is_over
}

/// Lets other threads go first. Inside a world, a thread that yields while all others sleep or
/// yield lets virtual time pass up to the first wake-up: polling takes time.
#[track_caller]
pub fn yield_now() {
    match Schedule::current() {
        Some(schedule) => schedule.yield_now(Location::caller()),
        None => std::thread::yield_now(),
    }
}

/// Marks a point where the seed of a world may let another thread run; does nothing outside.
/// Regions, files and locks have such points already; code on atomics alone has none of its own.
#[inline(always)]
#[track_caller]
pub fn step() {
    if Schedule::is_inside() {
        step_inside(Location::caller());
    }
}

/// Apart from [`step`], so that code outside worlds pays for one check only.
#[cold]
fn step_inside(place: &'static Location<'static>) {
    if let Some(schedule) = Schedule::current() {
        schedule.step(place);
    }
}

/// Waits for the token that [`Thread::unpark`] gives. As with the system's threads, it may return
/// without one.
#[track_caller]
pub fn park() {
    match Schedule::current() {
        Some(schedule) => schedule.park("an unpark", None, Location::caller()),
        None => std::thread::park(),
    }
}

/// Waits like [`park`], but for at most `time`.
#[track_caller]
pub fn park_timeout(time: Duration) {
    match Schedule::current() {
        Some(schedule) => {
            let until = schedule.deadline(time);
            schedule.park("an unpark", until, Location::caller());
        }
        None => std::thread::park_timeout(time),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{ManualClock, Seconds};

    #[test]
    fn a_thread_gives_way_once_its_turn_is_over() {
        let clock = ManualClock::at(Seconds(0));
        let pauses = |calls: u32| (0..calls).filter(|_| give_way(&clock)).count();
        assert_eq!(pauses(100), 0);
        clock.advance(TURN - Duration::from_nanos(1));
        assert_eq!(pauses(100), 0);
        clock.advance(Duration::from_nanos(1));
        assert_eq!((pauses(CALLS_A_LOOK), pauses(100)), (1, 0));
        clock.advance(3 * TURN);
        assert_eq!((pauses(CALLS_A_LOOK), pauses(100)), (1, 0));
    }
}
