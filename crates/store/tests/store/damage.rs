//! Damaged files: what is reported about them, and what can be salvaged.
#![expect(clippy::disallowed_methods, reason = "files are looked at from outside here")]

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};

use entresol_base::checksum;
use entresol_base::world::World;
use entresol_media::{BlockOptions, Directory};
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};
use entresol_store::{
    CheckReport, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, SalvageReport, StoreError,
    check, salvage,
};
use serde_json::Value;

use crate::common::in_world;

/// Contents of a store, by `Kvs` and key.
type State = BTreeMap<(String, Vec<u8>), Vec<u8>>;

const NAMES: [&str; 2] = ["one", "two"];
/// Byte of the value of `big`, which lies in a flushed segment.
const BIG: u8 = 77;
/// Byte of the value of `young`, which lies in the log.
const YOUNG: u8 = 99;

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        memory_bytes: 2 << 20,
        ..KvdbOptions::default()
    }
}

/// Runs a function in a world, with the disk of a closed store and the store's contents.
fn with_store(run: impl FnOnce(World, Disk, State) + 'static) {
    in_world(move |within, disk| {
        let state = fill(&within, &disk);
        run(within, disk, state);
    });
}

/// Creates a store with values beside their keys and apart, in runs, in a segment of moved values
/// and in the log, and with keys deleted singly and by prefix.
fn fill(world: &World, disk: &Disk) -> State {
    let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("a store");
    let mut state = State::new();
    let kvs = NAMES.map(|name| {
        let options = KvsOptions { inline_bytes: 16, ..KvsOptions::default() };
        store.create_kvs(name, options).expect("a Kvs")
    });
    let mut put = |of: usize, key: &str, value: Vec<u8>| {
        kvs[of].put(key.as_bytes(), &value).expect("room");
        state.insert((NAMES[of].to_owned(), key.as_bytes().to_vec()), value);
    };
    for number in 0..12 {
        put(0, &format!("key{number:02}"), vec![number + 1; [10, 40, 0][number as usize % 3]]);
        put(1, &format!("key{number:02}"), vec![number + 1; [30, 2][number as usize % 2]]);
    }
    put(0, "big", vec![BIG; 300]);
    store.compact().expect("room");
    for number in 8..16 {
        put(0, &format!("key{number:02}"), vec![number + 1; [20, 3][number as usize % 2]]);
    }
    kvs[1].delete(b"key03").expect("room");
    kvs[1].delete_prefix(b"key1").expect("room");
    state.retain(|(name, key), _| name != "two" || key != b"key03" && !key.starts_with(b"key1"));
    store.compact().expect("room");
    let [one, two] = kvs;
    let mut put = |kvs: &Kvs, key: &str, value: Vec<u8>| {
        kvs.put(key.as_bytes(), &value).expect("room");
        state.insert((kvs.name().to_owned(), key.as_bytes().to_vec()), value);
    };
    put(&two, "first", vec![7; 5]);
    put(&one, "young", vec![YOUNG; 150]);
    put(&two, "last", vec![8; 5]);
    one.delete(b"key00").expect("room");
    state.remove(&("one".to_owned(), b"key00".to_vec()));
    store.close().expect("durable");
    state
}

fn contents(store: &Kvdb) -> Result<State, StoreError> {
    let mut all = State::new();
    for name in store.kvs_names() {
        all.append(&mut contents_of(store, &name)?);
    }
    Ok(all)
}

fn contents_of(store: &Kvdb, name: &str) -> Result<State, StoreError> {
    let mut all = State::new();
    let mut cursor = store.kvs(name)?.cursor(CursorOptions::default())?;
    while let Some((key, value)) = cursor.next()? {
        all.insert((name.to_owned(), key.to_vec()), value.to_vec());
    }
    Ok(all)
}

/// Reads everything without changing the disk.
fn read(world: &World, disk: &Disk) -> Result<State, StoreError> {
    let store = Kvdb::open_read_only(disk.root(), options(), Arc::new(world.clone()))?;
    contents(&store)
}

fn checked(disk: &Disk) -> CheckReport {
    check(&disk.root(), &mut |_| {}).expect("a store")
}

/// Reads each `Kvs` by itself.
fn read_each(world: &World, disk: &Disk) -> Vec<Result<State, StoreError>> {
    let store = match Kvdb::open_read_only(disk.root(), options(), Arc::new(world.clone())) {
        Ok(store) => store,
        Err(error) => return vec![Err(error)],
    };
    let names = store.kvs_names();
    names.iter().map(|name| contents_of(&store, name)).collect()
}

