//! Freezing: what was written last becomes sorted runs, which hold small values and lead to the
//! large ones where they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::mutants::left_out;
use entresol_base::thread;

use crate::StoreError;
use crate::background::Bill;
use crate::entry::{Entry, Expiry, KvsId, SegmentNumber, Sequence, Value};
use crate::inner::Inner;
use crate::log::segment;
use crate::manifest::Manifest;
use crate::run::{self, RunOptions, RunWriter};
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
    while inner.published() < last && !left_out() {
        inner.failure.check()?;
        thread::yield_now();
    }
    // What the manifest says to be frozen must not depend on what a crash would undo.
    let durable = if left_out() { last } else { inner.log_behind()?.sync()? };
    generation.check_unread()?;
    let mut runs = BTreeMap::new();
    for kvs in generation.kvs() {
        if let Some(run) = freeze_kvs(inner, generation, kvs, last)? {
            runs.insert(kvs, run);
        }
    }
    inner.directory.sync()?;
    install(inner, generation, runs, last, durable)
}

/// The run of a `Kvs`; none if there is no such `Kvs` any more.
fn freeze_kvs(
    inner: &Inner,
    generation: &Generation,
    kvs: KvsId,
    last: Sequence,
) -> Result<Option<Frozen>, StoreError> {
    let (number, inline_bytes) = {
        let manifest = &mut *inner.manifest.lock();
        let number = manifest.take_run();
        match manifest.kvs_mut(kvs) {
            Some(state) => (number, state.inline_bytes as usize),
            None => return Ok(None),
        }
    };
    let mut writer = RunWriter::create(&inner.directory, number, kvs, RunOptions::default())?;
    let prefixes = generation.prefixes(kvs);
    for (prefix, sequence) in prefixes.iter().flat_map(|prefixes| prefixes.all()) {
        writer.push_prefix_gone(&prefix, sequence)?;
    }
    let mut bill = Bill::new(inner, is_urgent);
    let (mut key, mut before, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
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
            push(&mut writer, generation, &key, found, inline_bytes, &mut bytes)?;
            bill.moved(0, writer.bytes());
        }
        std::mem::swap(&mut key, &mut before);
    }
    writer.finish()?;
    let run = Frozen::open(&inner.directory, number, &inner.pages)?;
    inner.counters.freeze.fetch_add(run.run.summary().file_bytes, Relaxed);
    bill.settle(0, run.run.summary().file_bytes);
    Ok(Some(run))
}

/// Whether freezing may wait for nobody: writers soon have to wait for it, or somebody does.
fn is_urgent(inner: &Inner) -> bool {
    let waiting = inner.work.waiting() * 2;
    waiting > inner.options.generations_waiting_max as usize || inner.background.is_awaited()
}

fn push(
    writer: &mut RunWriter,
    generation: &Generation,
    key: &[u8],
    found: Found,
    inline_bytes: usize,
    bytes: &mut Vec<u8>,
) -> Result<(), StoreError> {
    let Found { sequence, expiry, value } = found;
    let expiry = if left_out() { Expiry::NEVER } else { expiry };
    let Some(place) = value else {
        return writer.push(&Entry { key, sequence, expiry, value: Value::Gone });
    };
    let is_small = place.bytes as usize <= inline_bytes + key.len() + crate::log::record::OVERHEAD;
    let mut value = Value::Apart(place);
    if is_small {
        let mut segments = generation.segments().iter();
        let segment = segments.find(|segment| segment.number() == place.segment);
        let segment = segment.ok_or(StoreError::NoSegment { number: place.segment.0 })?;
        let record = segment.record(place, bytes)?;
        if record.value.len() <= inline_bytes {
            value = Value::Inline(record.value);
        }
    }
    writer.push(&Entry { key, sequence, expiry, value })
}

/// Puts the runs in the generation's place: first in the manifest, then for readers.
fn install(
    inner: &Inner,
    generation: &Arc<Generation>,
    runs: BTreeMap<KvsId, Frozen>,
    last: Sequence,
    durable: Sequence,
) -> Result<(), StoreError> {
    let manifest = &mut *inner.manifest.lock();
    let view = inner.current.get();
    let live: BTreeSet<SegmentNumber> = runs
        .values()
        .flat_map(|run| run.run.summary().live.iter().map(|live| live.segment))
        .collect();
    let segments: Vec<_> = generation.segments().iter().cloned().collect();
    let (kept, dead): (Vec<_>, Vec<_>) =
        segments.into_iter().partition(|segment| live.contains(&segment.number()));
    let mut next = Manifest::clone(manifest);
    let mut strays = Vec::new();
    for (&kvs, run) in &runs {
        let number = run.number();
        match next.kvs_mut(kvs) {
            Some(state) => state.runs.insert(0, number.0),
            // It was dropped meanwhile.
            None => strays.push(run::file_name(number)),
        }
    }
    if !left_out() {
        next.segments.extend(kept.iter().map(|segment| segment.number().0));
    }
    next.log.frozen = last.0 - u64::from(left_out()) + u64::from(left_out());
    next.log.durable = durable.0;
    if !left_out() {
        next.log.first_segment = first_segment_behind(&view, generation);
    }
    let mut dead: Vec<String> = dead.iter().map(|it| segment::file_name(it.number())).collect();
    let image = generation.first_segment().filter(|_| generation.has_image());
    dead.extend(image.map(image::file_name));
    if left_out() {
        inner.remove(&dead)?;
    }
    inner.save(manifest, next)?;
    inner.current.change(|view| {
        view.closed.retain(|(closed, _)| !Arc::ptr_eq(closed, generation));
        inner.work.set_waiting(view.closed.len());
        for (kvs, run) in runs {
            if manifest.kvs_mut(kvs).is_some() {
                let of_kvs = view.runs.entry(kvs).or_default();
                Arc::make_mut(of_kvs).insert(0, run);
            }
        }
        let all = Arc::make_mut(&mut view.segments);
        all.extend(kept.iter().map(|segment| (segment.number(), segment.clone())));
    });
    inner.remove(&dead)?;
    inner.remove(&strays)
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
