//! Histories with crashes, for any index: run by its tests and by `entresol torture index`.
//!
//! A history is a list of operations from a seed. It is carried out on an index in a recorded
//! region; at every crash point images are opened as a crash there could leave them. Recovery must
//! find all that was acknowledged, with the operation in flight done or not begun; equal contents
//! forwards, backwards and key by key; every block reached or free, none both. Some images are also
//! written to and opened again, since damage may show only then.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_base::Stop;
use entresol_base::rng::Rng;
use entresol_base::world::{World, WorldOptions};
use entresol_simulated::crash::{
    Crash, Domain, ExploreOptions, Explorer, Power, RecordedRegion, Recorder, RecorderOptions,
    Report, Subject,
};

mod keys;
mod kills;
mod life;

pub use keys::{KEYS, TrialKey};
pub use kills::{killed_anywhere, killed_in, killed_while_made};

use crate::{Direction, Flow, IndexError, Persistent, Pool, PoolOptions};
use life::Life;

/// Root of the index on trial.
const ROOT: usize = 0;

/// Options of a trial.
#[derive(Debug, Clone, Copy)]
pub struct TrialOptions {
    /// Seed of the history and the images.
    pub seed: u64,
    /// Number of operations.
    pub operations: usize,
    /// Number of different keys.
    pub keys: u64,
    /// Bytes of the region.
    pub region_bytes: u64,
    /// Bytes of a chunk, see [`PoolOptions`].
    pub chunk_bytes: u64,
    /// True if the processor's caches keep their contents when the power fails.
    pub caches_survive: bool,
    /// Choice of images, and of crashes in recovery.
    pub explore: ExploreOptions,
    /// One image in this many is written to and opened again.
    pub written_one_in: u32,
    /// True to run in a [`World`], for indexes with threads of their own. Then nothing is killed.
    pub in_world: bool,
}

impl TrialOptions {
    /// Returns the usual options for a seed. Some seeds have few keys, and so full nodes; some have
    /// many, and so more nodes.
    #[must_use]
    pub fn seeded(seed: u64) -> TrialOptions {
        TrialOptions {
            seed,
            operations: 160,
            keys: [12, 48, 160][seed as usize % 3],
            region_bytes: 256 << 10,
            chunk_bytes: 4096,
            caches_survive: false,
            explore: ExploreOptions { seed, ..ExploreOptions::default() },
            written_one_in: 8,
            in_world: false,
        }
    }
}

/// An operation of a history.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// [`Index::insert`](crate::Index::insert) of the key with this number.
    Insert {
        /// Number of the key.
        key: u64,
        /// Value of the key.
        value: u64,
    },
    /// [`Index::upsert`](crate::Index::upsert).
    Upsert {
        /// Number of the key.
        key: u64,
        /// Value of the key.
        value: u64,
    },
    /// [`Index::remove`](crate::Index::remove).
    Remove {
        /// Number of the key.
        key: u64,
    },
    /// Opens the pool again, and sweeps it.
    Reopen,
    /// Kills the process in the next operation. Another process opens the pool and sees all stores,
    /// durable or not; its answers must hold.
    Kill {
        /// Number of stores, flushes and drains before the kill: each number leaves another state.
        changes: u64,
    },
}

impl Op {
    /// Returns the number of the operation's key.
    fn key(self) -> Option<u64> {
        match self {
            Op::Insert { key, .. } | Op::Upsert { key, .. } | Op::Remove { key } => Some(key),
            Op::Reopen | Op::Kill { .. } => None,
        }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Insert { key, value } => write!(f, "insert {key} {value}"),
            Op::Upsert { key, value } => write!(f, "upsert {key} {value}"),
            Op::Remove { key } => write!(f, "remove {key}"),
            Op::Reopen => f.write_str("reopen"),
            Op::Kill { changes } => write!(f, "kill after {changes}"),
        }
    }
}

