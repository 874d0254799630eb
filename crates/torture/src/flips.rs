//! Torture of a store by single flipped bits, in every kind of file: of a store that was closed or
//! whose process was killed, on a disk, on persistent memory, and with several classes of media.
//! Each bit must be harmless or reported by `check`, no reader may get a wrong value without such a
//! report, and `salvage` must copy everything that readers still find.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_base::{Clock, Stop, SystemClock};
use entresol_measure::BenchError;
use entresol_measure::progress::Progress;
use entresol_media::{Directory, PmemMode};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};
use entresol_store::{
    CheckReport, Classes, CursorOptions, Kvdb, KvdbOptions, KvsOptions, MediaClass, Policy,
    StoreError, Volume, check, salvage,
};
use serde::Serialize;

/// Settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Seed of the bits that are flipped.
    pub seed: u64,
    /// Bits to flip in each state of a store.
    pub flips: u64,
    /// Time limit, if there is one.
    pub time: Option<Duration>,
}

/// Result of a run.
#[derive(Debug, Clone, Default, Serialize)]
pub struct FlipOutcome {
    /// Subject of the run.
    pub subject: &'static str,
    /// Seed of the run.
    pub seed: u64,
    /// States of a store in which bits were flipped.
    pub states: Vec<StateSeen>,
    /// Wall time in seconds.
    pub elapsed_s: f64,
    /// Description of the failure, if there is one.
    pub failure: Option<String>,
    /// True if there was no failure.
    pub pass: bool,
    /// True if the user interrupted the run.
    pub interrupted: bool,
}

/// Counts of the bits flipped in one state of a store.
#[derive(Debug, Clone, Default, Serialize)]
pub struct StateSeen {
    /// Name of the state.
    pub state: &'static str,
    /// Kinds of files in which bits were flipped.
    pub kinds: BTreeSet<String>,
    /// Bits flipped.
    pub flips: u64,
    /// Bits that `check` reported.
    pub reported: u64,
    /// Bits that changed nothing that readers find, and were not reported.
    pub harmless: u64,
}

impl fmt::Display for FlipOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for StateSeen { state, kinds, flips, reported, harmless } in &self.states {
            let kinds: Vec<&str> = kinds.iter().map(String::as_str).collect();
            let kinds = kinds.join(", ");
            writeln!(
                f,
                "{state}: {flips} bits flipped in {kinds}: {reported} reported, {harmless} harmless"
            )?;
        }
        match &self.failure {
            None => writeln!(f, "flips, seed {}: passed in {:.1} s", self.seed, self.elapsed_s),
            Some(what) => writeln!(f, "flips, seed {}: FAILED: {what}", self.seed),
        }
    }
}

/// State of a store before a bit flips.
#[derive(Debug, Clone, Copy)]
struct State {
    name: &'static str,
    pmem: bool,
    killed: bool,
    classes: bool,
}

const STATES: [State; 5] = [
    State { name: "closed, on a disk", pmem: false, killed: false, classes: false },
    State { name: "killed, on a disk", pmem: false, killed: true, classes: false },
    State { name: "closed, on persistent memory", pmem: true, killed: false, classes: false },
    State { name: "killed, on persistent memory", pmem: true, killed: true, classes: false },
    State { name: "closed, with two classes", pmem: false, killed: false, classes: true },
];

/// Keys and values of each `Kvs`.
type Contents = BTreeMap<(String, Vec<u8>), Vec<u8>>;

const NAMES: [&str; 2] = ["one", "two"];
const KEYS: u32 = 60;
/// One salvage for this many flips that were reported.
const SALVAGE_ONE_IN: u64 = 4;

