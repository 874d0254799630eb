//! Space of a store: what is live of it, and what it may take therefore. An estimate from samples
//! of the runs follows each flush and compaction; sampled writes carry it on until the next.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use entresol_base::mutation_site;
use entresol_base::sync::Mutex;

use crate::cache::row::NameHasher;
use crate::options::KvdbOptions;
use crate::segment::Segment;
use crate::segment::record::{Draft, Kind};
use crate::types::{KvsId, RunNumber, SegmentNumber, Sequence};
use crate::upkeep::compaction::window::{like_bytes, nearness};
use crate::upkeep::squeeze::GAIN_PARTS;
use crate::upkeep::worth::{Findings, Squeezable};
use crate::version::files::{Files, LiveBytes, live_segments};
use crate::version::sample::{LiveEstimate, Sampler, Superseded, keys_max, superseded_in};
use crate::version::view::{View, ViewRun};
use crate::volumes::{SpaceFacts, SpaceGauge};

/// Least number of zeros in which the hashes of sampled writes end: a sampled write costs as much
/// as a tenth of a write.
const ZEROS_MIN: u32 = 4;
/// Divisor of the most keys of samples, of which sampled writes may take one part.
const WRITES_PARTS: usize = 4;
/// Segments for whose squeezing room is kept.
const SQUEEZED_MAX: usize = 16;
/// Number of zeros with which no write is sampled.
const NONE: u32 = u64::BITS + 1;

/// Estimate of what is live.
#[derive(Debug)]
pub(crate) struct Space {
    hasher: NameHasher,
    memory_bytes: u64,
    /// Bytes that may be taken for each live byte; `None` for any number.
    bound: Option<f64>,
    /// Superseded bytes for each live one at which all runs are compacted.
    amplification: f64,
    /// Number of zeros in which the hashes of sampled writes end.
    zeros: AtomicU32,
    superseded: Mutex<Arc<Superseded>>,
    spared: Mutex<Spared>,
    findings: Mutex<Findings>,
    /// Bytes that are superseded in the runs of a `Kvs`, by what was asked for last.
    overwritten: Mutex<BTreeMap<KvsId, (Vec<RunNumber>, u64)>>,
    writes: Mutex<SampledWrites>,
}

/// Segments that are not squeezed.
#[derive(Debug, Default)]
struct Spared {
    /// Segments that have less garbage than the estimate says, until the next one.
    for_now: BTreeSet<SegmentNumber>,
    /// Segments in which damage may hide records.
    for_good: BTreeSet<SegmentNumber>,
}

/// Room that is kept.
struct Kept {
    /// Share of the room for a compaction of all runs.
    share: f64,
    /// Bytes that squeezes and compactions of some runs write at once.
    next_bytes: u64,
}

impl Kept {
    /// Room for a compaction of all runs at any time.
    const WHOLE: Kept = Kept { share: 1.0, next_bytes: 0 };
}

/// Sampled writes that are not flushed yet, beside the sample of all that is.
#[derive(Debug, Default)]
struct SampledWrites {
    zeros: u32,
    /// Bytes of the flushed version of each sampled key, by the key's hash.
    flushed: HashMap<u64, u32>,
    /// `Kvs` with runs that have no sample.
    unknown: BTreeSet<KvsId>,
    /// Newest sampled write of each key, by the key's hash.
    writes: HashMap<u64, SampledWrite>,
    /// Live bytes that these writes add.
    added: i64,
    facts: SpaceFacts,
}

#[derive(Debug, Clone, Copy)]
struct SampledWrite {
    kvs: KvsId,
    /// Bytes of the key and the value; 0 for a tombstone.
    bytes: u32,
    sequence: Sequence,
}

impl Space {
    /// Creates the estimate of a store.
    pub(crate) fn new(options: &KvdbOptions) -> Space {
        Space {
            hasher: NameHasher::new(),
            memory_bytes: options.memory_bytes,
            bound: options.space_amplification_max,
            amplification: options.amplification_target(),
            zeros: AtomicU32::new(NONE),
            superseded: Mutex::default(),
            spared: Mutex::default(),
            findings: Mutex::default(),
            overwritten: Mutex::default(),
            writes: Mutex::default(),
        }
    }

