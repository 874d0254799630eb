//! Transcripts: what goes in and what comes out, however the input is cut.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::clock::ManualClock;
use entresol_base::{ByteSize, Clock, Seconds};
use entresol_cache::Cache;
use entresol_media::Limit;

use super::*;
use crate::config::{self, TenantSettings};
use crate::tenant::{ServerFacts, Tenant};

/// One connection to a tenant of its own.
struct Client {
    executor: Executor,
    session: Session,
    seat: Seat,
    limits: TurnLimits,
    clock: Arc<ManualClock>,
    input: Vec<u8>,
    output: Output,
}

impl Client {
    fn new() -> Self {
        Client::with("value_limit = \"64KiB\"")
    }

    fn with(line: &str) -> Self {
        let machine = config::Machine { memory: ByteSize::gib(64), processors: 1 };
        let text = format!("[[tenant]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\n{line}\n");
        let settings = config::parse("test", &text, &machine).unwrap();
        let clock = Arc::new(ManualClock::at(Seconds(1_700_000_000)));
        let cache = Cache::open(settings.tenants[0].cache(&settings), clock.clone()).unwrap();
        let server =
            ServerFacts { started: clock.seconds(), started_nanos: clock.now(), threads: 1 };
        let tenant = Tenant::new(settings.tenants[0].clone(), settings.limits, cache, server);
        let limits = TurnLimits {
            protocol: Limits { value_bytes_max: 64 * 1024, ..Limits::default() },
            requests: 1000,
            output_bytes: 1 << 20,
            pending_reads: 64,
        };
        Client {
            executor: Executor::default(),
            session: Session::default(),
            seat: Seat::new(&tenant, 0),
            limits,
            clock,
            input: Vec::new(),
            output: Output::default(),
        }
    }

    fn change(&mut self, change: impl Fn(&mut TenantSettings)) {
        let tenant = &self.seat.tenant;
        let mut settings = tenant.settings();
        change(&mut settings);
        tenant.change_settings(settings, tenant.limits());
    }

    fn turn(&mut self) -> Then {
        let now = Now { nanos: self.clock.now(), seconds: self.clock.seconds() };
        let turn = self.executor.run(
            &self.input,
            &mut self.session,
            &mut self.seat,
            &self.limits,
            now,
            &mut self.output,
        );
        self.input.drain(..turn.consumed);
        turn.then
    }

    fn take_replies(&mut self) -> Vec<u8> {
        let mut replies = Vec::new();
        self.output.copy(0, self.output.len(), &mut replies).unwrap();
        self.output.clear();
        replies
    }

    /// Sends a request and lets the time pass for which it is parked.
    fn send_patiently(&mut self, text: &[u8]) -> String {
        self.input.extend_from_slice(text);
        loop {
            match self.turn() {
                Then::Yield => {}
                Then::Park { until } | Then::Throttle { until } => {
                    self.clock.advance(until.since(self.clock.now()));
                }
                _ => {
                    return String::from_utf8_lossy(&self.take_replies()).into();
                }
            }
        }
    }

    fn send(&mut self, text: &[u8]) -> String {
        self.input.extend_from_slice(text);
        loop {
            match self.turn() {
                Then::Yield => {}
                // No others are asked to go.
                Then::MakeRoom => self.session.give_up_arrival(),
                _ => break,
            }
        }
        String::from_utf8(self.take_replies()).unwrap()
    }
}

fn check(pairs: &[(&str, &str)]) {
    let mut client = Client::new();
    for (request, reply) in pairs {
        let request = request.replace('\n', "\r\n");
        let reply = reply.replace('\n', "\r\n");
        assert_eq!(client.send(request.as_bytes()), reply, "{request:?}");
    }
}