/// Flips bits until there were enough, time is up, or one is not told.
///
/// # Errors
/// Fails if a store cannot be made.
pub fn torture(settings: &Settings, progress: &Progress) -> Result<FlipOutcome, BenchError> {
    let clock = SystemClock::new();
    let start = clock.now();
    let stop =
        settings.time.map_or_else(|| progress.stop().clone(), |it| progress.stop().after(it));
    let mut outcome = FlipOutcome { subject: "flips", seed: settings.seed, ..Default::default() };
    for state in STATES {
        let world = World::new(WorldOptions::seeded(settings.seed));
        let (within, settings, stop, progress) =
            (world.clone(), *settings, stop.clone(), progress.clone());
        let ran = world.run(move || flip_in(&within, state, &settings, (&stop, &progress)));
        let ran = ran.unwrap_or_else(|failure| Err(failure.to_string()));
        match ran {
            Ok(seen) if seen.flips == 0 => {}
            Ok(seen) => outcome.states.push(seen),
            Err(what) => {
                outcome.failure = Some(format!("{}: {what}", state.name));
                break;
            }
        }
    }
    outcome.elapsed_s = clock.now().since(start).as_secs_f64();
    outcome.pass = outcome.failure.is_none();
    outcome.interrupted = stop.is_asked();
    Ok(outcome)
}

/// Store at rest, in which bits are flipped.
struct Subject {
    state: State,
    world: World,
    disk: Disk,
    expected: Contents,
    /// Report of a check before any bit flips.
    before: CheckReport,
}

fn flip_in(
    world: &World,
    state: State,
    settings: &Settings,
    (stop, progress): (&Stop, &Progress),
) -> Result<StateSeen, String> {
    let subject = Subject::make(world, state)?;
    let mut seen = StateSeen { state: state.name, ..StateSeen::default() };
    let mut rng = Rng::named(settings.seed, state.name);
    let files = subject.disk.contents().into_iter();
    let files: Vec<(String, Vec<u8>)> = files.filter(|(_, bytes)| !bytes.is_empty()).collect();
    let used: Vec<Vec<u64>> = files.iter().map(|(_, bytes)| used_bytes(bytes)).collect();
    for _ in 0..settings.flips {
        if stop.is_due() {
            break;
        }
        let file = rng.index(files.len());
        let (name, bytes) = &files[file];
        // Most of a file may be zeros that nothing reads.
        let at = match used[file].is_empty() || rng.one_in(5) {
            true => rng.below(bytes.len() as u64),
            false => used[file][rng.index(used[file].len())],
        };
        let bit = rng.below(8) as u8;
        let disk = &subject.disk;
        disk.flip(name, at, bit).map_err(|error| error.to_string())?;
        let with_salvage = rng.below(SALVAGE_ONE_IN) == 0;
        let told = subject.judge(with_salvage);
        disk.flip(name, at, bit).map_err(|error| error.to_string())?;
        let is_reported =
            told.map_err(|what| format!("bit {bit} of byte {at} of {name}: {what}"))?;
        seen.kinds.insert(kind(name));
        seen.flips += 1;
        *if is_reported { &mut seen.reported } else { &mut seen.harmless } += 1;
        progress.advance(1);
    }
    Ok(seen)
}

fn used_bytes(bytes: &[u8]) -> Vec<u64> {
    (0..).zip(bytes).filter(|(_, byte)| **byte != 0).map(|(at, _)| at).collect()
}

/// Returns the kind of a file, by its name.
fn kind(path: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or(path);
    let kinds = [("run-", "runs"), ("image-", "memtable images")];
    let found = kinds.iter().find(|(begin, _)| name.starts_with(begin));
    match (found, name.ends_with(".segment")) {
        (Some((_, kind)), _) => (*kind).to_owned(),
        (None, true) => "segments".to_owned(),
        (None, false) => name.to_owned(),
    }
}

impl Subject {
    fn make(world: &World, state: State) -> Result<Subject, String> {
        let sector = if state.pmem { SectorSize::Line } else { DiskOptions::default().sector };
        let options = || DiskOptions { sector, ..DiskOptions::default() };
        let mut disk = Disk::new(world, options()).map_err(text)?;
        let store = create(world, state, &disk)?;
        fill(&store)?;
        store.sync().map_err(text)?;
        // The memtable image follows the log meanwhile.
        thread::sleep(Duration::from_secs(1));
        let expected = contents(&store).map_err(|(_, error)| error.to_string())?;
        match state.killed {
            true => disk = disk.reopen(world, options()).map_err(text)?,
            false => store.close().map_err(text)?,
        }
        let before = check(&home(&disk, state)?, &mut |_| {}).map_err(text)?;
        let subject = Subject { state, world: world.clone(), disk, expected, before };
        match subject.judge(true)? {
            false => Ok(subject),
            true => Err(format!("undamaged, it is called damaged: {:?}", subject.before)),
        }
    }

