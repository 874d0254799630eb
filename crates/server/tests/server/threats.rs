//! Threats to a server that speaks memcached's protocol, one test each.

use std::io::{Read, Write};

use entresol_service::auth::ATTEMPTS_MAX;
use entresol_service::config;

use crate::auth::{file_of_foo, guarded};
use crate::support::{Client, MACHINE, address, start, tenant};
use crate::tls::{self, Authority};

/// One command of each kind, with the data that it takes.
const COMMANDS: [&str; 24] = [
    "get k\r\n",
    "gets k\r\n",
    "gat 9 k\r\n",
    "add k 0 0 1\r\nv\r\n",
    "replace k 0 0 1\r\nv\r\n",
    "append k 0 0 1\r\nv\r\n",
    "cas k 0 0 1 1\r\nv\r\n",
    "delete k\r\n",
    "incr k 1\r\n",
    "touch k 9\r\n",
    "flush_all\r\n",
    "stats\r\n",
    "stats detail dump\r\n",
    "version\r\n",
    "verbosity 1\r\n",
    "cache_memlimit 16\r\n",
    "config get cluster\r\n",
    "mn\r\n",
    "mg k v\r\n",
    "ms k 1\r\nv\r\n",
    "md k\r\n",
    "ma n\r\n",
    "me k\r\n",
    "shutdown\r\n",
];

/// Checks that there is no UDP socket, by which a forged request is answered to others.
#[test]
fn udp_reflection() {
    let running = start(&tenant("a", ""));
    std::net::UdpSocket::bind(address(&running, "a")).unwrap();
    running.stop().unwrap();
}

