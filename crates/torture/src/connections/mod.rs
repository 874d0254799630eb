//! Torture of a real server by its connections: a child process serves healthy clients, while
//! others are reset, half closed, stuck and silent, descriptors are taken away and given back,
//! SIGHUP comes in storms, and SIGTERM ends the server, which is started again.
//!
//! Nothing may panic, healthy clients get right answers, and when it is calm, the server has as
//! many connections and descriptors, and about as much memory, as it had in an earlier calm.

mod healthy;
mod server;
mod stage;
mod trouble;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::{ByteSize, Nanos};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::files;
use rustix::process::{Resource, Rlimit, Signal, getrlimit};
use serde::Serialize;

use healthy::Healthy;
use server::{Server, Taken};
use stage::{LOOK_EVERY, Life, Stage};
use trouble::{Made, Pace};

/// Tenants: the first is in trouble, the second only beside it.
const TENANTS: [&str; 2] = ["troubled", "other"];
/// Healthy clients of each tenant.
const HEALTHY: usize = 2;
/// Threads that make trouble.
const TROUBLE: u64 = 2;
/// Large items of the troubled tenant, more than it has room for.
const LARGE_KEYS: u64 = 500;
const LARGE_BYTES: usize = 100_000;
/// Looks at a server's descriptors in a calm, of which the least counts.
const CALM_LOOKS: usize = 200;
/// Memory by which a server may have grown from one calm to another: buffers that loops keep for
/// reuse.
const GROWTH_BYTES_MAX: u64 = 16 << 20;
/// Time from which on response times are judged: shorter runs have other work beside them.
const JUDGED_FROM: Duration = Duration::from_secs(300);
/// Longest p99, in microseconds, of a healthy client of the troubled tenant and of the other one.
const P99_US_MAX: [u32; 2] = [10_000, 1000];

/// Starts a server with the configuration in a folder, which writes its addresses to a file.
pub type Spawn<'a> = &'a dyn Fn(&Path, &Path) -> std::io::Result<Child>;

/// Settings of a run.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Seed of what clients do; the kernel's scheduling is not determined by it.
    pub seed: u64,
    /// Time of the run.
    pub time: Duration,
    /// Connections that troublesome clients make in that time.
    pub connections: u64,
    /// Folder for the server's files, which must not exist yet.
    pub folder: PathBuf,
}

/// Response times of the healthy clients of a tenant.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Times {
    /// Tenant of the clients.
    pub tenant: &'static str,
    /// Requests answered.
    pub requests: usize,
    /// Median in microseconds.
    pub p50_us: u32,
    /// 99th percentile in microseconds.
    pub p99_us: u32,
    /// Longest in microseconds.
    pub max_us: u32,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct ConnectionsOutcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// Connections that troublesome clients made.
    pub connections: u64,
    /// Number of those of each kind.
    pub kinds: Vec<(&'static str, u64)>,
    /// Connections that could not be made, since the server was being stopped.
    pub refused: u64,
    /// SIGHUPs sent.
    pub reloads: u64,
    /// Times that descriptors were taken away.
    pub lacks: u64,
    /// Times that the server was stopped and started.
    pub stops: u64,
    /// Response times of the healthy clients.
    pub times: Vec<Times>,
    /// Descriptors of the server in the first calm and in the last.
    pub descriptors: [u64; 2],
    /// Memory of the server in the first calm and in the last.
    pub memory_bytes: [u64; 2],
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Description of the failure, if there is one.
    pub failure: Option<String>,
    /// True if there was no failure.
    pub pass: bool,
    /// True if the user interrupted the run.
    pub interrupted: bool,
}

/// Configures the command of a server with a pipe for its log, and with a process group of its own,
/// since Ctrl-C ends all of a group.
pub fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0)
}

/// Name of the configuration in the folder of a run.
pub const CONFIGURATION: &str = "server.toml";

