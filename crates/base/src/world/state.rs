//! What a running world knows of its threads, and who goes on next.
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

/// After a world stopped, its threads get so many turns to unwind before they are given up.
const UNWINDING_TURNS_MAX: u64 = 1_000_000;

/// Where in the sources something was called.
pub(crate) type Place = &'static Location<'static>;

/// What a thread can wait for. Locks are known by their addresses, which are only ever compared:
/// nothing depends on their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    /// A time only.
    Time,
    /// Nothing that can come: it was given up.
    Nothing,
    /// A token; the text says what for.
    Token(&'static str),
    Mutex(usize),
    Read(usize),
    Write(usize),
    /// Readers that must leave the lock before the thread writes; nobody reads before it.
    Readers(usize),
    Condvar(usize),
    Thread(ThreadId),
}

impl Subject {
    /// The address of a lock.
    pub(crate) fn lock(self) -> Option<usize> {
        match self {
            Subject::Mutex(at) | Subject::Read(at) | Subject::Write(at) | Subject::Readers(at) => {
                Some(at)
            }
            _ => None,
        }
    }

    /// Whether those who wait for it are looked for by what they wait for.
    fn is_listed(self) -> bool {
        !matches!(self, Subject::Time | Subject::Nothing | Subject::Token(_))
    }
}

/// One wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Wait {
    pub(crate) subject: Subject,
    pub(crate) place: Place,
    /// `Picos::MAX` stands for all that comes when virtual time is over.
    pub(crate) until: Option<Picos>,
}

/// Why a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Notified,
    TimedOut,
    /// The world stops: the thread shall unwind.
    Cancelled,
}

/// What a thread is doing.
#[derive(Debug, Clone, Copy)]
pub(super) enum Status {
    /// Its turn may come. Holds what its last wait ended with.
    Ready(Woken),
    Waiting(Wait),
    Done,
}

/// A simulated thread.
pub(super) struct Thread {
    pub(super) name: Arc<str>,
    pub(super) status: Status,
    /// Where it was seen last.
    pub(super) place: Option<Place>,
    /// Counts waits, so that the timer of an earlier one is known to be stale.
    wait_number: u32,
    /// Set by an unpark that found nobody waiting.
    token: bool,
    /// What it has locked, and where.
    pub(super) held: Vec<(Subject, Place)>,
    pub(super) cancelled: bool,
    /// Whether it waits in a destructor, while its stack unwinds.
    pub(super) unwinding: bool,
    /// How often its stack was told to unwind: more than once if somebody caught it.
    pub(super) unwound: u32,
    /// The work of a thread that was not started yet.
    pub(super) job: Option<Job>,
}

impl Thread {
    fn let_go(&mut self, subject: Subject) -> bool {
        let position = self.held.iter().rposition(|(held, _)| *held == subject);
        position.map(|position| self.held.remove(position)).is_some()
    }
}

/// A timer: when, whose, and for which of its waits. Those of one instant wake together, so their
/// order here does not matter.
type Timer = Reverse<(Picos, ThreadId, u32)>;

/// Everything that changes while a world runs.
pub(super) struct State {
    shared: Arc<Shared>,
    pub(super) threads: Vec<Thread>,
    /// Whose turn may come.
    ready: Vec<ThreadId>,
    /// Who waits for something that is notified, longest first.
    waiting: Vec<(Subject, ThreadId)>,
    /// Locks by their addresses, and the threads that are the next to have them, in order.
    promised: Vec<(usize, ThreadId)>,
    timers: BinaryHeap<Timer>,
    /// Whose turn it is; none when the run is over.
    pub(super) running: Option<ThreadId>,
    live: usize,
    random: Rng,
    pub(super) failure: Option<WorldFailure>,
    /// When it stopped.
    pub(super) stopped_at: Option<Picos>,
    unwinding_turns: u64,
    /// How often threads have yielded since one last waited or was woken.
    yields: usize,
}

