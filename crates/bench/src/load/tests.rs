//! Tests of the generator with a small server whose faults are known.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;

/// Fault of the server.
#[derive(Clone, Copy, PartialEq)]
enum Fault {
    None,
    /// Sleeps for the duration at the thousandth request.
    StallOnce(Duration),
    /// Changes a byte of the thousandth value.
    DamageOne,
    /// Closes the connection at the thousandth request.
    HangUp,
    /// Answers the thousandth request with `ERROR`.
    Nonsense,
}

struct Server {
    values: Mutex<HashMap<String, Vec<u8>>>,
    requests: AtomicU32,
    fault: Fault,
}

/// Serves get, set, mg and ms, and returns the address.
fn serve(fault: Fault) -> Address {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::Tcp(listener.local_addr().unwrap());
    let values = Mutex::new(HashMap::new());
    let server = Arc::new(Server { values, requests: AtomicU32::new(0), fault });
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let server = Arc::clone(&server);
            std::thread::spawn(move || server.answer(stream));
        }
    });
    address
}

impl Server {
    /// Serves one connection until it ends.
    fn answer(&self, stream: TcpStream) -> Option<()> {
        stream.set_nodelay(true).ok()?;
        let mut out = stream.try_clone().ok()?;
        let mut input = BufReader::new(stream);
        let mut line = String::new();
        let mut replies = Vec::new();
        loop {
            line.clear();
            input.read_line(&mut line).ok().filter(|read| *read > 0)?;
            let words: Vec<&str> = line.split_whitespace().collect();
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let special = number == 1000;
            match self.fault {
                Fault::StallOnce(time) if special => std::thread::sleep(time),
                Fault::HangUp if special => return None,
                Fault::Nonsense if special => replies.extend_from_slice(b"ERROR\r\n"),
                _ => {}
            }
            if matches!(words[0], "set" | "ms") {
                let length = words[if words[0] == "set" { 4 } else { 2 }].parse().unwrap();
                let mut value = vec![0; length + 2];
                input.read_exact(&mut value).ok()?;
                value.truncate(length);
                self.values.lock().unwrap().insert(words[1].to_owned(), value);
                let reply: &[u8] = if words[0] == "set" { b"STORED\r\n" } else { b"HD\r\n" };
                replies.extend_from_slice(reply);
            } else {
                let mut value = self.values.lock().unwrap().get(words[1]).cloned();
                if special && self.fault == Fault::DamageOne {
                    value.as_mut().unwrap()[30] ^= 1;
                }
                append_value(&words, value.as_deref(), &mut replies);
            }
            if input.buffer().is_empty() {
                out.write_all(&replies).ok()?;
                replies.clear();
            }
        }
    }
}

fn append_value(words: &[&str], value: Option<&[u8]>, replies: &mut Vec<u8>) {
    let text = words[0] == "get";
    let Some(value) = value else {
        replies.extend_from_slice(if text { b"END\r\n" } else { b"EN\r\n" });
        return;
    };
    let head = match text {
        true => format!("VALUE {} 0 {}\r\n", words[1], value.len()),
        false => format!("VA {}\r\n", value.len()),
    };
    replies.extend_from_slice(head.as_bytes());
    replies.extend_from_slice(value);
    replies.extend_from_slice(if text { b"\r\nEND\r\n" } else { b"\r\n" });
}

fn options(fault: Fault) -> LoadOptions {
    LoadOptions {
        keys: 500,
        connections: 4,
        verify: true,
        duration: Duration::from_millis(300),
        warm_up: Duration::ZERO,
        ..LoadOptions::new(serve(fault))
    }
}

fn run(options: &LoadOptions) -> Result<LoadResult, BenchError> {
    run_load(options, &Progress::hidden())
}

