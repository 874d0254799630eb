//! Freezing: what was written last becomes sorted runs, which hold small values and lead to the
//! large ones where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;
use entresol_base::thread;

use crate::StoreError;
use crate::ageing::Moves;
use crate::background::Bill;
use crate::entry::{Entry, Expiry, KvsId, SegmentNumber, Sequence, Value};
use crate::inner::Inner;
use crate::log::record::OVERHEAD;
use crate::log::segment::{self, Segment};
use crate::manifest::{LogState, Manifest};
use crate::memory::Taken;
use crate::merge::values::ValueWriter;
use crate::places::{Held, What};
use crate::prefixes;
use crate::run::{self, RunWriter};
use crate::view::{Frozen, View};
use crate::young::{Found, Generation, image};

/// So many records ahead are fetched.
const RECORDS_AHEAD: usize = 8;

/// Freezes the oldest closed generation, whose last write is `last`.
///
/// # Errors
/// If a disk fails, has no room, or what is read is damaged. Nothing has changed then.
pub(crate) fn freeze(
    inner: &Inner,
    generation: &Arc<Generation>,
    last: Sequence,
) -> Result<(), StoreError> {
    while inner.published() < last {
        if mutation_site!("a flush waits for the memtable's writers") {
            break;
        }
        inner.failure.check()?;
        thread::yield_now();
    }
    // What the manifest says to be frozen must not depend on what a crash would undo.
    let durable = match mutation_site!("a flush syncs the log first") {
        true => last,
        false => inner.log_behind()?.sync()?,
    };
    assert!(
        durable >= last,
        "a memtable is flushed up to write {}, and only {} is durable",
        last.0,
        durable.0,
    );
    generation.check_unread()?;
    generation.segments().iter().for_each(|segment| segment.expect_reads());
    let sorting = Taken::of_young(&inner.room);
    sorting.set(generation.sorting_bytes(last));
    let mut made = Made::default();
    let done = generation.kvs().into_iter().try_for_each(|kvs| {
        made.values.extend(freeze_kvs(inner, generation, kvs, last, &mut made.runs)?);
        Ok(())
    });
    if let Err(error) = done {
        // It is tried again: what was written meanwhile must not take the room.
        let runs = made.runs.values().flatten().map(|run| run::file_name(run.number()));
        inner.remove(&runs.collect::<Vec<_>>())?;
        return Err(error);
    }
    let Made { runs, values } = made;
    let mut moved = Vec::new();
    for values in values {
        moved.extend(values.finish()?);
    }
    install(inner, generation, Written { runs, moved }, last, durable)
}

/// The runs of each `Kvs`, the newest first: one, and others if it cannot say all prefixes that are
/// gone.
type Runs = BTreeMap<KvsId, Vec<Frozen>>;

/// What was written so far.
#[derive(Default)]
struct Made<'a> {
    runs: Runs,
    values: Vec<ValueWriter<'a>>,
}

/// What was written of a generation: runs of each `Kvs`, and values that may not stay where the
/// log has put them.
struct Written {
    runs: Runs,
    moved: Vec<Arc<Segment>>,
}

