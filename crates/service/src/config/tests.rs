//! Valid configurations, and every way in which one can be invalid.

use std::path::PathBuf;
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_cache::Favour;
use entresol_media::MediumSpec;

use super::locate::{GROUP_KEYS, LIMITS_KEYS, PARAMETER_KEYS, SHARING_KEYS, TENANT_KEYS, TOP_KEYS};
use super::*;

const MACHINE: Machine = Machine { memory: ByteSize::gib(16), processors: 2 };

const SMALLEST: &str = "[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:11211\"\n";

/// Keys that the tests of sharing are about.
const SHARED: [&str; 2] = ["sharing", "group"];

/// Asserts that the text is refused with exactly this problem.
fn refused(text: &str, problem: &str) {
    let error = parse("server.toml", text, &MACHINE).expect_err(text);
    assert_eq!(error.to_string(), problem, "{text}");
}

/// The smallest tenant with `line` behind it, at line 4.
fn tenant_refused(line: &str, problem: &str) {
    refused(&format!("{SMALLEST}{line}\n"), problem);
}

#[test]
fn the_smallest_file_has_defaults() {
    let settings = parse("server.toml", SMALLEST, &MACHINE).unwrap();
    assert_eq!(settings.threads, 2);
    assert_eq!(settings.admin, Some(AdminAddress("127.0.0.1:11280".parse().unwrap())));
    assert_eq!(settings.slow_log, None);
    let tenant = &settings.tenants[0];
    assert_eq!(tenant.medium, MediumSpec::Dram);
    assert_eq!(tenant.dram_quota, ByteSize::mib(64));
    assert_eq!(tenant.value_limit, None);
    assert_eq!(tenant.connections, 1024);
}

#[test]
fn every_key_is_read() {
    let text = r#"
threads = 3
admin = "off"
slow_log = "20ms"
drain_time = "1s"
restart_from = "/var/lib/entresol"
huge_pages = false
io_backend = "threads"
allow_remote = true
admin_token_file = "/etc/entresol/token"
auth_file = "/etc/entresol/users"

[limits]
auth_time = "3s"
request_line = 4096
multiget_line = "128KiB"
output = "2MiB"
requests_per_turn = 100
pending_reads = 10
buffers = "64MiB"
idle_time = "5m"
progress_time = "30s"

[[tenant]]
name = "alpha"
listen = ["0.0.0.0:11211", "[::1]:11212"]
tls_listen = "0.0.0.0:11213"
tls_certificate = "/etc/entresol/server.pem"
tls_key = "/etc/entresol/server.key"
tls_client_ca = "/etc/entresol/clients.pem"
tls_certificate_user = true
unix_socket = "/run/alpha.sock"
unix_socket_mode = "770"
connections = 10
medium = "file:/mnt/ssd/alpha,model=qlc-5210"
dram_quota = "32MiB"
medium_quota = "1GiB"
segment_size = "2MiB"
value_limit = "1MiB"
favour = "bytes"
cost_table = "/mnt/ssd/alpha.costs.json"
device = "ssd0"
requests_max = 100000
keys_max = 3000000
list_keys = 5000
cluster = ["one:11211"]
cluster_version = 2
"#;
    let settings = parse("server.toml", text, &MACHINE).unwrap();
    assert_eq!((settings.threads, settings.admin, settings.huge_pages), (3, None, false));
    assert_eq!(settings.slow_log, Some(Duration::from_millis(20)));
    assert_eq!(settings.limits.request_line_bytes, 4096);
    assert_eq!(settings.limits.auth_time, Duration::from_secs(3));
    assert_eq!(settings.auth.as_ref().unwrap().file, PathBuf::from("/etc/entresol/users"));
    assert_eq!(settings.limits.idle_time, Duration::from_secs(300));
    let tenant = &settings.tenants[0];
    assert_eq!(tenant.listen.len(), 2);
    let tls = tenant.tls.as_ref().unwrap();
    assert_eq!((tls.listen.len(), tls.certificate_user), (1, true));
    assert_eq!(tls.certificate, PathBuf::from("/etc/entresol/server.pem"));
    assert_eq!(tls.key, PathBuf::from("/etc/entresol/server.key"));
    assert_eq!(tls.client_ca, Some(PathBuf::from("/etc/entresol/clients.pem")));
    assert_eq!(tenant.unix_socket_mode, 0o770);
    assert_eq!(tenant.favour, Favour::Bytes);
    assert_eq!(tenant.medium_quota, ByteSize::gib(1));
    assert_eq!((tenant.requests_per_second, tenant.keys_listed_per_second), (100_000, 5000));
    assert_eq!(tenant.keys_max, 3_000_000);
    assert_eq!(tenant.cluster.as_deref(), Some("2\none||11211\n"));
    assert_eq!(tenant.cost_table, Some(PathBuf::from("/mnt/ssd/alpha.costs.json")));
    assert_eq!(settings.sharing.media, ["ssd0"]);
    let cache = tenant.cache(&settings);
    assert_eq!(cache.restart_dir, Some(PathBuf::from("/var/lib/entresol/alpha")));
    for key in TOP_KEYS.iter().chain(&LIMITS_KEYS).chain(&TENANT_KEYS) {
        let elsewhere = SHARED.contains(key) || GROUP_KEYS.contains(key);
        assert!(elsewhere || text.contains(key), "{key} is known but not in this test");
    }
}

