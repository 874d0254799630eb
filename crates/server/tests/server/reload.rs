//! Changing the configuration of a running server, and stopping it.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::{Clock, SystemClock};

use crate::support::{Client, settings, start, tenant, try_start};

#[test]
fn tenants_come_and_go_and_the_others_keep_their_connections() {
    let mut running = start(&format!("{}{}", tenant("stays", ""), tenant("goes", "")));
    let (mut stays, mut goes) = (Client::of(&running, "stays"), Client::of(&running, "goes"));
    stays.ask("set k 0 0 1\nv\n", "STORED\n");
    goes.ask("set k 0 0 1\nv\n", "STORED\n");
    running.reload(settings(&format!("{}{}", tenant("comes", ""), tenant("stays", "")))).unwrap();
    assert_eq!(goes.rest(), "");
    stays.ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    Client::of(&running, "comes").ask("get k\nset k 0 0 1\nn\n", "END\nSTORED\n");
    let names: Vec<String> = running.addresses().into_iter().map(|(name, _)| name).collect();
    assert_eq!(names.len(), 2);
    running.stop().unwrap();
}

/// A port that is free now.
fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn a_coming_tenant_takes_over_the_listeners_of_a_going_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let port = free_port();
    let text = |name: &str| {
        let socket = format!("unix_socket = \"{}\"", path.display());
        tenant(name, &socket).replace(":0", &format!(":{port}"))
    };
    let mut running = start(&text("old"));
    let mut client = Client::of(&running, "old");
    client.ask("set k 0 0 1\nv\n", "STORED\n");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let third =
        tenant("third", "").replace(":0", &format!(":{}", taken.local_addr().unwrap().port()));
    assert!(running.reload(settings(&format!("{}{third}", text("new")))).is_err());
    client.ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    Client::of(&running, "old").ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    running.reload(settings(&text("new"))).unwrap();
    assert_eq!(client.rest(), "");
    for _ in 0..8 {
        Client::of(&running, "new").ask("get k\n", "END\n");
        use std::io::{Read, Write};
        let mut client = std::os::unix::net::UnixStream::connect(&path).unwrap();
        client.write_all(b"get k\r\n").unwrap();
        let mut reply = [0; 5];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"END\r\n");
    }
    running.stop().unwrap();
    assert!(!path.exists());
    std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
}

#[test]
fn quotas_and_limits_change_under_way() {
    let mut running = start(&tenant("a", "connections = 1"));
    let mut client = Client::of(&running, "a");
    client.ask("set k 0 0 1\nv\n", "STORED\n");
    let larger = tenant("a", "connections = 2").replace("32MiB", "48MiB");
    running.reload(settings(&larger)).unwrap();
    client.ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    Client::of(&running, "a").ask("mn\n", "MN\n");
    client.send(b"stats\r\nquit\r\n");
    assert!(client.rest().contains("STAT limit_maxbytes 50331648\r\n"));
    running.stop().unwrap();
}

#[test]
fn what_cannot_change_is_refused_and_nothing_has_changed() {
    let old = tenant("a", "");
    let mut running = start(&old);
    let port = crate::support::address(&running, "a");
    for (text, reason) in [
        (old.replace("name", "favour = \"bytes\"\nname"), "favour of tenant 'a' cannot change"),
        (old.replace(":0", ":1"), "listen of tenant 'a' cannot change"),
        (format!("threads = 1\n{old}"), "threads cannot change"),
        (
            format!(
                "{}{}",
                old.replace("32MiB", "40MiB"),
                tenant("b", "").replace("127.0.0.1:0", &port.to_string())
            ),
            "in use",
        ),
    ] {
        let error = running.reload(settings(&text)).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert_eq!(running.tenants().len(), 1);
        let quota = running.tenants()[0].cache().statistics().dram_limit_bytes;
        assert_eq!(quota, 32 << 20);
    }
    Client::of(&running, "a").ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn a_stopping_server_answers_what_it_was_asked() {
    let running = start(&format!("drain_time = \"60s\"\n{}", tenant("a", "")));
    let mut client = Client::of(&running, "a");
    let mut idle = Client::of(&running, "a");
    idle.ask("mn\n", "MN\n");
    let value = "v".repeat(1000);
    client.ask(&format!("set k 0 0 1000\n{value}\n"), "STORED\n");
    client.send("get k\r\n".repeat(5000).as_bytes());
    std::thread::sleep(Duration::from_millis(50));
    let reader = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(200));
        client.rest()
    });
    running.stop().unwrap();
    let reply = reader.join().unwrap();
    assert_eq!(reply.matches("END\r\n").count(), 5000);
    assert_eq!(idle.rest(), "");
}

#[test]
fn a_client_that_reads_nothing_does_not_keep_a_server_from_stopping() {
    let running = start(&format!("drain_time = \"300ms\"\n{}", tenant("a", "")));
    let mut client = Client::of(&running, "a");
    let value = "v".repeat(100_000);
    client.ask(&format!("set k 0 0 100000\n{value}\n"), "STORED\n");
    client.send("get k\r\n".repeat(1000).as_bytes());
    running.stop().unwrap();
}

#[test]
fn a_port_is_free_again_after_a_stop_and_refused_before() {
    for threads in [1, 2] {
        let running = start(&format!("threads = {threads}\n{}", tenant("a", "")));
        let port = crate::support::address(&running, "a").to_string();
        let same =
            format!("threads = {threads}\n{}", tenant("a", "")).replace("127.0.0.1:0", &port);
        let error = try_start(&same).err().expect("the port is taken").to_string();
        assert!(error.contains("in use") && error.contains(&port), "{error}");
        running.stop().unwrap();
        start(&same).stop().unwrap();
    }
}

#[test]
fn a_stopping_server_refuses_whoever_may_not_go_on_in_time() {
    let text = format!(
        "drain_time = \"120s\"\n{}{}[sharing]\npolicy = \"limit\"\n",
        tenant("stopped", "share_max = \"0%\""),
        tenant("free", ""),
    );
    let running = start(&text);
    let stopped = Arc::clone(&running.tenants()[0]);
    crate::support::eventually("it is stopped", || {
        stopped.cache().account().limit() == entresol_media::Limit::Stopped
    });
    let mut waiting: Vec<Client> = (0..50).map(|_| Client::of(&running, "stopped")).collect();
    waiting.iter_mut().for_each(|client| client.send(b"get k\r\n"));
    crate::support::eventually("all wait", || stopped.counts().throttled == 50);
    let clock = SystemClock::new();
    let began = clock.now();
    running.stop().unwrap();
    let took = clock.now().since(began);
    assert!(took < Duration::from_secs(60), "{took:?}");
    for client in &mut waiting {
        assert_eq!(client.rest(), "SERVER_ERROR the server is stopping\r\n");
    }
}
