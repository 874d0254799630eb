//! Stores whose data lies on several volumes, of several classes of media.
#![expect(clippy::disallowed_methods, reason = "somebody else moves and makes files")]

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory};
use entresol_store::{
    Classes, Kvdb, KvdbOptions, Kvs, KvsOptions, MediaClass, MediumStatistics, Policy, StoreError,
    Volume, WrittenBytes, check_at,
};

use crate::common::{AGING, in_world};

const KIB: u64 = 1 << 10;
const VALUE_BYTES: usize = 1000;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: 64 * KIB,
        generation_bytes: 128 * KIB,
        memory_bytes: 4 << 20,
        row_cache_bytes: 0,
        reserve_bytes: 64 * KIB,
        ..KvdbOptions::default()
    }
}

fn directory(path: &Path) -> Arc<dyn Directory> {
    Arc::new(LocalDirectory::open(path).expect("a directory"))
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a directory"))
    }

    fn directory(&self, name: &str) -> Arc<dyn Directory> {
        directory(&self.0.path().join(name))
    }

    fn place(&self, class: MediaClass, name: &str, bytes_max: Option<u64>) -> Volume {
        Volume { class, directory: self.directory(name), bytes_max }
    }

    /// Creates a store with a staging volume with a quota, and a capacity volume.
    fn create(&self, staging_bytes: Option<u64>) -> Kvdb {
        self.create_with(staging_bytes, options())
    }

    fn create_with(&self, staging_bytes: Option<u64>, options: KvdbOptions) -> Kvdb {
        let volumes = [
            self.place(MediaClass::Staging, "staging", staging_bytes),
            self.place(MediaClass::Capacity, "capacity", None),
        ];
        Kvdb::create_on(&volumes, options, Arc::new(SystemClock::new())).expect("is made")
    }

    fn open(&self) -> Result<Kvdb, StoreError> {
        Kvdb::open_at(&self.0.path().join("staging"), options())
    }

    fn files(&self, name: &str) -> usize {
        self.directory(name).list().expect("lists").len()
    }
}

fn kvs(store: &Kvdb, name: &str, policy: Policy) -> Kvs {
    store.create_kvs(name, KvsOptions { policy, ..KvsOptions::default() }).expect("is made")
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:08}").into_bytes()
}

fn value(number: u32, round: u8) -> Vec<u8> {
    let mut value = vec![round; VALUE_BYTES];
    value[..4].copy_from_slice(&number.to_le_bytes());
    value
}

fn put(kvs: &Kvs, numbers: std::ops::Range<u32>, round: u8) {
    for number in numbers {
        kvs.put(&key(number), &value(number, round)).expect("is put");
    }
}

fn expect(kvs: &Kvs, numbers: std::ops::Range<u32>, round: u8) {
    for number in numbers {
        let found = kvs.get(&key(number)).expect("is read");
        assert!(found == Some(value(number, round)), "key {number}");
    }
}

fn of_class(store: &Kvdb, class: MediaClass) -> MediumStatistics {
    let media = store.statistics().expect("open").media;
    media.into_iter().find(|medium| medium.class == class).expect("has the class")
}

/// Waits until background work makes a condition hold.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6_000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} never comes");
}

fn policy(text: &str) -> Policy {
    text.parse().expect("a policy")
}

#[test]
fn values_sink_from_a_place_that_is_nearly_full_and_keys_stay() {
    let scratch = Scratch::new();
    // The keys are a small part of the data: there is room for them beside what the log leaves.
    let bytes_max = 16 << 20;
    let store = scratch.create(Some(bytes_max));
    let users = kvs(&store, "users", Policy::default());
    put(&users, 0..20_000, 1);
    store.compact().expect("compacts");
    wait_until("sinking", || {
        let staging = of_class(&store, MediaClass::Staging).space;
        staging.free_bytes.is_some_and(|free| free > bytes_max / 5)
    });
    let (staging, capacity) =
        (of_class(&store, MediaClass::Staging), of_class(&store, MediaClass::Capacity));
    assert!(capacity.written.demoted_bytes > 4 << 20, "{:?}", capacity.written);
    assert!(staging.space.run_bytes > 0, "keys are where they are found fast");
    assert_eq!(capacity.space.run_bytes, 0);
    let on_staging = staging.space.log_bytes + staging.space.run_bytes + staging.space.value_bytes;
    assert!(on_staging <= bytes_max, "{on_staging}");
    expect(&users, 0..20_000, 1);
    store.close().expect("closes");
    let store = scratch.open().expect("finds the other place");
    expect(&store.kvs("users").expect("there"), 0..20_000, 1);
}

