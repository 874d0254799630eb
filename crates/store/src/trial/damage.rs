//! Damage: a history's store is closed, and one of its files is damaged. Each answer must then be
//! right or an error. No more may be lost than was hit. `check` must name the file, and `salvage`
//! must restore the rest, without anything that was never written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::World;
use entresol_simulated::crash::Report;
use entresol_simulated::disk::{
    Call, Calls, Disk, DiskOptions, Effect, Failure, Fault, FaultPlan, Repeat,
};

use super::carry_out::{begun, make, squeeze};
use super::expected::{State, apply, difference};
use super::{Change, NAMES, Op, To, Trial, of_history, options, write};
use crate::manifest;
use crate::manifest::Manifest;
use crate::names;
use crate::repair::check::guess;
use crate::types::KvsId;
use crate::{CheckReport, CursorOptions, Kvdb, Kvs, SalvageReport, StoreError, check, salvage};

/// Number of damages tried on the store of one history.
const DAMAGES: usize = 24;
const SECTOR_BYTES: usize = 4096;

type Files = BTreeMap<String, Vec<u8>>;

/// Damage to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Bit flip: a byte and a bit.
    Bit(usize, u8),
    /// Sector as it was before anything was written there.
    LostSector(usize),
    /// Sector with the contents of another sector of the file.
    StraySector(usize, usize),
    /// File cut short.
    Truncated(usize),
    /// File that does not exist.
    Missing,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Damage::Bit(byte, bit) => write!(f, "bit {bit} of byte {byte} is turned over"),
            Damage::LostSector(at) => write!(f, "the sector at {at} was never written"),
            Damage::StraySector(at, from) => write!(f, "the sector at {at} is that of {from}"),
            Damage::Truncated(len) => write!(f, "it ends at {len}"),
            Damage::Missing => write!(f, "it is missing"),
        }
    }
}

impl Damage {
    fn draw(rng: &mut Rng, bytes: &[u8]) -> Damage {
        // A page is often mostly empty.
        let written = bytes.iter().rposition(|byte| *byte != 0).map_or(1, |last| last + 1);
        let end = if rng.one_in(4) { bytes.len() } else { written };
        let sectors = bytes.len().div_ceil(SECTOR_BYTES);
        match rng.below(20) {
            0 => Damage::Missing,
            1..=2 => Damage::Truncated(rng.index(bytes.len())),
            3..=5 => Damage::LostSector(rng.index(end.div_ceil(SECTOR_BYTES)) * SECTOR_BYTES),
            6..=7 => {
                let [at, from] = [(); 2].map(|()| rng.index(sectors) * SECTOR_BYTES);
                Damage::StraySector(at, from)
            }
            _ => Damage::Bit(rng.index(end), rng.below(8) as u8),
        }
    }

    /// Returns the damaged contents of a file; `None` if the file is missing.
    fn of(self, bytes: &[u8]) -> Option<Vec<u8>> {
        let mut left = bytes.to_vec();
        let end = |at: usize| (at + SECTOR_BYTES).min(bytes.len());
        match self {
            Damage::Bit(byte, bit) => left[byte] ^= 1 << bit,
            Damage::LostSector(at) => left[at..end(at)].fill(0),
            Damage::StraySector(at, from) => {
                let len = (end(at) - at).min(end(from) - from);
                left.copy_within(from..from + len, at);
            }
            Damage::Truncated(len) => left.truncate(len),
            Damage::Missing => return None,
        }
        Some(left)
    }
}

/// Contents of a closed store, and all values that it ever had.
struct Before {
    files: Files,
    manifest: Manifest,
    state: State,
    /// All values that each key ever had.
    ever: BTreeMap<(usize, Vec<u8>), BTreeSet<Vec<u8>>>,
    /// True if there were range deletes: the loss of one brings back many keys.
    has_prefixes: bool,
}

impl Trial {
    /// Runs a history, closes the store, and damages its files again and again. Each damage counts
    /// as a crash image. The trial's parameters for crashes have no effect.
    ///
    /// # Errors
    /// Fails if damage leads to anything that it must not. The message describes the damage.
    pub fn run_damaged(&self, ops: &[Op]) -> Result<Report, String> {
        self.run_damaged_until(ops, &Stop::new())
    }

