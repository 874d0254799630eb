//! A loop that is given what it cannot wait for, and one that has ended.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_cache::{Cache, Store, Stored};
use entresol_service::config::{self, Machine};
use entresol_service::registry::Registry;
use entresol_service::tenant::{Seat, ServerFacts, Tenant};

use super::*;
use crate::connection::{Connection, Stream};
use crate::listener::{self, Lent, LoopListeners};

const TEXT: &str = "[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\ndram_quota = \"32MiB\"\n";

/// A listener that cannot be waited for: its descriptor is that of a file.
pub(crate) fn unwatchable() -> mio::net::TcpListener {
    let file = tempfile::tempfile().unwrap();
    mio::net::TcpListener::from_std(std::net::TcpListener::from(OwnedFd::from(file)))
}

fn facts(clock: &SystemClock) -> ServerFacts {
    ServerFacts { started: clock.seconds(), started_nanos: clock.now(), threads: 1 }
}

#[test]
fn a_tenant_that_is_refused_leaves_nothing_in_the_loop() {
    let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
    let settings = config::parse("test", TEXT, &machine).unwrap();
    let clock = Arc::new(SystemClock::new());
    let of_file = settings.tenants[0].cache(&settings);
    let cache = Cache::open(of_file, clock.clone()).unwrap();
    let own = settings.tenants[0].clone();
    let tenant = Tenant::new(own, settings.limits, cache, facts(&clock));
    let poll = Poll::new().unwrap();
    let (limits, slow_log) = (settings.limits, SlowLog::new(None));
    let registry = Registry::new(facts(&clock), clock);
    let mut event_loop = EventLoop::new(0, poll, registry, Arc::default(), limits, slow_log);

    let mut bound = listener::bind(&settings.tenants[0], 1, &mut Lent::default()).unwrap();
    let address = bound.tcp_addresses[0];
    let mut listeners: LoopListeners = bound.loops.remove(0);
    listeners.tcp.push(unwatchable());
    let error = event_loop.admit(0, Seat::new(&tenant, 0), listeners).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}");
    assert_eq!(event_loop.doors.sources.len(), 0);
    assert!(event_loop.table.seats.iter().all(Option::is_none));
    std::net::TcpListener::bind(address).unwrap();

    let mut bound = listener::bind(&settings.tenants[0], 1, &mut Lent::default()).unwrap();
    event_loop.admit(0, Seat::new(&tenant, 0), bound.loops.remove(0)).unwrap();
    assert_eq!(event_loop.doors.sources.len(), 1);
}

/// A loop with a tenant whose values lie on a block file, driven by the test.
struct Driven {
    event_loop: EventLoop,
    events: Events,
    _file: tempfile::TempDir,
}

/// Bytes of a value that clients ask for, and of requests and replies that the loop may hold: four
/// of the largest requests.
const VALUE: usize = 1 << 20;
const LIMIT: usize = 4 * (VALUE + 4096 + crate::buffer::READ_BYTES);

impl Driven {
    /// Makes a loop whose tenant has some settings, in which `FILE` is a block file's name, and
    /// values of so many bytes under some keys.
    fn new(settings: &str, values: &[(&[u8], usize)]) -> Driven {
        let file = tempfile::tempdir().unwrap();
        let medium = format!("file:{}", file.path().join("values").display());
        let text = format!(
            "[limits]\nbuffers = \"1MiB\"\n[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\n{}",
            settings.replace("FILE", &medium)
        );
        let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
        let settings = config::parse("test", &text, &machine).unwrap();
        let clock = Arc::new(SystemClock::new());
        let cache = Cache::open(settings.tenants[0].cache(&settings), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for (key, len) in values {
            let value = vec![key[0]; *len];
            let stored =
                worker.store(key, worker.hash(key), clock.seconds(), &Store::set(&value), None);
            assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}");
        }
        drop(worker);
        let (own, limits) = (settings.tenants[0].clone(), settings.limits);
        let tenant = Tenant::new(own, limits, cache, facts(&clock));
        let registry = Registry::new(facts(&clock), clock);
        let (poll, slow_log) = (Poll::new().unwrap(), SlowLog::new(None));
        let mut event_loop = EventLoop::new(0, poll, registry, Arc::default(), limits, slow_log);
        let mut bound = listener::bind(&settings.tenants[0], 1, &mut Lent::default()).unwrap();
        event_loop.admit(0, Seat::new(&tenant, 0), bound.loops.remove(0)).unwrap();
        Driven { event_loop, events: Events::with_capacity(EVENTS_MAX), _file: file }
    }

