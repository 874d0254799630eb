//! Space of a store: what is live of it, estimated from samples of the runs after each flush and
//! compaction, and what it may take therefore.

use std::sync::Arc;

use entresol_base::hash::KeyHasher;
use entresol_base::sync::Mutex;

use crate::options::KvdbOptions;
use crate::types::KvsId;
use crate::version::files::{Files, LiveBytes, live_segments};
use crate::version::sample::{LiveEstimate, Sampler, Superseded};
use crate::version::view::{View, ViewRun};
use crate::volumes::SpaceFacts;

/// Estimate of what is live, kept between flushes.
#[derive(Debug)]
pub(crate) struct Space {
    hasher: KeyHasher,
    memory_bytes: u64,
    /// Bytes that may be taken for each live byte; `None` for any number.
    bound: Option<f64>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Share of what the last flush wrote that supersedes nothing.
    new_share: f64,
    superseded: Arc<Superseded>,
}

impl Space {
    /// Creates the estimate of a store, whose number keeps clients from choosing what is sampled.
    pub(crate) fn new(store: u64, options: &KvdbOptions) -> Space {
        Space {
            hasher: KeyHasher::seeded(store),
            memory_bytes: options.memory_bytes,
            bound: options.space_bound,
            state: Mutex::default(),
        }
    }

    /// Returns a sampler for a new run of a `Kvs`, which takes none without a bound.
    pub(crate) fn sampler(&self, view: &View, kvs: KvsId) -> Sampler<'_> {
        match self.bound {
            Some(_) => Sampler::new(&self.hasher, self.memory_bytes, (view, kvs)),
            None => Sampler::default(),
        }
    }

    /// Estimates what is live in the newest view, if there is a bound. `is_flushed` is true if that
    /// has just changed by a flush: what comes next is taken to be like it.
    pub(crate) fn look(&self, files: &Files, is_flushed: bool) {
        let Some(bound) = self.bound else { return };
        let mut state = self.state.lock();
        let view = files.current.get();
        let LiveEstimate { bytes, inline_bytes, new_share, superseded } = LiveEstimate::of(&view);
        state.superseded = Arc::new(superseded);
        if is_flushed {
            state.new_share = new_share;
        }
        files.volumes.gauge.learn(SpaceFacts {
            bound,
            live_bytes: bytes,
            inline_bytes,
            new_share: state.new_share,
            runs_bytes: view.runs.values().map(|runs| bytes_of(runs)).max().unwrap_or_default(),
            value_bytes: view.segments.values().map(|segment| segment.len()).sum(),
        });
    }

    /// Returns the live bytes of each segment: what runs lead to, without what is superseded.
    pub(crate) fn live_segments(&self, view: &View) -> LiveBytes {
        let superseded = self.state.lock().superseded.clone();
        let mut live = live_segments(view);
        for (segment, bytes) in &mut live {
            let gone = superseded.values.get(segment).copied().unwrap_or_default();
            *bytes = bytes.saturating_sub(gone);
        }
        live
    }

    /// Returns the bytes in the runs of a `Kvs` that are superseded.
    pub(crate) fn superseded_inline(&self, kvs: KvsId) -> u64 {
        self.state.lock().superseded.inline.get(&kvs).copied().unwrap_or_default()
    }
}

fn bytes_of(runs: &[ViewRun]) -> u64 {
    runs.iter().map(|run| run.run.summary().file_bytes).sum()
}
