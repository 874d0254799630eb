//! Execution of a history.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::thread;
use entresol_simulated::crash::{Explorer, Power};
use entresol_simulated::disk::Disk;

use super::after::{Shared, Troubles, clock};
use super::arrange::arrange;
use super::drives::{Drives, Trouble};
use super::{
    Change, FIRST_WRITER, INLINE_BYTES, KEYS, NAMES, Op, To, key, of_history, options_on, write,
};
use crate::upkeep::squeeze::squeeze_all;
use crate::{CursorOptions, Kvdb, KvsOptions, StoreError, Transaction, TransactionOptions};

fn make_kvs(store: &Kvdb) -> Result<(), StoreError> {
    let options = KvsOptions { inline_bytes: INLINE_BYTES, ..KvsOptions::default() };
    NAMES.into_iter().try_for_each(|name| store.create_kvs(name, options).map(drop))
}

/// Creates a store for histories, with its `Kvs`.
pub(super) fn make(disk: &Disk) -> Result<Kvdb, StoreError> {
    let store = Kvdb::create(disk.root(), of_history(options_on(disk)), clock()?)?;
    make_kvs(&store)?;
    Ok(store)
}

/// Setting in which a history runs.
pub(super) struct Scene {
    /// Drives and their power supply. A power cut in the history replaces both.
    machine: Mutex<(Drives, Power)>,
    pub(super) shared: Arc<Shared>,
    pub(super) explorer: Explorer,
}

impl Scene {
    pub(super) fn new(
        drives: Drives,
        power: Power,
        shared: Arc<Shared>,
        explorer: Explorer,
    ) -> Scene {
        explorer.watch(&power);
        Scene { machine: Mutex::new((drives, power)), shared, explorer }
    }