    /// Connects a client that has sent a request already.
    fn client(&mut self, request: &[u8]) -> UnixStream {
        let (mut ours, theirs) = UnixStream::pair().unwrap();
        ours.write_all(request).unwrap();
        ours.set_nonblocking(true).unwrap();
        theirs.set_nonblocking(true).unwrap();
        self.connect(Stream::Unix(mio::net::UnixStream::from_std(theirs)));
        ours
    }

    /// Connects a client over loopback.
    fn tcp_client(&mut self) -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let theirs = listener.accept().unwrap().0;
        for stream in [&ours, &theirs] {
            stream.set_nonblocking(true).unwrap();
            stream.set_nodelay(true).unwrap();
        }
        self.connect(Stream::Tcp(mio::net::TcpStream::from_std(theirs)));
        ours
    }

    fn connect(&mut self, stream: Stream) {
        let EventLoop { table, doors, .. } = &mut self.event_loop;
        let guard = table.count_in(0, &stream, Nanos(0)).unwrap();
        let key = table.connections.insert(Connection::new(stream, 0, guard));
        let connection = table.connections.get_mut(key).unwrap();
        doors.watch(connection, connection_token(key)).unwrap();
    }

    /// Returns the bytes that the loop has received and sent.
    fn moved_bytes(&self) -> u64 {
        let counts = self.event_loop.table.seat(0).unwrap().seat.tenant.counts();
        counts.bytes_read + counts.bytes_written
    }

    /// Goes round once, after some events or a while. Returns the bytes that are held then.
    fn go_round(&mut self) -> usize {
        let EventLoop { doors, rounds, .. } = &mut self.event_loop;
        doors.wait(&mut self.events, Some(Duration::from_millis(5))).unwrap();
        rounds.begin();
        for event in &self.events {
            self.event_loop.dispatch(event);
        }
        self.event_loop.go_round();
        self.event_loop.end_round();
        let (table, mut held) = (&self.event_loop.table, 0);
        for (_, connection) in table.connections.iter() {
            held += connection.held_bytes();
        }
        held
    }
}

/// Sixty of them took 60 MiB of memory, and only then were some closed.
#[test]
fn readers_that_take_nothing_hold_no_more_than_the_quota_and_hinder_no_other() {
    for request in ["get a\r\n", "get a b\r\n", "get a small b\r\n"] {
        let settings = "medium = \"FILE\"\nmedium_quota = \"64MiB\"\ndram_quota = \"16MiB\"\n\
                        value_limit = \"1028KiB\"\n";
        let mut driven = Driven::new(settings, &[(b"a", VALUE), (b"b", VALUE)]);
        let stuck: Vec<UnixStream> = (0..60).map(|_| driven.client(request.as_bytes())).collect();
        let mut most = 0;
        while driven.event_loop.table.connections.iter().any(|(_, it)| !it.has_backlog()) {
            most = driven.go_round().max(most);
        }
        let mut reader = driven.client(b"get a\r\n");
        let (mut taken, mut buffer) = (0, vec![0; 1 << 16]);
        let (clock, within) = (SystemClock::new(), Duration::from_secs(60));
        let begun = clock.now();
        while taken < VALUE {
            assert!(clock.now().since(begun) < within, "{request}: {taken} bytes came");
            most = driven.go_round().max(most);
            while let Ok(bytes) = reader.read(&mut buffer) {
                assert!(bytes > 0, "{request}: closed after {taken} bytes");
                taken += bytes;
            }
        }
        assert!(most <= LIMIT, "{request}: {most} bytes were held, the limit is {LIMIT}");
        drop(stuck);
    }
}

/// Client that stores or fetches a large value again and again, as fast as its socket lets it.
struct Bulk {
    socket: TcpStream,
    request: Vec<u8>,
    sent: usize,
    is_set: bool,
}

