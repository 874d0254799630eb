//! The two servers, and a conversation with one of them.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use entresol_base::{ByteSize, SystemClock};
use entresol_protocol::client::{Reply, ReplyStep, reply};
use entresol_protocol::{FlagTokens, Limits};
use entresol_server::Running;
use entresol_service::config::{self, Machine};

/// Silence after which a reply counts as complete, at the first try.
pub(crate) const SILENCE: Duration = Duration::from_millis(300);

/// A server to talk to.
pub(crate) struct Peer {
    address: SocketAddr,
}

/// Both servers, alive until the tests end.
pub(crate) struct Pair {
    pub(crate) entresol: Peer,
    pub(crate) memcached: Peer,
    /// True if memcached has the text parser that Entresol follows.
    pub(crate) new_parser: bool,
    _running: Running,
    _child: Child,
}

/// Runs a server until its own standard input ends, which it does with the process that holds the
/// other end, whatever becomes of it.
const UNTIL_INPUT_ENDS: &str = r#""$@" & read -r _; kill $!"#;

/// The two servers, started once; `None`, said aloud, if there is no memcached.
pub(crate) fn pair() -> Option<&'static Pair> {
    static PAIR: OnceLock<Option<Pair>> = OnceLock::new();
    PAIR.get_or_init(start).as_ref()
}

/// A key that no case has used, as long as every other.
pub(crate) fn fresh_key() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("k{:07}", NEXT.fetch_add(1, Ordering::Relaxed))
}

fn start() -> Option<Pair> {
    let Some(version) = memcached_version() else {
        eprintln!("SKIPPED: no memcached on PATH; `apt-get install memcached` provides one");
        return None;
    };
    let new_parser = version >= [1, 6, 42];
    if !new_parser {
        eprintln!("memcached {version:?} is older than 1.6.42: what that changed is not compared");
    }
    let (child, memcached) = memcached();
    let (running, entresol) = entresol();
    let memcached = Peer { address: memcached };
    let entresol = Peer { address: entresol };
    Some(Pair { entresol, memcached, new_parser, _running: running, _child: child })
}

fn memcached_version() -> Option<[u32; 3]> {
    let output = Command::new("memcached").arg("-V").output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let numbers = text.trim().rsplit(' ').next()?;
    let mut numbers = numbers.split('.').map(|number| number.parse().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[expect(clippy::zombie_processes, reason = "it lives as long as this process")]
fn memcached() -> (Child, SocketAddr) {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let child = Command::new("sh")
        .args(["-c", UNTIL_INPUT_ENDS, "sh", "memcached"])
        .args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-u", "nobody", "-p"])
        .arg(address.port().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    for _ in 0..3000 {
        if TcpStream::connect(address).is_ok() {
            return (child, address);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("memcached does not listen on {address}");
}

fn entresol() -> (Running, SocketAddr) {
    let text = "threads = 1\nadmin = \"off\"\n[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\n";
    let machine = Machine { memory: ByteSize::gib(4), processors: 1 };
    let settings = config::parse("differential.toml", text, &machine).unwrap();
    let running = entresol_server::start(settings, Arc::new(SystemClock::new())).unwrap();
    let address = running.addresses()[0].1[0];
    (running, address)
}

/// A conversation with one server.
pub(crate) struct Transcript<'k> {
    stream: TcpStream,
    key: &'k str,
    /// CAS numbers in the order in which they were first seen: what they are differs, which of
    /// them are equal does not.
    seen: Vec<u64>,
}

impl<'k> Transcript<'k> {
    pub(crate) fn new(peer: &Peer, key: &'k str, silence: Duration) -> Self {
        let stream = TcpStream::connect(peer.address).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(silence)).unwrap();
        Transcript { stream, key, seen: Vec::new() }
    }

    /// Sends one after the other, each once the one before is answered; `%k` is the case's key and
    /// `%N` the N-th CAS seen. `mn` behind each send tells the end of its replies.
    pub(crate) fn run(mut self, sends: &[String]) -> Vec<String> {
        sends.iter().map(|send| self.send(send)).collect()
    }

    fn send(&mut self, send: &str) -> String {
        let mut bytes = send.replace("%k", self.key);
        for place in 0..10 {
            let cas = self.seen.get(place).copied().unwrap_or(1_000_000_007);
            bytes = bytes.replace(&format!("%{place}"), &cas.to_string());
        }
        bytes.push_str("mn\r\n");
        // The other side may have closed already, which reading will tell.
        let _ = self.stream.write_all(bytes.as_bytes());
        // What is sent may hold `mn` itself, and each reply may come in a packet of its own.
        let ends = bytes.lines().filter(|line| *line == "mn").count();
        let (answer, end) = self.receive(ends);
        let mut told = self.told(answer.strip_suffix(b"MN\r\n").unwrap_or(&answer));
        told.push_str(end);
        told
    }

    /// Receives until so many `MN` have come, or nothing more comes.
    fn receive(&mut self, ends: usize) -> (Vec<u8>, &'static str) {
        let mut answer = Vec::new();
        let mut chunk = [0; 4096];
        let come = |answer: &[u8]| answer.windows(4).filter(|bytes| bytes == b"MN\r\n").count();
        while !answer.ends_with(b"MN\r\n") || come(&answer) < ends {
            match self.stream.read(&mut chunk) {
                Ok(0) => return (answer, "(closed)"),
                Ok(len) => answer.extend_from_slice(&chunk[..len]),
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    return (answer, "(closed)");
                }
                Err(_) => return (answer, "(silent)"),
            }
        }
        (answer, "")
    }

    /// The replies with the accidental taken out: CAS numbers, the version, what `me` says.
    fn told(&mut self, mut answer: &[u8]) -> String {
        let mut told = String::new();
        while let ReplyStep::Reply { reply, consumed, .. } = reply(answer, &Limits::default()) {
            told += &match reply {
                Reply::Value { key, flags, cas, data } => {
                    let cas = cas.map(|cas| self.place(cas)).unwrap_or_default();
                    let (key, data) = (key.escape_ascii(), data.escape_ascii());
                    format!("VALUE {key} {flags}{cas} {data}|")
                }
                Reply::MetaValue { data, tokens } => {
                    let tokens = self.tokens(tokens);
                    format!("VA{tokens} {}|", data.escape_ascii())
                }
                Reply::Meta { status, tokens } => {
                    format!("{status:?}{}|", self.tokens(tokens))
                }
                Reply::Version(_) => "VERSION|".to_owned(),
                Reply::MetaDebug(_) => "ME|".to_owned(),
                _ => format!("{}|", answer[..consumed].trim_ascii_end().escape_ascii()),
            };
            answer = &answer[consumed..];
        }
        told + &answer.escape_ascii().to_string()
    }

    fn tokens(&mut self, tokens: FlagTokens<'_>) -> String {
        let mut told = String::new();
        for token in tokens.iter() {
            told += &match token.strip_prefix(b"c").and_then(|cas| std::str::from_utf8(cas).ok()) {
                Some(cas) => self.place(cas.parse().unwrap()),
                None => format!(" {}", token.escape_ascii()),
            };
        }
        told
    }

    fn place(&mut self, cas: u64) -> String {
        if cas == 0 {
            return " cas-none".to_owned();
        }
        let known = self.seen.iter().position(|&seen| seen == cas);
        let place = known.unwrap_or_else(|| {
            self.seen.push(cas);
            self.seen.len() - 1
        });
        format!(" cas-{place}")
    }
}
