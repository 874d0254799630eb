//! Regions on real persistent memory: a directory on a DAX file system, named by ENTRESOL_DAX_DIR.
//!
//! Few machines have one, so these tests are ignored unless run with `--ignored`. `.ci/dax-vm` runs
//! them in a machine that has.
#![expect(clippy::expect_used, reason = "a test says what it expects")]
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

mod support;

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use entresol_media::{
    Direct, FileError, FlushKind, PmemMode, RegionError, RegionKind, RegionOptions,
};
use rustix::fs::{AtFlags, CWD, StatxAttributes, StatxFlags};
use tempfile::TempDir;

const RELAXED: Ordering = Ordering::Relaxed;

/// Makes a directory for one test on the DAX file system.
fn directory() -> TempDir {
    let place = std::env::var_os("ENTRESOL_DAX_DIR")
        .map(PathBuf::from)
        .expect("ENTRESOL_DAX_DIR must name a directory on a filesystem mounted with dax=always");
    tempfile::tempdir_in(place).expect("a directory on the DAX file system")
}

/// Options for real persistent memory only.
fn options(bytes: u64) -> RegionOptions {
    RegionOptions {
        create: Some(bytes),
        grow: true,
        magic: Some(*b"dax test"),
        pmem: Some(PmemMode { assume_dax: false }),
        ..RegionOptions::default()
    }
}

fn open(path: &Path, bytes: u64) -> Direct {
    let region = Direct::open(path, &options(bytes)).expect("a region under MAP_SYNC");
    assert_eq!(region.kind(), RegionKind::Dax);
    region
}

/// Returns the kernel's flags of each of this process's mappings of the file.
fn mapping_flags(path: &Path) -> Vec<String> {
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("a kernel that tells");
    // Found by its numbers, since the kernel goes on calling the file by its first name.
    let file = path.metadata().expect("the file");
    let (major, minor) = (rustix::fs::major(file.dev()), rustix::fs::minor(file.dev()));
    let numbers = [format!("{major:02x}:{minor:02x}"), file.ino().to_string()];
    let mut of_this_file = false;
    let mut flags = Vec::new();
    for line in maps.lines() {
        if line.split_once('-').is_some_and(|(start, _)| u64::from_str_radix(start, 16).is_ok()) {
            of_this_file = line.split_whitespace().skip(3).take(2).eq(&numbers);
        } else if let (true, Some(found)) = (of_this_file, line.strip_prefix("VmFlags:")) {
            flags.push(found.to_owned());
        }
    }
    flags
}

