//! A server for one test, and clients for it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, ManualClock, SystemClock};
use entresol_server::{Running, StartError};
use entresol_service::config::{self, Machine, Settings};

pub(crate) const MACHINE: Machine = Machine { memory: ByteSize::gib(64), processors: 2 };

/// The settings in `text`; loops are two and there is no admin listener unless it says otherwise.
pub(crate) fn settings(text: &str) -> Settings {
    let mut text = text.to_owned();
    if !text.contains("threads =") {
        text.insert_str(0, "threads = 2\n");
    }
    if !text.contains("admin =") {
        text.insert_str(0, "admin = \"off\"\n");
    }
    config::parse("test", &text, &MACHINE).unwrap()
}

pub(crate) fn try_start(text: &str) -> Result<Running, StartError> {
    entresol_server::start(settings(text), Arc::new(SystemClock::new()))
}

/// A server whose time stands still until the clock is moved. It looks at the clock when it has
/// something to do.
pub(crate) fn start_by(text: &str, clock: &Arc<ManualClock>) -> Running {
    entresol_server::start(settings(text), clock.clone()).unwrap()
}

pub(crate) fn start(text: &str) -> Running {
    try_start(text).unwrap()
}

/// A tenant on a port that the system chooses.
pub(crate) fn tenant(name: &str, more: &str) -> String {
    format!(
        "[[tenant]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\ndram_quota = \"32MiB\"\n{more}\n"
    )
}

pub(crate) fn address(running: &Running, name: &str) -> SocketAddr {
    running.addresses().into_iter().find(|(tenant, _)| tenant == name).unwrap().1[0]
}

/// A client that speaks line by line.
pub(crate) struct Client(pub(crate) TcpStream);

impl Client {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        stream.set_nodelay(true).unwrap();
        Client(stream)
    }

    pub(crate) fn of(running: &Running, tenant: &str) -> Self {
        Client::to(address(running, tenant))
    }

    pub(crate) fn send(&mut self, text: &[u8]) {
        self.0.write_all(text).unwrap();
    }

    /// Reads exactly as much as `expected` and compares.
    pub(crate) fn expect(&mut self, expected: &str) {
        let mut reply = vec![0; expected.len()];
        self.0.read_exact(&mut reply).unwrap();
        assert_eq!(String::from_utf8_lossy(&reply), expected);
    }

    pub(crate) fn ask(&mut self, request: &str, reply: &str) {
        self.send(request.replace('\n', "\r\n").as_bytes());
        self.expect(&reply.replace('\n', "\r\n"));
    }

    /// Reads until the server closes; empty also if it resets the connection.
    pub(crate) fn rest(&mut self) -> String {
        let mut reply = Vec::new();
        let _ = self.0.read_to_end(&mut reply);
        String::from_utf8_lossy(&reply).into_owned()
    }
}

/// Waits until `condition` holds; for so long only if it never does.
pub(crate) fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 60 s: {what}");
}
