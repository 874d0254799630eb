//! Values that arrive in a place between those of others: they are whole or not there, whatever is
//! stored, evicted and flushed meanwhile.
#![expect(clippy::unwrap_used, reason = "a test says what it expects")]

use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{
    Cache, Config, Expiry, GetOptions, Lookup, Reservation, Reserved, Store, StoreMode, Stored,
    StoredInPlace, Worker,
};
use entresol_media::{IoBuffer, MediumSpec};

/// Bytes of a segment.
const SEGMENT: usize = 64 << 10;
/// Bytes of a value that arrives.
const LEN: usize = 20_000;
/// Media on which values arrive in their place.
const MEDIA: [&str; 2] = ["dram", "file"];

struct Tenant {
    cache: Arc<Cache>,
    worker: Worker,
    clock: Arc<ManualClock>,
}

fn value(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at / 251) as u8 ^ (at % 251) as u8 ^ seed).collect()
}

impl Tenant {
    fn open(medium: &str, dir: &Path) -> Tenant {
        let medium = match medium {
            "dram" => MediumSpec::Dram,
            _ => MediumSpec::File { path: dir.join("values"), model: None },
        };
        let config = Config {
            medium,
            medium_bytes: ByteSize::mib(8),
            segment_bytes: Some(ByteSize(SEGMENT as u64)),
            restart_dir: Some(dir.join("state")),
            huge_pages: false,
            ..Config::dram(ByteSize::mib(16))
        };
        let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
        let cache = Cache::open(config, clock.clone()).unwrap();
        let worker = cache.worker();
        Tenant { cache, worker, clock }
    }

    fn set(&mut self, key: &str, value: &[u8]) {
        let (hash, now) = (self.worker.hash(key.as_bytes()), self.clock.seconds());
        loop {
            match self.worker.store(key.as_bytes(), hash, now, &Store::set(value), None) {
                // Write buffers come back.
                Stored::Busy => std::thread::yield_now(),
                stored => break assert!(matches!(stored, Stored::Stored { .. }), "{stored:?}"),
            }
        }
    }

    fn get(&mut self, key: &str) -> Option<Vec<u8>> {
        let (hash, now) = (self.worker.hash(key.as_bytes()), self.clock.seconds());
        let (options, mut out) = (GetOptions::default(), Vec::new());
        match self.worker.get(key.as_bytes(), hash, now, &options, &mut out, |_, _| ()) {
            Lookup::Hit(_) => Some(out),
            Lookup::Miss => None,
            Lookup::Pending(read) => {
                let mut buffer = IoBuffer::new(read.length);
                self.cache.file().unwrap().read_at(read.offset, &mut buffer).unwrap();
                let range = self.worker.complete_read(&read, &buffer).unwrap();
                Some(buffer[range].to_vec())
            }
        }
    }

    fn reserve(&mut self, key: &str, store: &Store<'_>) -> Option<Reservation> {
        let (hash, now) = (self.worker.hash(key.as_bytes()), self.clock.seconds());
        match Reservation::begin(&mut self.worker, key.as_bytes(), hash, now, store, (LEN, 30)) {
            Reserved::Place(place) => Some(place),
            Reserved::Nothing => None,
            Reserved::Busy => panic!("write buffers are free"),
        }
    }

    fn finish(&mut self, key: &str, store: &Store<'_>, of: Reservation) -> StoredInPlace {
        let (hash, now) = (self.worker.hash(key.as_bytes()), self.clock.seconds());
        of.store(&mut self.worker, key.as_bytes(), hash, now, store)
    }

    /// Stores other items until all that was stored before has been evicted.
    fn churn(&mut self) {
        for number in 0..4000 {
            self.set(&format!("other-{number}"), &value(6000, number as u8));
            self.cache.maintain(self.clock.seconds());
        }
    }
}

fn is_stored(stored: &StoredInPlace) -> bool {
    matches!(stored, StoredInPlace::Done(Stored::Stored { .. }))
}

#[test]
fn a_value_that_arrives_while_everything_else_goes_is_whole() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(medium, dir.path());
        tenant.set("before", b"1");
        let mut place = tenant.reserve("a", &Store::set(b"")).unwrap();
        tenant.set("behind", b"2");
        let sent = value(LEN, 3);
        assert_eq!(place.write(&mut tenant.worker, &sent[..LEN / 2]), LEN / 2);
        assert_eq!((tenant.get("a"), tenant.get("behind")), (None, Some(b"2".to_vec())));
        tenant.churn();
        assert_eq!(tenant.get("a"), None, "{medium}: half of it");
        assert_eq!(place.write(&mut tenant.worker, &sent[LEN / 2..]), LEN - LEN / 2);
        let stored = tenant.finish("a", &Store::set(b""), place);
        assert!(is_stored(&stored));
        assert!(tenant.get("a").unwrap() == sent, "{medium}: it has other bytes");
        tenant.set("a", b"3");
        assert_eq!(tenant.get("a").unwrap(), b"3");
        // Its segment can go now.
        tenant.churn();
        assert!(tenant.cache.statistics().segments_open <= 8, "{medium}");
        tenant.cache.close().unwrap();
    }
}

