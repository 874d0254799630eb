//! Sharing through real sockets. Tests assert device time as the accounts count it, never the speed
//! of this machine.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_base::{Clock, SystemClock};
use entresol_media::{Account, Limit};
use entresol_server::Running;

use crate::support::{Client, address, eventually, settings, start, tenant};

const VALUE_BYTES: usize = 100_000;

/// Clients that ask for the same large value, or store it, until told to stop.
struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    fn start(running: &Running, name: &str, clients: usize, gets: bool) -> Load {
        let to = address(running, name);
        let stop = Arc::new(AtomicBool::new(false));
        let value = "v".repeat(VALUE_BYTES);
        let set = format!("set k 0 0 {VALUE_BYTES}\r\n{value}\r\n");
        let mut first = Client::to(to);
        first.send(set.as_bytes());
        first.expect("STORED\r\n");
        let (request, reply_bytes) = match gets {
            true => {
                ("get k\r\n".to_owned(), format!("VALUE k 0 {VALUE_BYTES}\r\n\r\nEND\r\n").len())
            }
            false => (set, "STORED\r\n".len()),
        };
        let reply_bytes = if gets { reply_bytes + VALUE_BYTES } else { reply_bytes };
        let client = |_| {
            let (stop, request) = (Arc::clone(&stop), request.clone());
            std::thread::spawn(move || {
                let Client(mut stream) = Client::to(to);
                let mut reply = vec![0; reply_bytes];
                while !stop.load(Ordering::Relaxed) {
                    // An end of the server ends the load as well.
                    if stream.write_all(request.as_bytes()).is_err()
                        || stream.read_exact(&mut reply).is_err()
                    {
                        return;
                    }
                }
            })
        };
        let threads = (0..clients).map(client).collect();
        Load { stop, threads }
    }

    fn end(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().unwrap();
        }
    }
}

fn account(running: &Running, name: &str) -> Arc<Account> {
    let tenants = running.tenants();
    let tenant = tenants.iter().find(|tenant| tenant.name() == name).unwrap();
    Arc::clone(tenant.cache().account())
}

/// The share of the medium's time that was used in a stretch of real time.
fn share_used(account: &Account, stretch: Duration) -> f64 {
    let clock = SystemClock::new();
    let (began, used) = (clock.now(), account.used_ns());
    std::thread::sleep(stretch);
    let used = account.used_ns() - used;
    used as f64 / clock.now().since(began).as_nanos() as f64
}

#[test]
fn a_limited_tenant_uses_its_share_and_a_changed_one_takes_effect_at_once() {
    let text = |share: &str| {
        let limited = tenant("limited", &format!("share_max = \"{share}\""));
        format!("{limited}{}[sharing]\npolicy = \"limit\"\n", tenant("free", ""))
    };
    let mut running = start(&text("0.2%"));
    let account = account(&running, "limited");
    let load = Load::start(&running, "limited", 8, true);
    eventually("the limit is set", || account.limit() == Limit::Share(0.002));
    // What it used before the limit was set is not held against it; what it owes since is.
    std::thread::sleep(Duration::from_millis(100));
    for (share, text) in [(0.002, text("0.2%")), (0.004, text("0.4%"))] {
        running.reload(settings(&text)).unwrap();
        eventually("the new limit is set", || account.limit() == Limit::Share(share));
        std::thread::sleep(Duration::from_millis(50));
        let stretch = Duration::from_millis(1500);
        // The burst of 10 ms, and one access that overdraws in each of two loops.
        let most = share * 1.03 + share * 0.010 / stretch.as_secs_f64();
        // A share that is not taken in time is gone: on a machine that has no time for the server
        // now it gets less. It never gets more.
        let uses_it = (0..40).any(|_| {
            let used = share_used(&account, stretch);
            assert!(used < most, "{used} of {share}");
            used > share * 0.97
        });
        assert!(uses_it, "never all of {share} within a minute");
    }
    running
        .reload(settings(
            &text("0.4%")
                .replace("[sharing]", "")
                .replace("policy = \"limit\"", "")
                .replace("share_max = \"0.4%\"", ""),
        ))
        .unwrap();
    eventually("without a policy there is no limit", || account.limit() == Limit::Unlimited);
    load.end();
    running.stop().unwrap();
}