/// Returns the history for some options: phases in which keys grow more, or fewer, in some order.
#[must_use]
pub fn history(options: &TrialOptions) -> Vec<Op> {
    let mut rng = Rng::named(options.seed, "history");
    let mut ops = Vec::with_capacity(options.operations);
    while ops.len() < options.operations {
        let phase = Phase::new(&mut rng, options.keys);
        let len = rng.range(8..80) as usize;
        for step in 0..len.min(options.operations - ops.len()) {
            if !options.in_world && rng.one_in(24) {
                // Few changes hit the first stores of an operation, many the last ones of large
                // operations.
                let most = if rng.one_in(2) { 8 } else { 80 };
                ops.push(Op::Kill { changes: rng.below(most) });
            }
            ops.push(phase.op(&mut rng, step as u64));
        }
    }
    ops
}

/// Operations of one kind in a history.
struct Phase {
    keys: u64,
    first: u64,
    /// Distance of the next key from the last; random without one.
    stride: Option<i64>,
    removes_of_8: u64,
    /// Number of values: values that two keys share are the hard case for some trees.
    values: u64,
}

impl Phase {
    fn new(rng: &mut Rng, keys: u64) -> Phase {
        let stride = match rng.below(4) {
            0 => Some(1),
            1 => Some(-1),
            _ => None,
        };
        let removes_of_8 = [0, 1, 4, 7][rng.index(4)];
        let values = if rng.one_in(4) { 3 } else { 1 << 40 };
        Phase { keys, first: rng.below(keys), stride, removes_of_8, values }
    }

    fn op(&self, rng: &mut Rng, step: u64) -> Op {
        let key = match self.stride {
            Some(stride) => {
                let key = self.first as i64 + stride * step as i64;
                key.rem_euclid(self.keys as i64) as u64
            }
            None => rng.below(self.keys),
        };
        let value = 1 + rng.below(self.values);
        match rng.below(8) {
            _ if rng.one_in(64) => Op::Reopen,
            draw if draw < self.removes_of_8 => Op::Remove { key },
            draw if draw % 3 == 0 => Op::Upsert { key, value },
            _ => Op::Insert { key, value },
        }
    }
}

/// Carries the history out and tries crashes throughout.
///
/// # Errors
/// If it cannot be carried out, or an operation answers wrongly without any crash.
pub fn run<I>(options: &TrialOptions, index: &I::Options, ops: &[Op]) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    run_until::<I>(options, index, ops, &Stop::new())
}

/// Carries the history out as [`run`] does, and breaks it off once an end is due.
///
/// # Errors
/// As [`run`].
pub fn run_until<I>(
    options: &TrialOptions,
    index: &I::Options,
    ops: &[Op],
    stop: &Stop,
) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    in_its_world(options, index, (ops, stop), |options, index, (ops, stop)| {
        let watch = Watch { from: 0, answers: Answers::Here };
        run_here::<I>(options, index, ops, watch, stop).map(|ran| ran.report)
    })
}

/// Operations, and when to leave the rest of them.
type History<'a> = (&'a [Op], &'a Stop);

/// Does it here, or in a world if the options say so.
fn in_its_world<O, T>(
    options: &TrialOptions,
    index: &O,
    history: History<'_>,
    work: fn(&TrialOptions, &O, History<'_>) -> Result<T, String>,
) -> Result<T, String>
where
    O: Clone + Send + 'static,
    T: Send + 'static,
{
    if !options.in_world {
        return work(options, index, history);
    }
    let world = World::new(WorldOptions::seeded(options.seed));
    let (options, index) = (*options, index.clone());
    let (ops, stop) = (history.0.to_vec(), history.1.clone());
    let ran = world.run(move || work(&options, &index, (&ops, &stop)));
    ran.unwrap_or_else(|failure| Err(failure.to_string()))
}

/// Thread that goes on after a process was killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answers {
    /// The thread that opened the index.
    Here,
    /// Another thread, whose drains do not cover flushes of the opening. It looks at one key only
    /// to find out if the killed operation was done.
    Aside,
}

/// Part of a history in which crashes are tried.
#[derive(Debug, Clone, Copy)]
struct Watch {
    /// Number of the first operation at which crashes are tried.
    from: usize,
    answers: Answers,
}

/// Result of a history.
struct Ran {
    report: Report,
    /// Number of processes that were killed.
    kills: u32,
}