#[test]
fn values_that_are_overwritten_while_there_is_room_never_reach_capacity() {
    let scratch = Scratch::new();
    let store = scratch.create(Some(16 << 20));
    let users = kvs(&store, "users", Policy::default());
    for round in 1..=20 {
        put(&users, 0..1_000, round);
    }
    store.compact().expect("compacts");
    expect(&users, 0..1_000, 20);
    assert_eq!(of_class(&store, MediaClass::Capacity).written.sum(), 0);
}

#[test]
fn a_load_is_written_to_capacity_once_and_its_keys_stay_on_staging() {
    let scratch = Scratch::new();
    // Segments have a header of 4 KiB.
    let options =
        KvdbOptions { segment_bytes: 512 * KIB, generation_bytes: 1024 * KIB, ..options() };
    let store = scratch.create_with(None, options);
    let users = kvs(&store, "users", policy(AGING));
    put(&users, 0..4_000, 1);
    store.compact().expect("compacts");
    expect(&users, 0..4_000, 1);
    let capacity = of_class(&store, MediaClass::Capacity);
    let live = 4_000 * (VALUE_BYTES as u64 + key(0).len() as u64);
    assert!(capacity.written.demoted_bytes >= live, "all values have aged");
    assert!(capacity.written.sum() * 20 <= live * 21, "{:?} of {live}", capacity.written);
    assert_eq!(capacity.space.run_bytes, 0, "keys stay on staging");
    let staging = of_class(&store, MediaClass::Staging);
    assert_eq!(staging.space.value_bytes, 0);
}

#[test]
fn nothing_of_a_kvs_lies_where_its_policy_does_not_want_it() {
    let scratch = Scratch::new();
    let store = scratch.create(None);
    let cold = kvs(&store, "cold", policy("capacity-only"));
    let hot = kvs(&store, "hot", policy("staging-only"));
    put(&cold, 0..2_000, 1);
    put(&hot, 0..1_000, 1);
    store.compact().expect("compacts");
    let (staging, capacity) =
        (of_class(&store, MediaClass::Staging), of_class(&store, MediaClass::Capacity));
    let record = VALUE_BYTES as u64 + key(0).len() as u64;
    assert!(capacity.space.value_live_bytes >= 2_000 * record);
    assert!(capacity.space.value_live_bytes < 2_100 * record);
    assert!(staging.space.value_live_bytes >= 1_000 * record);
    assert!(staging.space.value_live_bytes < 1_100 * record);
    assert!(staging.space.run_bytes > 0 && capacity.space.run_bytes > 0);
    expect(&cold, 0..2_000, 1);
    expect(&hot, 0..1_000, 1);
}

#[test]
fn what_a_new_policy_wants_elsewhere_moves_behind_the_callers_backs() {
    let scratch = Scratch::new();
    let store = scratch.create(None);
    let users = kvs(&store, "users", policy("capacity-only"));
    put(&users, 0..4_000, 1);
    store.compact().expect("compacts");
    assert_eq!(of_class(&store, MediaClass::Staging).space.run_bytes, 0);
    store.set_policy("users", policy("staging-only")).expect("is set");
    wait_until("moving", || of_class(&store, MediaClass::Capacity).space.value_live_bytes == 0);
    let staging = of_class(&store, MediaClass::Staging);
    assert!(staging.written.misplaced_bytes > 3 << 20, "{:?}", staging.written);
    expect(&users, 0..4_000, 1);
    drop(store);
    let store = scratch.open().expect("opens");
    let kvs = &store.statistics().expect("open").kvs[0];
    assert_eq!(kvs.policy, "staging-only");
}

