//! The schedule of a running world on its operating-system thread: how simulated threads wait,
//! switch and unwind.

use std::cell::{Cell, RefCell, RefMut};
use std::panic::{Location, resume_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::coroutine::{Job, suspend};
use super::failure::{Limit, WorldFailure};
use super::shared::Shared;
use super::state::{Place, State, Status, Subject, Wait, Woken};
use super::{ThreadId, World, report};
use crate::Picos;

/// Number of times that a thread's own code may catch its unwinding before the thread is given up.
const UNWOUND_MAX: u32 = 1_000;

/// True once any thread of the process has entered a world. A process without worlds, such as a
/// server, pays for this check only: a thread's own variables cost a call, which displaces what is
/// in registers.
static ENTERED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// True if `CURRENT` holds a schedule.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
    static CURRENT: RefCell<Option<Rc<Schedule>>> = const { RefCell::new(None) };
}

/// A running world, and the one around it.
pub(crate) struct Schedule {
    pub(super) world: World,
    pub(super) state: RefCell<State>,
    /// Set by a thread that has ended, so that its stack can serve another.
    pub(super) ended: Cell<bool>,
    outer: Option<Rc<Schedule>>,
    /// True if the thread that called `run` was already unwinding.
    unwinding_outside: bool,
}

/// Guard of a running world; dropping it makes the outer one current again.
pub(super) struct Inside {
    pub(super) schedule: Rc<Schedule>,
}

impl Drop for Inside {
    fn drop(&mut self) {
        let outer = self.schedule.outer.clone();
        INSIDE.set(outer.is_some());
        CURRENT.set(outer);
    }
}

/// Payload with which a cancelled stack unwinds. No message is printed for it.
pub(super) struct Cancelled;

impl Schedule {
    /// Enters a world, whose threads run until the result is dropped.
    pub(super) fn enter(world: World, state: State) -> Inside {
        let outer = Schedule::current();
        let unwinding_outside = std::thread::panicking();
        let (state, ended) = (RefCell::new(state), Cell::new(false));
        let schedule = Rc::new(Schedule { world, state, ended, outer, unwinding_outside });
        CURRENT.set(Some(Rc::clone(&schedule)));
        INSIDE.set(true);
        ENTERED.store(true, Ordering::Relaxed);
        Inside { schedule }
    }

    /// Returns true if a simulated thread runs.
    #[inline]
    pub(crate) fn is_inside() -> bool {
        // A thread inside a world has stored it itself.
        ENTERED.load(Ordering::Relaxed) && Schedule::is_inside_here()
    }

    /// Apart from [`Schedule::is_inside`], so that a process without worlds pays for one check.
    #[cold]
    fn is_inside_here() -> bool {
        INSIDE.get()
    }

    /// Schedule of the running simulated thread, if there is one.
    #[inline]
    pub(crate) fn current() -> Option<Rc<Schedule>> {
        if Schedule::is_inside() { Schedule::inside() } else { None }
    }

    #[cold]
    fn inside() -> Option<Rc<Schedule>> {
        CURRENT.with_borrow(Clone::clone)
    }