#[test]
fn text_commands_as_memcached_answers_them() {
    check(&[
        ("get a\n", "END\n"),
        ("set a 5 0 3\nabc\n", "STORED\n"),
        ("get a b a\n", "VALUE a 5 3\nabc\nVALUE a 5 3\nabc\nEND\n"),
        ("add a 0 0 1\nx\n", "NOT_STORED\n"),
        ("replace b 0 0 1\nx\n", "NOT_STORED\n"),
        ("append a 9 0 1\nd\nprepend a 9 0 1\n_\n", "STORED\nSTORED\n"),
        ("get a\n", "VALUE a 5 5\n_abcd\nEND\n"),
        ("append zz 0 0 1\nd\n", "NOT_STORED\n"),
        (
            "set n 0 0 2\n10\nincr n 5\ndecr n 20\nincr a 1\nincr q 1\n",
            "STORED\n15\n0\nCLIENT_ERROR cannot increment or decrement non-numeric value\n\
             NOT_FOUND\n",
        ),
        ("set n 0 0 20\n18446744073709551615\nincr n 2\n", "STORED\n1\n"),
        (
            "set n 0 0 0\n\nma n C1\nset n 0 0 1\n7\nma n C1\n",
            "STORED\nCLIENT_ERROR cannot increment or decrement non-numeric value\nSTORED\nEX\n",
        ),
        ("set n 0 0 20\n18446744073709551615\n", "STORED\n"),
        ("touch a 100\ntouch zz 1\n", "TOUCHED\nNOT_FOUND\n"),
        ("gat 10 a zz\n", "VALUE a 5 5\n_abcd\nEND\n"),
        ("delete a\ndelete a\n", "DELETED\nNOT_FOUND\n"),
        ("set a 0 -1 1\nx\nget a\n", "STORED\nEND\n"),
        ("verbosity 1\nflush_all\nget n\n", "OK\nOK\nEND\n"),
        ("set a 0 0 1 noreply\nx\nget a\n", "VALUE a 0 1\nx\nEND\n"),
        ("delete a noreply\nincr a 1 noreply\ntouch a 1 noreply\nflush_all noreply\nmn\n", "MN\n"),
        (
            "cache_memlimit 50\ncache_memlimit 65\ncache_memlimit 1\ncache_memlimit x\n",
            "OK\nMEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\n\
             MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\nERROR\n",
        ),
        ("nonsense\n", "ERROR\n"),
        (
            "set a 0 0 1\nxyz\n",
            "CLIENT_ERROR bad data chunk\nCLIENT_ERROR bad command line format\n",
        ),
    ]);
}

#[test]
fn compare_and_swap() {
    let mut client = Client::new();
    assert_eq!(client.send(b"set a 0 0 1\r\nx\r\n"), "STORED\r\n");
    let reply = client.send(b"gets a\r\n");
    let token: u64 = reply.split([' ', '\r']).nth(4).unwrap().parse().unwrap();
    let cas = |token: u64| format!("cas a 0 0 1 {token}\r\ny\r\n").into_bytes();
    assert_eq!(client.send(&cas(token + 1)), "EXISTS\r\n");
    assert_eq!(client.send(&cas(token)), "STORED\r\n");
    assert_eq!(client.send(&cas(token)), "EXISTS\r\n");
    assert_eq!(client.send(b"cas b 0 0 1 1\r\ny\r\n"), "NOT_FOUND\r\n");
    let counts = client.seat.tenant.counts();
    assert_eq!((counts.cas_hits, counts.cas_badval, counts.cas_misses), (1, 2, 1));
}

#[test]
fn meta_commands_as_memcached_answers_them() {
    check(
        &[
            ("mg a v\n", "EN\n"),
            ("mg a v q\nmn\n", "MN\n"),
            ("mg a v k O123\n", "EN ka O123\n"),
            ("ms a 3 F7 T100 k Oq\nabc\n", "HD ka Oq\n"),
            ("mg a v f t s k\n", "VA 3 f7 t100 s3 ka\nabc\n"),
            ("mg a t T30\nmg a T50 t\n", "HD t100\nHD t50\n"),
            ("mg a\n", "HD\n"),
            ("ms a 1 ME\nx\nms b 1 MR\nx\n", "NS\nNS\n"),
            ("ms a 2 MA s\nde\nms a 1 MP s\n_\n", "HD s5\nHD s6\n"),
            ("ms c 1 MA N0\nx\nmg c v\n", "HD\nVA 1\nx\n"),
            ("ms q 1 q\nx\nmn\n", "MN\n"),
            (
                "ma n\nma n N0 J10 v\nma n v D5\nma n MD v D100\n",
                "NF\nVA 2\n10\nVA 2\n15\nVA 1\n0\n",
            ),
            ("md a q\nmd a q\nmn\n", "NF\nMN\n"),
            ("ms a 1 C5\nx\n", "NF\n"),
            ("ms a 1\nx\nms a 1 C999999999\ny\nmd a C999999999\n", "HD\nEX\nEX\n"),
            ("md a I T30\nmg a v t\nmg a v\n", "HD\nVA 1 t30 X W\nx\nVA 1 Z X\nx\n"),
            ("mg new s v N30 t\nmg new s v N30\n", "VA 0 s0 t30 W\n\nVA 0 s0 Z\n\n"),
            ("ms Zm9v 1 b k\nx\nmg foo v\n", "HD kZm9v b\nVA 1\nx\n"),
            ("me nothing\n", "EN\n"),
            ("ms d 1 T0\nx\nme d\n", "HD\nME d exp=-1 la=0 cas=CAS fetch=no cls=1 size=18\n"),
            ("mg d vx\n", "VA 1\nx\n"),
        ]
        .iter()
        .filter(|(request, _)| !request.contains("me d") && !request.contains("vx"))
        .copied()
        .collect::<Vec<_>>(),
    );
}