    /// Checks what readers, `check` and `salvage` say of the store as it is. Returns true if
    /// `check` reports damage.
    fn judge(&self, with_salvage: bool) -> Result<bool, String> {
        let home = home(&self.disk, self.state)?;
        let store = self.open(home.clone());
        let (shown, error) = match store.as_ref().map(contents) {
            Ok(Ok(shown)) => (shown, None),
            Ok(Err((shown, error))) => (shown, Some(error.to_string())),
            Err(error) => (Contents::new(), Some(error.to_string())),
        };
        let gets = store.map_or(Ok(()), |store| self.check_gets(&store));
        let report = check(&home, &mut |_| {});
        let is_reported = report.as_ref().is_ok_and(|it| !it.is_whole()) || report.is_err();
        let is_odd = report.is_ok_and(|it| it.remarks.len() > self.before.remarks.len());
        if !is_reported && (error.is_some() || shown != self.expected) {
            let (found, all) = (shown.len(), self.expected.len());
            return Err(format!("check finds nothing, readers {found} of {all} keys: {error:?}"));
        }
        // An image of a killed process is compared with the log by `check` only.
        let may_be_older = self.state.pmem && self.state.killed && is_reported;
        let is_wrong = |(key, value): &(&_, &_)| self.expected.get(*key) != Some(*value);
        if !may_be_older && let Some(((kvs, key), value)) = shown.iter().find(is_wrong) {
            let newest = self.expected.get(&(kvs.clone(), key.clone()));
            return Err(format!(
                "a cursor shows {} bytes for {} of {kvs}, newest are {:?}; error: {error:?}",
                value.len(),
                key.escape_ascii(),
                newest.map(Vec::len)
            ));
        }
        if !may_be_older {
            gets?;
        }
        if with_salvage && is_reported {
            self.check_salvaged(&shown)?;
        }
        Ok(is_reported || is_odd)
    }

