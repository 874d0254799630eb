//! Limits: connections, idleness, progress, lines.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ManualClock, Seconds};
use entresol_server::Running;

use crate::support::{Client, eventually, settings, start, start_by, tenant};

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
    // Larger values are sent from their place, and take no buffer.
    for number in 0..40 {
        let bytes = 60_000 + 1_500 * number;
        let set = format!("set k{number} 0 0 {bytes}\n{}\n", "v".repeat(bytes));
        client.ask(&set, "STORED\n");
    }
    let mut slow: Vec<Client> = (0..40).map(|_| Client::of(&running, "a")).collect();
    for (number, other) in slow.iter_mut().enumerate() {
        other.send(format!("get k{number}\r\n").repeat(100).as_bytes());
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

/// Time stands still, so nothing that waits for a moment to come is ever answered.
#[test]
fn clients_that_take_nothing_hold_up_no_client_that_does() {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let limits = "threads = 1\n[limits]\nbuffers = \"1MiB\"\n";
    // Buffers always have room for four values of the largest size, so that is a small one here.
    let small = tenant("a", "value_limit = \"128KiB\"");
    let running = start_by(&format!("{limits}{small}"), &clock);
    let mut client = Client::of(&running, "a");
    // Every client asks for a size of its own, as above.
    let value = |number: usize| "v".repeat(60_000 + 1_000 * number);
    for number in 0..60 {
        let value = value(number);
        client.ask(&format!("set k{number} 0 0 {}\n{value}\n", value.len()), "STORED\n");
    }
    let kicks = || running.tenants()[0].counts().buffer_kicks;
    let mut stuck: Vec<Client> = (0..60).map(|_| Client::of(&running, "a")).collect();
    for (number, other) in stuck.iter_mut().enumerate() {
        other.send(format!("get k{number}\r\n").repeat(100).as_bytes());
        client.ask("get zz\n", "END\n");
    }
    let value = format!("VALUE k59 0 119000\n{}\nEND\n", value(59));
    for _ in 0..20 {
        client.ask("get k59\n", &value);
        Client::of(&running, "a").ask("get zz\nget k59\n", &format!("END\n{value}"));
    }
    eventually("those that hold most are closed", || kicks() > 0);
    assert!(kicks() < 60, "only as many go as it takes");
    drop(stuck);
    running.stop().unwrap();
}

#[test]
fn clients_that_send_half_hold_up_no_client_that_sends_all() {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let limits = "threads = 1\n[limits]\nbuffers = \"1MiB\"\n";
    let large = tenant("a", "value_limit = \"1MiB\"");
    let running = start_by(&format!("{limits}{large}"), &clock);
    let mut client = Client::of(&running, "a");
    let mut halves: Vec<Client> = (0..60).map(|_| Client::of(&running, "a")).collect();
    for (number, half) in halves.iter_mut().enumerate() {
        // Without time there is no telling who has not moved for long.
        clock.advance(Duration::from_millis(5));
        half.send(format!("set half{number} 0 0 900000\r\n{}", "v".repeat(450_000)).as_bytes());
        client.ask("set k 0 0 1\nv\nget k\n", "STORED\nVALUE k 0 1\nv\nEND\n");
    }
    // A half that is still being read has moved as lately as the client.
    let read = || running.tenants()[0].counts().bytes_read;
    eventually("the halves are read", || {
        let before = read();
        client.ask(&"mn\n".repeat(100), &"MN\n".repeat(100));
        (0..100).for_each(|_| client.ask("mn\n", "MN\n"));
        read() - before == 200 * "mn\r\n".len() as u64
    });
    clock.advance(Duration::from_millis(1));
    let large = "v".repeat(900_000);
    client.ask(&format!("set k 0 0 900000\n{large}\n"), "STORED\n");
    client.ask("get k\n", &format!("VALUE k 0 900000\n{large}\nEND\n"));
    drop(halves);
    running.stop().unwrap();
}

/// A line of any length is worked through as it comes, and memory for it stays small.
#[test]
fn a_client_that_asks_for_a_million_keys_is_answered_and_holds_up_no_other() {
    let running = start(&format!("threads = 1\n{}", tenant("a", "")));
    let (mut many, mut client) = (Client::of(&running, "a"), Client::of(&running, "a"));
    client.ask("set key999999 0 0 1\nx\nset key0 0 0 1\ny\n", "STORED\nSTORED\n");
    let keys: String = (0..1_000_000).map(|number| format!(" key{number}")).collect();
    let line = format!("get{keys}\r\nmn\r\n");
    let (front, end) = line.split_at(line.len() - 100);
    let writer = std::thread::spawn({
        let (mut writer, front) = (many.0.try_clone().unwrap(), front.to_owned());
        move || std::io::Write::write_all(&mut writer, front.as_bytes()).unwrap()
    });
    many.expect("VALUE key0 0 1\r\ny\r\n");
    while !writer.is_finished() {
        client.ask("get key0\n", "VALUE key0 0 1\ny\nEND\n");
    }
    writer.join().unwrap();
    many.send(end.as_bytes());
    many.expect("VALUE key999999 0 1\r\nx\r\nEND\r\nMN\r\n");
    assert!(running.tenants()[0].counts().conn_yields > 1_000_000 / 512 / 2);
    running.stop().unwrap();
}

#[test]
fn keys_are_listed_beside_other_clients_and_wait_for_the_one_that_reads_them() {
    const KEYS: usize = 40_000;
    let running = start(&format!(
        "threads = 1\n[limits]\noutput = \"16KiB\"\n{}{}",
        tenant("a", "list_keys = 10000000"),
        tenant("b", "")
    ));
    Client::of(&running, "b").ask("set secret 0 0 1\nv\n", "STORED\n");
    let mut other = Client::of(&running, "a");
    for begin in (0..KEYS).step_by(1000) {
        let sets = (begin..begin + 1000).map(|key| format!("set a-long-key-{key} 0 0 1\nv\n"));
        other.ask(&sets.collect::<String>(), &"STORED\n".repeat(1000));
    }
    // The first list is longer than the sockets' buffers, and is not read.
    let mut lists = [Client::of(&running, "a"), Client::of(&running, "a")];
    for list in &mut lists {
        list.send(b"lru_crawler metadump all\r\nmn\r\nquit\r\n");
    }
    for key in 0..200 {
        other.ask(
            &format!("get a-long-key-{key}\n"),
            &format!("VALUE a-long-key-{key} 0 1\nv\nEND\n"),
        );
    }
    for list in lists.iter_mut().rev() {
        let listed = list.rest();
        let lines = listed.strip_suffix("END\r\nMN\r\n").unwrap_or_else(|| panic!("{listed}"));
        assert_eq!(lines.lines().count(), KEYS);
        assert!(lines.lines().all(|line| line.starts_with("key=a-long-key-")));
    }
    Client::of(&running, "b").ask(
        "lru_crawler metadump all\nlru_crawler mgdump all\n",
        &"CLIENT_ERROR lru crawler disabled\n".repeat(2),
    );
    running.stop().unwrap();
}

#[test]
fn a_tenant_beyond_its_rate_waits_and_another_one_does_not() {
    let running =
        start(&format!("threads = 1\n{}{}", tenant("a", "requests_max = 1"), tenant("b", "")));
    let (mut a, mut b) = (Client::of(&running, "a"), Client::of(&running, "b"));
    a.ask("mn\n", "MN\n");
    a.send(b"mn\r\nmn\r\n");
    eventually("a waits", || running.tenants()[0].counts().request_waits > 0);
    // So much would take a whole minute of a's.
    b.ask(&"mn\n".repeat(60), &"MN\n".repeat(60));
    a.expect("MN\r\n");
    assert!(running.tenants()[0].counts().throttled > 0);
    running.stop().unwrap();
}

#[test]
fn a_new_key_beyond_the_limit_makes_another_one_go_and_a_reload_changes_the_limit() {
    let text = |limit: &str| format!("threads = 2\n{}{}", tenant("a", limit), tenant("b", ""));
    let mut running = start(&text("keys_max = 100"));
    let store = |running: &Running, name: &str, keys: std::ops::Range<usize>| {
        for key in keys {
            // A connection each, so that both event loops store some.
            let mut client = Client::of(running, name);
            client.ask(&format!("set k{key} 0 0 1\nv\n"), "STORED\n");
            client.ask(&format!("get k{key}\n"), &format!("VALUE k{key} 0 1\nv\nEND\n"));
        }
    };
    let items =
        |running: &Running, tenant: usize| running.tenants()[tenant].cache().statistics().items;
    store(&running, "a", 0..300);
    store(&running, "b", 0..300);
    assert_eq!((items(&running, 0), items(&running, 1)), (100, 300));
    let shown = |running: &Running, rows: &[&str]| {
        for what in ["stats", "stats settings"] {
            let mut client = Client::of(running, "a");
            client.send(format!("{what}\r\nquit\r\n").as_bytes());
            let text = client.rest();
            assert!(rows.iter().any(|row| text.contains(row)), "{text}");
        }
    };
    shown(&running, &["STAT keys_max 100\r\n"]);
    running.reload(settings(&text("keys_max = 10"))).unwrap();
    eventually("those beyond the lower limit go", || items(&running, 0) == 10);
    running.reload(settings(&text(""))).unwrap();
    shown(&running, &["STAT keys_max 0\r\n"]);
    store(&running, "a", 300..500);
    assert_eq!(items(&running, 0), 210);
    let events = running.tenants()[0].cache().statistics().events;
    assert_eq!(events.evicted_items, 290);
    running.stop().unwrap();
}
