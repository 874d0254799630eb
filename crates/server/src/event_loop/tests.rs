//! A loop that is given what it cannot wait for, and one that has ended.

use std::os::fd::OwnedFd;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, SystemClock};
use entresol_cache::Cache;
use entresol_service::config::{self, Machine};
use entresol_service::registry::Registry;
use entresol_service::tenant::{Seat, ServerFacts, Tenant};

use super::*;
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
