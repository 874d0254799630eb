//! Flush: writes a closed generation as sorted runs, which hold small values and refer to large
//! ones where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutation_site;
use entresol_base::thread;

use crate::StoreError;
use crate::cache::budget::RoomShare;
use crate::manifest::{LogState, Manifest};
use crate::memtable::range_deletes;
use crate::memtable::sorted::{InOrder, Merged};
use crate::memtable::{FoundRecord, Generation};
use crate::names;
use crate::policy::Policy;
use crate::run::RunWriter;
use crate::segment::Segment;
use crate::segment::record::OVERHEAD;
use crate::types::{Entry, Expiry, KvsId, RunNumber, SegmentNumber, Sequence, Value};
use crate::upkeep::charging::Bill;
use crate::upkeep::compaction::values::ValueWriter;
use crate::upkeep::context::{CompactionContext, FlushContext};
use crate::upkeep::tiering::ValueMoves;
use crate::version::ends::Ends;
use crate::version::files::Files;
use crate::version::sample::Sampler;
use crate::version::view::{View, ViewRun};
use crate::volumes::{FileKind, OpenVolume};

/// Flushes the oldest closed generation, whose last write is `last`.
///
/// # Errors
/// Fails if a disk fails or has no room, or if data is damaged. Nothing has changed then.
pub(crate) fn flush(
    context: &FlushContext<'_>,
    generation: &Arc<Generation>,
    last: Sequence,
) -> Result<(), StoreError> {
    let files = context.compaction.files;
    while context.log.published() < last {
        if mutation_site!("a flush waits for the memtable's writers") {
            break;
        }
        files.failure.check()?;
        thread::yield_now();
    }
    // A crash must not undo writes that the manifest calls flushed.
    let durable = match mutation_site!("a flush syncs the log first") {
        true => last,
        false => context.log.sync()?,
    };
    assert!(
        durable >= last,
        "a memtable is flushed up to write {}, and only {} is durable",
        last.0,
        durable.0,
    );
    generation.check_unread()?;
    generation.segments().iter().for_each(|segment| segment.expect_reads());
    let sorting = RoomShare::of_memtables(context.room);
    sorting.set(generation.sorting_bytes(last));
    let sorted = generation.in_order(last, &|| files.time.give_way())?;
    let mut made = UnfinishedFlush::default();
    let done = generation.kvs().into_iter().try_for_each(|kvs| {
        made.values.extend(flush_kvs(context, generation, kvs, &sorted, &mut made.runs)?);
        Ok(())
    });
    if let Err(error) = done {
        // The flush is tried again, and these files must not take the room then.
        let runs = made.runs.values().flatten().map(|run| names::of_run(run.number()));
        files.remove(&runs.collect::<Vec<_>>())?;
        return Err(error);
    }
    let UnfinishedFlush { runs, values } = made;
    let mut moved = Vec::new();
    for values in values {
        moved.extend(values.finish()?);
    }
    install(context, generation, FlushOutput { runs, moved }, last, durable)?;
    files.volumes.gauge.log_flushed(generation.segment_bytes());
    context.compaction.background.space.look(files);
    Ok(())
}

/// Runs of each `Kvs`, the newest first. A second run is needed only if the range deletes do not
/// fit into one.
type Runs = BTreeMap<KvsId, Vec<ViewRun>>;

/// Files that the flush has written so far.
#[derive(Default)]
struct UnfinishedFlush<'a> {
    runs: Runs,
    values: Vec<ValueWriter<'a>>,
}

/// Result of a flush: runs of each `Kvs`, and segments of values that the policy moves away from
/// where the log put them.
struct FlushOutput {
    runs: Runs,
    moved: Vec<Arc<Segment>>,
}

/// Takes the number of a run, with the options of its `Kvs`. Returns `None` if that was dropped.
fn take_run(manifest: &mut Manifest, kvs: KvsId) -> Option<(RunNumber, usize, Policy)> {
    let number = manifest.take_run();
    let state = manifest.kvs_mut(kvs)?;
    Some((number, state.inline_bytes as usize, state.policy))
}

