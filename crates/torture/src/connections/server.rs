//! The server under trial: a child process, its log, its admin listener, and what the kernel counts
//! of it.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Child;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_measure::process::{descriptors_of, resident_of};
use entresol_media::files;
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};

use super::stage::Stage;
use super::{Spawn, TENANTS};

/// Time within which the admin listener answers.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Bytes of a log that are kept.
const LOG_BYTES_MAX: usize = 4 << 20;
/// Lines of the log that a failure shows.
const LOG_LINES_SHOWN: usize = 30;

/// Lines that a server has logged, and what was found in them.
#[derive(Debug, Default)]
struct Log {
    text: String,
    admin: Option<SocketAddr>,
    panic: Option<String>,
}

type SharedLog = Arc<Mutex<Log>>;

/// Descriptors and memory of a server.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Taken {
    pub(super) descriptors: u64,
    /// Resident memory that is not backed by a file.
    pub(super) memory_bytes: u64,
}

/// A running server.
pub(super) struct Server {
    child: Child,
    log: SharedLog,
    reader: Option<JoinHandle<()>>,
    pub(super) admin: SocketAddr,
    /// Addresses of the tenants, in the order of [`TENANTS`].
    pub(super) addresses: [SocketAddr; 2],
}

fn with<T>(log: &SharedLog, look: impl FnOnce(&mut Log) -> T) -> T {
    look(&mut log.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Reads the log until its writer ends.
fn read_log(from: impl Read, log: &SharedLog) {
    for line in BufReader::new(from).lines().map_while(Result::ok) {
        with(log, |log| {
            if line.contains("admin listener") {
                let address = line.split_whitespace().find_map(|it| it.strip_prefix("address="));
                log.admin = address.and_then(|it| it.parse().ok()).or(log.admin);
            }
            if line.contains("panicked") {
                log.panic.get_or_insert_with(|| line.clone());
            }
            if log.text.len() < LOG_BYTES_MAX {
                log.text.push_str(&line);
                log.text.push('\n');
            }
        });
    }
}

impl Server {
    /// Starts the server and waits until it listens.
    pub(super) fn start(spawn: Spawn<'_>, folder: &Path, stage: &Stage) -> Result<Self, String> {
        let ports = folder.join("ports");
        // It is there from the second start on.
        let _ = files::remove(&ports);
        let mut child = spawn(folder, &ports).map_err(|error| format!("no server: {error}"))?;
        let log = SharedLog::default();
        let reader = child.stderr.take().map(|stderr| {
            let log = Arc::clone(&log);
            std::thread::spawn(move || read_log(stderr, &log))
        });
        let unset = SocketAddr::from(([0, 0, 0, 0], 0));
        let mut server = Server { child, log, reader, admin: unset, addresses: [unset; 2] };
        let started = stage.wait_for("the server listens", || {
            if let Ok(Some(status)) = server.child.try_wait() {
                return Err(format!("the server ended by itself ({status})"));
            }
            let Some(admin) = with(&server.log, |log| log.admin) else { return Ok(false) };
            let Some(addresses) = read_ports(&ports) else { return Ok(false) };
            (server.admin, server.addresses) = (admin, addresses);
            Ok(true)
        });
        match started {
            Ok(()) => Ok(server),
            Err(what) => Err(server.told(&what)),
        }
    }

    /// Adds the end of the log to the description of a failure.
    pub(super) fn told(&self, what: &str) -> String {
        let lines: Vec<String> =
            with(&self.log, |log| log.text.lines().map(str::to_owned).collect());
        let shown = lines.len().saturating_sub(LOG_LINES_SHOWN);
        format!("{what}; the server's log ends so:\n{}", lines[shown..].join("\n"))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> Result<(), String> {
        kill_process(self.pid(), signal).map_err(|error| self.told(&format!("no signal: {error}")))
    }

    /// Sets the number of descriptors that it may have; returns the limits until now.
    pub(super) fn limit_descriptors(&self, limit: Rlimit) -> Result<Rlimit, String> {
        prlimit(Some(self.pid()), Resource::Nofile, limit)
            .map_err(|error| self.told(&format!("no limit of descriptors: {error}")))
    }

    /// Returns what the process takes now.
    pub(super) fn taken(&self) -> Result<Taken, String> {
        let failed = |error: entresol_measure::BenchError| self.told(&error.to_string());
        let descriptors = descriptors_of(self.child.id()).map_err(failed)?;
        let resident = resident_of(self.child.id()).map_err(failed)?;
        Ok(Taken { descriptors, memory_bytes: resident.anonymous_bytes })
    }

    /// Asks the admin listener; returns the status and the body.
    fn ask(&self, path: &str) -> io::Result<(u16, String)> {
        let mut stream = TcpStream::connect_timeout(&self.admin, ANSWER_TIME)?;
        stream.set_read_timeout(Some(ANSWER_TIME))?;
        let request = format!("GET {path} HTTP/1.1\r\nHost: server\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply)?;
        let (head, body) = reply.split_once("\r\n\r\n").unwrap_or((&reply, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.unwrap_or(0), body.to_owned()))
    }

    /// Returns the samples of the metrics, each with its labels and its value.
    pub(super) fn metrics(&self) -> Result<Vec<(String, f64)>, String> {
        let failed = |error: io::Error| self.told(&format!("no answer to /metrics: {error}"));
        let (_, text) = self.ask("/metrics").map_err(failed)?;
        let sample = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_owned(), value.parse().ok()?))
        };
        Ok(text.lines().filter(|line| !line.starts_with('#')).filter_map(sample).collect())
    }

    /// Checks that the server says that it is well, and that no thread of it has panicked.
    pub(super) fn check(&self) -> Result<(), String> {
        if let Some(panic) = with(&self.log, |log| log.panic.clone()) {
            return Err(self.told(&format!("a panic: {panic}")));
        }
        match self.ask("/healthz") {
            Ok((200, _)) => {}
            answer => return Err(self.told(&format!("/healthz was answered {answer:?}"))),
        }
        let metrics = self.metrics()?;
        let ill = |name: &str| {
            name.starts_with("entresol_thread_panics_total") || name == "entresol_event_loop_ended"
        };
        let seen = metrics.iter().filter(|(name, _)| ill(name)).count();
        if seen < 2 {
            return Err(self.told("the metrics do not tell of panics"));
        }
        match metrics.iter().find(|(name, value)| ill(name) && *value != 0.0) {
            Some((name, value)) => Err(self.told(&format!("{name} is {value}"))),
            None => Ok(()),
        }
    }

    /// Asks the server to stop, and checks that it does so in order.
    pub(super) fn stop(&mut self, stage: &Stage) -> Result<(), String> {
        self.signal(Signal::TERM)?;
        let mut ended = None;
        let waited = stage.wait_for("the server has stopped", || {
            ended = self.child.try_wait().map_err(|error| error.to_string())?;
            Ok(ended.is_some())
        });
        waited.map_err(|what| self.told(&what))?;
        if let Some(reader) = self.reader.take() {
            // It ends with the pipe.
            let _ = reader.join();
        }
        if !ended.is_some_and(|status| status.success()) {
            return Err(self.told(&format!("the server stopped with {ended:?}")));
        }
        match with(&self.log, |log| log.panic.clone()) {
            Some(panic) => Err(self.told(&format!("a panic: {panic}"))),
            None => Ok(()),
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended already, unless the run has failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the addresses of the tenants, once they are there.
fn read_ports(path: &Path) -> Option<[SocketAddr; 2]> {
    let text = files::read_to_string(path).ok()?;
    let of = |tenant: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        lines.find(|(name, _)| *name == tenant)?.1.parse().ok()
    };
    Some([of(TENANTS[0])?, of(TENANTS[1])?])
}