    /// Damages the store of a history as [`run_damaged`](Trial::run_damaged) does, until `stop` is
    /// due.
    ///
    /// # Errors
    /// Fails as [`run_damaged`](Trial::run_damaged) does.
    pub fn run_damaged_until(&self, ops: &[Op], stop: &Stop) -> Result<Report, String> {
        let world = World::new(entresol_base::world::WorldOptions::seeded(self.seed));
        let (seed, within, ops, stop) = (self.seed, world.clone(), ops.to_vec(), stop.clone());
        let ran = world.run(move || run_within(&within, seed, &ops, &stop));
        ran.unwrap_or_else(|failure| Err(failure.to_string()))
    }
}

fn run_within(world: &World, seed: u64, ops: &[Op], stop: &Stop) -> Result<Report, String> {
    let before = carry_out(world, ops).map_err(|error| error.to_string())?;
    let mut rng = Rng::named(seed, "damage");
    let whole = disk_of(world, &before.files)?;
    look_whole(world, &whole, &before)?;
    drop(whole);
    for number in 0..DAMAGES {
        if stop.is_due() {
            let images = number as u64;
            return Ok(Report { images, is_broken_off: true, ..Report::default() });
        }
        if number % 6 == 5 {
            fail_calls(world, &before, &mut rng)?;
            continue;
        }
        let files: Vec<_> = before.files.iter().filter(|(_, bytes)| !bytes.is_empty()).collect();
        let (name, bytes) = files[rng.index(files.len())];
        let damage = Damage::draw(&mut rng, bytes);
        let told = |what: String| format!("{name}: {damage}: {what}");
        let mut left = before.files.clone();
        match damage.of(bytes) {
            Some(bytes) => drop(left.insert(name.clone(), bytes)),
            None => drop(left.remove(name)),
        }
        let is_written_to = rng.one_in(2);
        look(world, &left, name, damage, &before, is_written_to).map_err(told)?;
    }
    Ok(Report { images: DAMAGES as u64, ..Report::default() })
}

/// Carries out a history in order, and closes the store.
fn carry_out(world: &World, ops: &[Op]) -> Result<Before, StoreError> {
    let disk = Disk::new(world, DiskOptions::default());
    let disk = disk.map_err(|error| StoreError::Internal { what: error.to_string() })?;
    let mut store = make(&disk)?;
    let (mut state, mut ever) = (State::new(), BTreeMap::<_, BTreeSet<_>>::new());
    let mut has_prefixes = false;
    for op in ops {
        match op {
            Op::Transact(changes, false) => drop(begun(&store, changes)?),
            Op::Write(changes) | Op::Transact(changes, true) => {
                match op {
                    Op::Write(_) => write(&store, changes)?,
                    _ => drop(begun(&store, changes)?.commit()?),
                }
                apply(&mut state, changes);
                for Change { kvs, key, to } in changes {
                    has_prefixes |= *to == To::RangeDelete;
                    if let To::Value(value) = to {
                        ever.entry((*kvs, key.clone())).or_default().insert(value.clone());
                    }
                }
            }
            Op::Sync => store.sync()?,
            Op::Compact => store.compact()?,
            Op::Squeeze => {
                squeeze(&store)?;
            }
            Op::Sleep(time) => thread::sleep(Duration::from_millis(*time)),
            // The store has one volume, on a healthy drive.
            Op::Arrange(_) | Op::Trouble(..) => {}
            Op::Reopen => {
                store.close()?;
                store = open(world, &disk, false)?;
            }
        }
    }
    store.close()?;
    let root = disk.root();
    let manifest = Manifest::load(&*root)?;
    let none = || crate::volumes::no_store(&*root);
    Ok(Before {
        files: disk.contents(),
        manifest: manifest.ok_or_else(none)?,
        state,
        ever,
        has_prefixes,
    })
}

fn open(world: &World, disk: &Disk, read_only: bool) -> Result<Kvdb, StoreError> {
    let clock = Arc::new(world.clone());
    match read_only {
        true => Kvdb::open_read_only(disk.root(), of_history(options()), clock),
        false => Kvdb::open(disk.root(), of_history(options()), clock),
    }
}

/// Creates a disk with the given files.
fn disk_of(world: &World, files: &Files) -> Result<Disk, String> {
    let disk = Disk::new(world, DiskOptions::default()).map_err(|error| error.to_string())?;
    let root = disk.root();
    let mut files = files.iter();
    let put = files.try_for_each(|(name, bytes)| root.replace(name, bytes));
    put.map(|()| disk).map_err(|error| error.to_string())
}

