//! Histories with crashes: what suites run.
//!
//! A history is carried out on a simulated disk in a simulated world. At every moment at which
//! something becomes durable, or could be seen to, the disk is opened as a crash might leave it,
//! and what the store holds then must be what it held after some beginning of the history: one that
//! has everything that was acknowledged before the last sync, or longer ago than the durability
//! interval. If only the process dies, it must have everything that was acknowledged.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use entresol_base::clock::Picos;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_media::crash::{Crash, ExploreOptions, Explorer, Nested, Power, Report, Subject};
use entresol_media::disk::{Disk, DiskOptions, SectorSize};

use crate::{
    Batch, CursorOptions, Kvdb, KvdbOptions, Kvs, KvsOptions, StoreError, Transaction,
    TransactionOptions,
};

/// The `Kvs` of a history.
pub const NAMES: [&str; 2] = ["one", "two"];
const KEYS: u64 = 24;
/// Values beside their keys have at most so many bytes.
const INLINE_BYTES: u32 = 100;

/// Something that is done to a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Op {
    /// Writes; several are a batch.
    Write(Vec<Change>),
    /// Writes in a transaction, which is given up if it is not to be committed. There is no prefix
    /// among them.
    Transact(Vec<Change>, bool),
    /// Makes all durable.
    Sync,
    /// Freezes and merges everything.
    Compact,
    /// Lets time pass, in milliseconds.
    Sleep(u64),
    /// Closes the store and opens it again.
    Reopen,
}

/// A change of one `Kvs`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Which `Kvs`.
    pub kvs: usize,
    /// Which key, or the beginning of all keys that go.
    pub key: Vec<u8>,
    /// What becomes of it.
    pub to: To,
}

/// What becomes of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum To {
    /// It gets a value.
    Value(Vec<u8>),
    /// It goes.
    Gone,
    /// It goes, with all that begin so.
    PrefixGone,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Write(changes) => {
                for (number, Change { kvs, key, to }) in changes.iter().enumerate() {
                    let key = String::from_utf8_lossy(key);
                    let begin = if number == 0 { "" } else { " and " };
                    let name = NAMES[*kvs];
                    match to {
                        To::Value(value) => {
                            let (first, bytes) = (value.first(), value.len());
                            write!(f, "{begin}put {name} {key} {bytes} bytes of {first:?}")?;
                        }
                        To::Gone => write!(f, "{begin}delete {name} {key}")?,
                        To::PrefixGone => write!(f, "{begin}delete-prefix {name} {key}")?,
                    }
                }
                Ok(())
            }
            Op::Transact(changes, commits) => {
                let end = if *commits { "commit" } else { "give up" };
                write!(f, "transaction: {}, {end}", Op::Write(changes.clone()))
            }
            Op::Sync => write!(f, "sync"),
            Op::Compact => write!(f, "compact"),
            Op::Sleep(time) => write!(f, "sleep {time} ms"),
            Op::Reopen => write!(f, "reopen"),
        }
    }
}

/// How a history is tried.
#[derive(Debug, Clone, Copy)]
pub struct Trial {
    /// Decides everything.
    pub seed: u64,
    /// One recovery in so many is cut off by crashes itself; 0 is none.
    pub nested_one_in: u32,
    /// So many images are looked at, at each moment.
    pub images_max: u32,
}

impl Trial {
    /// The history of this seed, as it is usually tried.
    #[must_use]
    pub fn of(seed: u64) -> Trial {
        Trial { seed, nested_one_in: 16, images_max: 8 }
    }

    /// A history.
    #[must_use]
    pub fn history(&self, len: usize) -> Vec<Op> {
        let mut rng = Rng::named(self.seed, "history");
        (0..len).map(|number| op(&mut rng, number as u8)).collect()
    }

    /// Carries out a history, with crashes all the way.
    ///
    /// # Errors
    /// If it cannot be carried out; what a crash must not leave is in the report.
    pub fn run(&self, ops: &[Op]) -> Result<Report, String> {
        let preemption = match self.seed % 3 {
            0 => Preemption::Never,
            1 => Preemption::OneIn(10),
            _ => Preemption::OneIn(100),
        };
        let options = WorldOptions { preemption, ..WorldOptions::seeded(self.seed) };
        let world = World::new(options);
        let (trial, ops, within) = (*self, ops.to_vec(), world.clone());
        let ran = world.run(move || trial.run_within(&within, &ops));
        ran.unwrap_or_else(|failure| Err(failure.to_string()))
    }