#[test]
fn who_disturbs_a_broken_target_is_slowed_and_released_when_the_policy_goes() {
    // Nothing is answered within a nanosecond, so the target is broken whatever the machine.
    let critical = "class = \"latency-critical\"\ntarget = \"p99 1ns\"";
    let parameters = "watch_shortest = \"20ms\"\nwatch_longest = \"60ms\"";
    let text = format!(
        "{}{}[sharing]\npolicy = \"qos\"\n[sharing.parameters]\n{parameters}\n",
        tenant("critical", critical),
        tenant("writer", ""),
    );
    let mut running = start(&text);
    let (critical, writer) = (account(&running, "critical"), account(&running, "writer"));
    let reads = Load::start(&running, "critical", 1, true);
    let writes = Load::start(&running, "writer", 2, false);
    eventually("the writer is slowed", || matches!(writer.limit(), Limit::Share(_)));
    assert_eq!(critical.limit(), Limit::Unlimited);
    for _ in 0..50 {
        assert_ne!(writer.limit(), Limit::Stopped, "best-effort is slowed, not stopped for ever");
        std::thread::sleep(Duration::from_millis(5));
    }
    let none = format!("{}{}", tenant("critical", ""), tenant("writer", ""));
    running.reload(settings(&none)).unwrap();
    eventually("all are free", || writer.limit() == Limit::Unlimited);
    writes.end();
    reads.end();
    running.stop().unwrap();
}

#[test]
fn tenants_that_come_with_a_reload_are_limited_and_none_takes_over_anothers_limit() {
    let of = |names: &[(&str, &str)]| {
        let tenants: String = names
            .iter()
            .map(|(name, share)| tenant(name, &format!("share_max = \"{share}\"")))
            .collect();
        format!("{tenants}[sharing]\npolicy = \"limit\"\n")
    };
    let mut running = start(&of(&[("a", "10%"), ("b", "20%")]));
    eventually("b has its limit", || account(&running, "b").limit() == Limit::Share(0.2));
    running.reload(settings(&of(&[("c", "30%"), ("b", "20%"), ("d", "5%")]))).unwrap();
    eventually("c has its limit", || account(&running, "c").limit() == Limit::Share(0.3));
    eventually("d has its limit", || account(&running, "d").limit() == Limit::Share(0.05));
    assert_eq!(account(&running, "b").limit(), Limit::Share(0.2));
    let bad = of(&[("c", "30%"), ("b", "90%")]);
    let error = entresol_service::config::parse("bad.toml", &bad, &crate::support::MACHINE);
    assert!(error.unwrap_err().to_string().contains("add up to 120.0%"));
    running.stop().unwrap();
}

#[test]
fn many_waiting_connections_ask_as_seldom_as_one() {
    const CONNECTIONS: usize = 100;
    let text = format!(
        "threads = 1\n{}{}[sharing]\npolicy = \"limit\"\n",
        tenant("fast", ""),
        tenant("stopped", "share_max = \"0%\""),
    );
    let running = start(&text);
    let stopped = account(&running, "stopped");
    eventually("it is stopped", || stopped.limit() == Limit::Stopped);
    let mut waiting: Vec<Client> =
        (0..CONNECTIONS).map(|_| Client::of(&running, "stopped")).collect();
    waiting.iter_mut().for_each(|client| client.send(b"get k\r\n"));
    let tenant = Arc::clone(&running.tenants()[1]);
    eventually("all wait", || tenant.counts().throttled == CONNECTIONS as u64);
    let refusals = tenant.counts().account_refusals;
    let clock = SystemClock::new();
    let began = clock.now();
    let mut fast = Client::of(&running, "fast");
    for _ in 0..2000 {
        fast.ask("set a 0 0 1\nb\nget a\n", "STORED\nVALUE a 0 1\nb\nEND\n");
    }
    let refused = tenant.counts().account_refusals - refusals;
    // One question in 50 ms, whatever the number of connections and of the others' requests.
    let most = clock.now().since(began).as_millis() as u64 / 50 + 2;
    assert!(refused <= most, "{refused} questions, at most {most}");
    stopped.set_limit(Limit::Unlimited);
    waiting.iter_mut().for_each(|client| client.expect("END\r\n"));
    assert_eq!(tenant.counts().throttled, CONNECTIONS as u64);
    running.stop().unwrap();
}