/// Checks that everything is found without damage: by `check`, and by `salvage`.
fn look_whole(world: &World, disk: &Disk, before: &Before) -> Result<(), String> {
    let report = check(&disk.root(), &mut |_| {}).map_err(|error| error.to_string())?;
    if !report.is_whole() {
        return Err(format!("nothing is damaged, and check says {:?}", report.findings));
    }
    let (found, _) = saved(world, disk, before)?;
    match found == before.state {
        true => Ok(()),
        false => Err(format!("saved of a whole store: {}", difference(&found, &before.state))),
    }
}

/// Reads the store while calls to the disk fail. Once they succeed again, everything must be as it
/// was.
fn fail_calls(world: &World, before: &Before, rng: &mut Rng) -> Result<(), String> {
    let disk = disk_of(world, &before.files)?;
    let repeat = if rng.one_in(2) { Repeat::Once } else { Repeat::EverAfter };
    let nth = 1 + rng.below(60);
    disk.inject(FaultPlan::one(Fault {
        calls: Calls::of(&[Call::Read, Call::Look]),
        nth,
        repeat,
        effect: Effect::Fail(Failure::Io),
    }));
    let told = |what: String| format!("call {nth} fails, {repeat:?}: {what}");
    if let Ok(store) = open(world, &disk, rng.one_in(2)) {
        read(&store, &before.state).map_err(told)?;
    }
    disk.inject(FaultPlan::default());
    let store = open(world, &disk, false).map_err(|error| told(error.to_string()))?;
    let errors = read(&store, &before.state).map_err(told)?;
    match errors.is_empty() {
        true => store.close().map_err(|error| told(error.to_string())),
        false => Err(told(format!("later on {errors:?} cannot be read"))),
    }
}

/// Compares the answers of a damaged store with its contents before.
fn look(
    world: &World,
    left: &Files,
    name: &str,
    damage: Damage,
    before: &Before,
    is_written_to: bool,
) -> Result<(), String> {
    let disk = disk_of(world, left)?;
    let report = check(&disk.root(), &mut |_| {});
    let opened = open(world, &disk_of(world, left)?, !is_written_to);
    let (is_told, lost) = match &opened {
        Ok(store) => {
            let lost = read(store, &before.state)?;
            (!lost.is_empty(), lost)
        }
        Err(_) => (true, BTreeSet::new()),
    };
    drop(opened);
    // No manifest lists a segment of the log, so the file behind a missing one is named instead.
    let is_named = |report: &CheckReport| {
        let is_listed = |number: u64| before.manifest.segments.contains(&number);
        let is_of_log = names::segment_number(name).is_some_and(|number| !is_listed(number.0));
        is_of_log && damage == Damage::Missing || report.findings.iter().any(|it| it.file == name)
    };
    match &report {
        Ok(report) if is_told && report.is_whole() => {
            return Err("it is told when it is read, and check finds nothing".to_owned());
        }
        Ok(report) if is_told && !is_named(report) => {
            return Err(format!("check does not name it: {:?}", report.findings));
        }
        Ok(_) => {}
        Err(error) => {
            // No store can be made out of the rest, or it might be of a later version.
            return match damage {
                Damage::Bit(..) if name != names::MANIFEST => Err(format!("not checked: {error}")),
                _ => Ok(()),
            };
        }
    }
    is_confined(name, &lost, before)?;
    look_at_saved(world, &disk, name, damage, before)
}

/// Reads everything, and checks that each answer is right. Returns the unreadable keys with their
/// `Kvs`; an empty key stands for all of a `Kvs`.
fn read(store: &Kvdb, state: &State) -> Result<BTreeSet<(usize, Vec<u8>)>, String> {
    let mut lost = BTreeSet::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        match store.kvs(name) {
            Ok(kvs) => read_kvs(&kvs, number, state, &mut lost)?,
            Err(StoreError::NoKvs { .. }) => return Err(format!("{name} is lost")),
            Err(_) => drop(lost.insert((number, Vec::new()))),
        }
    }
    Ok(lost)
}

fn read_kvs(
    kvs: &Kvs,
    number: usize,
    state: &State,
    lost: &mut BTreeSet<(usize, Vec<u8>)>,
) -> Result<(), String> {
    let name = kvs.name();
    let own = || state.iter().filter(|((of, _), _)| *of == number);
    for ((_, key), value) in own() {
        match kvs.get(key) {
            Ok(found) if found.as_ref() == Some(value) => {}
            Ok(_) => {
                let key = String::from_utf8_lossy(key);
                return Err(format!("{name} {key} is answered otherwise than it was written"));
            }
            Err(_) => drop(lost.insert((number, key.clone()))),
        }
    }
    let mut left = own();
    let Ok(mut cursor) = kvs.cursor(CursorOptions::default()) else { return Ok(()) };
    loop {
        match (cursor.next(), left.next()) {
            (Ok(None), None) => return Ok(()),
            (Err(_), _) => {
                lost.insert((number, Vec::new()));
                return Ok(());
            }
            (Ok(Some((key, value))), Some(((_, of), was))) if key == of && value == was => {}
            (Ok(_), _) => return Err(format!("{name} is shown otherwise than it was written")),
        }
    }
}

