//! Helpers: threads that work in the index while their callers do other work.

use std::mem::replace;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use entresol_base::sync::{Condvar, Mutex};

use crate::IndexError;

/// Operation on a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Get,
    Upsert(u64),
    Remove,
}

type Answer = Result<Option<u64>, IndexError>;

/// The helpers' desks; see the head of the file.
#[derive(Debug)]
pub(super) struct Helpers<K>(Box<[Desk<K>]>);

/// Place where one helper and its caller meet.
#[derive(Debug, Default)]
struct Desk<K> {
    state: Mutex<State<K>>,
    asked: Condvar,
    answered: Condvar,
}

/// State of a desk. The caller moves it from `Free` to `Asked`; the helper to `Working` and
/// `Answered`; the caller to `Free`. A caller that wants no answer makes it `Free` before the work
/// has begun or after it has ended; otherwise `Unwanted`, and the helper makes it `Free`.
#[derive(Debug, Default)]
enum State<K> {
    #[default]
    Free,
    Asked(Work, K),
    Working,
    Unwanted,
    /// The answer, or a panic.
    Answered(std::thread::Result<Answer>),
    Closed,
}

/// Work that was handed to a helper. Dropping it discards the answer.
#[derive(Debug)]
#[must_use = "work whose ticket is dropped may not be done"]
pub(super) struct Ticket<'a, K> {
    desk: &'a Desk<K>,
    is_answered: bool,
}

impl<K: Default> Helpers<K> {
    pub(super) fn new(count: usize) -> Helpers<K> {
        Helpers((0..count).map(|_| Desk::default()).collect())
    }

    /// Hands work to a helper, if one is free.
    pub(super) fn begin<Q>(&self, work: Work, key: &Q) -> Option<Ticket<'_, K>>
    where
        Q: ToOwned<Owned = K> + ?Sized,
    {
        self.0.iter().find_map(|desk| {
            let mut state = desk.state.try_lock()?;
            if !matches!(*state, State::Free) {
                return None;
            }
            *state = State::Asked(work, key.to_owned());
            desk.asked.notify_one();
            Some(Ticket { desk, is_answered: false })
        })
    }

    /// Runs the helper of this number until the desks are closed.
    pub(super) fn run(&self, number: usize, act: impl Fn(Work, &K) -> Answer) {
        let desk = &self.0[number];
        let mut state = desk.state.lock();
        while !matches!(*state, State::Closed) {
            if !matches!(*state, State::Asked(..)) {
                desk.asked.wait(&mut state);
                continue;
            }
            let State::Asked(work, key) = replace(&mut *state, State::Working) else { continue };
            drop(state);
            // The caller panics with it, and the helper goes on.
            let answer = catch_unwind(AssertUnwindSafe(|| act(work, &key)));
            state = desk.state.lock();
            *state = match *state {
                State::Closed => State::Closed,
                State::Unwanted => State::Free,
                _ => State::Answered(answer),
            };
            desk.answered.notify_one();
        }
    }

    /// Waits until no helper does work of which the answer is unwanted.
    #[cfg(test)]
    pub(super) fn settle(&self) {
        for desk in &self.0 {
            let mut state = desk.state.lock();
            desk.answered.wait_while(&mut state, |it| matches!(it, State::Unwanted));
        }
    }

    /// Ends the helpers: no caller asks any more.
    pub(super) fn close(&self) {
        for desk in &self.0 {
            *desk.state.lock() = State::Closed;
            desk.asked.notify_all();
        }
    }
}

impl<K: Default> Ticket<'_, K> {
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

impl<K> Drop for Ticket<'_, K> {
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
