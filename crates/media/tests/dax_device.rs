//! Regions on a real DAX device, named by ENTRESOL_DAX_DEVICE. What it begins with is lost.
//!
//! Few machines have one, so these tests are ignored unless run with `--ignored`. `.ci/dax-vm` runs
//! them in a machine that has. They share the device, so they run in turn (`--test-threads=1`).
#![expect(clippy::expect_used, reason = "a test says what it expects")]
#![expect(clippy::disallowed_methods, reason = "the device is looked at from outside here")]

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::Ordering;

use entresol_media::{
    Direct, LocalDirectory, PmemMode, RegionKind, RegionOptions, open_block_file,
};

const RELAXED: Ordering = Ordering::Relaxed;

fn device() -> PathBuf {
    std::env::var_os("ENTRESOL_DAX_DEVICE")
        .map(PathBuf::from)
        .expect("ENTRESOL_DAX_DEVICE must name a DAX device in the mode devdax")
}

fn options(magic: [u8; 8]) -> RegionOptions {
    RegionOptions {
        create: Some(1 << 20),
        grow: true,
        magic: Some(magic),
        pmem: Some(PmemMode { assume_dax: false }),
        ..RegionOptions::default()
    }
}

/// Opens the device, which counts as unused before.
fn open() -> Direct {
    let region = Direct::open(&device(), &options(*b"dax test")).expect("an unused DAX device");
    assert_eq!(region.kind(), RegionKind::Dax);
    region
}

/// Returns a fact of the device by the bus, which is another way to sysfs than the engine's.
fn fact(name: &str) -> u64 {
    let name_of_device = device();
    let name_of_device = name_of_device.file_name().expect("a name");
    let file = PathBuf::from("/sys/bus/dax/devices").join(name_of_device).join(name);
    let text = std::fs::read_to_string(file).expect("a fact");
    text.trim_end().parse().expect("a number")
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; .ci/dax-vm has one"]
fn all_of_the_device_is_mapped_and_flushed_by_the_best_instruction() {
    let region = open();
    let align = fact("align");
    assert_eq!(region.len(), fact("size") / align * align);
    let best = support::best_flush();
    assert_eq!(region.flush_kind(), best);
    let last = region.len() - 8;
    region.store_u64(last, 1, RELAXED);
    region.persist(last, 8);
    assert_eq!(region.load_u64(last, RELAXED), 1);
    region.store_u64(last, 0, RELAXED);
    let maps = std::fs::read_to_string("/proc/self/maps").expect("a kernel that tells");
    let stat = device().metadata().expect("the device");
    assert!(maps.contains(&format!(" {} ", stat.ino())), "it is mapped: {maps}");
    println!("{} bytes in units of {align}, flushed by {best:?}", region.len());
    region.vacate();
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; .ci/dax-vm has one"]
fn what_is_persisted_or_streamed_is_there_when_it_is_mapped_again() {
    let bytes: Vec<u8> = (0..70_000).map(|i| (i % 251) as u8 + 1).collect();
    let region = open();
    region.zero(8, 400_000);
    region.write(5000, &bytes);
    region.persist(5000, bytes.len());
    region.write_streaming(100_001, &bytes);
    region.drain();
    assert!(region.sync_failure().is_none());
    drop(region);
    let region = open();
    for at in [5000, 100_001] {
        assert!(region.equals(at, &bytes) && region.equals(at - 1, &[0]), "at {at}");
        assert!(region.equals(at + bytes.len() as u64, &[0]), "behind {at}");
    }
    region.vacate();
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; .ci/dax-vm has one"]
fn a_device_has_one_user_and_keeps_what_is_anothers() {
    let region = open();
    let error = Direct::open(&device(), &options(*b"dax test")).expect_err("in use").to_string();
    assert!(error.contains("in use by another process"), "{error}");
    drop(region);
    let error = Direct::open(&device(), &options(*b"SOMEBODY")).expect_err("foreign").to_string();
    assert!(error.contains("left alone") && error.contains("daxio"), "{error}");
    let region = open();
    region.vacate();
    drop(region);
    let region = Direct::open(&device(), &options(*b"SOMEBODY")).expect("unused again");
    region.vacate();
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; .ci/dax-vm has one"]
fn more_than_the_device_has_is_refused_and_so_is_use_as_a_file_or_directory() {
    let all = open().len();
    let more = RegionOptions { create: Some(all + 1), ..options(*b"dax test") };
    let error = Direct::open(&device(), &more).expect_err("too small").to_string();
    assert!(error.contains(&format!("has {all} bytes, {} are needed", all + 1)), "{error}");
    let path = device();
    let refused = [
        LocalDirectory::open(&path).map(drop).expect_err("no directory"),
        open_block_file(&path, &Default::default()).map(drop).expect_err("no block file"),
    ];
    for error in refused.map(|error| error.to_string()) {
        assert!(error.contains("is a character device; name a "), "{error}");
    }
    open().vacate();
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; .ci/dax-vm has one"]
fn discarded_bytes_read_as_zero_and_threads_lose_no_store() {
    const THREADS: u64 = 4;
    const WORDS: u64 = 2000;
    let region = open();
    region.write(4096, &[7; 100_000]);
    region.persist(4096, 100_000);
    region.discard(5000, 50_000);
    region.claim(5000, 50_000).expect("its space was never given back");
    assert!(region.equals(5000, &[0; 50_000]) && region.equals(55_000, &[7; 49_096]));
    region.zero(4096, 2 << 20);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let region = &region;
            scope.spawn(move || {
                for word in 1..=WORDS {
                    let line = 4096 + word * 640;
                    region.store_u64(line + 8 * thread, word, RELAXED);
                    region.persist(line + 8 * thread, 8);
                    region.fetch_add_u64(line + 56, 1, RELAXED);
                    region.persist(line + 56, 8);
                }
            });
        }
    });
    drop(region);
    let region = open();
    for word in 1..=WORDS {
        let line = region.load_line(4096 + word * 640);
        assert!(line[..4].iter().all(|&found| found == word), "line of {word}: {line:?}");
        assert_eq!(line[7], THREADS, "line of {word}");
    }
    region.vacate();
}
