//! Configurations that are right, and every way in which they can be wrong.

use std::path::PathBuf;
use std::time::Duration;

use entresol_base::ByteSize;
use entresol_cache::Eviction;
use entresol_media::MediumSpec;

use super::locate::{LIMITS_KEYS, TENANT_KEYS, TOP_KEYS};
use super::*;

const MACHINE: Machine = Machine { memory: ByteSize::gib(16), processors: 2 };

const SMALLEST: &str = "[[tenant]]\nname = \"a\"\nlisten = \"127.0.0.1:11211\"\n";

/// The text is refused with exactly one problem, which reads so.
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
    assert_eq!(tenant.value_limit, ByteSize::mib(1));
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

[limits]
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
unix_socket = "/run/alpha.sock"
unix_socket_mode = "770"
connections = 10
medium = "file:/mnt/ssd/alpha,model=qlc-5210"
dram_quota = "32MiB"
medium_quota = "1GiB"
segment_size = "2MiB"
value_limit = "1MiB"
eviction = "fifo"
cost_table = "/mnt/ssd/alpha.costs.json"
"#;
    let settings = parse("server.toml", text, &MACHINE).unwrap();
    assert_eq!((settings.threads, settings.admin, settings.huge_pages), (3, None, false));
    assert_eq!(settings.slow_log, Some(Duration::from_millis(20)));
    assert_eq!(settings.limits.request_line_bytes, 4096);
    assert_eq!(settings.limits.idle_time, Duration::from_secs(300));
    let tenant = &settings.tenants[0];
    assert_eq!(tenant.listen.len(), 2);
    assert_eq!(tenant.unix_socket_mode, 0o770);
    assert_eq!(tenant.eviction, Eviction::Fifo);
    assert_eq!(tenant.medium_quota, ByteSize::gib(1));
    assert_eq!(tenant.cost_table, Some(PathBuf::from("/mnt/ssd/alpha.costs.json")));
    let cache = tenant.cache(&settings);
    assert_eq!(cache.restart_dir, Some(PathBuf::from("/var/lib/entresol/alpha")));
    for key in TOP_KEYS.iter().chain(&LIMITS_KEYS).chain(&TENANT_KEYS) {
        assert!(text.contains(key), "{key} is known but not in this test");
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
        "eviction = \"merg\"",
        "server.toml:4: eviction is 'merg'; it must be one of merge, fifo, random, \
         least-utilised; did you mean 'merge'?",
    );
    tenant_refused(
        "segment_size = \"1MiB\"\nvalue_limit = \"1MiB\"",
        &format!(
            "server.toml:5: value_limit is 1MiB; a value must fit a segment of 1MiB, so at most \
             {} (a larger segment_size allows more)",
            ByteSize((1 << 20) - entresol_cache::SEGMENT_OVERHEAD_BYTES)
        ),
    );
    tenant_refused(
        "medium = \"model:optane-ssd\"\nmedium_quota = \"64MiB\"",
        "server.toml:4: medium model:optane-ssd is a model in virtual time and keeps nothing; \
         write file:PATH,model=optane-ssd for a file that is slowed to it",
    );
    tenant_refused(
        "medium = \"model:aep\"",
        "server.toml:4: medium model:aep is a model in virtual time and keeps nothing; write dram, \
         or pmem:PATH,assume-dax for emulated persistent memory",
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
        "server.toml:4: the tenants' DRAM quotas come to 64GiB, but the machine has 16GiB of \
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
        "server.toml:5: two tenants are called 'a'; give each a name of its own",
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
        "server.toml:3: 0.0.0.0:11211 is reachable from other machines and the protocol has no \
         password; listen on 127.0.0.1, or say allow_remote = true at the top if the network is \
         trusted",
    );
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
    let text = format!("{SMALLEST}connections = 0\neviction = \"none\"\n");
    let error = parse("server.toml", &text, &MACHINE).unwrap_err();
    assert_eq!(error.problems.len(), 2, "{error}");
}
