//! Clients that must authenticate.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::ManualClock;
use entresol_server::Running;
use entresol_service::auth;
use entresol_service::config::{self, Settings};

use crate::support::{Client, MACHINE, eventually, start, tenant};

/// Settings with a file of users, which is read as when a server starts.
pub(crate) fn settings(users: &Path, text: &str) -> Settings {
    let text = format!("threads = 2\nadmin = \"off\"\nauth_file = \"{}\"\n{text}", users.display());
    config::parse_with("test", &text, &MACHINE, |_| {}).unwrap()
}

pub(crate) fn guarded(users: &Path, text: &str) -> Running {
    let clock = Arc::new(entresol_base::SystemClock::new());
    entresol_server::start(settings(users, text), clock).unwrap()
}

/// A file with one user, `foo` with the password `bar`.
pub(crate) fn file_of_foo(tenant: Option<&str>) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("users");
    auth::add(&path, "foo", b"bar", tenant).unwrap();
    (folder, path)
}

const RIGHT: &str = "set auth 0 0 7\nfoo bar\n";

#[test]
fn a_client_speaks_once_it_has_sent_its_password_as_with_memcached() {
    let (_folder, path) = file_of_foo(None);
    let running = guarded(&path, &tenant("a", ""));
    let mut client = Client::of(&running, "a");
    client.ask("set foo 0 0 2\nhi\n", "CLIENT_ERROR bad authentication token format\n");
    client.ask("get foo\n", "CLIENT_ERROR unauthenticated\n");
    client.ask("set foo 0 0 7\nfoo bab\n", "CLIENT_ERROR authentication failure\n");
    client.ask("set foo 0 0 7\nfob bar\n", "CLIENT_ERROR authentication failure\n");
    client.ask(RIGHT, "STORED\n");
    client.ask("set toast 0 0 2\nhi\nget toast\n", "STORED\nVALUE toast 0 2\nhi\nEND\n");
    client.ask("get foo\nget auth\n", "END\nEND\n");
    // From now on it is known without being verified again, and what follows need not wait.
    let mut second = Client::of(&running, "a");
    second.ask(&format!("{RIGHT}get toast\n"), "STORED\nVALUE toast 0 2\nhi\nEND\n");
    let counts = running.tenants()[0].counts();
    assert_eq!((counts.auth_cmds, counts.auth_errors), (4, 2));
    client.send(b"stats settings\r\nquit\r\n");
    assert!(client.rest().contains("STAT auth_enabled_ascii yes\r\n"));
    running.stop().unwrap();
}

