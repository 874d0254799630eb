//! Walks over all items, a bucket of the index at a time.

use entresol_base::Seconds;

use super::Worker;
use crate::ops::ItemMeta;
use crate::record::KEY_BYTES_MAX;
use crate::shared::space::Seen;

/// Position of a walk. The default stands before the first item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Walk {
    bucket: u64,
}

impl Worker {
    /// Calls `visit` with the key and the metadata of each live item in the next bucket, which may
    /// be empty. Returns the position behind it, or `None` at the end.
    ///
    /// An item that stays in the cache and is not written meanwhile comes once, unless the index
    /// moves it to make room for another one or shrinks: then it may be missed or come twice.
    pub fn walk(
        &mut self,
        walk: Walk,
        now: Seconds,
        mut visit: impl FnMut(&[u8], &ItemMeta),
    ) -> Option<Walk> {
        let (items, space) = (&self.shared.items, self.shared.space());
        let records = self.shared.records();
        space.check_flush(now);
        if walk.bucket >= items.index.buckets() {
            return None;
        }
        let mut buffer = [0_u8; KEY_BYTES_MAX];
        items.index.visit(walk.bucket, |found| {
            let location = found.location();
            let head = records.head(location);
            if let (Seen::Live(found, head), Some(key)) =
                (space.judge(found, head, now), buffer.get_mut(..head.key_len))
            {
                records.arena.read(head.key_at(), key);
                let cas = records.cas_of(location, &head);
                visit(key, &ItemMeta { cas, ..records.meta(&found, &head, now) });
            }
        });
        Some(Walk { bucket: walk.bucket + 1 })
    }
}
