//! Classic commands that change an item: stores, delete, incr and decr.

use entresol_base::Seconds;
use entresol_cache::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, KeyHash, Store, StoreMode, Stored,
};
use entresol_protocol::encode;
use entresol_protocol::{Exptime, Key, Lifetime, StoreVerb};

use super::{Call, Flow, Then};
use crate::detail::Event;

/// Translates a request's expiry time for the cache.
pub(super) fn expiry(exptime: Exptime, now: Seconds) -> Expiry {
    match exptime.lifetime(now) {
        Lifetime::Forever => Expiry::Never,
        Lifetime::Over => Expiry::Immediately,
        Lifetime::Until(second) => Expiry::At(second),
    }
}

impl Call<'_> {
    /// Appends a fixed reply unless the client wants none.
    #[inline]
    pub(super) fn reply(&mut self, noreply: bool, reply: &[u8]) -> Flow {
        if !noreply {
            self.out.bytes.extend_from_slice(reply);
        }
        Flow::Done
    }

    pub(super) fn store(&mut self, request: &entresol_protocol::Store<'_>, hash: KeyHash) -> Flow {
        if self.seat.null_store.is_some() {
            return self.reply(request.noreply, encode::STORED);
        }
        let (mode, compare) = match request.verb {
            StoreVerb::Set => (StoreMode::Set, None),
            StoreVerb::Add => (StoreMode::Add, None),
            StoreVerb::Replace => (StoreMode::Replace, None),
            StoreVerb::Append => (StoreMode::Append, None),
            StoreVerb::Prepend => (StoreMode::Prepend, None),
            StoreVerb::Cas(token) => (StoreMode::Set, Some(token)),
        };
        let store = Store {
            value: request.data,
            flags: request.flags,
            expiry: expiry(request.exptime, self.now.seconds),
            mode,
            vivify: false,
            compare,
            explicit_cas: None,
            invalidate: false,
            cas: false,
        };
        let old = self.session.old.as_ref();
        let stored = self.seat.worker.store(request.key, hash, self.now.seconds, &store, old);
        let reply = match stored {
            Stored::Busy => return self.wait_for_buffer(),
            Stored::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Stored::Stored { .. } => encode::STORED,
            Stored::NotStored => encode::NOT_STORED,
            Stored::Exists => encode::EXISTS,
            Stored::NotFound => encode::NOT_FOUND,
            Stored::TooLarge => encode::TOO_LARGE,
            Stored::NoMemory => encode::NO_MEMORY_STORING,
        };
        self.count_store(&stored, compare.is_some());
        self.seat.tenant.detail.count(request.key, Event::Set);
        if mode == StoreMode::Set && matches!(stored, Stored::TooLarge | Stored::NoMemory) {
            self.discard(Key::Text(request.key));
        }
        self.reply(request.noreply, reply)
    }

    /// Counts a finished store.
    pub(super) fn count_store(&self, stored: &Stored, compared: bool) {
        let counters = &self.seat.counters;
        // A store that finds no room has not begun, to memcached.
        if !matches!(stored, Stored::TooLarge | Stored::NoMemory) {
            counters.cmd_set.count();
        }
        match stored {
            Stored::Stored { .. } if compared => counters.cas_hits.count(),
            Stored::Exists => counters.cas_badval.count(),
            Stored::NotFound if compared => counters.cas_misses.count(),
            Stored::TooLarge => counters.store_too_large.count(),
            Stored::NoMemory => counters.store_no_memory.count(),
            _ => {}
        }
    }

    /// Drops the item whose new value was refused: no value is better than the old one.
    pub(super) fn discard(&mut self, key: Key<'_>) {
        let key = key.resolve(self.key);
        let hash = self.seat.worker.hash(key);
        let now = self.now.seconds;
        self.seat.worker.delete(key, hash, now, &DeleteOptions::default(), None);
    }

    pub(super) fn delete(
        &mut self,
        request: &entresol_protocol::Delete<'_>,
        hash: KeyHash,
    ) -> Flow {
        let options = DeleteOptions::default();
        let old = self.session.old.as_ref();
        let now = self.now.seconds;
        let reply = match self.seat.worker.delete(request.key, hash, now, &options, old) {
            Deleted::Busy => return self.wait_for_buffer(),
            Deleted::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Deleted::Deleted => {
                self.seat.counters.delete_hits.count();
                self.seat.tenant.detail.count(request.key, Event::Delete);
                encode::DELETED
            }
            Deleted::NotFound | Deleted::Exists => {
                self.seat.counters.delete_misses.count();
                encode::NOT_FOUND
            }
            Deleted::NoMemory => encode::NO_MEMORY_STORING,
        };
        self.reply(request.noreply, reply)
    }

    pub(super) fn arithmetic(
        &mut self,
        request: &entresol_protocol::Arithmetic<'_>,
        hash: KeyHash,
    ) -> Flow {
        let arithmetic = Arithmetic {
            delta: request.delta,
            down: request.down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        let old = self.session.old.as_ref();
        let now = self.now.seconds;
        let counted = self.seat.worker.arithmetic(request.key, hash, now, &arithmetic, old);
        let reply = match counted {
            Counted::Busy => return self.wait_for_buffer(),
            Counted::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Counted::Value { number, .. } => {
                self.count_arithmetic(request.down, true);
                if !request.noreply {
                    encode::counter(&mut self.out.bytes, number);
                }
                return Flow::Done;
            }
            Counted::NotFound => {
                self.count_arithmetic(request.down, false);
                encode::NOT_FOUND
            }
            Counted::NotNumeric => encode::NON_NUMERIC,
            Counted::Exists => encode::EXISTS,
            Counted::NoMemory => encode::NO_MEMORY_COUNTING,
        };
        self.reply(request.noreply, reply)
    }

    pub(super) fn count_arithmetic(&self, down: bool, hit: bool) {
        let counters = &self.seat.counters;
        match (down, hit) {
            (false, true) => counters.incr_hits.count(),
            (false, false) => counters.incr_misses.count(),
            (true, true) => counters.decr_hits.count(),
            (true, false) => counters.decr_misses.count(),
        }
    }
}
