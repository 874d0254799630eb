//! Regions of every kind: bounds, words, copies, races, flushing, and coming back.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use super::*;
use crate::device::DaxDevice;
use crate::{LocalDirectory, Observed};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

fn region() -> Direct {
    Direct::anonymous(1 << 20, false).expect("memory")
}

#[test]
fn a_region_is_zero_whole_pages_and_refuses_what_is_outside() {
    let region = Direct::anonymous(5000, false).expect("memory");
    assert_eq!(region.len(), 8192);
    assert_eq!((region.kind(), region.flush_kind()), (RegionKind::Anonymous, FlushKind::None));
    let mut out = vec![1; 8192];
    region.read(0, &mut out);
    assert!(out.iter().all(|&byte| byte == 0));
    let refused = |access: &dyn Fn()| catch_unwind(AssertUnwindSafe(access)).is_err();
    assert!(refused(&|| region.write(8190, b"abc")));
    assert!(refused(&|| region.write(u64::MAX, b"a")));
    assert!(refused(&|| region.store_u64(8192, 1, Ordering::Relaxed)));
    assert!(refused(&|| region.store_u64(12, 1, Ordering::Relaxed)));
    assert!(refused(&|| assert_ne!(region.load_line(8192 - 32), [1; 8])));
    assert!(refused(&|| region.append_to(0, 8193, &mut Vec::new())));
    assert!(refused(&|| region.copy_within(0, 8000, 200)));
    region.prefetch(u64::MAX);
    region.write(8192, b"");
}

#[test]
fn a_reservation_takes_no_memory_and_an_absurd_one_is_an_error() {
    Direct::anonymous(1 << 35, true).expect("address space").store_u8(
        1 << 34,
        1,
        Ordering::Relaxed,
    );
    let error = Direct::anonymous(u64::MAX / 2, false).expect_err("absurd").to_string();
    assert!(error.contains("lower the tenant's memory quota"), "{error}");
    assert!(Direct::anonymous(u64::MAX, false).is_err());
}

#[test]
fn words_lines_and_bytes_see_each_other() {
    let region = region();
    region.write(64, &std::array::from_fn::<u8, 64, _>(|i| i as u8));
    assert_eq!(region.load_u32(64, Ordering::Relaxed), 0x0302_0100);
    assert_eq!(region.load_line(64)[7], 0x3f3e_3d3c_3b3a_3938);
    let or_f0 = region.compare_exchange_u32(
        64,
        0x0302_0100,
        0x0302_01F0,
        Ordering::Relaxed,
        Ordering::Relaxed,
    );
    assert_eq!(or_f0, Ok(0x0302_0100));
    assert_eq!(region.load_u8(64, Ordering::Relaxed), 0xF0);
    assert_eq!(region.fetch_add_u64(72, 1, Ordering::Relaxed), 0x0f0e_0d0c_0b0a_0908);
    let relaxed = Ordering::Relaxed;
    assert_eq!(region.compare_exchange_u64(128, 0, 7, relaxed, relaxed), Ok(0));
    assert_eq!(region.compare_exchange_u64(128, 0, 8, relaxed, relaxed), Err(7));
    assert_eq!(region.swap_u64(128, 9, relaxed), 7);
    assert!(region.equals(65, &[1, 2, 3]) && !region.equals(65, &[1, 2, 4]));
    assert!(region.equals(999_999, b""));
}

#[test]
fn appending_keeps_what_the_vector_held() {
    let region = region();
    region.write(1000, b"a value of some length that is copied out");
    let mut out = b"header ".to_vec();
    region.append_to(1000, 7, &mut out);
    region.append_to(1002, 5, &mut out);
    assert_eq!(out, b"header a valuevalue");
}

#[test]
fn discarded_bytes_read_zero_and_their_neighbours_stay() {
    let region = region();
    for (offset, len) in [(100, 50), (4000, 10_000), (4096, 4096), (8191, 2), (0, 1 << 20)] {
        region.write(0, &vec![0xAB; 1 << 20]);
        region.discard(offset, len);
        let mut out = vec![0; 1 << 20];
        region.read(0, &mut out);
        for (at, &byte) in out.iter().enumerate() {
            let inside = (offset..offset + len).contains(&(at as u64));
            assert_eq!(byte, if inside { 0 } else { 0xAB }, "{at} of {offset}+{len}");
        }
    }
}