#[test]
fn unknown_keys_are_refused_with_their_line_and_the_nearest_name() {
    refused(
        &format!("thread = 2\n{SMALLEST}"),
        "server.toml:1: unknown key 'thread' at the top of the file; did you mean 'threads'?",
    );
    tenant_refused(
        "medum = \"dram\"",
        "server.toml:4: unknown key 'medum' in [[tenant]]; did you mean 'medium'?",
    );
    refused(
        &format!("[limits]\nidle_tme = \"1s\"\n{SMALLEST}"),
        "server.toml:2: unknown key 'idle_tme' in [limits]; did you mean 'idle_time'?",
    );
    refused(
        &format!("{SMALLEST}[[tenant]]\nxyzzy = 1\n"),
        &format!(
            "server.toml:5: unknown key 'xyzzy' in [[tenant]]; the keys are {}",
            TENANT_KEYS.join(", ")
        ),
    );
}

#[test]
fn values_that_make_no_sense_are_refused_with_their_line() {
    tenant_refused(
        "dram_quota = \"12 parsecs\"",
        "server.toml:4: dram_quota: '12 parsecs' is not a size: write a whole number of bytes, or \
         one with KiB, MiB, GiB or TiB behind (64MiB)",
    );
    tenant_refused(
        "connections = 0",
        "server.toml:4: connections is 0; it must be from 1 to 1000000",
    );
    tenant_refused(
        "favour = \"byte\"",
        "server.toml:4: favour is 'byte'; it must be one of objects, bytes; did you mean 'bytes'?",
    );
    tenant_refused(
        "eviction = \"merge\"",
        "server.toml:4: unknown key 'eviction' in [[tenant]]; it was removed, there is one policy: \
         delete it, or choose by 'favour' between objects and bytes",
    );
    tenant_refused(
        "segment_size = \"1MiB\"\nvalue_limit = \"1025MiB\"",
        "server.toml:5: value_limit is 1025MiB; it must be from 1B to 1GiB: no value may be larger",
    );
    tenant_refused(
        "medium = \"model:optane-ssd\"\nmedium_quota = \"64MiB\"",
        "server.toml:4: medium model:optane-ssd is simulated in virtual time and stores nothing; \
         write file:PATH,model=optane-ssd for a file slowed down to that drive",
    );
    tenant_refused(
        "medium = \"model:aep\"",
        "server.toml:4: medium model:aep is simulated in virtual time and stores nothing; write \
         dram, or pmem:PATH,assume-dax for emulated persistent memory",
    );
    tenant_refused(
        "medium = \"file:/mnt/ssd\"",
        "server.toml:1: medium file:/mnt/ssd needs medium_quota: how much of it to use",
    );
    tenant_refused(
        "unix_socket_mode = \"rwx\"",
        "server.toml:4: unix_socket_mode is 'rwx'; write three octal digits, such as 700",
    );
    tenant_refused(
        "dram_quota = \"64GiB\"",
        "server.toml:4: the tenants' DRAM quotas add up to 64GiB, but the machine has 16GiB of \
         memory; lower dram_quota",
    );
}

