//! Histories of operations on toys, the states that a crash may leave, and a trial of one history.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_base::world::{Preemption, World, WorldOptions};
use entresol_simulated::crash::{
    Crash, Domain, ExploreOptions, Explorer, Nested, Power, RecordedRegion, Recorder,
    RecorderOptions, Report, Subject,
};
use entresol_simulated::disk::{Disk, DiskOptions, SectorSize};

use super::Structure;
use super::toys::{Cells, Files, Log, Map, Plant, Tree};

/// Size of the region in which every toy lives.
pub(super) const REGION_BYTES: u64 = 256 << 10;

const KEYS: u64 = 48;
/// Keys of the toy in files; few enough that files lose their last live record.
const FILE_KEYS: u64 = 12;
const THREADS: u8 = 3;

/// Operation of a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Action {
    Put {
        key: u64,
        value: u64,
    },
    Remove {
        key: u64,
    },
    /// Read; only cells support it.
    Get {
        key: u64,
    },
}

/// Operation and the thread that performs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Op {
    pub(super) thread: u8,
    pub(super) action: Action,
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.action {
            Action::Put { key, value } => write!(f, "{}: put {key} {value}", self.thread),
            Action::Remove { key } => write!(f, "{}: remove {key}", self.thread),
            Action::Get { key } => write!(f, "{}: get {key}", self.thread),
        }
    }
}

/// Parameters of the trial of a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Trial {
    pub(super) structure: Structure,
    pub(super) seed: u64,
    pub(super) caches_survive: bool,
    pub(super) nested_one_in: u32,
    pub(super) plant: Option<Plant>,
}

impl Trial {
    /// Creates a trial with the usual parameters.
    pub(super) fn of(structure: Structure, seed: u64) -> Trial {
        let nested_one_in = Nested::default().one_in;
        Trial { structure, seed, caches_survive: false, nested_one_in, plant: None }
    }

    /// Returns the first `len` operations of this seed's history.
    pub(super) fn history(&self, len: usize) -> Vec<Op> {
        let mut rng = Rng::named(self.seed, "history");
        (0..len as u64).map(|number| self.op(&mut rng, number + 1)).collect()
    }

    /// Draws an operation. Values grow, which distinguishes each from all earlier ones.
    fn op(&self, rng: &mut Rng, value: u64) -> Op {
        let key = rng.below(KEYS);
        match self.structure {
            Structure::Cells => {
                let (thread, key) = (rng.below(THREADS.into()) as u8, key % 4);
                let get = rng.one_in(2);
                // A cell has one writer; its values therefore grow.
                let owner = (key % u64::from(THREADS)) as u8;
                match get {
                    true => Op { thread, action: Action::Get { key } },
                    false => Op { thread: owner, action: Action::Put { key, value } },
                }
            }
            Structure::Tree | Structure::Log | Structure::Files => {
                let key = if self.structure == Structure::Files { key % FILE_KEYS } else { key };
                let remove = rng.one_in(4);
                let action =
                    if remove { Action::Remove { key } } else { Action::Put { key, value } };
                Op { thread: 0, action }
            }
        }
    }

    /// Runs the operations and tries crashes throughout.
    pub(super) fn run(&self, ops: &[Op]) -> Result<Report, String> {
        self.run_until(ops, &Stop::new())
    }

    /// Runs the operations and tries crashes throughout, or until `stop` is due.
    pub(super) fn run_until(&self, ops: &[Op], stop: &Stop) -> Result<Report, String> {
        match self.structure {
            Structure::Tree => run_map::<Tree<RecordedRegion>>(self, ops, stop),
            Structure::Log => {
                flips(self, ops)?;
                run_map::<Log<RecordedRegion>>(self, ops, stop)
            }
            Structure::Cells => run_cells(*self, ops.to_vec(), stop.clone()),
            Structure::Files => run_files(self, ops, stop),
        }
    }

    fn region(&self, power: &Power) -> Result<Arc<RecordedRegion>, String> {
        let domain = match self.caches_survive {
            true => Domain::Caches { every: 16 },
            false => Domain::Memory,
        };
        let options = RecorderOptions { domain, ..RecorderOptions::default() };
        let region = Recorder::region(REGION_BYTES, options, power);
        region.map(Arc::new).map_err(|error| error.to_string())
    }

