//! Crash images of a region, made in the region's own bytes and undone afterwards.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use entresol_media::observe::{LINE_BYTES, Observed};
use entresol_media::region::Direct;

use super::Power;
use super::journal::{Journal, put_line};
use super::recorder::{Core, Domain, Pending, RecordedRegion, Recorder, Scratch, State};
use super::recorder::{Pool, UNITS_UNWATCHED_MAX};

/// A region as a crash may have left it, ready for recovery. It uses the bytes of the crashed
/// region, and restores them when it is dropped.
pub struct RegionImage {
    region: Arc<RecordedRegion>,
    core: Arc<Core>,
}

impl RegionImage {
    pub(super) fn new(parent: &Core, choices: &[u16], power: &Power) -> RegionImage {
        let (bytes, records) = (&parent.bytes, power.is_watched());
        let mut scratch = pool(&parent.pool).pop().unwrap_or_default();
        scratch.journal.reset(bytes.len());
        if records {
            scratch.pending.reset(bytes.len());
        }
        let poison = {
            let state = parent.state();
            if let Some(of_parent) = &state.scratch {
                apply(&of_parent.pending, choices, bytes, &mut scratch.journal);
            }
            match &state.scratch {
                Some(scratch) if !state.poison.is_empty() => {
                    state.poison.after(|word| scratch.pending.has_lost(word, choices))
                }
                _ => state.poison.clone(),
            }
        };
        let watches = choices.len() > UNITS_UNWATCHED_MAX;
        if watches {
            parent.looked.begin(bytes.len());
        }
        let sees = parent.options.domain != Domain::Memory;
        let core = Arc::new(Core {
            bytes: bytes.clone(),
            options: parent.options,
            power: power.clone(),
            loads: AtomicBool::new(watches || !poison.is_empty() || (records && sees)),
            looks: watches.then(|| parent.looked.clone()),
            looked: Arc::default(),
            state: Mutex::new(State::of_image(scratch, records, poison)),
            pool: parent.pool.clone(),
            kill_after: AtomicU64::new(0),
            kill_counts_loads: AtomicBool::new(true),
        });
        if records {
            power.attach(core.clone());
        }
        let observed =
            Observed::over(bytes.clone(), parent.options.flush, Recorder::of(core.clone()));
        RegionImage { region: Arc::new(observed), core }
    }

    /// Returns the region to open.
    #[must_use]
    pub fn region(&self) -> &Arc<RecordedRegion> {
        &self.region
    }
}

/// Brings the bytes into a state.
fn apply(pending: &Pending, choices: &[u16], bytes: &Direct, journal: &mut Journal) {
    let Pending { lines, streams, cuts } = pending;
    let (of_lines, rest) = choices.split_at(lines.len());
    let (of_words, of_cuts) = rest.split_at(streams.len());
    if let [choice] = of_cuts {
        cuts.apply(*choice, bytes, journal);
    }
    for (unit, &choice) in of_lines.iter().enumerate() {
        let (line, words) = (lines.number(unit), lines.words(unit, choice));
        journal.note(bytes, line);
        put_line(bytes, line, &words);
    }
    for (unit, &choice) in of_words.iter().enumerate() {
        let number = streams.number(unit);
        journal.note(bytes, number * 8 / LINE_BYTES);
        bytes.store_u64(number * 8, streams.value(unit, choice), Ordering::Relaxed);
    }
}

fn pool(pool: &Pool) -> MutexGuard<'_, Vec<Scratch>> {
    pool.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for RegionImage {
    fn drop(&mut self) {
        let core = &*self.core;
        if let Some(mut scratch) = core.state().scratch.take() {
            scratch.journal.undo(&core.bytes);
            pool(&core.pool).push(scratch);
        }
    }
}

impl fmt::Debug for RegionImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RegionImage").field(&self.region).finish()
    }
}
