//! Coroutines: stacks that run one job after the other, for simulated threads.
//!
//! Stacks are kept for the next world of this operating-system thread, because a crash test makes a
//! world for every image, and mapping a stack costs more than recovering a small one. Cancelling is
//! not left to the package `generator`: there a coroutine that is being cancelled cannot wait
//! again, and destructors may have to.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};

use generator::{Generator, Gn};

/// Job of a coroutine; it must not unwind.
pub(super) type Job = Box<dyn FnOnce()>;

/// Maximum number of idle stacks that each operating-system thread keeps.
const IDLE_MAX: usize = 512;

thread_local! {
    /// Job for the coroutine that is resumed next.
    static JOB: Cell<Option<Job>> = const { Cell::new(None) };
    static IDLE: RefCell<Vec<Coroutine>> = const { RefCell::new(Vec::new()) };
}

/// A stack and its job.
pub(super) struct Coroutine {
    /// Generator on its stack; absent once the stack was given up.
    generator: Option<Generator<'static, (), ()>>,
    stack_bytes: usize,
    /// True while there is a job that has not ended.
    busy: bool,
}

impl Coroutine {
    /// Takes an idle stack of this size, or a new one.
    pub(super) fn take(stack_bytes: usize) -> Coroutine {
        let fits = |coroutine: &Coroutine| coroutine.stack_bytes == stack_bytes;
        let idle = IDLE.with_borrow_mut(|idle| {
            let position = idle.iter().rposition(fits)?;
            Some(idle.swap_remove(position))
        });
        idle.unwrap_or_else(|| Coroutine::new(stack_bytes))
    }

    fn new(stack_bytes: usize) -> Coroutine {
        // An odd number of words would make the package fill the stack to measure its use.
        let words = (stack_bytes / size_of::<usize>()).next_multiple_of(2);
        let generator = Gn::<()>::new_opt(words, || {
            while let Some(job) = JOB.try_with(Cell::take).ok().flatten() {
                job();
                suspend();
            }
        });
        Coroutine { generator: Some(generator), stack_bytes, busy: false }
    }

    /// Starts a job; returns when it suspends or ends. The error is a stack overflow.
    pub(super) fn start(&mut self, job: Job) -> Result<(), StackOverflow> {
        JOB.set(Some(job));
        self.busy = true;
        self.resume()
    }

    /// Resumes the job where it suspended.
    #[inline]
    pub(super) fn resume(&mut self) -> Result<(), StackOverflow> {
        let Some(generator) = &mut self.generator else { return Ok(()) };
        let resumed = catch_unwind(AssertUnwindSafe(|| {
            generator.resume();
        }));
        resumed.map_err(|_| StackOverflow)
    }

    /// Keeps the stack for another job. The last one must have ended.
    pub(super) fn recycle(mut self) {
        self.busy = false;
        IDLE.with_borrow_mut(|idle| {
            if idle.len() < IDLE_MAX {
                idle.push(self);
            }
        });
    }
}

impl Drop for Coroutine {
    /// Runs an idle coroutine to its end. One with a job that can neither go on nor unwind is
    /// leaked with everything on its stack.
    fn drop(&mut self) {
        if self.busy {
            std::mem::forget(self.generator.take());
        } else {
            let _ = self.resume();
        }
    }
}

/// The job used more stack than there is; nothing on that stack was dropped.
pub(super) struct StackOverflow;

/// Returns from the running coroutine to the code that resumed it.
#[expect(
    deprecated,
    reason = "the scoped form cannot suspend from deep within code that knows nothing of it"
)]
pub(super) fn suspend() {
    generator::yield_with(());
}
