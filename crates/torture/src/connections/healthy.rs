//! Healthy clients: each sets and gets keys of its own, one request at a time, and knows what the
//! server may answer. They find their server again after each of its lives, and time each request.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use entresol_base::rng::Rng;

use super::stage::{LOOK_EVERY, Life, Stage};

/// Keys of a client.
const KEYS: usize = 100;
const VALUE_BYTES_MAX: u64 = 2000;
/// Pause between two requests: the clients are to find out how long one takes, not to be a load.
const PAUSE: Duration = Duration::from_micros(700);
/// Time without an answer after which a server that is up has failed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// Versions that a key may have; 0 is none.
#[derive(Debug, Clone, Copy, Default)]
struct Known {
    stored: u64,
    /// Version whose store was not answered.
    unanswered: Option<u64>,
}

/// A client and what it has seen.
pub(super) struct Healthy {
    pub(super) tenant: usize,
    name: String,
    rng: Rng,
    known: Vec<Known>,
    /// Microseconds of each request.
    pub(super) times_us: Vec<u32>,
}

/// Reasons for which a client's connection ends.
enum End {
    Io(io::Error),
    Wrong(String),
}

impl From<io::Error> for End {
    fn from(error: io::Error) -> End {
        End::Io(error)
    }
}

impl Healthy {
    pub(super) fn new(seed: u64, tenant: usize, number: usize) -> Self {
        let name = format!("healthy{tenant}{number}");
        let rng = Rng::named(seed, &name);
        Healthy { tenant, name, rng, known: vec![Known::default(); KEYS], times_us: Vec::new() }
    }

    /// Speaks to the server until the run ends.
    pub(super) fn run(mut self, stage: &Stage) -> Self {
        while !stage.has_ended() {
            let Some(life) = stage.life() else {
                std::thread::sleep(LOOK_EVERY);
                continue;
            };
            let end = self.live(stage, life);
            match end {
                Ok(()) => {}
                Err(End::Wrong(what)) => stage.fail(format!("{} {what}", self.name)),
                Err(End::Io(_)) if !stage.lasts(life) => {}
                Err(End::Io(error)) => {
                    stage
                        .fail(format!("{} was cut off by a server that is up: {error}", self.name));
                }
            }
        }
        self
    }

    /// Speaks to the server on one connection.
    fn live(&mut self, stage: &Stage, life: Life) -> Result<(), End> {
        let mut stream = TcpStream::connect(life.addresses[self.tenant])?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        let mut input = Vec::new();
        while !stage.has_ended() {
            let key = self.rng.index(KEYS);
            let began = stage.now();
            match self.rng.one_in(3) {
                true => self.set(&mut stream, key)?,
                false => self.get(&mut stream, key, &mut input)?,
            }
            let time = stage.now().since(began).as_micros();
            self.times_us.push(u32::try_from(time).unwrap_or(u32::MAX));
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Bytes of a version, which tell whose they are.
    fn value(&self, key: usize, version: u64) -> Vec<u8> {
        let bytes = 1 + (version * 977 + key as u64 * 131) % VALUE_BYTES_MAX;
        let word = format!("{} {key} {version} ", self.name);
        word.bytes().cycle().take(bytes as usize).collect()
    }

    fn set(&mut self, stream: &mut TcpStream, key: usize) -> Result<(), End> {
        let Known { stored, unanswered } = self.known[key];
        let version = stored.max(unanswered.unwrap_or(0)) + 1;
        let value = self.value(key, version);
        let mut request = format!("set {}-{key} 0 0 {}\r\n", self.name, value.len()).into_bytes();
        request.extend_from_slice(&value);
        request.extend_from_slice(b"\r\n");
        // One whose answer was lost may still be seen, until this one is.
        if unanswered.is_some() {
            self.delete(stream, key)?;
        }
        self.known[key].unanswered = Some(version);
        stream.write_all(&request)?;
        expect(stream, b"STORED\r\n", &format!("set of key {key}"))?;
        self.known[key] = Known { stored: version, unanswered: None };
        Ok(())
    }

    /// Removes a key of which two versions may be there.
    fn delete(&mut self, stream: &mut TcpStream, key: usize) -> Result<(), End> {
        stream.write_all(format!("delete {}-{key} noreply\r\nmn\r\n", self.name).as_bytes())?;
        expect(stream, b"MN\r\n", &format!("removal of key {key}"))?;
        self.known[key].unanswered = None;
        Ok(())
    }

    fn get(&mut self, stream: &mut TcpStream, key: usize, input: &mut Vec<u8>) -> Result<(), End> {
        stream.write_all(format!("get {}-{key}\r\n", self.name).as_bytes())?;
        input.clear();
        let mut piece = [0; 4096];
        while !input.ends_with(b"END\r\n") {
            match stream.read(&mut piece)? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                count => input.extend_from_slice(&piece[..count]),
            }
        }
        // The server may have evicted it, or ended before it was stored.
        if input == b"END\r\n" {
            return Ok(());
        }
        let Known { stored, unanswered } = self.known[key];
        for version in [Some(stored), unanswered].into_iter().flatten() {
            let value = self.value(key, version);
            let mut reply = format!("VALUE {}-{key} 0 {}\r\n", self.name, value.len()).into_bytes();
            reply.extend_from_slice(&value);
            reply.extend_from_slice(b"\r\nEND\r\n");
            if *input == reply {
                self.known[key] = Known { stored: version, unanswered: None };
                return Ok(());
            }
        }
        let found = String::from_utf8_lossy(&input[..input.len().min(100)]).into_owned();
        Err(End::Wrong(format!("was given {found:?} for version {stored} of key {key}")))
    }
}

fn expect(stream: &mut TcpStream, expected: &[u8], of: &str) -> Result<(), End> {
    let mut reply = vec![0; expected.len()];
    stream.read_exact(&mut reply)?;
    if reply == expected {
        return Ok(());
    }
    Err(End::Wrong(format!("was answered {} to a {of}", reply.escape_ascii())))
}