    fn run_within(&self, world: &World, ops: &[Op]) -> Result<Report, String> {
        let power = Power::new();
        let sector =
            if self.seed.is_multiple_of(2) { SectorSize::Small } else { SectorSize::Large };
        let options = DiskOptions { sector, power: power.clone(), ..DiskOptions::default() };
        let disk = Disk::new(world, options).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared { world: world.clone(), expected: Mutex::default() });
        let nested = Nested { one_in: self.nested_one_in, images_max: 4, depth_max: 2 };
        let Trial { seed, images_max, .. } = *self;
        let explore = ExploreOptions { seed, exhaustive_max: images_max, images_max, nested };
        let explorer = Explorer::new(shared.clone(), explore);
        explorer.watch(&power);
        let wrong = carry_out(ops, &disk, &shared, &explorer).map_err(|error| error.to_string());
        let report = explorer.finish(&power);
        if report.failure.is_none() {
            wrong?;
        }
        Ok(report)
    }
}

fn op(rng: &mut Rng, number: u8) -> Op {
    match rng.below(20) {
        0 => Op::Sync,
        1 if rng.one_in(4) => Op::Compact,
        2 if rng.one_in(3) => Op::Reopen,
        3..=5 => Op::Sleep([1, 40, 101][rng.below(3) as usize]),
        6..=7 => {
            let changes = 1 + rng.below(5);
            Op::Write((0..changes).map(|_| change(rng, number)).collect())
        }
        8..=9 => {
            let changes = (0..1 + rng.below(5)).map(|_| change(rng, number));
            let changes = changes.filter(|change| change.to != To::PrefixGone).collect();
            Op::Transact(changes, !rng.one_in(4))
        }
        _ => Op::Write(vec![change(rng, number)]),
    }
}

fn change(rng: &mut Rng, number: u8) -> Change {
    let kvs = rng.below(NAMES.len() as u64) as usize;
    let key = format!("key{:02}", rng.below(KEYS)).into_bytes();
    match rng.below(16) {
        0 => Change { kvs, key: key[..4].to_vec(), to: To::PrefixGone },
        1..=3 => Change { kvs, key, to: To::Gone },
        _ => {
            let bytes = [0, 8, 90, 101, 900, 3000, 9000][rng.below(7) as usize];
            Change { kvs, key, to: To::Value(vec![number; bytes + rng.below(9) as usize]) }
        }
    }
}

fn options() -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 2 * KvdbOptions::SEGMENT_BYTES_MIN,
        page_cache_bytes: 64 << 10,
        ..KvdbOptions::default()
    }
}

type Pair = (Vec<u8>, Vec<u8>);
/// All that a store holds, by the number of the `Kvs` and the key.
pub type State = BTreeMap<(usize, Vec<u8>), Vec<u8>>;

/// What must be found after a crash.
#[derive(Debug, Default)]
struct Expected {
    /// Whether the store had been made.
    is_made: bool,
    /// The state that a crash may leave at least.
    floor: State,
    /// What was acknowledged since then, and when.
    acknowledged: Vec<(Picos, Vec<Change>)>,
    in_flight: Option<Vec<Change>>,
}

struct Shared {
    world: World,
    expected: Mutex<Expected>,
}

impl Shared {
    fn expected(&self) -> MutexGuard<'_, Expected> {
        self.expected.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes changes to what a store is to hold.
pub fn apply(state: &mut State, changes: &[Change]) {
    for Change { kvs, key, to } in changes {
        match to {
            To::Value(value) => {
                state.insert((*kvs, key.clone()), value.clone());
            }
            To::Gone => {
                state.remove(&(*kvs, key.clone()));
            }
            To::PrefixGone => {
                state.retain(|(of, other), _| of != kvs || !other.starts_with(key));
            }
        }
    }
}

impl Expected {
    /// Takes what was acknowledged first into what a crash leaves at least.
    fn settle(&mut self, count: usize) {
        for (_, changes) in self.acknowledged.drain(..count) {
            apply(&mut self.floor, &changes);
        }
    }