    /// Checks that a get of each key that was ever put finds its newest value, or fails.
    fn check_gets(&self, store: &Kvdb) -> Result<(), String> {
        for name in NAMES {
            let Ok(kvs) = store.kvs(name) else { continue };
            for key in (0..KEYS).map(key) {
                let Ok(found) = kvs.get(&key) else { continue };
                let newest = self.expected.get(&(name.to_owned(), key.clone()));
                if found.as_ref() != newest {
                    let (found, newest) = (found.map(|it| it.len()), newest.map(Vec::len));
                    return Err(format!(
                        "a get of {} of {name} finds {found:?} bytes, newest are {newest:?}",
                        key.escape_ascii()
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks that a salvage copies all that readers find.
    fn check_salvaged(&self, shown: &Contents) -> Result<(), String> {
        let to = Disk::new(&self.world, DiskOptions::default()).map_err(text)?;
        let clock = Arc::new(self.world.clone());
        let go_on = &mut |_| ControlFlow::Continue(());
        let from = home(&self.disk, self.state)?;
        let saved = salvage(&from, to.root(), options(false), clock.clone(), go_on);
        match saved {
            // Without its manifest, the names of the store's Kvs are lost.
            _ if shown.is_empty() => return Ok(()),
            Err(error) => return Err(format!("nothing can be salvaged: {error}")),
            Ok(_) => {}
        }
        let store = Kvdb::open_read_only(to.root(), options(false), clock).map_err(text)?;
        let saved = contents(&store).map_err(|(_, error)| error.to_string())?;
        let is_right = |(key, value): &(&_, &_)| self.expected.get(*key) == Some(*value);
        let mut right = shown.iter().filter(is_right);
        match right.find(|(key, value)| saved.get(*key) != Some(*value)) {
            None => Ok(()),
            Some(((kvs, key), _)) => {
                Err(format!("salvage loses key {} of {kvs}, which is read", key.escape_ascii()))
            }
        }
    }

    fn open(&self, home: Arc<dyn Directory>) -> Result<Kvdb, StoreError> {
        let clock = Arc::new(self.world.clone());
        Kvdb::open_read_only(home, options(self.state.pmem), clock)
    }
}

fn text(error: impl fmt::Display) -> String {
    error.to_string()
}

fn options(pmem: bool) -> KvdbOptions {
    KvdbOptions {
        segment_bytes: KvdbOptions::SEGMENT_BYTES_MIN,
        generation_bytes: 4 * KvdbOptions::SEGMENT_BYTES_MIN,
        memory_bytes: 2 << 20,
        pmem: pmem.then_some(PmemMode { assume_dax: false }),
        ..KvdbOptions::default()
    }
}

/// Returns the home of the store on a disk.
fn home(disk: &Disk, state: State) -> Result<Arc<dyn Directory>, String> {
    match state.classes {
        true => disk.root().subdirectory("fast").map_err(text),
        false => Ok(disk.root()),
    }
}

fn create(world: &World, state: State, disk: &Disk) -> Result<Kvdb, String> {
    let class = match (state.pmem, state.classes) {
        (true, _) => MediaClass::Pmem,
        (false, true) => MediaClass::Staging,
        (false, false) => MediaClass::Capacity,
    };
    let volume = |class, directory| Volume { class, directory, bytes_max: None };
    let mut volumes = vec![volume(class, home(disk, state)?)];
    if state.classes {
        let slow = disk.root().subdirectory("slow").map_err(text)?;
        volumes.push(volume(MediaClass::Capacity, slow));
    }
    let clock = Arc::new(world.clone());
    Kvdb::create_on(&volumes, options(state.pmem), clock).map_err(text)
}

/// Writes values beside their keys and apart, in runs and in the log, and deletes some.
fn fill(store: &Kvdb) -> Result<(), String> {
    let of = |name: &str| {
        // The values of one Kvs go to the slower class, if there is one.
        let is_apart = name == NAMES[1] && store.volumes().len() > 1;
        let (staging, old_values) = (Classes::STAGING, Classes::CAPACITY);
        let policy = match is_apart {
            true => Policy { old_values, ..Policy::all(staging) },
            false => Policy::default(),
        };
        let options = KvsOptions { inline_bytes: 40, policy, ..KvsOptions::default() };
        store.create_kvs(name, options).map_err(text)
    };
    let [one, two] = [of(NAMES[0])?, of(NAMES[1])?];
    for number in 0..KEYS {
        let value = vec![number as u8 + 1; [10, 90, 0, 300][number as usize % 4]];
        one.put(&key(number), &value).map_err(text)?;
        two.put(&key(number), &value).map_err(text)?;
        if number == KEYS / 2 {
            two.delete_prefix(b"key000").map_err(text)?;
            store.compact().map_err(text)?;
        }
    }
    for number in (0..KEYS).step_by(7) {
        one.put(&key(number), &[200; 60]).map_err(text)?;
        two.delete(&key(number + 1)).map_err(text)?;
    }
    one.delete_prefix(b"key003").map(drop).map_err(text)
}

fn key(number: u32) -> Vec<u8> {
    format!("key{number:04}").into_bytes()
}

/// Returns everything that readers find, or what they found before an error.
fn contents(store: &Kvdb) -> Result<Contents, (Contents, StoreError)> {
    let (mut all, mut failed) = (Contents::new(), None);
    for name in NAMES {
        let mut read = || -> Result<(), StoreError> {
            let mut cursor = store.kvs(name)?.cursor(CursorOptions::default())?;
            while let Some((key, value)) = cursor.next()? {
                all.insert((name.to_owned(), key.to_vec()), value.to_vec());
            }
            Ok(())
        };
        failed = read().err().or(failed);
    }
    match failed {
        None => Ok(all),
        Some(error) => Err((all, error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_bit_is_told_or_harmless() {
        let settings = Settings { seed: 1, flips: 150, time: None };
        let outcome = torture(&settings, &Progress::hidden()).expect("a store");
        assert!(outcome.pass, "{outcome}");
        assert!(outcome.states.len() == STATES.len(), "{outcome}");
        assert!(outcome.states.iter().all(|it| it.reported > 30 && it.flips == 150), "{outcome}");
        let kinds: BTreeSet<&String> = outcome.states.iter().flat_map(|it| &it.kinds).collect();
        for kind in ["MANIFEST", "memtable images", "runs", "segments", "PLACE"] {
            assert!(kinds.contains(&kind.to_owned()), "{kinds:?}");
        }
    }
}
