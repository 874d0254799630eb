//! Mapped files over recorded persistent memory, as crashes leave them.
#![expect(clippy::expect_used, reason = "a test says what it expects")]

use std::collections::BTreeSet;
use std::panic::Location;
use std::path::Path;
use std::sync::{Arc, Mutex};

use entresol_media::{MappedFile, MappedKind, RegionFile};
use entresol_simulated::crash::{
    Point, PointKind, Power, RecordedRegion, Recorder, RecorderOptions, RegionImage,
};

const PAGE: u64 = 4096;

fn recorded(power: &Power) -> (Arc<RecordedRegion>, Arc<dyn MappedFile>) {
    let region = Recorder::region(PAGE, RecorderOptions::default(), power).expect("memory");
    let region = Arc::new(region);
    let file: Arc<dyn MappedFile> =
        Arc::new(RegionFile::over(Arc::clone(&region), Path::new("/pmem/log")));
    assert_eq!((file.kind(), file.len()), (MappedKind::EmulatedPmem, PAGE));
    (region, file)
}

type Seen = Arc<Mutex<BTreeSet<(PointKind, Vec<u8>)>>>;

/// Returns every content of these bytes that a crash may leave at the crash points to come.
fn watch(power: &Power, offset: u64, len: usize) -> Seen {
    let seen = Arc::new(Mutex::new(BTreeSet::new()));
    let saw = Arc::clone(&seen);
    power.watch(Box::new(move |point: &Point, media| {
        let medium = &media[0];
        let units = medium.units();
        let count: u64 = units.iter().map(|&states| u64::from(states) + 1).product();
        assert!(count <= 1 << 16, "too many to try: {units:?}");
        for mut number in 0..count {
            let mut choices = Vec::new();
            for &states in &units {
                choices.push((number % (u64::from(states) + 1)) as u16);
                number /= u64::from(states) + 1;
            }
            medium.settle(&mut choices);
            let image = medium.image(&choices, &Power::new());
            let image = image.downcast_ref::<RegionImage>().expect("of a region");
            let file = RegionFile::over(Arc::clone(image.region()), Path::new("/pmem/log"));
            let mut bytes = vec![0; len];
            file.read(offset, &mut bytes);
            saw.lock().expect("alive").insert((point.kind, bytes));
        }
    }));
    seen
}

#[test]
fn a_crash_leaves_any_words_of_what_is_not_persisted_and_all_of_what_is() {
    for (len, at) in [(24, 104), (600, 64)] {
        let power = Power::new();
        let (_region, file) = recorded(&power);
        // Behind the first word only, so that few words can be had in many combinations.
        let (mut bytes, last) = (vec![0; len], len - 8);
        bytes[8..16].fill(2);
        bytes[last..].fill(3);
        let seen = watch(&power, at, len);
        file.write(at, &bytes);
        file.persist(at, len as u64).expect("a fence");
        let before = seen.lock().expect("alive").clone();
        assert!(before.iter().all(|(kind, _)| *kind == PointKind::Drain));
        let has = |bytes: &[u8]| before.contains(&(PointKind::Drain, bytes.to_vec()));
        let mut torn = vec![0; len];
        assert!(has(&torn) && has(&bytes), "{len} bytes");
        torn[last..].fill(3);
        assert!(has(&torn), "the last word without the one before, {len} bytes");
        seen.lock().expect("alive").clear();
        power.point(PointKind::End, Location::caller());
        let after = seen.lock().expect("alive").clone();
        assert_eq!(after, BTreeSet::from([(PointKind::End, bytes)]), "{len} bytes");
        power.clear();
    }
}

#[test]
fn records_of_any_size_side_by_side_do_no_harm_to_each_other() {
    let power = Power::new();
    let (region, file) = recorded(&power);
    let mut at = 0;
    for (number, len) in [(1, 116), (2, 700), (3, 30), (4, 1016), (5, 512)] {
        file.write(at, &vec![number; len]);
        at += len as u64;
    }
    file.persist(0, at).expect("a fence");
    assert!(region.observer().misuses().is_empty(), "{:?}", region.observer().misuses());
    let seen = watch(&power, 0, at as usize);
    power.point(PointKind::End, Location::caller());
    assert_eq!(seen.lock().expect("alive").len(), 1, "all is durable");
    power.clear();
}

#[test]
#[should_panic(expected = "outside")]
fn a_comparison_does_not_lead_out() {
    let (_, file) = recorded(&Power::new());
    file.compare(PAGE - 2, 3, b"ab");
}
