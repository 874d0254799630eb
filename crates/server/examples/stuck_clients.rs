//! Measures what clients that do not take what they asked for cost a client that does.
//!
//! `cargo run --release -p entresol-server --example stuck_clients -- HOST:PORT [CLIENTS]` speaks
//! to any server of memcached's protocol, so that several can be compared. It prints the response
//! times of `get` of one healthy client: alone, then beside clients that take nothing, that send
//! half a request, and that ask for a million keys.
#![expect(clippy::print_stdout, reason = "figures are what this is for")]

use std::error::Error;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use entresol_base::{Clock, Nanos, SystemClock};

/// Bytes of the value that stuck clients ask for.
const VALUE_BYTES: usize = 500_000;
/// Requests of a stuck client.
const REQUESTS: usize = 10;
/// Time of each measurement.
const TIME: Duration = Duration::from_secs(5);

type Done<T> = Result<T, Box<dyn Error>>;

fn main() -> Done<()> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().ok_or("usage: stuck_clients HOST:PORT [CLIENTS]")?;
    let clients = arguments.next().map_or(Ok(500), |text| text.parse())?;
    let mut healthy = connect(&address)?;
    ask(&mut healthy, &store("stuck", VALUE_BYTES), b"STORED\r\n")?;
    println!("{:24} {:>9} {:>9} {:>9} {:>9}", "beside", "requests", "p50 us", "p99 us", "max us");
    measure("nobody", &mut healthy)?;
    let many: String = (0..1_000_000).map(|number| format!(" key{number}")).collect();
    let half = store("half", VALUE_BYTES);
    for (name, request) in [
        ("clients that take nothing", "get stuck\r\n".repeat(REQUESTS)),
        ("clients that send half", half[..half.len() / 2].to_owned()),
        ("clients of many keys", format!("get{many}\r\n")),
    ] {
        let mut stuck = Vec::new();
        for _ in 0..clients {
            stuck.push(connect(&address)?);
        }
        let writer = std::thread::spawn(move || {
            for client in &mut stuck {
                // The server may close it, and a full socket is no longer waited for.
                let _ = client.set_write_timeout(Some(Duration::from_millis(20)));
                let _ = client.write_all(request.as_bytes());
            }
            stuck
        });
        measure(name, &mut healthy)?;
        drop(writer.join());
    }
    Ok(())
}

fn connect(address: &str) -> Done<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

fn store(key: &str, bytes: usize) -> String {
    format!("set {key} 0 0 {bytes}\r\n{}\r\n", "v".repeat(bytes))
}

fn ask(client: &mut TcpStream, request: &str, expected: &[u8]) -> Done<()> {
    client.write_all(request.as_bytes())?;
    let mut reply = vec![0; expected.len()];
    client.read_exact(&mut reply)?;
    match reply == expected {
        true => Ok(()),
        false => Err(format!("unexpected reply {}", reply.escape_ascii()).into()),
    }
}

/// Asks for a missing key for a while and prints the response times.
fn measure(name: &str, client: &mut TcpStream) -> Done<()> {
    let clock = SystemClock::new();
    let end: Nanos = clock.now().after(TIME);
    let mut times = Vec::new();
    while clock.now() < end {
        let before = clock.now();
        ask(client, "get nothing\r\n", b"END\r\n")?;
        times.push(clock.now().since(before).as_secs_f64() * 1e6);
    }
    times.sort_unstable_by(f64::total_cmp);
    let at = |percent: usize| times.get((times.len() - 1) * percent / 100).copied();
    let at = |percent| at(percent).unwrap_or_default();
    let (requests, p50, p99, most) = (times.len(), at(50), at(99), at(100));
    println!("{name:24} {requests:>9} {p50:>9.0} {p99:>9.0} {most:>9.0}");
    Ok(())
}
