//! How a history is carried out, and how what it leaves is read.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_media::crash::{Crash, Explorer, Subject};
use entresol_media::disk::Disk;

use super::arrange::{self, arrange};
use super::expected::{Expected, State};
use super::{Change, FIRST_WRITER, INLINE_BYTES, KEYS, NAMES, Op, To, options_on, write};
use crate::{CursorOptions, Kvdb, Kvs, KvsOptions, StoreError, Transaction, TransactionOptions};

type Pair = (Vec<u8>, Vec<u8>);

/// What writers and crashes share.
pub(super) struct Shared {
    world: World,
    expected: Mutex<All>,
    /// How many images were looked at.
    looked: AtomicU64,
    /// Whether the store has several places.
    classes: bool,
}

/// What must be found after a crash.
#[derive(Debug, Clone)]
struct All {
    /// Whether the store had been made.
    is_made: bool,
    /// Of each writer, whose keys begin with this.
    writers: BTreeMap<u8, Expected>,
}

/// A store that is opened after so many crashes is opened once more.
const AGAIN_ONE_IN: u64 = 4;

impl Shared {
    pub(super) fn new(world: &World, writers: u8, classes: bool) -> Shared {
        let writers = (0..writers.max(1)).map(|it| (FIRST_WRITER + it, Expected::default()));
        let expected = Mutex::new(All { is_made: false, writers: writers.collect() });
        Shared { world: world.clone(), expected, looked: AtomicU64::new(0), classes }
    }

    /// Never held where the turn may be handed on.
    fn expected(&self) -> MutexGuard<'_, All> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was acknowledged before this must be there after a crash now.
    fn old(&self, disk: &Disk) -> Picos {
        let (now, options) = (self.world.now(), options_on(disk));
        let interval = options.durability_interval.as_nanos() as u64 * 1000;
        match options.pmem {
            Some(_) => Picos(now.0 + 1),
            None => Picos(now.0.saturating_sub(interval)),
        }
    }

    fn of<T>(&self, writer: u8, use_it: impl FnOnce(&mut Expected) -> T) -> T {
        use_it(self.expected().writers.entry(writer).or_default())
    }
}

impl All {
    fn counts(&self) -> Vec<usize> {
        self.writers.values().map(Expected::count).collect()
    }

    fn settle(&mut self, counts: &[usize]) {
        self.writers.values_mut().zip(counts).for_each(|(writer, count)| writer.settle(*count));
    }

    /// Holds what each writer's keys have against something.
    fn each(
        &self,
        found: &State,
        check: impl Fn(&Expected, &State) -> Result<(), String>,
    ) -> Result<(), String> {
        self.writers.iter().try_for_each(|(writer, expected)| {
            let own = found.iter().filter(|((_, key), _)| key.first() == Some(writer));
            let own = own.map(|(key, value)| (key.clone(), value.clone())).collect();
            check(expected, &own)
        })
    }

    /// Holds what a crash now has left against what was acknowledged before `old`.
    fn check(&self, found: &State, old: Picos) -> Result<(), String> {
        self.each(found, |expected, own| expected.check(own, old))
    }
}

/// All that is in a store, read in three ways that must agree.
fn contents(store: &Kvdb, writers: &[u8]) -> Result<State, String> {
    let mut state = State::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let kvs = match store.kvs(name) {
            Ok(kvs) => kvs,
            Err(StoreError::NoKvs { .. }) => continue,
            Err(error) => return Err(error.to_string()),
        };
        let forward = walk(&kvs, false)?;
        let mut backward = walk(&kvs, true)?;
        backward.reverse();
        if forward != backward {
            return Err(format!("{name}: up and down show different keys"));
        }
        let keys = writers.iter().flat_map(|writer| (0..KEYS).map(|number| key(*writer, number)));
        for key in keys {
            let got = kvs.get(&key).map_err(|error| error.to_string())?;
            let shown = forward.iter().find(|(shown, _)| *shown == key).map(|(_, value)| value);
            if got.as_ref() != shown {
                let key = String::from_utf8_lossy(&key);
                return Err(format!("{name}: {key} is found otherwise than it is shown"));
            }
        }
        state.extend(forward.into_iter().map(|(key, value)| ((number, key), value)));
    }
    Ok(state)
}

/// A key of a writer.
pub(super) fn key(writer: u8, number: u64) -> Vec<u8> {
    let mut key = format!("key{number:02}").into_bytes();
    key[0] = writer;
    key
}

