//! A loop that is given what it cannot wait for, and one that has ended.

use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

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
    fn new() -> Driven {
        let file = tempfile::tempdir().unwrap();
        let text = format!(
            "[limits]\nbuffers = \"1MiB\"\n[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:0\"\n\
             medium = \"file:{}\"\nmedium_quota = \"64MiB\"\ndram_quota = \"16MiB\"\n\
             value_limit = \"1028KiB\"\n",
            file.path().join("values").display()
        );
        let machine = Machine { memory: ByteSize::gib(64), processors: 1 };
        let settings = config::parse("test", &text, &machine).unwrap();
        let clock = Arc::new(SystemClock::new());
        let cache = Cache::open(settings.tenants[0].cache(&settings), clock.clone()).unwrap();
        let mut worker = cache.worker();
        for key in [b"a", b"b"] {
            let value = vec![key[0]; VALUE];
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
        let stream = Stream::Unix(mio::net::UnixStream::from_std(theirs));
        let EventLoop { table, doors, .. } = &mut self.event_loop;
        let guard = table.count_in(0, &stream, Nanos(0)).unwrap();
        let key = table.connections.insert(Connection::new(stream, 0, guard));
        let connection = table.connections.get_mut(key).unwrap();
        doors.watch(connection, connection_token(key)).unwrap();
        ours
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
        let mut driven = Driven::new();
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