    /// Returns a sampler for a new run of a `Kvs`.
    pub(crate) fn sampler(&self, view: &View, kvs: KvsId) -> Sampler<'_> {
        Sampler::new(&self.hasher, self.memory_bytes, (view, kvs))
    }

    /// Estimates what is live in the newest view, if there is a bound.
    pub(crate) fn look(&self, files: &Files) {
        let Some(bound) = self.bound else { return };
        let mut superseded = self.superseded.lock();
        let view = files.current.get();
        let estimate = LiveEstimate::of(&view);
        let are_squeezed = !files.volumes.are_durable_at_once();
        let kept = if are_squeezed { self.kept(&view, &estimate) } else { Kept::WHOLE };
        let facts = SpaceFacts {
            bound,
            flushed_bytes: estimate.bytes,
            added_bytes: 0,
            inline_bytes: estimate.inline_bytes,
            rewritten_bytes: estimate.rewritten.values().copied().max().unwrap_or_default(),
            kept_share: kept.share,
            next_bytes: kept.next_bytes,
            value_bytes: view.segments.values().map(|segment| segment.len()).sum(),
            are_squeezed,
        };
        *superseded = Arc::new(estimate.superseded);
        self.spared.lock().for_now.clear();
        let mut writes = self.writes.lock();
        writes.facts = facts;
        (writes.flushed, writes.unknown) = (estimate.newest, estimate.unknown);
        let flushed = view.newest_flushed();
        writes.writes.retain(|_, write| write.sequence > flushed);
        let zeros = if writes.writes.is_empty() { ZEROS_MIN } else { writes.zeros };
        writes.sample_less(zeros.max(estimate.zeros));
        self.zeros.store(writes.zeros, Relaxed);
        files.volumes.gauge.forget();
        files.volumes.gauge.learn(writes.facts());
    }

    /// Returns the room to keep for what comes next, and notes what the view has.
    fn kept(&self, view: &View, estimate: &LiveEstimate) -> Kept {
        let mut findings = self.findings.lock();
        findings.look(view);
        let squeezable = findings.squeezable(view, &estimate.superseded, GAIN_PARTS);
        let left = squeezable.iter().take(SQUEEZED_MAX).map(|it| it.left).max();
        let mut kept = Kept { share: 0.0, next_bytes: left.unwrap_or_default() };
        for (kvs, runs) in &view.runs {
            let sizes: Vec<u64> = runs.iter().map(|run| run.run.summary().file_bytes).collect();
            // Values beside their keys are collected by such compactions alone.
            let is_due = estimate.unknown.contains(kvs) || estimate.inline.contains(kvs);
            let share = if is_due { 1.0 } else { nearness(&sizes, self.amplification) };
            kept.share = kept.share.max(share);
            kept.next_bytes = kept.next_bytes.max(like_bytes(&sizes));
        }
        kept
    }

    /// Returns true if the write of a key with this hash is sampled.
    #[inline]
    pub(crate) fn is_sampled(&self, hash: u64) -> bool {
        hash.trailing_zeros() >= self.zeros.load(Relaxed)
    }

    /// Notes the sampled ones of several writes up to a number.
    pub(crate) fn note_all(&self, drafts: &[Draft<'_>], last: Sequence, gauge: &SpaceGauge) {
        if self.bound.is_none() {
            return;
        }
        for draft in drafts {
            let hash = self.hasher.hash(draft.kvs, draft.key);
            if self.is_sampled(hash) {
                self.note((draft, hash), last, gauge);
            }
        }
    }

    /// Notes a sampled write, with the hash of its key.
    #[cold]
    pub(crate) fn note(
        &self,
        (draft, hash): (&Draft<'_>, u64),
        last: Sequence,
        gauge: &SpaceGauge,
    ) {
        let bytes = match draft.kind {
            Kind::Put | Kind::PutUntil => draft.key.len() + draft.value.len(),
            Kind::Gone => 0,
            Kind::RangeDelete | Kind::Seal => return,
        };
        if mutation_site!("what is new counts as live before it is flushed") {
            return;
        }
        let mut writes = self.writes.lock();
        writes.add(hash, SampledWrite { kvs: draft.kvs, bytes: bytes as u32, sequence: last });
        if writes.writes.len() > keys_max(self.memory_bytes) / WRITES_PARTS {
            let more = writes.zeros + 1;
            writes.sample_less(more);
            self.zeros.store(more, Relaxed);
        }
        gauge.learn(writes.facts());
    }

    /// Returns the bytes that newer runs of a `Kvs` supersede in older ones. Of runs that an
    /// earlier process wrote it is not known, and all may be superseded once enough is newer.
    pub(crate) fn overwritten(&self, kvs: KvsId, runs: &[ViewRun]) -> u64 {
        let numbers: Vec<RunNumber> = runs.iter().map(ViewRun::number).collect();
        let mut overwritten = self.overwritten.lock();
        match overwritten.get(&kvs) {
            Some((known, bytes)) if *known == numbers => return *bytes,
            _ => {}
        }
        let bytes = superseded_in(runs).unwrap_or_else(|| {
            let sizes: Vec<u64> = runs.iter().map(|run| run.run.summary().file_bytes).collect();
            if nearness(&sizes, self.amplification) < 1.0 { 0 } else { u64::MAX }
        });
        overwritten.insert(kvs, (numbers, bytes));
        bytes
    }

    /// Returns the live bytes of each segment: what runs lead to, without what is superseded.
    pub(crate) fn live_segments(&self, view: &View) -> LiveBytes {
        let superseded = self.superseded.lock().clone();
        self.findings.lock().live(&live_segments(view), &superseded)
    }

    /// Returns the segments that may be squeezed, the best first.
    pub(crate) fn squeezable(&self, view: &View) -> Vec<Squeezable> {
        let superseded = self.superseded.lock().clone();
        self.findings.lock().squeezable(view, &superseded, GAIN_PARTS)
    }

    /// Notes that a segment was read, and has so many live bytes.
    pub(crate) fn has_live(&self, view: &View, segment: SegmentNumber, live: u64) {
        let superseded = self.superseded.lock().clone();
        self.findings.lock().has_live((&live_segments(view), &superseded), segment, live);
    }

    /// Notes that a segment was written anew.
    pub(crate) fn is_squeezed(&self, segment: SegmentNumber) {
        self.findings.lock().is_squeezed(segment);
    }

    /// Leaves a segment alone until the next estimate.
    pub(crate) fn spare(&self, segment: SegmentNumber) {
        self.spared.lock().for_now.insert(segment);
    }

    /// Leaves a segment alone in which damage may hide records: it would be read with each estimate
    /// otherwise.
    pub(crate) fn spare_for_good(&self, segment: SegmentNumber) {
        self.spared.lock().for_good.insert(segment);
    }

    /// Returns true if a segment is to be left alone.
    pub(crate) fn is_spared(&self, segment: SegmentNumber) -> bool {
        let spared = self.spared.lock();
        spared.for_now.contains(&segment) || spared.for_good.contains(&segment)
    }

    /// Returns true if a `Kvs` has runs without a sample.
    pub(crate) fn is_unknown(&self, kvs: KvsId) -> bool {
        self.writes.lock().unknown.contains(&kvs)
    }

    /// Returns the bytes of segments that are superseded.
    pub(crate) fn superseded<'a>(&self, segments: impl Iterator<Item = &'a Arc<Segment>>) -> u64 {
        let superseded = self.superseded.lock().clone();
        segments.filter_map(|segment| superseded.values.get(&segment.number())).sum()
    }

    /// Returns the bytes of the runs of a `Kvs` that a compaction of all of them leaves out.
    pub(crate) fn superseded_runs(&self, kvs: KvsId) -> u64 {
        self.superseded.lock().runs.get(&kvs).copied().unwrap_or_default()
    }

    /// Returns the bytes in the runs of a `Kvs` that are superseded.
    pub(crate) fn superseded_inline(&self, kvs: KvsId) -> u64 {
        self.superseded.lock().inline.get(&kvs).copied().unwrap_or_default()
    }
}