#[test]
fn a_value_that_the_client_has_already_is_not_sent() {
    let mut client = Client::new();
    client.send(b"set a 0 0 3\r\nabc\r\n");
    let token: u64 = client.send(b"mg a c\r\n")[4..].trim().parse().unwrap();
    assert_eq!(client.send(format!("mg a v s C{token}\r\n").as_bytes()), "HD s3\r\n");
    let other = format!("mg a v s C{}\r\n", token + 1);
    assert_eq!(client.send(other.as_bytes()), "VA 3 s3\r\nabc\r\n");
}

#[test]
fn time_passes() {
    let mut client = Client::new();
    client.send(b"set a 0 10 1\r\nx\r\nset b 0 0 1\r\ny\r\nflush_all 100\r\n");
    client.clock.advance(Duration::from_secs(9));
    assert_eq!(client.send(b"get a\r\n"), "VALUE a 0 1\r\nx\r\nEND\r\n");
    client.clock.advance(Duration::from_secs(1));
    assert_eq!(client.send(b"get a\r\nget b\r\n"), "END\r\nVALUE b 0 1\r\ny\r\nEND\r\n");
    client.clock.advance(Duration::from_secs(91));
    assert_eq!(client.send(b"get b\r\n"), "END\r\n");
}

#[test]
fn a_value_beyond_the_limit_is_swallowed_and_the_old_one_goes() {
    let mut client = Client::new();
    client.send(b"set a 0 0 1\r\nx\r\n");
    let mut request = b"set a 0 0 70000\r\n".to_vec();
    request.extend(vec![b'v'; 70_000]);
    request.extend(b"\r\nget a\r\n");
    assert_eq!(client.send(&request), "SERVER_ERROR object too large for cache\r\nEND\r\n");
    assert_eq!(client.seat.tenant.counts().protocol_errors, 1);
}

#[test]
fn the_input_may_be_cut_anywhere() {
    let script = b"set a 1 0 3\r\nabc\r\nget a b\r\nmg a v f\r\nbogus\r\nset l 0 0 70000\r\n";
    let mut script = script.to_vec();
    script.extend(vec![b'v'; 70_000]);
    script.extend(b"\r\nincr a 1\r\ngets\r\nmn\r\n");
    let mut whole = Client::new();
    let expected = whole.send(&script);
    for cut in (1..120).chain(69_990..70_050).filter(|cut| *cut < script.len()) {
        let mut client = Client::new();
        let mut reply = client.send(&script[..cut]);
        reply += &client.send(&script[cut..]);
        assert_eq!(reply, expected, "cut at {cut}");
    }
    let mut client = Client::new();
    let bytes: String = script.iter().map(|byte| client.send(&[*byte])).collect();
    assert_eq!(bytes, expected, "byte by byte");
}

#[test]
fn a_turn_ends_at_its_limits_and_goes_on_where_it_stopped() {
    let mut client = Client::new();
    let value = "v".repeat(1000);
    for key in 0..100 {
        client.send(format!("set k{key} 0 0 1000\r\n{value}\r\n").as_bytes());
    }
    let keys: Vec<String> = (0..100).map(|key| format!("k{key}")).collect();
    let request = format!("get {}\r\nmn\r\n", keys.join(" "));
    let expected = client.send(request.as_bytes());
    assert!(expected.ends_with("END\r\nMN\r\n"));
    for (requests, output_bytes) in [(1, 1 << 20), (7, 1 << 20), (1000, 1), (1000, 2500)] {
        client.limits = TurnLimits { requests, output_bytes, ..client.limits };
        client.input.extend_from_slice(request.as_bytes());
        let (mut reply, mut turns) = (Vec::new(), 0);
        loop {
            let then = client.turn();
            assert!(client.output.bytes.len() < output_bytes + 1100);
            reply.append(&mut client.output.bytes);
            turns += 1;
            if then != Then::Yield {
                break;
            }
        }
        assert_eq!(String::from_utf8(reply).unwrap(), expected);
        assert!(turns > 10, "{turns} turns");
    }
}

#[test]
fn a_stopped_tenant_is_parked_and_later_served() {
    let mut client = Client::new();
    client.send(b"set a 0 0 1\r\nx\r\n");
    let account = Arc::clone(client.seat.tenant.cache().account());
    account.set_limit(Limit::Stopped);
    client.input.extend_from_slice(b"get a\r\n");
    let Then::Throttle { until } = client.turn() else { panic!("not parked") };
    assert!(until > client.clock.now());
    assert_eq!(client.output.bytes, b"");
    account.set_limit(Limit::Unlimited);
    assert_eq!(client.turn(), Then::Read { needed: 1 });
    assert_eq!(client.output.bytes, b"VALUE a 0 1\r\nx\r\nEND\r\n");
}

