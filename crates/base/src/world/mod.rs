//! A world of simulated threads with a clock, locks and randomness of its own: one seed is one run,
//! bit for bit, on any machine.
//!
//! Every simulated thread has a stack, and all of them share the one operating-system thread that
//! called [`World::run`]. Exactly one runs at a time; a baton drawn from the seed says which.
//! Virtual time passes only while every thread waits, and then at once, to the first wake-up:
//! computing takes no time but that of [`World::spend`]. Virtual time ends after 213 days; a world
//! whose next wake-up comes later ends with [`Limit::EndOfTime`]. When no thread can go on and no
//! timer is left, the world does not hang: it ends with a report of all waiting threads. A thread
//! that wakes up now and then for ever, as background work does, hides such a deadlock: give that
//! world a `time_max`.
//!
//! ```
//! use std::sync::Arc;
//! use entresol_base::sync::Mutex;
//! use entresol_base::world::{Preemption, World, WorldFailure, WorldOptions};
//! use entresol_base::{Picos, thread};
//!
//! let options = WorldOptions { preemption: Preemption::OneIn(2), ..WorldOptions::seeded(7) };
//! let world = World::new(options);
//! let sum = world.run(|| {
//!     let sum = Arc::new(Mutex::new(0));
//!     let theirs = Arc::clone(&sum);
//!     let adder = thread::spawn("adder", move || {
//!         thread::sleep(std::time::Duration::from_secs(3600));
//!         *theirs.lock() += 1;
//!     });
//!     *sum.lock() += 1;
//!     drop(adder.join());
//!     *sum.lock()
//! });
//! assert_eq!(sum, Ok(2));
//! assert_eq!(world.now(), Picos::from_secs(3600));
//!
//! let failure = World::new(WorldOptions::default()).run(thread::park);
//! let Err(WorldFailure::Deadlock { report }) = failure else { panic!("no thread unparks it") };
//! assert!(report.contains("thread 0 \"main\" waits for an unpark, since"));
//! ```
//!
//! The code under test reaches the world through [`thread`](crate::thread) and
//! [`sync`](crate::sync), which are the system's threads and locks outside. It must not:
//!
//! - rely on thread-locals: all threads of a world see the same ones;
//! - wait by other means (`std::sync`, channels, sockets): the whole world stops;
//! - share locks with operating-system threads outside, or depend on addresses or on the order of a
//!   hash map with a random seed;
//! - poll without end: a loop that waits for others must call
//!   [`thread::yield_now`](crate::thread::yield_now).
//!
//! **Stopping.** [`World::crash`], a panic, a deadlock or a limit stops the world: every thread is
//! resumed where it waits and its stack unwinds. Destructors may still lock and sleep; threads that
//! unwind wait for one another as usual. A thread whose wait can no longer end is given up: its
//! stack is leaked and its remaining destructors do not run. Destructors see that
//! `std::thread::panicking()`; those that close in good order should not then, and media that
//! [`World::crashed`] do nothing any more anyway.
//!
//! **Nesting.** A simulated thread may run another world, which takes no time of the outer one.
//!
//! **Stacks** end in a page that cannot be touched, so an overflow corrupts nothing: the fault is
//! caught and becomes [`WorldFailure::StackOverflow`]. (Rust touches every page of a large frame in
//! order, so no frame jumps over the page.) For that, the first world of a process installs a
//! handler of SIGSEGV and SIGBUS, which hands every other fault on to the handler before it.

mod coroutine;
mod failure;
mod options;
mod report;
mod run;
mod schedule;
mod shared;
mod state;

use std::panic::Location;
use std::rc::Rc;
use std::sync::Arc;

use crate::clock::{Clock, Nanos, Picos, Seconds};
use crate::rng::Rng;

pub use failure::{Limit, WorldFailure};
pub use options::{Preemption, STACK_BYTES, STEPS_MAX, WorldOptions};
pub(crate) use schedule::Schedule;
pub(crate) use state::{Place, Subject, Wait, Woken};

use shared::Shared;

/// Wall clock of a world at its beginning, some time in November 2023.
pub const EPOCH: Seconds = Seconds(1_700_000_000);

/// Number of a simulated thread within its world, `main` being 0. Outside it is the number of a
/// thread of the operating system, in the order in which they first asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ThreadId(pub u32);

/// Handle of a world; cloning it is cheap.
#[derive(Clone)]
pub struct World(Arc<Shared>);

