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

/// Kinds of trouble.
pub(super) const KINDS: [&str; 9] = [
    "closed at once",
    "reset at once",
    "silent",
    "stuck reader",
    "stuck writer",
    "half closed",
    "nonsense",
    "many keys",
    "reset amid replies",
];

/// Counts of connections, by their kind.
#[derive(Default)]
pub(super) struct Made {
    pub(super) kinds: [AtomicU64; KINDS.len()],
    pub(super) refused: AtomicU64,
}

impl Made {
    pub(super) fn all(&self) -> u64 {
        self.kinds.iter().map(|kind| kind.load(Ordering::Relaxed)).sum()
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
                let kind = rng.index(KINDS.len());
                match begin(stage, life, kind, &mut rng) {
                    Ok(more) => {
                        made.kinds[kind].fetch_add(1, Ordering::Relaxed);
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
fn begin(stage: &Stage, life: Life, kind: usize, rng: &mut Rng) -> io::Result<Option<Held>> {
    let mut stream = TcpStream::connect(life.addresses[0])?;
    stream.set_write_timeout(Some(WRITE_TIME))?;
    let time = Duration::from_millis(rng.below(HELD_MS_MAX));
    let mut request = Vec::new();
    match KINDS[kind] {
        "closed at once" => return Ok(None),
        "reset at once" => {
            reset(&stream);
            return Ok(None);
        }
        "silent" => {}
        "stuck reader" | "reset amid replies" => {
            let get = format!("get large{}\r\n", rng.below(LARGE_KEYS));
            request = get.repeat(REQUESTS).into_bytes();
        }
        "stuck writer" => {
            request = format!("set half 0 0 {LARGE_BYTES}\r\n").into_bytes();
            request.resize(request.len() + rng.index(LARGE_BYTES), b'h');
        }
        "half closed" => {
            half_close(stage, life, &mut stream);
            return Ok(None);
        }
        "many keys" => {
            request = b"get".to_vec();
            (0..rng.below(4000)).for_each(|key| request.extend(format!(" key{key}").bytes()));
        }
        _ => {
            let fronts: [&[u8]; 4] = [b"GET / HTTP/1.1\r\n", &[0x80, 0], &[0x16, 3, 1, 2], b""];
            request = fronts[rng.index(fronts.len())].to_vec();
            let front = request.len();
            request.resize(front + rng.index(3000), 0);
            rng.fill(&mut request[front..]);
        }
    }
    // The server may have closed it, and need not take all of it.
    let _ = stream.write_all(&request);
    let reset = KINDS[kind] == "reset amid replies" || rng.one_in(3);
    let time = if KINDS[kind] == "reset amid replies" { time / 100 } else { time };
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