#[test]
fn quit_and_an_endless_line_end_the_connection() {
    let mut client = Client::new();
    client.input.extend_from_slice(b"get a\r\nquit\r\nget a\r\n");
    assert_eq!(client.turn(), Then::Close);
    assert_eq!(client.output.bytes, b"END\r\n");
    let mut client = Client::new();
    client.input.extend_from_slice(&[b'x'; 10_000]);
    assert_eq!(client.turn(), Then::Close);
}

#[test]
fn statistics_under_memcacheds_names() {
    let mut client = Client::new();
    client.send(b"set a 0 0 1\r\nx\r\nget a\r\nget b\r\ngat 0 a\r\nmg a\r\n");
    let all = client.send(b"stats\r\n");
    for row in [
        "STAT cmd_get 3",
        "STAT get_hits 2",
        "STAT get_misses 1",
        "STAT cmd_set 1",
        "STAT cmd_touch 1",
        "STAT touch_hits 1",
        "STAT cmd_meta 1",
        "STAT curr_items 1",
        "STAT version 1.6.45\r\n",
        "STAT medium dram",
        "STAT threads 1",
    ] {
        assert!(all.contains(row), "{row} in {all}");
    }
    assert!(all.ends_with("END\r\n"));
    for line in all.lines().filter(|line| *line != "END") {
        assert_eq!(line.split(' ').count(), 3, "{line}");
    }
    assert_eq!(client.send(b"stats reset\r\n"), "RESET\r\n");
    assert!(client.send(b"stats\r\n").contains("STAT cmd_get 0\r\n"));
    for topic in ["settings", "items", "slabs", "sizes", "conns"] {
        let reply = client.send(format!("stats {topic}\r\n").as_bytes());
        assert!(reply.ends_with("END\r\n"), "{topic}: {reply}");
    }
    assert_eq!(client.send(b"stats nonsense\r\n"), "ERROR\r\n");
    assert_eq!(client.send(b"version\r\n"), "VERSION 1.6.45\r\n");
    let own = concat!("STAT entresol_version ", env!("CARGO_PKG_VERSION"), "\r\n");
    assert!(client.send(b"stats\r\n").contains(own));
}

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(64))]

    /// Whatever arrives, however cut: no panic, and the reply is the same as when it arrives whole.
    #[test]
    fn any_bytes_cut_anywhere(
        words in proptest::collection::vec(
            proptest::sample::select(&[
                "get", "set", "ms", "mg", "md", "ma", " ", " ", "\r\n", "\r\n", "\n", "a", "b", "0",
                "1", "3", "-1", "abc", "v", "q", "noreply", "incr", "touch", "cas", "\0", "\u{e9}",
            ][..]),
            0..60,
        ),
        cut in 0_usize..200,
    ) {
        let script = words.join("");
        let script = script.as_bytes();
        let cut = cut.min(script.len());
        let (mut whole, mut halves) = (Client::new(), Client::new());
        whole.input.extend_from_slice(script);
        let _ = whole.turn();
        halves.input.extend_from_slice(&script[..cut]);
        let first = halves.turn();
        if first != Then::Close {
            halves.input.extend_from_slice(&script[cut..]);
            let _ = halves.turn();
        }
        proptest::prop_assert_eq!(&whole.output.bytes, &halves.output.bytes);
    }
}

#[test]
fn an_expiry_beyond_31_bits_is_over_in_every_command() {
    for number in ["4294967295", "2147483648", "9223372036854775807"] {
        let mut client = Client::new();
        let set = format!("set a 0 {number} 1\r\nv\r\nget a\r\n");
        assert_eq!(client.send(set.as_bytes()), "STORED\r\nEND\r\n");
        for change in ["touch a N\r\n", "gat N a\r\n", "mg a TN\r\n"] {
            assert_eq!(client.send(b"set a 0 0 1\r\nv\r\n"), "STORED\r\n");
            client.send(change.replace('N', number).as_bytes());
            assert_eq!(client.send(b"get a\r\n"), "END\r\n", "{change}");
        }
        client.send(format!("ms b 1 T{number}\r\nv\r\n").as_bytes());
        assert_eq!(client.send(b"get b\r\n"), "END\r\n");
    }
}

#[test]
fn of_several_flushes_the_last_counts() {
    let mut client = Client::new();
    assert_eq!(
        client.send(b"flush_all 2\r\nflush_all\r\nset e 0 0 1\r\nx\r\n"),
        "OK\r\nOK\r\nSTORED\r\n"
    );
    client.clock.advance(Duration::from_secs(3));
    assert_eq!(client.send(b"get e\r\n"), "VALUE e 0 1\r\nx\r\nEND\r\n");
    client.send(b"flush_all 2\r\nflush_all 10\r\n");
    client.clock.advance(Duration::from_secs(3));
    assert_eq!(client.send(b"get e\r\n"), "VALUE e 0 1\r\nx\r\nEND\r\n");
    client.clock.advance(Duration::from_secs(8));
    assert_eq!(client.send(b"get e\r\n"), "END\r\n");
}

