//! Log of a server: lines on standard error, which no thread of the server waits for.
//!
//! The reader of the log may be slow or gone, and the file that it goes to may be full. Lines go
//! through a queue to a thread of their own. A line that finds the queue full, or that cannot be
//! written, is lost; the next line that can be written is preceded by the number of lost ones.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::MakeWriter;

/// Lines that wait to be written.
const LINES_MAX: usize = 1024;
/// Time that the process waits at its end for lines to be written.
const LAST_WAIT: Duration = Duration::from_secs(1);

/// A line for the log's thread.
enum Entry {
    Line(Vec<u8>),
    /// The end of the process, which waits for the answer.
    End(SyncSender<()>),
}

/// Begins to log, panics included.
pub(crate) fn begin(level: LevelFilter) -> Log {
    let (lines, queue) = sync_channel(LINES_MAX);
    let lost = Arc::new(AtomicU64::new(0));
    let queued = Queued { lines: lines.clone(), lost: Arc::clone(&lost), line: Vec::new() };
    let write = move || write_all(&queue, &lost, io::stderr());
    // Without the thread, the queue fills and the lines are lost, which harms nothing else.
    let _ = std::thread::Builder::new().name("log".to_owned()).spawn(write);
    tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(queued)
        .with_target(false)
        .with_ansi(io::IsTerminal::is_terminal(&io::stderr()))
        .log_internal_errors(false)
        .init();
    std::panic::set_hook(Box::new(|panic| {
        let thread = std::thread::current();
        let thread = thread.name().unwrap_or("without a name").to_owned();
        tracing::error!(thread, "{panic}");
    }));
    Log(lines)
}

/// Writes lines until the process ends.
fn write_all(queue: &Receiver<Entry>, lost: &AtomicU64, mut to: impl Write) {
    for entry in queue {
        match entry {
            Entry::Line(line) => {
                let missing = lost.swap(0, Ordering::Relaxed);
                let told = match missing {
                    0 => Ok(()),
                    _ => {
                        to.write_all(format!("{missing} lines of this log were lost\n").as_bytes())
                    }
                };
                if told.is_err() {
                    lost.fetch_add(missing + 1, Ordering::Relaxed);
                } else if to.write_all(&line).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            Entry::End(done) => {
                // The process may have given up waiting.
                let _ = done.try_send(());
            }
        }
    }
}

/// Running log. Dropping it waits for the lines so far, but not for ever.
pub(crate) struct Log(SyncSender<Entry>);

impl Drop for Log {
    fn drop(&mut self) {
        let (done, written) = sync_channel(1);
        if self.0.try_send(Entry::End(done)).is_ok() {
            // A reader that takes nothing must not keep the process.
            let _ = written.recv_timeout(LAST_WAIT);
        }
    }
}

/// Writer that queues what is written as one line.
struct Queued {
    lines: SyncSender<Entry>,
    lost: Arc<AtomicU64>,
    line: Vec<u8>,
}

impl<'w> MakeWriter<'w> for Queued {
    type Writer = Queued;

    fn make_writer(&'w self) -> Queued {
        Queued { lines: self.lines.clone(), lost: Arc::clone(&self.lost), line: Vec::new() }
    }
}

impl Write for Queued {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.line.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        let line = std::mem::take(&mut self.line);
        if !line.is_empty() && self.lines.try_send(Entry::Line(line)).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A medium that takes nothing for a while.
    struct Full(usize, Arc<std::sync::Mutex<Vec<u8>>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            if self.0 > 0 {
                self.0 -= 1;
                return Err(io::ErrorKind::StorageFull.into());
            }
            self.1.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_that_cannot_be_written_are_lost_and_counted() {
        let (lines, queue) = sync_channel(8);
        let lost = Arc::new(AtomicU64::new(0));
        let queued = Queued { lines, lost: Arc::clone(&lost), line: Vec::new() };
        for number in 0..10 {
            writeln!(queued.make_writer(), "line {number}").unwrap();
        }
        assert_eq!(lost.load(Ordering::Relaxed), 2, "the queue was full");
        drop(queued);
        let written = Arc::default();
        write_all(&queue, &lost, Full(3, Arc::clone(&written)));
        let written = String::from_utf8(written.lock().unwrap().clone()).unwrap();
        let expected = "5 lines of this log were lost\nline 3\nline 4\nline 5\nline 6\nline 7\n";
        assert_eq!(written, expected);
    }
}
