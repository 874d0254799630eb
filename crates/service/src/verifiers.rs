//! Threads that verify claims. They are few, and so many claims may wait for them and no more, so
//! that clients who try passwords take a bounded part of the machine.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use entresol_base::sync::Mutex;

use crate::auth::{Claim, Gate, User};
use crate::registry::Registry;
use crate::threads;

/// Claims that are verified at a time; each takes the memory that its hash asks for.
const THREADS: usize = 2;
/// Claims that wait.
const WAITING_MAX: usize = 64;

/// Call with the user of a true claim, or with none.
type Done = Box<dyn FnOnce(Option<Arc<User>>) + Send>;

struct Job {
    gate: Arc<Gate>,
    claim: Claim,
    done: Done,
}

/// Running threads; they end when this is dropped, after the claims that wait.
pub struct Verifiers {
    jobs: Option<SyncSender<Job>>,
    threads: Vec<JoinHandle<()>>,
}

/// Error of handing in a claim while the maximum waits.
#[derive(Debug, PartialEq, Eq)]
pub struct Busy;

impl Verifiers {
    /// Starts the threads.
    ///
    /// # Errors
    /// If the system has no thread left.
    pub fn start(registry: &Arc<Registry>) -> io::Result<Verifiers> {
        let (jobs, waiting) = sync_channel(WAITING_MAX);
        let waiting = Arc::new(Mutex::new(waiting));
        let mut verifiers = Verifiers { jobs: Some(jobs), threads: Vec::new() };
        for _ in 0..THREADS {
            let waiting = Arc::clone(&waiting);
            let run = move || {
                work(&waiting);
                Ok(())
            };
            verifiers.threads.push(threads::supervised("verifier", Arc::clone(registry), run)?);
        }
        Ok(verifiers)
    }

    /// Hands in a claim; `done` is called on another thread.
    ///
    /// # Errors
    /// If too many wait already.
    pub fn verify(
        &self,
        gate: Arc<Gate>,
        claim: Claim,
        done: impl FnOnce(Option<Arc<User>>) + Send + 'static,
    ) -> Result<(), Busy> {
        let job = Job { gate, claim, done: Box::new(done) };
        self.jobs.as_ref().ok_or(Busy)?.try_send(job).map_err(|_| Busy)
    }
}

impl Drop for Verifiers {
    fn drop(&mut self) {
        drop(self.jobs.take());
        for thread in self.threads.drain(..) {
            // A panic has been reported by the thread's supervisor.
            let _ = thread.join();
        }
    }
}

fn work(waiting: &Mutex<Receiver<Job>>) {
    loop {
        // Only one thread waits for a claim; the others wait for it.
        let Ok(job) = waiting.lock().recv() else { return };
        (job.done)(job.gate.verify(&job.claim));
    }
}

#[cfg(test)]
mod tests {
    use entresol_base::{Clock, SystemClock};

    use super::*;
    use crate::auth::Users;
    use crate::tenant::ServerFacts;

    #[test]
    fn no_more_claims_wait_than_the_maximum_and_all_that_do_are_decided() {
        let clock = Arc::new(SystemClock::new());
        let (started, started_nanos) = (clock.seconds(), clock.now());
        let registry = Registry::new(ServerFacts { started, started_nanos, threads: 1 }, clock);
        let verifiers = Verifiers::start(&registry).unwrap();
        let gate = Arc::new(Gate::new(Users::default()).unwrap());
        let claim = Claim { user: b"ann".to_vec(), password: b"one".to_vec() };
        let (free, stuck) = std::sync::mpsc::channel::<()>();
        let stuck = Arc::new(Mutex::new(stuck));
        let (decided, decisions) = std::sync::mpsc::channel();
        let mut taken = 0;
        // The threads stand still at the end of their first claim, so the rest waits.
        for _ in 0..THREADS + WAITING_MAX + 10 {
            let (stuck, decided) = (Arc::clone(&stuck), decided.clone());
            let done = move |user: Option<Arc<User>>| {
                let _ = stuck.lock().recv();
                decided.send(user).unwrap();
            };
            taken += usize::from(verifiers.verify(Arc::clone(&gate), claim.clone(), done).is_ok());
        }
        assert!((WAITING_MAX..=THREADS + WAITING_MAX).contains(&taken), "{taken}");
        drop((free, decided));
        assert!(decisions.iter().take(taken).all(|user| user.is_none()));
        drop(verifiers);
        assert_eq!(decisions.iter().count(), 0);
        assert_eq!(registry.panics(), []);
    }
}
