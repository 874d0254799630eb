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
use crate::inner::Inner;

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

/// What one freeze or merge pays for what it moves.
pub(crate) struct Bill<'a> {
    inner: &'a Inner,
    is_urgent: fn(&Inner) -> bool,
    /// What was paid for.
    read: u64,
    written: u64,
}

impl<'a> Bill<'a> {
    pub(crate) fn new(inner: &'a Inner, is_urgent: fn(&Inner) -> bool) -> Bill<'a> {
        Bill { inner, is_urgent, read: 0, written: 0 }
    }

    /// So many bytes have been read and written in all; pays once they are many.
    pub(crate) fn moved(&mut self, read: u64, written: u64) {
        self.pay_up_to(read, written, PIECE_BYTES);
    }

    /// Pays what is left: so many bytes have been read and written in all.
    pub(crate) fn settle(mut self, read: u64, written: u64) {
        self.pay_up_to(read, written, 1);
    }

    fn pay_up_to(&mut self, read: u64, written: u64, least: u64) {
        if read >= self.read + least {
            let more = read - std::mem::replace(&mut self.read, read);
            self.pay(Access::Read, more);
        }
        if written >= self.written + least {
            let more = written - std::mem::replace(&mut self.written, written);
            self.pay(Access::Write, more);
        }
    }

    fn pay(&self, access: Access, bytes: u64) {
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
