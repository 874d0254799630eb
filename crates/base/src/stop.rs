//! The wish that something long should end: because its time is up, or because it was asked to.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use crate::clock::{Clock, Nanos, SystemClock};

/// A request to stop, which long work reads between its steps. Clones share the request; a
/// deadline is a clone's own.
///
/// The time is the system's, in a simulated world as well: it bounds how long one waits for what
/// the world does.
#[derive(Clone, Default)]
pub struct Stop {
    asked: Arc<AtomicBool>,
    deadline: Option<Deadline>,
}

#[derive(Clone)]
struct Deadline {
    clock: Arc<dyn Clock>,
    at: Nanos,
}

impl Stop {
    /// A stop that was not requested yet.
    #[must_use]
    pub fn new() -> Stop {
        Stop::default()
    }

    /// Returns a clone that is also due once `time` has passed from now on.
    #[must_use]
    pub fn after(&self, time: Duration) -> Stop {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let at = clock.now().after(time);
        Stop { asked: self.asked.clone(), deadline: Some(Deadline { clock, at }) }
    }

    /// Asks for an end.
    pub fn ask(&self) {
        self.asked.store(true, Relaxed);
    }

    /// Returns true if a stop was requested, whatever the time.
    #[must_use]
    pub fn is_asked(&self) -> bool {
        self.asked.load(Relaxed)
    }

    /// Returns true if work is to end: a stop was requested, or time is up.
    #[must_use]
    pub fn is_due(&self) -> bool {
        self.is_asked() || self.deadline.as_ref().is_some_and(|it| it.clock.now() >= it.at)
    }
}

impl fmt::Debug for Stop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = self.deadline.as_ref().map(|deadline| deadline.at);
        f.debug_struct("Stop").field("asked", &self.asked).field("at", &at).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_end_is_due_when_it_is_asked_for_or_time_is_up() {
        let stop = Stop::new();
        let (late, over) = (stop.after(Duration::from_secs(3600)), stop.after(Duration::ZERO));
        assert!(!stop.is_due() && !late.is_due());
        assert!(over.is_due() && !over.is_asked());
        stop.ask();
        assert!(stop.is_due() && late.is_due() && late.is_asked());
    }
}