#[test]
fn values_return_to_a_place_that_has_become_half_empty() {
    let scratch = Scratch::new();
    // The quota is large beside the size below which a compaction is not worthwhile.
    let bytes_max = 16 << 20;
    let store = scratch.create(Some(bytes_max));
    let (one, two) = (kvs(&store, "one", Policy::default()), kvs(&store, "two", Policy::default()));
    // The oldest data is demoted first.
    put(&two, 0..6_000, 1);
    put(&one, 0..24_000, 1);
    store.compact().expect("compacts");
    wait_until("sinking", || {
        of_class(&store, MediaClass::Capacity).written.demoted_bytes > 4 << 20
    });
    store.drop_kvs("one").expect("is dropped");
    store.compact().expect("compacts");
    wait_until("returning", || {
        let capacity = of_class(&store, MediaClass::Capacity).space;
        let staging = of_class(&store, MediaClass::Staging).space;
        // Less than a MiB in segments with dead values is not worth a compaction.
        capacity.value_live_bytes < 1 << 20
            || staging.free_bytes.is_some_and(|it| it < bytes_max / 2)
    });
    assert!(of_class(&store, MediaClass::Staging).written.promoted_bytes > 1 << 20);
    expect(&two, 0..6_000, 1);
}

#[test]
fn places_come_and_go_while_the_store_is_open() {
    let scratch = Scratch::new();
    let store = scratch.create(None);
    let users = kvs(&store, "users", policy(AGING));
    put(&users, 0..3_000, 1);
    store.compact().expect("compacts");
    // Files that do not belong to the store stay, and do not keep the volume from being retired.
    std::fs::write(scratch.0.path().join("capacity/theirs"), b"a letter").expect("is written");
    drop(users);
    store.close().expect("closes");
    let store = scratch.open().expect("opens");
    let users = store.kvs("users").expect("there");
    let new = scratch.place(MediaClass::Capacity, "new", None);
    store.add_volume(&new).expect("is added");
    let mut told = Vec::new();
    let old = scratch.directory("capacity");
    let mut progress = |progress: entresol_store::RetireProgress| {
        assert!(progress.bytes > 3_000 * 1_000, "{progress:?}");
        told.push(progress.bytes_left);
        ControlFlow::Continue(())
    };
    assert!(store.retire_volume(&old, &mut progress).expect("is retired"));
    // Background work may have moved some of it before the first report.
    assert!(told.is_sorted_by(|before, now| before >= now), "{told:?}");
    assert_eq!(told.last(), Some(&0));
    assert_eq!(scratch.files("capacity"), 1, "nothing of ours is left there");
    put(&users, 3_000..4_000, 1);
    expect(&users, 0..4_000, 1);
    store.close().expect("closes");
    let store = scratch.open().expect("opens without it");
    assert_eq!(store.volumes().len(), 2);
    expect(&store.kvs("users").expect("there"), 0..4_000, 1);
    let home = scratch.directory("staging");
    let done = store.retire_volume(&home, &mut |_| ControlFlow::Continue(()));
    assert!(matches!(done, Ok(true)), "only the manifest is there: {done:?}");
    expect(&store.kvs("users").expect("there"), 0..4_000, 1);
    let last = store.retire_volume(&scratch.directory("new"), &mut |_| ControlFlow::Continue(()));
    assert!(matches!(last, Err(StoreError::Policy { .. })), "it is the last: {last:?}");
    // The home can be used again, as the class it was, and within another quota.
    let again = |class, bytes_max| store.add_volume(&scratch.place(class, "staging", bytes_max));
    let wrong = again(MediaClass::Pmem, None).expect_err("it is another class").to_string();
    assert!(wrong.contains("add it again with this class") && wrong.contains("staging"), "{wrong}");
    again(MediaClass::Staging, Some(16 << 20)).expect("is added again");
    assert!(matches!(again(MediaClass::Staging, None), Err(StoreError::Exists { .. })));
    assert_eq!(store.volumes()[0].bytes_max, Some(16 << 20));
    put(&store.kvs("users").expect("there"), 4_000..5_000, 1);
    assert!(of_class(&store, MediaClass::Staging).space.log_bytes > 0, "the log lies there again");
    store.close().expect("closes");
    let store = scratch.open().expect("opens");
    let home = &of_class(&store, MediaClass::Staging);
    assert!(!home.is_retiring && store.volumes()[0].bytes_max == Some(16 << 20), "{home:?}");
    expect(&store.kvs("users").expect("there"), 0..5_000, 1);
    drop(store);
    let report = check_at(&scratch.0.path().join("staging"), &mut |_| {}).expect("checks");
    assert!(report.is_whole(), "{:?}", report.findings);
}

