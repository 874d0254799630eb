//! The order of a memtable: sorted chunks of what was written before the first walk of a cursor,
//! and trees of what was written since.
//!
//! Entering a record into a tree costs several times the rest of a write, and most data are flushed
//! before a cursor has asked for their order. So a background thread sorts the records, in
//! [chunks](super::chunk) that a flush merges: the sorting is paid once. The first walk sorts what
//! is missing, and from then on no chunk is added. The writers enter their records into the trees
//! after every few of them instead, and do so in the next generation as well. A walk merges the
//! chunks and the tree of its `Kvs`, which have no record in common.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::atomic::{
    AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};
use std::sync::{Arc, OnceLock};

use entresol_base::sync::{Mutex, RwLock};
use entresol_index::keys::{Outside, Records};
use entresol_index::{Direction, Flow, Index, IndexError, Pool, PoolOptions, SvTree};
use entresol_media::Direct;

use super::chunk::{Batch, Chunk, RECORDS_A_CHUNK, sort};
use super::merge::{Merge, Merged, merged};
use super::{Position, Segments, key};
use crate::StoreError;
use crate::scheduler::Scheduler;
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::{KvsId, Sequence};

type Tree = SvTree<Direct, Outside<Keys>>;

/// Records that are sorted before they are entered into trees.
const RECORDS_AT_ONCE: usize = 4096;
/// Records that may be missing in the trees when a walk begins.
const RECORDS_BEHIND: u64 = 256;
/// Records after which the background thread is woken.
const RECORDS_A_WAKE: u64 = RECORDS_A_CHUNK as u64;

/// Keys of a tree, which lie in the records of segments.
#[derive(Debug, Clone)]
struct Keys(Arc<Segments>);

/// Chunks and trees of a generation.
#[derive(Debug)]
pub(super) struct Ordered {
    segments: Arc<Segments>,
    chunks: RwLock<Chunks>,
    chunk_bytes: AtomicU64,
    /// Held by the background thread while it sorts or merges.
    sorting: Mutex<()>,
    trees: RwLock<BTreeMap<KvsId, Arc<Tree>>>,
    /// Memory of the trees.
    pools: RwLock<Vec<Arc<Pool<Direct>>>>,
    reserve_bytes: u64,
    /// Position up to which records are entered, once no chunk is added any more. The thread that
    /// enters more holds the lock.
    entered: Mutex<Position>,
    /// Number of the last record that is entered.
    last: AtomicU64,
    /// Number of the record behind which a writer wakes the background thread or enters records.
    look_at: AtomicU64,
    /// True if no chunk is added any more, and the writers enter their records.
    is_in_trees: AtomicBool,
    /// True if a cursor has walked here.
    was_walked: AtomicBool,
    /// Wakes the background thread.
    scheduler: OnceLock<Arc<Scheduler>>,
    /// Records that walks have sorted or entered themselves.
    by_walks: AtomicU64,
}

/// The chunks of each `Kvs`.
#[derive(Debug)]
struct Chunks {
    all: BTreeMap<KvsId, Vec<Arc<Chunk>>>,
    /// Position up to which records are in chunks.
    end: Position,
    /// True if no chunk is added any more.
    is_complete: bool,
}

/// Work that the background thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sorted {
    /// Part of what there is.
    Some,
    /// Nothing, since nothing is left.
    None,
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

impl Chunks {
    /// Adds chunks of what follows `from`, unless another thread did. Returns true if it did.
    fn add(&mut self, from: Position, batch: Batch) -> bool {
        if self.is_complete || self.end != from {
            return false;
        }
        self.end = batch.end;
        for (kvs, chunk) in batch.chunks {
            self.all.entry(kvs).or_default().push(Arc::new(chunk));
        }
        true
    }