/// Writes one of the configurations that a reload may find.
fn configure(folder: &Path, variant: u64) -> Result<(), String> {
    let state = folder.join("state");
    let tenant = |name: &str, more: &str| {
        format!(
            "[[tenant]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\ndram_quota = \"32MiB\"\n\
             {more}\n"
        )
    };
    let (connections, keys) = match variant % 3 {
        0 => (800, 0),
        1 => (900, 100_000),
        _ => (1000, 50_000),
    };
    let text = format!(
        "threads = 2\nadmin = \"127.0.0.1:0\"\ndrain_time = \"500ms\"\nrestart_from = \"{}\"\n\
         [limits]\nbuffers = \"16MiB\"\nprogress_time = \"3s\"\n{}{}{}",
        state.display(),
        tenant(TENANTS[0], &format!("connections = {connections}\nkeys_max = {keys}")),
        tenant(TENANTS[1], ""),
        if variant % 4 == 1 { tenant("guest", "") } else { String::new() },
    );
    let path = folder.join(CONFIGURATION);
    files::write_atomically(&path, text.as_bytes())
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// Conductor of a run: starts, stops and disturbs the server.
struct Conductor<'a> {
    settings: &'a Settings,
    spawn: Spawn<'a>,
    stage: &'a Stage,
    made: &'a Made,
    progress: &'a Progress,
    rng: Rng,
    outcome: ConnectionsOutcome,
}

impl Conductor<'_> {
    /// Starts the server's next life and fills the troubled tenant.
    fn start(&mut self) -> Result<Server, String> {
        configure(&self.settings.folder, 0)?;
        let server = Server::start(self.spawn, &self.settings.folder, self.stage)?;
        fill(&server).map_err(|error| server.told(&format!("filling: {error}")))?;
        let life = Life { number: self.outcome.stops, addresses: server.addresses };
        self.stage.set_life(Some(life));
        Ok(server)
    }

    fn stop(&mut self, server: &mut Server) -> Result<(), String> {
        self.stage.set_life(None);
        self.outcome.stops += 1;
        server.stop(self.stage)
    }

    /// Lets things happen until `end`, and the server live several lives if it `may_stop`.
    fn disturb(&mut self, server: &mut Server, end: Nanos, may_stop: bool) -> Result<(), String> {
        while self.stage.now() < end && !self.is_over() {
            match self.rng.below(8) {
                0..3 => self.storm(server)?,
                3..6 => self.lack(server)?,
                6 if may_stop => {
                    self.stop(server)?;
                    *server = self.start()?;
                }
                _ => {}
            }
            server.check()?;
            self.progress.say(&format!("{} stops", self.outcome.stops));
            std::thread::sleep(Duration::from_millis(self.rng.below(300)));
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stage.has_ended() || self.progress.is_stopped()
    }

    /// Sends many SIGHUPs, between which the configuration changes.
    fn storm(&mut self, server: &Server) -> Result<(), String> {
        for number in 0..20 + self.rng.below(40) {
            if number % 5 == 0 {
                configure(&self.settings.folder, self.rng.below(12))?;
            }
            server.signal(Signal::HUP)?;
            self.outcome.reloads += 1;
            std::thread::sleep(Duration::from_micros(self.rng.below(3000)));
        }
        Ok(())
    }

    /// Leaves the server hardly a descriptor more than it has, for a while.
    fn lack(&mut self, server: &Server) -> Result<(), String> {
        let few = server.taken()?.descriptors + self.rng.below(4);
        // The server has inherited it.
        let maximum = getrlimit(Resource::Nofile).maximum;
        let before = server.limit_descriptors(Rlimit { current: Some(few), maximum })?;
        self.outcome.lacks += 1;
        // The admin listener has to bear it as well.
        let admin: Vec<_> = (0..4).map(|_| TcpStream::connect(server.admin)).collect();
        std::thread::sleep(Duration::from_millis(50 + self.rng.below(400)));
        server.limit_descriptors(before)?;
        drop(admin);
        Ok(())
    }

    /// Lets all trouble cease, and returns what the server takes then: at most as many descriptors
    /// as in an `earlier` calm.
    fn calm(&mut self, server: &Server, earlier: Option<Taken>) -> Result<Taken, String> {
        configure(&self.settings.folder, 0)?;
        server.signal(Signal::HUP)?;
        self.stage.set_calm(true);
        let stage = self.stage;
        stage.wait_for("troublesome clients have let go", || {
            Ok(stage.resting() == TROUBLE || stage.has_ended())
        })?;
        let mut counted = Vec::new();
        let waited = stage.wait_for("only the healthy clients are counted", || {
            let metrics = server.metrics()?;
            let of = |(name, _): &(String, f64)| name.starts_with("entresol_connections{");
            counted = metrics.into_iter().filter(of).collect();
            let healthy = |(_, number): &(String, f64)| *number == HEALTHY as f64;
            Ok(counted.len() == TENANTS.len() && counted.iter().all(healthy) || stage.has_ended())
        });
        waited.map_err(|what| server.told(&format!("{what}: {counted:?}")))?;
        let mut taken = server.taken()?;
        // An answer of the admin listener may still hold one.
        for _ in 0..CALM_LOOKS {
            std::thread::sleep(LOOK_EVERY);
            let now = server.taken()?;
            taken.descriptors = taken.descriptors.min(now.descriptors);
        }
        let waited = stage.wait_for("no more descriptors are open than in the first calm", || {
            taken = server.taken()?;
            let most = earlier.map_or(u64::MAX, |earlier| earlier.descriptors);
            Ok(taken.descriptors <= most || stage.has_ended())
        });
        waited.map_err(|what| server.told(&format!("{what}: {taken:?}, {earlier:?}")))?;
        server.check()?;
        stage.set_calm(false);
        Ok(taken)
    }

    /// Carries the run out.
    fn conduct(&mut self) {
        let began = self.stage.now();
        match self.start() {
            // Clients that are cut off when it is killed must not say so before this.
            Ok(mut server) => {
                if let Err(what) = self.go_through_lives(&mut server, began) {
                    self.stage.fail(what);
                }
            }
            Err(what) => self.stage.fail(what),
        }
        self.stage.end();
    }

    /// Lets the server live lives that end soon, then one in which nothing may leak.
    fn go_through_lives(&mut self, server: &mut Server, began: Nanos) -> Result<(), String> {
        let time = self.settings.time;
        let part = |of: f64| began.after(time.mul_f64(of));
        self.disturb(server, part(0.4), true)?;
        self.stop(server)?;
        *server = self.start()?;
        self.disturb(server, part(0.6), false)?;
        let first = self.calm(server, None)?;
        self.disturb(server, part(1.0), false)?;
        let (made, stage) = (self.made, self.stage);
        stage.wait_for("all connections in trouble were made", || {
            Ok(made.all() >= self.settings.connections || self.is_over())
        })?;
        let last = self.calm(server, Some(first))?;
        self.outcome.descriptors = [first.descriptors, last.descriptors];
        self.outcome.memory_bytes = [first.memory_bytes, last.memory_bytes];
        let (before, after) = (first.memory_bytes, last.memory_bytes);
        if after > before + GROWTH_BYTES_MAX {
            let (before, after) = (ByteSize(before), ByteSize(after));
            return Err(server.told(&format!("memory grew from {before} to {after}")));
        }
        // Healthy clients may be cut off from now on.
        self.stage.end();
        self.stop(server)
    }
}

