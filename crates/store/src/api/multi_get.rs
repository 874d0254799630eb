//! Reads of several keys. The reads of all values that lie on disks begin before the first is
//! waited for.

use crate::engine::Core;
use crate::types::{KvsId, RecordPlace, ValuePlace};
use crate::version::view::View;
use crate::{Snapshot, StoreError};

/// Keys that are looked up before the first value is waited for. It bounds the reads that a disk
/// has to do at once and, times `BEGUN_BYTES_MAX`, the memory for their values.
const KEYS_AT_ONCE: usize = 32;
/// Most bytes of a record that is read ahead. A larger one keeps the disk busy by itself, and is
/// read when its turn comes.
const BEGUN_BYTES_MAX: u32 = 64 << 10;

/// Result of looking a key up.
enum Lookup {
    /// The key does not exist.
    Nothing,
    /// The value was appended.
    Here,
    /// The value lies in a record that must be read.
    Apart(RecordPlace),
}

/// A value whose record must be read.
struct Awaited {
    place: RecordPlace,
    /// Index of the key it belongs to.
    number: usize,
    /// `None` if the read was not begun, otherwise true if the record was in memory and is read
    /// already.
    is_read: Option<bool>,
}

/// Returns the values of keys in a snapshot, in the order of the keys.
///
/// # Errors
/// Fails if a disk fails, or if the data read are damaged.
pub(crate) fn multi_get(
    core: &Core,
    snapshot: &Snapshot,
    kvs: KvsId,
    keys: &[&[u8]],
) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
    let mut values = Vec::with_capacity(keys.len());
    for keys in keys.chunks(KEYS_AT_ONCE) {
        get_some(core, snapshot, kvs, keys, &mut values)?;
    }
    Ok(values)
}

fn get_some(
    core: &Core,
    snapshot: &Snapshot,
    kvs: KvsId,
    keys: &[&[u8]],
    values: &mut Vec<Option<Vec<u8>>>,
) -> Result<(), StoreError> {
    let (view, _) = snapshot.parts();
    let (first, mut awaited) = (values.len(), Vec::new());
    for key in keys {
        let mut value = Vec::new();
        let found = find_in_snapshot(core, snapshot, kvs, key, &mut value)?;
        if let Lookup::Apart(place) = found {
            let is_read = match keys.len() {
                // With a single key there is nothing to do during the read.
                1 => None,
                _ => begin(view, place, &mut value)?,
            };
            awaited.push(Awaited { place, number: values.len(), is_read });
        }
        values.push((!matches!(found, Lookup::Nothing)).then_some(value));
    }
    for Awaited { place, number, is_read } in awaited {
        let (Some(key), Some(Some(value))) = (keys.get(number - first), values.get_mut(number))
        else {
            continue;
        };
        let (segment, name) = (view.segment(place.segment)?, (kvs, *key));
        let value_bytes = match is_read {
            None => segment.append_value_of(place, name, value)?,
            Some(is_read) => segment.append_value_begun(place, name, is_read, value)?,
        };
        // The value ends the record, and all before it is dropped.
        value.drain(..value.len() - value_bytes);
        core.count_read(view, kvs, key, place);
    }
    Ok(())
}

/// Looks a key up in a snapshot. A value that is in memory or beside its key is appended to
/// `out`.
fn find_in_snapshot(
    core: &Core,
    snapshot: &Snapshot,
    kvs: KvsId,
    key: &[u8],
    out: &mut Vec<u8>,
) -> Result<Lookup, StoreError> {
    let (view, at) = snapshot.parts();
    if let Some(cached) = core.caches.entries.find(&core.caches.entries.name(kvs, key), at, out) {
        return Ok(match core.files.time.has_ended_at(cached.expiry, Some(snapshot.seconds())) {
            true => Lookup::Nothing,
            false => Lookup::Here,
        });
    }
    let version = core.find(view, kvs, key, (at, Some(snapshot.seconds())), out)?;
    Ok(match version.map(|version| version.value) {
        None | Some(ValuePlace::Gone) => Lookup::Nothing,
        Some(ValuePlace::Here) => Lookup::Here,
        Some(ValuePlace::Apart(place)) => Lookup::Apart(place),
    })
}

/// Begins to read a record if that may take time. Returns `Some(true)` if the record was appended
/// to `out` already.
fn begin(view: &View, place: RecordPlace, out: &mut Vec<u8>) -> Result<Option<bool>, StoreError> {
    let segment = view.segment(place.segment)?;
    let is_wanted = place.bytes <= BEGUN_BYTES_MAX && segment.may_wait();
    Ok(is_wanted.then(|| segment.try_record(place, out)))
}
