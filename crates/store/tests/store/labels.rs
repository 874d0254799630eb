//! Volumes whose labels are lost or damaged, and manifests whose end is: what can be read of them,
//! and what is told.
#![expect(clippy::disallowed_methods, reason = "files are damaged from outside here")]

use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use entresol_base::SystemClock;
use entresol_media::{Directory, LocalDirectory};
use entresol_store::{
    CheckReport, Kvdb, KvdbOptions, KvsOptions, MediaClass, SalvageReport, StoreError, Volume,
    check_at, salvage_at,
};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const KEYS: u32 = 100;

fn options() -> KvdbOptions {
    KvdbOptions { segment_bytes: 64 << 10, generation_bytes: 256 << 10, ..KvdbOptions::default() }
}

fn directory(path: &Path) -> Arc<dyn Directory> {
    Arc::new(LocalDirectory::open(path).expect("a directory"))
}

fn pipe_at(path: &Path) {
    mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
}

struct Scratch(tempfile::TempDir);

impl Scratch {
    /// Makes a store whose values lie on a second volume.
    fn with_two_volumes() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().expect("a directory"));
        let volume = |class, name: &str| {
            let directory = directory(&scratch.at(name));
            Volume { class, directory, bytes_max: None }
        };
        let volumes = [volume(MediaClass::Staging, "home"), volume(MediaClass::Capacity, "slow")];
        let clock = Arc::new(SystemClock::new());
        let store = Kvdb::create_on(&volumes, options(), clock).expect("is made");
        let policy = "capacity-only".parse().expect("a policy");
        let options = KvsOptions { policy, ..KvsOptions::default() };
        let kvs = store.create_kvs("data", options).expect("is made");
        for number in 0..KEYS {
            kvs.put(&number.to_be_bytes(), &[3; 1000]).expect("room");
        }
        store.compact().expect("room");
        store.close().expect("closes");
        scratch
    }

    /// Makes a store of one volume with a run.
    fn with_a_run() -> Scratch {
        let scratch = Scratch(tempfile::tempdir().expect("a directory"));
        let store = Kvdb::create_at(&scratch.at("home"), options()).expect("is made");
        let kvs = store.create_kvs("data", KvsOptions::default()).expect("is made");
        for number in 0..KEYS {
            kvs.put(&number.to_be_bytes(), &[3; 100]).expect("room");
        }
        store.compact().expect("room");
        store.close().expect("closes");
        scratch
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn open(&self) -> Result<Kvdb, StoreError> {
        Kvdb::open_at(&self.at("home"), options())
    }

    fn check(&self) -> CheckReport {
        check_at(&self.at("home"), &mut |_| {}).expect("a store")
    }

    /// Salvages the store into a new directory. Returns the report and the number of keys there.
    fn salvage(&self) -> (SalvageReport, usize) {
        let to = self.at("new");
        let go_on = &mut |_| ControlFlow::Continue(());
        let report = salvage_at(&self.at("home"), &to, options(), go_on);
        let report = report.expect("a store").expect("it went on");
        let store = Kvdb::open_at(&to, options()).expect("a store");
        let found = self.keys_of(&store);
        store.close().expect("closes");
        fs::remove_dir_all(to).expect("is removed");
        (report, found)
    }

    fn keys_of(&self, store: &Kvdb) -> usize {
        let kvs = store.kvs("data").expect("there");
        let is_there = |number: &u32| kvs.get(&number.to_be_bytes()).expect("readable").is_some();
        (0..KEYS).filter(is_there).count()
    }

    /// Returns the run's path.
    fn run(&self) -> PathBuf {
        let entries = directory(&self.at("home")).list().expect("lists");
        let name = entries.into_iter().map(|it| it.name).find(|it| it.starts_with("run-"));
        self.at("home").join(name.expect("a run"))
    }

    /// Damages the end of the manifest.
    fn damage_manifest(&self) {
        let path = self.at("home/MANIFEST");
        let mut bytes = fs::read(&path).expect("readable");
        bytes.push(b'\n');
        fs::write(path, bytes).expect("room");
    }
}