/// Writes the runs of a `Kvs`, and the values that may not stay where they are; none if there is no
/// such `Kvs` any more.
fn freeze_kvs<'a>(
    inner: &'a Inner,
    generation: &Generation,
    kvs: KvsId,
    last: Sequence,
    runs: &mut Runs,
) -> Result<Option<ValueWriter<'a>>, StoreError> {
    let (number, inline_bytes, policy) = {
        let manifest = &mut *inner.manifest.lock();
        let number = manifest.take_run();
        match manifest.kvs_mut(kvs) {
            Some(state) => (number, state.inline_bytes as usize, state.policy),
            None => return Ok(None),
        }
    };
    let place = inner.places.choose_of_reserve(What::Keys, inner.had(policy.young_keys), 0);
    let prefixes = generation.prefixes(kvs);
    let gone = prefixes.as_ref().map(|prefixes| prefixes.all()).unwrap_or_default();
    let mut gone = prefixes::for_runs(gone, inner.options.prefixes_per_run_max).into_iter();
    let mut writer = inner.begin_run(&place, (number, kvs), gone.next().unwrap_or_default())?;
    let bytes = generation.segments().iter().map(|segment| segment.len()).sum();
    let numbers: Vec<_> = generation.segments().iter().map(|it| it.number()).collect();
    let mut values = Values {
        generation,
        inline_bytes,
        view: inner.current.get(),
        moves: inner.moves_by_policy(&policy, false, numbers.iter()),
        writer: ValueWriter::new(inner, kvs, bytes),
        bytes: Vec::new(),
    };
    let mut bill = Bill::new(inner, is_urgent);
    let (mut key, mut before) = (Vec::new(), Vec::new());
    let words = generation.in_order(kvs, last)?;
    for (number, &word) in words.iter().enumerate() {
        // In the order of keys they lie anywhere: what comes is fetched while others are written.
        if let Some(&soon) = words.get(number + RECORDS_AHEAD) {
            generation.prefetch(soon);
        }
        let found = generation.record(word, &mut key)?;
        // The newest comes first, and is all that is kept. No key is empty.
        if key == before {
            continue;
        }
        let gone = prefixes.as_ref().and_then(|it| it.covering(&key, Sequence::MAX));
        if gone.is_none_or(|gone| gone <= found.sequence) {
            values.push(&mut writer, &key, found)?;
            let mut traffic = values.writer.traffic();
            traffic.wrote(place.class, writer.bytes());
            bill.moved(&traffic);
        }
        std::mem::swap(&mut key, &mut before);
    }
    let made = runs.entry(kvs).or_default();
    let mut bytes = end_run(inner, &place, writer, made)?;
    for gone in gone {
        let number = inner.manifest.lock().take_run();
        let writer = inner.begin_run(&place, (number, kvs), gone)?;
        bytes += end_run(inner, &place, writer, made)?;
    }
    place.sync_names()?;
    let mut traffic = values.writer.traffic();
    traffic.wrote(place.class, bytes);
    bill.settle(&traffic);
    Ok(Some(values.writer))
}

/// Ends a run, and adds it to those that were made; answers its bytes.
fn end_run(
    inner: &Inner,
    place: &Arc<Held>,
    writer: RunWriter,
    made: &mut Vec<Frozen>,
) -> Result<u64, StoreError> {
    let run = Frozen::of(writer.finish(&inner.pages)?);
    let bytes = run.run.summary().file_bytes;
    inner.places.made(run::file_name(run.number()), place, bytes);
    place.written.freeze.fetch_add(bytes, Relaxed);
    made.push(run);
    Ok(bytes)
}

/// Whether freezing may wait for nobody: writers soon have to wait for it, or somebody does.
fn is_urgent(inner: &Inner) -> bool {
    let waiting = inner.work.waiting() * 2;
    waiting > inner.options.generations_waiting_max as usize || inner.background.is_awaited()
}

/// Where values go.
struct Values<'a, 'g> {
    generation: &'g Generation,
    inline_bytes: usize,
    view: Arc<View>,
    /// Segments of which the values do not stay where they are.
    moves: Moves,
    writer: ValueWriter<'a>,
    bytes: Vec<u8>,
}

impl Values<'_, '_> {
    /// Adds what was found of a key to a run.
    fn push(&mut self, run: &mut RunWriter, key: &[u8], found: Found) -> Result<(), StoreError> {
        let Found { sequence, expiry, value } = found;
        let is_endless = mutation_site!("a flush keeps when a value ends");
        let expiry = if is_endless { Expiry::NEVER } else { expiry };
        let Some(place) = value else {
            return run.push(&Entry { key, sequence, expiry, value: Value::Gone });
        };
        let inline_bytes = self.inline_bytes;
        let is_small = place.bytes as usize <= inline_bytes + key.len() + OVERHEAD;
        if is_small {
            let mut segments = self.generation.segments().iter();
            let segment = segments.find(|segment| segment.number() == place.segment);
            let segment = segment.ok_or(StoreError::NoSegment { number: place.segment.0 })?;
            let record = segment.record(place, &mut self.bytes)?;
            if record.value.len() <= inline_bytes {
                let value = Value::Inline(record.value);
                return run.push(&Entry { key, sequence, expiry, value });
            }
        }
        let place = match self.moves.get(&place.segment) {
            Some(to) => self.writer.copy(&self.view, place, *to)?,
            None => place,
        };
        run.push(&Entry { key, sequence, expiry, value: Value::Apart(place) })
    }
}

