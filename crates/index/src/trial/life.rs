//! The lives of an index on one region: one process after the other, some of which are killed.

use std::borrow::Borrow;
use std::ops::Bound;
use std::panic::resume_unwind;
use std::sync::Arc;

use entresol_base::thread;
use entresol_media::crash::{Killed, RecordedRegion};

use super::{Op, Opened, TrialKey};
use crate::{Direction, Flow, Persistent};

/// So many operations after a kill the pool is swept: until then what was there is found by those
/// who come by.
const UNSWEPT: u32 = 8;

/// See the head of the file.
pub(super) struct Life<I: Persistent<RecordedRegion>> {
    region: Arc<RecordedRegion>,
    options: I::Options,
    /// None only while it is opened again.
    opened: Option<Arc<Opened<I>>>,
    /// The next operation is cut off after so many accesses.
    kill: Option<u64>,
    /// Operations until the pool is swept; 0 if it is.
    unswept: u32,
}

impl<I> Life<I>
where
    I: Persistent<RecordedRegion, Key: TrialKey> + 'static,
    I::Options: 'static,
{
    pub(super) fn new(
        region: Arc<RecordedRegion>,
        options: &I::Options,
    ) -> Result<Life<I>, String> {
        let opened = Some(Arc::new(Opened::open(&region, options)?));
        Ok(Life { region, options: options.clone(), opened, kill: None, unswept: 0 })
    }

    pub(super) fn opened(&self) -> Result<&Arc<Opened<I>>, String> {
        self.opened.as_ref().ok_or_else(|| "it could not be opened".to_owned())
    }

    /// Does it, and holds the answer against the value that the key had. Says whether it was done.
    pub(super) fn act(&mut self, op: Op, before: Option<u64>) -> Result<bool, String> {
        if let Op::Kill { accesses } = op {
            self.kill = Some(accesses);
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
            (_, None) => self.opened()?.act(op, before).map(|()| true),
            (_, Some(accesses)) => {
                let opened = Arc::clone(self.opened()?);
                let acted = self.cut_off(accesses, move || opened.act(op, before));
                match acted {
                    Some(acted) => acted.map(|()| true),
                    None => {
                        self.reopen(None)?;
                        self.unswept = UNSWEPT;
                        self.was_done(op, before, accesses)
                    }
                }
            }
        }
    }

    /// Does something in a process of its own, which is killed after so many accesses: what it has
    /// flushed nobody drains. None: it was.
    fn cut_off<T: Send + 'static>(
        &self,
        accesses: u64,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.region.observer().kill_after(accesses);
        let ended = thread::spawn("killed", work).join();
        self.region.observer().kill_after(u64::MAX);
        match ended {
            Ok(done) => Some(done),
            Err(killed) if killed.is::<Killed>() => None,
            Err(panic) => resume_unwind(panic),
        }
    }

    fn reopen(&mut self, kill: Option<u64>) -> Result<(), String> {
        self.opened = None;
        if let Some(accesses) = kill {
            let (region, options) = (Arc::clone(&self.region), self.options.clone());
            self.cut_off(accesses, move || Opened::<I>::open(&region, &options).map(drop));
        }
        self.opened = Some(Arc::new(Opened::open(&self.region, &self.options)?));
        Ok(())
    }

    /// Asks in one way or another whether what was cut off was done. This is an answer: no crash
    /// may make it untrue.
    fn was_done(&self, op: Op, before: Option<u64>, way: u64) -> Result<bool, String> {
        let key = op.key().ok_or("what has no key was cut off")?;
        let (index, nth) = (&self.opened()?.index, I::Key::nth(key));
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
}