/// Returns the bits of a file to flip: all that carry information, and a sample of the rest. A test
/// of runs flips all bits of a run.
fn bits_of(name: &str, bytes: &[u8]) -> Vec<(u64, u8)> {
    let is_run = name.starts_with("run-");
    let used = bytes.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    let one = |at: usize| (at / 16 % 8) as u8..(at / 16 % 8) as u8 + 1;
    let bits = (0..bytes.len()).flat_map(|at| {
        let says_something =
            !is_run && (!(40..4096).contains(&at) || name == "MANIFEST") && at < used;
        let bits = match says_something {
            true => 0..8,
            false if at % 16 == 5 => one(at),
            false => 0..0,
        };
        bits.map(move |bit| (at as u64, bit))
    });
    bits.collect()
}

/// Outcomes of bit flips.
#[derive(Debug, Default)]
struct Flips {
    told: u64,
    harmless: u64,
    checks: u64,
}

/// Flips all chosen bits, one at a time.
fn flip_all() -> Flips {
    let flips = Arc::new(Mutex::new(Flips::default()));
    let counted = flips.clone();
    with_store(move |world, disk, state| {
        assert_eq!(read(&world, &disk).expect("whole"), state);
        let report = checked(&disk);
        assert_eq!((&report.findings[..], &report.remarks[..]), (&[][..], &[][..]));
        let flips = &mut *counted.lock().expect("no panic");
        for (name, bytes) in disk.contents() {
            let bits = bits_of(&name, &bytes);
            for (number, (at, bit)) in bits.into_iter().enumerate() {
                disk.flip(&name, at, bit).expect("there");
                let is_told = is_told(&world, &disk, &state);
                let must_be_found = is_told || name.starts_with("run-");
                if must_be_found && number % 16 == 0 {
                    assert!(!checked(&disk).is_whole(), "{name} at {at}, bit {bit}");
                    flips.checks += 1;
                }
                flips.told += u64::from(is_told);
                flips.harmless += u64::from(!is_told);
                disk.flip(&name, at, bit).expect("there");
            }
        }
    });
    std::mem::take(&mut *flips.lock().expect("no panic"))
}

/// Returns true if some read reports damage. If none does, everything must be there.
fn is_told(world: &World, disk: &Disk, state: &State) -> bool {
    let (mut is_told, mut found) = (false, State::new());
    for of_kvs in read_each(world, disk) {
        match of_kvs {
            Ok(mut of_kvs) => found.append(&mut of_kvs),
            Err(_) => is_told = true,
        }
    }
    let is_right = found.iter().all(|(key, value)| state.get(key) == Some(value));
    assert!(is_right, "something is there that was not written");
    assert!(is_told || found == *state, "something is missing, and nothing was told");
    is_told
}

#[test]
fn every_bit_that_turns_over_is_told_or_harmless() {
    let flips = flip_all();
    assert!(flips.told > 15_000 && flips.checks > 1000, "{flips:?}");
}

/// Flips a bit in the only place where some bytes stand.
fn damage(disk: &Disk, bytes: &[u8]) -> (String, u64) {
    let mut found = disk.contents().into_iter().flat_map(|(name, content)| {
        let volumes = content.windows(bytes.len()).enumerate();
        let volumes: Vec<usize> =
            volumes.filter(|(_, there)| *there == bytes).map(|(at, _)| at).collect();
        volumes.into_iter().map(move |at| (name.clone(), at as u64))
    });
    let (name, at) = found.next().expect("stands somewhere");
    assert!(found.next().is_none(), "stands twice");
    disk.flip(&name, at, 3).expect("there");
    (name, at)
}

/// Salvages a store to its end.
fn salvage_all(
    from: &Arc<dyn Directory>,
    to: Arc<dyn Directory>,
    clock: Arc<World>,
) -> Result<SalvageReport, StoreError> {
    let report = salvage(from, to, options(), clock, &mut |_| ControlFlow::Continue(()))?;
    Ok(report.expect("it went on"))
}

/// Salvages the store. Returns the result and the report.
fn saved(world: &World, disk: &Disk) -> (State, SalvageReport) {
    let to = Disk::new(world, DiskOptions::default()).expect("a disk");
    let before = disk.contents();
    let clock = Arc::new(world.clone());
    let report = salvage_all(&disk.root(), to.root(), clock).expect("something");
    assert!(before == disk.contents(), "what is damaged is left as it is");
    assert_eq!(checked(&to).findings, []);
    (read(world, &to).expect("whole"), report)
}

fn of(name: &str, key: &[u8]) -> (String, Vec<u8>) {
    (name.to_owned(), key.to_vec())
}

#[test]
fn a_whole_store_is_saved_as_it_is() {
    with_store(|world, disk, state| {
        let (found, report) = saved(&world, &disk);
        assert_eq!(found, state);
        assert_eq!(report.findings, []);
        assert!(report.kvs.iter().all(|kvs| kvs.values_lost == 0 && !kvs.has_gaps), "{report:?}");
        assert!(!report.log_has_gaps);
    });
}