#[test]
fn a_password_may_arrive_in_portions() {
    let (_folder, path) = file_of_foo(None);
    let running = guarded(&path, &tenant("a", ""));
    let mut client = Client::of(&running, "a");
    client.ask("get k\n", "CLIENT_ERROR unauthenticated\n");
    for byte in RIGHT.replace('\n', "\r\n").bytes() {
        client.send(&[byte]);
        // Another client's reply shows that the loops have gone round.
        Client::of(&running, "a").ask("mn\n", "CLIENT_ERROR unauthenticated\n");
    }
    client.expect("STORED\r\n");
    client.ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn what_a_client_sends_behind_its_password_is_executed_once_that_is_verified() {
    let (_folder, path) = file_of_foo(None);
    let running = guarded(&path, &tenant("a", ""));
    let mut client = Client::of(&running, "a");
    let many = "mn\n".repeat(20_000);
    client.ask(&format!("{RIGHT}{many}"), &format!("STORED\n{}", "MN\n".repeat(20_000)));
    // One that goes away without an answer harms no other.
    Client::of(&running, "a").send(b"set k 0 0 7\r\nfoo baz\r\n");
    Client::of(&running, "a").ask(RIGHT, "STORED\n");
    running.stop().unwrap();
}

#[test]
fn users_have_tenants_behind_one_listener() {
    let (_folder, path) = file_of_foo(Some("a"));
    auth::add(&path, "bob", b"two", Some("b")).unwrap();
    let unreachable = "[[tenant]]\nname = \"b\"\ndram_quota = \"32MiB\"\nconnections = 1\n";
    let running = guarded(&path, &format!("{}{unreachable}", tenant("a", "")));
    let (mut foo, mut bob) = (Client::of(&running, "a"), Client::of(&running, "a"));
    foo.ask(RIGHT, "STORED\n");
    bob.ask("set auth 0 0 7\nbob two\n", "STORED\n");
    foo.ask("set k 0 0 1\nf\n", "STORED\n");
    bob.ask("get k\nset k 0 0 1\nb\n", "END\nSTORED\n");
    foo.ask("get k\n", "VALUE k 0 1\nf\nEND\n");
    let connections = || running.tenants().iter().map(|it| it.connections()).collect::<Vec<_>>();
    assert_eq!(connections(), [1, 1]);
    let mut third = Client::of(&running, "a");
    third.send(b"set auth 0 0 7\r\nbob two\r\n");
    assert_eq!(third.rest(), "ERROR Too many open connections\r\n");
    drop(bob);
    eventually("the connection is no longer counted", || connections() == [1, 0]);
    running.stop().unwrap();
}

#[test]
fn a_reload_closes_the_connections_of_users_that_it_removes_or_changes() {
    let (_folder, path) = file_of_foo(None);
    for name in ["stays", "changes", "goes"] {
        auth::add(&path, name, b"bar", None).unwrap();
    }
    let running_settings = || settings(&path, &tenant("a", ""));
    let mut running = guarded(&path, &tenant("a", ""));
    let password = |name: &str| format!("set auth 0 0 {}\n{name} bar\n", name.len() + 4);
    let enter = |name: &str| {
        let mut client = Client::of(&running, "a");
        client.ask(&password(name), "STORED\n");
        client
    };
    let (mut stays, mut changes) = (enter("stays"), enter("changes"));
    let mut goes: Vec<_> = (0..100).map(|_| enter("goes")).collect();
    let mut stranger = Client::of(&running, "a");
    stranger.ask("mn\n", "CLIENT_ERROR unauthenticated\n");
    auth::add(&path, "changes", b"new", None).unwrap();
    auth::remove(&path, "goes").unwrap();
    running.reload(running_settings()).unwrap();
    assert_eq!(changes.rest(), "");
    for client in &mut goes {
        assert_eq!(client.rest(), "");
    }
    stays.ask("mn\n", "MN\n");
    stranger.ask(&password("goes"), "CLIENT_ERROR authentication failure\n");
    stranger.ask(&password("changes"), "CLIENT_ERROR authentication failure\n");
    stranger.ask("set auth 0 0 11\nchanges new\n", "STORED\n");
    let open = crate::support::settings(&tenant("a", ""));
    let error = running.reload(open).unwrap_err().to_string();
    assert!(error.contains("auth_file cannot change"), "{error}");
    running.stop().unwrap();
}

#[test]
fn a_client_that_does_not_authenticate_in_time_is_closed() {
    let (_folder, path) = file_of_foo(None);
    let clock = Arc::new(ManualClock::default());
    let text = format!("[limits]\nauth_time = \"10s\"\n{}", tenant("a", ""));
    let running = entresol_server::start(settings(&path, &text), clock.clone()).unwrap();
    let mut known = Client::of(&running, "a");
    known.ask(RIGHT, "STORED\n");
    let mut silent = Client::of(&running, "a");
    silent.ask("mn\n", "CLIENT_ERROR unauthenticated\n");
    let mut half = Client::of(&running, "a");
    half.ask("mn\nset auth 0 0 7\nfo", "CLIENT_ERROR unauthenticated\n");
    clock.advance(Duration::from_secs(9));
    known.ask("mn\n", "MN\n");
    silent.ask("mn\n", "CLIENT_ERROR unauthenticated\n");
    clock.advance(Duration::from_secs(3));
    for client in [&mut silent, &mut half] {
        // Its loop looks at the clock when something happens.
        eventually("it is closed", || {
            Client::of(&running, "a").ask(RIGHT, "STORED\n");
            client.0.set_nonblocking(true).unwrap();
            let ended = client.0.peek(&mut [0; 100]).is_ok();
            client.0.set_nonblocking(false).unwrap();
            ended
        });
        assert_eq!(client.rest(), "CLIENT_ERROR unauthenticated\r\n");
    }
    known.ask("mn\n", "MN\n");
    running.stop().unwrap();
}

#[test]
fn a_configuration_whose_users_have_no_tenant_is_refused() {
    let (_folder, path) = file_of_foo(None);
    let parse = |tenants: &str| {
        let text = format!("auth_file = \"{}\"\nadmin = \"off\"\n{tenants}", path.display());
        config::parse_with("test", &text, &MACHINE, |_| {}).unwrap_err().to_string()
    };
    let both = format!("{}{}", tenant("a", ""), tenant("b", ""));
    let error = parse(&both);
    assert!(error.contains("user 'foo' names no tenant") && error.contains("test:1"), "{error}");
    auth::add(&path, "foo", b"bar", Some("c")).unwrap();
    let error = parse(&both);
    assert!(error.contains("the tenant 'c', which there is not"), "{error}");
    let error = parse("[[tenant]]\nname = \"c\"\n");
    assert!(error.contains("no tenant has a listener"), "{error}");
    entresol_media::files::set_mode(&path, 0o644).unwrap();
    let error = parse(&tenant("c", ""));
    assert!(error.contains("chmod 600"), "{error}");
    entresol_media::files::remove(&path).unwrap();
    assert!(parse(&tenant("c", "")).contains("users"), "{error}");
    // Without a file, no client must authenticate.
    start(&tenant("a", "")).stop().unwrap();
}
