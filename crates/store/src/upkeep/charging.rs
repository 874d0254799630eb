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

use crate::version::core::Core;
use crate::{Kvdb, MediaClass};

/// Bytes charged at once. The writer of runs moves no smaller pieces.
const PIECE_BYTES: u64 = 1 << 20;
/// Longest sleep before the work checks again whether it is urgent or must end.
const SLEEP_MAX: Duration = Duration::from_millis(10);

const CLASSES: usize = MediaClass::ALL.len();

/// Accounts for background work, if there are any.
#[derive(Debug, Default)]
pub(crate) struct Background {
    handles: [Mutex<Option<AccountHandle>>; CLASSES],
    /// Number of callers that wait for a full flush.
    awaiting: AtomicUsize,
}

/// Guard that counts a caller as waiting for a full flush.
pub(crate) struct Awaited<'a>(&'a Background);

impl Background {
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

impl Kvdb {
    /// Charges flushes, compactions and tiering on a class of media to an account from now on, or
    /// to none. The directory of a store without further volumes is of the class capacity, or pmem
    /// if the store was opened so.
    ///
    /// The work waits for the account's share of the medium's time, as other tenants do. It does
    /// not wait if that would make writers wait, let bytes dead exceed `space_amplification_max`,
    /// or hold up a caller that waits for a full flush. A stopped account does not stop the work in
    /// these cases either.
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let path = scratch.path().join("store");
    /// use std::sync::Arc;
    ///
    /// use entresol_media::account::Limit;
    /// use entresol_media::{Account, CostTable};
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions, MediaClass};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// let account = Account::new("disk", Arc::new(CostTable::published()));
    /// account.set_limit(Limit::Share(0.25));
    /// store.charge_background_to(MediaClass::Capacity, Some(&account));
    /// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
    /// store.compact()?;
    /// assert!(account.used_ns() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_background_to(&self, class: MediaClass, account: Option<&Arc<Account>>) {
        *self.core().background.handles[class as usize].lock() = account.map(Account::handle);
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
pub(crate) struct Bill<'a> {
    core: &'a Core,
    is_urgent: fn(&Core) -> bool,
    /// Traffic that is paid.
    paid: Traffic,
}

impl<'a> Bill<'a> {
    pub(crate) fn new(core: &'a Core, is_urgent: fn(&Core) -> bool) -> Bill<'a> {
        Bill { core, is_urgent, paid: Traffic::default() }
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
        let core = self.core;
        let account = &core.background.handles[class as usize];
        {
            let mut held = account.lock();
            let Some(handle) = &mut *held else { return };
            handle.charge_part(access, bytes as usize, WholeBytes(PIECE_BYTES as usize));
        }
        let begun = core.clock.now();
        while !(self.is_urgent)(core) && !core.work.is_over() && core.failure.check().is_ok() {
            let now = core.clock.now();
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
        let waited = core.clock.now().since(begun);
        if !waited.is_zero() {
            core.counters.background.add(waited);
        }
    }
}