#[test]
fn a_place_that_has_less_than_the_reserve_is_used() {
    let scratch = Scratch::new();
    let volumes = [
        scratch.place(MediaClass::Staging, "staging", Some(4 << 20)),
        scratch.place(MediaClass::Capacity, "capacity", None),
    ];
    let options = KvdbOptions { reserve_bytes: 8 << 20, ..options() };
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::create_on(&volumes, options, clock).expect("is made");
    let users = kvs(&store, "users", Policy::default());
    put(&users, 0..1_000, 1);
    store.compact().expect("compacts");
    assert!(of_class(&store, MediaClass::Staging).space.value_live_bytes > 1_000 * 1_000);
    assert_eq!(of_class(&store, MediaClass::Capacity).written.sum(), 0);
    put(&users, 1_000..8_000, 1);
    store.compact().expect("compacts");
    let staging = of_class(&store, MediaClass::Staging).space;
    assert!(staging.free_bytes.is_some_and(|bytes| bytes >= 1 << 20), "{staging:?}");
    expect(&users, 0..8_000, 1);
}

#[test]
fn without_a_place_it_says_what_can_be_read_and_reads_that() {
    let scratch = Scratch::new();
    let store = scratch.create(None);
    let cold = kvs(&store, "cold", policy("capacity-only"));
    let mixed = kvs(&store, "mixed", policy(AGING));
    let hot = kvs(&store, "hot", policy("staging-only"));
    for kvs in [&cold, &mixed, &hot] {
        put(kvs, 0..500, 1);
    }
    store.compact().expect("compacts");
    put(&hot, 500..510, 1);
    store.close().expect("closes");
    let (there, away) = (scratch.0.path().join("capacity"), scratch.0.path().join("away"));
    std::fs::rename(&there, &away).expect("is moved");
    let error = scratch.open().expect_err("a place is missing").to_string();
    assert!(error.contains(&there.display().to_string()), "{error}");
    for part in ["capacity volume", "of the Kvs mixed, hot can be read, not of cold", "read-only"] {
        assert!(error.contains(part), "{part}: {error}");
    }
    let home = scratch.directory("staging");
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::open_read_only(home.clone(), options(), clock.clone()).expect("opens");
    assert_eq!(store.uncertain_behind(), None, "the log ends before our eyes");
    expect(&store.kvs("hot").expect("whole"), 0..510, 1);
    let error = store.kvs("cold").expect_err("is away");
    assert!(matches!(error, StoreError::KvsDamaged { .. }));
    let away_at = format!("missing volume: {}", there.display());
    let error = error.to_string();
    assert!(error.contains(&away_at) && !error.contains("damaged"), "{error}");
    let mixed = store.kvs("mixed").expect("has its keys");
    let error = mixed.get(&key(3)).expect_err("its values are missing").to_string();
    assert!(error.contains("a volume of the store is missing"), "{error}");
    drop(store);
    let report = check_at(&scratch.0.path().join("staging"), &mut |_| {}).expect("checks");
    assert_eq!(report.findings, [], "what is away is not damaged");
    assert!(!report.is_whole() && report.missing[0].path == there.display().to_string());
    let unchecked = &report.unchecked;
    assert!(unchecked.runs > 0 && unchecked.kvs == ["cold"], "{unchecked:?}");
    assert!(unchecked.segments > 0 && unchecked.values == 500, "{unchecked:?}");
    assert!(unchecked.value_bytes > 500 * 24 && unchecked.log_behind.is_none(), "{unchecked:?}");
    assert!(report.versions > 500 && report.values >= 500, "{report:?}");
    // The volume's new path can be given, and is remembered.
    let store = Kvdb::open_on(home, &[directory(&away)], options(), clock).expect("opens");
    expect(&store.kvs("cold").expect("whole"), 0..500, 1);
    store.create_kvs("more", KvsOptions::default()).expect("is made");
    store.close().expect("closes");
    let store = scratch.open().expect("finds it");
    expect(&store.kvs("mixed").expect("whole"), 0..500, 1);
}