#[test]
fn racing_copies_yield_mixtures_of_what_was_written() {
    let region = region();
    let stop = std::sync::atomic::AtomicBool::new(false);
    region.write(0, &[b'a'; 300]);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                region.write(0, &[b'b'; 300]);
                region.write(0, &[b'a'; 300]);
            }
        });
        let mut out = Vec::new();
        for len in (0..300).cycle().take(30_000) {
            out.clear();
            region.append_to(300 - len as u64, len, &mut out);
            assert_eq!(out.len(), len);
            assert!(out.iter().all(|byte| b"ab".contains(byte)));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

#[test]
fn regions_are_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Direct>();
}

/// Returns one region of each kind that is possible here.
fn regions(directory: &Path) -> Vec<Direct> {
    let options = RegionOptions { create: Some(1 << 20), ..RegionOptions::default() };
    let emulated = RegionOptions { pmem: Some(PmemMode { assume_dax: true }), ..options.clone() };
    vec![
        region(),
        Direct::open(&directory.join("mapped"), &options).expect("maps"),
        Direct::open(&directory.join("pmem"), &emulated).expect("maps"),
    ]
}

/// Returns directories on different file systems, as far as this machine has them.
fn directories() -> Vec<tempfile::TempDir> {
    let mut directories = vec![tempfile::tempdir().expect("directory")];
    directories.extend(tempfile::tempdir_in("/dev/shm"));
    directories
}

#[test]
fn all_kinds_write_stream_flush_discard_and_claim_alike() {
    for directory in directories() {
        for region in regions(directory.path()) {
            let bytes: Vec<u8> = (0..70_000).map(|i| (i % 251) as u8).collect();
            for (offset, len) in [(0, 64), (64, 256), (1000, 70_000), (4095, 2), (7, 0)] {
                region.zero(0, 1 << 20);
                region.write_streaming(offset, &bytes[..len]);
                region.drain();
                assert!(region.equals(offset, &bytes[..len]), "{:?}", region.kind());
                assert_eq!(region.load_u8(offset + len as u64, Ordering::Relaxed), 0);
                region.persist(offset, len);
                region.discard(offset, len as u64);
                region.claim(offset, len as u64).expect("space");
                assert!(region.equals(offset, &vec![0; len]), "{:?}", region.kind());
                region.write(offset, &bytes[..len]);
                region.persist(offset, len);
                assert!(region.sync_failure().is_none());
            }
        }
    }
}

#[test]
fn kinds_say_what_they_are() {
    let directory = tempfile::tempdir().expect("directory");
    let regions = regions(directory.path());
    assert_eq!(regions[1].kind(), RegionKind::MappedFile);
    assert_eq!(regions[1].flush_kind(), FlushKind::Msync);
    // On a machine whose temporary directory is on DAX this would be the real thing.
    assert!(matches!(regions[2].kind(), RegionKind::Emulated | RegionKind::Dax));
    let line = [FlushKind::Clwb, FlushKind::Clflushopt, FlushKind::Clflush];
    let flushes = cfg!(all(target_arch = "x86_64", not(miri)));
    assert_eq!(line.contains(&regions[2].flush_kind()), flushes);
}

#[test]
fn what_was_written_to_a_file_is_there_when_it_is_mapped_again() {
    for directory in directories() {
        let path = directory.path().join("a");
        let options = RegionOptions {
            create: Some(1 << 16),
            magic: Some(*b"regional"),
            pmem: Some(PmemMode { assume_dax: true }),
            ..RegionOptions::default()
        };
        let region = Direct::open(&path, &options).expect("made");
        region.write_streaming(100, b"still here");
        region.store_u64(4096, 7, Ordering::Relaxed);
        region.persist(4096, 8);
        drop(region);
        let region = Direct::open(&path, &options).expect("found");
        assert!(region.equals(0, b"regional") && region.equals(100, b"still here"));
        assert_eq!((region.len(), region.load_u64(4096, Ordering::Relaxed)), (1 << 16, 7));
        let grown = RegionOptions { create: Some(1 << 17), grow: true, ..options };
        let error = Direct::open(&path, &grown).expect_err("in use").to_string();
        assert!(error.contains("in use"), "{error}");
        drop(region);
        let region = Direct::open(&path, &grown).expect("grown");
        assert!(region.len() == 1 << 17 && region.equals(100, b"still here"));
        assert!(region.equals((1 << 16) - 8, &[0; 16]));
    }
}

