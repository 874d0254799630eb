//! Troublesome clients: connections that are reset, half closed, stuck in the middle, silent, or
//! speak nonsense.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use entresol_base::Nanos;
use entresol_base::rng::Rng;
use rustix::net::sockopt::set_socket_linger;

use super::stage::{LOOK_EVERY, Life, Stage};
use super::{LARGE_BYTES, LARGE_KEYS};

/// Connections that a thread holds open at most.
const HELD_MAX: usize = 120;
/// Milliseconds for which a connection is held.
const HELD_MS_MAX: u64 = 4000;
/// Time for which a client waits to write: a server need not take what a stuck client sends.
const WRITE_TIME: Duration = Duration::from_millis(20);
/// Time within which the server answers a client that has closed its side.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Requests of a client that does not read.
const REQUESTS: usize = 60;

/// Kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ClosedAtOnce,
    ResetAtOnce,
    Silent,
    StuckReader,
    StuckWriter,
    HalfClosed,
    Nonsense,
    ManyKeys,
    ResetAmidReplies,
}

impl Kind {
    const ALL: [Kind; 9] = [
        Kind::ClosedAtOnce,
        Kind::ResetAtOnce,
        Kind::Silent,
        Kind::StuckReader,
        Kind::StuckWriter,
        Kind::HalfClosed,
        Kind::Nonsense,
        Kind::ManyKeys,
        Kind::ResetAmidReplies,
    ];

    fn name(self) -> &'static str {
        match self {
            Kind::ClosedAtOnce => "closed at once",
            Kind::ResetAtOnce => "reset at once",
            Kind::Silent => "silent",
            Kind::StuckReader => "stuck reader",
            Kind::StuckWriter => "stuck writer",
            Kind::HalfClosed => "half closed",
            Kind::Nonsense => "nonsense",
            Kind::ManyKeys => "many keys",
            Kind::ResetAmidReplies => "reset amid replies",
        }
    }
}

/// Counts of connections, by their kind.
#[derive(Default)]
pub(super) struct Made {
    kinds: [AtomicU64; Kind::ALL.len()],
    pub(super) refused: AtomicU64,
}

impl Made {
    pub(super) fn all(&self) -> u64 {
        self.by_kind().map(|(_, count)| count).sum()
    }

    /// Returns each kind's name and count.
    pub(super) fn by_kind(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let counts = self.kinds.iter().map(|count| count.load(Ordering::Relaxed));
        Kind::ALL.iter().map(|kind| kind.name()).zip(counts)
    }
}

/// Number of connections that are due, and the time in which they are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    pub(super) connections: u64,
    pub(super) began: Nanos,
    pub(super) time: Duration,
}

impl Pace {
    fn due(&self, now: Nanos) -> u64 {
        let part = now.since(self.began).as_secs_f64() / self.time.as_secs_f64();
        (self.connections as f64 * part.min(1.0)).ceil() as u64
    }
}

/// A connection that is held until a time.
struct Held {
    until: Nanos,
    reset: bool,
    stream: TcpStream,
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.reset {
            reset(&self.stream);
        }
    }
}

/// Lets the end of a socket be a reset.
fn reset(stream: &TcpStream) {
    // A socket that cannot be told so is closed in the usual way.
    let _ = set_socket_linger(stream, Some(Duration::ZERO));
}

/// Makes trouble at the pace until the run ends.
pub(super) fn make(stage: &Stage, made: &Made, pace: Pace, mut rng: Rng) {
    let mut held: Vec<Held> = Vec::new();
    while !stage.has_ended() {
        if stage.is_calm() {
            held.clear();
            stage.rest();
        }
        let now = stage.now();
        held.retain(|it| it.until > now);
        if held.len() >= HELD_MAX {
            held.swap_remove(rng.index(HELD_MAX));
        }
        match stage.life() {
            Some(life) if made.all() < pace.due(now) => {
                let kind = Kind::ALL[rng.index(Kind::ALL.len())];
                match begin(stage, life, kind, &mut rng) {
                    Ok(more) => {
                        made.kinds[kind as usize].fetch_add(1, Ordering::Relaxed);
                        held.extend(more);
                    }
                    Err(_) => {
                        made.refused.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
            _ => std::thread::sleep(LOOK_EVERY),
        }
    }
}

/// Connects and does what the kind does. Fails if the connection could not be made.
fn begin(stage: &Stage, life: Life, kind: Kind, rng: &mut Rng) -> io::Result<Option<Held>> {
    let mut stream = TcpStream::connect(life.addresses[0])?;
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let time = Duration::from_millis(rng.below(HELD_MS_MAX));
    let mut request = Vec::new();
    match kind {
        Kind::ClosedAtOnce => return Ok(None),
        Kind::ResetAtOnce => {
            reset(&stream);
            return Ok(None);
        }
        Kind::Silent => {}
        Kind::StuckReader | Kind::ResetAmidReplies => {
            let get = format!("get large{}\r\n", rng.below(LARGE_KEYS));
            request = get.repeat(REQUESTS).into_bytes();
        }
        Kind::StuckWriter => {
            request = format!("set half 0 0 {LARGE_BYTES}\r\n").into_bytes();
            request.resize(request.len() + rng.index(LARGE_BYTES), b'h');
        }
        Kind::HalfClosed => {
            half_close(stage, life, &mut stream);
            return Ok(None);
        }
        Kind::ManyKeys => {
            request = b"get".to_vec();
            (0..rng.below(4000)).for_each(|key| request.extend(format!(" key{key}").bytes()));
        }
        Kind::Nonsense => {
            let fronts: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n", &[0x80, 0], &[0x16, 3, 1, 2], b""];
            request = fronts[rng.index(fronts.len())].to_vec();
            let front = request.len();
            request.resize(front + rng.index(3000), 0);
            rng.fill(&mut request[front..]);
        }
    }
    // The server may have closed it, and need not take all of it.
    let _ = stream.write_all(&request);
    let reset = kind == Kind::ResetAmidReplies || rng.one_in(3);
    let time = if kind == Kind::ResetAmidReplies { time / 100 } else { time };
    Ok(Some(Held { until: stage.now().after(time), reset, stream }))
}

/// Asks, closes its side and reads: all replies must come, unless the server is being stopped.
fn half_close(stage: &Stage, life: Life, stream: &mut TcpStream) {
    const COUNT: usize = 20;
    let mut reply = Vec::new();
    let asked = stream.write_all("mn\r\n".repeat(COUNT).as_bytes());
    let asked = asked.and_then(|()| stream.shutdown(Shutdown::Write));
    let asked = asked.and_then(|()| stream.set_read_timeout(Some(ANSWER_TIME)));
    let read = asked.and_then(|()| stream.read_to_end(&mut reply));
    if (read.is_err() || reply != "MN\r\n".repeat(COUNT).as_bytes()) && stage.lasts(life) {
        let reply = String::from_utf8_lossy(&reply).into_owned();
        stage.fail(format!("a client that closed its side was answered {reply:?}: {read:?}"));
    }
}
