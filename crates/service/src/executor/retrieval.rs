//! Retrieval commands, the hit path: get, gets, gat and gats.

use entresol_cache::{GetOptions, KeyHash, Lookup};
use entresol_protocol::encode::{self, ValueFacts};
use entresol_protocol::{Exptime, Keys, Request};

use super::text::expiry;
use super::{Call, Flow};
use crate::detail::Event;

impl Call<'_> {
    /// Ends the reply to a retrieval whose line has been answered to its end.
    #[inline]
    pub(super) fn end_retrieval(&mut self, request: &Request<'_>) {
        if matches!(request, Request::Get { .. } | Request::GetAndTouch { .. }) {
            self.out.bytes.extend_from_slice(encode::END);
        }
    }

    /// Answers the keys of one request or portion of it, from the first that is not answered yet.
    #[inline]
    pub(super) fn get(
        &mut self,
        keys: Keys<'_>,
        cas: bool,
        touch: Option<Exptime>,
        hashes: &[KeyHash],
    ) -> Flow {
        let touch = touch.map(|exptime| expiry(exptime, self.now.seconds));
        let options = GetOptions { cas, touch, pin: true, ..GetOptions::default() };
        let first = self.session.keys_done;
        let count = hashes.len();
        debug_assert!(first <= count, "{first} keys of a request for {count} are answered already");
        for (index, (key, hash)) in keys.zip(hashes).enumerate().skip(first) {
            if index > first {
                if let Some(stop) = self.may_not_start() {
                    self.session.keys_done = index;
                    return Flow::Stop(stop);
                }
                *self.left -= 1;
            }
            self.get_one(key, *hash, &options);
        }
        Flow::Done
    }

    #[inline]
    fn get_one(&mut self, key: &[u8], hash: KeyHash, options: &GetOptions) {
        if let Some(null_store) = &self.seat.null_store {
            let value_len = null_store.value.len() as u32;
            let facts = ValueFacts { flags: 0, value_len, cas: None };
            encode::value_header(&mut self.out.bytes, key, facts);
            self.out.bytes.extend_from_slice(&null_store.value);
            self.out.bytes.extend_from_slice(encode::CRLF);
            return self.seat.counters.count_lookup(false, true);
        }
        let start = self.out.bytes.len();
        let cas = options.cas;
        let now = self.now.seconds;
        let lookup =
            self.seat.worker.get(key, hash, now, options, &mut self.out.bytes, |meta, out| {
                let facts = ValueFacts {
                    flags: meta.flags,
                    value_len: meta.value_len,
                    cas: cas.then_some(meta.cas),
                };
                encode::value_header(out, key, facts);
            });
        let touch = options.touch.is_some();
        match lookup {
            Lookup::Hit(_) => {
                let is_over = match self.seat.worker.take_pinned() {
                    Some(value) => self.out.add_value(value, start, touch, Vec::new),
                    None => {
                        self.out.bytes.extend_from_slice(encode::CRLF);
                        true
                    }
                };
                if is_over {
                    self.seat.counters.count_lookup(touch, true);
                }
                self.seat.tenant.detail.count(key, Event::Hit);
            }
            Lookup::Miss => {
                self.seat.counters.count_lookup(touch, false);
                self.seat.tenant.detail.count(key, Event::Miss);
            }
            Lookup::Pending(read) => {
                self.seat.tenant.detail.count(key, Event::Hit);
                self.out.add_hole(read, start, touch, Vec::new());
            }
        }
    }
}