    /// Returns the drives and their power supply.
    pub(super) fn machine(&self) -> (Drives, Power) {
        self.machine.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Continues with the drives that a power cut leaves.
    fn cut(&self, rng: &mut Rng) -> Result<(), StoreError> {
        let (drives, power) = self.machine();
        let next = Power::new();
        let left = drives.after_a_cut(&self.shared.world, &next, rng);
        let left = left.map_err(|error| StoreError::Internal { what: error.to_string() })?;
        power.clear();
        self.explorer.watch(&next);
        *self.machine.lock().unwrap_or_else(PoisonError::into_inner) = (left, next);
        Ok(())
    }
}

/// Returns true if an error may come from a drive in trouble.
#[must_use]
pub fn is_of_trouble(error: &StoreError) -> bool {
    match error {
        StoreError::File(_) => !error.is_damage(),
        StoreError::Io { .. } | StoreError::Failed { .. } | StoreError::DirectoryFailed { .. } => {
            true
        }
        _ => error.is_no_room(),
    }
}

/// Accepts errors that trouble may cause. Returns true if there was one.
fn pass(done: Result<(), StoreError>, troubles: &Troubles) -> Result<bool, StoreError> {
    match done {
        Ok(()) => Ok(false),
        Err(error) if troubles.may_fail && is_of_trouble(&error) => Ok(true),
        // Files that a drive in trouble kept from moving leave no room for new ones.
        Err(error) if troubles.changes > 0 && error.is_no_room() => Ok(true),
        Err(error) => Err(error),
    }
}

fn wrong(what: &str) -> StoreError {
    StoreError::Internal { what: what.to_owned() }
}

/// Runs a history: each writer carries out its operations in order, on a thread of its own. The
/// seed decides the interleaving. A reopening waits for all writers.
pub(super) fn carry_out(ops: &[Op], scene: &Arc<Scene>) -> Result<(), StoreError> {
    let Scene { shared, explorer, .. } = &**scene;
    let mut store = scene.machine().0.create(clock()?)?;
    shared.note_made();
    make_kvs(&store)?;
    let mut rng = shared.world.rng("reopening");
    let stretches: Vec<&[Op]> = ops.split(|op| *op == Op::Reopen).collect();
    let last = stretches.len() - 1;
    for (number, stretch) in stretches.into_iter().enumerate() {
        store = carry_out_stretch(stretch, store, scene)?;
        if explorer.is_over() {
            return Ok(());
        }
        let (counts, before) = (shared.expected().counts(), shared.troubles());
        let done = store.close();
        if done.is_ok() && before.has_failed {
            return Err(wrong("a store that has failed is closed as if all were durable"));
        }
        // The other threads are done, so any failure has happened by now.
        let is_failed = pass(done, &shared.troubles())?;
        if !is_failed {
            shared.note_synced(&counts);
        }
        if number == last {
            break;
        }
        store = reopen(scene, is_failed, &mut rng)?;
    }
    Ok(())
}

/// Opens the store after it was closed. If it has failed, the next process opens it, or the
/// restarted machine. A drive may still be in trouble.
fn reopen(scene: &Scene, is_failed: bool, rng: &mut Rng) -> Result<Kvdb, StoreError> {
    let (shared, troubles) = (&scene.shared, scene.shared.troubles());
    let drives = scene.machine().0;
    if !troubles.are_on() && !is_failed {
        let store = drives.open(clock()?)?;
        shared.note_opened();
        return Ok(store);
    }
    if troubles.are_on() && rng.one_in(2) {
        let opened = drives.open(clock()?);
        match opened {
            Ok(store) => {
                shared.meet("a store is opened with a drive in trouble", 1);
                let counts = shared.expected().counts();
                shared.note_synced(&counts);
                shared.note_opened();
                return Ok(store);
            }
            Err(StoreError::VolumeMissing { .. } | StoreError::NoStore { .. })
                if troubles.may_fail =>
            {
                shared.meet("an opening fails with a drive in trouble", 1);
            }
            Err(error) => {
                pass(Err(error), &troubles)?;
                shared.meet("an opening fails with a drive in trouble", 1);
            }
        }
    }
    for number in 0..drives.all.len() {
        shared.trouble(number, Trouble::Over);
    }
    drives.heal();
    let is_cut = is_failed && rng.one_in(2);
    if is_cut {
        scene.cut(rng)?;
        shared.meet("a store that has failed is opened after a power cut", 1);
    } else if is_failed {
        shared.meet("a store that has failed is opened by the next process", 1);
    }
    let drives = scene.machine().0;
    let store = drives.open(clock()?)?;
    shared.take_found(&store, is_cut.then(|| drives.home()))?;
    shared.note_opened();
    Ok(store)
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
    let Scene { shared, explorer, .. } = scene;
    let (drives, _) = scene.machine();
    let mut deaths = shared.world.rng(&format!("deaths of {writer}"));
    let mut reads = shared.world.rng(&format!("reads of {writer}"));
    for op in ops {
        match op {
            Op::Transact(changes, false) => {
                let begun = begun(store, changes).map(drop);
                pass(begun, &shared.troubles())?;
            }
            Op::Write(changes) | Op::Transact(changes, _) => {
                change(writer, op, changes, store, shared)?;
            }
            Op::Sync => sync(store, shared)?,
            Op::Compact => {
                let done = store.compact();
                let is_refused = pass(done, &shared.troubles())?;
                shared.meet("a compaction fails", u64::from(is_refused));
            }
            Op::Squeeze => {
                let done = squeeze(store);
                if let Ok(Squeezed { all, again }) = &done {
                    shared.meet("a segment is squeezed", *all);
                    shared.meet("a segment is squeezed again", *again);
                }
                let is_refused = pass(done.map(drop), &shared.troubles())?;
                shared.meet("squeezing fails", u64::from(is_refused));
            }
            Op::Sleep(time) => thread::sleep(Duration::from_millis(*time)),
            Op::Reopen => {}
            Op::Arrange(arrangement) => {
                let done = arrange(store, &drives, *arrangement);
                let is_refused = pass(done, &shared.troubles())?;
                shared.meet("a change of volumes or policies fails", u64::from(is_refused));
            }
            Op::Trouble(drive, trouble) => {
                shared.meet("a call was struck", drives.struck());
                let drive = drives.trouble(*drive, *trouble);
                shared.trouble(drive, *trouble);
                shared.meet(trouble.name(), 1);
            }
        }
        if explorer.is_over() {
            return Ok(());
        }
        read(writer, store, shared, &mut reads)?;
        shared.look_at_runs(store);
        if deaths.one_in(8) {
            shared.died(&drives)?;
        }
    }
    shared.meet("a call was struck", drives.struck());
    Ok(())
}

/// Makes changes, and records the outcome.
fn change(
    writer: u8,
    op: &Op,
    changes: &[Change],
    store: &Kvdb,
    shared: &Shared,
) -> Result<(), StoreError> {
    for Change { kvs, key, to } in changes {
        if let To::Value(value) = to {
            shared.note_value(*kvs, key, value);
        }
    }
    let known = shared.troubles();
    shared.of(writer, |expected| expected.begin(changes));
    let done = match op {
        Op::Transact(..) => begun(store, changes).and_then(|it| it.commit().map(drop)),
        _ => write(store, changes),
    };
    let now = shared.world.now();
    match &done {
        // A write without changes is acknowledged without writing anything.
        Ok(()) if known.has_failed && !changes.is_empty() => {
            return Err(wrong("a write is acknowledged by a store that writes nothing any more"));
        }
        Ok(()) => shared.of(writer, |expected| expected.acknowledge(now)),
        Err(StoreError::Failed { .. }) if known.has_failed => {
            shared.of(writer, |expected| expected.refuse());
        }
        Err(_) => shared.of(writer, |expected| expected.doubt(now)),
    }
    if matches!(done, Err(StoreError::Failed { .. })) {
        shared.note_failed();
    }
    let is_refused = pass(done, &shared.troubles())?;
    shared.meet("a write is refused", u64::from(is_refused));
    Ok(())
}

fn sync(store: &Kvdb, shared: &Shared) -> Result<(), StoreError> {
    let (counts, known) = (shared.expected().counts(), shared.troubles());
    let done = store.sync();
    if done.is_ok() && known.has_failed {
        return Err(wrong("a sync is acknowledged by a store that writes nothing any more"));
    }
    if done.is_err() {
        shared.note_failed();
    } else {
        shared.note_synced(&counts);
    }
    let is_refused = pass(done, &shared.troubles())?;
    shared.meet("a sync is refused", u64::from(is_refused));
    Ok(())
}

/// Reads one of the writer's own keys. The answer must be the value written, and there must be an
/// answer if no drive is in trouble.
fn read(writer: u8, store: &Kvdb, shared: &Shared, rng: &mut Rng) -> Result<(), StoreError> {
    let before = shared.troubles();
    let (number, key) = (rng.below(NAMES.len() as u64) as usize, draw_key(rng, writer));
    let found = store.kvs(NAMES[number]).and_then(|kvs| kvs.get(&key));
    match found {
        Ok(value) => match shared.of(writer, |it| it.may_answer(number, &key, value.as_ref())) {
            true => Ok(()),
            false => Err(wrong("a read answers something else than was written")),
        },
        Err(error) => {
            let now = shared.troubles();
            if now.changes == before.changes && !now.are_on() {
                return Err(error);
            }
            let is_refused = pass(Err(error), &now)?;
            shared.meet("a read fails", u64::from(is_refused));
            Ok(())
        }
    }
}

/// Numbers of segments that were squeezed.
pub(super) struct Squeezed {
    pub(super) all: u64,
    /// Number of those that were squeezed before.
    pub(super) again: u64,
}

/// Flushes everything, and squeezes every segment that has anything to leave out.
pub(super) fn squeeze(store: &Kvdb) -> Result<Squeezed, StoreError> {
    let (core, context) = (store.core(), store.core().compaction_context());
    core.flush_all(&mut || true)?;
    let _held = context.background.compacting.lock();
    let segments = || {
        let view = core.files.current.get();
        let all = view.segments.values().map(|it| (it.number(), (it.len(), it.table().is_some())));
        all.collect::<BTreeMap<_, _>>()
    };
    let before = segments();
    let numbers: Vec<_> = before.keys().copied().collect();
    squeeze_all(&context, &numbers)?;
    let (mut squeezed, after) = (Squeezed { all: 0, again: 0 }, segments());
    for (number, (bytes, has_table)) in before {
        let is_shorter = after.get(&number).is_some_and(|(now, _)| *now < bytes);
        squeezed.all += u64::from(is_shorter);
        squeezed.again += u64::from(is_shorter && has_table);
    }
    Ok(squeezed)
}

/// Begins a transaction and makes changes in it.
pub(super) fn begun(store: &Kvdb, changes: &[Change]) -> Result<Transaction, StoreError> {
    let mut transaction = store.transaction(TransactionOptions::default())?;
    for Change { kvs, key, to } in changes {
        let kvs = store.kvs(NAMES[*kvs])?;
        let value = match to {
            To::Value(value) => Some(value),
            To::Gone | To::RangeDelete => None,
        };
        match to {
            To::Value(value) => transaction.put(&kvs, key, value)?,
            To::Gone => transaction.delete(&kvs, key)?,
            To::RangeDelete => transaction.delete_prefix(&kvs, key)?,
        }
        let is_left = *to == To::RangeDelete && {
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

/// Draws a key of a writer.
pub(super) fn draw_key(rng: &mut Rng, writer: u8) -> Vec<u8> {
    key(writer, rng.below(KEYS))
}