/// Copies the files of a directory, as they would be left if the process died now.
fn copied(from: &Path, to: &Path) {
    std::fs::create_dir(to).expect("is made");
    for entry in std::fs::read_dir(from).expect("is listed") {
        let entry = entry.expect("is listed");
        std::fs::copy(entry.path(), to.join(entry.file_name())).expect("is copied");
    }
}

/// The log lies on a missing volume. If durable writes are known to be in it, the store is not
/// opened. If there may be some, the store reports the last write before them.
#[test]
fn without_a_place_with_the_log_no_older_state_is_answered_without_a_word() {
    let scratch = Scratch::new();
    let (home, log) = (scratch.0.path().join("capacity"), scratch.0.path().join("staging"));
    let (died, away) = (scratch.0.path().join("died"), scratch.0.path().join("away"));
    let volumes = [
        scratch.place(MediaClass::Capacity, "capacity", None),
        scratch.place(MediaClass::Staging, "staging", None),
    ];
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::create_on(&volumes, options(), clock.clone()).expect("is made");
    let users = kvs(&store, "users", policy("capacity-only"));
    put(&users, 0..500, 1);
    store.compact().expect("compacts");
    let flushed = store.snapshot().expect("open").sequence();
    put(&users, 0..10, 2);
    store.sync().expect("durable");
    let last = store.snapshot().expect("open").sequence();
    copied(&home, &died);
    let files = |path: &Path| std::fs::read_dir(path).expect("is listed").count();
    assert!(files(&log) > 1, "the log lies there");
    drop((users, store));
    let opened = |home: &Path| Kvdb::open_read_only(directory(home), options(), clock.clone());
    assert!(opened(&home).expect("opens").uncertain_behind().is_none(), "nothing is missing");
    std::fs::rename(&log, &away).expect("is moved");
    // The store was closed, so the durable writes are known.
    let error = opened(&home).expect_err("the log is away");
    let is_it = matches!(error, StoreError::LogMissing { last: at, durable, .. }
        if (at, durable) == (flushed.0, last.0));
    assert!(is_it, "{error}");
    let error = error.to_string();
    assert!(error.contains(&log.display().to_string()) && error.contains("older"), "{error}");
    let report = check_at(&home, &mut |_| {}).expect("checks");
    assert!(report.findings.is_empty() && report.unchecked.log_behind == Some(flushed.0));
    // The process died, so the manifest does not tell.
    let store = opened(&died).expect("opens");
    assert_eq!(store.uncertain_behind(), Some(flushed));
    assert_eq!(store.statistics().expect("open").uncertain_behind, Some(flushed.0));
    expect(&store.kvs("users").expect("whole"), 0..500, 1);
    drop(store);
    let report = check_at(&died, &mut |_| {}).expect("checks");
    assert!(report.findings.is_empty() && report.unchecked.log_behind == Some(flushed.0));
    // With the volume, everything is there again.
    let away = [directory(&away)];
    let store = Kvdb::open_on(directory(&died), &away, options(), clock.clone()).expect("opens");
    assert!(store.uncertain_behind().is_none());
    expect(&store.kvs("users").expect("there"), 0..10, 2);
    expect(&store.kvs("users").expect("there"), 10..500, 1);
}

