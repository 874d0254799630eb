//! Open transactions, on which compactions depend.

use std::collections::BTreeMap;

use entresol_base::Nanos;
use entresol_base::sync::Mutex;

use crate::types::Sequence;

/// The open transactions. Compactions keep the changes that these must still notice.
#[derive(Debug, Default)]
pub(crate) struct Transactions(Mutex<OpenTransactions>);

#[derive(Debug, Default)]
struct OpenTransactions {
    next: u64,
    /// Sequence number that each transaction sees, and its end, by the transaction's number.
    all: BTreeMap<u64, (Sequence, Nanos)>,
}

impl Transactions {
    /// Registers a transaction and takes its snapshot under the same lock, so no horizon misses it.
    pub(crate) fn begin<T>(&self, end: Nanos, take: impl FnOnce() -> (T, Sequence)) -> (u64, T) {
        let mut open = self.0.lock();
        let number = open.next;
        open.next += 1;
        let (snapshot, at) = take();
        open.all.insert(number, (at, end));
        (number, snapshot)
    }

    pub(crate) fn end(&self, number: u64) {
        let ended = self.0.lock().all.remove(&number);
        debug_assert!(ended.is_some(), "transaction {number} ends twice");
    }

    /// Returns the write after which every change of a key must still be noticeable to some
    /// transaction.
    pub(crate) fn horizon(&self, now: Nanos) -> Sequence {
        let open = self.0.lock();
        let live = open.all.values().filter(|(_, end)| *end > now);
        live.map(|(at, _)| *at).min().unwrap_or(Sequence::MAX)
    }

    /// Returns the number of open transactions.
    pub(crate) fn count(&self) -> u64 {
        self.0.lock().all.len() as u64
    }
}