/// Stores large items, which fill the troubled tenant.
fn fill(server: &Server) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(server.addresses[0])?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    let value = "l".repeat(LARGE_BYTES);
    let mut reply = [0; 8];
    for key in 0..LARGE_KEYS {
        write!(stream, "set large{key} 0 0 {LARGE_BYTES}\r\n{value}\r\n")?;
        stream.read_exact(&mut reply)?;
    }
    Ok(())
}

/// Lets clients and signals loose on servers that `spawn` starts.
///
/// # Errors
/// Fails if the folder cannot be made.
pub fn torture(
    settings: &Settings,
    spawn: Spawn<'_>,
    progress: &Progress,
) -> Result<ConnectionsOutcome, BenchError> {
    let path = settings.folder.clone();
    files::create_directories(&path).map_err(|source| BenchError::File { path, source })?;
    let stage = &Stage::default();
    let made = &Made::default();
    let began = stage.now();
    let pace = Pace { connections: settings.connections, began, time: settings.time };
    let outcome = ConnectionsOutcome {
        subject: "connections",
        seed: settings.seed,
        ..ConnectionsOutcome::default()
    };
    let rng = Rng::named(settings.seed, "conductor");
    let mut conductor = Conductor { settings, spawn, stage, made, progress, rng, outcome };
    let healthy: Vec<Healthy> = std::thread::scope(|scope| {
        let client = |number| Healthy::new(settings.seed, number / HEALTHY, number % HEALTHY);
        let clients: Vec<_> = (0..TENANTS.len() * HEALTHY)
            .map(|number| scope.spawn(move || client(number).run(stage)))
            .collect();
        for thread in 0..TROUBLE {
            let rng = Rng::named(settings.seed, &format!("trouble {thread}"));
            scope.spawn(move || trouble::make(stage, made, pace, rng));
        }
        conductor.conduct();
        clients.into_iter().filter_map(|client| client.join().ok()).collect()
    });
    let mut outcome = conductor.outcome;
    outcome.kinds = made.by_kind().collect();
    outcome.connections = made.all();
    outcome.refused = made.refused.load(Ordering::Relaxed);
    outcome.times = times(healthy);
    outcome.elapsed_s = stage.now().since(began).as_secs_f64();
    outcome.interrupted = progress.stop().is_asked();
    let judged = !outcome.interrupted;
    outcome.failure =
        stage.failure().or_else(|| judged.then(|| judge(settings, &outcome)).flatten());
    outcome.pass = outcome.failure.is_none();
    Ok(outcome)
}