/// Writes the runs of a `Kvs`, and the values that the policy moves. Returns `None` if the `Kvs`
/// was dropped.
fn flush_kvs<'a>(
    context: &FlushContext<'a>,
    generation: &Arc<Generation>,
    kvs: KvsId,
    sorted: &InOrder<'_>,
    runs: &mut Runs,
) -> Result<Option<ValueWriter<'a>>, StoreError> {
    let (compaction, files) = (&context.compaction, context.compaction.files);
    let Some((number, inline_bytes, policy)) = take_run(&mut files.manifest.lock(), kvs) else {
        return Ok(None);
    };
    let place =
        files.volumes.choose_of_reserve(FileKind::Keys, files.volumes.had(policy.new_keys), 0);
    let prefixes = generation.prefixes(kvs);
    let gone = prefixes.as_ref().map(|prefixes| prefixes.all()).unwrap_or_default();
    let mut gone =
        range_deletes::for_runs(gone, compaction.options.range_deletes_per_run_max).into_iter();
    let mut writer = files.begin_run(&place, (number, kvs), gone.next().unwrap_or_default())?;
    let numbers: Vec<_> = generation.segments().iter().map(|it| it.number()).collect();
    let mut values = Values {
        generation,
        inline_bytes,
        sampler: compaction.background.space.sampler(&files.current.get(), kvs),
        // The newest view would keep what a compaction replaces meanwhile until the end.
        view: View { young: generation.clone(), ..View::default() },
        moves: compaction.moves_by_policy(&policy, false, numbers.iter()),
        writer: ValueWriter::new(*compaction, kvs, generation.segment_bytes()),
        bytes: Vec::new(),
        ends: Ends::default(),
    };
    let mut bill = Bill::new(files, compaction.background, || is_urgent(compaction));
    let (mut records, mut before) = (sorted.records(kvs)?, Vec::new());
    while let Some(Merged { word, header, key }) = records.next()? {
        files.time.give_way();
        // The newest version comes first, and only that one is kept. No key is empty, so the first
        // key differs from `before`.
        if key == before.as_slice() {
            continue;
        }
        let gone = prefixes.as_ref().and_then(|it| it.covering(key, Sequence::MAX));
        if gone.is_none_or(|gone| gone <= header.sequence) {
            values.push(&mut writer, key, generation.found_with(word, &header)?)?;
            let mut traffic = values.writer.traffic();
            traffic.wrote(place.class, writer.bytes());
            bill.moved(&traffic);
        }
        before.clear();
        before.extend_from_slice(key);
    }
    let made = runs.entry(kvs).or_default();
    let mut bytes = end_run(files, &place, writer, made)?;
    if let Some(run) = made.pop() {
        made.push(run.with(values.ends, values.sampler.finish()));
    }
    for gone in gone {
        let number = files.manifest.lock().take_run();
        let writer = files.begin_run(&place, (number, kvs), gone)?;
        bytes += end_run(files, &place, writer, made)?;
    }
    place.sync_names()?;
    let mut traffic = values.writer.traffic();
    traffic.wrote(place.class, bytes);
    bill.settle(&traffic);
    Ok(Some(values.writer))
}

/// Finishes a run and adds it to `made`. Returns its bytes.
fn end_run(
    files: &Files,
    place: &Arc<OpenVolume>,
    writer: RunWriter,
    made: &mut Vec<ViewRun>,
) -> Result<u64, StoreError> {
    let run = ViewRun::of(writer.finish(&files.pages)?);
    let bytes = run.run.summary().file_bytes;
    files.volumes.made(names::of_run(run.number()), place, bytes);
    place.life.written.flush.fetch_add(bytes, Relaxed);
    made.push(run);
    Ok(bytes)
}

/// Returns true if the flush must not wait for its share of the medium: writers are about to wait
/// for it, or a caller already does.
fn is_urgent(context: &CompactionContext<'_>) -> bool {
    let waiting = context.background.scheduler.waiting() * 2;
    waiting > context.options.generations_waiting_max as usize
        || context.background.accounts.is_awaited()
}

/// Destinations of the values of a `Kvs`.
struct Values<'a, 'g> {
    generation: &'g Generation,
    inline_bytes: usize,
    /// View of the generation alone.
    view: View,
    /// Segments whose values move.
    moves: ValueMoves,
    writer: ValueWriter<'a>,
    bytes: Vec<u8>,
    ends: Ends,
    sampler: Sampler<'a>,
}

impl Values<'_, '_> {
    /// Adds the newest version of a key to a run.
    fn push(
        &mut self,
        run: &mut RunWriter,
        key: &[u8],
        found: FoundRecord,
    ) -> Result<(), StoreError> {
        let FoundRecord { sequence, expiry, value } = found;
        let is_endless = mutation_site!("a flush keeps when a value ends");
        let expiry = if is_endless { Expiry::NEVER } else { expiry };
        let Some(place) = value else {
            return self.add(run, &Entry { key, sequence, expiry, value: Value::Gone });
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
                self.ends.add(&Entry { key, sequence, expiry, value });
                self.sampler.add(&Entry { key, sequence, expiry, value });
                return run.push(&Entry { key, sequence, expiry, value });
            }
        }
        let place = match self.moves.get(&place.segment) {
            Some(to) => self.writer.copy(&self.view, place, *to)?,
            None => place,
        };
        self.add(run, &Entry { key, sequence, expiry, value: Value::Apart(place) })
    }

    fn add(&mut self, run: &mut RunWriter, entry: &Entry<'_>) -> Result<(), StoreError> {
        self.ends.add(entry);
        self.sampler.add(entry);
        run.push(entry)
    }
}