#[test]
fn a_damaged_value_loses_its_key_and_no_other() {
    with_store(|world, disk, mut state| {
        let (name, at) = damage(&disk, &[BIG; 300]);
        let report = checked(&disk);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!(finding.file, name);
        assert!(finding.offset <= at && at < finding.offset + 64, "{finding}");
        assert_eq!(finding.lost, "the value of key \"big\" is lost");
        let store = Kvdb::open_read_only(disk.root(), options(), Arc::new(world.clone()));
        let store = store.expect("opens");
        let one = store.kvs("one").expect("there");
        assert!(matches!(one.get(b"big"), Err(StoreError::Damaged { .. })));
        assert_eq!(one.get(b"key03").expect("readable"), state.get(&of("one", b"key03")).cloned());
        drop(store);
        let (found, report) = saved(&world, &disk);
        state.remove(&of("one", b"big"));
        assert_eq!(found, state);
        assert_eq!((report.findings.len(), report.kvs[0].values_lost), (1, 1));
    });
}

/// A segment whose values are to move has one that is damaged. It stays, the others move, dead
/// segments come free, and writes go on.
#[test]
fn a_damaged_value_does_not_stop_compactions() {
    in_world(|world, disk| {
        let (segment_bytes, generation_bytes) = (256 << 10, 256 << 10);
        let options = KvdbOptions { segment_bytes, generation_bytes, ..options() };
        let clock = || Arc::new(world.clone());
        let open = || Kvdb::open(disk.root(), options, clock()).expect("opens");
        let store = Kvdb::create(disk.root(), options, clock()).expect("a store");
        let kvs = store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
        let value = |key: u32, round: u8| [&key.to_be_bytes()[..], &[round; 5000]].concat();
        let put = |kvs: &Kvs, keys: &mut dyn Iterator<Item = u32>, round: u8| {
            for key in keys {
                kvs.put(&key.to_be_bytes(), &value(key, round)).expect("room");
            }
        };
        put(&kvs, &mut (0..400), 1);
        store.compact().expect("room");
        store.close().expect("durable");
        let (name, _) = damage(&disk, &value(207, 1));
        let store = open();
        let kvs = store.kvs("one").expect("there");
        put(&kvs, &mut (0..400).filter(|key| key % 10 != 7), 2);
        store.close().expect("durable");

        for round in 0..2 {
            let store = open();
            let error = store.compact().expect_err("a value is damaged").to_string();
            assert!(error.contains(&name) && error.contains("store check"), "{error}");
            assert_eq!(
                store.statistics().expect("there").damaged_segments,
                std::slice::from_ref(&name)
            );
            let old = disk.contents().into_keys().filter(|name| name.ends_with(".segment"));
            let bytes: usize = old.map(|name| disk.contents()[&name].len()).sum();
            assert!(bytes < 3_500_000, "round {round}: {bytes} bytes for 2 MB of values");
            let kvs = store.kvs("one").expect("there");
            for key in 0..400_u32 {
                let found = kvs.get(&key.to_be_bytes());
                if key == 207 {
                    assert!(matches!(found, Err(StoreError::Damaged { .. })), "{found:?}");
                    continue;
                }
                let round = if key % 10 == 7 { 1 } else { 2 };
                assert!(found.expect("whole").as_deref() == Some(&*value(key, round)), "{key}");
            }
            kvs.put(b"other", b"value").expect("room");
            store.close().expect("durable");
        }
        let store = open();
        put(&store.kvs("one").expect("there"), &mut (207..208), 3);
        store.compact().expect("nothing is damaged that a key leads to");
        store.close().expect("durable");
        assert!(checked(&disk).is_whole());
    });
}

#[test]
fn a_damaged_page_loses_what_lay_in_it_and_no_other_kvs() {
    with_store(|world, disk, state| {
        let runs = disk.contents().into_keys().filter(|name| name.starts_with("run-"));
        for name in runs {
            for page in 0..disk.contents()[&name].len() as u64 / 4096 {
                disk.flip(&name, page * 4096 + 100, 0).expect("there");
                let report = checked(&disk);
                assert_eq!(report.findings.len(), 1, "{report:?}");
                let finding = &report.findings[0];
                assert_eq!((&finding.file, finding.offset), (&name, page * 4096), "{finding}");
                let whole = read_each(&world, &disk).iter().filter(|it| it.is_ok()).count();
                assert!(whole >= 1, "{name}, page {page}: the other Kvs can be read");
                let (found, report) = saved(&world, &disk);
                assert!(found.iter().all(|(key, value)| state.get(key) == Some(value)));
                assert!(report.kvs.iter().filter(|kvs| kvs.has_gaps).count() == 1, "{report:?}");
                // All entries of a `Kvs` lie in one block here.
                assert!(found == state || found.len() < state.len() - 5, "page {page}");
                disk.flip(&name, page * 4096 + 100, 0).expect("there");
            }
        }
    });
}

