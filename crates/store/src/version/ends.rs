//! Times at which the values of a run expire. They are known of runs that this process wrote.

use std::collections::BTreeMap;

use entresol_base::Seconds;

use crate::types::{Entry, Value};

/// Most times that are told apart. Beyond that, neighbouring ones become one.
const TIMES_MAX: usize = 64;

/// Bytes that expire, by their times.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ends {
    /// Exponent of the number of seconds that are one time.
    grain: u32,
    /// Bytes by the last second of each time.
    bytes: BTreeMap<u32, u64>,
}

impl Ends {
    /// Adds a version.
    #[inline]
    pub(crate) fn add(&mut self, entry: &Entry<'_>) {
        if entry.expiry.0 > 0 {
            let value_bytes = match entry.value {
                Value::Inline(value) => value.len() as u64,
                Value::Apart(place) => place.bytes.into(),
                Value::Gone => 0,
            };
            self.add_bytes(entry.expiry.0, entry.key.len() as u64 + value_bytes);
        }
    }

    fn add_bytes(&mut self, second: u32, bytes: u64) {
        *self.bytes.entry(second | ((1 << self.grain) - 1)).or_default() += bytes;
        if self.bytes.len() > TIMES_MAX {
            self.grain += 1;
            for (second, bytes) in std::mem::take(&mut self.bytes) {
                self.add_bytes(second, bytes);
            }
        }
    }

    /// Returns the bytes that have expired.
    pub(crate) fn ended(&self, now: Seconds) -> u64 {
        self.bytes.range(..=now.0).map(|(_, bytes)| bytes).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_expired_is_counted_and_nothing_else() {
        let mut ends = Ends::default();
        for second in 1..=1000 {
            ends.add_bytes(second, 2);
        }
        assert!(ends.bytes.len() <= TIMES_MAX);
        assert_eq!(ends.ended(Seconds(0)), 0);
        for now in [100, 500, 900] {
            let ended = ends.ended(Seconds(now));
            assert!(ended <= 2 * u64::from(now) && ended + 64 >= 2 * u64::from(now), "{ended}");
        }
        assert_eq!(ends.ended(Seconds(1100)), 2000);
    }
}