#[test]
fn what_cannot_be_a_place_is_refused() {
    let scratch = Scratch::new();
    let store = scratch.create(None);
    let used = scratch.place(MediaClass::Capacity, "capacity", None);
    assert!(matches!(store.add_volume(&used), Err(StoreError::Exists { .. })));
    std::fs::create_dir(scratch.0.path().join("full")).expect("is made");
    std::fs::write(scratch.0.path().join("full/file"), b"mine").expect("is written");
    let full = scratch.place(MediaClass::Capacity, "full", None);
    assert!(matches!(store.add_volume(&full), Err(StoreError::Exists { .. })));
    let error = store.set_policy("users", policy("pmem-only")).expect_err("no pmem").to_string();
    assert!(error.contains("new-keys") && error.contains("pmem"), "{error}");
    let pmem = KvsOptions { policy: Policy::all(Classes::PMEM), ..KvsOptions::default() };
    assert!(matches!(store.create_kvs("users", pmem), Err(StoreError::Policy { .. })));
    let nowhere = scratch.directory("nowhere");
    let mut go_on = |_| ControlFlow::Continue(());
    let error = store.retire_volume(&nowhere, &mut go_on).expect_err("no place").to_string();
    assert!(error.contains("nowhere") && error.contains("capacity"), "{error}");
    // A volume belongs to one store. No other store can be opened or created in it.
    let other = Kvdb::open_at(&scratch.0.path().join("capacity"), options());
    assert!(other.is_err());
    let second = scratch.open().expect_err("it is open").to_string();
    assert!(second.contains("staging"), "{second}");
}

/// A caller who wants to end waits for one piece of a file, and not for all files.
#[test]
fn retiring_is_broken_off_between_files() {
    in_world(|world, disk| {
        let place = |name: &str| {
            let directory = disk.root().subdirectory(name).expect("is made");
            Volume { class: MediaClass::Capacity, directory, bytes_max: None }
        };
        let (home, clock) = (place("home"), Arc::new(world.clone()));
        let store = Kvdb::create(home.directory.clone(), options(), clock).expect("a store");
        let kvs = store.create_kvs("users", KvsOptions::default()).expect("a Kvs");
        put(&kvs, 0..2_000, 1);
        store.compact().expect("room");
        store.add_volume(&place("new")).expect("is added");
        let mut at_break = None;
        let done = store.retire_volume(&home.directory, &mut |it| {
            if it.bytes_left + 128 * KIB >= it.bytes {
                return ControlFlow::Continue(());
            }
            at_break = Some((it.bytes_left, it.bytes));
            ControlFlow::Break(())
        });
        assert!(matches!(done, Ok(false)), "{done:?}");
        let (left, bytes) = at_break.expect("some of it has moved");
        assert!(left > bytes / 2, "{left} of {bytes} bytes are left when it is heard");
        expect(&kvs, 0..2_000, 1);
        let done = store.retire_volume(&home.directory, &mut |_| ControlFlow::Continue(()));
        assert!(matches!(done, Ok(true)), "{done:?}");
        expect(&kvs, 0..2_000, 1);
    });
}

/// A path is stored as text, and one that is no text would lead elsewhere at the next opening.
#[test]
fn a_place_whose_path_is_no_text_is_refused() {
    use std::os::unix::ffi::OsStrExt;
    let scratch = Scratch::new();
    let odd = scratch.0.path().join(std::ffi::OsStr::from_bytes(b"odd\xff"));
    let odd = Volume { class: MediaClass::Capacity, directory: directory(&odd), bytes_max: None };
    let home = scratch.place(MediaClass::Staging, "home", None);
    let clock = Arc::new(SystemClock::new());
    let made = Kvdb::create_on(&[home.clone(), odd.clone()], options(), clock.clone());
    let error = made.map(drop).expect_err("it could not be found again").to_string();
    assert!(error.contains("UTF-8"), "{error}");
    let store = Kvdb::create_on(&[home], options(), clock).expect("is made");
    assert!(matches!(store.add_volume(&odd), Err(StoreError::Options { .. })));
    assert_eq!(odd.directory.list().expect("lists"), []);
}