#[test]
fn a_damaged_log_loses_the_write_that_was_hit() {
    with_store(|world, disk, mut state| {
        let (name, at) = damage(&disk, &[YOUNG; 150]);
        assert!(read(&world, &disk).is_err());
        let report = checked(&disk);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!(finding.file, name);
        assert!(finding.offset <= at && at < finding.offset + 64, "{finding}");
        assert!(finding.lost.ends_with("1 writes before this can be read, and 2 after it"));
        let (found, report) = saved(&world, &disk);
        state.remove(&of("one", b"young"));
        assert_eq!(found, state);
        assert_eq!((report.findings.len(), report.log_records), (1, 3));
        assert!(report.log_has_gaps, "{report:?}");
    });
}

#[test]
fn a_lost_manifest_loses_names_only() {
    with_store(|world, disk, state| {
        disk.root().remove("MANIFEST").expect("there");
        let report = checked(&disk);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert_eq!((finding.file.as_str(), finding.what.as_str()), ("MANIFEST", "there is none"));
        let (found, report) = saved(&world, &disk);
        let renamed = |(name, key): &(String, Vec<u8>)| {
            let name = if name == "one" { "kvs-1" } else { "kvs-2" };
            (name.to_owned(), key.clone())
        };
        let expected: State = state.iter().map(|(key, it)| (renamed(key), it.clone())).collect();
        assert!(found == expected, "{report:?}");
    });
}

#[test]
fn a_missing_segment_and_a_missing_run_are_told() {
    with_store(|world, disk, state| {
        let named = |end: &str, begin: &str| {
            let mut names = disk.contents().into_keys();
            names.find(|name| name.ends_with(end) && name.starts_with(begin)).expect("there")
        };
        let (segment, run) = (named(".segment", "46"), named("", "run-"));
        disk.root().remove(&segment).expect("there");
        disk.root().remove(&run).expect("there");
        let report = checked(&disk);
        let files: Vec<&str> = report.findings.iter().map(|it| it.file.as_str()).collect();
        assert!(files.contains(&segment.as_str()) && files.contains(&run.as_str()), "{report:?}");
        let (found, _) = saved(&world, &disk);
        assert!(found.iter().all(|(key, value)| state.get(key) == Some(value)), "{found:?}");
        assert!(!found.is_empty());
    });
}

/// Other values can be read, and the store goes on. The lost values are told, until their keys are
/// overwritten or the file is back.
#[test]
fn a_store_without_a_segment_of_values_has_everything_else() {
    with_store(|world, disk, state| {
        let mut names = disk.contents().into_keys();
        let is_of_values = |name: &String| name.ends_with(".segment") && name.starts_with("46");
        let segment = names.find(is_of_values).expect("there");
        let aside = |from: &str, to: &str| disk.root().rename(from, to).expect("there");
        let open = || Kvdb::open(disk.root(), options(), Arc::new(world.clone())).expect("opens");
        let lost_of = |store: &Kvdb| -> Vec<(String, Vec<u8>)> {
            let is_lost = |((name, key), value): (&(String, Vec<u8>), &Vec<u8>)| {
                let found = store.kvs(name).expect("there").get(key);
                let is_lost = found.as_ref().err().map(|error| {
                    let text = error.to_string();
                    assert!(text.contains("missing or damaged"), "{text}");
                });
                assert!(is_lost.is_some() || found.as_ref().ok() == Some(&Some(value.clone())));
                is_lost.map(|()| (name.clone(), key.clone()))
            };
            state.iter().filter_map(is_lost).collect()
        };
        aside(&segment, "aside");
        let store = open();
        let lost = lost_of(&store);
        assert!(!lost.is_empty() && lost.len() < state.len(), "{} are lost", lost.len());
        for _ in 0..2 {
            let error = store.compact().expect_err("values are lost").to_string();
            assert!(error.contains(&segment) && error.contains("store check"), "{error}");
        }
        assert_eq!(lost_of(&store), lost, "compacted");
        let copy = Disk::new(&world, DiskOptions::default()).expect("a disk");
        let copied = store.checkpoint(&copy.root(), &mut |_| ControlFlow::Continue(()));
        let error = copied.expect_err("it would lack a file").to_string();
        assert!(error.contains(&segment) && copy.contents().is_empty(), "{error}");
        store.close().expect("durable");

        aside("aside", &segment);
        let store = open();
        assert_eq!(lost_of(&store), [], "it is back");
        store.close().expect("durable");

        aside(&segment, "aside");
        let store = open();
        for (name, key) in &lost {
            let value = &state[&(name.clone(), key.clone())];
            store.kvs(name).expect("there").put(key, value).expect("room");
        }
        assert_eq!(lost_of(&store), [], "overwritten");
        store.compact().expect("room");
        store.close().expect("durable");
        assert_eq!(lost_of(&open()), [], "compacted");
        assert!(checked(&disk).is_whole());
    });
}

