//! Samples of the keys of runs, which tell how far runs overlap before a compaction shows it.
//!
//! All runs take the keys whose hashes end in zeros, so a key that one sample has is in the sample
//! of every run that has the key. A sample is known of runs that this process wrote.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{BTreeMap, BTreeSet, HashMap};

use entresol_base::mutation_site;

use crate::cache::row::NameHasher;
use crate::segment::record::HEADER_BYTES;
use crate::types::{Entry, KvsId, SegmentNumber, Value};
use crate::version::view::{View, ViewRun, bytes_of};

/// Fewest keys that a sample may take.
const KEYS_MIN: usize = 64;
/// Bytes of memory for each key that the samples of the largest runs may take.
const MEMORY_PARTS: u64 = 4096;

/// Sample of the keys of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Sample {
    /// Number of zeros in which the hashes end.
    zeros: u32,
    keys: Vec<SampledKey>,
    /// Bytes of keys and values, of all versions that are no tombstones.
    user_bytes: u64,
    /// Of these, the bytes of versions whose values lie beside their keys.
    inline_bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct SampledKey {
    hash: u64,
    /// Segment of the value; `None` if the value lies beside the key, or if there is none.
    segment: Option<SegmentNumber>,
    /// Bytes of the key and the value; 0 for a tombstone.
    bytes: u32,
}

/// Taker of samples.
#[derive(Debug)]
pub(crate) struct Sampler<'a> {
    hasher: &'a NameHasher,
    kvs: KvsId,
    keys_max: usize,
    sample: Sample,
}

/// Bytes of a store that are live, by what its runs hold and by their samples.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LiveEstimate {
    /// Bytes of keys and values that can be read, of what is flushed.
    pub(crate) bytes: u64,
    /// Of these, the bytes of keys whose values lie beside them.
    pub(crate) inline_bytes: u64,
    /// Bytes that a compaction of all runs of each `Kvs` writes.
    pub(crate) rewritten: BTreeMap<KvsId, u64>,
    /// `Kvs` with values that lie beside their keys.
    pub(crate) inline: BTreeSet<KvsId>,
    /// Number of zeros in which the hashes of sampled keys end.
    pub(crate) zeros: u32,
    /// Bytes of the newest version of each sampled key, by the key's hash.
    pub(crate) newest: HashMap<u64, u32>,
    /// `Kvs` with runs that have no sample.
    pub(crate) unknown: BTreeSet<KvsId>,
    /// Bytes that are superseded, although runs still hold them or lead to them.
    pub(crate) superseded: Superseded,
}

/// Bytes that are superseded, by estimate.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Superseded {
    /// Bytes of records in each segment.
    pub(crate) values: BTreeMap<SegmentNumber, u64>,
    /// Bytes of keys and values in the runs of each `Kvs`.
    pub(crate) inline: BTreeMap<KvsId, u64>,
    /// Bytes of the files of the runs of each `Kvs`: a compaction of all of them writes the rest.
    pub(crate) runs: BTreeMap<KvsId, u64>,
    /// Live bytes for which each sampled key stands.
    pub(crate) bytes_per_sample: u64,
}