impl Bulk {
    /// Sends and takes what there is room for, and what there is.
    fn go_on(&mut self, buffer: &mut [u8]) {
        let mut taken = 0;
        while let Ok(bytes) = self.socket.read(buffer) {
            assert!(bytes > 0, "a bulk client was closed");
            taken += bytes;
        }
        if self.is_set {
            while let Ok(bytes) = self.socket.write(&self.request[self.sent..]) {
                self.sent = (self.sent + bytes) % self.request.len();
            }
        } else if self.sent == 0 || taken > 0 {
            // Others wait behind the one under way.
            self.sent += self.socket.write(&self.request).unwrap_or(0);
        }
    }
}

/// Virtual time of a round, and of each byte that is moved: what they take on one core.
const ROUND_NS: u64 = 10_000;
const BYTE_PS: u64 = 400;

#[test]
fn small_gets_beside_bulk_are_answered_within_a_millisecond_of_virtual_time() {
    const BULK: usize = 60 << 20;
    let settings = "dram_quota = \"512MiB\"\nvalue_limit = \"64MiB\"\n";
    let mut driven = Driven::new(settings, &[(b"large", BULK), (b"small", 100)]);
    let mut bulk = Vec::new();
    for key in ["set-a", "set-b", "get-a", "get-b"] {
        let is_set = key.starts_with("set");
        let mut request = b"get large\r\n".to_vec();
        if is_set {
            request = format!("set {key} 0 0 {BULK}\r\n").into_bytes();
            request.resize(request.len() + BULK, b'v');
            request.extend_from_slice(b"\r\n");
        }
        bulk.push(Bulk { socket: driven.tcp_client(), request, sent: 0, is_set });
    }
    let mut small = driven.tcp_client();
    let mut rng = Rng::new(1);
    let (mut now, mut due, mut is_asking) = (0, 5_000_000, false);
    let (mut times, mut buffer, mut moved) = (Vec::new(), vec![0; 1 << 20], 0);
    while times.len() < 1_000 {
        bulk.iter_mut().for_each(|one| one.go_on(&mut buffer));
        // It fell due during the last round.
        if !is_asking && due <= now {
            small.write_all(b"get small\r\n").unwrap();
            is_asking = true;
        }
        driven.go_round();
        let all = driven.moved_bytes();
        now += ROUND_NS + (all - std::mem::replace(&mut moved, all)) * BYTE_PS / 1_000;
        if is_asking && small.read(&mut buffer).is_ok() {
            times.push(now - due);
            (due, is_asking) = (now + rng.below(400_000), false);
        }
    }
    times.sort_unstable();
    let (p50, p99) = (times[500], times[990]);
    println!("gets of 100 B took {p50} ns (p50) and {p99} ns (p99); {moved} bytes were moved");
    assert!(p99 < 1_000_000, "the 99th percentile is {p99} ns");
    assert!(moved > 1_000 * 200_000 / 2, "only {moved} bytes were moved beside them");
}

#[test]
fn a_loop_that_panics_takes_the_server_down_in_order() {
    let machine = Machine { memory: ByteSize::gib(64), processors: 2 };
    let text = format!("threads = 2\nadmin = \"off\"\n{TEXT}");
    let settings = config::parse("test", &text, &machine).unwrap();
    let running = crate::start(settings, Arc::new(SystemClock::new())).unwrap();
    let (failed, told) = std::sync::mpsc::channel();
    running.registry.on_failure(move || failed.send(()).unwrap());
    drop(running.loops[0].order(Order::Panic));
    told.recv_timeout(Duration::from_secs(60)).unwrap();
    assert!(!running.is_healthy());
    assert_eq!(running.registry.panics(), [("event loop".to_owned(), 1)]);
    running.stop().unwrap();
}

#[test]
fn a_loop_that_has_ended_answers_no_order_and_keeps_none_waiting() {
    let clock = Arc::new(SystemClock::new());
    let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
    let limits = config::parse("test", TEXT, &machine).unwrap().limits;
    let registry = Registry::new(facts(&clock), clock);
    let mut handle = start(0, registry, limits, None).unwrap();
    drop(handle.order(Order::Drain { within: Duration::ZERO }));
    handle.join();
    let answer = handle.order(Order::Dismiss { place: 0 });
    let end = answer.recv_timeout(Duration::from_secs(60)).unwrap_err();
    assert_eq!(end, std::sync::mpsc::RecvTimeoutError::Disconnected);
}