/// Whatever happened to one of the files, no message advises to remove it, or to use another name.
/// Each message says what is wrong, and how to salvage the rest.
#[test]
fn nobody_is_told_to_remove_a_file_of_a_store() {
    with_synced_log(|world, left| {
        let disks = [&left as &dyn Fn() -> Disk, &|| {
            let disk = left();
            let store = Kvdb::open(disk.root(), options(), Arc::new(world.clone()));
            store.expect("whole").compact().expect("room");
            disk
        }];
        let mut told = [0; 2];
        for (made, told) in disks.iter().zip(&mut told) {
            let names = made().contents().into_keys();
            let names = names.filter(|name| name.ends_with(".segment") || name.starts_with("run-"));
            for (name, left) in names.flat_map(|it| (0..4).map(move |left| (it.clone(), left))) {
                let disk = made();
                disk.root().remove(&name).expect("there");
                let bytes: Option<&[u8]> =
                    [None, Some(&b""[..]), Some(b"else"), Some(&[b'x'; 9000])][left];
                if let Some(bytes) = bytes {
                    disk.root().replace(&name, bytes).expect("room");
                }
                let errors = read_each(&world, &disk).into_iter().filter_map(Result::err);
                let opened = Kvdb::open(disk.root(), options(), Arc::new(world.clone()));
                let errors: Vec<_> = errors.chain(opened.err()).map(|it| it.to_string()).collect();
                *told += errors.len();
                for error in &errors {
                    assert!(error.contains(&name) && error.contains("store salvage"), "{error}");
                }
                let found = checked(&disk).findings.into_iter().map(|finding| finding.what);
                for what in errors.into_iter().chain(found) {
                    for bad in ["remove it", "give another", "quota", "give a size"] {
                        assert!(!what.contains(bad), "{name}: {what}");
                    }
                }
            }
        }
        assert!(told.iter().all(|told| *told > 10), "{told:?}");
    });
}

#[test]
fn a_directory_without_a_store_is_told() {
    in_world(|_, disk| {
        let none = check(&disk.root(), &mut |_| {});
        assert!(matches!(none, Err(StoreError::NoStore { .. })), "{none:?}");
    });
}

/// Segments of the log have room for a seal wherever they end. A segment without room was cut.
#[test]
fn a_segment_of_the_log_that_is_cut_short_is_told() {
    in_world(|world, disk| {
        let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("made");
        store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
        store.close().expect("closes");
        let name = "000000000001.segment";
        let file = disk.root().open_block_file(name, &BlockOptions::default()).expect("there");
        file.set_len(4096).expect("is cut");
        file.sync().expect("for good");
        drop(file);
        let error = read(&world, &disk).expect_err("it is damaged").to_string();
        assert!(error.contains(name) && error.contains("truncated"), "{error}");
        let report = checked(&disk);
        assert!(report.findings.iter().any(|it| it.file == name), "{:?}", report.findings);
    });
}

/// Creates a store of one `Kvs` with a run. Returns its contents as well.
fn of_one_run(world: &World, value: &[u8]) -> (Disk, State) {
    let disk = Disk::new(world, DiskOptions::default()).expect("a disk");
    let store = Kvdb::create(disk.root(), options(), Arc::new(world.clone())).expect("made");
    let kvs = store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
    for number in 0..200_u8 {
        kvs.put(&[number], value).expect("room");
    }
    store.compact().expect("room");
    store.close().expect("closes");
    let state = read(world, &disk).expect("whole");
    (disk, state)
}

/// Replaces a page of a file by that page of another disk's file.
fn put_page(from: &Disk, to: &Disk, name: &str, page: u64) {
    let open = |disk: &Disk| disk.root().open_block_file(name, &BlockOptions::default());
    let (from, to) = (open(from).expect("there"), open(to).expect("there"));
    let mut buffer = from.buffer(4096);
    from.read_at(page * 4096, &mut buffer).expect("readable");
    to.write_at(page * 4096, &buffer).expect("room");
    to.sync().expect("for good");
}

