//! Mapped files over regions: on emulated persistent memory, and as crashes leave them.

use std::collections::BTreeSet;
use std::sync::Mutex;

use rustix::io::Errno;

use super::*;
use crate::crash::{
    Point, PointKind, Power, RecordedRegion, Recorder, RecorderOptions, RegionImage,
};
use crate::directory::{Directory, LocalDirectory};

const PAGE: u64 = 4096;

#[test]
fn emulated_persistent_memory_holds_small_and_large_writes() {
    let parent = tempfile::tempdir().expect("directory");
    let directory = LocalDirectory::open(parent.path()).expect("opens");
    let pmem = Some(PmemMode { assume_dax: true });
    let options = MapOptions { create: Some(16 << 10), pmem, ..MapOptions::default() };
    let file = directory.map_file("log", &options).expect("makes");
    // A directory for temporary files may lie on persistent memory as well.
    assert!(file.kind().is_pmem());
    let bytes: Vec<u8> = (0..16_384_u32).map(|at| (at * 13 + at / 256) as u8).collect();
    let mut at = 0;
    for len in [116, 511, 512, 1016, 3, 4096, 60, 700, 8000] {
        file.write(at as u64, &bytes[at..at + len]);
        file.persist(at as u64, len as u64).expect("persists");
        at += len;
    }
    let mut found = Vec::new();
    file.append_to(0, at, &mut found);
    assert_eq!(found, bytes[..at]);
    drop(file);
    let error = directory.map_file("log", &MapOptions { create: Some(1 << 20), ..options });
    assert!(matches!(error, Err(FileError::TooSmall { .. })), "{error:?}");
    let again = directory.map_file("log", &MapOptions::default()).expect("as an ordinary file");
    assert_eq!(again.kind(), MappedKind::File);
    assert!(again.equals(0, &bytes[..at]));
}

#[test]
fn what_is_only_read_from_now_on_is_read_by_calls_as_it_was_written() {
    const BYTES: u64 = 1 << 20;
    let parent = tempfile::tempdir().expect("directory");
    let directory = LocalDirectory::open(parent.path()).expect("opens");
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at * 13 + at / 256) as u8).collect();
    for pmem in [None, Some(PmemMode { assume_dax: true })] {
        let options = MapOptions { create: Some(BYTES), pmem, ..MapOptions::default() };
        let file = directory.map_file(&format!("log-{}", pmem.is_some()), &options).expect("makes");
        file.write(0, &bytes);
        // Not persisted: it is in the system's cache, or in the mapping.
        file.expect_reads_only();
        let mut read = b"before".to_vec();
        for (offset, len) in [(0, 1), (4095, 5000), (BYTES - 7, 7)] {
            read.truncate(6);
            file.read_out(offset, len, &mut read).expect("is read");
            assert!(read.starts_with(b"before"));
            assert!(read[6..] == bytes[offset as usize..offset as usize + len]);
            let whole = std::mem::replace(&mut read, b"before".to_vec());
            // What was just read is in memory.
            assert!(file.try_read_out(offset, len, &mut read) && read == whole);
        }
    }
}

#[test]
fn pages_that_are_made_ready_and_let_go_lose_nothing_while_others_write_beside() {
    const BYTES: u64 = 1 << 20;
    const PART: u64 = 40_000;
    let parent = tempfile::tempdir().expect("directory");
    let directory = LocalDirectory::open(parent.path()).expect("opens");
    let options = MapOptions { create: Some(BYTES), ..MapOptions::default() };
    let file = directory.map_file("log", &options).expect("makes");
    let byte = |at: u64| (at * 13 + at / 256) as u8;
    file.expect_writes(0, BYTES);
    file.expect_writes(BYTES - 5000, 1 << 30);
    std::thread::scope(|scope| {
        // Two write the bytes of odd and of even offsets: each page is written while it is let go.
        for first in 0..2 {
            let file = &file;
            scope.spawn(move || {
                for at in (first..BYTES).step_by(2) {
                    file.write(at, &[byte(at)]);
                }
            });
        }
        for _ in 0..20 {
            for at in (0..BYTES - PART).step_by(PART as usize) {
                file.persist(at, PART).expect("persists");
            }
        }
    });
    let expected: Vec<u8> = (0..BYTES).map(byte).collect();
    assert!(file.equals(0, &expected));
    file.persist(0, BYTES).expect("persists");
    assert!(file.equals(0, &expected));
    drop(file);
    assert!(crate::files::read(&parent.path().join("log")).expect("readable") == expected);
}

fn recorded(power: &Power) -> (Arc<RecordedRegion>, Arc<dyn MappedFile>) {
    let region = Recorder::region(PAGE, RecorderOptions::default(), power).expect("memory");
    let region = Arc::new(region);
    let file: Arc<dyn MappedFile> =
        Arc::new(RegionFile::over(Arc::clone(&region), Path::new("/pmem/log")));
    assert_eq!((file.kind(), file.len()), (MappedKind::EmulatedPmem, PAGE));
    (region, file)
}

#[test]
fn a_failed_sync_is_told_at_every_persist_from_then_on() {
    let parent = tempfile::tempdir().expect("directory");
    let options = RegionOptions { create: Some(PAGE), ..RegionOptions::default() };
    let region = Direct::open(&parent.path().join("log"), &options).expect("makes");
    let file = RegionFile::over(Arc::new(region), &parent.path().join("log"));
    assert_eq!(file.kind(), MappedKind::File);
    file.persist_at(0, PAGE, Location::caller()).expect("persists");
    file.region().fail_sync(Errno::IO);
    for len in [PAGE, 1, 0] {
        let error = file.persist_at(0, len, Location::caller()).expect_err("failed before");
        assert_eq!(error.raw_os_error(), Some(Errno::IO.raw_os_error()));
    }
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