#[test]
fn a_volume_is_read_and_salvaged_whatever_has_become_of_its_label() {
    let damages: [fn(&Path); 6] = [
        |label| {
            let mut bytes = fs::read(label).expect("readable");
            bytes[20] ^= 1;
            fs::write(label, bytes).expect("room");
        },
        |label| fs::write(label, b"").expect("room"),
        |label| {
            let bytes = fs::read(label).expect("readable");
            fs::write(label, &bytes[..bytes.len() / 2]).expect("room");
        },
        |label| fs::remove_file(label).expect("there"),
        |label| {
            fs::remove_file(label).expect("there");
            fs::create_dir(label).expect("room");
        },
        |label| {
            fs::remove_file(label).expect("there");
            pipe_at(label);
        },
    ];
    for (number, damage) in damages.into_iter().enumerate() {
        let scratch = Scratch::with_two_volumes();
        damage(&scratch.at("slow/PLACE"));
        let clock = Arc::new(SystemClock::new());
        let home = directory(&scratch.at("home"));
        let store = Kvdb::open_read_only(home.clone(), options(), clock.clone()).expect("opens");
        assert_eq!(scratch.keys_of(&store), KEYS as usize, "damage {number}");
        store.close().expect("closes");
        let report = scratch.check();
        let [finding] = &report.findings[..] else { panic!("damage {number}: {report:?}") };
        assert!(finding.file.ends_with("slow/PLACE"), "{finding}");
        assert!(report.missing.is_empty() && report.values > 0, "damage {number}: {report:?}");
        let (report, found) = scratch.salvage();
        assert_eq!((report.findings.len(), found), (1, KEYS as usize), "{report:?}");
        // It is opened for writing neither by its path nor as one that has moved.
        let given = Kvdb::open_on(home, &[directory(&scratch.at("slow"))], options(), clock);
        for refused in [scratch.open(), given] {
            let error = refused.map(drop).expect_err("whose it is, is unknown");
            assert!(matches!(error, StoreError::VolumeLabel { .. }), "damage {number}: {error}");
            assert!(error.to_string().contains("store salvage"), "{error}");
        }
    }
}

#[test]
fn a_directory_without_the_stores_files_is_a_missing_volume_with_or_without_a_label() {
    for label in [None, Some("{")] {
        let scratch = Scratch::with_two_volumes();
        fs::rename(scratch.at("slow"), scratch.at("elsewhere")).expect("is renamed");
        fs::create_dir(scratch.at("slow")).expect("room");
        if let Some(text) = label {
            fs::write(scratch.at("slow/PLACE"), text).expect("room");
        }
        let error = scratch.open().map(drop).expect_err("it is missing");
        assert!(matches!(error, StoreError::VolumeMissing { .. }), "{error}");
        assert_eq!(scratch.check().missing.len(), 1);
        // Where it was moved, its label is lost: it is not taken for another missing volume.
        fs::remove_file(scratch.at("elsewhere/PLACE")).expect("there");
        let clock = Arc::new(SystemClock::new());
        let (home, moved) = (directory(&scratch.at("home")), directory(&scratch.at("elsewhere")));
        let error = Kvdb::open_on(home, &[moved], options(), clock).map(drop).expect_err("unknown");
        assert!(matches!(error, StoreError::VolumeLabel { .. }), "{error}");
        assert!(error.to_string().contains("elsewhere"), "{error}");
    }
}

#[test]
fn the_home_of_another_store_is_no_volume_without_a_label() {
    let scratch = Scratch::with_two_volumes();
    fs::remove_dir_all(scratch.at("slow")).expect("there");
    let other = Scratch::with_a_run();
    fs::rename(other.at("home"), scratch.at("slow")).expect("is renamed");
    assert_eq!(scratch.check().missing.len(), 1);
}

#[test]
fn runs_that_the_readable_part_of_a_manifest_names_are_missed() {
    let losses: [fn(&Path); 2] = [
        |run| fs::remove_file(run).expect("there"),
        |run| fs::write(run, [0x5a; 5000]).expect("room"),
    ];
    for loss in losses {
        let scratch = Scratch::with_a_run();
        let run = scratch.run();
        scratch.damage_manifest();
        let (report, found) = scratch.salvage();
        assert_eq!((report.findings.len(), found), (1, KEYS as usize), "{report:?}");
        loss(&run);
        let name = run.file_name().expect("a name").to_str().expect("text");
        let report = scratch.check();
        assert!(report.findings.iter().any(|it| it.file == name), "{report:?}");
        assert!(report.remarks.iter().all(|it| !it.contains(name)), "{report:?}");
        let (report, found) = scratch.salvage();
        assert!(report.findings.iter().any(|it| it.file == name), "{report:?}");
        assert!(report.kvs[0].has_gaps && found == 0, "{report:?}");
    }
}