#[test]
fn open_to_the_world() {
    let refused = |text: &str, part: &str| {
        let error = config::parse("test", text, &MACHINE).unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    for host in ["0.0.0.0", "[::]", "192.0.2.1", "[2001:db8::1]"] {
        let open = tenant("a", "").replace("127.0.0.1", host);
        refused(&open, "asks for no password");
        config::parse("test", &format!("auth_file = \"f\"\n{open}"), &MACHINE).unwrap();
        config::parse("test", &format!("allow_remote = true\n{open}"), &MACHINE).unwrap();
        let admin = format!("admin = \"{host}:1\"\n{}", tenant("a", ""));
        refused(&format!("allow_remote = true\nauth_file = \"f\"\n{admin}"), "asks for no token");
        config::parse("test", &format!("admin_token_file = \"f\"\n{admin}"), &MACHINE).unwrap();
    }
    // What is written nowhere is loopback.
    let settings = config::parse("test", &tenant("a", ""), &MACHINE).unwrap();
    assert!(settings.admin.unwrap().0.ip().is_loopback());
}

#[test]
fn injection_and_smuggling() {
    let running = start(&tenant("a", ""));
    let smuggled = "set stolen 0 0 1\r\nx\r\n";
    for front in [
        format!("POST / HTTP/1.1\r\nHost: a\r\n\r\n{smuggled}"),
        format!("GET / HTTP/1.1\r\nHost: a\r\n\r\n{smuggled}"),
        format!("POST /\r\n{smuggled}"),
        format!("\u{16}\u{3}\u{1}\r\n{smuggled}"),
    ] {
        let mut client = Client::of(&running, "a");
        client.send(front.as_bytes());
        assert!(!client.rest().contains("STORED"), "{front:?}");
    }
    let mut client = Client::of(&running, "a");
    // The data of a value that is too large is no command, and one grammar holds for both ends of
    // a line.
    let data = smuggled.repeat(2_200_000 / smuggled.len());
    client.send(format!("set k 0 0 {}\r\n{data}\r\n", data.len()).as_bytes());
    client.expect("SERVER_ERROR object too large for cache\r\n");
    client.send(b"get stolen\nget stolen\r\nget  stolen\n");
    client.expect("END\r\nEND\r\nEND\r\n");
    let long = "k".repeat(251);
    client.ask(&format!("get {long}\n"), "CLIENT_ERROR bad command line format\n");
    running.stop().unwrap();
}

#[test]
fn integer_trouble() {
    let running = start(&tenant("a", ""));
    let numbers = [
        "-1",
        "-2147483649",
        "2147483648",
        "4294967295",
        "4294967296",
        "9223372036854775808",
        "18446744073709551615",
        "18446744073709551616",
        "99999999999999999999999999",
        "0x10",
        "1e3",
        "+1",
        "",
        "1.0",
    ];
    for number in numbers {
        for command in [
            format!("set k {number} 0 1\r\nv"),
            format!("set k 0 {number} 1\r\nv"),
            format!("set k 0 0 {number}"),
            format!("cas k 0 0 1 {number}\r\nv"),
            format!("incr k {number}"),
            format!("touch k {number}"),
            format!("flush_all {number} noreply"),
            format!("ms k {number}"),
            format!("ms k 1 T{number} F{number} C{number}\r\nv"),
            format!("ma k D{number} J{number} N{number}"),
            format!("mg k T{number} R{number} N{number} v"),
            format!("cache_memlimit {number}"),
        ] {
            // A store whose length is taken at its word waits for so much, or is skipped.
            let mut client = Client::of(&running, "a");
            client.send(format!("{command}\r\nquit\r\n").as_bytes());
            client.0.shutdown(std::net::Shutdown::Write).unwrap();
            client.rest();
        }
    }
    assert!(running.is_healthy());
    Client::of(&running, "a").ask("mn\n", "MN\n");
    running.stop().unwrap();
}

/// Memory follows what has arrived, not what was announced, and a line has an end. Replies that
/// clients do not take are bounded as well: `limits` has those tests.
#[test]
fn memory_exhaustion() {
    let (_folder, path) = file_of_foo(None);
    let open = start(&tenant("a", "connections = 2000"));
    let guarded = guarded(&path, &tenant("a", "connections = 2000"));
    for running in [&open, &guarded] {
        let mut client = Client::of(running, "a");
        // The server closes while the client writes.
        while client.0.write_all(&[b'x'; 4096]).is_ok() {}
        client.rest();
        let mut many: Vec<_> = (0..200).map(|_| Client::of(running, "a")).collect();
        for client in &mut many {
            client.send(b"set k 0 0 1000\r\nvvvv");
        }
        assert!(running.is_healthy());
    }
    open.stop().unwrap();
    guarded.stop().unwrap();
}

/// Keys that meet in one place of a table cannot be chosen without the seed.
#[test]
fn hash_flooding() {
    let [one, other] = [(); 2].map(|()| entresol_base::hash::KeyHasher::random());
    let differs = |key: &u32| one.hash(&key.to_le_bytes()) != other.hash(&key.to_le_bytes());
    assert!((0..100).filter(differs).count() > 90);
}

#[test]
fn authentication_has_no_way_around() {
    let (_folder, path) = file_of_foo(None);
    let running = guarded(&path, &tenant("a", ""));
    let mut known = Client::of(&running, "a");
    known.ask("set auth 0 0 7\nfoo bar\nset k 0 0 1\no\n", "STORED\nSTORED\n");
    for command in COMMANDS {
        let mut client = Client::of(&running, "a");
        client.send(command.as_bytes());
        client.expect("CLIENT_ERROR unauthenticated\r\n");
        client.send(format!("{command}quit\r\n").as_bytes());
        for line in client.rest().lines() {
            assert_eq!(line, "CLIENT_ERROR unauthenticated", "{command:?}");
        }
    }
    // Other protocols are not negotiated: memcached's binary one once led past the check.
    for front in [b"\x80\x00\x00\x00".as_slice(), b"\x80\r\n", b"\x16\x03\x01\r\n"] {
        let mut client = Client::of(&running, "a");
        client.send(&[front, b"\nmn\r\n"].concat());
        assert!(!client.rest().contains("MN"));
    }
    // Passwords cannot be tried without end on one connection.
    let mut client = Client::of(&running, "a");
    client.send("set auth 0 0 7\r\nfoo baz\r\n".repeat(usize::from(ATTEMPTS_MAX)).as_bytes());
    let failures = client.rest().matches("CLIENT_ERROR authentication failure\r\n").count();
    assert_eq!(failures, usize::from(ATTEMPTS_MAX));
    known.ask("get k\n", "VALUE k 0 1\no\nEND\n");
    running.stop().unwrap();
}

/// Commands that show keys or addresses of the process are not there.
#[test]
fn information() {
    let running = start(&format!("{}{}", tenant("a", ""), tenant("b", "")));
    Client::of(&running, "b").ask("set secret 0 0 1\nv\n", "STORED\n");
    for command in [
        "stats cachedump 1 0",
        "stats cachedump 2 0",
        "lru_crawler metadump all",
        "lru_crawler mgdump all",
        "watch fetchers",
        "debug",
        "stats",
        "stats items",
        "stats slabs",
        "stats sizes",
        "stats conns",
        "stats settings",
        "stats maps",
        "stats malloc",
        "stats detail dump",
        "me secret",
        "mg secret v",
        "config get cluster",
    ] {
        let mut client = Client::of(&running, "a");
        client.send(format!("{command}\r\nquit\r\n").as_bytes());
        let reply = client.rest();
        assert!(!reply.contains("secret") && !reply.contains("0x"), "{command}: {reply}");
    }
    running.stop().unwrap();
}

/// Items are evicted by their own tenant alone, so their absence tells the others nothing.
#[test]
fn timing_between_tenants() {
    let running = start(&format!("{}{}", tenant("a", ""), tenant("b", "")));
    let (mut a, mut b) = (Client::of(&running, "a"), Client::of(&running, "b"));
    b.ask("set k 0 0 1\nb\n", "STORED\n");
    let value = "v".repeat(100_000);
    for n in 0..1000 {
        a.ask(&format!("set k{n} 0 0 100000\n{value}\n"), "STORED\n");
    }
    let evicted = |n: usize| running.tenants()[n].cache().statistics().events.evicted_items;
    assert!(evicted(0) > 0);
    assert_eq!(evicted(1), 0);
    b.ask("get k k1\n", "VALUE k 0 1\nb\nEND\n");
    running.stop().unwrap();
}

#[test]
fn destructive_commands() {
    let running = start(&format!("{}{}", tenant("a", ""), tenant("b", "")));
    let (mut a, mut b) = (Client::of(&running, "a"), Client::of(&running, "b"));
    b.ask("set k 0 0 1\nb\n", "STORED\n");
    a.ask("flush_all\nverbosity 9\n", "OK\nOK\n");
    a.ask("shutdown\n", "SERVER_ERROR: shutdown not enabled\n");
    a.ask("cache_memlimit 1000\n", "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\n");
    a.ask("cache_memlimit 16\n", "OK\n");
    let limit = |n: usize| running.tenants()[n].cache().statistics().dram_limit_bytes;
    assert_eq!((limit(0), limit(1)), (16 << 20, 32 << 20));
    b.ask("get k\n", "VALUE k 0 1\nb\nEND\n");
    running.stop().unwrap();
}

#[test]
fn clear_text_to_tls_and_tls_to_clear_text() {
    let authority = Authority::new();
    let running = tls::start(&authority.tenant("a", "listen = \"127.0.0.1:0\""));
    let addresses = running.addresses()[0].1.clone();
    let (clear, secure) = (addresses[0], addresses[1]);
    for front in
        [&b"set k 0 0 1\r\nv\r\n"[..], b"GET / HTTP/1.1\r\n\r\n", b"\x80\x00\x00\x00\x00\x00"]
    {
        let mut client = Client::to(secure);
        client.send(front);
        let rest = client.rest();
        assert!(!rest.contains("STORED") && !rest.contains("ERROR"), "{rest:?}");
    }
    let mut client = tls::secure(clear, authority.client(None));
    assert!(client.0.write_all(b"mn\r\n").and_then(|()| client.0.flush()).is_err());
    Client::to(clear).ask("get k\n", "END\n");
    running.stop().unwrap();
}

/// Checks that no bytes that are not TLS, and none that are cut off or changed, end in more than a
/// closed connection.
#[test]
fn garbage_within_tls() {
    let authority = Authority::new();
    let running = tls::start(&authority.tenant("a", ""));
    let address = tls::address(&running);
    for length in 1..60_u8 {
        // A record of a handshake that holds anything.
        let mut client = Client::to(address);
        client.send(&[22, 3, 1, 0, length]);
        client.send(&(0..length).map(|n| n.wrapping_mul(length)).collect::<Vec<_>>());
        client.0.shutdown(std::net::Shutdown::Write).unwrap();
        client.rest();
    }
    // A record within a session that was changed on its way.
    let mut client = tls::secure(address, authority.client(None));
    client.ask("mn\n", "MN\n");
    let mut record = vec![23, 3, 3, 0, 40];
    record.resize(45, 7);
    client.0.sock.write_all(&record).unwrap();
    assert!(client.0.read_exact(&mut [0]).is_err());
    tls::secure(address, authority.client(None)).ask("mn\n", "MN\n");
    running.stop().unwrap();
}

/// Checks that a handshake has an end in bytes, and in time.
#[test]
fn handshakes_without_end() {
    let authority = Authority::new();
    let text = format!("[limits]\nauth_time = \"1s\"\n{}", authority.tenant("a", ""));
    let running = tls::start(&text);
    let address = tls::address(&running);
    // The first part of a greeting that is announced to have 60 KiB.
    let mut large = Client::to(address);
    let mut sent = 0;
    let mut record = vec![22, 3, 1, 0x10, 0, 1, 0, 0xf0, 0];
    record.resize(5 + 4096, 0);
    while large.0.write_all(&record).is_ok() && sent < 1 << 20 {
        sent += record.len();
        record.truncate(5);
        record.resize(5 + 4096, 0);
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert!(sent < 100 * 1024, "{sent} bytes were taken");
    let mut silent = Client::to(address);
    let mut slow = Client::to(address);
    slow.send(&[22, 3, 1]);
    assert_eq!((silent.rest(), slow.rest()), (String::new(), String::new()));
    running.stop().unwrap();
}

/// Checks that a password is of no use to a client without the certificate that is asked for.
#[test]
fn ways_around_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (_folder, users) = file_of_foo(None);
    other.issue("foo", &[], |_| {});
    let more = format!("{}tls_certificate_user = true\n", authority.client_ca());
    let auth = format!("auth_file = \"{}\"\n", users.display());
    let running = tls::start(&format!("{auth}{}", authority.tenant("a", &more)));
    let forged = other.path("foo.pem");
    for holder in [None, Some(forged.as_path())] {
        let mut client = tls::secure(tls::address(&running), authority.client(holder));
        let _ = client.0.write_all(b"set auth 0 0 7\r\nfoo bar\r\n");
        let mut reply = Vec::new();
        let _ = client.0.read_to_end(&mut reply);
        assert_eq!(reply, b"");
    }
    // Beyond loopback, an authority counts as users do.
    let open = authority.tenant("a", "").replace("127.0.0.1", "0.0.0.0");
    let error = config::parse("test", &open, &MACHINE).unwrap_err().to_string();
    assert!(error.contains("tls_client_ca"), "{error}");
    config::parse("test", &format!("{open}{}", authority.client_ca()), &MACHINE).unwrap();
    running.stop().unwrap();
}
