//! Reconstruction of a lost manifest from the files of a store.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use entresol_media::Directory;

use super::CACHE_BYTES;
use crate::StoreError;
use crate::cache::block::BlockCache;
use crate::manifest::{KvsState, Manifest, RunState};
use crate::names;
use crate::policy::Policy;
use crate::run::read::scan::{Identity, identify};
use crate::segment::record::Kind;
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{KvsId, Mark, RunNumber, SegmentNumber, Sequence};
use crate::volumes::Volumes;

/// Returns a manifest of all runs and segments on the volumes; `None` if there are none.
///
/// # Errors
/// Fails if a file cannot be read for a reason that is no damage.
pub(crate) fn manifest(volumes: &Volumes) -> Result<Option<Manifest>, StoreError> {
    let names = volumes.names();
    let names = || names.iter().map(String::as_str);
    let segments: Vec<SegmentNumber> = names().filter_map(names::segment_number).collect();
    let runs: Vec<RunNumber> = names().filter_map(names::run_number).collect();
    if segments.is_empty() && runs.is_empty() {
        return Ok(None);
    }
    let of_segment = |number| volumes.directory_of(&names::of_segment(number));
    let store = segments.iter().find_map(|&it| Segment::store_of(&*of_segment(it), it));
    let mut manifest = Manifest::new(store.unwrap_or_default());
    let pages = BlockCache::new(CACHE_BYTES);
    let mut of_kvs: BTreeMap<KvsId, Vec<(Sequence, RunState)>> = BTreeMap::new();
    for number in runs {
        let directory = volumes.directory_of(&names::of_run(number));
        if let Ok(Identity { kvs, greatest }) = identify(&directory, number, &pages) {
            of_kvs
                .entry(kvs)
                .or_default()
                .push((greatest, RunState { run: number.0, mark: Mark::NONE }));
            manifest.log.flushed = manifest.log.flushed.max(greatest.0);
        }
    }
    for (kvs, mut runs) in of_kvs {
        runs.sort_unstable_by_key(|(greatest, run)| Reverse((*greatest, run.run)));
        manifest.kvs.push(state(kvs, runs.into_iter().map(|(_, run)| run).collect()));
    }
    let behind = |number: &&SegmentNumber| {
        let first =
            number.is_of_log().then(|| first_write(&of_segment(**number), &manifest, **number));
        first.flatten().is_some_and(|first| first.0 > manifest.log.flushed)
    };
    let first_of_log = segments.iter().filter(behind).min().copied();
    let first_of_log = first_of_log.unwrap_or(SegmentNumber::FIRST_OF_VALUES);
    manifest.log.first_segment = first_of_log.0;
    // The last flushed writes may be deletes that are in no run any more, so the log's first write
    // decides.
    let first = first_write(&of_segment(first_of_log), &manifest, first_of_log);
    manifest.log.flushed = first.map_or(manifest.log.flushed, |first| first.0 - 1);
    let is_flushed = |number: &SegmentNumber| !number.is_of_log() || *number < first_of_log;
    manifest.segments = segments.into_iter().filter(is_flushed).map(|number| number.0).collect();
    Ok(Some(manifest))
}

/// Completes a reconstructed manifest by an earlier one: with the volumes, with the names and
/// options of each `Kvs`, some of which only the log may have, and with files that are missing or
/// damaged. Later states, which cannot be read, may have removed these.
pub(crate) fn complete(guessed: &mut Manifest, earlier: &Manifest) {
    guessed.volumes.clone_from(&earlier.volumes);
    guessed.seconds = earlier.seconds;
    guessed.seconds_ahead = earlier.seconds_ahead;
    guessed.log.durable = guessed.log.durable.max(earlier.log.durable);
    if guessed.log.first_segment == SegmentNumber::FIRST_OF_VALUES.0 {
        // No log is left, whose first write would tell.
        guessed.log.flushed = guessed.log.flushed.max(earlier.log.flushed);
    }
    for state in &earlier.kvs {
        let found = guessed.kvs.iter().position(|it| it.id == state.id);
        let mut runs = found.map_or_else(Vec::new, |at| guessed.kvs.remove(at).runs);
        let place_of = |runs: &[RunState], run: &RunState| {
            let is_it = |found: &RunState| found.run == run.run;
            runs.iter().position(is_it)
        };
        // Each is newer than the next one, which therefore comes first.
        for (at, run) in state.runs.iter().enumerate().rev() {
            if place_of(&runs, run).is_none() {
                let older = state.runs.get(at + 1).and_then(|older| place_of(&runs, older));
                runs.insert(older.unwrap_or(runs.len()), *run);
            }
        }
        guessed.kvs.push(KvsState { runs, aged_run: 0, ..state.clone() });
    }
    guessed.kvs.sort_unstable_by_key(|state| state.id);
}

/// Returns the name of a `Kvs` whose name is lost.
pub(crate) fn name(kvs: KvsId) -> String {
    format!("kvs-{}", kvs.0)
}

pub(crate) fn state(kvs: KvsId, runs: Vec<RunState>) -> KvsState {
    KvsState {
        id: kvs.0,
        name: name(kvs),
        inline_bytes: 256,
        time_to_live_s: 0,
        runs,
        aged_run: 0,
        policy: Policy::default(),
    }
}

/// Returns the first write in a segment of the log, if it has any.
fn first_write(
    directory: &Arc<dyn Directory>,
    manifest: &Manifest,
    number: SegmentNumber,
) -> Option<Sequence> {
    let segment = Segment::open_unchecked(&**directory, manifest.store, number).ok()?;
    let header = segment.header(FIRST_RECORD).ok()?;
    (header.kind != Kind::Seal).then_some(header.sequence)
}
