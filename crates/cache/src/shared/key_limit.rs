//! Limit of the number of keys: beyond it, each new item makes another one go.
//!
//! A hand goes round the slots of the index, as in a clock of pages: an item that was read since
//! the hand last passed stays once more, and any other goes. Segments are not passed for this,
//! since one segment may hold more items than the limit allows.

use std::sync::atomic::{AtomicU64, Ordering};

use entresol_base::Seconds;

use crate::index::{Found, SLOTS};
use crate::shared::append::Hole;
use crate::shared::evict::Tally;
use crate::shared::items::Items;
use crate::shared::space::Seen;

/// Limit that no number of items reaches.
const NONE: u64 = u64::MAX;
/// Items that one eviction leaves because they were read; the next one goes however often it was.
const SPARED_MAX: usize = 64;
/// Rounds after which no item is spared any more.
const ROUNDS_MAX: u64 = 4;

/// Maximum number of keys, and the hand of the clock.
pub(crate) struct KeyLimit {
    max: AtomicU64,
    /// Slots that the hand has passed, seven a bucket.
    hand: AtomicU64,
}

/// An item that is to go.
#[derive(Clone, Copy)]
struct Victim {
    hash: u64,
    location: u64,
    slot: u64,
}

impl KeyLimit {
    pub(crate) fn none() -> Self {
        KeyLimit { max: AtomicU64::new(NONE), hand: AtomicU64::new(0) }
    }

    /// Sets the limit; the items beyond a lower one go in time.
    pub(crate) fn set(&self, keys: Option<u64>) {
        self.max.store(keys.unwrap_or(NONE), Ordering::Relaxed);
    }

    /// Returns the limit, if there is one.
    #[inline(always)]
    pub(crate) fn get(&self) -> Option<u64> {
        let max = self.max.load(Ordering::Relaxed);
        (max != NONE).then_some(max)
    }

    /// Lets up to `most` items go while there are more than the limit allows, but not the one at
    /// `new`, and calls `free` with the room of each. Returns true if there still are too many.
    pub(crate) fn keep(
        &self,
        items: &Items,
        most: u64,
        new: Option<u64>,
        now: Seconds,
        mut free: impl FnMut(Hole),
    ) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        for _ in 0..most {
            if items.index.items() <= max {
                return false;
            }
            let Some(victim) = self.choose(items, new, now) else { return false };
            if let Some(hole) = drop_item(items, victim, now) {
                free(hole);
            }
        }
        items.index.items() > max
    }

    /// Moves the hand to the next item that may go; `None` if it has gone round in vain.
    fn choose(&self, items: &Items, new: Option<u64>, now: Seconds) -> Option<Victim> {
        let mut spared = 0;
        for _ in 0..=ROUNDS_MAX * items.index.buckets() {
            let hand = self.hand.load(Ordering::Relaxed);
            let (bucket, first) =
                (hand / SLOTS as u64 % items.index.buckets(), hand % SLOTS as u64);
            let mut victim: Option<Victim> = None;
            items.index.visit(bucket, |found| {
                let location = found.location();
                if victim.is_some() || found.slot() < first || new == Some(location) {
                    return;
                }
                match found.heat().spared() {
                    Some(heat) if spared < SPARED_MAX && is_live(items, found, now) => {
                        spared += 1;
                        items.index.set_heat(&found, heat);
                    }
                    _ => {
                        let hash = items.space.records.rehash(location);
                        victim = Some(Victim { hash, location, slot: found.slot() });
                    }
                }
            });
            // Two threads may read the same hand: one of them finds the other's item gone.
            let next = victim.map_or(SLOTS as u64, |victim| victim.slot + 1);
            self.hand.store(bucket * SLOTS as u64 + next, Ordering::Relaxed);
            if victim.is_some() {
                return victim;
            }
        }
        None
    }
}

fn is_live(items: &Items, found: Found, now: Seconds) -> bool {
    let head = items.space.records.head(found.location());
    matches!(items.space.judge(found, head, now), Seen::Live(..))
}

/// Drops an item, unless it has gone or moved meanwhile; returns its room.
fn drop_item(items: &Items, victim: Victim, now: Seconds) -> Option<Hole> {
    let pair = items.index.lock(victim.hash);
    let item = items.item_at(&pair, victim.hash, victim.location)?;
    let log = items.space.log_of(victim.location, &item.head);
    let mut tally = Tally::default();
    let hole = items.hand_down(pair, &item, log, now, &mut tally);
    items.book(log, &tally);
    hole
}
