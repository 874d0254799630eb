//! The order of a memtable: trees that are filled when a cursor walks over them.
//!
//! Entering a record into a tree costs several times the rest of a write, and most data are flushed
//! before a cursor has asked for their order. The first walk therefore enters what was written so
//! far, sorted, so that each record lands near the one before. From then on the writers enter their
//! records after every few of them, and do so in the next generation as well.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

use entresol_base::sync::{Mutex, RwLock};
use entresol_index::keys::{Outside, Records};
use entresol_index::{Direction, Flow, Index, IndexError, Pool, PoolOptions, SvTree};
use entresol_media::Direct;

use super::{Position, Segments, key};
use crate::StoreError;
use crate::types::{KvsId, Sequence};
use crate::wal::record::{HEADER_BYTES, Kind};

type Tree = SvTree<Direct, Outside<Keys>>;

/// Records that are sorted at once.
const RECORDS_AT_ONCE: usize = 4096;
/// Records that may be missing in the trees when a walk begins.
const RECORDS_BEHIND: u64 = 256;

/// Keys of a tree, which lie in the records of segments.
#[derive(Debug, Clone)]
struct Keys(Arc<Segments>);

/// Trees of a generation.
#[derive(Debug)]
pub(super) struct Ordered {
    segments: Arc<Segments>,
    trees: RwLock<BTreeMap<KvsId, Arc<Tree>>>,
    /// Memory of the trees.
    pools: RwLock<Vec<Arc<Pool<Direct>>>>,
    reserve_bytes: u64,
    /// Position up to which records are entered. The thread that enters more holds the lock.
    entered: Mutex<Position>,
    /// Number of the last record that is entered.
    last: AtomicU64,
    /// True if writers enter their records.
    by_writers: AtomicBool,
    /// True if a cursor has walked here.
    was_walked: AtomicBool,
}

/// A record that is to be entered.
struct Entering {
    kvs: KvsId,
    /// Range of its key in a buffer.
    key: (usize, usize),
    word: u64,
}

