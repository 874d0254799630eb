//! State of a running world: its threads, and the choice of the next one.
//!
//! Plain data without locks: the world runs on one operating-system thread, and no code of the
//! world's users is called while this is borrowed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::panic::Location;
use std::sync::Arc;

use super::coroutine::Job;
use super::failure::{Limit, WorldFailure};
use super::shared::Shared;
use super::{ThreadId, report};
use crate::Picos;
use crate::rng::Rng;

/// Turns that the threads of a stopped world have to unwind before they are given up.
const UNWINDING_TURNS_MAX: u64 = 1_000_000;

/// Place of a call in the sources.
pub(crate) type Place = &'static Location<'static>;

/// Event that a thread can wait for. Locks are known by their addresses, which are only ever
/// compared: nothing depends on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A time only.
    Time,
    /// Nothing that can come: the thread was given up.
    Nothing,
    /// A token, with its purpose for reports.
    Token(&'static str),
    Mutex(usize),
    Read(usize),
    Write(usize),
    /// Readers that must leave the lock before the thread writes; no other thread reads before it.
    Readers(usize),
    Condvar(usize),
    Thread(ThreadId),
}

impl Subject {
    /// Address of a lock.
    pub(crate) fn lock(self) -> Option<usize> {
        match self {
            Subject::Mutex(at) | Subject::Read(at) | Subject::Write(at) | Subject::Readers(at) => {
                Some(at)
            }
            _ => None,
        }
    }

    /// Returns true if waiting threads are looked up by this subject.
    fn is_listed(self) -> bool {
        !matches!(self, Subject::Time | Subject::Nothing | Subject::Token(_))
    }
}

/// A wait of a thread.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) subject: Subject,
    pub(crate) place: Place,
    /// Time at which the wait ends; `Picos::MAX` stands for all that lies beyond virtual time.
    pub(crate) until: Option<Picos>,
}

/// Reason for the end of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Notified,
    TimedOut,
    /// The world stops and the thread must unwind.
    Cancelled,
}

/// Status of a thread.
#[derive(Debug, Clone, Copy)]
pub(super) enum Status {
    /// The thread can run; holds the reason for the end of its last wait.
    Ready(Woken),
    Waiting(Wait),
    Done,
}

/// A simulated thread.
pub(super) struct Thread {
    pub(super) name: Arc<str>,
    pub(super) status: Status,
    /// Place where it was seen last.
    pub(super) place: Option<Place>,
    /// Number of its waits, so that the timer of an earlier one is known to be stale.
    wait_number: u32,
    /// Set by an unpark while the thread does not wait.
    token: bool,
    /// Locks that it holds, and where they were taken.
    pub(super) held: Vec<(Subject, Place)>,
    pub(super) cancelled: bool,
    /// True while it waits in a destructor as its stack unwinds.
    pub(super) unwinding: bool,
    /// Number of times that its stack was told to unwind; more than one if its code caught it.
    pub(super) unwound: u32,
    /// Job of a thread that was not started yet.
    pub(super) job: Option<Job>,
}

impl Thread {
    fn let_go(&mut self, subject: Subject) -> bool {
        let position = self.held.iter().rposition(|(held, _)| *held == subject);
        position.map(|position| self.held.remove(position)).is_some()
    }
}

/// A timer: its time, its thread, and the number of the wait. Timers of one instant wake together,
/// so their order here does not matter.
type Timer = Reverse<(Picos, ThreadId, u32)>;

/// Everything that changes while a world runs.
pub(super) struct State {
    shared: Arc<Shared>,
    pub(super) threads: Vec<Thread>,
    /// Threads that can run.
    ready: Vec<ThreadId>,
    /// Threads that wait for a notification, longest first.
    waiting: Vec<(Subject, ThreadId)>,
    /// Locks by their addresses, and the threads that are the next to have them, in order.
    promised: Vec<(usize, ThreadId)>,
    timers: BinaryHeap<Timer>,
    /// Running thread; none when the run is over.
    pub(super) running: Option<ThreadId>,
    live: usize,
    random: Rng,
    pub(super) failure: Option<WorldFailure>,
    /// Virtual time at which the world stopped.
    pub(super) stopped_at: Option<Picos>,
    unwinding_turns: u64,
    /// Yields since a thread last waited or was woken.
    yields: usize,
}