/// So often each thread that could go on has yielded, on average: all of them poll.
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

    /// The running thread.
    pub(super) fn me(&self) -> ThreadId {
        self.running.unwrap_or(ThreadId(0))
    }

    #[inline]
    pub(super) fn thread(&mut self, id: ThreadId) -> &mut Thread {
        &mut self.threads[id.0 as usize]
    }

    /// Whether a wait until then needs no switch, because nobody else comes before. If so, it is
    /// then.
    pub(super) fn skip_to(&mut self, at: Picos) -> bool {
        let alone = self.ready.is_empty() && self.failure.is_none();
        if !alone || at == Picos::MAX || self.earliest_timer().is_some_and(|timer| timer <= at) {
            return false;
        }
        if self.shared.options.time_max.is_some_and(|time_max| at >= time_max) {
            return false;
        }
        self.shared.set_now(at);
        self.shared.mix(at.0);
        true
    }

    /// The running thread waits from now on.
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

    /// The running thread stays ready, but others may come first.
    pub(super) fn begin_turn(&mut self, id: ThreadId, place: Place) {
        self.thread(id).status = Status::Ready(Woken::Notified);
        self.thread(id).place = Some(place);
        self.ready.push(id);
    }

    /// The thread goes on. Why its last wait ended.
    pub(super) fn resumed(&mut self, id: ThreadId) -> Woken {
        let thread = self.thread(id);
        thread.unwinding = false;
        match thread.status {
            Status::Ready(woken) => woken,
            Status::Waiting(_) | Status::Done => Woken::Notified,
        }
    }

    /// Whether another thread waits in the middle of unwinding.
    pub(super) fn is_another_unwinding(&self, me: ThreadId) -> bool {
        let mut numbered = (0..).map(ThreadId).zip(&self.threads);
        numbered.any(|(id, thread)| id != me && thread.unwinding)
    }

    /// How often the running thread was told to unwind, this time included.
    pub(super) fn count_unwound(&mut self) -> u32 {
        let me = self.me();
        let thread = self.thread(me);
        thread.unwound += 1;
        thread.unwound
    }

    /// Draws after how many steps a thread loses the processor next.
    pub(super) fn draw_preemption(&mut self) {
        self.shared.draw_preemption(&mut self.random);
    }

    /// The thread has ended.
    pub(super) fn end(&mut self, id: ThreadId) {
        let status = std::mem::replace(&mut self.thread(id).status, Status::Done);
        assert!(!matches!(status, Status::Done), "{id:?} has ended twice");
        self.live -= 1;
        self.thread(id).unwinding = false;
        self.thread(id).held = Vec::new();
        self.wake_all(|subject| subject == Subject::Thread(id));
    }

    /// The running thread, or whoever locked it, holds it no longer.
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

    /// The running thread is the next to have a lock, behind those to whom it is promised already.
    /// (A writer that waits for readers to leave has its right already.)
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

    /// The running thread has the lock, or wants it no longer.
    pub(super) fn keep_promise(&mut self, subject: Subject) -> bool {
        let (me, count) = (self.me(), self.promised.len());
        self.promised.retain(|&(lock, id)| id != me || subject.lock() != Some(lock));
        self.promised.len() < count
    }

    /// Wakes one of those who wait for it: the one to whom it is promised, else one drawn by the
    /// seed.
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

    /// Wakes all who wait for it.
    pub(super) fn wake_all(&mut self, matches: impl Fn(Subject) -> bool) {
        while let Some((_, id)) = self.waiting.iter().find(|(waits, _)| matches(*waits)) {
            self.wake(*id, Woken::Notified);
        }
    }

    /// Hands a thread its token, which waits for it if it does not wait itself.
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

    /// Decides whose turn it is. None: the run is over.
    pub(super) fn choose(&mut self) {
        self.running = self.next();
        let word = self.running.map_or(u64::MAX, |id| u64::from(id.0));
        self.shared.mix(word ^ self.shared.now().0.rotate_left(24));
    }

    /// Whose turn it is, and its work if it has not started.
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

    /// None when the threads of a stopped world have had turns enough.
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

    /// When the next valid timer comes; stale ones are dropped.
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

    /// Lets time pass, and wakes all whose time has come.
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

    /// The thread yields. While all others sleep or do nothing but yield, this takes the time up to
    /// the first wake-up; otherwise loops that poll would never end.
    pub(super) fn pass_time_if_all_poll(&mut self) {
        self.yields += 1;
        let all_poll = self.ready.is_empty() || self.yields > YIELDS_OF_POLLING * self.live;
        if all_poll && let Some(at) = self.earliest_timer() {
            self.yields = 0;
            self.pass_to(at);
        }
    }

    /// Stops the world: every thread is to unwind. The first reason stays. A thread that unwinds
    /// already goes on waiting for what its destructors need.
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
