//! Checks of the store that a history leaves after a crash, or after the death of its process.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_simulated::crash::{Crash, Subject};
use entresol_simulated::disk::Disk;

use super::drives::{Drives, Layout, Trouble};
use super::expected::{Expected, State};
use super::{FIRST_WRITER, KEYS, Met, NAMES, key, options_on};
use crate::types::KvsId;
use crate::version::view::ViewRun;
use crate::{CursorOptions, Kvdb, Kvs, StoreError};

type Pair = (Vec<u8>, Vec<u8>);
/// Values of keys, by the number of the `Kvs` and the key.
type Ever = BTreeMap<(usize, Vec<u8>), BTreeSet<Vec<u8>>>;

/// One in this many recovered stores is opened a second time.
const AGAIN_ONE_IN: u64 = 4;
/// One in this many crashed stores is first opened with a drive missing.
const MISSING_ONE_IN: u64 = 5;

/// State that writers and crashes share.
pub(super) struct Shared {
    pub(super) world: World,
    expected: Mutex<All>,
    /// Number of crash images checked.
    looked: AtomicU64,
    layout: Layout,
    troubles: Mutex<Troubles>,
    /// All values that each key ever had.
    ever: Mutex<Ever>,
    /// `Kvs` that had several runs of one flush at the last look.
    several: Mutex<BTreeSet<KvsId>>,
    met: Mutex<Met>,
}

/// Contents that must be found after a crash.
#[derive(Debug, Clone)]
pub(super) struct All {
    /// True if the store was created.
    is_made: bool,
    /// Contents of each writer's keys, by their first byte.
    writers: BTreeMap<u8, Expected>,
}

/// Troubles of the drives.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Troubles {
    /// Current trouble of each drive that has one.
    pub(super) now: BTreeMap<usize, Trouble>,
    /// Number of changes of these troubles.
    pub(super) changes: u64,
    /// True if calls may have failed since the store was opened.
    pub(super) may_fail: bool,
    /// True if the store has reported that it refuses all writes.
    pub(super) has_failed: bool,
    /// Begin of the time for which only synced writes are promised: a slow or failing drive cannot
    /// keep the durability interval.
    lax_since: Option<Picos>,
}

impl Troubles {
    /// Returns true if a drive is in trouble.
    pub(super) fn are_on(&self) -> bool {
        !self.now.is_empty()
    }

    /// Records a change of a drive's trouble.
    fn note(&mut self, drive: usize, trouble: Trouble, now: Picos) {
        self.changes += 1;
        match trouble {
            Trouble::Over => drop(self.now.remove(&drive)),
            _ => {
                self.now.insert(drive, trouble);
                self.may_fail |= matches!(trouble, Trouble::Fails(..));
                self.lax_since.get_or_insert(now);
            }
        }
    }

    /// Records that everything written is durable.
    fn synced(&mut self) {
        if self.now.is_empty() {
            self.lax_since = None;
        }
    }

    /// Records that a store was opened.
    fn opened(&mut self) {
        self.may_fail = self.now.values().any(|trouble| matches!(trouble, Trouble::Fails(..)));
        self.has_failed = false;
        self.synced();
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The lock is never held at a point where the thread may be preempted.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(super) fn new(world: &World, writers: u8, layout: Layout) -> Shared {
        let writers = (0..writers.max(1)).map(|it| (FIRST_WRITER + it, Expected::default()));
        let expected = Mutex::new(All { is_made: false, writers: writers.collect() });
        Shared {
            world: world.clone(),
            expected,
            looked: AtomicU64::new(0),
            layout,
            troubles: Mutex::default(),
            ever: Mutex::default(),
            several: Mutex::default(),
            met: Mutex::default(),
        }
    }

    pub(super) fn expected(&self) -> MutexGuard<'_, All> {
        locked(&self.expected)
    }

    /// Returns the counts of rare events.
    pub(super) fn met(&self) -> Met {
        locked(&self.met).clone()
    }

    /// Counts a rare event.
    pub(super) fn meet(&self, what: &'static str, times: u64) {
        if times > 0 {
            *locked(&self.met).0.entry(what).or_default() += times;
        }
    }

    /// Returns the time before which acknowledged writes must survive a crash now.
    fn old(&self, disk: &Disk) -> Picos {
        let (now, options) = (self.world.now(), options_on(disk));
        let interval = options.durability_interval.as_nanos() as u64 * 1000;
        let since = locked(&self.troubles).lax_since.unwrap_or(now);
        match options.pmem {
            Some(_) => Picos(now.0 + 1),
            None => Picos(since.0.saturating_sub(interval)),
        }
    }

    pub(super) fn of<T>(&self, writer: u8, use_it: impl FnOnce(&mut Expected) -> T) -> T {
        use_it(self.expected().writers.entry(writer).or_default())
    }