impl<'a> Sampler<'a> {
    /// Creates a sampler for a run of a `Kvs` of a view.
    pub(crate) fn new(
        hasher: &'a NameHasher,
        memory_bytes: u64,
        (view, kvs): (&View, KvsId),
    ) -> Sampler<'a> {
        let beside = view.runs.get(&kvs).map_or(&[][..], |runs| runs);
        let zeros = beside.iter().filter_map(|run| Some(run.sample.as_ref()?.zeros)).max();
        // The sample of a `Kvs` that has become smaller takes a larger share again.
        let zeros = zeros.unwrap_or_default().saturating_sub(1);
        let keys_max = (keys_max(memory_bytes) / view.runs.len().max(1)).max(KEYS_MIN);
        let sample = Sample { zeros, ..Sample::default() };
        Sampler { hasher, kvs, keys_max, sample }
    }

    /// Adds a version of the run.
    #[inline]
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        let (bytes, segment) = match entry.value {
            Value::Gone => (0, None),
            Value::Inline(value) => (entry.key.len() + value.len(), None),
            Value::Apart(place) => {
                ((place.bytes as usize).saturating_sub(HEADER_BYTES), Some(place.segment))
            }
        };
        self.sample.user_bytes += bytes as u64;
        self.sample.inline_bytes += if segment.is_none() { bytes as u64 } else { 0 };
        let hash = self.hasher.hash(self.kvs, entry.key);
        if hash.trailing_zeros() >= self.sample.zeros {
            self.take(SampledKey { hash, segment, bytes: bytes as u32 });
        }
    }

    fn take(&mut self, key: SampledKey) {
        self.sample.keys.push(key);
        while self.sample.keys.len() > self.keys_max {
            self.sample.zeros += 1;
            let zeros = self.sample.zeros;
            self.sample.keys.retain(|key| key.hash.trailing_zeros() >= zeros);
        }
    }

    /// Returns the sample.
    pub(crate) fn finish(mut self) -> Sample {
        self.sample.keys.shrink_to_fit();
        self.sample
    }
}

/// Returns the most keys of all samples of the largest runs.
pub(crate) fn keys_max(memory_bytes: u64) -> usize {
    ((memory_bytes / MEMORY_PARTS) as usize).max(KEYS_MIN)
}

impl LiveEstimate {
    /// Estimates what is live in the runs of a view. What runs without a sample might have in
    /// common, with each other or with newer ones, counts as superseded: a compaction shows the
    /// truth, and is due only once that would be too much.
    pub(crate) fn of(view: &View) -> LiveEstimate {
        let (mut all, mut sampled) = (LiveEstimate::default(), 0);
        for (kvs, runs) in &view.runs {
            let overlap = Overlap::of(runs);
            all.bytes += overlap.live.0 as u64;
            all.inline_bytes += overlap.live.1 as u64;
            all.superseded.inline.insert(*kvs, overlap.superseded_inline());
            let all_runs = bytes_of(runs.iter());
            let superseded = (all_runs as f64 * overlap.repeated()) as u64;
            all.superseded.runs.insert(*kvs, superseded);
            all.rewritten.insert(*kvs, all_runs - superseded);
            if overlap.inline > 0.0 {
                all.inline.insert(*kvs);
            }
            for (segment, bytes) in overlap.superseded {
                *all.superseded.values.entry(segment).or_default() += bytes;
            }
            all.zeros = all.zeros.max(overlap.zeros);
            all.newest.extend(overlap.newest.iter().map(|(hash, key)| (*hash, key.bytes)));
            if !overlap.is_known {
                all.unknown.insert(*kvs);
            }
            sampled += overlap.newest.len() as u64;
        }
        all.superseded.bytes_per_sample = all.bytes / sampled.max(1);
        all
    }
}

/// Returns the bytes that newer runs of a `Kvs` supersede in older ones: of keys and values, and of
/// records of values. `None` if there is no sample of a run.
pub(crate) fn superseded_in(runs: &[ViewRun]) -> Option<u64> {
    let overlap = Overlap::of(runs);
    let values: u64 = overlap.superseded.values().sum();
    overlap.is_known.then_some(values + overlap.superseded_inline())
}

/// Overlap of the runs of one `Kvs`.
#[derive(Debug, Default)]
struct Overlap {
    /// Live bytes, and those of them that lie beside their keys.
    live: (f64, f64),
    /// All bytes that lie beside their keys, live or not.
    inline: f64,
    superseded: BTreeMap<SegmentNumber, u64>,
    /// Number of zeros in which the hashes of the sampled keys end.
    zeros: u32,
    /// Newest version of each of these, by its hash.
    newest: HashMap<u64, SampledKey>,
    /// Number of their versions in all runs.
    versions: u64,
    /// True if all runs have a sample.
    is_known: bool,
}