#[test]
fn a_value_is_received_from_a_socket_and_is_there_after_a_restart() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(medium, dir.path());
        let sent = value(LEN, 5);
        let mut place = tenant.reserve("a", &Store::set(b"")).unwrap();
        let (mut client, server) = UnixStream::pair().unwrap();
        client.write_all(&sent).unwrap();
        client.write_all(b"\r\n").unwrap();
        let front = place.write(&mut tenant.worker, &sent[..0]);
        assert_eq!(front, 0);
        while place.missing() > 0 {
            place.receive(&mut tenant.worker, server.as_fd(), 7000).unwrap();
        }
        assert!(is_stored(&tenant.finish("a", &Store::set(b""), place)));
        assert!(tenant.get("a").unwrap() == sent);
        tenant.cache.close().unwrap();
        drop(tenant);
        let mut tenant = Tenant::open(medium, dir.path());
        assert!(tenant.get("a").unwrap() == sent, "{medium}: {:?}", tenant.cache.restore_remarks());
    }
}

#[test]
fn a_value_that_never_comes_leaves_nothing_behind() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(medium, dir.path());
        let mut places = Vec::new();
        while let Some(mut place) = tenant.reserve("a", &Store::set(b"")) {
            let _ = place.write(&mut tenant.worker, &value(LEN / 3, 7));
            places.push(place);
        }
        let most = places.len();
        assert!((1..=16).contains(&most), "{medium}: {most} segments could stay open");
        assert_eq!(tenant.cache.statistics().items, 0);
        // One is moved out of its place, which is free for another.
        let moved = places.pop().unwrap().into_bytes();
        assert!(moved == value(LEN / 3, 7));
        places.push(tenant.reserve("b", &Store::set(b"")).unwrap());
        assert!(tenant.reserve("c", &Store::set(b"")).is_none());
        drop(places);
        assert_eq!((tenant.get("a"), tenant.get("b")), (None, None));
        tenant.churn();
        let statistics = tenant.cache.statistics();
        assert!(statistics.segments_open <= 8, "{medium}: {}", statistics.segments_open);
        tenant.cache.close().unwrap();
    }
}

#[test]
fn a_condition_is_checked_once_the_value_is_there() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(medium, dir.path());
        let sent = value(LEN, 9);
        let add = Store { mode: StoreMode::Add, ..Store::set(b"") };
        let mut place = tenant.reserve("a", &add).unwrap();
        let _ = place.write(&mut tenant.worker, &sent);
        tenant.set("a", b"first");
        let stored = tenant.finish("a", &add, place);
        assert!(matches!(stored, StoredInPlace::Done(Stored::NotStored)));
        assert_eq!(tenant.get("a").unwrap(), b"first");
        let replace = Store { mode: StoreMode::Replace, ..Store::set(b"") };
        let mut place = tenant.reserve("a", &replace).unwrap();
        let _ = place.write(&mut tenant.worker, &sent);
        assert!(is_stored(&tenant.finish("a", &replace, place)));
        assert!(tenant.get("a").unwrap() == sent);
        for mode in [StoreMode::Append, StoreMode::Prepend] {
            let join = Store { mode, ..Store::set(b"") };
            assert!(tenant.reserve("a", &join).is_none(), "it depends on the old value");
        }
    }
}

#[test]
fn a_flush_and_an_expiry_meanwhile_count_from_the_store() {
    for medium in MEDIA {
        let dir = tempfile::tempdir().unwrap();
        let mut tenant = Tenant::open(medium, dir.path());
        let sent = value(LEN, 11);
        let mut place = tenant.reserve("a", &Store::set(b"")).unwrap();
        let _ = place.write(&mut tenant.worker, &sent);
        tenant.cache.flush_all(tenant.clock.seconds(), 0);
        // Its segment is flushed: the value is stored like others, and is there.
        let stored = tenant.finish("a", &Store::set(b""), place);
        let StoredInPlace::Elsewhere(moved) = stored else { panic!("{medium}: it was flushed") };
        assert!(moved == sent);
        tenant.set("a", &moved);
        assert!(tenant.get("a").unwrap() == sent);
        let until = |second| Store { expiry: Expiry::At(Seconds(second)), ..Store::set(b"") };
        let mut place = tenant.reserve("b", &until(1_000_010)).unwrap();
        let _ = place.write(&mut tenant.worker, &sent);
        tenant.clock.advance(Duration::from_secs(100));
        tenant.cache.maintain(tenant.clock.seconds());
        assert!(is_stored(&tenant.finish("b", &until(1_000_110), place)));
        tenant.cache.maintain(tenant.clock.seconds());
        assert!(tenant.get("b").unwrap() == sent, "{medium}");
        tenant.clock.advance(Duration::from_secs(10));
        tenant.cache.maintain(tenant.clock.seconds());
        assert_eq!(tenant.get("b"), None, "{medium}");
    }
}
