//! Reads of several keys: of values that lie on disks all reads are begun before the first is
//! waited for.

use crate::types::{KvsId, RecordPlace, ValuePlace};
use crate::version::core::Core;
use crate::version::view::View;
use crate::{Snapshot, StoreError};

/// So many keys are looked for before the first value is waited for: what a disk has to do at once,
/// and, times the next, what memory holds for it.
const KEYS_AT_ONCE: usize = 32;
/// Larger values are read when it is their turn: the disk is busy with one for long enough.
const BEGUN_BYTES_MAX: u32 = 64 << 10;

/// What is known of a key.
enum Found {
    /// It is not there.
    Nothing,
    /// Its value was appended.
    Here,
    /// Its value is in a record.
    Apart(RecordPlace),
}

/// A value of which the record is to be read.
struct Awaited {
    place: RecordPlace,
    /// Which of the keys it belongs to.
    number: usize,
    /// Whether the disk was told, and if so, whether the record was in memory and was read by that.
    is_read: Option<bool>,
}

impl Core {
    /// The values of keys in a snapshot, in their order.
    ///
    /// # Errors
    /// If a disk fails, or what is read is damaged.
    pub(crate) fn multi_get(
        &self,
        snapshot: &Snapshot,
        kvs: KvsId,
        keys: &[&[u8]],
    ) -> Result<Vec<Option<Vec<u8>>>, StoreError> {
        let mut values = Vec::with_capacity(keys.len());
        for keys in keys.chunks(KEYS_AT_ONCE) {
            self.get_some(snapshot, kvs, keys, &mut values)?;
        }
        Ok(values)
    }

    fn get_some(
        &self,
        snapshot: &Snapshot,
        kvs: KvsId,
        keys: &[&[u8]],
        values: &mut Vec<Option<Vec<u8>>>,
    ) -> Result<(), StoreError> {
        let (view, _) = snapshot.parts();
        let (first, mut awaited) = (values.len(), Vec::new());
        for key in keys {
            let mut value = Vec::new();
            let found = self.find_in_snapshot(snapshot, kvs, key, &mut value)?;
            if let Found::Apart(place) = found {
                let is_read = match keys.len() {
                    // Nothing is to be done meanwhile.
                    1 => None,
                    _ => begin(view, place, &mut value)?,
                };
                awaited.push(Awaited { place, number: values.len(), is_read });
            }
            values.push((!matches!(found, Found::Nothing)).then_some(value));
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
            // The value ends the record, and all before it goes.
            value.drain(..value.len() - value_bytes);
            self.count_read(view, kvs, key, place);
        }
        Ok(())
    }

    /// Where the value is that a key has in a snapshot; one in memory or beside its key is appended
    /// to `out`.
    fn find_in_snapshot(
        &self,
        snapshot: &Snapshot,
        kvs: KvsId,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<Found, StoreError> {
        let (view, at) = snapshot.parts();
        if let Some(cached) = self.entries.find(&self.entries.name(kvs, key), at, out) {
            return Ok(match self.has_ended(cached.expiry) {
                true => Found::Nothing,
                false => Found::Here,
            });
        }
        let version = self.find(view, kvs, key, at, out)?;
        Ok(match version.map(|version| version.value) {
            None | Some(ValuePlace::Gone) => Found::Nothing,
            Some(ValuePlace::Here) => Found::Here,
            Some(ValuePlace::Apart(place)) => Found::Apart(place),
        })
    }
}

/// Begins to read a record, if that may take time, and says whether it is appended to `out`.
fn begin(view: &View, place: RecordPlace, out: &mut Vec<u8>) -> Result<Option<bool>, StoreError> {
    let segment = view.segment(place.segment)?;
    let is_wanted = place.bytes <= BEGUN_BYTES_MAX && segment.may_wait();
    Ok(is_wanted.then(|| segment.try_read(place.offset, place.bytes as usize, out)))
}
