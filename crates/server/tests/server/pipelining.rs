//! Many requests at once, cut anywhere, and clients that take their time.

use std::io::Write;
use std::time::Duration;

use crate::support::{Client, start, tenant};

fn script() -> (Vec<u8>, String) {
    let (mut request, mut reply) = (Vec::new(), String::new());
    for round in 0..40 {
        let value = "v".repeat(round * 7);
        request.extend(format!("set k{round} {round} 0 {}\r\n{value}\r\n", value.len()).bytes());
        reply += "STORED\r\n";
        request.extend(format!("get k{round} none\r\nmg k{round} s v\r\n").bytes());
        reply += &format!("VALUE k{round} {round} {}\r\n{value}\r\nEND\r\n", value.len());
        reply += &format!("VA {0} s{0}\r\n{value}\r\n", value.len());
    }
    (request, reply)
}

#[test]
fn pipelined_requests_cut_at_any_byte() {
    let running = start(&tenant("a", ""));
    let (request, reply) = script();
    let mut client = Client::of(&running, "a");
    client.send(&request);
    client.expect(&reply);
    for cut in (1..request.len()).step_by(97) {
        client.send(&request[..cut]);
        if cut % 3 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        client.send(&request[cut..]);
        client.expect(&reply);
    }
    for byte in &request {
        client.send(&[*byte]);
    }
    client.expect(&reply);
    running.stop().unwrap();
}

#[test]
fn a_large_value_comes_back_as_it_went() {
    let running = start(&tenant("a", "value_limit = \"1MiB\""));
    let value: Vec<u8> = (0..900_000_u32).map(|n| (n / 7) as u8).collect();
    let mut client = Client::of(&running, "a");
    client.send(format!("set big 0 0 {}\r\n", value.len()).as_bytes());
    for part in value.chunks(50_000) {
        client.send(part);
    }
    client.ask("\nget big\n", &format!("STORED\nVALUE big 0 {}\n", value.len()));
    let mut back = vec![0; value.len()];
    std::io::Read::read_exact(&mut client.0, &mut back).unwrap();
    assert!(back == value);
    client.expect("\r\nEND\r\n");
    running.stop().unwrap();
}

#[test]
fn half_a_command_and_a_reader_that_does_not_read_hold_nobody_else() {
    let running = start(&format!("threads = 1\n{}", tenant("a", "")));
    let mut half = Client::of(&running, "a");
    half.send(b"set k 0 0 100\r\nabc");
    let mut other = Client::of(&running, "a");
    let value = "v".repeat(100_000);
    other.ask(&format!("set v 0 0 100000\n{value}\n"), "STORED\n");

    // Asks for 2 GB and reads none of it: its own replies are held back, and its memory bounded.
    let greedy = Client::of(&running, "a");
    let mut stream = greedy.0.try_clone().unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
    let many = "get v\r\n".repeat(20_000);
    let _ = stream.write_all(many.as_bytes());

    for _ in 0..50 {
        other.ask("get nothing\n", "END\n");
    }
    half.send("x".repeat(97).as_bytes());
    half.ask("\n", "STORED\n");
    // Stopping would wait for a client that is still owed replies.
    drop((stream, greedy));
    running.stop().unwrap();
}

#[test]
fn a_slow_reader_gets_everything_in_the_end() {
    let running = start(&format!("threads = 1\n{}", tenant("a", "")));
    let value = "v".repeat(100_000);
    let mut client = Client::of(&running, "a");
    client.ask(&format!("set v 0 0 100000\n{value}\n"), "STORED\n");
    let mut stream = client.0.try_clone().unwrap();
    let writer = std::thread::spawn(move || {
        stream.write_all("get v\r\n".repeat(200).as_bytes()).unwrap();
        stream.write_all(b"mn\r\n").unwrap();
    });
    std::thread::sleep(Duration::from_millis(200));
    for _ in 0..200 {
        client.expect(&format!("VALUE v 0 100000\r\n{value}\r\nEND\r\n"));
    }
    client.expect("MN\r\n");
    writer.join().unwrap();
    running.stop().unwrap();
}

#[test]
fn quit_closes_after_the_replies() {
    let running = start(&tenant("a", ""));
    let mut client = Client::of(&running, "a");
    client.send(b"mn\r\nversion\r\nquit\r\n");
    let all = client.rest();
    assert!(all.starts_with("MN\r\nVERSION 1.6.45\r\n"), "{all}");
    running.stop().unwrap();
}

#[test]
fn a_client_that_closes_its_side_still_gets_its_replies() {
    let running = start(&tenant("a", ""));
    let mut client = Client::of(&running, "a");
    let (request, reply) = script();
    client.send(&request);
    client.0.shutdown(std::net::Shutdown::Write).unwrap();
    assert_eq!(client.rest(), reply);
    running.stop().unwrap();
}