    /// Returns the chunks of a `Kvs` that has several though no more are added: walks are fastest
    /// over a single one.
    fn to_merge(&self) -> Option<(KvsId, Vec<Arc<Chunk>>)> {
        let several = self.all.iter().find(|(_, chunks)| chunks.len() > 1);
        several.filter(|_| self.is_complete).map(|(kvs, chunks)| (*kvs, chunks.clone()))
    }
}

impl Ordered {
    /// Creates the order of segments whose first record has the number `first`.
    pub(super) fn new(segments: Arc<Segments>, first: Sequence, reserve_bytes: u64) -> Ordered {
        let end = Position::first(first);
        let before = first.0.saturating_sub(1);
        Ordered {
            segments,
            chunks: RwLock::new(Chunks { all: BTreeMap::new(), end, is_complete: false }),
            chunk_bytes: AtomicU64::new(0),
            sorting: Mutex::new(()),
            trees: RwLock::default(),
            pools: RwLock::default(),
            reserve_bytes,
            entered: Mutex::new(end),
            last: AtomicU64::new(before),
            look_at: AtomicU64::new(before + RECORDS_A_WAKE),
            is_in_trees: AtomicBool::new(false),
            was_walked: AtomicBool::new(false),
            scheduler: OnceLock::new(),
            by_walks: AtomicU64::new(0),
        }
    }

    /// Sets the scheduler of the background thread that sorts.
    pub(super) fn sorted_by(&self, scheduler: &Arc<Scheduler>) {
        // There is only one.
        let _ = self.scheduler.set(scheduler.clone());
    }

    /// Lets writers enter their records at once if a cursor walked over the generation before: this
    /// one is likely to be walked as well.
    pub(super) fn follow(&self, before: &Ordered) {
        if let Some(scheduler) = before.scheduler.get() {
            self.sorted_by(scheduler);
        }
        if before.was_walked.load(Relaxed) {
            self.chunks.write().is_complete = true;
            self.look_at.store(self.last.load(Relaxed) + RECORDS_BEHIND, Relaxed);
            self.is_in_trees.store(true, Release);
        }
    }

    /// Returns the bytes of the trees.
    pub(super) fn tree_bytes(&self) -> u64 {
        // The locks are taken in the order in which `tree` takes them.
        let (trees, pools) = (self.trees.read(), self.pools.read());
        let of_pools = pools.iter().map(|pool| pool.region().len() - pool.free_chunk_bytes());
        of_pools.chain(trees.values().map(|tree| tree.volatile_bytes())).sum()
    }

    /// Returns the bytes of the chunks.
    pub(super) fn chunk_bytes(&self) -> u64 {
        self.chunk_bytes.load(Relaxed)
    }

    /// Returns the number of records that walks have sorted or entered themselves.
    #[cfg(test)]
    pub(super) fn by_walks(&self) -> u64 {
        self.by_walks.load(Relaxed)
    }

    /// Lets a writer wake the background thread or enter records, once its own are published.
    #[inline]
    pub(super) fn written(&self, last: Sequence) -> Result<(), StoreError> {
        let look_at = self.look_at.load(Relaxed);
        if last.0 <= look_at {
            return Ok(());
        }
        self.look(look_at, last)
    }

    #[cold]
    fn look(&self, look_at: u64, last: Sequence) -> Result<(), StoreError> {
        if self.is_in_trees.load(Acquire) {
            return match self.entered.try_lock() {
                Some(mut entered) => self.enter(&mut entered, last).map(drop),
                None => Ok(()),
            };
        }
        let next = last.0 + RECORDS_A_WAKE;
        let is_first = self.look_at.compare_exchange(look_at, next, Relaxed, Relaxed).is_ok();
        if is_first && let Some(scheduler) = self.scheduler.get() {
            scheduler.tell_sorter();
        }
        Ok(())
    }

