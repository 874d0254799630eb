//! Configurations that a server refuses to start with.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use crate::support::{Client, start, tenant, try_start};

pub(crate) fn refused(text: &str, part: &str) {
    let error = try_start(text).err().expect(text).to_string();
    assert!(error.contains(part), "{error}");
    assert_eq!(error.lines().count(), 1, "{error}");
}

#[test]
fn more_connections_than_descriptors() {
    // No machine lets a process have a thousand million descriptors.
    let text: String = (0..1100)
        .map(|n| tenant(&format!("t{n}"), "connections = 1000000").replace("32MiB", "1MiB"))
        .collect();
    refused(&text, "file descriptors");
}

#[test]
fn a_unix_socket_is_private_shared_by_all_loops_and_removed_at_the_end() {
    use std::io::{Read, Write};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixStream;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = format!("[[tenant]]\nname = \"a\"\nunix_socket = \"{}\"\n", path.display());
    let running = start(&text);
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    for _ in 0..8 {
        let mut client = UnixStream::connect(&path).unwrap();
        client.write_all(b"mn\r\n").unwrap();
        let mut reply = [0; 4];
        client.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"MN\r\n");
    }
    assert!(try_start(&text).err().unwrap().to_string().contains("in use"));
    running.stop().unwrap();
    assert!(!path.exists());

    // What a dead server has left behind is taken over; what is no socket is not touched.
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    start(&text).stop().unwrap();
    entresol_media::files::write_atomically(&path, b"precious").unwrap();
    assert!(try_start(&text).err().unwrap().to_string().contains("not a socket"));
    assert_eq!(entresol_media::files::read(&path).unwrap(), b"precious");
}

/// A server that has bound the path since keeps its socket.
#[test]
fn a_server_removes_no_socket_that_another_has_made() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("socket");
    let text = format!("[[tenant]]\nname = \"a\"\nunix_socket = \"{}\"\n", path.display());
    let first = start(&text);
    std::fs::remove_file(&path).unwrap();
    let second = start(&text);
    first.stop().unwrap();
    assert!(std::os::unix::net::UnixStream::connect(&path).is_ok());
    second.stop().unwrap();
    assert!(!path.exists());
}

/// The kernel shows the timer of each socket: 2 is that of keepalive.
#[test]
fn every_accepted_socket_has_a_keepalive_timer() {
    let running = start(&tenant("a", ""));
    let mut client = Client::of(&running, "a");
    client.ask("mn\n", "MN\n");
    let port = |address: std::net::SocketAddr| format!("0100007F:{:04X}", address.port());
    let (ours, theirs) = (client.0.peer_addr().unwrap(), client.0.local_addr().unwrap());
    let pair = format!("{} {} 01 ", port(ours), port(theirs));
    crate::support::eventually("the timer of keepalive runs", || {
        let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
        let row = table.lines().find(|row| row.contains(&pair)).unwrap();
        row.split_whitespace().nth(5).unwrap().starts_with("02:")
    });
    running.stop().unwrap();
}

#[test]
fn ipv6_and_several_addresses() {
    let text = "[[tenant]]\nname = \"a\"\nlisten = [\"127.0.0.1:0\", \"[::1]:0\"]\n";
    let running = start(text);
    let (_, addresses) = running.addresses().remove(0);
    for address in addresses {
        Client::to(address).ask("mn\n", "MN\n");
    }
    running.stop().unwrap();
}