    fn explorer<S: Subject>(&self, subject: &Arc<S>, stop: &Stop) -> Explorer {
        let nested = Nested { one_in: self.nested_one_in, ..Nested::default() };
        let options = ExploreOptions { seed: self.seed, nested, ..ExploreOptions::default() };
        Explorer::until(subject.clone(), options, stop)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Contents that a map must have after a crash.
#[derive(Default)]
struct Expected {
    /// Records of all acknowledged operations.
    records: BTreeMap<u64, u64>,
    /// Operation not yet acknowledged, which may or may not have taken effect.
    in_flight: Option<Action>,
}

impl Expected {
    fn check(&self, found: &[(u64, u64)]) -> Result<(), String> {
        if self.allows(found) { Ok(()) } else { Err(self.complaint(found)) }
    }

    fn allows(&self, found: &[(u64, u64)]) -> bool {
        let before = self.records.iter().map(|(&key, &value)| (key, value));
        if found.iter().copied().eq(before) {
            return true;
        }
        let Some(action) = self.in_flight else { return false };
        let mut after = self.records.clone();
        act(&mut after, action);
        found.iter().copied().eq(after)
    }

    fn complaint(&self, found: &[(u64, u64)]) -> String {
        let found: BTreeMap<u64, u64> = found.iter().copied().collect();
        let keys = found.keys().chain(self.records.keys());
        let odd = keys.filter(|key| found.get(key) != self.records.get(key));
        let odd = odd.map(|key| {
            let name = |value: Option<&u64>| value.map_or("nothing".into(), u64::to_string);
            let (is, was) = (name(found.get(key)), name(self.records.get(key)));
            format!("key {key} has {is}, acknowledged was {was}")
        });
        let in_flight = match self.in_flight {
            Some(action) => format!("in flight was {action:?}"),
            None => "nothing was in flight".to_owned(),
        };
        odd.chain([in_flight]).collect::<Vec<_>>().join("; ")
    }
}

fn act(records: &mut BTreeMap<u64, u64>, action: Action) {
    match action {
        Action::Put { key, value } => drop(records.insert(key, value)),
        Action::Remove { key } => drop(records.remove(&key)),
        Action::Get { .. } => {}
    }
}

/// Runs the operations and updates the expected contents, until a crash shows a failure.
fn carry_out(
    ops: &[Op],
    expected: &Mutex<Expected>,
    explorer: &Explorer,
    mut change: impl FnMut(Action) -> Result<(), String>,
) -> Result<(), String> {
    for op in ops {
        lock(expected).in_flight = Some(op.action);
        change(op.action)?;
        let expected = &mut *lock(expected);
        expected.in_flight = None;
        act(&mut expected.records, op.action);
        if explorer.is_over() {
            break;
        }
    }
    Ok(())
}

/// Map under trial.
struct Maps<M> {
    expected: Mutex<Expected>,
    plant: Option<Plant>,
    /// Buffer that is reused from image to image.
    found: Mutex<Vec<(u64, u64)>>,
    map: PhantomData<fn() -> M>,
}

impl<M: Map<RecordedRegion> + 'static> Subject for Maps<M> {
    type Opened = M;

    fn recover(&self, crash: &Crash<'_>) -> Result<M, String> {
        M::open(crash.region(0).clone(), self.plant)
    }

    fn check(&self, opened: M, _crash: &Crash<'_>) -> Result<(), String> {
        let found = &mut *lock(&self.found);
        found.clear();
        opened.each(&mut |key, value| found.push((key, value)));
        lock(&self.expected).check(found)
    }
}

fn run_map<M: Map<RecordedRegion> + 'static>(
    trial: &Trial,
    ops: &[Op],
    stop: &Stop,
) -> Result<Report, String> {
    let power = Power::new();
    let region = trial.region(&power)?;
    let subject = Arc::new(Maps::<M> {
        expected: Mutex::default(),
        plant: trial.plant,
        found: Mutex::default(),
        map: PhantomData,
    });
    let explorer = trial.explorer(&subject, stop);
    explorer.watch(&power);
    let mut map = M::open(region, trial.plant)?;
    carry_out(ops, &subject.expected, &explorer, |action| match action {
        Action::Put { key, value } => map.put(key, value),
        Action::Remove { key } => map.remove(key),
        Action::Get { .. } => Ok(()),
    })?;
    Ok(explorer.finish(&power))
}

/// Records in files and their index in a region, on one machine.
struct Joint {
    expected: Mutex<Expected>,
    plant: Option<Plant>,
}

impl Subject for Joint {
    type Opened = Files<RecordedRegion>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let disk = crash.images.get(1).and_then(|image| image.downcast_ref::<Disk>());
        let disk = disk.ok_or("the second medium is no disk")?;
        Files::open(crash.region(0).clone(), disk.root(), FILE_KEYS, self.plant)
    }

    fn check(&self, opened: Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        let mut found = Vec::new();
        opened.each(&mut |key, value| found.push((key, value)));
        lock(&self.expected).check(&found)
    }
}

