//! Large values: received into their place, and sent from there.
#![expect(clippy::disallowed_methods, reason = "a file is damaged from outside here")]

use std::io::Read;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ManualClock, Seconds};
use entresol_server::Running;

use crate::support::{Client, eventually, start, start_by, tenant};

/// Half of what large values may take in a tenant of 32 MiB.
const LIMIT: &str = "value_limit = \"8MiB\"";
const LEN: usize = 6 << 20;

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| b'!' + ((seed + at / 3 * 7 + at / 4096) % 90) as u8).collect()
}

fn set(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

fn expect_value(client: &mut Client, key: &str, value: &[u8]) {
    client.expect(&format!("VALUE {key} 0 {}\r\n", value.len()));
    let mut found = vec![0; value.len()];
    client.0.read_exact(&mut found).unwrap();
    assert!(found == value, "{key} has other bytes");
    client.expect("\r\n");
}

fn segments(running: &Running) -> u64 {
    running.tenants()[0].cache().statistics().segments
}

fn start_with_clock() -> (Running, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let running = start_by(&format!("threads = 1\n{}", tenant("a", LIMIT)), &clock);
    (running, clock)
}

/// Runs a check on a tenant in DRAM, and on one on a block file by each backend.
fn on_each(limit: &str, check: impl Fn(Running)) {
    check(start(&tenant("a", limit)));
    for backend in ["auto", "threads"] {
        let folder = tempfile::tempdir().unwrap();
        check(start(&on_file(&folder, backend, limit)));
    }
}

fn on_file(folder: &tempfile::TempDir, backend: &str, limit: &str) -> String {
    let path = folder.path().join("medium");
    let path = path.display();
    let more = format!("medium = \"file:{path}\"\nmedium_quota = \"32MiB\"\n{limit}");
    format!("io_backend = \"{backend}\"\n{}", tenant("a", &more))
}

#[test]
fn values_come_back_as_they_were_sent_however_they_were_cut() {
    on_each(LIMIT, come_back);
}

fn come_back(running: Running) {
    let mut client = Client::of(&running, "a");
    let lengths = [200_000, 400_001, 524_288, 1 << 20, 1_300_000, LEN + 77];
    for (seed, len) in lengths.into_iter().enumerate() {
        let (key, value) = (format!("k{seed}"), value(seed, len));
        for part in set(&key, &value).chunks(1 + 300_007 * (seed + 1) % 400_000) {
            client.send(part);
        }
        client.expect("STORED\r\n");
    }
    // One reply of several values, with others between them.
    client.ask("set small 0 0 3\nabc\n", "STORED\n");
    client.send(b"get k0 small k5 k1 k2 none k3 k4\r\nmg k5 s v\r\nmn\r\n");
    for key in ["k0", "small", "k5", "k1", "k2", "k3", "k4"] {
        match key.strip_prefix('k') {
            Some(seed) => {
                let seed: usize = seed.parse().unwrap();
                expect_value(&mut client, key, &value(seed, lengths[seed]));
            }
            None => expect_value(&mut client, key, b"abc"),
        }
    }
    client.expect(&format!("END\r\nVA {0} s{0}\r\n", LEN + 77));
    let mut found = vec![0; LEN + 77];
    client.0.read_exact(&mut found).unwrap();
    assert!(found == value(5, LEN + 77));
    client.expect("\r\nMN\r\n");
    // What is appended is large itself, and so is the result.
    let more = value(9, 1 << 20);
    client.send(&[format!("append k3 0 0 {}\r\n", more.len()).as_bytes(), &more, b"\r\n"].concat());
    client.expect("STORED\r\n");
    client.send(b"get k3\r\n");
    expect_value(&mut client, "k3", &[value(3, 1 << 20), more].concat());
    client.expect("END\r\n");
    running.stop().unwrap();
}

#[test]
fn a_value_whose_client_goes_leaves_nothing() {
    on_each(LIMIT, leave_nothing);
}

fn leave_nothing(running: Running) {
    let before = segments(&running);
    let text = set("k", &value(1, LEN));
    for _ in 0..3 {
        let mut client = Client::of(&running, "a");
        client.send(&text[..text.len() / 2]);
        eventually("half of the value has arrived", || segments(&running) >= before + 5);
        drop(client);
        eventually("its room is back", || segments(&running) == before);
    }
    Client::of(&running, "a").ask("get k\n", "END\n");
    running.stop().unwrap();
}

#[test]
fn a_value_that_stands_still_on_its_way_in_is_freed_and_then_refused() {
    let (running, clock) = start_with_clock();
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    let before = segments(&running);
    let text = set("k", &value(1, LEN));
    let (front, back) = text.split_at(text.len() / 2);
    client.send(front);
    eventually("half of the value has arrived", || segments(&running) >= before + 5);
    for _ in 0..2 {
        other.ask("mn\n", "MN\n");
        clock.advance(Duration::from_millis(400));
    }
    assert!(segments(&running) >= before + 5, "freed too early");
    eventually("its room is back", || {
        clock.advance(Duration::from_millis(400));
        other.ask("mn\n", "MN\n");
        segments(&running) == before
    });
    client.send(back);
    client.expect("SERVER_ERROR out of memory storing object\r\n");
    client.send(&text);
    client.expect("STORED\r\n");
    running.stop().unwrap();
}

#[test]
fn a_value_that_comes_byte_by_byte_holds_no_room_but_a_slow_one_is_stored() {
    let (running, clock) = start_with_clock();
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    let before = segments(&running);
    let text = set("k", &value(1, LEN));
    let (front, back) = text.split_at(text.len() - 150_000);
    client.send(front);
    eventually("most of the value has arrived", || segments(&running) >= before + 5);
    // 20,000 bytes in 400 ms: if they are seen one step later, that is still within a second.
    for part in back.chunks(20_000) {
        clock.advance(Duration::from_millis(400));
        other.ask("mn\n", "MN\n");
        client.send(part);
        other.ask("mn\n", "MN\n");
    }
    client.expect("STORED\r\n");
    client.send(b"delete k\r\n");
    client.expect("DELETED\r\n");
    // The segment of its record stays open.
    let before = segments(&running);
    client.send(front);
    eventually("most of the value has arrived again", || segments(&running) >= before + 5);
    let mut sent = 0;
    eventually("its room is back", || {
        client.send(&back[sent..=sent]);
        sent += 1;
        clock.advance(Duration::from_millis(300));
        other.ask("mn\n", "MN\n");
        segments(&running) == before
    });
    client.send(&back[sent..]);
    client.expect("SERVER_ERROR out of memory storing object\r\n");
    running.stop().unwrap();
}

#[test]
fn a_value_that_is_being_sent_stays_whole_and_is_let_go_by_a_client_that_takes_nothing() {
    let (running, clock) = start_with_clock();
    let (mut reader, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    let mut stuck = Client::of(&running, "a");
    other.send(&set("k", &value(1, LEN)));
    other.expect("STORED\r\n");
    let before = segments(&running);
    // More than the buffers of a socket take.
    for client in [&mut reader, &mut stuck] {
        client.send(b"get k k k k k k k k\r\n");
        let mut first = [0; 5];
        client.0.read_exact(&mut first).unwrap();
    }
    let header = format!(" k 0 {LEN}\r\n");
    for client in [&mut reader, &mut stuck] {
        client.expect(&header);
    }
    other.send(&set("k", &value(2, LEN)));
    other.expect("STORED\r\n");
    assert!(segments(&running) > before, "a value that is being sent was freed");
    let mut found = vec![0; LEN];
    reader.0.read_exact(&mut found).unwrap();
    assert!(found == value(1, LEN), "the value changed under its reader");
    drop(reader);
    eventually("the stuck reader is closed, and the old value freed", || {
        clock.advance(Duration::from_millis(400));
        other.ask("mn\n", "MN\n");
        segments(&running) == before
    });
    assert_eq!(running.tenants()[0].counts().buffer_kicks, 1);
    running.stop().unwrap();
}

#[test]
fn many_clients_that_send_half_of_a_value_take_no_more_than_the_quota() {
    on_each(LIMIT, send_halves);
}

fn send_halves(running: Running) {
    let mut other = Client::of(&running, "a");
    other.ask("set small 0 0 3\nabc\n", "STORED\n");
    let before = segments(&running);
    let text = set("k", &value(1, LEN));
    let halves: Vec<Client> = (0..40)
        .map(|_| {
            let mut client = Client::of(&running, "a");
            client.send(&text[..text.len() / 2]);
            client
        })
        .collect();
    other.ask("set other 0 0 3\nabc\nget other\n", "STORED\nVALUE other 0 3\nabc\nEND\n");
    let statistics = running.tenants()[0].cache().statistics();
    let used = statistics.segments * statistics.segment_bytes;
    assert!(used <= 32 << 20, "{used} bytes of segments");
    drop(halves);
    eventually("the room of the halves is back", || segments(&running) <= before + 1);
    other.send(&text);
    other.expect("STORED\r\n");
    running.stop().unwrap();
}

#[test]
fn values_that_arrive_between_each_other_are_whole_beside_those_that_never_do() {
    on_each(LIMIT, arrive_between);
}

fn arrive_between(running: Running) {
    // Some have a place of their own, and others are received as a whole first.
    let values: Vec<Vec<u8>> = (0..30).map(|seed| value(seed, 60_000 + 2000 * seed)).collect();
    for round in 0..3 {
        let mut clients: Vec<Client> = values.iter().map(|_| Client::of(&running, "a")).collect();
        for part in 0..4 {
            for (number, client) in clients.iter_mut().enumerate() {
                let text = set(&format!("k{number}"), &values[(number + round) % 30]);
                let quarter = text.len() / 4 + 1;
                let is_left = number % 5 == 4 && part >= 2;
                if !is_left {
                    client.send(&text[part * quarter..((part + 1) * quarter).min(text.len())]);
                }
            }
        }
        for (number, client) in clients.iter_mut().enumerate() {
            if number % 5 != 4 {
                client.expect("STORED\r\n");
            }
        }
    }
    let mut other = Client::of(&running, "a");
    for number in 0..30 {
        other.send(format!("get k{number}\r\n").as_bytes());
        if number % 5 != 4 {
            expect_value(&mut other, &format!("k{number}"), &values[(number + 2) % 30]);
        }
        other.expect("END\r\n");
    }
    running.stop().unwrap();
}

#[test]
fn a_value_between_others_that_stands_still_gives_its_place_up_and_is_stored() {
    let (running, clock) = start_with_clock();
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    let text = set("k", &value(1, 100_000));
    client.send(&text[..60_000]);
    eventually("it has arrived so far", || {
        other.ask("mn\n", "MN\n");
        running.tenants()[0].cache().statistics().segments_open == 1
    });
    // It fills a segment with five of these, and eight of them fill one.
    for number in 0..40 {
        other.send(&set(&format!("other{number}"), &value(number, 31_000)));
        other.expect("STORED\r\n");
    }
    let open = || running.tenants()[0].cache().statistics().segments_open;
    assert_eq!(open(), 2, "the full segment was sealed under a value that arrives");
    eventually("its place is given up", || {
        clock.advance(Duration::from_millis(400));
        other.ask("mn\n", "MN\n");
        open() == 1
    });
    client.send(&text[60_000..]);
    client.expect("STORED\r\n");
    client.send(b"get k\r\n");
    expect_value(&mut client, "k", &value(1, 100_000));
    client.expect("END\r\n");
    running.stop().unwrap();
}

fn append(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("append {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

#[test]
fn others_have_their_turns_while_a_large_value_is_extended() {
    let running = start(&format!("threads = 1\n{}", tenant("a", LIMIT)));
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    client.send(&set("k", &value(1, LEN)));
    client.expect("STORED\r\n");
    let yields = || running.tenants()[0].counts().conn_yields;
    let before = yields();
    let (small, large) = (b"0123456789".as_slice(), value(2, 1 << 20));
    for more in [small, &large] {
        client.send(&append("k", more));
        other.ask("set small 0 0 1\nx\n", "STORED\n");
        client.expect("STORED\r\n");
    }
    // No turn copies more than 512 KiB.
    assert!(yields() >= before + 2 * (LEN as u64 >> 19), "{} after {before}", yields());
    // The whole comes in its order, whichever way it is put together.
    client.send(&[format!("ms k {} MP\r\n", small.len()).as_bytes(), small, b"\r\n"].concat());
    client.expect("HD\r\n");
    client.send(b"get k\r\n");
    expect_value(&mut client, "k", &[small, &value(1, LEN), small, &large].concat());
    client.expect("END\r\n");
    running.stop().unwrap();
}

#[test]
fn a_value_that_finds_no_item_needs_no_second_place() {
    on_each("value_limit = \"16MiB\"", find_no_item);
}

fn find_no_item(running: Running) {
    let mut client = Client::of(&running, "a");
    // Half of the quota: there is no room for another one.
    let len = 16 << 20;
    for request in ["MA N0", "MP N0", "I", "ME I"] {
        client.ask("flush_all\n", "OK\n");
        client.send(
            &[format!("ms k {len} {request}\r\n").as_bytes(), &value(1, len), b"\r\n"].concat(),
        );
        client.expect("HD\r\n");
        client.send(b"get k\r\n");
        expect_value(&mut client, "k", &value(1, len));
        client.expect("END\r\n");
    }
    running.stop().unwrap();
}

#[test]
fn a_value_that_lacks_room_waits_for_readers_while_others_are_served() {
    let (running, clock) = start_with_clock();
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    let mut readers = [0; 3].map(|_| Client::of(&running, "a"));
    let len = 7 << 20;
    client.send(&set("k", &value(9, len)));
    client.expect("STORED\r\n");
    // More than the buffers of a socket take.
    let header = format!("VALUE r 0 {len}\r\n");
    for (seed, reader) in readers.iter_mut().enumerate() {
        other.send(&set("r", &value(seed, len)));
        other.expect("STORED\r\n");
        reader.send(b"get r r r r r r\r\n");
        reader.expect(&header);
    }
    other.ask("delete r\n", "DELETED\n");
    client.send(&append("k", b"0123456789"));
    for _ in 0..20 {
        clock.advance(Duration::from_millis(20));
        other.ask("set small 0 0 1\nx\nget small\n", "STORED\nVALUE small 0 1\nx\nEND\n");
    }
    client.0.set_nonblocking(true).unwrap();
    assert!(client.0.peek(&mut [0]).is_err(), "it did not wait");
    client.0.set_nonblocking(false).unwrap();
    // A reader that goes gives its room back.
    let [gone, mut stays, stuck] = readers;
    drop(gone);
    for _ in 0..20 {
        clock.advance(Duration::from_millis(20));
        other.ask("mn\n", "MN\n");
    }
    client.expect("STORED\r\n");
    let mut found = vec![0; len];
    stays.0.read_exact(&mut found).unwrap();
    assert!(found == value(1, len));
    client.send(b"get k\r\n");
    expect_value(&mut client, "k", &[&*value(9, len), b"0123456789"].concat());
    client.expect("END\r\n");
    // A server that stops would wait for them.
    drop((stays, stuck));
    running.stop().unwrap();
}

#[test]
fn values_on_a_file_are_put_together_part_by_part() {
    for backend in ["auto", "threads"] {
        let folder = tempfile::tempdir().unwrap();
        let running = start(&on_file(&folder, backend, LIMIT));
        let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
        client.send(&set("k", &value(1, LEN)));
        client.expect("STORED\r\n");
        let (small, large) = (b"0123456789".as_slice(), value(2, 1 << 20));
        for more in [small, &large] {
            client.send(&append("k", more));
            other.ask("set small 0 0 1\nx\nget small\n", "STORED\nVALUE small 0 1\nx\nEND\n");
            client.expect("STORED\r\n");
        }
        client.send(&[format!("ms k {} MP\r\n", small.len()).as_bytes(), small, b"\r\n"].concat());
        client.expect("HD\r\n");
        client.ask("incr k 1\n", "CLIENT_ERROR cannot increment or decrement non-numeric value\n");
        client.send(b"get k\r\n");
        expect_value(&mut client, "k", &[small, &value(1, LEN), small, &large].concat());
        client.expect("END\r\n");
        client.ask("touch k 100\ndelete k\nget k\n", "TOUCHED\nDELETED\nEND\n");
        running.stop().unwrap();
    }
}

/// Flips a bit of every block of a file from an offset on.
fn damage(folder: &tempfile::TempDir, from: u64) {
    use std::os::unix::fs::FileExt;
    let path = folder.path().join("medium");
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    for at in (from..file.metadata().unwrap().len()).step_by(4096) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    }
}

/// Value of a whole record: every third is sent from the buffer that it is read into.
fn small(number: usize) -> Vec<u8> {
    value(number, if number % 3 == 1 { 40_000 } else { 10_000 })
}

/// Stores so many values that the first ones have left the write buffers of a file.
fn store_small(client: &mut Client) {
    for number in 0..600 {
        client.send(&set(&format!("s{number}"), &small(number)));
        client.expect("STORED\r\n");
    }
}

#[test]
fn small_values_and_large_ones_come_from_a_file_in_one_reply() {
    for backend in ["auto", "threads"] {
        let folder = tempfile::tempdir().unwrap();
        let running = start(&on_file(&folder, backend, LIMIT));
        let mut client = Client::of(&running, "a");
        store_small(&mut client);
        client.send(&set("k", &value(1, LEN)));
        client.expect("STORED\r\n");
        for number in 0..40 {
            client.send(format!("get s{number} k\r\nget k s{number}\r\nmn\r\n").as_bytes());
            let name = format!("s{number}");
            expect_value(&mut client, &name, &small(number));
            expect_value(&mut client, "k", &value(1, LEN));
            client.expect("END\r\n");
            expect_value(&mut client, "k", &value(1, LEN));
            expect_value(&mut client, &name, &small(number));
            client.expect("END\r\nMN\r\n");
        }
        damage(&folder, 4096);
        client.send(b"get s0 k s1\r\nmg s2 v\r\nget s3\r\nmn\r\n");
        client.expect("END\r\nEN\r\nEND\r\nMN\r\n");
        let counts = running.tenants()[0].cache().statistics().events;
        assert!(counts.file_reads > 160 && counts.damaged == 5, "{counts:?}");
        running.stop().unwrap();
    }
}

/// The value has arrived when the old one is found to lie on the file.
#[test]
fn a_large_value_is_added_to_a_small_one_on_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&on_file(&folder, "auto", LIMIT));
    let mut client = Client::of(&running, "a");
    store_small(&mut client);
    client.send(&append("s0", &value(7, LEN)));
    client.expect("STORED\r\n");
    client.send(b"get s0\r\n");
    expect_value(&mut client, "s0", &[small(0), value(7, LEN)].concat());
    client.expect("END\r\n");
    running.stop().unwrap();
}

#[test]
fn a_damaged_value_on_a_file_is_a_miss_and_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&on_file(&folder, "auto", LIMIT));
    let mut client = Client::of(&running, "a");
    client.ask("set small 0 0 1\nx\n", "STORED\n");
    for key in ["k", "l"] {
        client.send(&set(key, &value(1, LEN)));
        client.expect("STORED\r\n");
    }
    // The whole medium but for its label.
    damage(&folder, 4096);
    client.send(b"get small k small\r\nmg k v s\r\nmg l v s\r\nmn\r\n");
    let small = "VALUE small 0 1\r\nx\r\n";
    client.expect(&format!("{small}{small}END\r\nEN\r\nEN\r\nMN\r\n"));
    let counts = running.tenants()[0].cache().statistics();
    assert_eq!((counts.events.damaged, counts.items), (2, 1));
    client.send(&set("k", &value(2, LEN)));
    client.expect("STORED\r\n");
    client.send(b"get k\r\n");
    expect_value(&mut client, "k", &value(2, LEN));
    client.expect("END\r\n");
    running.stop().unwrap();
}

#[test]
fn a_value_that_is_damaged_behind_its_beginning_ends_the_connection() {
    let folder = tempfile::tempdir().unwrap();
    let running = start(&on_file(&folder, "auto", LIMIT));
    let (mut client, mut other) = (Client::of(&running, "a"), Client::of(&running, "a"));
    other.send(&set("k", &value(1, LEN)));
    other.expect("STORED\r\n");
    let header = format!("VALUE k 0 {LEN}\r\n");
    client.send(b"get k k k k\r\n");
    client.expect(&header);
    damage(&folder, 4096);
    let mut found = Vec::new();
    // It may be reset, since nothing of the request's rest is answered.
    let _ = client.0.read_to_end(&mut found);
    let whole = [&*value(1, LEN), b"\r\n", header.as_bytes()].concat().repeat(4);
    assert!(found.len() < 4 * LEN && whole.starts_with(&found), "{} bytes", found.len());
    other.ask("get k\n", "END\n");
    running.stop().unwrap();
}