    /// Records a value that a key may get.
    pub(super) fn note_value(&self, kvs: usize, key: &[u8], value: &[u8]) {
        let mut ever = locked(&self.ever);
        ever.entry((kvs, key.to_vec())).or_default().insert(value.to_vec());
    }

    pub(super) fn troubles(&self) -> Troubles {
        locked(&self.troubles).clone()
    }

    pub(super) fn trouble(&self, drive: usize, trouble: Trouble) {
        locked(&self.troubles).note(drive, trouble, self.world.now());
    }

    /// Records that the store refuses all writes.
    pub(super) fn note_failed(&self) {
        let mut troubles = locked(&self.troubles);
        let is_first = !std::mem::replace(&mut troubles.has_failed, true);
        drop(troubles);
        self.meet("a store writes nothing any more", u64::from(is_first));
    }

    /// Records that everything written so far is durable.
    pub(super) fn note_synced(&self, counts: &[usize]) {
        self.expected().settle(counts);
        locked(&self.troubles).synced();
    }

    pub(super) fn note_opened(&self) {
        locked(&self.troubles).opened();
        locked(&self.several).clear();
    }

    /// Counts flushes into several runs, and compactions of these.
    pub(super) fn look_at_runs(&self, store: &Kvdb) {
        let now = with_several(store);
        let before = std::mem::replace(&mut *locked(&self.several), now.clone());
        self.meet("a flush writes several runs", now.difference(&before).count() as u64);
        self.meet("runs of one flush are compacted", before.difference(&now).count() as u64);
    }

    pub(super) fn note_made(&self) {
        self.expected().is_made = true;
    }

    /// Checks that a store's answers are what was written: all of it, or as much as a power cut may
    /// leave. From now on the found contents are expected.
    pub(super) fn take_found(&self, store: &Kvdb, cut: Option<&Disk>) -> Result<(), StoreError> {
        let expected = self.expected().clone();
        let writers: Vec<u8> = expected.writers.keys().copied().collect();
        let wrong = |what| StoreError::Internal { what };
        let found = contents(store, &writers).map_err(wrong)?;
        match cut {
            Some(disk) => expected.check(&found, self.old(disk)),
            None => expected.each(&found, |expected, own| expected.check_all(own)),
        }
        .map_err(wrong)?;
        self.expected().found(&found);
        Ok(())
    }

    /// Checks the contents after a death of the process: the drives have everything written to
    /// them.
    pub(super) fn died(&self, drives: &Drives) -> Result<(), StoreError> {
        let image = drives.of_the_dead();
        // The other writers go on during the check.
        let expected = self.expected().clone();
        let in_trouble = self.troubles().are_on() || self.troubles().has_failed;
        self.meet("a process dies with a drive in trouble", u64::from(in_trouble));
        let writers: Vec<u8> = expected.writers.keys().copied().collect();
        let store = image.open(clock()?)?;
        let found = contents(&store, &writers)
            .and_then(|found| expected.each(&found, |expected, own| expected.check_all(own)));
        found.map_err(|what| StoreError::Internal { what })
    }

    /// Checks that a store with a missing drive is refused, that the rest of it can be read, and
    /// that neither harms it.
    fn look_without(&self, drives: &Drives, missing: usize, is_made: bool) -> Result<(), String> {
        match drives.open_without(missing, false, clock().map_err(text)?) {
            Err(StoreError::VolumeMissing { .. }) => {}
            Err(StoreError::NoStore { .. }) if !is_made => return Ok(()),
            // None of its volumes lies on that drive any more.
            Ok(store) => return store.close().map_err(text),
            Err(error) => return Err(format!("without a drive: {error}")),
        }
        self.meet("an opening is refused for a missing drive", 1);
        let store = match drives.open_without(missing, true, clock().map_err(text)?) {
            Ok(store) => store,
            Err(error @ (StoreError::VolumeMissing { .. } | StoreError::NoStore { .. })) => {
                return Err(format!("to be read without a drive: {error}"));
            }
            Err(_) => {
                self.meet("nothing can be read without a drive", 1);
                return Ok(());
            }
        };
        let (mut whole, mut lost) = (0, 0);
        for ((number, key), values) in &locked(&self.ever).clone() {
            match store.kvs(NAMES[*number]).and_then(|kvs| kvs.get(key)) {
                Ok(Some(value)) if !values.contains(&value) => {
                    let key = String::from_utf8_lossy(key);
                    return Err(format!("without a drive {key} has a value that it never had"));
                }
                Ok(found) => whole += u64::from(found.is_some()),
                Err(_) => lost += 1,
            }
        }
        self.meet("a key is read without a drive", whole);
        self.meet("a key cannot be read without a drive", lost);
        store.close().map_err(text)
    }
}

impl All {
    pub(super) fn counts(&self) -> Vec<usize> {
        self.writers.values().map(Expected::count).collect()
    }

    fn settle(&mut self, counts: &[usize]) {
        self.writers.values_mut().zip(counts).for_each(|(writer, count)| writer.settle(*count));
    }