/// Yields per thread after which all threads count as polling.
const YIELDS_OF_POLLING: usize = 4;

impl State {
    pub(super) fn new(shared: Arc<Shared>, random: Rng) -> State {
        State {
            shared,
            threads: Vec::new(),
            ready: Vec::new(),
            waiting: Vec::new(),
            promised: Vec::new(),
            timers: BinaryHeap::new(),
            running: None,
            live: 0,
            random,
            failure: None,
            stopped_at: None,
            unwinding_turns: 0,
            yields: 0,
        }
    }

    pub(super) fn add_thread(&mut self, name: Arc<str>, job: Job) -> ThreadId {
        let id = ThreadId(self.threads.len() as u32);
        self.threads.push(Thread {
            name,
            status: Status::Ready(Woken::Notified),
            place: None,
            wait_number: 0,
            token: false,
            held: Vec::new(),
            cancelled: self.failure.is_some(),
            unwinding: false,
            unwound: 0,
            job: Some(job),
        });
        self.ready.push(id);
        self.live += 1;
        id
    }

    /// Number of the running thread.
    pub(super) fn me(&self) -> ThreadId {
        self.running.unwrap_or(ThreadId(0))
    }

    #[inline]
    pub(super) fn thread(&mut self, id: ThreadId) -> &mut Thread {
        &mut self.threads[id.0 as usize]
    }

    /// Skips to `at` if no other thread comes before; returns true if it did. Such a wait needs no
    /// switch.
    pub(super) fn skip_to(&mut self, at: Picos) -> bool {
        let alone = self.ready.is_empty() && self.failure.is_none();
        if !alone || at == Picos::MAX || self.earliest_timer().is_some_and(|timer| timer <= at) {
            return false;
        }
        if self.shared.options.time_max.is_some_and(|time_max| at >= time_max) {
            return false;
        }
        let now = self.shared.now();
        debug_assert!(at >= now, "it is {now:?} and would become {at:?}");
        self.shared.set_now(at);
        self.shared.mix(at.0);
        true
    }

    /// Makes the running thread wait from now on.
    pub(super) fn begin_wait(&mut self, id: ThreadId, wait: Wait) {
        self.yields = 0;
        let thread = self.thread(id);
        thread.wait_number = thread.wait_number.wrapping_add(1);
        thread.status = Status::Waiting(wait);
        let wait_number = thread.wait_number;
        if wait.subject.is_listed() {
            self.waiting.push((wait.subject, id));
        }
        if let Some(at) = wait.until {
            self.timers.push(Reverse((at, id, wait_number)));
        }
    }

    /// Keeps the running thread ready, but lets others come first.
    pub(super) fn begin_turn(&mut self, id: ThreadId, place: Place) {
        self.thread(id).status = Status::Ready(Woken::Notified);
        self.thread(id).place = Some(place);
        self.ready.push(id);
    }

    /// Resumes the thread; returns the reason for the end of its last wait.
    pub(super) fn resumed(&mut self, id: ThreadId) -> Woken {
        let thread = self.thread(id);
        thread.unwinding = false;
        match thread.status {
            Status::Ready(woken) => woken,
            Status::Waiting(_) | Status::Done => Woken::Notified,
        }
    }

    /// Returns true if another thread waits in the middle of unwinding.
    pub(super) fn is_another_unwinding(&self, me: ThreadId) -> bool {
        let mut numbered = (0..).map(ThreadId).zip(&self.threads);
        numbered.any(|(id, thread)| id != me && thread.unwinding)
    }

    /// Counts an unwinding of the running thread; returns the number so far.
    pub(super) fn count_unwound(&mut self) -> u32 {
        let me = self.me();
        let thread = self.thread(me);
        thread.unwound += 1;
        thread.unwound
    }

    /// Draws the step at which a thread loses the processor next.
    pub(super) fn draw_preemption(&mut self) {
        self.shared.draw_preemption(&mut self.random);
    }

