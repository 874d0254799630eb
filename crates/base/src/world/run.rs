//! Run of a world: gives threads the processor in turn until all have ended.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use super::coroutine::{Coroutine, Job, StackOverflow};
use super::failure::WorldFailure;
use super::schedule::{Cancelled, Schedule};
use super::state::State;
use super::{ThreadId, World};
use crate::rng::Rng;

/// Runs `main` and the threads that it starts on this operating-system thread.
pub(super) fn run<T: 'static>(
    world: &World,
    main: impl FnOnce() -> T + 'static,
) -> Result<T, WorldFailure> {
    let result = Rc::new(Cell::new(None));
    let slot = Rc::clone(&result);
    run_job(world, Box::new(move || slot.set(Some(main()))))?;
    match result.take() {
        Some(value) => Ok(value),
        None => unreachable!("the main thread ended without a result or a failure"),
    }
}

/// Runs the main thread's job. Apart from [`run`], which is compiled for each job.
fn run_job(world: &World, main: Job) -> Result<(), WorldFailure> {
    let shared = &world.0;
    let name = format!("schedule {}", shared.begin_run());
    let random = Rng::named(shared.options.seed, &name);
    let mut state = State::new(Arc::clone(shared), random);
    state.draw_preemption();
    state.add_thread("main".into(), main);
    state.choose();
    let inside = Schedule::enter(world.clone(), state);
    let schedule = Rc::clone(&inside.schedule);
    Runner { schedule: &schedule, coroutines: Vec::new() }.run();
    drop(inside);
    shared.end_run();
    let state = schedule.state.borrow();
    if let Some(stopped_at) = state.stopped_at {
        shared.set_now(stopped_at);
    }
    state.failure.clone().map_or(Ok(()), Err)
}

/// Stacks of the threads, by their numbers.
struct Runner<'a> {
    schedule: &'a Rc<Schedule>,
    coroutines: Vec<Option<Coroutine>>,
}

impl Runner<'_> {
    fn run(&mut self) {
        loop {
            let next = self.schedule.state.borrow_mut().take_turn();
            let Some((id, job)) = next else { return };
            let resumed = match job {
                Some(job) => self.start(id, job),
                None => self.resume(id),
            };
            if resumed.is_err() {
                self.overflowed(id);
            }
        }
    }

    fn start(&mut self, id: ThreadId, job: Job) -> Result<(), StackOverflow> {
        let number = id.0 as usize;
        if self.coroutines.len() <= number {
            self.coroutines.resize_with(number + 1, || None);
        }
        let schedule = Rc::clone(self.schedule);
        let coroutine = Coroutine::take(self.schedule.shared().options.stack_bytes);
        let coroutine = self.coroutines[number].insert(coroutine);
        let resumed = coroutine.start(Box::new(move || live(&schedule, id, job)));
        self.recycle_if_ended(id);
        resumed
    }

    fn resume(&mut self, id: ThreadId) -> Result<(), StackOverflow> {
        let resumed = match &mut self.coroutines[id.0 as usize] {
            Some(coroutine) => coroutine.resume(),
            None => Ok(()),
        };
        self.recycle_if_ended(id);
        resumed
    }

    #[inline]
    fn recycle_if_ended(&mut self, id: ThreadId) {
        if self.schedule.ended.take()
            && let Some(coroutine) = self.coroutines[id.0 as usize].take()
        {
            coroutine.recycle();
        }
    }

    /// Stops the world after a stack overflow. Nothing on the stack was dropped, so it stays mapped
    /// for ever.
    fn overflowed(&mut self, id: ThreadId) {
        // If the stack ended within the scheduler itself, the run cannot go on.
        let Ok(mut state) = self.schedule.state.try_borrow_mut() else {
            panic!("a simulated thread has overflowed its stack within the scheduler");
        };
        let thread = state.threads[id.0 as usize].name.to_string();
        let stack_bytes = self.schedule.shared().options.stack_bytes;
        state.stop(WorldFailure::StackOverflow { thread, stack_bytes });
        state.end(id);
        state.choose();
        drop(state);
        self.coroutines[id.0 as usize] = None;
    }
}

/// Runs a simulated thread from start to end.
fn live(schedule: &Rc<Schedule>, id: ThreadId, job: Job) {
    let cancelled = schedule.state.borrow_mut().thread(id).cancelled;
    let ended = catch_unwind(AssertUnwindSafe(|| {
        if cancelled {
            // The job's captured values may have destructors.
            drop(job);
        } else {
            job();
        }
    }));
    let panicked = ended.err().filter(|payload| !payload.is::<Cancelled>());
    let message = panicked.map(|payload| message(payload.as_ref()));
    let mut state = schedule.state.borrow_mut();
    if let Some(message) = message {
        let thread = state.threads[id.0 as usize].name.to_string();
        state.stop(WorldFailure::Panic { thread, message });
    }
    state.end(id);
    state.choose();
    schedule.ended.set(true);
}

/// Text of a panic.
fn message(payload: &(dyn Any + Send)) -> String {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (None, Some(text)) => text.clone(),
        (None, None) => "a panic without a message".to_owned(),
    }
}