#[test]
fn types_and_grammar_are_checked_with_their_line() {
    for (line, part) in [
        ("connections = \"many\"", "server.toml:4: "),
        ("connections = ", "server.toml:4: "),
        ("name = \"b\"", "server.toml:4: "),
    ] {
        let text = format!("{SMALLEST}{line}\n");
        let error = parse("server.toml", &text, &MACHINE).expect_err(line).to_string();
        assert!(error.starts_with(part), "{line}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn tenants_do_not_share_names_listeners_or_files() {
    let two = |second: &str| format!("{SMALLEST}[[tenant]]\n{second}");
    refused(
        &two("name = \"a\"\nlisten = \"127.0.0.1:11212\"\n"),
        "server.toml:5: two tenants have the name 'a'; rename one",
    );
    refused(
        &two("name = \"b\"\nlisten = \"127.0.0.1:11211\"\n"),
        "server.toml:6: tenants 'a' and 'b' both listen on 127.0.0.1:11211; change one",
    );
    refused(
        &two("name = \"b\"\nlisten = \"127.0.0.1:11280\"\n"),
        "server.toml:6: tenant 'b' and the admin listener both listen on 127.0.0.1:11280; change \
         one",
    );
    let on_file = "medium = \"file:/mnt/f\"\nmedium_quota = \"64MiB\"\n";
    refused(
        &format!(
            "{SMALLEST}{on_file}[[tenant]]\nname = \"b\"\nlisten = \"127.0.0.1:1\"\n{on_file}"
        ),
        "server.toml:9: tenants 'a' and 'b' both keep values on /mnt/f; give each a file of its \
         own",
    );
}

#[test]
fn the_network_is_refused_unless_allowed_in_so_many_words() {
    let text = "[[tenant]]\nname = \"a\"\nlisten = \"0.0.0.0:11211\"\n";
    refused(
        text,
        "server.toml:3: 0.0.0.0:11211 is reachable from other machines and asks for no password; \
         listen on 127.0.0.1, set auth_file at the top, or set allow_remote = true there if the \
         network is trusted",
    );
    parse("server.toml", &format!("auth_file = \"users\"\n{text}"), &MACHINE).unwrap();
    let admin = format!("admin = \"0.0.0.0:11280\"\n{SMALLEST}");
    refused(
        &format!("allow_remote = true\n{admin}"),
        "server.toml:2: 0.0.0.0:11280 is reachable from other machines and asks for no token; use \
         127.0.0.1, or set admin_token_file at the top",
    );
    parse("server.toml", &format!("admin_token_file = \"token\"\n{admin}"), &MACHINE).unwrap();
    parse("server.toml", &format!("allow_remote = true\n{text}"), &MACHINE).unwrap();
}

#[test]
fn nothing_is_configured_without_tenants_names_and_listeners() {
    refused("", "server.toml: no tenant is configured; add a [[tenant]] with name and listen");
    refused(
        "[[tenant]]\nlisten = \"127.0.0.1:1\"\n",
        "server.toml:1: a tenant has no name; add name = \"...\"",
    );
    refused(
        "[[tenant]]\nname = \"a\"\n",
        "server.toml:1: a tenant has no listener; add listen = \"127.0.0.1:PORT\" or unix_socket \
         = \"PATH\"",
    );
}

#[test]
fn all_problems_are_told_at_once() {
    let text = format!("{SMALLEST}connections = 0\nfavour = \"none\"\n");
    let error = parse("server.toml", &text, &MACHINE).unwrap_err();
    assert_eq!(error.problems.len(), 2, "{error}");
}

mod sharing {
    use super::*;
    use entresol_sharing::settings::{
        Donation, Enforcement, EpochSettings, Expense, LimitSettings, Metric, Pace,
    };
    use entresol_sharing::{Class, PolicySettings, Target};

    /// Two tenants in DRAM at lines 1 and 5, with `more` in the first one's table at line 4, and
    /// `end` behind both.
    fn two(more: &str, end: &str) -> String {
        format!("{SMALLEST}{more}\n[[tenant]]\nname = \"b\"\nlisten = \"127.0.0.1:1\"\n{end}\n")
    }

    fn of(text: &str) -> entresol_sharing::Settings {
        parse("server.toml", text, &MACHINE).expect(text).sharing
    }

    #[test]
    fn nothing_said_is_no_policy() {
        let sharing = of(&two("", ""));
        assert_eq!(sharing.policy, PolicySettings::None);
        assert_eq!((sharing.media, sharing.tenants.len()), (vec!["dram".to_owned()], 2));
    }

    #[test]
    fn a_share_is_of_the_medium_that_its_tenant_is_on() {
        let text = two(
            "share_max = \"12.5%\"\nmedium = \"file:/ssd/a,model=nand-p3700\"\nmedium_quota = \"1GiB\"",
            "[sharing]\npolicy = \"limit\"",
        );
        let sharing = of(&text);
        assert_eq!(sharing.media, ["dram", "file:/ssd,model=nand-p3700"]);
        assert_eq!(sharing.tenants[0].share_max, [None, Some(0.125)]);
        assert_eq!(sharing.tenants[1].share_max, [None, None]);
        assert_eq!(sharing.policy, PolicySettings::Limit(LimitSettings::default()));
    }

    #[test]
    fn files_of_one_device_share_one_medium() {
        let on = |name: &str, port: u32, medium: &str, device: &str| {
            format!(
                "[[tenant]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\nmedium = \
                 \"file:{medium}\"\nmedium_quota = \"1GiB\"\n{device}\n"
            )
        };
        let media = |text: String| of(&text).media;
        let same = on("a", 1, "/ssd/a", "") + &on("b", 2, "/ssd/b", "");
        assert_eq!(media(same), ["file:/ssd"]);
        let two = on("a", 1, "/ssd/a", "") + &on("b", 2, "/ssd2/b", "");
        assert_eq!(media(two), ["file:/ssd", "file:/ssd2"]);
        let device = "device = \"nvme0\"";
        let told = on("a", 1, "/ssd/a", device) + &on("b", 2, "/ssd2/b", device);
        assert_eq!(media(told), ["nvme0"]);
    }

    #[test]
    fn promises_and_groups_are_read() {
        let text = two(
            "class = \"latency-critical\"\ntarget = \"p99.9 1500us\"\nweight = 2\ngroup = \"front\"",
            "group = \"back\"\nbytes_s_max = \"64MiB\"\n[sharing]\npolicy = \"fair\"\ndecisions_max = 9\n\
             [[group]]\nname = \"front\"\npolicy = \"qos\"\nweight = 1.5\nslowdown_max = 1.2\n\
             [[group]]\nname = \"back\"\npolicy = \"bandwidth\"\n[group.parameters]\ntick = \"5ms\"",
        );
        let sharing = of(&text);
        let (first, second) = (&sharing.tenants[0], &sharing.tenants[1]);
        assert_eq!(first.class, Class::LatencyCritical);
        let target = Target { percent: 99.9, latency: Duration::from_micros(1500) };
        assert_eq!((first.target, first.weight), (Some(target), 2.0));
        assert_eq!(
            (first.group.as_deref(), second.group.as_deref()),
            (Some("front"), Some("back"))
        );
        assert_eq!(second.bytes_s_max, Some(64.0 * 1024.0 * 1024.0));
        assert_eq!((sharing.policy.name(), sharing.decisions_max), ("fair", 9));
        assert_eq!(sharing.groups[0].whole.slowdown_max, Some(1.2));
        assert_eq!(sharing.groups[0].whole.weight, 1.5);
        let PolicySettings::Bandwidth(bandwidth) = &sharing.groups[1].policy else {
            panic!("{:?}", sharing.groups[1].policy)
        };
        assert_eq!(bandwidth.tick, Duration::from_millis(5));
    }

    fn with(policy: &str, parameters: &str) -> String {
        let target = "class = \"latency-critical\"\ntarget = \"p99 1ms\"";
        let promise = if policy == "qos" || policy == "caladan" { target } else { "" };
        let end = format!("[sharing]\npolicy = \"{policy}\"\n[sharing.parameters]\n{parameters}");
        two(promise, &end)
    }

    #[test]
    fn every_parameter_is_read() {
        let epochs = "enforcement = \"epochs\"\nepoch_tick = \"20ms\"\nepoch_ticks = 50";
        let alone = "alone_period = \"2s\"\npause = \"2ms\"\npause_requests_min = 16\n\
                     pause_max = \"4ms\"\nload_change = \"50%\"";
        let qos = "tick = \"5ms\"\nwatch_shortest = \"50ms\"\nwatch_longest = \"1s\"\n\
                   watch_tail_min = 200\npace = \"published\"\nexpense = \"64MiB\"\n\
                   metric = \"p99.9\"\ncandidates_max = 5\nslack_min = \"30%\"\n\
                   share_min = \"1%\"\npatience_max = \"60s\"";
        let fair = "tick = \"5ms\"\ninterval = \"200ms\"\nmetric = \"mean\"\n\
                    unfairness_max = 1.1\nrounds = 20\nequalise = false\nmargin = \"10%\"\n\
                    share_min = \"1%\"\npatience_max = \"60s\"";
        let shares = "tick = \"5ms\"\nperiod = \"100ms\"\ndonation = \"15%\"\n\
                      metric = \"throughput\"\nmargin = \"10%\"";
        let (fair, shares) = (format!("{fair}\n{alone}"), format!("{shares}\n{epochs}\n{alone}"));
        let all = [qos, &fair, &shares].concat();
        for key in PARAMETER_KEYS {
            let written = all.contains(&format!("{key} ="));
            assert!(written, "{key} is known but not in this test");
        }
        for key in SHARING_KEYS {
            assert!(["policy", "parameters", "decisions_max"].contains(&key), "{key}");
        }
        let held =
            Enforcement::Epochs(EpochSettings { tick: Duration::from_millis(20), ticks: 50 });
        let PolicySettings::Limit(limit) = of(&with("limit", epochs)).policy else { panic!() };
        assert_eq!(limit.enforcement, held);
        let PolicySettings::Qos(qos) = of(&with("qos", qos)).policy else { panic!() };
        assert_eq!((qos.pace, qos.expense), (Pace::Published, Expense::Bytes(67_108_864.0)));
        assert_eq!((qos.metric, qos.candidates_max), (Some(Metric::Percentile(99.9)), 5));
        assert_eq!((qos.slack_min, qos.share_min), (0.3, 0.01));
        assert_eq!((qos.watch.shortest.as_millis(), qos.watch.tail_min), (50, 200));
        assert_eq!((qos.watch.longest.as_secs(), qos.patience_max.as_secs()), (1, 60));
        let PolicySettings::Fair(fair) = of(&with("fair", &fair)).policy else { panic!() };
        assert_eq!((fair.metric, fair.rounds, fair.equalise), (Metric::Mean, 20, false));
        assert_eq!((fair.unfairness_max, fair.margin, fair.share_min), (1.1, 0.1, 0.01));
        assert_eq!((fair.alone.operations_min, fair.alone.change), (16, 0.5));
        let PolicySettings::Proportional(shares) = of(&with("proportional", &shares)).policy else {
            panic!()
        };
        assert_eq!((shares.enforcement, shares.donation), (held, Donation::Steps(0.15)));
        assert_eq!((shares.alone.pause.as_millis(), shares.alone.pause_max.as_millis()), (2, 4));
        assert_eq!((shares.period.as_millis(), shares.alone.period.as_secs()), (100, 2));
        let PolicySettings::Qos(qos) = of(&with("qos", "expense = \"5%\"")).policy else {
            panic!()
        };
        assert_eq!(qos.expense, Expense::Share(0.05));
    }

    #[test]
    fn what_cannot_be_shared_so_is_refused_with_its_line() {
        let limit = "[sharing]\npolicy = \"limit\"";
        refused(
            &two("share_max = \"70%\"", &format!("share_max = \"40%\"\n{limit}")),
            "server.toml:8: the shares of dram add up to 110.0%; lower them to 100% in all",
        );
        refused(
            &two("share_max = \"120%\"", limit),
            "server.toml:4: tenant 'a': a share of 120.0% is invalid; write 0% to 100%\n\
             server.toml:4: the shares of dram add up to 120.0%; lower them to 100% in all",
        );
        let best_effort = two("target = \"p99 1ms\"", "[sharing]\npolicy = \"qos\"");
        refused(
            &best_effort,
            "server.toml:4: tenant 'a': a best-effort tenant has no target; make it \
             latency-critical, or remove the target\n\
             server.toml:9: policy 'qos': no tenant has a target to keep; give a latency-critical \
             tenant a target, or choose another policy",
        );
        refused(
            &two("", "[sharing]\npolicy = \"limt\""),
            "server.toml:9: there is no policy 'limt': did you mean 'limit'?",
        );
        refused(
            &two("share_max = \"10%\"", ""),
            "server.toml:4: tenant 'a': has a share_max, which policy 'none' does not use; choose \
             policy 'limit', or remove it",
        );
        refused(
            &two("group = \"frnt\"", "group = \"front\"\n[[group]]\nname = \"front\""),
            "server.toml:4: tenant 'a': there is no group 'frnt'; did you mean 'front'?",
        );
    }

    #[test]
    fn a_key_that_is_there_twice_is_named() {
        refused(
            &format!("{SMALLEST}weight = 1\nweight = 2\n"),
            "server.toml:5: weight: duplicate key; the key is given twice; remove one",
        );
    }

    #[test]
    fn words_and_numbers_that_make_no_sense_are_refused_with_their_line() {
        for (line, problem) in [
            ("share_max = \"10\"", "share_max is '10'; write a part of the whole as \"10%\""),
            (
                "share_max = 10",
                "share_max: invalid type: integer `10`, expected a string; write it in quotes, with its unit: \"10%\", \"10ms\"",
            ),
            (
                "weight = \"2\"",
                "weight: invalid type: string \"2\", expected f64; write a number, without quotes",
            ),
            (
                "bytes_s_max = -1",
                "bytes_s_max is not a size; write whole bytes (1048576), or a size in quotes (\"1MiB\")",
            ),
            (
                "target = \"p99 2\"",
                "target is 'p99 2'; write a percentile and a time, such as \"p99 2ms\" or \"p99.9 10ms\"",
            ),
            (
                "class = \"critical\"",
                "class is 'critical'; it must be one of latency-critical, best-effort",
            ),
            (
                "target = \"2ms\"",
                "target is '2ms'; write a percentile and a time, such as \"p99 2ms\" or \"p99.9 10ms\"",
            ),
        ] {
            refused(&two(line, ""), &format!("server.toml:4: {problem}"));
        }
        for (policy, line, problem) in [
            ("limit", "tick = \"1ms\"", "policy 'limit' has no parameter tick; remove it"),
            (
                "limit",
                "epoch_ticks = 5",
                "only enforcement = \"epochs\" has this parameter; add that, or remove this",
            ),
            (
                "fair",
                "metric = \"men\"",
                "metric is 'men'; it must be one of throughput, mean, p99; did you mean 'mean'?",
            ),
            (
                "fair",
                "unfairness_max = 0.5",
                "policy 'fair': unfairness_max is 0.5; write a number above 1; 1.05 is usual",
            ),
            (
                "fair",
                "pause = \"6ms\"",
                "policy 'fair': a pause lasts from pause to pause_max; write 1ms and 5ms",
            ),
            (
                "fair",
                "interval = \"100\"",
                "interval is '100', without a unit; write '100ms' or '100s'",
            ),
            ("fair", "rounds = 0", "rounds is 0; it must be from 1 to 1000000000"),
            (
                "proportional",
                "donation = \"200%\"",
                "policy 'proportional': a step of 2; write 0.1 or so",
            ),
        ] {
            refused(&with(policy, line), &format!("server.toml:11: {problem}"));
        }
        refused(
            &with("qos", "expense = \"101%\""),
            "server.toml:12: policy 'qos': expense is 1.01; write more than 0, and 100% of the medium at most",
        );
        refused(
            &two("", "[sharing]\npolcy = \"limit\""),
            "server.toml:9: unknown key 'polcy' in [sharing]; did you mean 'policy'?",
        );
        refused(
            &with("limit", "enforcment = \"bucket\""),
            "server.toml:11: unknown key 'enforcment' in [sharing.parameters]; did you mean 'enforcement'?",
        );
    }
}

/// Problems that only a look at this machine's files tells.
mod on_this_machine {
    use super::*;

    /// Two tenants in files of a folder; `{}` stands for the folder.
    #[expect(clippy::disallowed_methods, reason = "a user has made a link")]
    fn check(lines: &str) -> Result<Settings, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display().to_string();
        std::os::unix::fs::symlink(folder.path(), folder.path().join("link")).unwrap();
        let text = lines.replace("{}", &path);
        parse_with("server.toml", &text, &MACHINE, |_| {})
            .map_err(|error| error.to_string().replace(&path, "{}"))
    }

    fn two(first: &str, second: &str) -> String {
        let of = |name: &str, port: u16, lines: &str| {
            format!("[[tenant]]\nname = \"{name}\"\nlisten = \"127.0.0.1:{port}\"\n{lines}\n")
        };
        of("a", 11211, first) + &of("b", 11212, second)
    }

    #[test]
    fn what_a_server_would_refuse_at_its_start_is_refused_with_its_line() {
        let file = |name: &str| format!("medium = \"file:{{}}/{name}\"\nmedium_quota = \"64MiB\"");
        assert!(check(&two(&file("x"), &file("y"))).is_ok());
        let error = check(&two(&file("x"), &file("link/x"))).unwrap_err();
        assert_eq!(
            error,
            "server.toml:9: tenants 'a' and 'b' both keep values on {}/x; give each a file of its \
             own"
        );
        let error = check(&two("cost_table = \"{}/none.json\"", "")).unwrap_err();
        assert!(error.starts_with("server.toml:4: cost table {}/none.json: "), "{error}");
        assert!(error.ends_with("check the path and its permissions"), "{error}");
        let error = check(&two("", "dram_quota = \"4MiB\"\nvalue_limit = \"3MiB\"")).unwrap_err();
        assert_eq!(
            error,
            "server.toml:8: the value limit of tenant 'b' is 3MiB; it can be at most 2MiB here, \
             since a value may take half of the DRAM quota"
        );
        let group = "group = \"g\"\n[[group]]\nname = \"g\"\n[[group]]\nname = \"empty\"";
        let error = check(&two("group = \"g\"", group)).unwrap_err();
        assert!(error.contains("'empty': is a group without tenants; put a tenant"), "{error}");
    }
}
