//! Meta commands: mg, ms, md, ma and me.

use entresol_base::Seconds;
use entresol_cache::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, GetOptions, ItemMeta, Lookup, PendingRead,
    Store, StoreMode, Stored,
};
use entresol_protocol::encode::{self, DebugFacts, MetaFacts, Status, Win};
use entresol_protocol::{
    FlagTokens, Key, KeyBuffer, MetaArithmetic, MetaDebug, MetaDelete, MetaGet, MetaSet,
    MetaStoreMode,
};

use super::arrival::Arrived;
use super::text::expiry;
use super::{Command, Flow, Then};
use crate::detail::Event;

/// Translates a meta set for the cache.
pub(super) fn store<'a>(request: &MetaSet<'a>, now: Seconds) -> Store<'a> {
    let mode = match request.mode {
        MetaStoreMode::Set => StoreMode::Set,
        MetaStoreMode::Add => StoreMode::Add,
        MetaStoreMode::Replace => StoreMode::Replace,
        MetaStoreMode::Append => StoreMode::Append,
        MetaStoreMode::Prepend => StoreMode::Prepend,
    };
    let joins = matches!(mode, StoreMode::Append | StoreMode::Prepend);
    let vivify = request.vivify.filter(|_| joins);
    Store {
        value: request.data,
        flags: request.flags,
        expiry: expiry(vivify.unwrap_or(request.exptime), now),
        mode,
        vivify: vivify.is_some(),
        // An add stores only where there is no item, so there is no token to compare with.
        compare: request.compare.filter(|_| mode != StoreMode::Add),
        explicit_cas: told(request.explicit_cas),
        invalidate: request.invalidate,
        cas: asks_for(request.tokens, b'c'),
    }
}