#[test]
fn a_store_that_could_not_be_made_leaves_nothing_behind() {
    let scratch = Scratch::new();
    let class = MediaClass::Capacity;
    let volumes = ["one", "two", "three"].map(|name| scratch.place(class, name, None));
    let letter = scratch.0.path().join("three/letter");
    std::fs::write(&letter, b"mine").expect("is written");
    let create = || Kvdb::create_on(&volumes, options(), Arc::new(SystemClock::new())).map(drop);
    assert!(matches!(create(), Err(StoreError::Exists { .. })));
    assert_eq!((scratch.files("one"), scratch.files("two"), scratch.files("three")), (0, 0, 1));
    std::fs::remove_file(&letter).expect("is removed");
    create().expect("is made");
}

#[test]
fn the_root_of_a_new_file_system_is_empty() {
    let scratch = Scratch::new();
    for name in ["home", "slow"] {
        std::fs::create_dir_all(scratch.0.path().join(name).join("lost+found")).expect("is made");
    }
    let volumes = ["home", "slow"].map(|name| scratch.place(MediaClass::Capacity, name, None));
    let made = Kvdb::create_on(&volumes, options(), Arc::new(SystemClock::new()));
    let store = made.expect("is made");
    put(&kvs(&store, "users", Policy::default()), 0..10, 1);
    store.close().expect("closes");
    let report = check_at(&scratch.0.path().join("home"), &mut |_| {}).expect("checks");
    assert!(report.is_whole() && report.remarks.is_empty(), "{:?}", report.remarks);
}

#[test]
fn what_the_log_has_put_where_it_ages_does_not_come_back_first() {
    let scratch = Scratch::new();
    let store = scratch.create(Some(1 << 20));
    let users = kvs(&store, "users", policy(AGING));
    put(&users, 0..8_000, 1);
    store.compact().expect("compacts");
    let (staging, capacity) =
        (of_class(&store, MediaClass::Staging), of_class(&store, MediaClass::Capacity));
    assert!(capacity.written.log_bytes > 0, "staging is too small for all");
    // Keys that found no room may come back, but these are few.
    let WrittenBytes { misplaced_bytes, promoted_bytes, .. } = staging.written;
    assert!(misplaced_bytes + promoted_bytes < capacity.written.log_bytes, "{staging:?}");
    assert_eq!(staging.space.value_bytes, 0);
    let put = 8_000 * (VALUE_BYTES as u64 + key(0).len() as u64);
    let on_capacity = capacity.written.log_bytes + capacity.written.demoted_bytes;
    assert!(on_capacity * 10 <= put * 11, "{on_capacity} of {put}");
    expect(&users, 0..8_000, 1);
}