    /// Ends a thread.
    pub(super) fn end(&mut self, id: ThreadId) {
        let status = std::mem::replace(&mut self.thread(id).status, Status::Done);
        assert!(!matches!(status, Status::Done), "{id:?} has ended twice");
        self.live -= 1;
        self.thread(id).unwinding = false;
        self.thread(id).held = Vec::new();
        self.wake_all(|subject| subject == Subject::Thread(id));
    }

    /// Removes the record of a lock from the running thread, or from the thread that locked it.
    pub(super) fn let_go(&mut self, subject: Subject) -> bool {
        let me = self.me();
        if self.thread(me).let_go(subject) {
            return true;
        }
        self.threads.iter_mut().any(|thread| thread.let_go(subject))
    }

    /// Ends the wait of a thread.
    fn wake(&mut self, id: ThreadId, woken: Woken) {
        self.yields = 0;
        debug_assert!(!self.ready.contains(&id), "{id:?} is woken, but waits for nothing");
        if let Status::Waiting(wait) = self.thread(id).status
            && wait.subject.is_listed()
        {
            self.waiting.retain(|(_, waits)| *waits != id);
        }
        self.thread(id).status = Status::Ready(woken);
        self.ready.push(id);
    }

    /// Promises a lock to the running thread, behind those to which it is already promised. (A
    /// writer that waits for readers to leave already has its right.)
    pub(super) fn promise(&mut self, subject: Subject) {
        let me = self.me();
        if let (Some(lock), false) = (subject.lock(), matches!(subject, Subject::Readers(_)))
            && !self.promised.contains(&(lock, me))
        {
            self.promised.push((lock, me));
        }
    }

    fn promised_to(&self, subject: Subject) -> Option<ThreadId> {
        if self.promised.is_empty() || matches!(subject, Subject::Readers(_)) {
            return None;
        }
        let lock = subject.lock()?;
        self.promised.iter().find(|(promised, _)| *promised == lock).map(|&(_, id)| id)
    }

    pub(super) fn is_promised_to_another(&self, subject: Subject) -> bool {
        self.promised_to(subject).is_some_and(|id| id != self.me())
    }

    /// Removes the running thread's promise, when it has the lock or wants it no longer.
    pub(super) fn keep_promise(&mut self, subject: Subject) -> bool {
        let (me, count) = (self.me(), self.promised.len());
        self.promised.retain(|&(lock, id)| id != me || subject.lock() != Some(lock));
        self.promised.len() < count
    }

    /// Wakes one waiting thread: the one with the promise, else one drawn by the seed.
    pub(super) fn wake_one(&mut self, subject: Subject) -> bool {
        if let Some(id) = self.promised_to(subject).filter(|&id| self.waits_for(id, subject)) {
            self.wake(id, Woken::Notified);
            return true;
        }
        let count = self.waiting.iter().filter(|(waits, _)| *waits == subject).count();
        let chosen = if count > 1 { self.random.index(count) } else { 0 };
        let mut waiting = self.waiting.iter().filter(|(waits, _)| *waits == subject);
        let Some((_, id)) = waiting.nth(chosen) else { return false };
        self.wake(*id, Woken::Notified);
        true
    }

    fn waits_for(&self, id: ThreadId, subject: Subject) -> bool {
        self.waiting.contains(&(subject, id))
    }

    /// Wakes all waiting threads.
    pub(super) fn wake_all(&mut self, matches: impl Fn(Subject) -> bool) {
        while let Some((_, id)) = self.waiting.iter().find(|(waits, _)| matches(*waits)) {
            self.wake(*id, Woken::Notified);
        }
    }

    /// Gives a thread its token, which is kept if the thread does not wait for it.
    pub(super) fn unpark(&mut self, id: ThreadId) {
        match self.thread(id).status {
            Status::Waiting(Wait { subject: Subject::Token(_), .. }) => {
                self.wake(id, Woken::Notified);
            }
            Status::Done => {}
            _ => self.thread(id).token = true,
        }
    }

    pub(super) fn take_token(&mut self, id: ThreadId) -> bool {
        std::mem::take(&mut self.thread(id).token)
    }

