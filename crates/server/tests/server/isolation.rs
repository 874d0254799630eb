//! Tenants with the same keys: none reads, changes, counts or flushes another's.

use crate::support::{Client, eventually, settings, start, tenant};

const TENANTS: usize = 10;

fn ten() -> (entresol_server::Running, Vec<Client>) {
    let text: String = (0..TENANTS).map(|n| tenant(&format!("t{n}"), "")).collect();
    let running = start(&text);
    let clients = (0..TENANTS).map(|n| Client::of(&running, &format!("t{n}"))).collect();
    (running, clients)
}

#[test]
fn the_same_keys_through_every_command() {
    let (running, mut clients) = ten();
    for (n, client) in clients.iter_mut().enumerate() {
        client.ask(&format!("set k 0 0 2\nv{n}\nset n 0 0 1\n{n}\n"), "STORED\nSTORED\n");
    }
    // Tenant 0 does everything there is to do to its keys; the others keep theirs.
    clients[0].ask("append k 0 0 1\nx\nprepend k 0 0 1\ny\n", "STORED\nSTORED\n");
    clients[0].ask("incr n 5\ndecr n 2\n", "5\n3\n");
    clients[0].ask("touch k 50\ngat 60 k\n", "TOUCHED\nVALUE k 0 4\nyv0x\nEND\n");
    clients[0].ask("replace k 0 0 1\nr\nadd k 0 0 1\na\n", "STORED\nNOT_STORED\n");
    clients[0].ask("ms k 1 T9\nm\nma n\nmd k I\n", "HD\nHD\nHD\n");
    clients[0].ask("md k\nms k 1 ME\nz\nmg k v\n", "HD\nHD\nVA 1\nz\n");
    clients[0].ask("delete k\ndelete n\nget k n\n", "DELETED\nDELETED\nEND\n");
    for (n, client) in clients.iter_mut().enumerate().skip(1) {
        let reply = format!("VALUE k 0 2\nv{n}\nVALUE n 0 1\n{n}\nEND\n");
        client.ask("get k n\n", &reply);
        client.ask("mg k t v\n", &format!("VA 2 t-1\nv{n}\n"));
    }
    running.stop().unwrap();
}

#[test]
fn a_flush_is_its_tenants_own() {
    let (running, mut clients) = ten();
    for client in &mut clients {
        client.ask("set k 0 0 1\nv\n", "STORED\n");
    }
    clients[3].ask("flush_all\nget k\n", "OK\nEND\n");
    for (_, client) in clients.iter_mut().enumerate().filter(|(n, _)| *n != 3) {
        client.ask("get k\n", "VALUE k 0 1\nv\nEND\n");
    }
    running.stop().unwrap();
}

#[test]
fn statistics_are_the_tenants_own() {
    let (running, mut clients) = ten();
    clients[1].ask(
        "set secret_of_one 0 0 1\nv\nget secret_of_one\n",
        "STORED\nVALUE secret_of_one 0 1\nv\nEND\n",
    );
    for topic in ["stats", "stats items", "stats slabs", "stats settings", "stats conns"] {
        clients[2].send(format!("{topic}\r\nquit\r\n").as_bytes());
        let all = clients[2].rest();
        assert!(!all.contains("secret"), "{all}");
        if topic == "stats" {
            assert!(all.contains("STAT cmd_set 0\r\n"), "{all}");
            assert!(all.contains("STAT curr_items 0\r\n"), "{all}");
            assert!(all.contains("STAT curr_connections 1\r\n"), "{all}");
        }
        clients[2] = Client::of(&running, "t2");
        eventually("the old connection is counted out", || running.tenants()[2].connections() == 1);
    }
    running.stop().unwrap();
}

#[test]
fn a_stopped_tenant_waits_and_the_others_do_not() {
    use entresol_media::Limit;
    // The limit comes by the configuration: one that a test sets by itself may be taken back, since
    // the sharing thread sets every account once when it first sees its tenant.
    let text = |more: &str, rest: &str| {
        format!("threads = 1\n{}{}{rest}", tenant("fast", ""), tenant("stopped", more))
    };
    let mut running = start(&text("", ""));
    let (mut fast, mut stopped) = (Client::of(&running, "fast"), Client::of(&running, "stopped"));
    stopped.ask("set k 0 0 1\nv\n", "STORED\n");
    let account = running.tenants()[1].cache().account().clone();
    let stop = text("share_max = \"0%\"", "[sharing]\npolicy = \"limit\"\n");
    running.reload(settings(&stop)).unwrap();
    eventually("it is stopped", || account.limit() == Limit::Stopped);
    stopped.send(b"get k\r\n");
    eventually("it waits", || running.tenants()[1].counts().throttled == 1);
    for _ in 0..200 {
        fast.ask("set a 0 0 1\nb\nget a\n", "STORED\nVALUE a 0 1\nb\nEND\n");
    }
    stopped.0.set_nonblocking(true).unwrap();
    let held = std::io::Read::read(&mut stopped.0, &mut [0; 1]).unwrap_err();
    assert_eq!(held.kind(), std::io::ErrorKind::WouldBlock);
    stopped.0.set_nonblocking(false).unwrap();
    running.reload(settings(&text("", ""))).unwrap();
    stopped.expect("VALUE k 0 1\r\nv\r\nEND\r\n");
    assert_eq!(running.tenants()[1].counts().throttled, 1);
    running.stop().unwrap();
}
