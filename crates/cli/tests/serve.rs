//! The command `serve` as an operator meets it: signals, logs, and what it says about a configuration.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

fn entresol() -> Command {
    Command::new(env!("CARGO_BIN_EXE_entresol"))
}

/// Starts a server in a folder of its own, with its log in `stderr`, and waits until it listens.
fn serve(folder: &Path, stderr: Stdio) -> Child {
    serve_with(folder, &[], stderr)
}

fn serve_with(folder: &Path, more: &[&str], stderr: Stdio) -> Child {
    let ports = folder.join("ports");
    let flags = ["serve", "--listen", "127.0.0.1:0", "--admin", "off", "--threads", "1"];
    let mut command = entresol();
    command.args(flags).args(more).arg("--port-file").arg(&ports).stderr(stderr);
    let mut child = command.spawn().unwrap();
    for _ in 0..6000 {
        if ports.exists() {
            return child;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    panic!("no port file within 60 s");
}

fn signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

#[test]
fn signals_are_obeyed_from_the_start_and_none_but_a_stop_ends_the_server() {
    for stop in [Signal::TERM, Signal::INT, Signal::USR1] {
        let folder = tempfile::tempdir().unwrap();
        let mut child = serve(folder.path(), Stdio::null());
        signal(&child, Signal::HUP);
        signal(&child, Signal::XFSZ);
        signal(&child, stop);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    }
}

#[test]
fn a_log_that_cannot_be_written_or_is_not_read_is_lost_and_nothing_else() {
    let folder = tempfile::tempdir().unwrap();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let mut child = serve(folder.path(), full.into());
    signal(&child, Signal::HUP);
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    let folder = tempfile::tempdir().unwrap();
    let mut child = serve(folder.path(), Stdio::piped());
    // A pipe takes 64 KiB. Each reload that is refused is a line of some hundred bytes.
    for _ in 0..2000 {
        signal(&child, Signal::HUP);
        std::thread::yield_now();
    }
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn check(text: &str) -> Output {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("entresol.toml");
    std::fs::write(&file, text.replace("FOLDER", folder.path().to_str().unwrap())).unwrap();
    let checked = entresol().args(["config", "check"]).arg(&file).output().unwrap();
    let served = entresol().args(["serve", "--config"]).arg(&file).output();
    let refused = served.unwrap();
    assert_eq!(checked.status.code(), refused.status.code());
    assert_eq!(checked.stderr, refused.stderr, "both say the same");
    checked
}

#[test]
fn promises_that_the_machine_cannot_keep_are_refused_with_the_figure() {
    let tenant = |name: &str, more: &str| {
        format!(
            "[[tenant]]\nname = \"{name}\"\nlisten = \"127.0.0.1:0\"\n\
             medium = \"file:FOLDER/{name}\"\ndram_quota = \"64MiB\"\n{more}\n"
        )
    };
    let huge = "medium_quota = \"1TiB\"";
    let said = check(&format!("{}{}", tenant("a", huge), tenant("b", huge)));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("where") && said.contains("are free; lower medium_quota"), "{said}");

    let small = "medium_quota = \"256MiB\"\nclass = \"latency-critical\"\ntarget = \"p99 1ns\"";
    let said = check(&format!("[sharing]\npolicy = \"qos\"\n{}", tenant("a", small)));
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("cannot be answered within 1ns"), "{said}");
    assert!(said.contains("for one read, by the costs of"), "{said}");
}

/// Runs `entresol user` with a password on standard input.
fn user(arguments: &[&str], password: &str) -> Output {
    let mut command = entresol();
    command.arg("user").args(arguments);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A command that needs no password does not read it.
    let _ = child.stdin.take().unwrap().write_all(password.as_bytes());
    child.wait_with_output().unwrap()
}

/// Sends a request and returns the first line of the reply.
fn ask(stream: &mut BufReader<TcpStream>, request: &str) -> String {
    stream.get_mut().write_all(request.as_bytes()).unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).unwrap();
    line
}

#[test]
fn users_are_made_served_and_removed_without_a_configuration_file() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("users");
    let flag = ["--auth-file", file.to_str().unwrap()];
    let [add, remove] = ["add", "remove"].map(|it| [it, flag[0], flag[1], "ann"]);
    let added = user(&add, "one\n");
    assert!(added.status.success(), "{added:?}");
    assert!(!std::fs::read_to_string(&file).unwrap().contains("one"));
    for (arguments, password) in [
        (add, ""),
        (add, "two words\n"),
        (add, "two\nlines\n"),
        (["add", flag[0], flag[1], "a:b"], "one\n"),
        (["remove", flag[0], flag[1], "eve"], ""),
    ] {
        let refused = user(&arguments, password);
        assert_eq!(refused.status.code(), Some(2), "{arguments:?}");
        assert_eq!(String::from_utf8(refused.stderr).unwrap().lines().count(), 1);
    }

    let mut child = serve_with(folder.path(), &flag, Stdio::null());
    let ports = std::fs::read_to_string(folder.path().join("ports")).unwrap();
    let address = ports.split_whitespace().nth(1).unwrap();
    let mut client = BufReader::new(TcpStream::connect(address).unwrap());
    assert_eq!(ask(&mut client, "mn\r\n"), "CLIENT_ERROR unauthenticated\r\n");
    assert_eq!(ask(&mut client, "set a 0 0 7\r\nann one\r\n"), "STORED\r\n");
    assert_eq!(ask(&mut client, "mn\r\n"), "MN\r\n");
    assert!(user(&remove, "").status.success());
    signal(&child, Signal::HUP);
    assert_eq!(client.read_line(&mut String::new()).unwrap(), 0, "the server closes");
    signal(&child, Signal::TERM);
    assert_eq!(child.wait().unwrap().code(), Some(0));

    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let refused = entresol().arg("serve").args(flag).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains("chmod 600") && said.lines().count() == 1, "{said}");
}