fn run_files(trial: &Trial, ops: &[Op], stop: &Stop) -> Result<Report, String> {
    let power = Power::new();
    let region = trial.region(&power)?;
    let world = World::new(WorldOptions::seeded(trial.seed));
    let sector = SectorSize::Small;
    let options = DiskOptions { sector, power: power.clone(), ..DiskOptions::default() };
    let disk = Disk::new(&world, options).map_err(|error| error.to_string())?;
    let subject = Arc::new(Joint { expected: Mutex::default(), plant: trial.plant });
    let explorer = trial.explorer(&subject, stop);
    explorer.watch(&power);
    let mut files = Files::open(region, disk.root(), FILE_KEYS, trial.plant)?;
    carry_out(ops, &subject.expected, &explorer, |action| match action {
        Action::Put { key, value } => files.put(key, value),
        Action::Remove { key } => files.remove(key),
        Action::Get { .. } => Ok(()),
    })?;
    Ok(explorer.finish(&power))
}

/// Checks that a flipped bit in any record of a log is detected or has no effect.
fn flips(trial: &Trial, ops: &[Op]) -> Result<(), String> {
    let region = trial.region(&Power::new())?;
    let mut log = Log::open(region.clone(), None)?;
    for op in ops {
        if let Action::Put { key, value } = op.action {
            log.put(key, value)?;
        }
    }
    let contents = |log: &Log<RecordedRegion>| {
        let mut records = Vec::new();
        log.each(&mut |key, value| records.push((key, value)));
        records
    };
    let mut rng = Rng::named(trial.seed, "flips");
    for _ in 0..if ops.is_empty() { 0 } else { 16 } {
        let (offset, bit) = (rng.range(log.records()), rng.below(8) as u8);
        region.observer().flip(offset, bit);
        if let Ok(opened) = Log::open(region.clone(), None)
            && contents(&opened) != contents(&log)
        {
            return Err(format!("a flipped bit at {offset} gives a wrong answer"));
        }
        region.observer().flip(offset, bit);
    }
    Ok(())
}

/// Values that cells must have after a crash. For each key: the largest value that was acknowledged
/// or read, and the largest whose write began.
#[derive(Default)]
struct Promises(Mutex<BTreeMap<u64, (u64, u64)>>);

impl Promises {
    fn begin(&self, key: u64, value: u64) {
        lock(&self.0).entry(key).or_default().1 = value;
    }

    fn promise(&self, key: u64, value: u64) {
        let mut cells = lock(&self.0);
        let (least, _) = cells.entry(key).or_default();
        *least = value.max(*least);
    }
}

impl Subject for Promises {
    type Opened = Cells<RecordedRegion>;

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        Ok(Cells::new(crash.region(0).clone(), None))
    }

    fn check(&self, opened: Self::Opened, _crash: &Crash<'_>) -> Result<(), String> {
        for (&key, &(least, most)) in &*lock(&self.0) {
            let found = opened.peek(key);
            if found < least || found > most {
                let promised = format!("promised was {least}, begun {most}");
                return Err(format!("cell {key} has {found}, {promised}"));
            }
        }
        Ok(())
    }
}

fn run_cells(trial: Trial, ops: Vec<Op>, stop: Stop) -> Result<Report, String> {
    let preemption = Preemption::OneIn(3);
    let world = World::new(WorldOptions { preemption, ..WorldOptions::seeded(trial.seed) });
    let ran = world.run(move || {
        let power = Power::new();
        let cells = Cells::new(trial.region(&power)?, trial.plant);
        let promises = Arc::new(Promises::default());
        let explorer = trial.explorer(&promises, &stop);
        explorer.watch(&power);
        let threads = (0..THREADS).map(|number| {
            let mine: Vec<Action> =
                ops.iter().filter(|op| op.thread == number).map(|op| op.action).collect();
            let (cells, promises) = (cells.clone(), promises.clone());
            thread::spawn("toy", move || mine.into_iter().for_each(|a| cell(&cells, &promises, a)))
        });
        let threads: Vec<_> = threads.collect();
        for thread in threads {
            thread.join().map_err(|_| "a thread panicked")?;
        }
        Ok(explorer.finish(&power))
    });
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

fn cell(cells: &Cells<RecordedRegion>, promises: &Promises, action: Action) {
    match action {
        Action::Put { key, value } => {
            promises.begin(key, value);
            cells.put(key, value);
            promises.promise(key, value);
        }
        Action::Get { key } => promises.promise(key, cells.get(key)),
        Action::Remove { .. } => {}
    }
}
