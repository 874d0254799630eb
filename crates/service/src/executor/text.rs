//! Classic commands that change an item: stores, touch, delete, incr and decr.

use entresol_base::Seconds;
use entresol_cache::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, GetOptions, Lookup, Store, StoreMode,
    Stored,
};
use entresol_protocol::encode;
use entresol_protocol::{Exptime, Lifetime, StoreVerb, Touch};

use super::{Command, Flow, Then};
use crate::detail::Event;

/// Translates a request's expiry time for the cache.
pub(super) fn expiry(exptime: Exptime, now: Seconds) -> Expiry {
    match exptime.lifetime(now) {
        Lifetime::Forever => Expiry::Never,
        Lifetime::Over => Expiry::Immediately,
        Lifetime::Until(second) => Expiry::At(second),
    }
}

/// Translates a storage command for the cache.
pub(super) fn store<'a>(request: &entresol_protocol::Store<'a>, now: Seconds) -> Store<'a> {
    let (mode, compare) = match request.verb {
        StoreVerb::Set => (StoreMode::Set, None),
        StoreVerb::Add => (StoreMode::Add, None),
        StoreVerb::Replace => (StoreMode::Replace, None),
        StoreVerb::Append => (StoreMode::Append, None),
        StoreVerb::Prepend => (StoreMode::Prepend, None),
        StoreVerb::Cas(token) => (StoreMode::Set, Some(token)),
    };
    Store {
        value: request.data,
        flags: request.flags,
        expiry: expiry(request.exptime, now),
        mode,
        vivify: false,
        compare,
        explicit_cas: None,
        invalidate: false,
        cas: false,
    }
}

impl Command<'_> {
    pub(super) fn store(&mut self, request: &entresol_protocol::Store<'_>) -> Flow {
        if self.seat.null_store.is_some() {
            return self.out.reply(request.noreply, encode::STORED);
        }
        let store = store(request, self.now.seconds);
        let stored = self.send(request.key, &store);
        let reply = match stored {
            Stored::Busy => return self.wait_for_buffer(),
            Stored::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Stored::Unfinished => return self.put_off(),
            Stored::Stored { .. } => encode::STORED,
            Stored::NotStored => encode::NOT_STORED,
            Stored::Exists => encode::EXISTS,
            Stored::NotFound => encode::NOT_FOUND,
            Stored::TooLarge => encode::TOO_LARGE,
            Stored::NoMemory => encode::NO_MEMORY_STORING,
        };
        self.seat.counters.count_store(&stored, store.compare.is_some());
        self.seat.tenant.detail.count(request.key, Event::Set);
        self.out.reply(request.noreply, reply)
    }

    pub(super) fn touch(&mut self, touch: &Touch<'_>) -> Flow {
        let options = GetOptions {
            value: false,
            touch: Some(expiry(touch.exptime, self.now.seconds)),
            ..GetOptions::default()
        };
        let now = self.now.seconds;
        let bytes = &mut self.out.bytes;
        let lookup = self.seat.worker.get(touch.key, self.hash, now, &options, bytes, |_, _| {});
        let found = !matches!(lookup, Lookup::Miss);
        self.seat.counters.count_lookup(true, found);
        self.out.reply(touch.noreply, if found { encode::TOUCHED } else { encode::NOT_FOUND })
    }

    pub(super) fn delete(&mut self, request: &entresol_protocol::Delete<'_>) -> Flow {
        let options = DeleteOptions::default();
        let (key, now) = (request.key, self.now.seconds);
        let reply = match self.seat.worker.delete(key, self.hash, now, &options, self.old) {
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
        self.out.reply(request.noreply, reply)
    }

    pub(super) fn arithmetic(&mut self, request: &entresol_protocol::Arithmetic<'_>) -> Flow {
        let arithmetic = Arithmetic {
            delta: request.delta,
            down: request.down,
            compare: None,
            explicit_cas: None,
            touch: None,
            vivify: None,
            cas: false,
        };
        let (key, now) = (request.key, self.now.seconds);
        let counted = self.seat.worker.arithmetic(key, self.hash, now, &arithmetic, self.old);
        let reply = match counted {
            Counted::Busy => return self.wait_for_buffer(),
            Counted::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Counted::Value { number, .. } => {
                self.seat.counters.count_arithmetic(request.down, true);
                if !request.noreply {
                    encode::counter(&mut self.out.bytes, number);
                }
                return Flow::Done;
            }
            Counted::NotFound => {
                self.seat.counters.count_arithmetic(request.down, false);
                encode::NOT_FOUND
            }
            Counted::NotNumeric => encode::NON_NUMERIC,
            Counted::Exists => encode::EXISTS,
            Counted::NoMemory => encode::NO_MEMORY_COUNTING,
        };
        self.out.reply(request.noreply, reply)
    }
}