/// Two stores have a run with the same number, `Kvs`, size, keys and sequence numbers.
#[test]
fn a_run_of_another_store_is_told() {
    in_world(|world, _| {
        let ((one, state), (other, _)) =
            (of_one_run(&world, b"right"), of_one_run(&world, b"wrong"));
        let is_run = |name: &String| name.starts_with("run-");
        let run = one.contents().into_keys().find(is_run).expect("there");
        let pages = one.contents()[&run].len() as u64 / 4096;
        assert_eq!(other.contents()[&run].len() as u64 / 4096, pages);
        assert!(pages > 3, "{pages}");
        // An interrupted copy of the file leaves it so.
        for page in 1..pages {
            put_page(&other, &one, &run, page);
            let report = checked(&one);
            assert!(report.findings.iter().any(|it| it.file == run), "{page}: {report:?}");
        }
        assert!(matches!(&read_each(&world, &one)[..], [Err(StoreError::KvsDamaged { .. })]));
        let (found, report) = saved(&world, &one);
        assert_eq!((found, report.findings.len()), (State::new(), 1));
        // Without a manifest, nothing tells the two runs apart.
        one.root().remove("MANIFEST").expect("there");
        assert_eq!(saved(&world, &one).0.len(), state.len());
    });
}

/// A checkpoint has the store's identity, and gives its next run the same number.
#[test]
fn a_run_of_a_copy_that_went_on_is_told() {
    in_world(|world, disk| {
        let clock = Arc::new(world.clone());
        let copy = Disk::new(&world, DiskOptions::default()).expect("a disk");
        let store = Kvdb::create(disk.root(), options(), clock.clone()).expect("made");
        let kvs = store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
        kvs.put(b"a", b"older").expect("room");
        store.checkpoint(&copy.root(), &mut |_| ControlFlow::Continue(())).expect("room");
        let went_on = Kvdb::open(copy.root(), options(), clock).expect("a store");
        let of_copy = went_on.kvs("one").expect("there");
        for (store, kvs, value) in [(store, kvs, b"right"), (went_on, of_copy, b"wrong")] {
            kvs.put(b"a", value).expect("room");
            store.compact().expect("room");
            store.close().expect("closes");
        }
        let named = |disk: &Disk| {
            let mut names = disk.contents().into_keys();
            names.find(|name| name.starts_with("run-")).expect("there")
        };
        let run = named(&disk);
        assert_eq!(named(&copy), run);
        for page in 0..disk.contents()[&run].len() as u64 / 4096 {
            put_page(&copy, &disk, &run, page);
        }
        let report = checked(&disk);
        let [finding] = &report.findings[..] else { panic!("{report:?}") };
        assert!(finding.file == run && finding.what.contains("another store"), "{finding}");
        assert!(matches!(&read_each(&world, &disk)[..], [Err(StoreError::KvsDamaged { .. })]));
    });
}

/// Rewrites the manifest as an older program would have written it.
fn as_of_version(disk: &Disk, version: u64) {
    let manifest = disk.root().read("MANIFEST").expect("there");
    let line = manifest.split(|byte| *byte == b'\n').next().expect("a line");
    let mut object: Value = serde_json::from_slice(line).expect("an object");
    object["format"] = version.into();
    for kvs in object["kvs"].as_array_mut().expect("a list") {
        for run in kvs["runs"].as_array_mut().expect("a list") {
            *run = run["run"].take();
        }
    }
    let object = object.to_string();
    let text = format!("{object}\ncrc32c {:08x}\n", checksum::crc32c(object.as_bytes()));
    disk.root().replace("MANIFEST", text.as_bytes()).expect("room");
}

#[test]
fn a_manifest_without_marks_is_read_and_has_them_later() {
    with_store(|world, disk, mut state| {
        as_of_version(&disk, 2);
        assert_eq!(read(&world, &disk).expect("whole"), state);
        assert!(checked(&disk).is_whole());
        let store = Kvdb::open(disk.root(), options(), Arc::new(world.clone())).expect("a store");
        store.kvs("one").expect("there").put(b"new", b"1").expect("room");
        state.insert(of("one", b"new"), b"1".to_vec());
        store.compact().expect("room");
        store.close().expect("closes");
        assert_eq!(read(&world, &disk).expect("whole"), state);
        let manifest = String::from_utf8(disk.root().read("MANIFEST").expect("there"));
        let manifest = manifest.expect("is text");
        assert!(manifest.contains("\"format\":5,"), "{manifest}");
        assert!(manifest.contains("\"mark\":") && !manifest.contains("\"mark\":0}"), "{manifest}");
    });
}

/// Runs a function with new copies of the disk that a power cut leaves, of a store whose log has
/// several synced segments. Its values are the numbers of their keys.
fn with_synced_log(run: impl FnOnce(World, &dyn Fn() -> Disk) + 'static) {
    in_world(move |world, disk| {
        let options = KvdbOptions { generation_bytes: 1 << 20, ..options() };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).expect("made");
        let kvs = store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
        for number in 0..LOGGED as u8 {
            kvs.put(format!("key{number:02}").as_bytes(), &[number; 1000]).expect("room");
        }
        store.sync().expect("durable");
        let none = vec![0; disk.units().len()];
        run(world, &|| disk.image(&none));
    });
}

/// Number of writes in the log, about fifteen in a segment.
const LOGGED: usize = 80;

