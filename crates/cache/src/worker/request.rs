//! Requests to store, as records and as conditions of their publication.

use entresol_base::{Seconds, mutation_site};

use crate::ops::{Expiry, Store, StoreMode};
use crate::record::{NewRecord, mark};
use crate::shared::items::Refusal;
use crate::shared::records::Records;
use crate::shared::space::Seen;
use crate::worker::pin::Part;

/// Returns an old value and one that is appended or prepended to it, in their order.
pub(super) fn in_order<'a>(mode: StoreMode, old: Part<'a>, new: Part<'a>) -> [Part<'a>; 2] {
    if mode == StoreMode::Append { [old, new] } else { [new, old] }
}

/// Builds the record of a value that does not depend on an old one.
#[inline(always)]
pub(super) fn new_record<'a>(
    key: &'a [u8],
    now: Seconds,
    store: &Store<'_>,
    marks: u32,
) -> NewRecord<'a> {
    NewRecord {
        key,
        value_len: store.value.len(),
        client_flags: store.flags,
        expiry: record_expiry(store.expiry, now),
        cas: store.explicit_cas,
        marks: marks | seen_mark(store.cas),
        last_access: now,
    }
}

/// Checks the conditions of set, add, replace and their comparing forms.
pub(super) fn condition(store: &Store<'_>, seen: &Seen, records: &Records) -> Result<(), Refusal> {
    let Seen::Live(found, head) = seen else {
        return match store.mode {
            StoreMode::Set | StoreMode::Replace if store.compare.is_some() => {
                Err(Refusal::NotFound)
            }
            StoreMode::Replace => Err(Refusal::NotStored),
            _ => Ok(()),
        };
    };
    if store.mode == StoreMode::Add {
        return Err(Refusal::NotStored);
    }
    let differs = |given| given != records.cas_of(found.location(), head);
    if store.compare.is_some_and(differs) && !mutation_site!("a token of another item is refused") {
        return Err(Refusal::Exists);
    }
    Ok(())
}

/// Returns the mark of a record whose token a client will know.
pub(super) fn seen_mark(told: bool) -> u32 {
    if told { mark::CAS_SEEN } else { 0 }
}

/// Returns the expiry that a record keeps; a time already past becomes the present second.
pub(super) fn record_expiry(expiry: Expiry, now: Seconds) -> Option<Seconds> {
    match expiry {
        Expiry::Never => None,
        Expiry::At(second) => Some(second),
        Expiry::Immediately => Some(now),
    }
}
