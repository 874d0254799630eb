//! Observed regions behave as mapped ones, and report everything once, in order.

use std::sync::Mutex;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::*;

#[derive(Default)]
struct Diary(Mutex<Vec<String>>);

impl Diary {
    fn note(&self, line: String) {
        self.0.lock().expect("alive").push(line);
    }
}

impl Observer for Diary {
    fn load(&self, offset: u64, len: usize, place: Place) {
        assert!(place.file().ends_with("tests.rs"), "{place}");
        self.note(format!("load {offset}+{len}"));
    }

    fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, place: Place) {
        assert!(place.file().ends_with("tests.rs"), "{place}");
        self.note(format!("{kind:?} {offset}+{}", bytes.len()));
    }

    fn flush(&self, offset: u64, len: usize, kind: FlushKind, place: Place) {
        assert!(place.file().ends_with("tests.rs"), "{place}");
        self.note(format!("{kind:?} {offset}+{len}"));
    }

    fn fence(&self, kind: FenceKind, place: Place) {
        assert!(place.file().ends_with("tests.rs"), "{place}");
        self.note(format!("{kind:?}"));
    }

    fn locked(&self, place: Place) {
        assert!(place.file().ends_with("tests.rs"), "{place}");
        self.note("done".to_owned());
    }
}

/// Makes some accesses of every kind, and returns their results.
fn exercise(region: &impl Region) -> Vec<u64> {
    region.store_u8(3, 7, Relaxed);
    region.store_u32(4, 70, Relaxed);
    region.store_u64(8, 700, Relaxed);
    region.write(60, b"across the lines");
    region.write_streaming(130, &[9; 200]);
    region.persist(60, 16);
    region.zero(64, 2);
    let mut out = vec![0; 20];
    region.read(58, &mut out);
    region.append_to(128, 4, &mut out);
    let mut seen: Vec<u64> = out.into_iter().map(u64::from).collect();
    seen.push(region.compare_exchange_u32(4, 70, 71, Relaxed, Relaxed).expect("equal").into());
    seen.push(region.compare_exchange_u32(4, 70, 72, Relaxed, Relaxed).expect_err("not").into());
    seen.push(region.compare_exchange_u64(8, 700, 701, Relaxed, Relaxed).expect("equal"));
    seen.push(region.compare_exchange_u64(8, 700, 702, Relaxed, Relaxed).expect_err("not"));
    seen.push(region.fetch_add_u64(8, 3, Relaxed));
    seen.push(region.fetch_or_u64(8, 1 << 40, Relaxed));
    seen.push(region.fetch_and_u64(8, !0xff, Relaxed));
    seen.push(region.swap_u64(8, 12, Relaxed));
    seen.push(region.load_u8(3, Relaxed).into());
    seen.push(region.load_u32(4, Relaxed).into());
    seen.push(region.load_u64(8, Relaxed));
    seen.push(region.equals(130, &[9; 200]).into());
    seen.extend(region.load_line(64));
    region.drain();
    seen
}

#[test]
fn an_observed_region_answers_as_a_mapped_one_does() {
    let direct = Direct::anonymous(4096, false).expect("memory");
    let observed = Observed::new(4096, ()).expect("memory");
    assert_eq!(exercise(&direct), exercise(&observed));
    assert_eq!(Region::len(&direct), Region::len(&observed));
    let (mut one, mut other) = (vec![0; 4096], vec![0; 4096]);
    direct.read(0, &mut one);
    Region::read(&observed, 0, &mut other);
    assert!(one == other);
}

#[test]
fn observers_are_told_in_order_and_where_in_the_program() {
    let region = Observed::new(4096, (Diary::default(), Diary::default())).expect("memory");
    region.store_u64(8, 1, Relaxed);
    region.write_streaming(60, &[1; 72]);
    region.persist(0, 16);
    let _ = region.compare_exchange_u64(8, 1, 2, Relaxed, Relaxed);
    let _ = region.compare_exchange_u64(8, 1, 3, Relaxed, Relaxed);
    region.swap_u64(8, 4, Relaxed);
    region.store_u32(4, 4, SeqCst);
    region.write(0, b"");
    region.flush(64, 0);
    let expected = [
        "Cached 8+8",
        "Cached 60+4",
        "Clwb 60+4",
        "Streaming 64+64",
        "Copy",
        "Cached 128+4",
        "Clwb 128+4",
        "Copy",
        "Clwb 0+16",
        "Drain",
        "load 8+8",
        "Locked",
        "Cached 8+8",
        "done",
        "load 8+8",
        "Locked",
        "done",
        "load 8+8",
        "Locked",
        "Cached 8+8",
        "done",
        "Locked",
        "Cached 4+4",
        "done",
    ];
    let (first, second) = region.observer();
    assert_eq!(*first.0.lock().expect("alive"), expected);
    assert_eq!(*second.0.lock().expect("alive"), expected);
}

#[test]
#[should_panic(expected = "outside of the region")]
fn a_flush_outside_is_refused() {
    Observed::new(4096, ()).expect("memory").flush(4090, 7);
}
