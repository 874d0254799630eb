//! Limits: connections, idleness, progress, lines.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ManualClock, Seconds};

use crate::support::{Client, eventually, start, start_by, tenant};

#[test]
fn connections_beyond_the_limit_are_told_and_closed() {
    let running = start(&tenant("a", "connections = 3"));
    let mut clients: Vec<Client> = (0..3).map(|_| Client::of(&running, "a")).collect();
    for client in &mut clients {
        client.ask("mn\n", "MN\n");
    }
    let mut refused = Client::of(&running, "a");
    assert_eq!(refused.rest(), "ERROR Too many open connections\r\n");
    assert_eq!(running.tenants()[0].counts().rejected_connections, 1);
    drop(clients.pop());
    eventually("a place is free again", || running.tenants()[0].connections() == 2);
    Client::of(&running, "a").ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn an_idle_connection_is_closed_and_a_busy_one_is_not() {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let limits = "threads = 1\n[limits]\nidle_time = \"2s\"\n";
    let running = start_by(&format!("{limits}{}", tenant("a", "")), &clock);
    let (mut idle, mut busy) = (Client::of(&running, "a"), Client::of(&running, "a"));
    idle.ask("mn\n", "MN\n");
    let kicks = || running.tenants()[0].counts().idle_kicks;
    for _ in 0..3 {
        busy.ask("mn\n", "MN\n");
        assert_eq!(kicks(), 0);
        clock.advance(Duration::from_millis(600));
    }
    busy.ask("mn\n", "MN\n");
    clock.advance(Duration::from_millis(600));
    eventually("the idle one is closed", || {
        busy.ask("mn\n", "MN\n");
        kicks() == 1
    });
    assert_eq!(idle.rest(), "");
    for _ in 0..5 {
        clock.advance(Duration::from_millis(1900));
        busy.ask("mn\n", "MN\n");
    }
    assert_eq!(kicks(), 1);
    running.stop().unwrap();
}

#[test]
fn half_a_command_is_not_waited_for_for_ever() {
    let running = start(&format!("[limits]\nprogress_time = \"1s\"\n{}", tenant("a", "")));
    let (mut half, mut idle) = (Client::of(&running, "a"), Client::of(&running, "a"));
    half.send(b"set k 0 0 10\r\nabc");
    assert_eq!(half.rest(), "");
    idle.ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn an_endless_line_is_refused() {
    let running = start(&tenant("a", ""));
    let mut client = Client::of(&running, "a");
    client.send(&[b'x'; 5000]);
    let reply = client.rest();
    assert!(reply.is_empty() || reply.starts_with("CLIENT_ERROR "), "{reply}");
    running.stop().unwrap();
}

#[test]
fn a_request_for_very_many_keys_is_answered_in_pieces() {
    let running = start(&format!("[limits]\noutput = \"16KiB\"\n{}", tenant("a", "")));
    let mut client = Client::of(&running, "a");
    let value = "v".repeat(1000);
    let (mut keys, mut reply) = (String::new(), String::new());
    for n in 0..2000 {
        client.ask(&format!("set key{n} 0 0 1000\n{value}\n"), "STORED\n");
        keys += &format!(" key{n}");
        reply += &format!("VALUE key{n} 0 1000\n{value}\n");
    }
    client.ask(&format!("get{keys}\nmn\n"), &format!("{reply}END\nMN\n"));
    running.stop().unwrap();
}

#[test]
fn slow_clients_together_hold_no_more_than_the_tenants_buffers() {
    let limits = "[limits]\nbuffers = \"8MiB\"\noutput = \"1MiB\"\n";
    let running = start(&format!("{limits}{}", tenant("a", "value_limit = \"1MiB\"\n")));
    let mut client = Client::of(&running, "a");
    // What the system's sockets take may be nearly a whole number of replies of one size, and then
    // nothing is left for the server to hold: so every client asks for a size of its own.
    for number in 0..40 {
        let bytes = 300_000 + 10_000 * number;
        let set = format!("set k{number} 0 0 {bytes}\n{}\n", "v".repeat(bytes));
        client.ask(&set, "STORED\n");
    }
    let mut slow: Vec<Client> = (0..40).map(|_| Client::of(&running, "a")).collect();
    for (number, other) in slow.iter_mut().enumerate() {
        other.send(format!("get k{number}\r\n").repeat(40).as_bytes());
    }
    let kicks = || running.tenants()[0].counts().buffer_kicks;
    eventually("those that do not move are closed", || kicks() > 0);
    // Clients that take their replies are served, on whichever loop they are.
    for _ in 0..8 {
        Client::of(&running, "a").ask("mn\n", "MN\n");
    }
    assert!(kicks() < 40, "only as many go as it takes");
    running.stop().unwrap();
}
