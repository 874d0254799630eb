//! The lives of an index on one region: one process after the other, some of which are killed.

use std::borrow::Borrow;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::sync::Arc;

use entresol_base::thread;
use entresol_simulated::crash::{Killed, RecordedRegion};

use super::{Answers, Op, Opened, TrialKey, TrialOptions};
use crate::{Direction, Flow, Persistent};

/// Number of operations after a kill before the pool is swept: until then operations find the
/// leftovers.
const UNSWEPT: u32 = 8;

/// Runs `work` in a process of its own, which is killed after some changes; its flushes are never
/// drained. Returns `None` if it was killed.
pub(super) fn cut_off<T: Send + 'static>(
    region: &RecordedRegion,
    changes: u64,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    region.observer().kill_after_changes(changes);
    let ended = thread::spawn("killed", work).join();
    region.observer().kill_after(u64::MAX);
    match ended {
        Ok(done) => Some(done),
        Err(killed) if killed.is::<Killed>() => None,
        Err(panic) => resume_unwind(panic),
    }
}

/// Lives of an index; see the head of the file.
pub(super) struct Life<I: Persistent<RecordedRegion>> {
    region: Arc<RecordedRegion>,
    options: TrialOptions,
    index: I::Options,
    /// Opened index; absent only while it is opened again.
    opened: Option<Arc<Opened<I>>>,
    /// Number of changes after which the next operation is cut off.
    kill: Option<u64>,
    /// Number of processes that were killed.
    kills: u32,
    /// Operations until the pool is swept; 0 if it is.
    unswept: u32,
    answers: Answers,
}

impl<I> Life<I>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    pub(super) fn new(
        region: Arc<RecordedRegion>,
        options: &TrialOptions,
        index: &I::Options,
        answers: Answers,
    ) -> Result<Life<I>, String> {
        let opened = Some(Arc::new(Opened::open(&region, options, index)?));
        let (options, index) = (*options, index.clone());
        Ok(Life { region, options, index, opened, kill: None, kills: 0, unswept: 0, answers })
    }

    /// Returns the number of processes that were killed.
    pub(super) fn kills(&self) -> u32 {
        self.kills
    }

    pub(super) fn opened(&self) -> Result<&Arc<Opened<I>>, String> {
        self.opened.as_ref().ok_or_else(|| "it could not be opened".to_owned())
    }

    /// Carries out an operation, and checks the answer against the key's old value. Returns true if
    /// it was done.
    pub(super) fn act(&mut self, op: Op, before: Option<u64>) -> Result<bool, String> {
        if let Op::Kill { changes } = op {
            self.kill = Some(changes);
            return Ok(true);
        }
        self.unswept = self.unswept.saturating_sub(1);
        if self.unswept == 1 {
            self.opened()?.sweep()?;
        }
        match (op, self.kill.take()) {
            (Op::Reopen, kill) => {
                self.opened()?.check_blocks()?;
                self.reopen(kill)?;
                self.opened()?.sweep()?;
                Ok(true)
            }
            (_, None) => self.answer(move |opened| opened.act(op, before)).map(|()| true),
            (_, Some(changes)) => {
                let opened = Arc::clone(self.opened()?);
                let acted = cut_off(&self.region, changes, move || opened.act(op, before));
                match acted {
                    Some(acted) => acted.map(|()| true),
                    None => {
                        self.kills += 1;
                        self.reopen(None)?;
                        self.unswept = UNSWEPT;
                        let way = if self.answers == Answers::Here { changes } else { 0 };
                        self.answer(move |opened| was_done(opened, op, before, way))
                    }
                }
            }
        }
    }

    fn reopen(&mut self, kill: Option<u64>) -> Result<(), String> {
        self.opened = None;
        if let Some(changes) = kill {
            let (region, options) = (Arc::clone(&self.region), self.options);
            let index = self.index.clone();
            let work = move || Opened::<I>::open(&region, &options, &index).map(drop);
            self.kills += u32::from(cut_off(&self.region, changes, work).is_none());
        }
        let opened = Opened::open(&self.region, &self.options, &self.index)?;
        self.opened = Some(Arc::new(opened));
        Ok(())
    }

    /// Runs `work` on the thread that answers.
    fn answer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Opened<I>) -> Result<T, String> + Send + 'static,
    ) -> Result<T, String> {
        let opened = self.opened()?;
        if self.answers == Answers::Here || self.kills == 0 {
            return work(opened);
        }
        let opened = Arc::clone(opened);
        let ended = thread::spawn("answers", move || work(&opened)).join();
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Asks the index, in one of several ways, if the operation that was cut off was done. This is an
/// answer: no crash may make it untrue.
fn was_done<I>(opened: &Opened<I>, op: Op, before: Option<u64>, way: u64) -> Result<bool, String>
where
    I: Persistent<RecordedRegion, Key: TrialKey>,
{
    let key = op.key().ok_or("what has no key was cut off")?;
    let (index, nth) = (&opened.index, I::Key::nth(key));
    let direction = match way % 3 {
        0 => None,
        1 => Some(Direction::Forward),
        _ => Some(Direction::Backward),
    };
    let found = match direction {
        None => index.get(nth.borrow()),
        Some(direction) => {
            let mut found = None;
            let from = Bound::Included(nth.borrow());
            let ranged = index.range(from, direction, &mut |shown, value| {
                found = (shown == nth.borrow()).then_some(value);
                Flow::Stop
            });
            ranged.map(|()| found)
        }
    };
    let found = found.map_err(|error| format!("{op}, cut off, then looked for: {error}"))?;
    let after = match op {
        Op::Insert { value, .. } => before.or(Some(value)),
        Op::Upsert { value, .. } => Some(value),
        Op::Remove { .. } | Op::Reopen | Op::Kill { .. } => None,
    };
    match found {
        _ if found == after => Ok(true),
        _ if found == before => Ok(false),
        _ => Err(format!("{op}, cut off, has left {found:?} where {before:?} was")),
    }
}
