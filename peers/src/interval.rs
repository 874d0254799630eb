//! Syncing every so often, for stores that leave it to their callers: as durable as ours is.

use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

/// As far as a machine's crash may reach back, in our store's default.
const INTERVAL: Duration = Duration::from_millis(100);

/// A thread that syncs until it is dropped.
pub(crate) struct Interval {
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Interval {
    /// A failed sync ends the process: nothing that is measured after it would mean anything.
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