#[test]
fn without_dax_persistent_memory_is_refused_and_nothing_is_made() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let options = RegionOptions {
        create: Some(1 << 16),
        pmem: Some(PmemMode { assume_dax: false }),
        ..RegionOptions::default()
    };
    match Direct::open(&path, &options) {
        Ok(region) => assert_eq!(region.kind(), RegionKind::Dax),
        Err(error) => {
            let text = error.to_string();
            assert!(text.contains("is not on a DAX file system; add ,assume-dax"), "{text}");
            assert!(!path.exists());
        }
    }
}

#[test]
fn a_mapped_file_survives_a_process_that_dies_without_a_word() {
    // The mapping is dropped without any flush: the file then holds the bytes that other processes
    // see and that survive a kill.
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("journal");
    let options = RegionOptions { create: Some(4096), ..RegionOptions::default() };
    let region = Direct::open(&path, &options).expect("made");
    region.fetch_or_u64(512, 1 << 40, Ordering::Relaxed);
    let file = crate::files::read(&path).expect("reads");
    assert_eq!(file[512..520], (1_u64 << 40).to_le_bytes());
}

/// Finds a pair by looking at the pairs one by one.
fn found_slowly(words: &[u64], from: usize, first: u64) -> FoundPair {
    let pairs = words.as_chunks::<2>().0.iter().enumerate().skip(from);
    let found = pairs.clone().find(|(_, pair)| pair[0] == first && pair[1] != 0);
    let zero = pairs.clone().find(|(_, pair)| pair[1] == 0).map(|(number, _)| number);
    FoundPair { found: found.map(|(number, pair)| (number, pair[1])), zero }
}

fn check_pairs<const LINES: usize>(region: &Direct, rng: &mut u64) {
    let observed = Observed::new(4096, ()).expect("memory");
    let mut draw = |below: u64| {
        *rng = rng.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (*rng >> 33) % below
    };
    for _ in 0..2000 {
        let kinds = 1 + draw(12);
        let words: Vec<u64> = (0..8 * LINES).map(|_| draw(kinds)).collect();
        for (number, &word) in words.iter().enumerate() {
            region.store_u64(8 * number as u64, word, Ordering::Relaxed);
            Region::store_u64(&observed, 8 * number as u64, word, Ordering::Relaxed);
        }
        let (from, first) = (draw(4 * LINES as u64) as usize, draw(kinds));
        let expected = found_slowly(&words, from, first);
        let found = region.find_pair::<LINES>(0, from, first);
        assert_eq!(found.found, expected.found, "{words:?} from {from}");
        if expected.found.is_none() || found.zero.is_some() {
            assert_eq!(found.zero, expected.zero, "{words:?} from {from}");
        }
        let slow = observed.find_pair::<LINES>(0, from, first);
        assert_eq!(slow.found, expected.found, "{words:?} from {from}");
        if expected.found.is_none() || slow.zero.is_some() {
            assert_eq!(slow.zero, expected.zero, "{words:?} from {from}");
        }
    }
}

#[test]
fn pairs_are_found_in_any_number_of_lines_wherever_they_are() {
    let region = Direct::anonymous(4096, false).expect("memory");
    let mut rng = 7;
    check_pairs::<1>(&region, &mut rng);
    check_pairs::<2>(&region, &mut rng);
    check_pairs::<4>(&region, &mut rng);
    check_pairs::<8>(&region, &mut rng);
    check_pairs::<16>(&region, &mut rng);
}

