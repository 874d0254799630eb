//! Helpers: threads that do something in the index while their callers do something else.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use entresol_base::sync::{Condvar, Mutex};

use crate::IndexError;

/// What a helper is to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Get(u64),
    Upsert(u64, u64),
    Remove(u64),
}

type Answer = Result<Option<u64>, IndexError>;

/// See the head of the file.
#[derive(Debug)]
pub(super) struct Helpers(Box<[Desk]>);

/// Where one helper and its caller meet.
#[derive(Debug, Default)]
struct Desk {
    state: Mutex<State>,
    asked: Condvar,
    answered: Condvar,
}

/// From `Free` by the caller to `Asked`; by the helper to `Working` and `Answered`; by the caller
/// to `Free`. A caller who wants no answer makes it `Free` before the work has begun or after it
/// has ended; otherwise `Unwanted`, and the helper makes it `Free`.
#[derive(Debug, Default)]
enum State {
    #[default]
    Free,
    Asked(Work),
    Working,
    Unwanted,
    /// What came of it, be it a panic.
    Answered(std::thread::Result<Answer>),
    Closed,
}

/// Work that a helper was given. Whoever drops it wants no answer.
#[derive(Debug)]
#[must_use = "work whose ticket is dropped may not be done"]
pub(super) struct Ticket<'a> {
    desk: &'a Desk,
    is_answered: bool,
}

impl Helpers {
    pub(super) fn new(count: usize) -> Helpers {
        Helpers((0..count).map(|_| Desk::default()).collect())
    }

    /// Gives work to a helper, if one is free.
    pub(super) fn begin(&self, work: Work) -> Option<Ticket<'_>> {
        self.0.iter().find_map(|desk| {
            let mut state = desk.state.try_lock()?;
            if !matches!(*state, State::Free) {
                return None;
            }
            *state = State::Asked(work);
            desk.asked.notify_one();
            Some(Ticket { desk, is_answered: false })
        })
    }

    /// What the helper of this number does until they are closed.
    pub(super) fn run(&self, number: usize, act: impl Fn(Work) -> Answer) {
        let desk = &self.0[number];
        let mut state = desk.state.lock();
        loop {
            match *state {
                State::Closed => return,
                State::Asked(work) => {
                    *state = State::Working;
                    drop(state);
                    // The caller panics with it, and the helper goes on.
                    let answer = catch_unwind(AssertUnwindSafe(|| act(work)));
                    state = desk.state.lock();
                    *state = match *state {
                        State::Closed => State::Closed,
                        State::Unwanted => State::Free,
                        _ => State::Answered(answer),
                    };
                    desk.answered.notify_one();
                }
                _ => desk.asked.wait(&mut state),
            }
        }
    }

    /// Nobody asks any more, and they end.
    pub(super) fn close(&self) {
        for desk in &self.0 {
            *desk.state.lock() = State::Closed;
            desk.asked.notify_all();
        }
    }
}

impl Ticket<'_> {
    /// Waits for the answer.
    pub(super) fn wait(mut self) -> Answer {
        let mut state = self.desk.state.lock();
        loop {
            if let State::Answered(_) = *state
                && let State::Answered(answer) = std::mem::take(&mut *state)
            {
                self.is_answered = true;
                drop(state);
                return answer.unwrap_or_else(|panic| resume_unwind(panic));
            }
            self.desk.answered.wait(&mut state);
        }
    }
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        if self.is_answered {
            return;
        }
        let mut state = self.desk.state.lock();
        *state = match *state {
            State::Working => State::Unwanted,
            State::Closed => State::Closed,
            _ => State::Free,
        };
    }
}