impl Command<'_> {
    pub(super) fn meta_get(&mut self, request: &MetaGet<'_>) -> Flow {
        self.seat.counters.cmd_meta.count();
        let now = self.now.seconds;
        let touch = request.touch.map(|exptime| expiry(exptime, now));
        let options = get_options(request, touch, now);
        let reported = Reported { touch, vivify: options.vivify, tokens: request.tokens, now };
        let start = self.out.bytes.len();
        // A buffer takes time to clear, and few keys need one.
        let mut buffer;
        let key = match request.key {
            Key::Text(key) => key,
            key => {
                buffer = KeyBuffer::default();
                key.resolve(&mut buffer)
            }
        };
        let bytes = &mut self.out.bytes;
        let lookup = self.seat.worker.get(key, self.hash, now, &options, bytes, |meta, out| {
            encode::meta_get_header(out, request, &reported.facts(meta));
        });
        let pinned = self.seat.worker.take_pinned();
        if let Lookup::Hit(meta) | Lookup::Pending(PendingRead { meta, .. }) = &lookup
            && request.value
            && request.compare == Some(meta.cas)
        {
            // The client already has this value and gets the facts alone.
            self.out.bytes.truncate(start);
            let bare = MetaGet { value: false, ..*request };
            encode::meta_get_header(&mut self.out.bytes, &bare, &reported.facts(meta));
            self.seat.counters.count_lookup(touch.is_some(), true);
            return Flow::Done;
        }
        self.seat.tenant.detail.count(key, Event::of(&lookup));
        let miss = || {
            let mut miss = Vec::new();
            if !request.quiet {
                encode::meta_status(&mut miss, Status::Miss, request.key, request.tokens);
            }
            miss
        };
        match lookup {
            Lookup::Hit(_) => {
                if let Some(value) = pinned {
                    if !self.out.add_value(value, start, touch.is_some(), miss) {
                        return Flow::Done;
                    }
                } else if request.value {
                    self.out.bytes.extend_from_slice(encode::CRLF);
                }
                self.seat.counters.count_lookup(touch.is_some(), true);
            }
            Lookup::Miss => {
                self.seat.counters.count_lookup(touch.is_some(), false);
                if !request.quiet {
                    let tokens = request.tokens;
                    encode::meta_status(&mut self.out.bytes, Status::Miss, request.key, tokens);
                }
            }
            Lookup::Pending(read) => self.out.add_hole(read, start, touch.is_some(), miss()),
        }
        Flow::Done
    }

    pub(super) fn meta_set(&mut self, request: &MetaSet<'_>) -> Flow {
        let store = store(request, self.now.seconds);
        let joins = matches!(store.mode, StoreMode::Append | StoreMode::Prepend);
        let mut buffer = KeyBuffer::default();
        let key = request.key.resolve(&mut buffer);
        let value_len = self.arrived.as_ref().and_then(Arrived::len);
        let value_len = value_len.unwrap_or(request.data.len()) as u32;
        let stored = self.send(key, &store);
        let mut facts = MetaFacts { value_len, ..MetaFacts::default() };
        let status = match stored {
            Stored::Busy => return self.wait_for_buffer(),
            Stored::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Stored::Unfinished => return self.put_off(),
            Stored::Stored { cas } => {
                facts.cas = cas;
                if joins && asks_for(request.tokens, b's') {
                    facts.value_len = self.whole_length(key, facts.value_len);
                }
                Status::Done
            }
            Stored::NotStored => Status::NotStored,
            Stored::Exists => Status::Exists,
            // Without an item there is nothing to join to, whatever token was expected.
            Stored::NotFound if joins => Status::NotStored,
            Stored::NotFound => Status::NotFound,
            Stored::TooLarge | Stored::NoMemory => {
                self.seat.counters.count_store(&stored, false);
                // As in memcached, which finds room for what was sent before it looks at the item.
                if !joins {
                    self.seat.discard(request.key, self.key, self.now.seconds);
                }
                let too_large = matches!(stored, Stored::TooLarge);
                let reply = if too_large { encode::TOO_LARGE } else { encode::NO_MEMORY_STORING };
                return self.out.reply(false, reply);
            }
        };
        self.seat.counters.cmd_meta.count();
        self.seat.counters.count_store(&stored, store.compare.is_some());
        self.seat.tenant.detail.count(key, Event::Set);
        if !(request.quiet && status == Status::Done) {
            encode::meta_set(&mut self.out.bytes, status, request, &facts);
        }
        Flow::Done
    }

    /// Length of a value after an append or prepend; `sent` if the item is no longer there.
    fn whole_length(&mut self, key: &[u8], sent: u32) -> u32 {
        let options = GetOptions { value: false, no_bump: true, ..GetOptions::default() };
        let bytes = &mut self.out.bytes;
        match self.seat.worker.get(key, self.hash, self.now.seconds, &options, bytes, |_, _| {}) {
            Lookup::Hit(meta) => meta.value_len,
            Lookup::Pending(read) => read.meta.value_len,
            Lookup::Miss => sent,
        }
    }

    pub(super) fn meta_delete(&mut self, request: &MetaDelete<'_>) -> Flow {
        let now = self.now.seconds;
        let options = DeleteOptions {
            compare: told(request.compare),
            invalidate: request.invalidate,
            touch: request.touch.map(|exptime| expiry(exptime, now)),
            remove_value: request.remove_value,
            explicit_cas: told(request.explicit_cas),
        };
        let key = request.key.resolve(self.key);
        let status = match self.seat.worker.delete(key, self.hash, now, &options, self.old) {
            Deleted::Busy => return self.wait_for_buffer(),
            Deleted::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Deleted::Deleted => Status::Done,
            Deleted::NotFound => Status::NotFound,
            Deleted::Exists => Status::Exists,
            Deleted::NoMemory => return self.out.reply(false, encode::NO_MEMORY_STORING),
        };
        let counters = &self.seat.counters;
        counters.cmd_meta.count();
        match status {
            Status::Done => {
                counters.delete_hits.count();
                self.seat.tenant.detail.count(key, Event::Delete);
            }
            _ => counters.delete_misses.count(),
        }
        if !(request.quiet && status == Status::Done) {
            encode::meta_status(&mut self.out.bytes, status, request.key, request.tokens);
        }
        Flow::Done
    }

    pub(super) fn meta_arithmetic(&mut self, request: &MetaArithmetic<'_>) -> Flow {
        let now = self.now.seconds;
        let touch = request.touch.map(|exptime| expiry(exptime, now));
        let arithmetic = Arithmetic {
            delta: request.delta,
            down: request.down,
            compare: told(request.compare),
            explicit_cas: told(request.explicit_cas),
            touch,
            vivify: request.vivify.map(|exptime| (request.initial, expiry(exptime, now))),
            cas: asks_for(request.tokens, b'c'),
        };
        let key = request.key.resolve(self.key);
        let status = match self.seat.worker.arithmetic(key, self.hash, now, &arithmetic, self.old) {
            Counted::Busy => return self.wait_for_buffer(),
            Counted::Pending(read) => return Flow::Stop(Then::Fetch(read)),
            Counted::Value { number, meta } => {
                self.seat.counters.cmd_meta.count();
                self.seat.counters.count_arithmetic(request.down, true);
                if !request.quiet {
                    let vivify = arithmetic
                        .vivify
                        .filter(|(initial, _)| *initial == number)
                        .map(|(_, expiry)| expiry);
                    let reported = Reported { touch: None, vivify, tokens: request.tokens, now };
                    let facts = reported.facts(&meta);
                    encode::meta_arithmetic(&mut self.out.bytes, request, number, &facts);
                }
                return Flow::Done;
            }
            Counted::NotFound => Status::NotFound,
            Counted::Exists => Status::Exists,
            Counted::NotNumeric => return self.out.reply(false, encode::NON_NUMERIC),
            Counted::NoMemory => return self.out.reply(false, encode::NO_MEMORY_COUNTING),
        };
        self.seat.counters.cmd_meta.count();
        self.seat.counters.count_arithmetic(request.down, false);
        encode::meta_status(&mut self.out.bytes, status, request.key, request.tokens);
        Flow::Done
    }

    pub(super) fn meta_debug(&mut self, request: &MetaDebug<'_>) -> Flow {
        self.seat.counters.cmd_meta.count();
        let now = self.now.seconds;
        let options =
            GetOptions { value: false, cas: true, no_bump: true, ..GetOptions::default() };
        let mut buffer = KeyBuffer::default();
        let key = request.key.resolve(&mut buffer);
        let bytes = &mut self.out.bytes;
        let none = FlagTokens::default();
        let lookup = self.seat.worker.get(key, self.hash, now, &options, bytes, |meta, out| {
            let facts = Reported { touch: None, vivify: None, tokens: none, now }.facts(meta);
            let total_bytes = total_bytes(key, meta);
            encode::meta_debug(out, request.key, &facts, &DebugFacts { class: 1, total_bytes });
        });
        if matches!(lookup, Lookup::Miss) {
            encode::meta_status(&mut self.out.bytes, Status::Miss, request.key, none);
        }
        Flow::Done
    }
}