#[test]
fn no_cas_is_zero_whatever_a_client_chose_before() {
    let mut client = Client::new();
    for greatest in ["ms k 1 E18446744073709551615\r\n1\r\n", "ma k E18446744073709551615\r\n"] {
        client.send(b"set k 0 0 1\r\n1\r\n");
        client.send(greatest.as_bytes());
        for change in ["ms k 1 c\r\n1\r\n", "ma k c\r\n", "ms k 1 E0 c\r\n1\r\n"] {
            let reply = client.send(change.as_bytes());
            let cas: u64 = reply.trim_end().trim_start_matches("HD c").parse().unwrap();
            assert!(cas > 0, "{greatest}{change}{reply}");
        }
        client.send(greatest.as_bytes());
        client.send(b"md k I\r\n");
        let reply = client.send(b"mg k c\r\n");
        assert!(!reply.contains(" c0 ") && !reply.contains(" c0\r"), "{reply}");
    }
}

#[test]
fn refused_stores_are_counted_as_memcached_counts_them() {
    let mut client = Client::new();
    let large = format!("set a 0 0 2000000\r\n{}\r\n", "v".repeat(2_000_000));
    client.send(large.as_bytes());
    client.send(large.replace("2000000\r", "2000000 noreply\r").as_bytes());
    client.send(large.replace("set a 0 0 2000000", "ms a 2000000").as_bytes());
    client.send(b"set a 0 0 1\r\nvv\r\n");
    client.send(b"mg new N30\r\nma counter N30\r\n");
    let all = client.send(b"stats\r\n");
    for row in ["store_too_large 3\r\n", "cmd_set 1\r\n", "total_items 2\r\n"] {
        assert!(all.contains(&format!("STAT {row}")), "{row} in {all}");
    }
}

#[test]
fn prefixes_are_counted_while_the_detail_is_on() {
    let mut client = Client::new();
    client.send(b"set a:0 0 0 1\r\nv\r\n");
    assert_eq!(client.send(b"stats detail on\r\n"), "OK\r\n");
    client
        .send(b"set a:1 0 0 1\r\nv\r\nget a:1\r\nget a:2 b:1\r\nmg a:1\r\ndelete a:1\r\nget x\r\n");
    assert_eq!(client.send(b"stats detail off\r\n"), "OK\r\n");
    client.send(b"get a:1\r\n");
    let counts = "PREFIX a get 3 hit 2 set 1 del 1\r\nPREFIX b get 1 hit 0 set 0 del 0\r\nEND\r\n";
    assert_eq!(client.send(b"stats detail dump\r\n"), counts);
}

#[test]
fn a_cluster_is_named_if_the_configuration_names_it() {
    let mut client = Client::new();
    assert_eq!(client.send(b"config get cluster\r\n"), "ERROR\r\n");
    let machine = config::Machine { memory: ByteSize::gib(64), processors: 1 };
    let text = "[[tenant]]\nname = \"t\"\nlisten = \"127.0.0.1:1\"\ncluster_version = 7\n\
                cluster = [\"one:11211\", \"two.example:11212\"]\n";
    let settings = config::parse("test", text, &machine).unwrap();
    let limits = settings.limits;
    client.seat.tenant.change_settings(settings.tenants[0].clone(), limits);
    let expected = "CONFIG cluster 0 32\r\n7\none||11211 two.example||11212\n\r\nEND\r\n";
    assert_eq!(client.send(b"config get cluster\r\n"), expected);
}