    /// Whether a crash may leave a state.
    fn check(&self, found: &State, now: Picos) -> Result<(), String> {
        let interval = Picos(options().durability_interval.as_nanos() as u64 * 1000);
        let is_old = |at: Picos| at.0 + interval.0 < now.0;
        let old = self.acknowledged.iter().take_while(|(at, _)| is_old(*at)).count();
        let mut state = self.floor.clone();
        let acknowledged = self.acknowledged.iter().map(|(_, changes)| changes);
        for (number, changes) in acknowledged.chain(&self.in_flight).enumerate() {
            if number >= old && state == *found {
                return Ok(());
            }
            apply(&mut state, changes);
        }
        if state == *found {
            return Ok(());
        }
        Err(format!(
            "what is found is no state that there was: {}; {} writes since the last sync",
            difference(found, &state),
            self.acknowledged.len()
        ))
    }

    /// Whether it is what was acknowledged, or that and what was in flight.
    fn check_all(&self, found: &State) -> Result<(), String> {
        let mut state = self.floor.clone();
        self.acknowledged.iter().for_each(|(_, changes)| apply(&mut state, changes));
        let before = state == *found;
        if let Some(changes) = &self.in_flight {
            apply(&mut state, changes);
        }
        match before || state == *found {
            true => Ok(()),
            false => Err(format!("the process died: {}", difference(found, &state))),
        }
    }
}

/// Names some keys that are otherwise than they should be.
#[must_use]
pub fn difference(found: &State, expected: &State) -> String {
    let keys = found.keys().chain(expected.keys());
    let odd = keys.filter(|key| found.get(*key) != expected.get(*key));
    let odd = odd.map(|key| {
        let name = |value: Option<&Vec<u8>>| match value {
            Some(value) => format!("{} bytes of {:?}", value.len(), value.first()),
            None => "nothing".to_owned(),
        };
        let (is, was) = (name(found.get(key)), name(expected.get(key)));
        format!("{} {} has {is}, written was {was}", NAMES[key.0], String::from_utf8_lossy(&key.1))
    });
    let mut odd: Vec<String> = odd.collect();
    odd.dedup();
    odd.truncate(6);
    odd.join("; ")
}

/// All that is in a store, read in three ways that must agree.
fn contents(store: &Kvdb) -> Result<State, String> {
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
        for key in (0..KEYS).map(|key| format!("key{key:02}").into_bytes()) {
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

fn walk(kvs: &Kvs, backward: bool) -> Result<Vec<Pair>, String> {
    let options = CursorOptions { backward, ..CursorOptions::default() };
    let mut cursor = kvs.cursor(options).map_err(|error| error.to_string())?;
    let mut all = Vec::new();
    while let Some((key, value)) = cursor.next().map_err(|error| error.to_string())? {
        all.push((key.to_vec(), value.to_vec()));
    }
    Ok(all)
}

fn open(disk: &Disk) -> Result<Kvdb, StoreError> {
    let clock = World::current()
        .ok_or_else(|| StoreError::Options { what: "stores are tried in worlds".to_owned() })?;
    Kvdb::open(disk.root(), options(), Arc::new(clock))
}

impl Subject for Shared {
    type Opened = Option<(Kvdb, State)>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let disk = crash.images.first().and_then(|image| image.downcast_ref::<Disk>());
        let disk = disk.ok_or("the medium is no disk")?;
        match open(disk) {
            Ok(store) => {
                let state = contents(&store)?;
                Ok(Some((store, state)))
            }
            Err(StoreError::NoStore { .. }) if !self.expected().is_made => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn check(&self, opened: Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        let Some((store, state)) = opened else { return Ok(()) };
        self.expected().check(&state, self.world.now())?;
        // It must be usable.
        if let Ok(kvs) = store.kvs(NAMES[0]) {
            kvs.put(b"after", b"the crash").map_err(|error| error.to_string())?;
            let found = kvs.get(b"after").map_err(|error| error.to_string())?;
            if found.as_deref() != Some(b"the crash") {
                return Err("what was put after the crash is not there".to_owned());
            }
        }
        store.close().map_err(|error| error.to_string())
    }
}

fn carry_out(
    ops: &[Op],
    disk: &Disk,
    shared: &Shared,
    explorer: &Explorer<Shared>,
) -> Result<(), StoreError> {
    let clock = Arc::new(shared.world.clone());
    let mut store = Kvdb::create(disk.root(), options(), clock)?;
    shared.expected().is_made = true;
    let kvs_options = KvsOptions { inline_bytes: INLINE_BYTES, ..KvsOptions::default() };
    for name in NAMES {
        store.create_kvs(name, kvs_options)?;
    }
    let mut deaths = shared.world.rng("deaths");
    for op in ops {
        match op {
            Op::Transact(changes, false) => drop(begun(&store, changes)?),
            Op::Write(changes) | Op::Transact(changes, _) => {
                shared.expected().in_flight = Some(changes.clone());
                match op {
                    Op::Transact(..) => drop(begun(&store, changes)?.commit()?),
                    _ => write(&store, changes)?,
                }
                let now = shared.world.now();
                let expected = &mut *shared.expected();
                let changes = expected.in_flight.take();
                expected.acknowledged.extend(changes.map(|changes| (now, changes)));
            }
            Op::Sync => {
                let count = shared.expected().acknowledged.len();
                store.sync()?;
                shared.expected().settle(count);
            }
            Op::Compact => store.compact()?,
            Op::Sleep(time) => thread::sleep(Duration::from_millis(*time)),
            Op::Reopen => {
                let count = shared.expected().acknowledged.len();
                store.close()?;
                shared.expected().settle(count);
                store = open(disk)?;
            }
        }
        if explorer.has_failed() {
            return Ok(());
        }
        if deaths.one_in(8) {
            died(disk, shared)?;
        }
    }
    store.close()
}

/// Only the process dies: the disk has all that was written to it.
fn died(disk: &Disk, shared: &Shared) -> Result<(), StoreError> {
    let units = disk.units();
    let image = disk.image(&units);
    let store = open(&image)?;
    let found = contents(&store).and_then(|found| shared.expected().check_all(&found));
    found.map_err(|what| StoreError::Internal { what })
}

/// A transaction that has made changes.
fn begun(store: &Kvdb, changes: &[Change]) -> Result<Transaction, StoreError> {
    let mut transaction = store.transaction(TransactionOptions::default())?;
    for Change { kvs, key, to } in changes {
        let kvs = store.kvs(NAMES[*kvs])?;
        let value = match to {
            To::Value(value) => Some(value),
            To::Gone | To::PrefixGone => None,
        };
        match value {
            Some(value) => transaction.put(&kvs, key, value)?,
            None => transaction.delete(&kvs, key)?,
        }
        if transaction.get(&kvs, key)?.as_ref() != value {
            let what = "a transaction does not see what it has written".to_owned();
            return Err(StoreError::Internal { what });
        }
    }
    Ok(transaction)
}

/// Makes changes to a store; several at once are a batch.
///
/// # Errors
/// If the store refuses them.
pub fn write(store: &Kvdb, changes: &[Change]) -> Result<(), StoreError> {
    let kvs = NAMES.map(|name| store.kvs(name));
    let [one, two] = kvs;
    let kvs = [one?, two?];
    if let [Change { kvs: of, key, to }] = changes {
        let kvs = &kvs[*of];
        let written = match to {
            To::Value(value) => kvs.put(key, value),
            To::Gone => kvs.delete(key),
            To::PrefixGone => kvs.delete_prefix(key),
        };
        return written.map(drop);
    }
    let mut batch = Batch::new();
    for Change { kvs: of, key, to } in changes {
        match to {
            To::Value(value) => batch.put(&kvs[*of], key, value)?,
            To::Gone => batch.delete(&kvs[*of], key)?,
            To::PrefixGone => batch.delete_prefix(&kvs[*of], key)?,
        };
    }
    store.write(&batch).map(drop)
}