fn is_synchronous(flags: &str) -> bool {
    flags.split_whitespace().any(|flag| flag == "sf")
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn the_kernel_maps_the_file_itself_with_synchronous_faults() {
    let directory = directory();
    let path = directory.path().join("a");
    let region = open(&path, 1 << 20);
    region.store_u64(4096, 1, RELAXED);
    let flags = mapping_flags(&path);
    assert!(flags.len() == 1 && is_synchronous(&flags[0]), "{flags:?}");
    let stat = rustix::fs::statx(CWD, &path, AtFlags::empty(), StatxFlags::BASIC_STATS);
    let attributes = stat.expect("statx").stx_attributes;
    assert!(attributes.contains(StatxAttributes::DAX), "{attributes:?}");
    println!("MAP_SYNC succeeded; the kernel's flags of the mapping:{}", flags[0]);
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn what_is_dax_stays_dax_when_it_may_be_assumed_and_is_not_when_it_is_not_asked_for() {
    let directory = directory();
    let (pmem, plain) = (directory.path().join("pmem"), directory.path().join("plain"));
    let assumed = PmemMode { assume_dax: true };
    let assuming = RegionOptions { pmem: Some(assumed), ..options(1 << 16) };
    let region = Direct::open(&pmem, &assuming).expect("maps");
    assert_eq!(region.kind(), RegionKind::Dax);
    let ordinary = RegionOptions { pmem: None, ..options(1 << 16) };
    let region = Direct::open(&plain, &ordinary).expect("maps");
    assert_eq!((region.kind(), region.flush_kind()), (RegionKind::MappedFile, FlushKind::Msync));
    region.write(5000, b"by msync");
    region.persist(5000, 8);
    assert!(region.sync_failure().is_none());
    assert!(!is_synchronous(&mapping_flags(&plain)[0]));
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn lines_are_flushed_by_the_best_instruction_that_the_kernel_knows_of() {
    let directory = directory();
    let region = open(&directory.path().join("a"), 1 << 16);
    assert_eq!(region.flush_kind(), support::best_flush());
    for line in 0..64 {
        region.store_u64(line * 64, line + 1, RELAXED);
    }
    region.persist(3, 64 * 64 - 3);
    assert!((0..64).all(|line| region.load_u64(line * 64, RELAXED) == line + 1));
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn what_is_persisted_or_streamed_is_in_the_file_without_msync() {
    let directory = directory();
    let path = directory.path().join("a");
    let region = open(&path, 1 << 20);
    let file = File::options().read(true).open(&path).expect("the file");
    let bytes: Vec<u8> = (0..70_000).map(|i| (i % 251) as u8 + 1).collect();
    let lens = [0, 1, 7, 63, 64, 65, 255, 256, 257, 4095, 4097, 70_000];
    for (offset, len) in [64, 100, 255, 256, 4090].into_iter().flat_map(|o| lens.map(|l| (o, l))) {
        for streamed in [false, true] {
            region.zero(8, 80_000);
            if streamed {
                region.write_streaming(offset, &bytes[..len]);
                region.drain();
            } else {
                region.write(offset, &bytes[..len]);
                region.persist(offset, len);
            }
            let mut found = vec![0xEE; len + 2];
            file.read_exact_at(&mut found, offset - 1).expect("reads");
            let what = format!("{len} bytes at {offset}, streamed: {streamed}");
            assert_eq!((found[0], found[len + 1]), (0, 0), "{what}: neighbours");
            assert_eq!(&found[1..=len], &bytes[..len], "{what}");
        }
    }
    assert!(region.sync_failure().is_none());
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn a_region_grows_step_by_step_and_comes_back_each_time() {
    let directory = directory();
    let path = directory.path().join("a");
    let step = 300 * 4096;
    for steps in 1..=8 {
        let region = open(&path, steps * step);
        assert_eq!(region.len(), steps * step);
        for border in 1..steps {
            let expected = (border - 1).to_le_bytes();
            assert!(region.equals(border * step - 8, &expected), "before border {border}");
        }
        let (new, magic) = ((steps - 1) * step + 8, 8);
        assert!(region.equals(new, &vec![0; step as usize - magic]), "new space is zero");
        region.store_u64(steps * step - 8, steps - 1, RELAXED);
        region.persist(steps * step - 8, 8);
        let error = Direct::open(&path, &options(steps * step)).expect_err("in use").to_string();
        assert!(error.contains("in use"), "{error}");
    }
    let region = open(&path, 4096);
    assert_eq!(region.len(), 8 * step, "never shortened");
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn discarded_space_goes_back_to_the_filesystem_reads_zero_and_can_be_claimed_again() {
    let directory = directory();
    let path = directory.path().join("a");
    let region = open(&path, 8 << 20);
    let blocks = || path.metadata().expect("the file").blocks() * 512;
    region.write(0, &vec![0xAB; 8 << 20]);
    region.persist(0, 8 << 20);
    let full = blocks();
    assert!(full >= 8 << 20, "{full}");
    region.discard(1000, 4 << 20);
    assert!(blocks() <= full - (4 << 20) + 2 * 4096, "{} of {full}", blocks());
    assert!(region.equals(1000, &vec![0; 4 << 20]));
    assert!(region.equals(0, &[0xAB; 1000]) && region.equals(1000 + (4 << 20), &[0xAB; 5000]));
    region.claim(1000, 4 << 20).expect("space");
    assert!(blocks() >= full, "{} of {full}", blocks());
    region.write_streaming(4096, b"anew");
    region.drain();
    assert!(region.equals(4096, b"anew\0") && region.equals(4095, b"\0"));
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn a_full_filesystem_is_an_error_and_leaves_nothing_behind() {
    let directory = directory();
    let space = rustix::fs::statvfs(directory.path()).expect("statvfs");
    let path = directory.path().join("a");
    let too_much = (space.f_bfree + 1) * space.f_frsize;
    let error = Direct::open(&path, &options(too_much)).expect_err("full");
    assert!(matches!(error, RegionError::File(FileError::NoSpace { .. })), "{error}");
    assert!(!path.exists());
    let region = open(&path, 1 << 16);
    region.write(64, b"still here");
    region.persist(64, 10);
    drop(region);
    let error = Direct::open(&path, &options(too_much)).expect_err("full");
    assert!(matches!(error, RegionError::File(FileError::NoSpace { .. })), "{error}");
    assert_eq!(path.metadata().expect("the file").len(), 1 << 16);
    assert!(open(&path, 1 << 16).equals(64, b"still here"));
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn what_another_program_writes_to_the_file_is_seen_and_its_magic_is_respected() {
    let directory = directory();
    let path = directory.path().join("a");
    let region = open(&path, 1 << 16);
    let file = OpenOptions::new().write(true).open(&path).expect("the file");
    file.write_all_at(b"from outside", 9000).expect("writes");
    assert!(region.equals(9000, b"from outside"), "there is one copy of the bytes");
    file.write_all_at(b"SOMEBODY", 0).expect("writes");
    drop(region);
    let error = Direct::open(&path, &options(1 << 16)).expect_err("foreign").to_string();
    assert!(error.contains("left alone"), "{error}");
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DIR on a DAX file system; .ci/dax-vm has one"]
fn threads_that_fault_the_same_pages_in_lose_no_store() {
    const THREADS: u64 = 4;
    const WORDS: u64 = 2000;
    let directory = directory();
    let path = directory.path().join("a");
    let region = open(&path, 2 << 20);
    // Every thread has a word of its own in each cache line, and all have one in common.
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                for word in 1..=WORDS {
                    let line = word * 640;
                    region.store_u64(line + 8 * thread, word, RELAXED);
                    region.persist(line + 8 * thread, 8);
                    region.fetch_add_u64(line + 56, 1, RELAXED);
                    region.persist(line + 56, 8);
                }
            });
        }
    });
    drop(region);
    let region = open(&path, 2 << 20);
    for word in 1..=WORDS {
        let line = region.load_line(word * 640);
        assert!(line[..4].iter().all(|&found| found == word), "line of {word}: {line:?}");
        assert_eq!(line[7], THREADS, "line of {word}");
    }
}