impl World {
    /// Creates a world in which nothing has happened yet.
    #[must_use]
    pub fn new(options: WorldOptions) -> World {
        World(Arc::new(Shared::new(options)))
    }

    /// Runs `main` as thread 0 until it and all threads that it starts have ended. A world can run
    /// several times, one after the other, on one clock; one that crashed does not run again.
    ///
    /// # Errors
    /// The reason for which the world stopped early.
    ///
    /// # Panics
    /// When the world is already running.
    pub fn run<T: 'static>(&self, main: impl FnOnce() -> T + 'static) -> Result<T, WorldFailure> {
        if self.crashed() {
            return Err(WorldFailure::Crashed);
        }
        run::run(self, main)
    }

    /// World of the running simulated thread; none outside.
    #[must_use]
    pub fn current() -> Option<World> {
        Schedule::current().map(|schedule| schedule.world.clone())
    }

    /// Options of the world.
    #[must_use]
    pub fn options(&self) -> &WorldOptions {
        &self.0.options
    }

    /// Virtual time.
    #[inline]
    #[must_use]
    pub fn now(&self) -> Picos {
        self.0.now()
    }

    /// Waits until virtual time reaches `at`.
    ///
    /// # Panics
    /// When the caller is not a thread of this world.
    #[track_caller]
    pub fn wait_until(&self, at: Picos) {
        self.schedule().wait_until(at, Location::caller());
    }

    /// Spends processor time, in virtual time.
    ///
    /// # Panics
    /// When the caller is not a thread of this world.
    #[track_caller]
    pub fn spend(&self, time: Picos) {
        self.schedule().wait_until(self.now().after(time), Location::caller());
    }

    /// Marks a point where the seed may hand the baton on. Does nothing outside this world's
    /// threads.
    #[inline]
    #[track_caller]
    pub fn step(&self) {
        if self.0.step()
            && let Some(schedule) = self.schedule_if_mine()
        {
            schedule.look_closer(Location::caller());
        }
    }

    /// Random stream of this name, from its start. Streams do not disturb one another.
    #[must_use]
    pub fn rng(&self, stream: &str) -> Rng {
        Rng::named(self.0.options.seed, stream)
    }

    /// Waits for the calling thread's token, which [`World::unpark`] gives, and takes it. A token
    /// given earlier ends the wait at once: it is never lost, nor are there ever two.
    ///
    /// # Panics
    /// When the caller is not a thread of this world.
    #[track_caller]
    pub fn park(&self, why: &'static str) {
        self.schedule().park(why, None, Location::caller());
    }

    /// Gives a thread of this world its token.
    ///
    /// # Panics
    /// When the caller is not a thread of this world.
    #[track_caller]
    pub fn unpark(&self, thread: ThreadId) {
        self.schedule().unpark(thread);
    }

    /// Stops the machine: [`World::crashed`] is true from now on, all threads unwind, and
    /// [`World::run`] returns [`WorldFailure::Crashed`].
    ///
    /// # Panics
    /// When the caller is not a thread of this world.
    #[track_caller]
    pub fn crash(&self) -> ! {
        self.schedule().crash()
    }

    /// Returns true if the machine has stopped: media keep their contents and do nothing any more.
    #[inline]
    #[must_use]
    pub fn crashed(&self) -> bool {
        self.0.crashed()
    }

    /// Number of steps and waits so far.
    #[must_use]
    pub fn steps(&self) -> u64 {
        self.0.steps()
    }

    /// Hash of all turns and their times, from the start: equal for equal runs.
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        self.0.fingerprint()
    }

    #[track_caller]
    pub(crate) fn schedule(&self) -> Rc<Schedule> {
        match self.schedule_if_mine() {
            Some(schedule) => schedule,
            None => panic!("only a running thread of this very world can do this"),
        }
    }

    fn schedule_if_mine(&self) -> Option<Rc<Schedule>> {
        Schedule::current().filter(|schedule| self.is_same(&schedule.world))
    }

    pub(crate) fn is_same(&self, other: &World) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("World").field("seed", &self.0.options.seed).finish_non_exhaustive()
    }
}

impl Clock for World {
    fn now(&self) -> Nanos {
        World::now(self).into()
    }

    fn seconds(&self) -> Seconds {
        let passed = World::now(self).as_nanos() / 1_000_000_000;
        Seconds(EPOCH.0.saturating_add(u32::try_from(passed).unwrap_or(u32::MAX)))
    }
}