/// Replaces the generation by the runs: first in the manifest, then for readers.
fn install(
    context: &FlushContext<'_>,
    generation: &Arc<Generation>,
    FlushOutput { runs, moved }: FlushOutput,
    last: Sequence,
    durable: Sequence,
) -> Result<(), StoreError> {
    let files = context.compaction.files;
    let manifest = &mut *files.manifest.lock();
    let view = files.current.get();
    let live: BTreeSet<SegmentNumber> = runs
        .values()
        .flatten()
        .flat_map(|run| run.run.summary().live.iter().map(|live| live.segment))
        .collect();
    let segments: Vec<_> = generation.segments().iter().cloned().collect();
    let flushed: Vec<SegmentNumber> = segments.iter().map(|it| it.number()).collect();
    let (kept, dead): (Vec<_>, Vec<_>) =
        segments.into_iter().partition(|segment| live.contains(&segment.number()));
    let stay = kept.iter().chain(&moved).map(|segment| segment.number());
    let lost: Vec<_> = live.difference(&stay.collect()).copied().collect();
    assert!(lost.is_empty(), "a flush has values in segments that do not stay: {lost:?}");
    let mut next = Manifest::clone(manifest);
    let mut strays = Vec::new();
    for (&kvs, runs) in &runs {
        match next.kvs_mut(kvs) {
            Some(state) => drop(state.runs.splice(..0, runs.iter().map(ViewRun::state))),
            // The `Kvs` was dropped meanwhile.
            None => strays.extend(runs.iter().map(|run| names::of_run(run.number()))),
        }
    }
    if !mutation_site!("the manifest names the segments in which a flush leaves values") {
        next.segments.extend(kept.iter().chain(&moved).map(|segment| segment.number().0));
    }
    go_on_behind(&mut next.log, (last, durable), first_segment_behind(&view, generation));
    let mut dead: Vec<String> = dead.iter().map(|it| names::of_segment(it.number())).collect();
    let image = generation.first_segment().filter(|_| generation.has_image());
    dead.extend(image.map(names::of_image));
    if mutation_site!("flushed segments are removed once the manifest does not need them") {
        files.remove(&dead)?;
    }
    let made = runs.values().flatten().map(|run| names::of_run(run.number()));
    let values = moved.iter().map(|segment| names::of_segment(segment.number()));
    let made: Vec<String> = made.chain(values).collect();
    files.save_with(manifest, next, &made)?;
    kept.iter().for_each(|segment| segment.mark_flushed());
    files.current.change(|view| {
        let oldest = view.closed.pop();
        assert!(
            oldest.is_some_and(|(oldest, _)| Arc::ptr_eq(&oldest, generation)),
            "the memtable that was flushed, up to write {}, is not the oldest",
            last.0,
        );
        context.compaction.background.scheduler.set_waiting(view.closed.len());
        for (kvs, runs) in runs {
            if manifest.kvs_mut(kvs).is_some() {
                let of_kvs = view.runs.entry(kvs).or_default();
                drop(Arc::make_mut(of_kvs).splice(..0, runs));
            }
        }
        view.add_segments(kept.iter().chain(&moved).cloned());
    });
    files.remove(&dead)?;
    // Room of a file that is removed or squeezed is free at once, and not with the next sync.
    context.log.forget(&flushed);
    files.remove(&strays)
}

/// Moves the start of the log behind a flushed generation, whose last write is `last`.
fn go_on_behind(log: &mut LogState, (last, durable): (Sequence, Sequence), first_segment: u64) {
    log.flushed = last.0;
    if mutation_site!("no write counts as flushed that is not") {
        log.flushed += 1;
    }
    if mutation_site!("every write of a flushed memtable counts as flushed") {
        log.flushed -= 1;
    }
    // Another sync may have made more durable meanwhile, and recorded it.
    log.durable = log.durable.max(durable.0);
    if !mutation_site!("the log begins behind the memtable that was flushed") {
        log.first_segment = first_segment;
    }
}

/// Returns the first segment of the generation that follows.
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