/// Puts the runs in the generation's place: first in the manifest, then for readers.
fn install(
    inner: &Inner,
    generation: &Arc<Generation>,
    Written { runs, moved }: Written,
    last: Sequence,
    durable: Sequence,
) -> Result<(), StoreError> {
    let manifest = &mut *inner.manifest.lock();
    let view = inner.current.get();
    let live: BTreeSet<SegmentNumber> = runs
        .values()
        .flatten()
        .flat_map(|run| run.run.summary().live.iter().map(|live| live.segment))
        .collect();
    let segments: Vec<_> = generation.segments().iter().cloned().collect();
    let (kept, dead): (Vec<_>, Vec<_>) =
        segments.into_iter().partition(|segment| live.contains(&segment.number()));
    let stay = kept.iter().chain(&moved).map(|segment| segment.number());
    let lost: Vec<_> = live.difference(&stay.collect()).copied().collect();
    assert!(lost.is_empty(), "a flush has values in segments that do not stay: {lost:?}");
    let mut next = Manifest::clone(manifest);
    let mut strays = Vec::new();
    for (&kvs, runs) in &runs {
        match next.kvs_mut(kvs) {
            Some(state) => drop(state.runs.splice(..0, runs.iter().map(Frozen::state))),
            // It was dropped meanwhile.
            None => strays.extend(runs.iter().map(|run| run::file_name(run.number()))),
        }
    }
    if !mutation_site!("the manifest names the segments in which a flush leaves values") {
        next.segments.extend(kept.iter().chain(&moved).map(|segment| segment.number().0));
    }
    go_on_behind(&mut next.log, (last, durable), first_segment_behind(&view, generation));
    let mut dead: Vec<String> = dead.iter().map(|it| segment::file_name(it.number())).collect();
    let image = generation.first_segment().filter(|_| generation.has_image());
    dead.extend(image.map(image::file_name));
    if mutation_site!("flushed segments are removed once the manifest does not need them") {
        inner.remove(&dead)?;
    }
    let made = runs.values().flatten().map(|run| run::file_name(run.number()));
    let values = moved.iter().map(|segment| segment::file_name(segment.number()));
    let made: Vec<String> = made.chain(values).collect();
    inner.save_with(manifest, next, &made)?;
    kept.iter().for_each(|segment| segment.freeze());
    inner.current.change(|view| {
        let oldest = view.closed.pop();
        assert!(
            oldest.is_some_and(|(oldest, _)| Arc::ptr_eq(&oldest, generation)),
            "the memtable that was flushed, up to write {}, is not the oldest",
            last.0,
        );
        inner.work.set_waiting(view.closed.len());
        for (kvs, runs) in runs {
            if manifest.kvs_mut(kvs).is_some() {
                let of_kvs = view.runs.entry(kvs).or_default();
                drop(Arc::make_mut(of_kvs).splice(..0, runs));
            }
        }
        view.add_segments(kept.iter().chain(&moved).cloned());
    });
    inner.remove(&dead)?;
    inner.remove(&strays)
}

/// Lets the log begin behind a generation that is frozen, whose last write is `last`.
fn go_on_behind(log: &mut LogState, (last, durable): (Sequence, Sequence), first_segment: u64) {
    log.frozen = last.0;
    if mutation_site!("no write counts as flushed that is not") {
        log.frozen += 1;
    }
    if mutation_site!("every write of a flushed memtable counts as flushed") {
        log.frozen -= 1;
    }
    // Somebody else may have synced more meanwhile, and said so.
    log.durable = log.durable.max(durable.0);
    if !mutation_site!("the log begins behind the memtable that was flushed") {
        log.first_segment = first_segment;
    }
}

/// The first segment of the generation that follows.
fn first_segment_behind(view: &View, generation: &Arc<Generation>) -> u64 {
    let mut newer = &view.young;
    for (closed, _) in &view.closed {
        if Arc::ptr_eq(closed, generation) {
            break;
        }
        newer = closed;
    }
    let first = newer.segments().iter().next();
    first.map_or(0, |segment| segment.number().0)
}
