//! Lists of keys: `lru_crawler metadump` and `mgdump`.
//!
//! A list is worked through a few buckets of the index at a time, so that it holds up no other
//! client, needs no memory of its own, and stops while its client takes no replies.

use entresol_base::Seconds;
use entresol_cache::{Expiry, ItemMeta};
use entresol_protocol::encode::{self, DumpFacts};

use super::meta::total_bytes;
use super::{Call, Flow, Then};
use crate::listing::{Form, Listing};

/// Buckets visited in a turn: with what their items take to write, some 20 us.
const BUCKETS_PER_TURN: usize = 32;

impl Call<'_> {
    /// Lists the next keys, if the tenant may list any.
    pub(super) fn list_keys(&mut self, argument: &[u8]) -> Flow {
        let listing = match Listing::of(argument) {
            Ok(listing) => listing,
            Err(refusal) => return self.reply(false, refusal),
        };
        let keys_per_second = self.seat.tenant.settings().keys_listed_per_second;
        if keys_per_second == 0 && self.session.listing.is_none() {
            return self.reply(false, encode::CRAWLER_DISABLED);
        }
        if let Some(until) = self.seat.tenant.listing_pace.wait(self.now.nanos) {
            return Flow::Stop(Then::Park { until });
        }
        // The configuration may have changed since the list was begun.
        if keys_per_second == 0 || !listing.has_items {
            return self.end_listing(listing);
        }
        let (keys, goes_on) = self.list_buckets(listing.form);
        self.seat.tenant.listing_pace.note(keys, keys_per_second, self.now.nanos);
        *self.bytes_left = 0;
        if goes_on { Flow::Stop(Then::Yield) } else { self.end_listing(listing) }
    }

    fn end_listing(&mut self, listing: Listing) -> Flow {
        self.session.listing = None;
        self.reply(false, listing.end())
    }

    /// Lists the keys of some buckets. Returns how many, and true if there are more buckets.
    fn list_buckets(&mut self, form: Form) -> (u64, bool) {
        let now = self.now.seconds;
        let (out, mut keys) = (&mut self.out.bytes, 0);
        let mut walk = self.session.listing.unwrap_or_default();
        for _ in 0..BUCKETS_PER_TURN {
            let next = self.seat.worker.walk(walk, now, |key, meta| {
                keys += 1;
                match form {
                    Form::Metadump => encode::metadump(out, key, &facts(key, meta, now)),
                    Form::Mgdump => encode::mgdump(out, key),
                }
            });
            let Some(next) = next else { return (keys, false) };
            walk = next;
        }
        self.session.listing = Some(walk);
        (keys, true)
    }
}

fn facts(key: &[u8], meta: &ItemMeta, now: Seconds) -> DumpFacts {
    DumpFacts {
        expires_at_s: match meta.expiry {
            Expiry::Never => None,
            Expiry::At(second) => Some(second.0.into()),
            Expiry::Immediately => Some(now.0.into()),
        },
        accessed_at_s: now.0.saturating_sub(meta.last_access_s).into(),
        cas: meta.cas,
        fetched: meta.fetched,
        class: 1,
        total_bytes: total_bytes(key, meta),
        flags: meta.flags,
    }
}
