//! Mapped files over regions: on emulated persistent memory.

use rustix::io::Errno;

use super::*;
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
