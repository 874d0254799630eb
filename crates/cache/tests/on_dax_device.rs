//! A cache whose values lie on a real DAX device, named by ENTRESOL_DAX_DEVICE. What it begins with
//! is lost. Few machines have one; `.ci/slow dax-vm` runs the test in a machine that has.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::{ByteSize, Clock, ManualClock, Seconds};
use entresol_cache::{Cache, Config, GetOptions, Lookup, Store, Stored, Worker};
use entresol_media::{Direct, MediumSpec, PmemMode, RegionOptions};

const KEYS: u32 = 3000;

fn config(device: &Path, state: &Path) -> Config {
    Config {
        medium: MediumSpec::Pmem { path: device.into(), assume_dax: false },
        medium_bytes: ByteSize::mib(8),
        segment_bytes: Some(ByteSize::kib(64)),
        value_bytes_max: Some(ByteSize::kib(16)),
        restart_dir: Some(state.into()),
        huge_pages: false,
        ..Config::dram(ByteSize::mib(8))
    }
}

fn value_of(key: u32) -> Vec<u8> {
    let mut value = format!("{key}:").into_bytes();
    value.resize(20 + key as usize * 37 % 700, b'v');
    value
}

fn get(worker: &mut Worker, key: u32, now: Seconds) -> Option<Vec<u8>> {
    let name = format!("key{key}");
    let (hash, mut out) = (worker.hash(name.as_bytes()), Vec::new());
    let options = GetOptions::default();
    match worker.get(name.as_bytes(), hash, now, &options, &mut out, |_, _| ()) {
        Lookup::Hit(_) => Some(out),
        _ => None,
    }
}

#[test]
#[ignore = "needs ENTRESOL_DAX_DEVICE; run by .ci/slow dax-vm, which has one"]
fn values_are_on_the_device_and_come_back_with_a_clean_stop() {
    let device = std::env::var_os("ENTRESOL_DAX_DEVICE").map(PathBuf::from);
    let device = device.expect("ENTRESOL_DAX_DEVICE must name a DAX device in the mode devdax");
    let state = tempfile::tempdir().expect("directory");
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let now = clock.seconds();
    let open = || Cache::open(config(&device, state.path()), clock.clone()).expect("a cache");
    let cache = open();
    let mut worker = cache.worker();
    for key in 0..KEYS {
        let name = format!("key{key}");
        let (hash, value) = (worker.hash(name.as_bytes()), value_of(key));
        let stored = worker.store(name.as_bytes(), hash, now, &Store::set(&value), None);
        assert!(matches!(stored, Stored::Stored { .. }), "{key}: {stored:?}");
    }
    let second = Config { restart_dir: None, ..config(&device, state.path()) };
    let second = Cache::open(second, clock.clone());
    let error = second.map(drop).expect_err("one cache for one device").to_string();
    assert!(error.contains("in use"), "{error}");
    drop(worker);
    cache.close().expect("a clean stop");
    drop(cache);
    let cache = open();
    let mut worker = cache.worker();
    let lost: Vec<u32> =
        (0..KEYS).filter(|key| get(&mut worker, *key, now) != Some(value_of(*key))).collect();
    assert!(lost.is_empty(), "{lost:?} are lost: {:?}", cache.statistics().events);
    drop(worker);
    drop(cache);
    let larger = Config { medium_bytes: ByteSize::mib(160), ..config(&device, state.path()) };
    let error = Cache::open(larger, clock.clone()).map(drop).expect_err("too small").to_string();
    assert!(error.contains("are needed; name a larger device"), "{error}");
    let any = RegionOptions { pmem: Some(PmemMode::default()), ..RegionOptions::default() };
    Direct::open(&device, &any).expect("the device").vacate();
}