#[test]
fn both_dialects_pipelined_over_several_threads() {
    for dialect in [Dialect::Text, Dialect::Meta] {
        let load = LoadOptions { dialect, depth: 16, threads: 2, ..options(Fault::None) };
        let result = run(&load).unwrap();
        assert!(result.requests > 1000, "{result:?}");
        assert!((result.hit_ratio - 1.0).abs() < 1e-9, "every key was preloaded: {result:?}");
        let share = result.gets as f64 / result.requests as f64;
        assert!((share - 0.9).abs() < 0.03, "{share}");
        assert_eq!(result.sets_refused, 0);
        // The kernel counts in steps of 10 ms; a short run may show 0.
        assert!(result.server_cpu_us_per_request.is_some_and(|us| us >= 0.0));
        assert_eq!(result.latency.count, result.requests);
    }
}

#[test]
fn a_stall_is_seen_by_the_open_loop_and_hidden_by_the_closed_one() {
    let stall = Fault::StallOnce(Duration::from_millis(200));
    let open = LoadOptions { rate_ops_s: Some(4_000.0), connections: 1, ..options(stall) };
    let result = run(&LoadOptions { depth: 64, duration: Duration::from_millis(1000), ..open });
    let result = result.unwrap();
    // A stall of 200 ms in 1 s: a fifth of all requests fell due during it and waited up to 200 ms.
    assert!(result.latency.p90_us > 50_000.0, "{:?}", result.latency);
    // All are answered in the end, so their number is that of the schedule.
    assert!((result.requests as f64 / 4000.0 - 1.0).abs() < 0.1, "{}", result.requests);
    let closed = LoadOptions { connections: 1, ..options(stall) };
    let result = run(&LoadOptions { duration: Duration::from_millis(1000), ..closed }).unwrap();
    // The one request in the stall is alone among thousands.
    assert!(result.latency.max_us > 190_000.0, "{:?}", result.latency);
    assert!(result.latency.p90_us < 50_000.0, "{:?}", result.latency);
}

#[test]
fn what_a_server_does_wrong_fails_the_run() {
    let error = run(&options(Fault::DamageOne)).unwrap_err();
    assert!(matches!(error, BenchError::WrongValue { .. }), "{error}");
    assert!(!error.is_usage());
    let error = run(&options(Fault::HangUp)).unwrap_err();
    assert!(matches!(error, BenchError::Server { .. }), "{error}");
    let error = run(&options(Fault::Nonsense)).unwrap_err();
    assert!(error.to_string().contains("ERROR"), "{error}");
}

#[test]
fn options_that_do_not_fit_are_refused_with_the_fix() {
    let good = LoadOptions::new("127.0.0.1:1".parse().unwrap());
    for (bad, word) in [
        (LoadOptions { key_bytes: 1, ..good.clone() }, "--key-size"),
        (LoadOptions { verify: true, value_bytes: 4, ..good.clone() }, "--value-size"),
        (LoadOptions { threads: 17, ..good.clone() }, "--threads"),
        (LoadOptions { get_share: 1.5, ..good.clone() }, "--get-share"),
        (LoadOptions { rate_ops_s: Some(0.0), ..good.clone() }, "--rate"),
    ] {
        let error = run(&bad).unwrap_err();
        assert!(error.is_usage() && error.to_string().contains(word), "{error}");
    }
    assert!(matches!(run(&good), Err(BenchError::Server { .. })), "nobody listens there");
}

#[test]
fn a_server_against_itself_is_no_different() {
    let load = LoadOptions { duration: Duration::from_millis(100), ..options(Fault::None) };
    let against = load.address.clone();
    let options = CompareOptions { load, against, against_pid: None, pairs: 6 };
    // Chance varies from run to run, especially on a busy machine; a real difference would persist.
    let is_none = (0..20).any(|_| {
        let compared = compare(&options, &Progress::hidden()).unwrap();
        let ratio = compared.throughput_ratio.unwrap();
        assert_eq!(ratio.pairs, 6);
        assert!(compared.cpu_ratio.is_some() && compared.p99_ratio.is_none());
        (0.3..3.0).contains(&ratio.ratio)
    });
    assert!(is_none, "one of the two is three times as fast, each of 20 times");
}
