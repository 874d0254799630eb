//! Checks of the harness itself: a correct structure passes, and planted faults are found.

use std::sync::atomic::Ordering::{Acquire, Release};

use entresol_media::Region;

use super::*;
use crate::testing::few_images;
use crate::{Index, IndexError, Statistics};

/// Fault that is planted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Plant {
    #[default]
    Nothing,
    /// The new table is not flushed before the root leads to it.
    Unflushed,
    /// The old table is not given back.
    Leak,
    /// The old table is given back before the root leads to the new one.
    FreedEarly,
    /// Backwards the last record is not shown.
    Backwards,
    /// A key's value is changed in place by two stores.
    Torn,
}

/// Bytes of a record, so many that small tables are whole chunks.
const RECORD_BYTES: u64 = 128;

/// All records in one block, copied at each change.
struct Copied<R> {
    pool: Arc<Pool<R>>,
    root: usize,
    plant: Plant,
    latch: Mutex<()>,
}

impl<R: Region> Copied<R> {
    fn load(&self) -> BTreeMap<u64, u64> {
        let at = self.pool.root(self.root);
        if at == 0 {
            return BTreeMap::new();
        }
        let word = |number: u64| self.pool.region().load_u64(at + 8 * number, Acquire);
        (0..word(0)).map(|record| (word(1 + 2 * record), word(2 + 2 * record))).collect()
    }

    fn change<T>(&self, with: impl FnOnce(&mut BTreeMap<u64, u64>) -> T) -> Result<T, IndexError> {
        let _held = lock(&self.latch);
        let (old, mut records) = (self.pool.root(self.root), self.load());
        let before = records.clone();
        let answer = with(&mut records);
        if before == records {
            return Ok(answer);
        }
        if self.plant == Plant::FreedEarly && old != 0 {
            self.pool.free(old);
        }
        let new = self.pool.allocate(8 + RECORD_BYTES * records.len() as u64)?;
        let region = self.pool.region();
        region.store_u64(new, records.len() as u64, Release);
        for (number, (key, value)) in (0..).zip(&records) {
            region.store_u64(new + 8 + 16 * number, *key, Release);
            region.store_u64(new + 16 + 16 * number, *value, Release);
        }
        if self.plant != Plant::Unflushed {
            region.persist(new, 8 + 16 * records.len());
        }
        self.pool.set_root(self.root, new);
        if old != 0 && !matches!(self.plant, Plant::Leak | Plant::FreedEarly) {
            self.pool.free(old);
        }
        Ok(answer)
    }
}

impl<R: Region> Index for Copied<R> {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        self.change(|records| {
            let is_new = !records.contains_key(key);
            records.entry(*key).or_insert(value);
            is_new
        })
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        if self.plant == Plant::Torn && self.load().contains_key(key) {
            let before = self.remove(key)?;
            self.insert(key, value)?;
            return Ok(before);
        }
        self.change(|records| records.insert(*key, value))
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        Ok(self.load().get(key).copied())
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.change(|records| records.remove(key))
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        let from = from.cloned();
        let records = self.load();
        let mut shown: Vec<(&u64, u64)> = match direction {
            Direction::Forward => {
                records.range((from, Bound::Unbounded)).map(|(k, v)| (k, *v)).collect()
            }
            Direction::Backward => {
                records.range((Bound::Unbounded, from)).rev().map(|(k, v)| (k, *v)).collect()
            }
        };
        if self.plant == Plant::Backwards && direction == Direction::Backward {
            shown.pop();
        }
        let _ = shown.iter().try_for_each(|(key, value)| match visit(key, *value) {
            Flow::On => Ok(()),
            Flow::Stop => Err(()),
        });
        Ok(())
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        Ok(Statistics { keys: self.load().len() as u64, ..Statistics::default() })
    }
}

impl<R: Region> Persistent<R> for Copied<R> {
    type Options = Plant;

    fn open(pool: &Arc<Pool<R>>, root: usize, plant: &Plant) -> Result<Copied<R>, IndexError> {
        Ok(Copied { pool: pool.clone(), root, plant: *plant, latch: Mutex::new(()) })
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        match self.pool.root(self.root) {
            0 => {}
            table => visit(table),
        }
        Ok(())
    }
}

/// Blocks that are a part of a chunk, one, and several, all of them soon given back.
#[cfg(feature = "mutants")]
pub(crate) fn blocks_of_all_sizes() -> Result<(), String> {
    killed_anywhere::<Copied<RecordedRegion>>(&Plant::Nothing)?;
    suite::<Copied<RecordedRegion>>(0..3, &Plant::Nothing, |_| {}).map(drop)
}

fn tried(plant: Plant) -> Result<Report, String> {
    suite::<Copied<RecordedRegion>>(0..3, &plant, few_images)
}

#[test]
fn what_is_right_passes() {
    let report = tried(Plant::Nothing).expect("right");
    assert!(report.images > 2_000 && report.images_nested > 0, "{report:?}");
}

#[test]
fn what_is_planted_is_found() {
    for (plant, said) in [
        (Plant::Unflushed, "acknowledged was"),
        (Plant::Leak, "nothing reaches it"),
        (Plant::FreedEarly, "key"),
        (Plant::Backwards, "backwards"),
        (Plant::Torn, "acknowledged was"),
    ] {
        let found = tried(plant).expect_err("planted");
        assert!(found.contains(said), "{plant:?}: {found}");
    }
}

#[test]
fn a_history_has_everything_in_it() {
    let ops: Vec<Op> = (0..20).flat_map(|seed| history(&TrialOptions::seeded(seed))).collect();
    let count = |what: fn(&Op) -> bool| ops.iter().filter(|op| what(op)).count();
    assert!(count(|op| matches!(op, Op::Insert { .. })) > 500);
    assert!(count(|op| matches!(op, Op::Upsert { .. })) > 300);
    assert!(count(|op| matches!(op, Op::Remove { .. })) > 500);
    assert!(count(|op| matches!(op, Op::Reopen)) > 10);
}

#[test]
fn keys_have_numbers_and_numbers_keys() {
    for number in 0..keys::KEYS {
        assert_eq!(u64::nth(number).number(), Some(number));
        assert_eq!(<[u8]>::nth(number).number(), Some(number));
    }
    assert_eq!(7u64.number(), None);
}