/// Checks that the store is not opened, with an error that names a file. Nothing may be removed,
/// `check` must name the file as well, and `writes` writes must be salvaged.
fn is_told_and_saved(world: &World, disk: &Disk, name: &str, writes: std::ops::Range<usize>) {
    let before = disk.contents();
    for _ in 0..2 {
        let opened = Kvdb::open(disk.root(), options(), Arc::new(world.clone()));
        let error = opened.expect_err("it is damaged").to_string();
        assert!(error.contains(name) && error.contains("store salvage"), "{name}: {error}");
    }
    let after: Vec<String> = disk.contents().into_keys().collect();
    assert_eq!(before.into_keys().collect::<Vec<_>>(), after, "files are gone");
    assert!(read(world, disk).is_err(), "{name}: an older state is read");
    let report = checked(disk);
    assert!(report.findings.iter().any(|it| it.file == name), "{name}: {report:?}");
    let (found, report) = saved(world, disk);
    assert!(writes.contains(&found.len()), "{name}: {} writes are saved: {report:?}", found.len());
    assert!(!report.findings.is_empty());
    assert!(found.iter().all(|((_, key), value)| key.ends_with(&digits(value[0]))), "{found:?}");
}

fn digits(number: u8) -> Vec<u8> {
    format!("{number:02}").into_bytes()
}

/// Marks on later segments tell that the log continued behind the damage, even if no manifest says
/// so. A segment is marked when it is synced, and not before.
#[test]
fn damage_amid_a_log_that_was_synced_is_told_and_removes_nothing() {
    with_synced_log(|world, left| {
        assert_eq!(read(&world, &left()).expect("whole").len(), LOGGED);
        let segments: BTreeMap<String, Vec<u8>> = left().contents();
        let segments = segments.into_iter().filter(|(name, _)| name.ends_with(".segment"));
        let is_written = |(_, bytes): &(String, Vec<u8>)| bytes[4096] != 0;
        let segments: Vec<(String, Vec<u8>)> = segments.filter(is_written).collect();
        assert!(segments.len() > 4, "{}", segments.len());
        let all = LOGGED;
        let (_, early) = segments.split_last().expect("some");
        for (name, bytes) in early {
            let used = bytes.iter().rposition(|byte| *byte != 0).expect("a seal") as u64;
            // The header, the first record, one in the middle, and the seal.
            for (at, lost) in [(12, 0), (4096, 1), (9000, 1), (used, 0)] {
                let disk = left();
                disk.flip(name, at, 2).expect("there");
                is_told_and_saved(&world, &disk, name, all - lost..all - lost + 1);
            }
            let disk = left();
            disk.root().remove(name).expect("there");
            is_told_and_saved(&world, &disk, name, all - 20..all - 10);
        }
    });
}

/// The header of the last written segment is damaged. Its mark shows that it is a segment.
#[test]
fn a_header_that_is_damaged_of_the_last_segment_is_told() {
    with_synced_log(|world, left| {
        let segments = left().contents().into_iter();
        let mut written =
            segments.filter(|(name, bytes)| name.ends_with(".segment") && bytes[4096] != 0);
        let (name, _) = written.by_ref().last().expect("one");
        let disk = left();
        disk.flip(&name, 12, 2).expect("there");
        is_told_and_saved(&world, &disk, &name, LOGGED..LOGGED + 1);
    });
}

/// Returns the disk as a process that is killed leaves it: with everything that it wrote, synced or
/// not.
fn killed(world: &World, disk: &Disk) -> Disk {
    disk.reopen(world, DiskOptions::default()).expect("a disk")
}

/// Each sync marks how far the log is durable. Damage before the mark is told, and what is behind it
/// ends the log, as a crash does.
#[test]
fn damage_before_the_end_of_a_sync_is_told_and_behind_it_ends_the_log() {
    in_world(|world, disk| {
        let options = KvdbOptions { generation_bytes: 1 << 20, ..options() };
        let store = Kvdb::create(disk.root(), options, Arc::new(world.clone())).expect("made");
        let kvs = store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
        for number in 0..23_u8 {
            kvs.put(format!("key{number:02}").as_bytes(), &[number; 1000]).expect("room");
            if number == 4 || number == 19 {
                store.sync().expect("durable");
            }
        }
        let left = || killed(&world, &disk);
        assert_eq!(read(&world, &left()).expect("whole").len(), 23);
        let segments: Vec<_> = left().contents().into_iter().collect();
        for number in 0..23 {
            let key = format!("key{number:02}").into_bytes();
            let found = segments.iter().filter(|(name, _)| name.ends_with(".segment"));
            let mut found = found.filter_map(|(name, bytes)| {
                Some((name, bytes.windows(5).position(|at| at == key)?))
            });
            let (name, at) = found.next().expect("it is in the log");
            for at in [at - 20, at + 2, at + 700] {
                let disk = left();
                disk.flip(name, at as u64, 3).expect("there");
                match number {
                    0..20 => is_told_and_saved(&world, &disk, name, 22..23),
                    _ => {
                        let found = read(&world, &disk).expect("the log ends there");
                        assert_eq!(found.len(), number, "with a bit at {at}");
                        assert!(checked(&disk).findings.is_empty());
                    }
                }
            }
        }
        // A mark that is damaged is none.
        let (name, _) = segments.iter().rfind(|(name, _)| name.ends_with(".segment")).expect("one");
        for bit in 0..64 {
            let disk = left();
            disk.flip(name, 40 + bit / 8, (bit % 8) as u8).expect("there");
            assert_eq!(read(&world, &disk).expect("whole").len(), 23);
        }
    });
}