/// Bytes that are reported for an item besides key and value: its index slot and its header.
const ITEM_OVERHEAD_BYTES: u64 = 16;

/// Bytes that an item takes.
pub(super) fn total_bytes(key: &[u8], meta: &ItemMeta) -> u64 {
    key.len() as u64 + u64::from(meta.value_len) + ITEM_OVERHEAD_BYTES
}

/// Circumstances under which an item is reported to one request.
#[derive(Clone, Copy)]
struct Reported<'a> {
    /// Expiry that the request sets.
    touch: Option<Expiry>,
    /// Expiry of an item that the request may have created.
    vivify: Option<Expiry>,
    tokens: FlagTokens<'a>,
    now: Seconds,
}

impl Reported<'_> {
    fn facts(&self, meta: &ItemMeta) -> MetaFacts {
        MetaFacts {
            value_len: meta.value_len,
            flags: meta.flags,
            cas: meta.cas,
            ttl_s: self.ttl_s(meta),
            last_access_s: meta.last_access_s,
            fetched: meta.fetched,
            stale: meta.stale,
            win: match meta.win {
                entresol_cache::Win::None => Win::None,
                entresol_cache::Win::Won => Win::Won,
                entresol_cache::Win::AlreadySent => Win::AlreadySent,
            },
        }
    }

    /// Time to live as the order of flags makes it: `T30 t` reports the new one, `t T30` the old
    /// one. With `t N30` an item just created has none yet.
    fn ttl_s(&self, meta: &ItemMeta) -> Option<u32> {
        let place = |flag: u8| self.tokens.iter().position(|t| t.first() == Some(&flag));
        let created = !meta.stale && !meta.fetched && self.vivify == Some(meta.expiry);
        let expiry = match self.touch {
            Some(touch) if place(b'T') < place(b't') => touch,
            _ if created && place(b't') < place(b'N') => Expiry::Never,
            _ => meta.expiry,
        };
        match expiry {
            Expiry::Never => None,
            other => Some(seconds_until(other, self.now)),
        }
    }
}

/// Returns the options of the cache for a meta get.
fn get_options(request: &MetaGet<'_>, touch: Option<Expiry>, now: Seconds) -> GetOptions {
    GetOptions {
        value: request.value,
        pin: true,
        cas: request.cas || request.compare.is_some(),
        touch,
        no_bump: request.no_bump,
        win: true,
        vivify: request.vivify.map(|exptime| expiry(exptime, now)),
        recache_below_s: request.recache.map(|it| seconds_until(expiry(it, now), now)),
        explicit_cas: told(request.explicit_cas),
    }
}

/// Token that a client gives an item or compares with. 0 means none, except in the comparison of a
/// store: no item has it.
fn told(token: Option<u64>) -> Option<u64> {
    token.filter(|token| *token != 0)
}

/// Returns true if the reply must hold the fact of this flag.
fn asks_for(tokens: FlagTokens<'_>, flag: u8) -> bool {
    tokens.iter().any(|token| token.first() == Some(&flag))
}

fn seconds_until(expiry: Expiry, now: Seconds) -> u32 {
    match expiry {
        Expiry::Never => u32::MAX,
        Expiry::At(second) => second.0.saturating_sub(now.0),
        Expiry::Immediately => 0,
    }
}