thread_local! {
    static PLAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static ENCODED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Records for Keys {
    fn key(&self, record: u64, out: &mut Vec<u8>) -> Result<(), IndexError> {
        let found = self.0.header(record);
        let (segment, offset, header) = found.map_err(|error| outside(record, &error))?;
        // Taken out and put back: in a simulated world, threads share it.
        let mut plain = PLAIN.take();
        plain.clear();
        let at = offset + HEADER_BYTES as u64;
        let read = segment.read(at, header.key_bytes as usize, &mut plain);
        key::append(&plain, header.sequence, out);
        PLAIN.set(plain);
        read.map_err(|error| outside(record, &error))
    }

    fn compare(&self, record: u64, key: &[u8]) -> Result<Ordering, IndexError> {
        let mut own = ENCODED.take();
        own.clear();
        let order = Records::key(self, record, &mut own).map(|()| own.as_slice().cmp(key));
        ENCODED.set(own);
        order
    }
}

fn outside(word: u64, error: &StoreError) -> IndexError {
    IndexError::Damaged { offset: word, what: error.to_string() }
}

impl Ordered {
    /// Creates empty trees for segments whose first record has the number `first`.
    pub(super) fn new(segments: Arc<Segments>, first: Sequence, reserve_bytes: u64) -> Ordered {
        Ordered {
            segments,
            trees: RwLock::default(),
            pools: RwLock::default(),
            reserve_bytes,
            entered: Mutex::new(Position::first(first)),
            last: AtomicU64::new(first.0.saturating_sub(1)),
            by_writers: AtomicBool::new(false),
            was_walked: AtomicBool::new(false),
        }
    }

    /// Lets writers enter their records at once if a cursor walked over the generation before: this
    /// one is likely to be walked as well.
    pub(super) fn follow(&self, before: &Ordered) {
        self.by_writers.store(before.was_walked.load(Relaxed), Relaxed);
    }

    pub(super) fn bytes(&self) -> u64 {
        // The locks are taken in the order in which `tree` takes them.
        let (trees, pools) = (self.trees.read(), self.pools.read());
        let of_pools = pools.iter().map(|pool| pool.region().len() - pool.free_chunk_bytes());
        of_pools.chain(trees.values().map(|tree| tree.volatile_bytes())).sum()
    }

    /// Lets a writer enter records, once its own are published.
    #[inline]
    pub(super) fn written(&self, last: Sequence) -> Result<(), StoreError> {
        let is_behind = || last.0 > self.last.load(Relaxed) + RECORDS_BEHIND;
        if !self.by_writers.load(Relaxed) || !is_behind() {
            return Ok(());
        }
        match self.entered.try_lock() {
            Some(mut entered) => self.enter(&mut entered, last),
            None => Ok(()),
        }
    }

    /// Passes the versions that were published at `at`, and maybe later ones, to `visit`, from an
    /// encoded key on.
    pub(super) fn walk(
        &self,
        kvs: KvsId,
        at: Sequence,
        from: Bound<&[u8]>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), StoreError> {
        if self.last.load(Acquire) < at.0 {
            self.was_walked.store(true, Relaxed);
            self.by_writers.store(true, Relaxed);
            self.enter(&mut self.entered.lock(), at)?;
        }
        let Some(tree) = self.trees.read().get(&kvs).cloned() else { return Ok(()) };
        tree.range_values(from, direction, visit)?;
        Ok(())
    }

    /// Enters all records up to `last`, which is published.
    fn enter(&self, entered: &mut Position, last: Sequence) -> Result<(), StoreError> {
        let (mut batch, mut keys, mut plain) = (Vec::new(), Vec::new(), Vec::new());
        loop {
            batch.clear();
            keys.clear();
            let mut at = *entered;
            while batch.len() < RECORDS_AT_ONCE
                && let Some((word, segment, header)) = self.segments.next(&mut at, last)?
            {
                if header.kind == Kind::RangeDelete {
                    continue;
                }
                plain.clear();
                let begin = u64::from(word as u32) + HEADER_BYTES as u64;
                segment.read(begin, header.key_bytes as usize, &mut plain)?;
                let from = keys.len();
                key::append(&plain, header.sequence, &mut keys);
                batch.push(Entering { kvs: header.kvs, key: (from, keys.len()), word });
            }
            if at.next == entered.next {
                return Ok(());
            }
            let key = |it: &Entering| keys.get(it.key.0..it.key.1).unwrap_or_default();
            batch.sort_unstable_by(|one, other| {
                one.kvs.cmp(&other.kvs).then_with(|| key(one).cmp(key(other)))
            });
            for of_kvs in batch.chunk_by(|one, other| one.kvs == other.kvs) {
                let Some(first) = of_kvs.first() else { continue };
                let tree = self.tree(first.kvs)?;
                of_kvs.iter().try_for_each(|it| tree.insert(key(it), it.word).map(drop))?;
            }
            *entered = at;
            self.last.store(at.next.0 - 1, Release);
        }
    }

    fn tree(&self, kvs: KvsId) -> Result<Arc<Tree>, StoreError> {
        if let Some(tree) = self.trees.read().get(&kvs) {
            return Ok(tree.clone());
        }
        let mut trees = self.trees.write();
        let region = Direct::anonymous(self.reserve_bytes, false)?;
        let pool = Arc::new(Pool::create(Arc::new(region), PoolOptions::default())?);
        let tree = Arc::new(SvTree::open_with(&pool, 0, Outside(Keys(self.segments.clone())))?);
        trees.insert(kvs, tree.clone());
        self.pools.write().push(pool);
        Ok(tree)
    }
}

#[cfg(test)]
mod tests {
    use entresol_base::thread;

    use super::*;

    #[test]
    fn bytes_are_counted_while_trees_are_made() {
        let segments = Arc::new(Segments::new());
        let ordered = Arc::new(Ordered::new(segments, Sequence(1), 1 << 20));
        let making = Arc::clone(&ordered);
        let making = thread::spawn("a walker", move || {
            for kvs in 0..2000 {
                let _ = making.tree(KvsId(kvs)).expect("memory");
            }
        });
        while !making.is_finished() {
            std::hint::black_box(ordered.bytes());
        }
        making.join().expect("no panic");
        assert!(ordered.bytes() > 0);
    }
}