fn walk(kvs: &Kvs, backward: bool) -> Result<Vec<Pair>, String> {
    let options = CursorOptions { backward, ..CursorOptions::default() };
    let mut cursor = kvs.cursor(options).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().map_err(|error| error.to_string())? {
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok(all)
}

fn clock() -> Result<Arc<World>, StoreError> {
    let none = || StoreError::Options { what: "stores are tried in worlds".to_owned() };
    World::current().map(Arc::new).ok_or_else(none)
}

fn open(disk: &Disk, classes: bool) -> Result<Kvdb, StoreError> {
    match classes {
        true => Kvdb::open(arrange::home(disk)?, arrange::options(disk), clock()?),
        false => Kvdb::open(disk.root(), options_on(disk), clock()?),
    }
}

fn create(disk: &Disk, classes: bool) -> Result<Kvdb, StoreError> {
    match classes {
        true => Kvdb::create_on(&arrange::places(disk)?, arrange::options(disk), clock()?),
        false => Kvdb::create(disk.root(), options_on(disk), clock()?),
    }
}

fn make_kvs(store: &Kvdb) -> Result<(), StoreError> {
    let options = KvsOptions { inline_bytes: INLINE_BYTES, ..KvsOptions::default() };
    NAMES.into_iter().try_for_each(|name| store.create_kvs(name, options).map(drop))
}

/// A store for histories, with its `Kvs`.
pub(super) fn make(disk: &Disk) -> Result<Kvdb, StoreError> {
    let store = create(disk, false)?;
    make_kvs(&store)?;
    Ok(store)
}

/// A store after a crash: where it lies, and what it has.
pub(super) struct Opened {
    disk: Disk,
    store: Kvdb,
    state: State,
}

impl Subject for Shared {
    type Opened = Option<Opened>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let disk = crash.images.first().and_then(|image| image.downcast_ref::<Disk>());
        let disk = disk.ok_or("the medium is no disk")?.clone();
        let (is_made, writers) = {
            let expected = self.expected();
            (expected.is_made, expected.writers.keys().copied().collect::<Vec<u8>>())
        };
        match open(&disk, self.classes) {
            Ok(store) => {
                let state = contents(&store, &writers)?;
                Ok(Some(Opened { disk, store, state }))
            }
            Err(StoreError::NoStore { .. }) if !is_made => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, opened: Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        let Some(Opened { disk, store, mut state }) = opened else { return Ok(()) };
        let expected = self.expected().clone();
        expected.check(&state, self.old(&disk))?;
        // It must be usable.
        let new = (0, b"after".to_vec());
        if let Ok(kvs) = store.kvs(NAMES[new.0]) {
            let value = b"the crash".to_vec();
            kvs.put(&new.1, &value).map_err(|error| error.to_string())?;
            if kvs.get(&new.1).map_err(|error| error.to_string())?.as_ref() != Some(&value) {
                return Err("what was put after the crash is not there".to_owned());
            }
            state.insert(new, value);
        }
        store.close().map_err(|error| error.to_string())?;
        if !self.looked.fetch_add(1, Relaxed).is_multiple_of(AGAIN_ONE_IN) {
            return Ok(());
        }
        let store =
            open(&disk, self.classes).map_err(|error| format!("opened once more: {error}"))?;
        let writers: Vec<u8> = expected.writers.keys().copied().collect();
        match contents(&store, &writers)? == state {
            true => store.close().map_err(|error| error.to_string()),
            false => Err("opened once more it holds something else".to_owned()),
        }
    }
}

/// Where a history is carried out.
pub(super) struct Scene {
    pub(super) disk: Disk,
    pub(super) shared: Arc<Shared>,
    pub(super) explorer: Explorer<Shared>,
}

/// Carries a history out: each writer does what is his, in its order, on a thread of his own;
/// between them the seed decides. A reopening waits for all.
pub(super) fn carry_out(ops: &[Op], scene: &Arc<Scene>) -> Result<(), StoreError> {
    let Scene { disk, shared, explorer } = &**scene;
    let mut store = create(disk, shared.classes)?;
    shared.expected().is_made = true;
    make_kvs(&store)?;
    let stretches: Vec<&[Op]> = ops.split(|op| *op == Op::Reopen).collect();
    let last = stretches.len() - 1;
    for (number, stretch) in stretches.into_iter().enumerate() {
        store = carry_out_stretch(stretch, store, scene)?;
        if explorer.has_failed() {
            return Ok(());
        }
        let counts = shared.expected().counts();
        store.close()?;
        shared.expected().settle(&counts);
        if number == last {
            break;
        }
        store = open(disk, shared.classes)?;
    }
    Ok(())
}

fn carry_out_stretch(ops: &[Op], store: Kvdb, scene: &Arc<Scene>) -> Result<Kvdb, StoreError> {
    let mut lanes: BTreeMap<u8, Vec<Op>> = BTreeMap::new();
    for op in ops {
        lanes.entry(op.writer()).or_default().push(op.clone());
    }
    let store = Arc::new(store);
    let first = lanes.remove(&FIRST_WRITER).unwrap_or_default();
    let others = lanes.into_iter().map(|(writer, ops)| {
        let (store, scene) = (store.clone(), scene.clone());
        thread::spawn("writer", move || carry_out_lane(writer, &ops, &store, &scene))
    });
    let others: Vec<_> = others.collect();
    let mut done = carry_out_lane(FIRST_WRITER, &first, &store, scene);
    for other in others {
        let panicked = |_| Err(StoreError::Internal { what: "a writer panicked".to_owned() });
        done = done.and(other.join().unwrap_or_else(panicked));
    }
    done?;
    Arc::try_unwrap(store)
        .map_err(|_| StoreError::Internal { what: "a writer is still there".to_owned() })
}

fn carry_out_lane(writer: u8, ops: &[Op], store: &Kvdb, scene: &Scene) -> Result<(), StoreError> {
    let Scene { disk, shared, explorer } = scene;
    let mut deaths = shared.world.rng(&format!("deaths of {writer}"));
    for op in ops {
        match op {
            Op::Transact(changes, false) => drop(begun(store, changes)?),
            Op::Write(changes) | Op::Transact(changes, _) => {
                shared.of(writer, |expected| expected.begin(changes));
                match op {
                    Op::Transact(..) => drop(begun(store, changes)?.commit()?),
                    _ => write(store, changes)?,
                }
                let now = shared.world.now();
                shared.of(writer, |expected| expected.acknowledge(now));
            }
            Op::Sync => {
                let counts = shared.expected().counts();
                store.sync()?;
                shared.expected().settle(&counts);
            }
            Op::Compact => store.compact()?,
            Op::Sleep(time) => thread::sleep(Duration::from_millis(*time)),
            Op::Reopen => {}
            Op::Arrange(arrangement) => arrange(store, disk, *arrangement)?,
        }
        if explorer.has_failed() {
            return Ok(());
        }
        if deaths.one_in(8) {
            died(disk, shared)?;
        }
    }
    Ok(())
}

/// Only the process dies: the disk has all that was written to it.
fn died(disk: &Disk, shared: &Shared) -> Result<(), StoreError> {
    let image = disk.image(&disk.units());
    // Others go on while the image is looked at.
    let expected = shared.expected().clone();
    let writers: Vec<u8> = expected.writers.keys().copied().collect();
    let store = open(&image, shared.classes)?;
    let found = contents(&store, &writers)
        .and_then(|found| expected.each(&found, |expected, own| expected.check_all(own)));
    found.map_err(|what| StoreError::Internal { what })
}

/// A transaction that has made changes.
pub(super) fn begun(store: &Kvdb, changes: &[Change]) -> Result<Transaction, StoreError> {
    let mut transaction = store.transaction(TransactionOptions::default())?;
    for Change { kvs, key, to } in changes {
        let kvs = store.kvs(NAMES[*kvs])?;
        let value = match to {
            To::Value(value) => Some(value),
            To::Gone | To::PrefixGone => None,
        };
        match to {
            To::Value(value) => transaction.put(&kvs, key, value)?,
            To::Gone => transaction.delete(&kvs, key)?,
            To::PrefixGone => transaction.delete_prefix(&kvs, key)?,
        }
        let is_left = *to == To::PrefixGone && {
            let options = CursorOptions { prefix: key.clone(), ..CursorOptions::default() };
            transaction.cursor(&kvs, options)?.next()?.is_some()
        };
        if is_left || transaction.get(&kvs, key)?.as_ref() != value {
            let what = "a transaction does not see what it has written".to_owned();
            return Err(StoreError::Internal { what });
        }
    }
    Ok(transaction)
}

/// Which keys a writer's operation touches.
pub(super) fn draw_key(rng: &mut Rng, writer: u8) -> Vec<u8> {
    key(writer, rng.below(KEYS))
}
