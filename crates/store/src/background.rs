//! Background work as a tenant: what freezing and merging move is charged to an account, as any
//! tenant's use of a medium is, and waits for the share of the medium that the account has. It does
//! not wait while that would hold up writers, or let space grow beyond its bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_media::account::WholeBytes;
use entresol_media::{Access, Account, AccountHandle, Admission};

use crate::Kvdb;
use crate::kvdb::Inner;

/// What is charged at once: the run's writer moves no smaller pieces.
const PIECE_BYTES: u64 = 1 << 20;
/// It is asked at least so often whether the work has become urgent, or is to end.
const SLEEP_MAX: Duration = Duration::from_millis(10);

/// The account, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Background {
    handle: Mutex<Option<AccountHandle>>,
    /// Callers who wait until all is frozen.
    awaiting: AtomicUsize,
}

/// Somebody waits until all is frozen, as long as this lives.
pub(crate) struct Awaited<'a>(&'a Background);

impl Background {
    /// Says that somebody waits until all is frozen.
    pub(crate) fn await_freezing(&self) -> Awaited<'_> {
        self.awaiting.fetch_add(1, Relaxed);
        Awaited(self)
    }

    /// Whether somebody does.
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
    /// Charges what freezing and merging read and write from now on to an account, or to none. They
    /// wait for the account's share of the medium's time as other tenants do, but not where that
    /// would make writers wait, let the dead grow beyond `space_amplification_max`, or hold up a
    /// caller who waits until all is frozen. An account that is stopped stops them no further.
    ///
    /// ```
    /// # fn main() -> Result<(), entresol_store::StoreError> {
    /// # let scratch = tempfile::tempdir().expect("a directory");
    /// # let path = scratch.path().join("store");
    /// use std::sync::Arc;
    ///
    /// use entresol_media::account::Limit;
    /// use entresol_media::{Account, CostTable};
    /// use entresol_store::{Kvdb, KvdbOptions, KvsOptions};
    ///
    /// let store = Kvdb::create_at(&path, KvdbOptions::default())?;
    /// let account = Account::new("disk", Arc::new(CostTable::published()));
    /// account.set_limit(Limit::Share(0.25));
    /// store.charge_background_to(Some(&account));
    /// store.create_kvs("users", KvsOptions::default())?.put(b"ada", b"1815")?;
    /// store.compact()?;
    /// assert!(account.used_ns() > 0);
    /// # Ok(())
    /// # }
    /// ```
    pub fn charge_background_to(&self, account: Option<&Arc<Account>>) {
        *self.inner().background.handle.lock() = account.map(Account::handle);
    }
}

/// What one freeze or merge has moved and not paid for yet.
pub(crate) struct Bill<'a> {
    inner: &'a Inner,
    is_urgent: fn(&Inner) -> bool,
    /// What was paid for.
    read: u64,
    written: u64,
    /// What was moved.
    to_read: u64,
    to_write: u64,
}

impl<'a> Bill<'a> {
    pub(crate) fn new(inner: &'a Inner, is_urgent: fn(&Inner) -> bool) -> Bill<'a> {
        Bill { inner, is_urgent, read: 0, written: 0, to_read: 0, to_write: 0 }
    }

    /// So many bytes have been read in all; pays once they are many.
    pub(crate) fn read_up_to(&mut self, bytes: u64) {
        if bytes >= self.read + PIECE_BYTES {
            let more = bytes - std::mem::replace(&mut self.read, bytes);
            self.pay(Access::Read, more);
        }
        self.to_read = self.to_read.max(bytes);
    }

    /// So many bytes have been written in all; pays once they are many.
    pub(crate) fn written_up_to(&mut self, bytes: u64) {
        if bytes >= self.written + PIECE_BYTES {
            let more = bytes - std::mem::replace(&mut self.written, bytes);
            self.pay(Access::Write, more);
        }
        self.to_write = self.to_write.max(bytes);
    }

    /// Pays what is left.
    pub(crate) fn settle(mut self) {
        let read = self.to_read.saturating_sub(self.read);
        let written = self.to_write.saturating_sub(self.written);
        for (access, bytes) in [(Access::Read, read), (Access::Write, written)] {
            if bytes > 0 {
                self.pay(access, bytes);
            }
        }
    }

    fn pay(&mut self, access: Access, bytes: u64) {
        let inner = self.inner;
        {
            let mut held = inner.background.handle.lock();
            let Some(handle) = &mut *held else { return };
            handle.charge_part(access, bytes as usize, WholeBytes(PIECE_BYTES as usize));
        }
        let begun = inner.clock.now();
        while !(self.is_urgent)(inner) && !inner.work.is_over() && inner.failure.check().is_ok() {
            let now = inner.clock.now();
            let admission = match &mut *inner.background.handle.lock() {
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
        let waited = inner.clock.now().since(begun);
        if !waited.is_zero() {
            inner.counters.background.add(waited);
        }
    }
}