fn run_here<I>(
    options: &TrialOptions,
    index: &I::Options,
    ops: &[Op],
    watch: Watch,
    stop: &Stop,
) -> Result<Ran, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let Grounds { power, region, subject, explorer } = Grounds::<I>::new(options, index, stop)?;
    let pool = PoolOptions { chunk_bytes: options.chunk_bytes };
    drop(Pool::create(region.clone(), pool).map_err(|error| error.to_string())?);
    if watch.from == 0 {
        explorer.watch(&power);
    }
    let mut life = Life::<I>::new(region, options, index, watch.answers)?;
    for (number, &op) in ops.iter().enumerate() {
        if number == watch.from && number > 0 {
            explorer.watch(&power);
        }
        let before = {
            let expected = &mut *lock(&subject.expected);
            expected.in_flight = Some(op);
            value_before(&expected.records, op)
        };
        let is_done = life.act(op, before)?;
        let expected = &mut *lock(&subject.expected);
        expected.in_flight = None;
        if is_done {
            act(&mut expected.records, op);
        }
        if explorer.is_over() {
            break;
        }
    }
    life.opened()?.check_blocks()?;
    let kills = life.kills();
    drop(life);
    Ok(Ran { report: explorer.finish(&power), kills })
}

/// A blank region, and the explorer that tries crashes of it.
struct Grounds<I: Persistent<RecordedRegion, Key: TrialKey> + 'static> {
    power: Power,
    region: Arc<RecordedRegion>,
    subject: Arc<Trial<I>>,
    explorer: Explorer,
}

impl<I> Grounds<I>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    fn new(options: &TrialOptions, index: &I::Options, stop: &Stop) -> Result<Grounds<I>, String> {
        let power = Power::new();
        let domain = match options.caches_survive {
            true => Domain::Caches { every: 16 },
            false => Domain::Memory,
        };
        let recorder = RecorderOptions { domain, ..RecorderOptions::default() };
        let region = Recorder::region(options.region_bytes, recorder, &power);
        let region = Arc::new(region.map_err(|error| error.to_string())?);
        let subject = Arc::new(Trial::<I> {
            expected: Mutex::default(),
            options: *options,
            index: index.clone(),
            opened: PhantomData,
        });
        let explorer = Explorer::until(subject.clone(), options.explore, stop);
        Ok(Grounds { power, region, subject, explorer })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Values by the numbers of their keys.
type Records = BTreeMap<u64, u64>;

/// Returns the value of an operation's key.
fn value_before(records: &Records, op: Op) -> Option<u64> {
    op.key().and_then(|key| records.get(&key).copied())
}

fn act(records: &mut Records, op: Op) {
    match op {
        Op::Insert { key, value } => drop(records.entry(key).or_insert(value)),
        Op::Upsert { key, value } => drop(records.insert(key, value)),
        Op::Remove { key } => drop(records.remove(&key)),
        Op::Reopen | Op::Kill { .. } => {}
    }
}

/// Required contents of an index after a crash.
#[derive(Default)]
struct Expected {
    /// Acknowledged records.
    records: Records,
    /// Operation that is not acknowledged yet: it may be done or not.
    in_flight: Option<Op>,
}

impl Expected {
    fn check(&self, found: &Records) -> Result<(), String> {
        if *found == self.records {
            return Ok(());
        }
        let mut after = self.records.clone();
        self.in_flight.iter().for_each(|op| act(&mut after, *op));
        if *found == after { Ok(()) } else { Err(self.complaint(found)) }
    }