#[test]
fn a_pair_is_replaced_whatever_was_there() {
    let region = Direct::anonymous(4096, false).expect("memory");
    let observed = Observed::new(4096, ()).expect("memory");
    for before in [0, 7, u64::MAX] {
        region.store_u64(24, before, Ordering::Relaxed);
        Region::store_u64(&observed, 24, before, Ordering::Relaxed);
        region.replace_pair(16, u64::MAX, [3, 4]);
        observed.replace_pair(16, u64::MAX, [3, 4]);
        assert_eq!((region.load_pair(16), observed.load_pair(16)), ([3, 4], [3, 4]));
    }
}

/// Maps the file as a DAX device of this size, which begins with the magic bytes of `options`.
fn over_device(file: &Path, bytes: u64, options: &RegionOptions) -> Result<Direct, FileError> {
    let device = DaxDevice::imagined(file, bytes, 1 << 20, true);
    let file = std::fs::File::options().read(true).write(!options.read_only).open(file);
    Direct::over_device(&device, file.expect("opens"), options, PmemMode::default())
}

#[test]
fn a_device_keeps_its_bytes_and_its_length_and_belongs_to_whoever_it_begins_with() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    std::fs::write(&path, vec![0; 3 << 20]).expect("writes");
    let options = |magic: &[u8; 8], bytes| RegionOptions {
        create: Some(bytes),
        grow: true,
        magic: Some(*magic),
        ..RegionOptions::default()
    };
    let refused = |options: &RegionOptions, reason: &str| {
        let error = over_device(&path, 3 << 20, options).expect_err(reason).to_string();
        assert!(error.contains(reason) && error.contains(&*path.to_string_lossy()), "{error}");
    };
    refused(&options(b"the one.", (3 << 20) + 1), "3145729 are needed");
    let reader = RegionOptions { read_only: true, ..options(b"the one.", 0) };
    refused(&reader, "holds something else");
    assert!(std::fs::read(&path).expect("reads").iter().all(|&byte| byte == 0), "left alone");

    let region = over_device(&path, 3 << 20, &options(b"the one.", 5000)).expect("unused");
    assert_eq!((region.len(), region.kind()), (3 << 20, RegionKind::Dax));
    assert!(!matches!(region.flush_kind(), FlushKind::Msync));
    region.write(4000, &[7; 10_000]);
    region.persist(4000, 10_000);
    // Space cannot be given back, but reads as zero all the same.
    region.discard(5000, 8192);
    region.claim(5000, 8192).expect("it was never given back");
    drop(region);
    refused(&options(b"another.", 5000), "holds something else");
    let region = over_device(&path, 3 << 20, &options(b"the one.", 5000)).expect("its own");
    assert!(region.equals(0, b"the one.") && region.equals(4000, &[7; 1000]));
    assert!(region.equals(5000, &[0; 8192]) && region.equals(13_192, &[7; 808]));
    region.vacate();
    drop(region);
    over_device(&path, 3 << 20, &options(b"another.", 5000)).expect("unused again");
    let bytes = std::fs::read(&path).expect("reads");
    assert!(bytes.len() == 3 << 20 && bytes.starts_with(b"another.\0"));
}

#[test]
fn a_file_is_never_vacated() {
    let directory = tempfile::tempdir().expect("directory");
    let path = directory.path().join("a");
    let options = RegionOptions {
        create: Some(8192),
        magic: Some(*b"the one."),
        pmem: Some(PmemMode { assume_dax: true }),
        ..RegionOptions::default()
    };
    let region = Direct::open(&path, &options).expect("a region");
    region.vacate();
    assert!(region.equals(0, b"the one."));
}

#[test]
fn a_device_without_a_file_system_is_refused_where_files_are_needed() {
    let device = Path::new("/dev/null");
    let refused = |error: FileError, fix: &str| {
        let error = error.to_string();
        assert!(error.contains("/dev/null is a character device"), "{error}");
        assert!(error.contains(fix), "{error}");
    };
    refused(LocalDirectory::open(device).expect_err("no directory"), "fsdax");
    refused(LocalDirectory::open_existing(device).expect_err("no directory"), "fsdax");
    let error = Direct::open_file(device, &RegionOptions::default());
    refused(error.expect_err("no file"), "write pmem:PATH if it is a DAX device");
    let options = RegionOptions { pmem: Some(PmemMode::default()), ..RegionOptions::default() };
    refused(Direct::open_file(device, &options).expect_err("no DAX device"), "no DAX device");
}
