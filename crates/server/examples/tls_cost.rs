//! Measures what TLS costs a server: processor time of a request, or memory of a stranger.
//!
//! `cargo run --release -p entresol-server --example tls_cost -- PID CLEAR TLS CA.pem` speaks to
//! the process PID at its addresses CLEAR and TLS in turn, at depth 32 with values of 100 bytes,
//! and prints the server's processor time of a request. With `halfway N` in place of CLEAR, it
//! makes N connections that stop in the middle of their handshake, with `through N` N that say
//! nothing behind it, and prints the memory that a server which was just started takes for each.
#![expect(clippy::print_stdout, reason = "figures are what this is for")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::files;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECTIONS: usize = 8;
const DEPTH: usize = 32;
const VALUE_BYTES: usize = 100;
const KEYS: usize = 1000;
/// Comparisons, of each of which both halves take this time.
const ROUNDS: usize = 7;
const TIME: Duration = Duration::from_secs(3);
/// A hundredth of a second is the unit of processor time in `/proc/PID/stat`.
const TICK_NS: f64 = 1e7;

type Done<T> = Result<T, Box<dyn Error>>;

trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

fn main() -> Done<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [pid, "halfway", count, tls, ca] => strangers(pid, false, count.parse()?, tls, ca),
        [pid, "through", count, tls, ca] => strangers(pid, true, count.parse()?, tls, ca),
        [pid, clear, tls, ca] => requests(pid, clear, tls, ca),
        _ => {
            Err("usage: tls_cost PID CLEAR TLS CA.pem, or PID halfway|through N TLS CA.pem".into())
        }
    }
}

fn client_of(ca: &str) -> Done<Arc<ClientConfig>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(&files::read(Path::new(ca))?)?)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}

fn session(client: &Arc<ClientConfig>) -> Done<ClientConnection> {
    Ok(ClientConnection::new(Arc::clone(client), ServerName::try_from("localhost")?)?)
}

fn connect(address: &str) -> Done<TcpStream> {
    let tcp = TcpStream::connect(address)?;
    tcp.set_nodelay(true)?;
    Ok(tcp)
}

/// Processor time of the process, user and system, in nanoseconds.
fn cpu_ns(pid: &str) -> Done<f64> {
    let text = files::read_to_string(Path::new(&format!("/proc/{pid}/stat")))?;
    let (_, fields) = text.rsplit_once(") ").ok_or("no name in /proc/PID/stat")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<f64>);
    Ok(ticks.sum::<Result<f64, _>>()? * TICK_NS)
}

fn memory_bytes(pid: &str) -> Done<f64> {
    let text = files::read_to_string(Path::new(&format!("/proc/{pid}/status")))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:"));
    Ok(line.and_then(|it| it.split_whitespace().next()).ok_or("no RssAnon")?.parse::<f64>()?
        * 1024.0)
}

fn requests(pid: &str, clear: &str, tls: &str, ca: &str) -> Done<()> {
    let client = client_of(ca)?;
    let mut first = connect(clear)?;
    let mut reply = [0; 8];
    for key in 0..KEYS {
        write!(first, "set key{key:04} 0 0 {VALUE_BYTES}\r\n{}\r\n", "v".repeat(VALUE_BYTES))?;
        first.read_exact(&mut reply)?;
    }
    println!("{:>12} {:>12} {:>8}", "clear, ns", "TLS, ns", "ratio");
    let mut ratios = Vec::new();
    for _ in 0..ROUNDS {
        let mut clears: Vec<Box<dyn Duplex>> = Vec::new();
        let mut secures: Vec<Box<dyn Duplex>> = Vec::new();
        for _ in 0..CONNECTIONS {
            clears.push(Box::new(connect(clear)?));
            secures.push(Box::new(StreamOwned::new(session(&client)?, connect(tls)?)));
        }
        let clear_ns = load(pid, &mut clears)?;
        let tls_ns = load(pid, &mut secures)?;
        println!("{clear_ns:>12.0} {tls_ns:>12.0} {:>8.2}", tls_ns / clear_ns);
        ratios.push(tls_ns / clear_ns);
    }
    ratios.sort_by(f64::total_cmp);
    let (least, median, most) = (ratios[0], ratios[ROUNDS / 2], ratios[ROUNDS - 1]);
    println!("median of the ratios {median:.2}, from {least:.2} to {most:.2}");
    Ok(())
}

/// Loads the server for a while; returns its processor time of a request in nanoseconds.
fn load(pid: &str, connections: &mut [Box<dyn Duplex>]) -> Done<f64> {
    let clock = SystemClock::new();
    let gets: String = (0..DEPTH).map(|n| format!("get key{:04}\r\n", n * 31 % KEYS)).collect();
    let reply = DEPTH * ("VALUE key0000 0 100\r\n".len() + VALUE_BYTES + "\r\nEND\r\n".len());
    let mut replies = vec![0; reply];
    // Handshakes are not counted.
    for connection in connections.iter_mut() {
        connection.write_all(b"mn\r\n")?;
        connection.read_exact(&mut [0; 4])?;
    }
    let (before, began) = (cpu_ns(pid)?, clock.now());
    let mut requests = 0;
    while clock.now().since(began) < TIME {
        for connection in connections.iter_mut() {
            connection.write_all(gets.as_bytes())?;
        }
        for connection in connections.iter_mut() {
            connection.read_exact(&mut replies)?;
        }
        requests += DEPTH * connections.len();
    }
    if !replies.ends_with(b"END\r\n") {
        return Err("a reply is not a hit".into());
    }
    Ok((cpu_ns(pid)? - before) / requests as f64)
}

fn strangers(pid: &str, goes_through: bool, count: usize, tls: &str, ca: &str) -> Done<()> {
    let client = client_of(ca)?;
    let before = memory_bytes(pid)?;
    let mut strangers = Vec::new();
    for _ in 0..count {
        let (mut session, mut tcp) = (session(&client)?, connect(tls)?);
        session.write_tls(&mut tcp)?;
        // The server has answered, so it holds what a handshake takes.
        session.read_tls(&mut tcp)?;
        if goes_through {
            session.process_new_packets()?;
            while session.is_handshaking() || session.wants_write() {
                session.complete_io(&mut tcp)?;
            }
        }
        strangers.push((session, tcp));
    }
    // The server may still read the end of the last handshake.
    std::thread::sleep(Duration::from_millis(500));
    let each = (memory_bytes(pid)? - before) / count as f64;
    println!("{count} strangers: {each:.0} bytes each");
    Ok(())
}