    /// World of this schedule.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.world.0
    }

    /// Number of the running thread.
    pub(crate) fn me(&self) -> ThreadId {
        self.state.borrow().me()
    }

    /// Waits, and returns the reason for the end. When cancelled, the caller must call
    /// [`Schedule::unwind`] once its own state is in order.
    pub(crate) fn wait(&self, wait: Wait) -> Woken {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        if self.shall_unwind(&state, me) {
            return Woken::Cancelled;
        }
        state.begin_wait(me, wait);
        self.switch(state, me)
    }

    /// Waits as a thread that is unwinding does: only the awaited event ends it.
    pub(crate) fn wait_regardless(&self, wait: Wait) {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        state.begin_wait(me, wait);
        state.thread(me).unwinding = true;
        self.hand_on(state, me);
    }

    /// Waits like [`Schedule::wait`], but unwinds when cancelled. Returns true if the time ran out.
    pub(crate) fn wait_or_unwind(&self, wait: Wait) -> bool {
        match self.wait(wait) {
            Woken::Notified => false,
            Woken::TimedOut => true,
            Woken::Cancelled => self.unwind(),
        }
    }

    fn switch<'a>(&'a self, mut state: RefMut<'a, State>, me: ThreadId) -> Woken {
        let unwinding = self.is_unwinding(&state, me);
        state.thread(me).unwinding = unwinding;
        self.hand_on(state, me)
    }

    fn hand_on<'a>(&'a self, mut state: RefMut<'a, State>, me: ThreadId) -> Woken {
        state.choose();
        if state.running != Some(me) {
            drop(state);
            suspend();
            state = self.state.borrow_mut();
        }
        state.resumed(me)
    }

    /// Lets others come first, if the seed says so.
    fn take_turns<'a>(&'a self, mut state: RefMut<'a, State>, me: ThreadId, place: Place) {
        state.begin_turn(me, place);
        self.switch(state, me);
        if self.shall_unwind(&self.state.borrow(), me) {
            self.unwind();
        }
    }

    /// Waits for the token of the running thread, and takes it.
    pub(crate) fn park(&self, why: &'static str, until: Option<Picos>, place: Place) {
        self.step(place);
        let me = self.me();
        if !self.state.borrow_mut().take_token(me) {
            self.wait_or_unwind(Wait { subject: Subject::Token(why), place, until });
        }
    }

    /// Gives a thread its token.
    pub(crate) fn unpark(&self, thread: ThreadId) {
        self.state.borrow_mut().unpark(thread);
    }

    /// Adds a thread; the caller goes on.
    pub(crate) fn spawn(&self, name: &str, job: Job) -> ThreadId {
        self.state.borrow_mut().add_thread(name.into(), job)
    }

    /// Returns true if the thread has ended.
    pub(crate) fn has_ended(&self, thread: ThreadId) -> bool {
        matches!(self.state.borrow_mut().thread(thread).status, Status::Done)
    }

    /// Records for reports that the running thread has locked something.
    pub(crate) fn hold(&self, subject: Subject, place: Place) {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        state.thread(me).held.push((subject, place));
    }

    /// Removes the record of a lock. A guard may have been carried into a world within this one.
    pub(crate) fn let_go(&self, subject: Subject) {
        let found = self.state.borrow_mut().let_go(subject);
        if let (false, Some(outer)) = (found, &self.outer) {
            outer.let_go(subject);
        }
    }

    /// Makes the running thread the next to have a lock.
    pub(crate) fn promise(&self, subject: Subject) {
        self.state.borrow_mut().promise(subject);
    }

    /// Returns true if another thread is the next to have the lock.
    pub(crate) fn is_promised_to_another(&self, subject: Subject) -> bool {
        self.state.borrow().is_promised_to_another(subject)
    }

    /// Removes the running thread's promise, when it has the lock or wants it no longer. Returns
    /// true if there was one.
    pub(crate) fn keep_promise(&self, subject: Subject) -> bool {
        self.state.borrow_mut().keep_promise(subject)
    }

    /// Wakes one waiting thread, drawn by the seed, here or in the worlds around.
    pub(crate) fn wake_one(&self, subject: Subject) -> bool {
        self.state.borrow_mut().wake_one(subject)
            || self.outer.as_ref().is_some_and(|outer| outer.wake_one(subject))
    }

    /// Wakes all waiting threads, here and in the worlds around.
    pub(crate) fn wake_all(&self, matches: impl Fn(Subject) -> bool + Copy) {
        self.state.borrow_mut().wake_all(matches);
        if let Some(outer) = &self.outer {
            outer.wake_all(matches);
        }
    }

    /// Instant later than now by `time`; none for `Duration::MAX`, which is for ever.
    pub(crate) fn deadline(&self, time: Duration) -> Option<Picos> {
        (time < Duration::MAX).then(|| self.world.now().after(time.into()))
    }

    /// Waits for this time.
    pub(crate) fn sleep(&self, time: Duration, place: Place) {
        match self.deadline(time) {
            Some(until) => self.wait_until(until, place),
            None => {
                self.step(place);
                self.wait_or_unwind(Wait { subject: Subject::Time, place, until: None });
            }
        }
    }

    /// Waits until virtual time reaches `at`.
    pub(crate) fn wait_until(&self, at: Picos, place: Place) {
        self.step(place);
        if at <= self.shared().now() || self.state.borrow_mut().skip_to(at) {
            return;
        }
        self.wait_or_unwind(Wait { subject: Subject::Time, place, until: Some(at) });
    }

    /// Marks a point where the seed may hand the baton on.
    #[inline]
    pub(crate) fn step(&self, place: Place) {
        if self.shared().step() {
            self.look_closer(place);
        }
    }

    /// Handles a step that is preempted, reaches a limit, or belongs to a thread that is to unwind.
    #[cold]
    pub(super) fn look_closer(&self, place: Place) {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        if let Some(steps_max) = self.shared().steps_max_passed() {
            state.thread(me).place = Some(place);
            let report = report::threads(&state, self.shared());
            state.stop(WorldFailure::Limit { limit: Limit::Steps(steps_max), report });
        }
        if self.shall_unwind(&state, me) {
            drop(state);
            self.unwind();
        }
        if state.failure.is_none() {
            state.draw_preemption();
            self.take_turns(state, me, place);
        }
    }

    /// Lets others run; while all others sleep, polling takes time.
    pub(crate) fn yield_now(&self, place: Place) {
        let mut state = self.state.borrow_mut();
        let me = state.me();
        state.pass_time_if_all_poll();
        if self.shall_unwind(&state, me) {
            drop(state);
            self.unwind();
        }
        self.take_turns(state, me, place);
    }

    /// Stops the world at a crash, and unwinds the caller.
    pub(super) fn crash(&self) -> ! {
        self.shared().set_crashed();
        let mut state = self.state.borrow_mut();
        state.stop(WorldFailure::Crashed);
        let me = state.me();
        if self.is_unwinding(&state, me) {
            drop(state);
            self.give_up();
        }
        drop(state);
        self.unwind();
    }

    /// Returns true if the thread was cancelled and is not unwinding yet, or no longer because its
    /// own code caught it.
    fn shall_unwind(&self, state: &State, me: ThreadId) -> bool {
        state.threads[me.0 as usize].cancelled && !self.is_unwinding(state, me)
    }

    /// Returns true if the stack of the running thread is unwinding. The standard library counts
    /// for the whole operating-system thread. That is exact unless another stack, here or outside,
    /// is suspended in the middle of unwinding; then a thread that was told to unwind is taken to
    /// do so.
    fn is_unwinding(&self, state: &State, me: ThreadId) -> bool {
        if !std::thread::panicking() {
            return false;
        }
        let others = self.unwinding_outside || state.is_another_unwinding(me);
        !others || state.threads[me.0 as usize].unwound > 0
    }

    /// Unwinds the stack of the running thread, which must not be unwinding already.
    pub(crate) fn unwind(&self) -> ! {
        let unwound = self.state.borrow_mut().count_unwound();
        if unwound > UNWOUND_MAX {
            self.give_up();
        }
        resume_unwind(Box::new(Cancelled));
    }

    /// Suspends the running thread for ever.
    fn give_up(&self) -> ! {
        let place = Location::caller();
        loop {
            let mut state = self.state.borrow_mut();
            let me = state.me();
            state.begin_wait(me, Wait { subject: Subject::Nothing, place, until: None });
            self.switch(state, me);
        }
    }
}