#[test]
fn waiting_connections_that_close_are_forgotten() {
    let text = format!(
        "threads = 1\n{}[sharing]\npolicy = \"limit\"\n",
        tenant("stopped", "share_max = \"0%\"")
    );
    let running = start(&text);
    let stopped = account(&running, "stopped");
    eventually("it is stopped", || stopped.limit() == Limit::Stopped);
    for _ in 0..50 {
        Client::of(&running, "stopped").send(b"get k\r\n");
    }
    let mut last = Client::of(&running, "stopped");
    last.send(b"get k\r\n");
    eventually("all wait", || running.tenants()[0].counts().throttled == 51);
    stopped.set_limit(Limit::Unlimited);
    last.expect("END\r\n");
    eventually("the closed ones are gone", || running.tenants()[0].connections() == 1);
    running.stop().unwrap();
}

#[test]
fn who_gives_up_waiting_makes_room_for_who_comes_and_is_served_after_who_stays() {
    let text = format!(
        "threads = 1\n{}[sharing]\npolicy = \"limit\"\n",
        tenant("stopped", "connections = 10\nshare_max = \"0%\"")
    );
    let running = start(&text);
    let stopped = account(&running, "stopped");
    eventually("it is stopped", || stopped.limit() == Limit::Stopped);
    let tenant = Arc::clone(&running.tenants()[0]);
    for given_up in 1..=50 {
        Client::of(&running, "stopped").send(b"get k\r\n");
        eventually("it waits", || tenant.counts().throttled == given_up);
    }
    let mut last = Client::of(&running, "stopped");
    last.send(b"get k\r\n");
    eventually("it waits", || tenant.counts().throttled == 51);
    assert_eq!(tenant.counts().rejected_connections, 0);
    // No client waits for long behind those that left.
    eventually("they are gone", || tenant.connections() == 1);
    stopped.set_limit(Limit::Unlimited);
    last.expect("END\r\n");
    running.stop().unwrap();
}

#[test]
fn tenants_on_one_device_are_charged_by_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let rates = entresol_media::cost::MediumRates {
        reads_s: 1e5,
        read_bytes_s: 1e9,
        writes_s: 1e5,
        written_bytes_s: 1e9,
    };
    let table = entresol_media::CostTable::from_rates("one drive", rates);
    table.save(std::path::Path::new(&path("table"))).unwrap();
    let on = |name: &str, more: &str| {
        let medium = format!("medium = \"file:{}\"\nmedium_quota = \"32MiB\"", path(name));
        tenant(name, &format!("{medium}\n{more}"))
    };
    let text = on("a", &format!("cost_table = \"{}\"", path("table"))) + &on("b", "");
    let running = start(&(text + &tenant("c", "")));
    let charged_by = |name| account(&running, name).costs().source().medium.clone();
    assert_eq!((charged_by("a"), charged_by("b")), ("one drive".into(), "one drive".into()));
    assert_ne!(charged_by("c"), "one drive");
    assert_eq!(running.settings().sharing.media.len(), 2);
    running.stop().unwrap();
}
