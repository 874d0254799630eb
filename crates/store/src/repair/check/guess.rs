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

/// Returns a manifest of all runs and segments in a directory; `None` if there are none.
///
/// # Errors
/// Fails if the directory cannot be read.
pub(crate) fn manifest(directory: &Arc<dyn Directory>) -> Result<Option<Manifest>, StoreError> {
    let names = directory.list()?;
    let names = || names.iter().map(|entry| entry.name.as_str());
    let segments: Vec<SegmentNumber> = names().filter_map(names::segment_number).collect();
    let runs: Vec<RunNumber> = names().filter_map(names::run_number).collect();
    if segments.is_empty() && runs.is_empty() {
        return Ok(None);
    }
    let store = segments.iter().find_map(|&number| Segment::store_of(&**directory, number));
    let mut manifest = Manifest::new(store.unwrap_or_default());
    let pages = BlockCache::new(CACHE_BYTES);
    let mut of_kvs: BTreeMap<KvsId, Vec<(Sequence, RunState)>> = BTreeMap::new();
    for number in runs {
        if let Ok(Identity { kvs, greatest }) = identify(directory, number, &pages) {
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
        let first = number.is_of_log().then(|| first_write(directory, &manifest, **number));
        first.flatten().is_some_and(|first| first.0 > manifest.log.flushed)
    };
    let first_of_log = segments.iter().filter(behind).min().copied();
    let first_of_log = first_of_log.unwrap_or(SegmentNumber::FIRST_OF_VALUES);
    manifest.log.first_segment = first_of_log.0;
    // The last flushed writes may be deletes that are in no run any more, so the log's first write
    // decides.
    let first = first_write(directory, &manifest, first_of_log);
    manifest.log.flushed = first.map_or(manifest.log.flushed, |first| first.0 - 1);
    let is_flushed = |number: &SegmentNumber| !number.is_of_log() || *number < first_of_log;
    manifest.segments = segments.into_iter().filter(is_flushed).map(|number| number.0).collect();
    Ok(Some(manifest))
}

/// Gives the `Kvs` of a reconstructed manifest the names and options that they had in an earlier
/// one. `Kvs` of which only the log has writes are in that one alone.
pub(crate) fn name_kvs(guessed: &mut Manifest, earlier: &Manifest) {
    for state in &earlier.kvs {
        let named = KvsState { runs: Vec::new(), aged_run: 0, ..state.clone() };
        match guessed.kvs.iter_mut().find(|it| it.id == state.id) {
            Some(it) => *it = KvsState { runs: std::mem::take(&mut it.runs), ..named },
            None => guessed.kvs.push(named),
        }
    }
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
