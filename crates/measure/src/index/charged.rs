//! Charges an index in a simulated world for its work in DRAM, one operation at a time.

use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use entresol_base::clock::Picos;
use entresol_base::world::World;
use entresol_index::{Direction, Flow, Index, IndexError, Statistics};

use super::IndexName;
use super::subjects::AnyIndex;

/// Time to read a line of DRAM that misses the processor's caches (000, table 7: a read of 64 B).
pub const DRAM_LINE: Picos = Picos(40_000);

/// Lines of DRAM that an operation touches one after the other, estimated from the structure of an
/// index and the same at any size.
#[derive(Debug, Clone, Copy, Default)]
pub struct DramLines {
    /// Lines of a look-up.
    pub get: u64,
    /// Lines of a change.
    pub change: u64,
    /// Lines to find the beginning of a range.
    pub range: u64,
    /// Records of a range in one line; 0 if they are on the medium.
    pub records_a_line: u64,
}

impl DramLines {
    /// Returns the lines of an index by itself. A probe of a hash table touches two lines. A tree
    /// touches two for each of the three levels that no cache holds. A skip list touches one for
    /// each of the sixteen steps down and along its towers that no cache holds. Records of a range
    /// are contiguous, 16 bytes each, or in nodes of their own.
    pub fn of(name: IndexName) -> DramLines {
        let same = |lines| DramLines { get: lines, change: lines, range: lines, records_a_line: 0 };
        match name {
            IndexName::FastFair | IndexName::Ods | IndexName::WbTree => same(0),
            IndexName::SvTree | IndexName::FpTree => same(6),
            IndexName::SkipList => same(16),
            // A thread in the background changes the tree in DRAM.
            IndexName::HybridIndex => DramLines { get: 0, change: 1, range: 6, records_a_line: 4 },
            IndexName::HybridIndexPlus => DramLines { get: 2, change: 2, ..DramLines::default() },
            IndexName::BTreeMap => DramLines { records_a_line: 4, ..same(6) },
            IndexName::SkipMap => DramLines { records_a_line: 1, ..same(24) },
        }
    }
}

/// Time to probe a cache in front of an index: the line of a set, and the lock in it.
pub const CACHE_PROBE: Picos = Picos(2 * DRAM_LINE.0);

/// Index in a world, charged for its work in DRAM.
pub struct Charged {
    world: World,
    index: AnyIndex,
    lines: DramLines,
    gets: AtomicU64,
}

impl Charged {
    /// Wraps an index.
    pub fn over(world: &World, index: AnyIndex, lines: DramLines) -> Arc<Charged> {
        Arc::new(Charged { world: world.clone(), index, lines, gets: AtomicU64::new(0) })
    }

    /// Returns the number of look-ups so far.
    pub fn gets(&self) -> u64 {
        self.gets.load(Relaxed)
    }

    fn spend(&self, lines: u64) {
        if lines > 0 && World::current().is_some() {
            self.world.spend(Picos(DRAM_LINE.0 * lines));
        }
    }
}

impl Index for Charged {
    type Key = u64;

    fn insert(&self, key: &u64, value: u64) -> Result<bool, IndexError> {
        self.spend(self.lines.change);
        self.index.insert(key, value)
    }

    fn upsert(&self, key: &u64, value: u64) -> Result<Option<u64>, IndexError> {
        self.spend(self.lines.change);
        self.index.upsert(key, value)
    }

    fn get(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.gets.fetch_add(1, Relaxed);
        self.spend(self.lines.get);
        self.index.get(key)
    }

    fn remove(&self, key: &u64) -> Result<Option<u64>, IndexError> {
        self.spend(self.lines.change);
        self.index.remove(key)
    }

    fn range(
        &self,
        from: Bound<&u64>,
        direction: Direction,
        visit: &mut dyn FnMut(&u64, u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.spend(self.lines.range);
        let mut shown = 0;
        let ranged = self.index.range(from, direction, &mut |key, value| {
            shown += 1;
            visit(key, value)
        });
        if self.lines.records_a_line > 0 {
            self.spend(u64::div_ceil(shown, self.lines.records_a_line));
        }
        ranged
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        self.index.statistics()
    }
}
