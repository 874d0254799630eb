//! Charging of background work. An account for each class of media is charged for the reads and
//! writes of flushes, compactions and tiering, as for any tenant's use of a medium. The work waits
//! for the account's share of the medium, unless that would hold up writers or let space grow
//! beyond its bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_media::account::WholeBytes;
use entresol_media::{Access, Account, AccountHandle, Admission};

use crate::MediaClass;
use crate::upkeep::context::Background;
use crate::version::files::Files;

/// Bytes charged at once. The writer of runs moves no smaller pieces.
const PIECE_BYTES: u64 = 1 << 20;
/// Longest sleep before the work checks again whether it is urgent or must end.
const SLEEP_MAX: Duration = Duration::from_millis(10);

const CLASSES: usize = MediaClass::ALL.len();

/// Accounts for background work, if there are any.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    handles: [Mutex<Option<AccountHandle>>; CLASSES],
    /// Number of callers that wait for a full flush.
    awaiting: AtomicUsize,
}

/// Guard that counts a caller as waiting for a full flush.
pub(crate) struct Awaited<'a>(&'a Accounts);

impl Accounts {
    /// Charges work on a class to an account from now on, or to none.
    pub(crate) fn set(&self, class: MediaClass, account: Option<&Arc<Account>>) {
        *self.handles[class as usize].lock() = account.map(Account::handle);
    }

    /// Registers a caller that waits for a full flush.
    pub(crate) fn await_flush(&self) -> Awaited<'_> {
        self.awaiting.fetch_add(1, Relaxed);
        Awaited(self)
    }

    /// Returns true if a caller waits for a full flush.
    pub(crate) fn is_awaited(&self) -> bool {
        self.awaiting.load(Relaxed) > 0
    }
}

impl Drop for Awaited<'_> {
    fn drop(&mut self) {
        self.0.awaiting.fetch_sub(1, Relaxed);
    }
}

/// Bytes that a piece of background work has read and written, for each class of media.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    read: [u64; CLASSES],
    written: [u64; CLASSES],
}

impl Traffic {
    pub(crate) fn read(&mut self, class: MediaClass, bytes: u64) {
        self.read[class as usize] += bytes;
    }

    pub(crate) fn wrote(&mut self, class: MediaClass, bytes: u64) {
        self.written[class as usize] += bytes;
    }

    /// Returns the bytes read from all classes.
    pub(crate) fn all_read(&self) -> u64 {
        self.read.iter().sum()
    }
}

/// Bill of one flush, compaction or file move for its reads and writes.
pub(crate) struct Bill<'a, F> {
    files: &'a Files,
    background: &'a Background,
    is_urgent: F,
    /// Traffic that is paid.
    paid: Traffic,
}

impl<'a, F: Fn() -> bool> Bill<'a, F> {
    pub(crate) fn new(files: &'a Files, background: &'a Background, is_urgent: F) -> Bill<'a, F> {
        Bill { files, background, is_urgent, paid: Traffic::default() }
    }

    /// Takes the total traffic so far, and pays for what has accumulated once that is a piece.
    pub(crate) fn moved(&mut self, all: &Traffic) {
        self.pay_up_to(all, PIECE_BYTES);
    }

    /// Takes the final traffic and pays the rest.
    pub(crate) fn settle(mut self, all: &Traffic) {
        self.pay_up_to(all, 1);
    }

    fn pay_up_to(&mut self, all: &Traffic, least: u64) {
        for class in MediaClass::ALL {
            let at = class as usize;
            let (read, written) = (all.read[at], all.written[at]);
            if read >= self.paid.read[at] + least {
                let more = read - std::mem::replace(&mut self.paid.read[at], read);
                self.pay(class, Access::Read, more);
            }
            if written >= self.paid.written[at] + least {
                let more = written - std::mem::replace(&mut self.paid.written[at], written);
                self.pay(class, Access::Write, more);
            }
        }
    }

    fn pay(&self, class: MediaClass, access: Access, bytes: u64) {
        let Bill { files, background, .. } = self;
        let account = &background.accounts.handles[class as usize];
        {
            let mut held = account.lock();
            let Some(handle) = &mut *held else { return };
            handle.charge_part(access, bytes as usize, WholeBytes(PIECE_BYTES as usize));
        }
        let begun = files.time.instant();
        while !(self.is_urgent)()
            && !background.scheduler.is_over()
            && files.failure.check().is_ok()
        {
            let now = files.time.instant();
            let admission = match &mut *account.lock() {
                Some(handle) => handle.admit(now),
                None => break,
            };
            let sleep = match admission {
                Admission::Go => break,
                Admission::Wait { until } => until.since(now).min(SLEEP_MAX),
                Admission::Stopped => SLEEP_MAX,
            };
            entresol_base::thread::sleep(sleep);
        }
        let waited = files.time.instant().since(begun);
        if !waited.is_zero() {
            background.stall.add(waited);
        }
    }
}