    /// Sorts a chunk of records up to `last`, which is published, or merges chunks of a memtable
    /// that was walked if `merges` says so. Fewer records than make a chunk are sorted only if
    /// `is_closed`, since no more will come. It calls `goes_on` now and then, and a merge ends
    /// without a result if that returns false.
    pub(super) fn sort(
        &self,
        (last, is_closed): (Sequence, bool),
        merges: bool,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<Sorted, StoreError> {
        let Some(_sorting) = self.sorting.try_lock() else { return Ok(Sorted::None) };
        let (from, is_complete, to_merge) = {
            let chunks = self.chunks.read();
            (chunks.end, chunks.is_complete, chunks.to_merge())
        };
        if let Some((kvs, chunks)) = to_merge.filter(|_| merges) {
            return match self.merge(kvs, &chunks, goes_on)? {
                true => Ok(Sorted::Some),
                false => Ok(Sorted::None),
            };
        }
        let least = if is_closed { 1 } else { RECORDS_A_CHUNK as u64 };
        if is_complete || last.0 + 1 < from.next.0 + least {
            return Ok(Sorted::None);
        }
        let give_way = || {
            let _ = goes_on();
        };
        self.add(from, sort(&self.segments, from, last, &give_way)?);
        Ok(Sorted::Some)
    }

    /// Makes one chunk of all those of a `Kvs`. Returns false if `goes_on` ended it.
    fn merge(
        &self,
        kvs: KvsId,
        chunks: &[Arc<Chunk>],
        goes_on: &dyn Fn() -> bool,
    ) -> Result<bool, StoreError> {
        let Some(made) = merged(&self.segments, chunks, goes_on)?.map(Arc::new) else {
            return Ok(false);
        };
        self.chunk_bytes.fetch_add(made.bytes(), Relaxed);
        self.chunks.write().all.insert(kvs, vec![made]);
        let gone = chunks.iter().map(|chunk| chunk.bytes()).sum();
        self.chunk_bytes.fetch_sub(gone, Relaxed);
        Ok(true)
    }

    fn add(&self, from: Position, batch: Batch) {
        let mut chunks = self.chunks.write();
        let bytes: u64 = batch.chunks.iter().map(|(_, chunk)| chunk.bytes()).sum();
        if chunks.add(from, batch) {
            self.chunk_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Returns the chunks of each `Kvs`, with chunks of what they lack up to `last`, which is
    /// published.
    pub(super) fn complete(
        &self,
        last: Sequence,
        give_way: &dyn Fn(),
    ) -> Result<BTreeMap<KvsId, Vec<Arc<Chunk>>>, StoreError> {
        let (mut all, mut at) = {
            let chunks = self.chunks.read();
            (chunks.all.clone(), chunks.end)
        };
        loop {
            let batch = sort(&self.segments, at, last, give_way)?;
            if batch.end.next == at.next {
                return Ok(all);
            }
            at = batch.end;
            for (kvs, chunk) in batch.chunks {
                all.entry(kvs).or_default().push(Arc::new(chunk));
            }
        }
    }

    /// Returns the number of the last record that is in a chunk.
    pub(super) fn last_sorted(&self) -> Sequence {
        Sequence(self.chunks.read().end.next.0 - 1)
    }

    /// Passes the versions that were published at `at`, and maybe later ones, to `visit`, from a
    /// version on.
    pub(super) fn walk(
        &self,
        (kvs, at): (KvsId, Sequence),
        from: Bound<(&[u8], Sequence)>,
        direction: Direction,
        visit: &mut dyn FnMut(u64) -> Flow,
    ) -> Result<(), StoreError> {
        if !self.is_in_trees.load(Acquire) {
            self.begin_walks(at)?;
        }
        if self.last.load(Acquire) < at.0 {
            self.was_walked.store(true, Relaxed);
            let entered = self.enter(&mut self.entered.lock(), at)?;
            self.by_walks.fetch_add(entered, Relaxed);
        }
        let mut merge = self.merge_of(kvs, from, direction)?;
        let Some(tree) = self.trees.read().get(&kvs).cloned() else {
            while let Some(Merged { word, .. }) = merge.next()? {
                if visit(word) == Flow::Stop {
                    break;
                }
            }
            return Ok(());
        };
        let mut encoded = Vec::new();
        let bound = from.map(|(key, sequence)| {
            key::append(key, sequence, &mut encoded);
            encoded.as_slice()
        });
        let (mut is_over, mut failed) = (false, None);
        let mut before = |merge: &mut Merge<'_>, of_tree: u64| -> Result<Flow, StoreError> {
            while merge.is_before(of_tree)?
                && let Some(Merged { word, .. }) = merge.next()?
            {
                if visit(word) == Flow::Stop {
                    return Ok(Flow::Stop);
                }
            }
            Ok(visit(of_tree))
        };
        tree.range_values(bound, direction, &mut |word| {
            let flow = before(&mut merge, word).unwrap_or_else(|error| {
                failed = Some(error);
                Flow::Stop
            });
            is_over = flow == Flow::Stop;
            flow
        })?;
        failed.map_or(Ok(()), Err)?;
        while !is_over && let Some(Merged { word, .. }) = merge.next()? {
            is_over = visit(word) == Flow::Stop;
        }
        Ok(())
    }

    fn merge_of(
        &self,
        kvs: KvsId,
        from: Bound<(&[u8], Sequence)>,
        direction: Direction,
    ) -> Result<Merge<'_>, StoreError> {
        let chunks = self.chunks.read().all.get(&kvs).cloned().unwrap_or_default();
        let is_backward = direction == Direction::Backward;
        let begin = |chunk: Arc<Chunk>| {
            let at = match from {
                Bound::Unbounded if is_backward => chunk.len(),
                Bound::Unbounded => 0,
                Bound::Included(from) => chunk.count_before(&self.segments, from, is_backward)?,
                Bound::Excluded(from) => chunk.count_before(&self.segments, from, !is_backward)?,
            };
            Ok((chunk, at))
        };
        let begun: Result<Vec<_>, StoreError> = chunks.into_iter().map(begin).collect();
        Merge::new(&self.segments, begun?, is_backward)
    }

    /// Sorts what chunks lack up to `at`, which is published. Trees get what comes later.
    #[cold]
    fn begin_walks(&self, at: Sequence) -> Result<(), StoreError> {
        let mut entered = self.entered.lock();
        if self.is_in_trees.load(Acquire) {
            return Ok(());
        }
        self.was_walked.store(true, Relaxed);
        loop {
            let from = self.chunks.read().end;
            let batch = sort(&self.segments, from, at, &|| ())?;
            if batch.end.next > from.next {
                self.by_walks.fetch_add(batch.end.next.0 - from.next.0, Relaxed);
                self.add(from, batch);
                continue;
            }
            let mut chunks = self.chunks.write();
            // The background thread may have added some meanwhile.
            if chunks.end == from {
                chunks.is_complete = true;
                *entered = from;
                self.last.store(from.next.0 - 1, Release);
                break;
            }
        }
        match self.scheduler.get() {
            Some(scheduler) => scheduler.tell_sorter(),
            // A read-only store has no thread that would merge them.
            None => {
                let to_merge = || self.chunks.read().to_merge();
                while let Some((kvs, chunks)) = to_merge() {
                    self.merge(kvs, &chunks, &|| true)?;
                }
            }
        }
        self.look_at.store(self.last.load(Relaxed) + RECORDS_BEHIND, Relaxed);
        self.is_in_trees.store(true, Release);
        Ok(())
    }

    /// Enters all records up to `last`, which is published. Returns their number.
    fn enter(&self, entered: &mut Position, last: Sequence) -> Result<u64, StoreError> {
        let first = entered.next.0;
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
                return Ok(at.next.0 - first);
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
            self.look_at.store(at.next.0 - 1 + RECORDS_BEHIND, Relaxed);
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
            std::hint::black_box(ordered.tree_bytes());
        }
        making.join().expect("no panic");
        assert!(ordered.tree_bytes() > 0);
    }
}