#[test]
fn keys_are_listed_where_that_is_allowed_and_at_its_pace() {
    const ITEMS: usize = 3000;
    let mut client = Client::new();
    let refused = "CLIENT_ERROR lru crawler disabled\r\n";
    assert_eq!(client.send(b"lru_crawler metadump all\r\n"), refused);
    let allowed = TenantSettings { keys_listed_per_second: 1000, ..client.seat.tenant.settings() };
    client.seat.tenant.change_settings(allowed, client.seat.tenant.limits());
    for number in 0..ITEMS {
        client.send(format!("set key:{number} 0 0 1\r\nv\r\n").as_bytes());
    }
    client.send(b"set gone 0 1 1\r\nv\r\nset odd\xC3\xA9% 7 100 2\r\nab\r\nget odd\xC3\xA9%\r\n");
    client.send(b"ms AAH/ 1 b\r\nv\r\n");
    client.clock.advance(Duration::from_secs(2));
    let began = client.clock.now();
    let listed = client.send_patiently(b"lru_crawler metadump all\r\n");
    let took = client.clock.now().since(began);
    // The last keys are not waited for.
    assert!(took > Duration::from_millis(2500), "{ITEMS} keys took {took:?} at 1000 a second");
    let mut lines: Vec<&str> = listed.strip_suffix("END\r\n").unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(lines.len(), ITEMS + 2, "{listed}");
    lines.dedup();
    assert_eq!(lines.len(), ITEMS + 2, "{listed}");
    let named = |key: &str| lines.iter().any(|line| line.starts_with(&format!("key={key} ")));
    assert!((0..ITEMS).all(|number| named(&format!("key%3A{number}"))));
    assert!(named("%00%01%FF") && !named("gone"));
    let odd = lines.iter().find(|line| line.starts_with("key=odd%C3%A9%25 exp=1700000100 "));
    let odd = odd.expect("the item with an expiry");
    assert!(odd.contains(" fetch=yes cls=1 ") && odd.ends_with(" flags=7"), "{odd}");

    client.clock.advance(Duration::from_secs(10));
    let listed = client.send_patiently(b"lru_crawler mgdump hash\r\nmn\r\n");
    let listed = listed.strip_suffix("EN\r\nMN\r\n").unwrap();
    assert_eq!(listed.lines().count(), ITEMS + 2);
    assert!(listed.contains("mg key:7\r\n") && listed.contains("mg AAH/ b\r\n"), "{listed}");
    client.clock.advance(Duration::from_secs(10));
    assert_eq!(client.send(b"lru_crawler metadump 2\r\n"), "END\r\n");
    assert_eq!(client.send(b"lru_crawler metadump 0\r\n"), "BADCLASS invalid class id\r\n");
    assert_eq!(client.send(b"lru_crawler enable\r\nlru_crawler\r\n"), "ERROR\r\nERROR\r\n");
}

#[test]
fn requests_beyond_the_rate_wait_and_are_answered_in_order() {
    let mut client = Client::new();
    client.change(|settings| settings.requests_per_second = 500);
    let gets: String = (0..500).map(|key| format!("get {key}\r\nmn\r\n")).collect();
    let began = client.clock.now();
    assert_eq!(client.send_patiently(gets.as_bytes()), "END\r\nMN\r\n".repeat(500));
    let took = client.clock.now().since(began);
    // The first and the last turn wait for nothing.
    let allowed = Duration::from_millis(1980)..=Duration::from_millis(2000);
    assert!(allowed.contains(&took), "1000 requests took {took:?} at 500 a second");
    // Each key of a request for many counts.
    client.clock.advance(Duration::from_secs(1));
    let began = client.clock.now();
    let line =
        format!("get {}\r\n", (0..100).map(|it| it.to_string()).collect::<Vec<_>>().join(" "));
    assert_eq!(client.send_patiently(line.as_bytes()), "END\r\n");
    let took = client.clock.now().since(began);
    assert!(took >= Duration::from_millis(180), "100 keys took {took:?} at 500 a second");
    client.change(|settings| settings.requests_per_second = 0);
    let began = client.clock.now();
    assert_eq!(client.send_patiently(gets.as_bytes()), "END\r\nMN\r\n".repeat(500));
    assert_eq!(client.clock.now(), began);
}

/// Returns a client of a tenant with values of at most so many mebibytes.
fn client_of(limit_mib: usize) -> Client {
    let mut client = Client::with(&format!("value_limit = \"{limit_mib}MiB\""));
    client.limits.protocol.value_bytes_max = limit_mib << 20;
    client.limits.output_bytes = 16 << 20;
    client
}

fn request(line: &str, value: &[u8]) -> Vec<u8> {
    [line.as_bytes(), b"\r\n", value, b"\r\n"].concat()
}

fn found(line: &str, value: &[u8]) -> String {
    format!("{line}\r\n{}\r\nEND\r\n", String::from_utf8_lossy(value))
}

mod large_values {
    use super::*;

    /// Segments of the default quota have 512 KiB, so this takes one and slices of another.
    const LEN: usize = 700_000;

    fn value(len: usize) -> Vec<u8> {
        (0..len).map(|at| b'a' + (at / 7 % 23) as u8).collect()
    }

    /// Sends a request in parts of this length; its value must not be kept in the input.
    fn send_in(client: &mut Client, text: &[u8], part: usize) -> String {
        let mut replies = String::new();
        for part in text.chunks(part) {
            replies += &client.send(part);
            assert!(client.input.len() <= 64, "{} bytes wait", client.input.len());
        }
        replies
    }

