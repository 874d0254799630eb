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