    fn complaint(&self, found: &Records) -> String {
        let keys: BTreeSet<u64> = found.keys().chain(self.records.keys()).copied().collect();
        let name = |value: Option<&u64>| value.map_or("nothing".into(), u64::to_string);
        let odd = keys.iter().filter(|key| found.get(key) != self.records.get(key)).map(|key| {
            let (is, was) = (name(found.get(key)), name(self.records.get(key)));
            format!("key {key} has {is}, acknowledged was {was}")
        });
        let in_flight = match self.in_flight {
            Some(op) => format!("in flight was: {op}"),
            None => "nothing was in flight".to_owned(),
        };
        odd.chain([in_flight]).collect::<Vec<_>>().join("; ")
    }
}

/// An open index.
struct Opened<I: Persistent<RecordedRegion>> {
    pool: Arc<Pool<RecordedRegion>>,
    index: I,
}

impl<I: Persistent<RecordedRegion, Key: TrialKey>> Opened<I> {
    /// Opens the region's pool and index, making them if absent.
    fn open(
        region: &Arc<RecordedRegion>,
        options: &TrialOptions,
        index: &I::Options,
    ) -> Result<Opened<I>, String> {
        let pool = PoolOptions { chunk_bytes: options.chunk_bytes };
        let pool = Pool::open_or_create(region.clone(), pool).map(Arc::new);
        let opened = pool.and_then(|pool| {
            let index = I::open(&pool, ROOT, index)?;
            Ok(Opened { pool, index })
        });
        opened.map_err(|error| format!("opening: {error}"))
    }

    /// Carries out an operation, and checks the answer against the key's old value.
    fn act(&self, op: Op, before: Option<u64>) -> Result<(), String> {
        self.try_act(op, before).unwrap_or_else(|error| Err(format!("{op}: {error}")))
    }

    /// Carries out an operation as [`act`](Opened::act) does, but returns a refusal of the index
    /// as it is.
    fn try_act(&self, op: Op, before: Option<u64>) -> Result<Result<(), String>, IndexError> {
        let at = |key: u64| I::Key::nth(key);
        let (answer, right) = match op {
            Op::Insert { key, value } => {
                let added = self.index.insert(at(key).borrow(), value);
                (added.map(|added| (added, None)), (before.is_none(), None))
            }
            Op::Upsert { key, value } => {
                let found = self.index.upsert(at(key).borrow(), value);
                (found.map(|found| (true, found)), (true, before))
            }
            Op::Remove { key } => {
                let found = self.index.remove(at(key).borrow());
                (found.map(|found| (true, found)), (true, before))
            }
            Op::Reopen | Op::Kill { .. } => return Ok(Ok(())),
        };
        let answer = answer?;
        Ok(match answer == right {
            true => Ok(()),
            false => Err(format!("{op}: answered {answer:?} instead of {right:?}")),
        })
    }

    /// Returns all records, in the order in which a walk passes them.
    fn records(&self, direction: Direction) -> Result<Vec<(u64, u64)>, String> {
        let (mut found, mut strange) = (Vec::new(), None);
        let ranged = self.index.range(Bound::Unbounded, direction, &mut |key, value| {
            match key.number() {
                Some(number) => found.push((number, value)),
                None => strange = Some(format!("a key that nobody wrote has {value}")),
            }
            Flow::On
        });
        ranged.map_err(|error| format!("range: {error}"))?;
        strange.map_or(Ok(found), Err)
    }

    /// Returns the contents, which must be equal forwards, backwards and key by key.
    fn contents(&self, keys: u64) -> Result<Records, String> {
        let forward = self.records(Direction::Forward)?;
        if !forward.is_sorted_by(|one, next| I::Key::nth(one.0) < I::Key::nth(next.0)) {
            return Err(format!("not in the order of keys, or twice: {forward:?}"));
        }
        let mut backward = self.records(Direction::Backward)?;
        backward.reverse();
        if forward != backward {
            return Err(format!("forwards {forward:?}, backwards {backward:?}"));
        }
        let records: Records = forward.into_iter().collect();
        for key in 0..keys {
            let got = self.index.get(I::Key::nth(key).borrow());
            let got = got.map_err(|error| format!("get {key}: {error}"))?;
            if got != records.get(&key).copied() {
                return Err(format!("get {key} has {got:?}, range {:?}", records.get(&key)));
            }
        }
        Ok(records)
    }

    fn sweep(&self) -> Result<(), String> {
        let swept = self.pool.sweep(|visit| self.index.blocks(visit));
        swept.map(drop).map_err(|error| format!("sweep: {error}"))
    }

