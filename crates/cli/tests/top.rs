//! Tests of `entresol top` against a running server.
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, clippy::expect_used)]

use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Output, Stdio};

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn entresol(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_entresol")).args(arguments).output().unwrap()
}

/// Starts a server on ports that the system chooses and returns the address of its admin listener.
fn serve() -> (Server, String) {
    let arguments = ["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0"];
    let mut child = Command::new(env!("CARGO_BIN_EXE_entresol"))
        .args(arguments)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let log = BufReader::new(child.stderr.take().unwrap());
    let server = Server(child);
    let mut lines = log.lines().map_while(Result::ok);
    let line = lines.find(|line| line.contains("admin listener")).expect("the log says where");
    let address = line.rsplit_once("address=").expect("an address").1.trim().to_owned();
    // The log is read to its end; otherwise the server would block on a full pipe.
    std::thread::spawn(move || lines.count());
    (server, address)
}

#[test]
fn a_look_is_one_json_object_or_one_table() {
    let (server, address) = serve();
    let looked = entresol(&["top", "--server", &address, "--once", "--json"]);
    assert!(looked.status.success(), "{}", String::from_utf8_lossy(&looked.stderr));
    let view: serde_json::Value = serde_json::from_slice(&looked.stdout).expect("one object");
    assert_eq!((&view["policy"], &view["tenants"][0]["name"]), (&"none".into(), &"default".into()));
    assert_eq!(view["tenants"][0]["media"][0]["throttle"], "free");
    let looked = entresol(&["top", "--server", &address, "--once"]);
    let text = String::from_utf8(looked.stdout).unwrap();
    assert!(text.starts_with("entresol: policy none; 0 decisions; up "), "{text}");
    assert!(text.contains("\ndefault "), "{text}");
    drop(server);
    let looked = entresol(&["top", "--server", &address, "--once", "--json"]);
    assert_eq!((looked.status.code(), looked.stdout.len()), (Some(2), 0));
    let error = String::from_utf8(looked.stderr).unwrap();
    assert!(error.contains("no admin listener answers") && error.contains(&address), "{error}");
}