/// Sums the clients' times up by their tenant.
fn times(healthy: Vec<Healthy>) -> Vec<Times> {
    let mut all: [Vec<u32>; 2] = Default::default();
    for client in healthy {
        all[client.tenant].extend(client.times_us);
    }
    let sum = |(tenant, mut all): (&'static str, Vec<u32>)| {
        all.sort_unstable();
        let at = |percent: usize| {
            all.get(all.len().saturating_sub(1) * percent / 100).copied().unwrap_or_default()
        };
        let (p50_us, p99_us, max_us) = (at(50), at(99), at(100));
        Times { tenant, requests: all.len(), p50_us, p99_us, max_us }
    };
    TENANTS.into_iter().zip(all).map(sum).collect()
}

/// Judges what only the end of a run shows.
fn judge(settings: &Settings, outcome: &ConnectionsOutcome) -> Option<String> {
    if let Some(times) = outcome.times.iter().find(|times| times.requests == 0) {
        return Some(format!("no client of '{}' was answered", times.tenant));
    }
    if settings.time < JUDGED_FROM {
        return None;
    }
    let late = outcome.times.iter().zip(P99_US_MAX).find(|(times, most)| times.p99_us > *most);
    late.map(|(times, most)| {
        format!("p99 of '{}' is {} us, more than {most} us", times.tenant, times.p99_us)
    })
}

impl std::fmt::Display for ConnectionsOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "{:<28} {:>14}", "connections in trouble", self.connections)?;
        for (kind, number) in &self.kinds {
            writeln!(f, "  {kind:<26} {number:>14}")?;
        }
        writeln!(f, "{:<28} {:>14}", "refused while stopped", self.refused)?;
        writeln!(f, "{:<28} {:>14}", "SIGHUP", self.reloads)?;
        writeln!(f, "{:<28} {:>14}", "lacks of descriptors", self.lacks)?;
        writeln!(f, "{:<28} {:>14}", "SIGTERM", self.stops)?;
        let [before, after] = self.descriptors;
        writeln!(f, "{:<28} {before:>6} {after:>7}", "descriptors in calm")?;
        let [before, after] = self.memory_bytes.map(|bytes| bytes >> 10);
        writeln!(f, "{:<28} {before:>6} {after:>7}", "memory in calm, KiB")?;
        writeln!(
            f,
            "\n{:>10} {:>8} {:>8} {:>8}  healthy",
            "requests", "p50 us", "p99 us", "max us"
        )?;
        for Times { tenant, requests, p50_us, p99_us, max_us } in &self.times {
            writeln!(
                f,
                "{requests:>10} {p50_us:>8} {p99_us:>8} {max_us:>8}  clients of '{tenant}'"
            )?;
        }
        self.failure.as_ref().map_or(Ok(()), |what| writeln!(f, "\nfailed: {what}"))
    }
}