impl SampledWrites {
    /// Returns the live bytes that a write adds to those of earlier versions of its key. Of a key
    /// that runs without a sample might have, it is taken to add nothing.
    fn added_by(&self, hash: u64, write: SampledWrite) -> i64 {
        let flushed = self.flushed.get(&hash).copied();
        let is_unknown = self.unknown.contains(&write.kvs);
        let before = flushed.or(is_unknown.then_some(write.bytes));
        i64::from(write.bytes) - i64::from(before.unwrap_or_default())
    }

    fn add(&mut self, hash: u64, write: SampledWrite) {
        if hash.trailing_zeros() < self.zeros {
            return;
        }
        self.added += self.added_by(hash, write);
        if let Some(before) = self.writes.insert(hash, write) {
            self.added -= self.added_by(hash, before);
        }
    }

    /// Leaves those out whose hashes end in fewer zeros, and counts anew.
    fn sample_less(&mut self, zeros: u32) {
        self.zeros = zeros;
        self.flushed.retain(|hash, _| hash.trailing_zeros() >= zeros);
        self.writes.retain(|hash, _| hash.trailing_zeros() >= zeros);
        self.added = self.writes.iter().map(|(hash, write)| self.added_by(*hash, *write)).sum();
    }

    /// Returns the facts, with what these writes add.
    fn facts(&self) -> SpaceFacts {
        SpaceFacts { added_bytes: self.added << self.zeros, ..self.facts }
    }
}