    /// Chooses the thread to run next; none if the run is over.
    pub(super) fn choose(&mut self) {
        self.running = self.next();
        let word = self.running.map_or(u64::MAX, |id| u64::from(id.0));
        self.shared.mix(word ^ self.shared.now().0.rotate_left(24));
    }

    /// Returns the running thread, and its job if it has not started.
    pub(super) fn take_turn(&mut self) -> Option<(ThreadId, Option<Job>)> {
        let id = self.running?;
        let job = self.thread(id).job.take();
        Some((id, job))
    }

    fn next(&mut self) -> Option<ThreadId> {
        self.count_turn()?;
        loop {
            match self.ready.len() {
                0 => {}
                1 => return self.ready.pop(),
                len => {
                    let chosen = self.random.index(len);
                    return Some(self.ready.swap_remove(chosen));
                }
            }
            match self.earliest_timer() {
                Some(at) => self.pass_to(at),
                None if self.live == 0 || self.failure.is_some() => return None,
                None => {
                    let report = report::threads(self, &self.shared);
                    self.stop(WorldFailure::Deadlock { report });
                }
            }
        }
    }

    /// Counts a turn; none when the threads of a stopped world have had enough turns.
    fn count_turn(&mut self) -> Option<()> {
        if self.failure.is_some() {
            self.unwinding_turns += 1;
            return (self.unwinding_turns <= UNWINDING_TURNS_MAX).then_some(());
        }
        if let Some(steps_max) = self.shared.count_step() {
            let limit = Limit::Steps(steps_max);
            let report = report::threads(self, &self.shared);
            self.stop(WorldFailure::Limit { limit, report });
        }
        Some(())
    }

    /// Time of the next valid timer; drops stale ones.
    fn earliest_timer(&mut self) -> Option<Picos> {
        while let Some(Reverse((at, id, wait_number))) = self.timers.peek() {
            let thread = &self.threads[id.0 as usize];
            if thread.wait_number == *wait_number && matches!(thread.status, Status::Waiting(_)) {
                return Some(*at);
            }
            self.timers.pop();
        }
        None
    }

    /// Lets time pass, and wakes all threads whose time has come.
    fn pass_to(&mut self, at: Picos) {
        let time_max = self.shared.options.time_max.filter(|time_max| at >= *time_max);
        let over = (at == Picos::MAX).then_some(Limit::EndOfTime);
        if let (Some(limit), None) = (time_max.map(Limit::Time).or(over), &self.failure) {
            let report = report::threads(self, &self.shared);
            return self.stop(WorldFailure::Limit { limit, report });
        }
        self.shared.set_now(at.max(self.shared.now()));
        while self.earliest_timer().is_some_and(|timer| timer <= at) {
            if let Some(Reverse((_, id, _))) = self.timers.pop() {
                self.wake(id, Woken::TimedOut);
            }
        }
    }

    /// Counts a yield. While all others sleep or only yield, it takes the time up to the first
    /// wake-up; otherwise loops that poll would never end.
    pub(super) fn pass_time_if_all_poll(&mut self) {
        self.yields += 1;
        let all_poll = self.ready.is_empty() || self.yields > YIELDS_OF_POLLING * self.live;
        if all_poll && let Some(at) = self.earliest_timer() {
            self.yields = 0;
            self.pass_to(at);
        }
    }

    /// Stops the world: every thread must unwind. The first reason stays. A thread that is already
    /// unwinding goes on waiting for what its destructors need.
    pub(super) fn stop(&mut self, failure: WorldFailure) {
        if self.failure.is_some() {
            return;
        }
        self.failure = Some(failure);
        self.stopped_at = Some(self.shared.now());
        self.shared.look_at_every_step();
        for id in (0..self.threads.len() as u32).map(ThreadId) {
            let thread = self.thread(id);
            thread.cancelled = true;
            match thread.status {
                Status::Waiting(_) if thread.unwinding => {}
                Status::Waiting(_) => self.wake(id, Woken::Cancelled),
                Status::Ready(_) => thread.status = Status::Ready(Woken::Cancelled),
                Status::Done => {}
            }
        }
    }
}