/// Checks that damage in a run affects no other `Kvs` than its own.
fn is_confined(
    name: &str,
    lost: &BTreeSet<(usize, Vec<u8>)>,
    before: &Before,
) -> Result<(), String> {
    let Some(number) = names::run_number(name) else { return Ok(()) };
    let owns = |kvs: &&manifest::KvsState| kvs.runs.iter().any(|run| run.number() == number);
    let owner = before.manifest.kvs.iter().find(owns).map(|kvs| kvs.name.as_str());
    let other = lost.iter().find(|(kvs, _)| Some(NAMES[*kvs]) != owner);
    match other {
        None => Ok(()),
        Some((kvs, key)) => {
            let (name, key) = (NAMES[*kvs], String::from_utf8_lossy(key));
            Err(format!("{name} {key} cannot be read, and the run is not its own"))
        }
    }
}

/// Salvages the store. Returns the result by the numbers of the `Kvs`, whatever their names are.
fn saved(world: &World, disk: &Disk, before: &Before) -> Result<(State, SalvageReport), String> {
    let to = Disk::new(world, DiskOptions::default()).map_err(|error| error.to_string())?;
    let clock = Arc::new(world.clone());
    let go_on = &mut |_| ControlFlow::Continue(());
    let report = salvage(&disk.root(), to.root(), of_history(options()), clock, go_on);
    let report = report.map_err(|error| format!("not saved: {error}"))?.unwrap_or_default();
    let whole = check(&to.root(), &mut |_| {}).map_err(|error| error.to_string())?;
    if !whole.is_whole() {
        return Err(format!("what was saved is damaged: {:?}", whole.findings));
    }
    let store = open(world, &to, true).map_err(|error| format!("saved, not opened: {error}"))?;
    let mut state = State::new();
    for (number, name) in NAMES.into_iter().enumerate() {
        let id = before.manifest.kvs.iter().find(|kvs| kvs.name == name).map(|kvs| KvsId(kvs.id));
        let lost_name = id.map(guess::name).unwrap_or_default();
        let Ok(kvs) = store.kvs(name).or_else(|_| store.kvs(&lost_name)) else { continue };
        let mut cursor = kvs.cursor(CursorOptions::default()).map_err(|error| error.to_string())?;
        while let Some((key, value)) = cursor.next().map_err(|error| error.to_string())? {
            state.insert((number, key.to_vec()), value.to_vec());
        }
    }
    Ok((state, report))
}

fn look_at_saved(
    world: &World,
    disk: &Disk,
    name: &str,
    damage: Damage,
    before: &Before,
) -> Result<(), String> {
    let (found, report) = saved(world, disk, before)?;
    let is_phantom = |(key, value): &(&(usize, Vec<u8>), &Vec<u8>)| {
        before.ever.get(*key).is_none_or(|values| !values.contains(*value))
    };
    if let Some(((kvs, key), _)) = found.iter().find(is_phantom) {
        let (name, key) = (NAMES[*kvs], String::from_utf8_lossy(key));
        return Err(format!("saved was {name} {key} with a value that it never had"));
    }
    if !matches!(damage, Damage::Bit(..)) || name == names::MANIFEST {
        return Ok(());
    }
    let keys: BTreeSet<_> = found.keys().chain(before.state.keys()).collect();
    let odd = keys.into_iter().filter(|key| found.get(*key) != before.state.get(*key)).count();
    let has_gaps = report.kvs.iter().any(|kvs| kvs.has_gaps);
    let most = match (names::run_number(name), names::segment_number(name)) {
        // A damaged page may cost everything on it.
        (Some(_), _) if has_gaps => return Ok(()),
        (None, Some(number)) if before.manifest.segments.contains(&number.0) => {
            report.kvs.iter().map(|kvs| kvs.values_lost as usize).sum::<usize>().min(1)
        }
        // One record of the log is lost.
        (None, Some(_)) if before.has_prefixes => return Ok(()),
        (None, Some(_)) => 1,
        _ => 0,
    };
    match odd <= most {
        true => Ok(()),
        false => Err(format!("saved was too little: {}", difference(&found, &before.state))),
    }
}
