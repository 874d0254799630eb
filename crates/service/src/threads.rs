//! Threads beside the requests, which come back after a panic.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex};

use crate::registry::Registry;

/// Pause before a thread's body that has panicked or failed is run again.
const RUN_AGAIN_AFTER: Duration = Duration::from_millis(100);

/// Runs `body` on a thread called `name`. If it panics or fails, the log, the registry's health and
/// the metrics tell, and it is run again after a pause.
///
/// # Errors
/// Fails if the system has no thread left.
pub fn supervised(
    name: &'static str,
    registry: Arc<Registry>,
    mut body: impl FnMut() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let run = move || {
        loop {
            match catch_unwind(AssertUnwindSafe(&mut body)) {
                Ok(Ok(())) => return,
                Ok(Err(error)) => {
                    tracing::error!(thread = name, %error, "a thread failed; running it again");
                }
                Err(_) => {
                    registry.note_panic(name);
                    tracing::error!(thread = name, "a thread panicked; running it again");
                }
            }
            let (pause, bell) = (Mutex::new(()), Condvar::new());
            bell.wait_timeout(&mut pause.lock(), RUN_AGAIN_AFTER);
        }
    };
    std::thread::Builder::new().name(name.to_owned()).spawn(run)
}

#[cfg(test)]
mod tests {
    use entresol_base::{Clock, SystemClock};

    use super::*;
    use crate::tenant::ServerFacts;

    #[test]
    fn a_thread_that_panics_or_fails_comes_back_and_its_panics_are_counted() {
        let clock = Arc::new(SystemClock::new());
        let (started, started_nanos) = (clock.seconds(), clock.now());
        let facts = ServerFacts { started, started_nanos, threads: 1 };
        let registry = Registry::new(facts, clock);
        let mut runs = 0;
        let body = move || {
            runs += 1;
            assert!(runs != 1 && runs != 3, "run {runs} panics on purpose");
            if runs == 2 { Err(io::Error::other("no descriptor is left")) } else { Ok(()) }
        };
        supervised("trial", Arc::clone(&registry), body).unwrap().join().unwrap();
        assert_eq!(registry.panics(), [("trial".to_owned(), 2)]);
        assert!(registry.is_healthy());
    }
}
