//! The waiting of simulated locks: try, and wait for the holder.
//!
//! The lock beneath is a real one that is only ever tried, so that data is reached without unsafe
//! code; the world does the waiting. `waiting` counts simulated threads only, so a lock that no
//! world has touched pays for one load when it is released.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use crate::world::{Schedule, Subject, Wait, Woken};

/// Failed attempts after which a thread is the next to have a lock. Without it, a thread that takes
/// the lock again at once, and sleeps while holding it, would starve all others. A smaller number
/// would try fewer orders of threads.
const TRIES_MAX: u32 = 16;

/// Attempts of one thread at a lock.
struct Attempts<'a> {
    schedule: &'a Schedule,
    waiting: &'a AtomicU32,
    subject: Subject,
    failed: u32,
}

impl<'a> Attempts<'a> {
    fn new(schedule: &'a Schedule, waiting: &'a AtomicU32, subject: Subject) -> Attempts<'a> {
        Attempts { schedule, waiting, subject, failed: 0 }
    }

    fn attempt<G>(&mut self, try_take: impl Fn() -> Option<G>) -> Option<G> {
        if !self.schedule.is_promised_to_another(self.subject)
            && let Some(taken) = try_take()
        {
            return Some(taken);
        }
        self.failed += 1;
        if self.failed >= TRIES_MAX {
            self.schedule.promise(self.subject);
        }
        None
    }
}

impl Drop for Attempts<'_> {
    fn drop(&mut self) {
        if self.schedule.keep_promise(self.subject) {
            wake_all(self.waiting, self.subject);
        }
    }
}

/// Takes a lock for the running simulated thread, which may have to wait.
pub(super) fn acquire<G>(
    schedule: &Schedule,
    waiting: &AtomicU32,
    wait: Wait,
    try_take: impl Fn() -> Option<G>,
) -> G {
    schedule.step(wait.place);
    let guard = wait_for(schedule, waiting, wait, try_take);
    schedule.hold(wait.subject, wait.place);
    guard
}

/// Tries until it succeeds, and waits in between.
#[inline]
pub(super) fn wait_for<G>(
    schedule: &Schedule,
    waiting: &AtomicU32,
    wait: Wait,
    try_take: impl Fn() -> Option<G>,
) -> G {
    let mut attempts = Attempts::new(schedule, waiting, wait.subject);
    loop {
        if let Some(taken) = attempts.attempt(&try_take) {
            return taken;
        }
        waiting.fetch_add(1, Relaxed);
        let woken = schedule.wait(wait);
        waiting.fetch_sub(1, Relaxed);
        if woken == Woken::Cancelled {
            schedule.unwind();
        }
    }
}

/// Takes a lock again after waiting for a condition. A thread that is to unwind takes it too,
/// because its destructors rely on the guard. Returns true with the lock if the thread is to
/// unwind.
pub(super) fn reacquire<G>(
    schedule: &Schedule,
    waiting: &AtomicU32,
    wait: Wait,
    woken: Woken,
    try_take: impl Fn() -> Option<G>,
) -> (G, bool) {
    let mut cancelled = woken == Woken::Cancelled;
    let mut attempts = Attempts::new(schedule, waiting, wait.subject);
    loop {
        let taken = if cancelled { try_take() } else { attempts.attempt(&try_take) };
        if let Some(guard) = taken {
            schedule.hold(wait.subject, wait.place);
            return (guard, cancelled);
        }
        waiting.fetch_add(1, Relaxed);
        if cancelled {
            schedule.wait_regardless(wait);
        } else {
            cancelled = schedule.wait(wait) == Woken::Cancelled;
        }
        waiting.fetch_sub(1, Relaxed);
    }
}

/// Lets waiting threads go on after a lock was released.
#[inline]
pub(super) fn released(waiting: &AtomicU32, subject: Subject) {
    if Schedule::is_inside() {
        released_inside(waiting, subject);
    }
}

#[cold]
fn released_inside(waiting: &AtomicU32, subject: Subject) {
    let Some(schedule) = Schedule::current() else { return };
    schedule.let_go(subject);
    if waiting.load(Relaxed) == 0 {
        return;
    }
    match subject {
        Subject::Mutex(_) => {
            schedule.wake_one(subject);
        }
        // All others wait for the writer that waits for the readers.
        Subject::Read(at) => schedule.wake_all(|waits| waits == Subject::Readers(at)),
        _ => wake_all(waiting, subject),
    }
}

/// Lets all threads that wait for the lock try again.
pub(super) fn wake_all(waiting: &AtomicU32, subject: Subject) {
    if waiting.load(Relaxed) > 0
        && let Some(schedule) = Schedule::current()
    {
        schedule.wake_all(|waits| waits.lock().is_some() && waits.lock() == subject.lock());
    }
}