/// Reads fail from some call on, for ever: no older state is answered, `check` reports the failure,
/// and everything read before it is salvaged.
#[test]
fn reads_of_the_log_that_fail_are_told() {
    with_synced_log(|world, left| {
        let fails_from = |nth| {
            let disk = left();
            let effect = Effect::Fail(Failure::Io);
            let (calls, repeat) = (Calls::of(&[Call::Read]), Repeat::EverAfter);
            disk.inject(FaultPlan::one(Fault { calls, nth, repeat, effect }));
            disk
        };
        let (mut told, mut nth) = (0, 0);
        loop {
            nth += 1;
            let disk = fails_from(nth);
            match read(&world, &disk) {
                Ok(state) => assert_eq!(state.len(), LOGGED, "from call {nth} on"),
                Err(_) => told += 1,
            }
            let disk = fails_from(nth);
            if let Ok(report) = check(&disk.root(), &mut |_| {}) {
                // A failure to read the summary of read frequencies has no effect.
                let struck = disk.struck();
                if struck.iter().all(|it| it.path.ends_with("HEAT")) {
                    break;
                }
                assert!(!report.is_whole(), "from call {nth} on: {struck:?}");
            }
            let (disk, to) = (fails_from(nth), Disk::new(&world, DiskOptions::default()));
            let (to, clock) = (to.expect("a disk"), Arc::new(world.clone()));
            if let Ok(report) = salvage_all(&disk.root(), to.root(), clock) {
                let found = read(&world, &to).expect("whole").len();
                let is_all = found == LOGGED;
                assert!(is_all || !report.findings.is_empty(), "{found} from call {nth} on");
            }
        }
        assert!(told > 10, "{told}");
    });
}

/// Files with names like those of segments, or nearly so, that are none: each is left alone, or the
/// store is not opened, with an error that names it.
#[test]
fn files_with_names_like_segments_cost_nothing() {
    with_synced_log(|world, left| {
        let open = |disk: &Disk| Kvdb::open(disk.root(), options(), Arc::new(world.clone()));
        let names = ["+7.segment", "99999.segment", "4611686018427387903.segment"];
        for (name, bytes) in names.into_iter().flat_map(|name| [(name, &b""[..]), (name, b"else")])
        {
            let disk = left();
            disk.root().replace(name, bytes).expect("room");
            let store = match open(&disk) {
                Ok(store) => store,
                Err(error) => {
                    assert!(error.to_string().contains(name), "{name}: {error}");
                    assert!(checked(&disk).findings.iter().any(|it| it.file == name));
                    assert_eq!(disk.contents().get(name).map(Vec::as_slice), Some(bytes));
                    disk.root().remove(name).expect("there");
                    open(&disk).expect("it is gone")
                }
            };
            store.kvs("one").expect("there").put(b"later", &[1; 9000]).expect("room");
            store.sync().expect("durable");
            let killed = disk.image(&vec![0; disk.units().len()]);
            assert_eq!(read(&world, &killed).expect("whole").len(), LOGGED + 1, "{name}");
        }
    });
}

/// A link in the place of a segment is not ignored.
#[test]
fn a_segment_that_is_a_link_is_told() {
    let scratch = tempfile::tempdir().expect("a directory");
    let path = scratch.path().join("store");
    let store = Kvdb::create_at(&path, options()).expect("made");
    store.create_kvs("one", KvsOptions::default()).expect("a Kvs");
    store.close().expect("closes");
    let (segment, moved) = (path.join("000000000001.segment"), scratch.path().join("moved"));
    std::fs::rename(&segment, &moved).expect("there");
    std::os::unix::fs::symlink(&moved, &segment).expect("a link");
    let error = Kvdb::open_at(&path, options()).expect_err("it is a link").to_string();
    assert!(error.contains("000000000001.segment") && error.contains("link"), "{error}");
    let report = entresol_store::check_at(&path, &mut |_| {}).expect("a store");
    assert!(report.findings.iter().any(|it| it.file == "000000000001.segment"), "{report:?}");
}
