//! Lists of keys: `lru_crawler metadump` and `mgdump`.
//!
//! A list is worked through a few buckets of the index at a time, so that it holds up no other
//! client, needs no memory of its own, and stops while its client takes no replies.

use entresol_base::Seconds;
use entresol_cache::{Expiry, ItemMeta, Walk, Worker};
use entresol_protocol::encode::{self, DumpFacts};

use super::meta::total_bytes;
use super::{Flow, Then};
use crate::listing::{Form, Listing};
use crate::moment::Now;
use crate::tenant::Tenant;

/// Buckets visited in a turn: with what their items take to write, some 20 us.
const BUCKETS_PER_TURN: usize = 32;

/// Context of a request for a list of keys.
pub(super) struct KeyList<'c> {
    pub(super) tenant: &'c Tenant,
    pub(super) worker: &'c mut Worker,
    /// Position of the list, once it has begun.
    pub(super) walk: &'c mut Option<Walk>,
    pub(super) out: &'c mut Vec<u8>,
    pub(super) now: Now,
}

impl KeyList<'_> {
    /// Lists the next keys, if the tenant may list any.
    pub(super) fn go_on(mut self, argument: &[u8]) -> Flow {
        let listing = match Listing::of(argument) {
            Ok(listing) => listing,
            Err(refusal) => return self.end(refusal),
        };
        let keys_per_second = self.tenant.settings().keys_listed_per_second;
        if keys_per_second == 0 && self.walk.is_none() {
            return self.end(encode::CRAWLER_DISABLED);
        }
        if let Some(until) = self.tenant.listing_pace.wait(self.now.nanos) {
            return Flow::Stop(Then::Park { until });
        }
        // The configuration may have changed since the list was begun.
        if keys_per_second == 0 || !listing.has_items {
            return self.end(listing.end());
        }
        let (keys, goes_on) = self.list_buckets(listing.form);
        self.tenant.listing_pace.note(keys, keys_per_second, self.now.nanos);
        if goes_on { Flow::Stop(Then::Yield) } else { self.end(listing.end()) }
    }

    fn end(self, line: &[u8]) -> Flow {
        *self.walk = None;
        self.out.extend_from_slice(line);
        Flow::Done
    }

    /// Lists the keys of some buckets. Returns how many, and true if there are more buckets.
    fn list_buckets(&mut self, form: Form) -> (u64, bool) {
        let (now, mut keys) = (self.now.seconds, 0);
        let mut walk = self.walk.unwrap_or_default();
        for _ in 0..BUCKETS_PER_TURN {
            let next = self.worker.walk(walk, now, |key, meta| {
                keys += 1;
                match form {
                    Form::Metadump => encode::metadump(self.out, key, &facts(key, meta, now)),
                    Form::Mgdump => encode::mgdump(self.out, key),
                }
            });
            let Some(next) = next else { return (keys, false) };
            walk = next;
        }
        *self.walk = Some(walk);
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