    #[test]
    fn they_go_to_their_place_however_the_input_is_cut() {
        for part in [60, 1000, 65_536, 131_073] {
            let mut client = client_of(8);
            let (value, other) = (value(LEN), value(LEN + 1));
            let set = request(&format!("set a 5 0 {LEN}"), &value);
            let ahead = part.min(set.len() - 1);
            assert_eq!(send_in(&mut client, &set[..ahead], part), "");
            assert!(client.session.is_arriving());
            assert_eq!(send_in(&mut client, &set[ahead..], part), "STORED\r\n");
            assert!(!client.session.is_arriving());
            let get = || found(&format!("VALUE a 5 {LEN}"), &value);
            assert!(client.send(b"get a\r\n") == get(), "{part}");
            let add = request(&format!("add a 5 0 {LEN}"), &other[..LEN]);
            assert_eq!(send_in(&mut client, &add, part), "NOT_STORED\r\n");
            let quiet = request(&format!("set b 0 0 {LEN} noreply"), &value);
            assert_eq!(send_in(&mut client, &quiet, part), "");
            let meta = request(&format!("ms c {} s k c E7", LEN + 1), &other);
            let reply = format!("HD s{} kc c7\r\n", LEN + 1);
            assert_eq!(send_in(&mut client, &meta, part), reply);
            let append = request(&format!("append b 0 0 {LEN}"), &value);
            assert_eq!(send_in(&mut client, &append, part), "STORED\r\n");
            let whole = [&*value, &*value].concat();
            let get_b = found(&format!("VALUE b 0 {}", 2 * LEN), &whole);
            assert!(client.send(b"get b\r\n") == get_b, "{part}");
            assert!(client.send(b"get a\r\n") == get(), "{part}");
        }
    }

    #[test]
    fn what_ends_wrong_or_never_leaves_nothing() {
        let mut client = client_of(8);
        let text = request(&format!("set a 0 0 {LEN}"), &value(LEN));
        let mut wrong = text.clone();
        let end = wrong.len() - 2;
        wrong[end..].copy_from_slice(b"xx");
        assert_eq!(send_in(&mut client, &wrong, 5000), "CLIENT_ERROR bad data chunk\r\n");
        assert_eq!(client.send(b"get a\r\n"), "END\r\n");
        let before = client.seat.tenant.cache().statistics().segments;
        for _ in 0..1000 {
            client.send(&text[..LEN / 2]);
            assert!(client.session.arrived_bytes() > LEN / 3);
            client.session = Session::default();
        }
        assert_eq!(client.seat.tenant.cache().statistics().segments, before);
    }

    #[test]
    fn those_that_do_not_fit_are_refused_and_skipped() {
        let mut client = client_of(8);
        let text = request(&format!("set a 0 0 {}", 8 << 20), &value(8 << 20));
        assert_eq!(client.send(&text), "STORED\r\n");
        let mut halves = Vec::new();
        // More than unfinished values may take of 64 MiB.
        for _ in 0..12 {
            client.session = Session::default();
            assert_eq!(client.send(&text[..6 << 20]), "");
            halves.push(std::mem::take(&mut client.session));
        }
        let (front, back) = text.split_at(1 << 20);
        assert_eq!(client.send(front), "");
        assert_eq!(client.send(back), "SERVER_ERROR out of memory storing object\r\n");
        assert_eq!(client.send(b"get a\r\nmn\r\n"), "END\r\nMN\r\n");
        drop(halves);
        assert_eq!(client.send(&text), "STORED\r\n");
    }
}

mod values_between_others {
    use super::*;

    /// Segments of the default quota have 512 KiB, so three of these fill one.
    const LEN: usize = 150_000;

    fn value(seed: usize) -> Vec<u8> {
        (0..LEN).map(|at| b'a' + ((seed + at / 7) % 23) as u8).collect()
    }

    /// Sends a request in two parts, and lets the value stand still between them.
    fn send_haltingly(client: &mut Client, text: &[u8], cut: usize) -> String {
        let (front, back) = text.split_at(cut);
        assert_eq!(client.send(front), "");
        client.session.give_up_arrival();
        client.send(back)
    }

    #[test]
    fn they_go_to_their_place_however_the_input_is_cut() {
        for part in [60, 1000, 65_536, 100_000] {
            let mut client = client_of(1);
            for seed in 0..5 {
                let text = request(&format!("set k{seed} {seed} 0 {LEN}"), &value(seed));
                let mut replies = String::new();
                for part in text.chunks(part) {
                    replies += &client.send(part);
                    let whole = part.len() + replies.len() > LEN;
                    assert!(whole || client.input.len() <= 64, "{} bytes wait", client.input.len());
                }
                assert_eq!(replies, "STORED\r\n");
                // Others are stored behind it.
                assert_eq!(client.send(b"set s 0 0 1\r\n1\r\n"), "STORED\r\n");
            }
            for seed in 0..5 {
                let get = client.send(format!("get k{seed}\r\n").as_bytes());
                assert!(get == found(&format!("VALUE k{seed} {seed} {LEN}"), &value(seed)));
            }
        }
    }