    /// Checks that every taken block is reached, and the reverse.
    fn check_blocks(&self) -> Result<(), String> {
        self.sweep()?;
        while self.pool.reclaim() > 0 {}
        let (mut taken, mut reached) = (BTreeSet::new(), BTreeSet::new());
        self.pool.taken(|offset| taken.extend([offset]));
        let blocks = self.index.blocks(&mut |offset| reached.extend([offset]));
        blocks.map_err(|error| format!("blocks: {error}"))?;
        if let Some(leaked) = taken.difference(&reached).next() {
            return Err(format!("the block at {leaked} is taken, and nothing reaches it"));
        }
        match reached.difference(&taken).next() {
            Some(free) => Err(format!("the block at {free} is reached, and free")),
            None => Ok(()),
        }
    }
}

/// An index on trial.
struct Trial<I: Persistent<RecordedRegion>> {
    expected: Mutex<Expected>,
    options: TrialOptions,
    index: I::Options,
    opened: PhantomData<fn() -> I>,
}

impl<I> Subject for Trial<I>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    type Opened = (Opened<I>, Rng);

    fn recover(&self, crash: &Crash<'_>) -> Result<Self::Opened, String> {
        let opened = Opened::open(crash.region(0), &self.options, &self.index)?;
        let seed = self.options.seed ^ crash.point.number << 8 ^ u64::from(crash.depth);
        Ok((opened, Rng::named(seed, "images")))
    }

    fn check(&self, opened: Self::Opened, crash: &Crash<'_>) -> Result<(), String> {
        let (opened, mut rng) = opened;
        let found = opened.contents(self.options.keys)?;
        lock(&self.expected).check(&found)?;
        opened.check_blocks()?;
        let keys = opened.index.statistics().map_err(|error| format!("statistics: {error}"))?.keys;
        if keys != found.len() as u64 {
            return Err(format!("statistics count {keys} keys, a range {}", found.len()));
        }
        if rng.one_in(self.options.written_one_in) {
            return self.write_on(opened, found, &mut rng, crash);
        }
        Ok(())
    }
}

impl<I: Persistent<RecordedRegion, Key: TrialKey> + 'static> Trial<I> {
    /// Continues a history on a recovered index as if there had been no crash.
    fn write_on(
        &self,
        opened: Opened<I>,
        mut records: Records,
        rng: &mut Rng,
        crash: &Crash<'_>,
    ) -> Result<(), String> {
        let written = |what: String| format!("recovered and written on: {what}");
        for _ in 0..24 {
            let op = Phase::new(rng, self.options.keys).op(rng, 0);
            match opened.try_act(op, value_before(&records, op)) {
                // Small regions fill up.
                Err(IndexError::Full { .. }) => break,
                Err(error) => return Err(written(format!("{op}: {error}"))),
                Ok(acted) => acted.map_err(written)?,
            }
            act(&mut records, op);
        }
        opened.check_blocks().map_err(written)?;
        drop(opened);
        let opened = Opened::<I>::open(crash.region(0), &self.options, &self.index);
        let opened = opened.map_err(written)?;
        let found = opened.contents(self.options.keys).map_err(written)?;
        Expected { records, in_flight: None }.check(&found).map_err(written)?;
        opened.check_blocks().map_err(written)
    }
}

/// Tries an index with the histories of some seeds, in both domains: for test suites.
///
/// # Errors
/// The failure, and the options that led to it.
pub fn suite<I>(
    seeds: std::ops::Range<u64>,
    index: &I::Options,
    change: impl Fn(&mut TrialOptions),
) -> Result<Report, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    let mut whole = Report::default();
    for seed in seeds {
        for caches_survive in [false, true] {
            let mut options = TrialOptions { caches_survive, ..TrialOptions::seeded(seed) };
            change(&mut options);
            let with = |what: String| format!("{what}\nwith {options:?}");
            let report = run::<I>(&options, index, &history(&options)).map_err(with)?;
            if let Some(failure) = &report.failure {
                return Err(with(failure.to_string()));
            }
            add(&mut whole, &report);
        }
        let mut options = TrialOptions::seeded(seed);
        change(&mut options);
        add(&mut whole, &killed_while_made::<I>(&options, index)?);
    }
    Ok(whole)
}

fn add(whole: &mut Report, report: &Report) {
    whole.points += report.points;
    whole.points_exhaustive += report.points_exhaustive;
    whole.images += report.images;
    whole.images_nested += report.images_nested;
}

#[cfg(test)]
pub(crate) mod tests;