#[test]
fn the_log_that_the_readable_part_of_a_manifest_names_is_missed() {
    let scratch = Scratch(tempfile::tempdir().expect("a directory"));
    let store = Kvdb::create_at(&scratch.at("home"), options()).expect("is made");
    let kvs = store.create_kvs("data", KvsOptions::default()).expect("is made");
    kvs.put(&7_u32.to_be_bytes(), b"flushed").expect("room");
    store.compact().expect("room");
    kvs.put(&8_u32.to_be_bytes(), b"in the log").expect("room");
    store.close().expect("closes");
    scratch.damage_manifest();
    assert_eq!(scratch.salvage().1, 2);
    for entry in directory(&scratch.at("home")).list().expect("lists") {
        if entry.name.ends_with(".segment") {
            fs::remove_file(scratch.at("home").join(entry.name)).expect("there");
        }
    }
    assert!(scratch.check().findings.len() > 1);
    let (report, found) = scratch.salvage();
    assert!(report.log_has_gaps && found == 1, "{report:?}");
}

#[test]
fn a_damaged_manifest_still_leads_to_the_other_volumes() {
    let scratch = Scratch::with_two_volumes();
    scratch.damage_manifest();
    let report = scratch.check();
    assert!(report.findings.len() == 1 && report.versions == u64::from(KEYS), "{report:?}");
    let (report, found) = scratch.salvage();
    assert_eq!((report.findings.len(), found), (1, KEYS as usize), "{report:?}");
}

#[test]
fn a_volume_is_not_checked_or_salvaged_in_place_of_the_store() {
    let scratch = Scratch::with_two_volumes();
    let slow = scratch.at("slow");
    let go_on = &mut |_| ControlFlow::Continue(());
    let salvaged = salvage_at(&slow, &scratch.at("new"), options(), go_on).map(drop);
    for refused in [check_at(&slow, &mut |_| {}).map(drop), salvaged] {
        let error = refused.expect_err("the keys are known elsewhere");
        assert!(matches!(error, StoreError::NoStore { .. }), "{error}");
        assert!(error.to_string().contains(&scratch.at("home").display().to_string()), "{error}");
    }
    // Once the home is gone, what is here is all that there is.
    fs::remove_dir_all(scratch.at("home")).expect("there");
    assert!(!check_at(&slow, &mut |_| {}).expect("files").findings.is_empty());
}

#[test]
fn a_pipe_in_the_place_of_a_directory_is_refused_at_once() {
    let scratch = Scratch::with_two_volumes();
    let pipe = scratch.at("pipe");
    pipe_at(&pipe);
    let go_on = &mut |_| ControlFlow::Continue(());
    let from = salvage_at(&pipe, &scratch.at("new"), options(), go_on).map(drop);
    let to = salvage_at(&scratch.at("home"), &pipe, options(), go_on).map(drop);
    let store = scratch.open().expect("opens");
    let copied = store.checkpoint_at(&pipe, &mut |_| ControlFlow::Continue(())).map(drop);
    store.close().expect("closes");
    for refused in [
        from,
        to,
        copied,
        Kvdb::open_at(&pipe, options()).map(drop),
        Kvdb::create_at(&pipe, options()).map(drop),
        check_at(&pipe, &mut |_| {}).map(drop),
    ] {
        let error = refused.expect_err("no directory").to_string();
        assert!(error.contains("no directory"), "{error}");
    }
    // A volume may be one as well.
    fs::remove_dir_all(scratch.at("slow")).expect("there");
    pipe_at(&scratch.at("slow"));
    let error = scratch.open().map(drop).expect_err("it is missing").to_string();
    assert!(error.contains("no directory"), "{error}");
    assert_eq!(scratch.check().missing.len(), 1);
}