impl Overlap {
    /// Estimates the overlap of runs, which are given newest first. How much a run supersedes is
    /// taken from the share of its sample that does: where all of it does, that is exact.
    fn of(runs: &[ViewRun]) -> Overlap {
        let zeros = runs.iter().filter_map(|run| Some(run.sample.as_ref()?.zeros)).max();
        let zeros = zeros.unwrap_or_default();
        let mut overlap = Overlap { zeros, is_known: true, ..Overlap::default() };
        for run in runs.iter().rev() {
            match &run.sample {
                Some(sample) => overlap.add(sample, run.run.summary().entries),
                None => overlap.add_unknown(run),
            }
        }
        overlap
    }

    /// Returns the superseded bytes that lie beside their keys.
    fn superseded_inline(&self) -> u64 {
        (self.inline - self.live.1).max(0.0) as u64
    }

    /// Returns the share of versions that newer ones of the same keys supersede.
    fn repeated(&self) -> f64 {
        match self.is_known && self.versions > 0 {
            true => 1.0 - self.newest.len() as f64 / self.versions as f64,
            false => 0.0,
        }
    }

    /// Adds a run without a sample. All of it is live, or supersedes that much of an older one.
    fn add_unknown(&mut self, run: &ViewRun) {
        let summary = run.run.summary();
        let values: u64 = summary.live.iter().map(|live| live.bytes).sum();
        let headers = if values > 0 { summary.keys * HEADER_BYTES as u64 } else { 0 };
        let bytes = summary.inline_bytes + values.saturating_sub(headers);
        self.live.0 = self.live.0.max(bytes as f64);
        self.live.1 = self.live.1.max(summary.inline_bytes as f64);
        self.inline += summary.inline_bytes as f64;
        self.is_known = false;
    }

    /// Adds a run with so many versions, by its sample.
    fn add(&mut self, sample: &Sample, entries: u64) {
        let (mut taken, mut killed, mut killed_inline) = (0_u64, 0_u64, 0_u64);
        let zeros = self.zeros;
        let of_run = sample.keys.iter().filter(|key| key.hash.trailing_zeros() >= zeros);
        for key in of_run {
            taken += 1;
            let before = match self.newest.entry(key.hash) {
                Occupied(mut before) => Some(before.insert(*key)),
                Vacant(free) => {
                    free.insert(*key);
                    (!self.is_known).then_some(SampledKey { segment: None, ..*key })
                }
            };
            let Some(before) = before else { continue };
            if mutation_site!("what newer runs supersede is not live") {
                continue;
            }
            killed += u64::from(before.bytes);
            match before.segment {
                Some(segment) => {
                    let bytes = (u64::from(before.bytes) + HEADER_BYTES as u64) << zeros;
                    *self.superseded.entry(segment).or_default() += bytes;
                }
                None if self.is_known => killed_inline += u64::from(before.bytes),
                None => {}
            }
        }
        self.versions += taken;
        let of_all = |bytes: u64| match taken {
            0 => 0.0,
            taken => bytes as f64 / taken as f64 * entries as f64,
        };
        self.inline += sample.inline_bytes as f64;
        self.live.0 = (self.live.0 + sample.user_bytes as f64 - of_all(killed)).max(0.0);
        self.live.1 += sample.inline_bytes as f64 - of_all(killed_inline);
        self.live.1 = self.live.1.clamp(0.0, self.live.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compaction_of_all_runs_leaves_out_the_share_of_versions_that_is_repeated() {
        let key = |hash| SampledKey { hash, segment: None, bytes: 10 };
        let sample = |hashes: &[u64]| {
            let keys: Vec<SampledKey> = hashes.iter().copied().map(key).collect();
            let bytes = 10 * keys.len() as u64;
            Sample { zeros: 0, keys, user_bytes: bytes, inline_bytes: bytes }
        };
        let mut overlap = Overlap { is_known: true, ..Overlap::default() };
        assert_eq!(overlap.repeated(), 0.0);
        overlap.add(&sample(&[1, 2, 3, 4]), 4);
        assert_eq!(overlap.repeated(), 0.0, "four keys once");
        overlap.add(&sample(&[3, 4, 5, 6]), 4);
        assert_eq!(
            (overlap.repeated(), overlap.live.0),
            (0.25, 60.0),
            "six keys in eight versions"
        );
        overlap.is_known = false;
        assert_eq!(overlap.repeated(), 0.0, "what is not known is taken to stay");
    }
}
