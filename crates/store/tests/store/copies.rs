//! Copies of a store, and older states of it that were put back, are opened: the files of the
//! others stay.
#![expect(clippy::disallowed_methods, reason = "somebody else copies and moves files")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory};
use entresol_store::{
    Kvdb, KvdbOptions, KvsOptions, MediaClass, StoreError, Volume, check_at, salvage_at,
};

fn options() -> KvdbOptions {
    KvdbOptions { segment_bytes: 64 << 10, generation_bytes: 256 << 10, ..KvdbOptions::default() }
}

fn directory(path: &Path) -> Arc<dyn Directory> {
    Arc::new(LocalDirectory::open(path).expect("a directory"))
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    fn new() -> Scratch {
        Scratch(tempfile::tempdir().expect("a directory"))
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn place(&self, class: MediaClass, name: &str) -> Volume {
        Volume { class, directory: directory(&self.at(name)), bytes_max: None }
    }

    fn open(&self, name: &str) -> Result<Kvdb, StoreError> {
        Kvdb::open_at(&self.at(name), options())
    }

    fn copy(&self, from: &str, to: &str) {
        fs::create_dir(self.at(to)).expect("is made");
        for name in self.files(from) {
            fs::copy(self.at(from).join(&name), self.at(to).join(&name)).expect("is copied");
        }
    }

    fn rename(&self, from: &str, to: &str) {
        fs::rename(self.at(from), self.at(to)).expect("is renamed");
    }

    fn files(&self, name: &str) -> Vec<String> {
        let entries = directory(&self.at(name)).list().expect("lists");
        entries.into_iter().map(|entry| entry.name).collect()
    }
}

const KEYS: u32 = 600;

/// Writes all keys anew, and flushes and compacts them.
fn fill(store: Kvdb, round: u8, value_bytes: usize) {
    let kvs = store.kvs("data").expect("there");
    for number in 0..KEYS {
        kvs.put(&number.to_be_bytes(), &vec![round; value_bytes]).expect("room");
    }
    store.compact().expect("compacts");
    store.close().expect("closes");
}

fn expect(store: Kvdb, round: u8, value_bytes: usize) {
    let kvs = store.kvs("data").expect("there");
    for number in 0..KEYS {
        let found = kvs.get(&number.to_be_bytes()).expect("readable");
        assert_eq!(found, Some(vec![round; value_bytes]), "key {number}");
    }
}

/// Creates a store with its data on a second volume.
fn with_two_places(scratch: &Scratch) {
    let volumes =
        [scratch.place(MediaClass::Staging, "home"), scratch.place(MediaClass::Capacity, "slow")];
    let clock = Arc::new(SystemClock::new());
    let store = Kvdb::create_on(&volumes, options(), clock).expect("is made");
    let policy = "capacity-only".parse().expect("a policy");
    store.create_kvs("data", KvsOptions { policy, ..KvsOptions::default() }).expect("is made");
    fill(store, 1, 1000);
}

#[test]
fn a_copy_of_the_home_leaves_the_places_of_the_original_alone() {
    let scratch = Scratch::new();
    with_two_places(&scratch);
    scratch.copy("home", "backup");
    scratch.copy("slow", "slow backup");
    let clock = Arc::new(SystemClock::new());
    let read =
        |name: &str| Kvdb::open_read_only(directory(&scratch.at(name)), options(), clock.clone());
    expect(read("backup").expect("nothing is changed by that"), 1, 1000);
    fill(scratch.open("home").expect("opens"), 2, 1000);
    let before = scratch.files("slow");
    let given = |name: &str| {
        let (home, place) = (directory(&scratch.at("backup")), directory(&scratch.at(name)));
        Kvdb::open_on(home, &[place], options(), clock.clone())
    };
    for refused in [scratch.open("backup"), given("slow")] {
        let error = refused.map(drop).expect_err("it is the original's");
        assert!(matches!(error, StoreError::VolumeOfAnother { .. }), "{error}");
        let [home, slow] = ["home", "slow"].map(|name| scratch.at(name).display().to_string());
        assert!(error.to_string().contains(&home) && error.to_string().contains(&slow), "{error}");
    }
    assert_eq!(scratch.files("slow"), before);
    // With volumes of its own, the copy is a store of its own.
    expect(given("slow backup").expect("opens"), 1, 1000);
    expect(scratch.open("backup").expect("remembers it"), 1, 1000);
    expect(scratch.open("home").expect("opens"), 2, 1000);
}

#[test]
fn a_home_that_has_moved_has_its_places_and_a_copy_of_it_has_not() {
    let scratch = Scratch::new();
    with_two_places(&scratch);
    scratch.rename("home", "moved");
    let link = scratch.at("link");
    std::os::unix::fs::symlink(scratch.at("moved"), &link).expect("is made");
    for name in ["moved", "link", "moved"] {
        expect(scratch.open(name).expect("opens"), 1, 1000);
    }
    scratch.copy("moved", "backup");
    let error = scratch.open("backup").map(drop).expect_err("the place is that of the other now");
    assert!(matches!(error, StoreError::VolumeOfAnother { .. }), "{error}");
    // The original is gone, and the copy takes its place.
    fs::remove_dir_all(scratch.at("moved")).expect("is removed");
    expect(scratch.open("backup").expect("opens"), 1, 1000);
}

#[test]
fn a_checkpoint_cannot_take_a_place_of_the_original() {
    let scratch = Scratch::new();
    let store = Kvdb::create_at(&scratch.at("home"), options()).expect("is made");
    let done = store.checkpoint_at(&scratch.at("copy"), &mut |_| ControlFlow::Continue(()));
    assert!(done.expect("is made").is_some());
    store.add_volume(&scratch.place(MediaClass::Capacity, "slow")).expect("is added");
    store.close().expect("closes");
    let copy = scratch.open("copy").expect("opens");
    let added = copy.add_volume(&scratch.place(MediaClass::Capacity, "slow"));
    assert!(matches!(added, Err(StoreError::VolumeOfAnother { .. })), "{added:?}");
    drop(copy);
    let store = scratch.open("home").expect("opens");
    assert_eq!(store.volumes().len(), 2);
}

/// Values lie apart from their keys, or beside them. Without the segments of the former nothing is
/// opened; without the runs of the latter the `Kvs` cannot be read.
#[test]
fn an_older_manifest_that_is_put_back_does_not_cost_what_is_newer() {
    for value_bytes in [1000, 10] {
        let scratch = Scratch::new();
        let store = Kvdb::create_at(&scratch.at("store"), options()).expect("is made");
        store.create_kvs("data", KvsOptions::default()).expect("is made");
        fill(store, 1, value_bytes);
        let manifest = scratch.at("store").join("MANIFEST");
        let older = fs::read(&manifest).expect("is read");
        fill(scratch.open("store").expect("opens"), 2, value_bytes);
        let newer = fs::read(&manifest).expect("is read");
        fs::write(&manifest, &older).expect("is written");
        for _ in 0..2 {
            let opened = scratch.open("store").and_then(|store| {
                // The new `Kvs` gets no numbers of existing files.
                store.create_kvs("new", KvsOptions::default())?.put(b"key", b"value")?;
                store.compact()?;
                store.drop_kvs("new")?;
                store.kvs("data").map(drop)
            });
            assert!(opened.is_err(), "what it names is gone");
        }
        fs::write(&manifest, &newer).expect("is written");
        expect(scratch.open("store").expect("opens"), 2, value_bytes);
        let report = check_at(&scratch.at("store"), &mut |_| {}).expect("checks");
        assert!(report.is_whole(), "{:?}", report.findings);
    }
}

/// The directory is renamed while the store is open, and another store is created in its place.
#[test]
fn a_store_whose_directory_is_renamed_leaves_the_one_in_its_place_alone() {
    let scratch = Scratch::new();
    let create = || {
        let store = Kvdb::create_at(&scratch.at("store"), options()).expect("is made");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("is made");
        (store, kvs)
    };
    let (renamed, kvs) = create();
    kvs.put(b"key", b"value").expect("is put");
    scratch.rename("store", "renamed");
    fill(create().0, 2, 1000);
    let before = scratch.files("store");
    let write = |_| kvs.put(b"more", &[1; 1000]);
    let error = (0..2_000).map(write).find_map(Result::err).expect("there are no new files");
    assert!(error.to_string().contains("no longer the directory that was opened"), "{error}");
    assert!(renamed.compact().is_err());
    assert_eq!(kvs.get(b"key").expect("is read"), Some(b"value".to_vec()));
    drop((renamed, kvs));
    assert_eq!(scratch.files("store"), before);
    expect(scratch.open("store").expect("opens"), 2, 1000);
    let store = scratch.open("renamed").expect("opens");
    let found = store.kvs("data").expect("there").get(b"key").expect("is read");
    assert_eq!(found, Some(b"value".to_vec()));
}

/// Calls `work` on stores whose directory is renamed or removed when `work` looks for the first
/// time, the second, the third ... Every error must say so, and there must be errors.
fn take_away<T>(
    is_removed: bool,
    mut work: impl FnMut(&Scratch, &mut dyn FnMut()) -> Result<T, StoreError>,
    mut check: impl FnMut(&Scratch, Option<T>),
) {
    let mut errors = 0;
    for nth in 1.. {
        let scratch = Scratch::new();
        let store = Kvdb::create_at(&scratch.at("store"), options()).expect("is made");
        store.create_kvs("data", KvsOptions::default()).expect("is made");
        fill(store, 1, 1000);
        let mut looks = 0;
        let done = work(&scratch, &mut || {
            looks += 1;
            match () {
                () if looks != nth => {}
                () if is_removed => fs::remove_dir_all(scratch.at("store")).expect("is removed"),
                () => scratch.rename("store", "renamed"),
            }
        });
        if let Err(error) = &done {
            errors += 1;
            assert!(error.to_string().contains("no longer the directory that was"), "{error}");
        }
        check(&scratch, done.ok());
        if looks < nth {
            break;
        }
    }
    assert!(errors > 0);
}

#[test]
fn a_check_whose_directory_is_renamed_or_removed_finds_no_damage() {
    for is_removed in [false, true] {
        take_away(
            is_removed,
            |scratch, look| check_at(&scratch.at("store"), &mut |_| look()),
            |_, report| assert!(report.is_none_or(|report| report.is_whole())),
        );
    }
}

#[test]
fn a_salvage_whose_directory_is_renamed_or_removed_leaves_no_copy() {
    for is_removed in [false, true] {
        take_away(
            is_removed,
            |scratch, look| {
                let (from, to) = (scratch.at("store"), scratch.at("copy"));
                salvage_at(&from, &to, options(), &mut |_| {
                    look();
                    ControlFlow::Continue(())
                })
            },
            |scratch, report| match report {
                Some(report) => assert!(report.is_some_and(|report| report.findings.is_empty())),
                None => assert_eq!(scratch.files("copy"), [""; 0], "nothing is left"),
            },
        );
    }
}