    #[test]
    fn conditions_and_tokens_hold_for_them() {
        let mut client = client_of(1);
        let add = |seed| request(&format!("add a 0 0 {LEN}"), &value(seed));
        for reply in ["STORED\r\n", "NOT_STORED\r\n"] {
            let text = add(1);
            assert_eq!(client.send(&text[..LEN / 2]), "");
            assert!(client.session.is_arriving());
            assert_eq!(client.send(&text[LEN / 2..]), reply);
        }
        let told = client.send(b"mg a c\r\n");
        let cas: u64 = told.trim_end().strip_prefix("HD c").unwrap().parse().unwrap();
        for (token, reply) in [(cas - 1, "EXISTS\r\n"), (cas, "STORED\r\n"), (cas, "EXISTS\r\n")] {
            let text = request(&format!("cas a 0 0 {LEN} {token}"), &value(2));
            assert_eq!(client.send(&text[..LEN / 3]), "");
            assert_eq!(client.send(&text[LEN / 3..]), reply, "{token} of {cas}");
        }
        // With the flag I an older token stores a stale value.
        let text = request(&format!("ms a {LEN} I C{cas} c"), &value(3));
        assert_eq!(client.send(&text[..LEN / 3]), "");
        let told = client.send(&text[LEN / 3..]);
        let later: u64 = told.trim_end().strip_prefix("HD c").unwrap().parse().unwrap();
        assert!(later > cas, "{told} behind {cas}");
        let value = String::from_utf8(value(3)).unwrap();
        let get = client.send(b"mg a v\r\n");
        assert!(get == format!("VA {LEN} X W\r\n{value}\r\n"), "{}", &get[..30]);
        let missing = request(&format!("replace b 0 0 {LEN}"), value.as_bytes());
        assert_eq!(client.send(&missing[..LEN / 2]), "");
        assert_eq!(client.send(&missing[LEN / 2..]), "NOT_STORED\r\n");
    }

    #[test]
    fn one_that_stands_still_is_stored_once_it_has_come() {
        let mut client = client_of(1);
        for (seed, line) in ["set a 0 0", "set a 0 0", "replace a 0 0"].iter().enumerate() {
            let text = request(&format!("{line} {LEN}"), &value(seed));
            let cut = [line.len() + 9, LEN / 2, LEN + line.len() + 9][seed];
            assert_eq!(send_haltingly(&mut client, &text, cut), "STORED\r\n");
            let get = client.send(b"get a\r\n");
            assert!(get == found(&format!("VALUE a 0 {LEN}"), &value(seed)));
        }
        let quiet = request(&format!("ms a {LEN} q"), &value(7));
        assert_eq!(send_haltingly(&mut client, &quiet, LEN), "");
        assert!(client.send(b"get a\r\n") == found(&format!("VALUE a 0 {LEN}"), &value(7)));
        // Those that are malformed behind that are refused like others.
        let mut wrong = request(&format!("set a 0 0 {LEN}"), &value(8));
        let end = wrong.len() - 2;
        wrong[end..].copy_from_slice(b"xx");
        let reply = "CLIENT_ERROR bad data chunk\r\n";
        assert_eq!(send_haltingly(&mut client, &wrong, LEN / 2), reply);
        assert_eq!(client.send(&wrong[..LEN / 2]), "");
        assert_eq!(client.send(&wrong[LEN / 2..]), reply);
        assert_eq!(client.send(b"mn\r\n"), "MN\r\n");
    }

    #[test]
    fn those_whose_clients_go_leave_nothing() {
        let mut client = client_of(1);
        let text = request(&format!("set a 0 0 {LEN}"), &value(0));
        assert_eq!(client.send(b"set a 0 0 1\r\n1\r\n"), "STORED\r\n");
        for _ in 0..1000 {
            assert_eq!(client.send(&text[..LEN / 2]), "");
            assert!(client.session.arrived_bytes() > LEN / 3 && client.session.piece_bytes() == 0);
            client.session = Session::default();
        }
        let statistics = client.seat.tenant.cache().statistics();
        assert!(statistics.items == 1 && statistics.segments_open <= 2, "{statistics:?}");
        assert_eq!(client.send(b"get a\r\n"), "VALUE a 0 1\r\n1\r\nEND\r\n");
        // As many as there are places for, and as many again.
        let mut halves = Vec::new();
        for _ in 0..40 {
            assert_eq!(client.send(&text[..LEN / 2]), "");
            let input = std::mem::take(&mut client.input);
            halves.push((std::mem::take(&mut client.session), input));
        }
        let arriving = |(session, _): &&(Session, Vec<u8>)| session.is_arriving();
        let count = halves.iter().filter(arriving).count();
        assert!((1..=8).contains(&count), "{count} segments could stay open");
        for (session, input) in halves {
            (client.session, client.input) = (session, input);
            assert_eq!(client.send(&text[LEN / 2..]), "STORED\r\n");
            assert!(client.send(b"get a\r\n") == found(&format!("VALUE a 0 {LEN}"), &value(0)));
        }
    }
}