/// Hot values are known again after a reopening, and stay where they are. The summary may be lost,
/// outdated or damaged in any way: nothing else is lost by that, and the statistics tell.
#[test]
fn what_is_read_often_is_known_again_when_the_store_is_opened_again() {
    let scratch = Scratch::new();
    let options = KvdbOptions { hot_share: 0.25, memory_bytes: 16 << 20, ..options() };
    let store = scratch.create_with(Some(32 << 20), options);
    let users = kvs(&store, "users", policy(AGING));
    put(&users, 0..10_000, 1);
    store.compact().expect("compacts");
    let live = |store: &Kvdb| of_class(store, MediaClass::Staging).space.value_live_bytes;
    assert_eq!(live(&store), 0, "all have aged");
    let read_frequency = |store: &Kvdb| {
        let told = || store.statistics().expect("open").read_frequency;
        wait_until("a look at heat", || told().is_some());
        told().expect("there is a choice")
    };
    assert!(!read_frequency(&store).is_restored && read_frequency(&store).ignored.is_none());
    wait_until("warming", || {
        (0..10_000).step_by(5).for_each(|number| expect(&users, number..number + 1, 1));
        live(&store) > 1_800 * 1_000
    });
    let kept_bytes = read_frequency(&store).kept_bytes;
    assert!(kept_bytes > 0);
    store.close().expect("closes");
    let path = scratch.0.path().join("staging");
    let summary = std::fs::read(path.join("HEAT")).expect("is kept");
    // Openings that end before the read frequencies are looked at, or that only read, keep the
    // summary.
    let clock = Arc::new(SystemClock::new());
    drop(Kvdb::open_read_only(scratch.directory("staging"), options, clock).expect("opens"));
    let reopened = || Kvdb::open_at(&path, options).expect("opens");
    reopened().close().expect("closes");
    let store = reopened();
    assert!(read_frequency(&store).is_restored && read_frequency(&store).kept_bytes == kept_bytes);
    store.compact().expect("compacts");
    assert!(live(&store) > 1_500 * 1_000, "{} bytes stay", live(&store));
    expect(&store.kvs("users").expect("there"), 0..10_000, 1);
    store.close().expect("closes");
    assert!(check_at(&path, &mut |_| {}).expect("checks").remarks.is_empty());
    // All kinds of damage, and an outdated summary.
    let bytes = std::fs::read(path.join("HEAT")).expect("is kept");
    let damaged = |at: usize| {
        let mut damaged = bytes.clone();
        damaged[at] ^= 1 << (at % 8);
        damaged
    };
    for at in [0, 9, 13, 17, 30, 60, 171, 175, 180, bytes.len() - 1] {
        std::fs::write(path.join("HEAT"), damaged(at)).expect("is written");
        let remarks = check_at(&path, &mut |_| {}).expect("checks").remarks;
        assert!(remarks.len() == 1 && remarks[0].starts_with("HEAT cannot be used"), "{remarks:?}");
        let store = reopened();
        let told = read_frequency(&store);
        assert!(!told.is_restored && told.ignored.is_some(), "byte {at}: {told:?}");
        expect(&store.kvs("users").expect("there"), 0..10, 1);
    }
    let store = reopened();
    store.kvs("users").expect("there").put(&key(0), &value(0, 1)).expect("is put");
    store.close().expect("closes");
    std::fs::write(path.join("HEAT"), &summary).expect("is written");
    let store = reopened();
    assert!(
        read_frequency(&store).ignored.is_some_and(|what| what.contains("was not closed since"))
    );
    // Without the summary, hot values are demoted, and still readable.
    store.close().expect("closes");
    std::fs::remove_file(path.join("HEAT")).expect("is removed");
    let store = reopened();
    assert!(!read_frequency(&store).is_restored && read_frequency(&store).ignored.is_none());
    store.compact().expect("compacts");
    assert!(live(&store) < 700 * 1_000, "{} bytes stay", live(&store));
    expect(&store.kvs("users").expect("there"), 0..10_000, 1);
}

#[test]
fn values_that_are_read_often_come_back_and_the_others_stay() {
    let scratch = Scratch::new();
    let options = KvdbOptions { hot_share: 0.25, memory_bytes: 16 << 20, ..options() };
    let store = scratch.create_with(Some(32 << 20), options);
    let users = kvs(&store, "users", policy(AGING));
    put(&users, 0..20_000, 1);
    store.compact().expect("compacts");
    assert_eq!(of_class(&store, MediaClass::Staging).space.value_bytes, 0, "all have aged");
    // Every tenth value is read again and again, the others once.
    expect(&users, 0..20_000, 1);
    wait_until("warming", || {
        let read = || of_class(&store, MediaClass::Capacity).read.value_bytes;
        let before = read();
        (0..20_000).step_by(10).for_each(|number| expect(&users, number..number + 1, 1));
        read() - before < 200 * 1_500
    });
    let staging = of_class(&store, MediaClass::Staging);
    assert!(staging.written.hot_bytes < 3_000 * 1_000, "{:?}", staging.written);
    let read_frequency =
        store.statistics().expect("open").read_frequency.expect("there is a choice");
    assert!(
        read_frequency.reads_least >= 3
            && read_frequency.kept_bytes <= read_frequency.kept_bytes_max,
        "{read_frequency:?}"
    );
    store.compact().expect("compacts");
    let staging = of_class(&store, MediaClass::Staging);
    assert!(staging.space.value_live_bytes > 1_500 * 1_000, "they stay: {:?}", staging.space);
    expect(&users, 0..20_000, 1);
    store.close().expect("closes");
    let store = scratch.open().expect("opens");
    expect(&store.kvs("users").expect("there"), 0..20_000, 1);
}
