//! Periodic syncs for stores that leave them to their callers, which makes these as durable as
//! Entresol.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// Interval between syncs, as in Entresol's default: a crash of the machine loses no more than
/// that.
const INTERVAL: Duration = Duration::from_millis(100);

/// Thread that syncs until it is dropped.
pub(crate) struct Interval {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Interval {
    /// Starts the thread. A failed sync ends the process, because later measurements would mean
    /// nothing.
    pub(crate) fn new(sync: impl Fn() -> Result<(), String> + Send + 'static) -> Interval {
        let (end, ended) = channel::<()>();
        let thread = std::thread::spawn(move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if let Err(error) = sync() {
                    eprintln!("peers: a sync failed: {error}");
                    std::process::exit(1);
                }
            }
        });
        Interval { end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Interval {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