    /// Runs a check on the contents of each writer's keys.
    fn each(
        &self,
        found: &State,
        check: impl Fn(&Expected, &State) -> Result<(), String>,
    ) -> Result<(), String> {
        self.writers
            .iter()
            .try_for_each(|(writer, expected)| check(expected, &own_of(found, *writer)))
    }

    /// Compares the contents after a crash with the writes acknowledged before `old`.
    fn check(&self, found: &State, old: Picos) -> Result<(), String> {
        self.each(found, |expected, own| expected.check(own, old))
    }

    fn found(&mut self, found: &State) {
        for (writer, expected) in &mut self.writers {
            expected.found(own_of(found, *writer));
        }
    }
}

fn own_of(found: &State, writer: u8) -> State {
    let own = found.iter().filter(|((_, key), _)| key.first() == Some(&writer));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn text(error: StoreError) -> String {
    error.to_string()
}

/// Returns the current world.
pub(super) fn clock() -> Result<Arc<World>, StoreError> {
    let none = || StoreError::Options { what: "stores are tried in worlds".to_owned() };
    World::current().map(Arc::new).ok_or_else(none)
}

/// Returns the `Kvs` that have several runs of one flush. Among these, an older run has the greater
/// number, and only range deletes.
fn with_several(store: &Kvdb) -> BTreeSet<KvsId> {
    let view = store.core().files.current.get();
    let is_rest = |pair: &[ViewRun]| match pair {
        [newer, older] => {
            let has_entries = older.run.summary().entries > 0;
            older.number() > newer.number() && !has_entries && !older.run.range_deletes().is_empty()
        }
        _ => false,
    };
    let several = view.runs.iter().filter(|(_, runs)| runs.windows(2).any(is_rest));
    several.map(|(kvs, _)| *kvs).collect()
}

/// Returns the number of segments that lack what is superseded.
fn squeezed(store: &Kvdb) -> u64 {
    let view = store.core().files.current.get();
    view.segments.values().filter(|segment| segment.table().is_some()).count() as u64
}

/// Reads the contents of a store in three ways, which must agree.
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
            let got = kvs.get(&key).map_err(text)?;
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

fn walk(kvs: &Kvs, backward: bool) -> Result<Vec<Pair>, String> {
    let options = CursorOptions { backward, ..CursorOptions::default() };
    let mut cursor = kvs.cursor(options).map_err(text)?;
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().map_err(text)? {
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok(all)
}

/// Store after a crash, with its drives and contents.
pub(super) struct Opened {
    drives: Drives,
    store: Kvdb,
    state: State,
}

impl Subject for Shared {
    type Opened = Option<Opened>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let drives = Drives::left_by(self.layout, crash)?;
        let (is_made, writers) = {
            let expected = self.expected();
            (expected.is_made, expected.writers.keys().copied().collect::<Vec<u8>>())
        };
        let looked = self.looked.load(Relaxed);
        if self.layout == Layout::Apart && looked.is_multiple_of(MISSING_ONE_IN) {
            let others = drives.all.len() as u64 - 1;
            let missing = 1 + (looked / MISSING_ONE_IN) % others;
            self.look_without(&drives, missing as usize, is_made)?;
        }
        match drives.open(clock().map_err(text)?) {
            Ok(store) => {
                let several = with_several(&store);
                self.meet("a crash leaves several runs of one flush", several.len() as u64);
                self.meet("a crash leaves a squeezed segment", squeezed(&store));
                let state = contents(&store, &writers)?;
                Ok(Some(Opened { drives, store, state }))
            }
            Err(StoreError::NoStore { .. }) if !is_made => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, opened: Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        let Some(Opened { drives, store, mut state }) = opened else { return Ok(()) };
        let expected = self.expected().clone();
        expected.check(&state, self.old(drives.home()))?;
        let in_trouble = self.troubles().are_on() || self.troubles().has_failed;
        self.meet("power is cut with a drive in trouble", u64::from(in_trouble));
        // The store must be usable.
        let new = (0, b"after".to_vec());
        if let Ok(kvs) = store.kvs(NAMES[new.0]) {
            let value = b"the crash".to_vec();
            kvs.put(&new.1, &value).map_err(text)?;
            if kvs.get(&new.1).map_err(text)?.as_ref() != Some(&value) {
                return Err("what was put after the crash is not there".to_owned());
            }
            state.insert(new, value);
        }
        store.close().map_err(text)?;
        if !self.looked.fetch_add(1, Relaxed).is_multiple_of(AGAIN_ONE_IN) {
            return Ok(());
        }
        let store = drives.open(clock().map_err(text)?);
        let store = store.map_err(|error| format!("opened once more: {error}"))?;
        let writers: Vec<u8> = expected.writers.keys().copied().collect();
        match contents(&store, &writers)? == state {
            true => store.close().map_err(text),
            false => Err("opened once more it holds something else".to_owned()),
        }
    }
}
