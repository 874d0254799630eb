//! The youngest data: generations of segments, and what finds their records.
//!
//! A generation has one index for each `Kvs`, a tree keyed by (key, descending sequence number)
//! whose slots lead to records in the segments. It only grows; when its data are frozen it goes as
//! a whole.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Arc, OnceLock};

use entresol_base::sync::RwLock;
use entresol_index::keys::{Outside, Records};
use entresol_index::{Direction, Flow, Index, IndexError, Pool, PoolOptions, SvTree};
use entresol_media::Direct;

use crate::StoreError;
use crate::entry::{Expiry, KvsId, RecordPlace, Sequence};
use crate::log::record::{Draft, HEADER_BYTES, Header, Kind};
use crate::log::segment::Segment;
use crate::prefixes::Prefixes;
use crate::run::bytes::u32_at;

pub(crate) mod key;

/// The most segments of a generation.
pub(crate) const SEGMENTS_MAX: usize = 1 << 12;

/// What an index has address space for, for each byte of the generation's segments: a record has at
/// least 24 bytes, a slot and its share of the leaf, the guide and the records of lows less.
const INDEX_RESERVE: u64 = 4;
const INDEX_RESERVE_MIN: u64 = 64 << 20;

type Tree = SvTree<Direct, Outside<Keys>>;

/// The keys of a tree, in the records of segments.
#[derive(Debug, Clone)]
struct Keys(Arc<Segments>);

/// The segments of a generation, by their places in it.
#[derive(Debug)]
pub(crate) struct Segments(Box<[OnceLock<Arc<Segment>>]>);

/// A generation.
#[derive(Debug)]
pub(crate) struct Generation {
    segments: Arc<Segments>,
    trees: RwLock<BTreeMap<KvsId, Arc<Tree>>>,
    /// What the trees lie in.
    pools: RwLock<Vec<(KvsId, Arc<Pool<Direct>>)>>,
    prefixes: RwLock<BTreeMap<KvsId, Arc<Prefixes>>>,
    reserve_bytes: u64,
}

/// A version that was found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
    /// Where the record lies; none if the key is gone.
    pub(crate) value: Option<RecordPlace>,
}

thread_local! {
    static PLAIN: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
    static ENCODED: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

impl Segments {
    fn new() -> Segments {
        Segments((0..SEGMENTS_MAX).map(|_| OnceLock::new()).collect())
    }

    /// The segments there are.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Segment>> {
        self.0.iter().map_while(OnceLock::get)
    }

    fn at(&self, word: u64) -> Result<(&Segment, u64), IndexError> {
        let segment = self.0.get((word >> 32) as usize).and_then(OnceLock::get);
        match segment {
            Some(segment) => Ok((segment, word & u64::from(u32::MAX))),
            None => Err(outside(word, "no such segment")),
        }
    }

    fn header(&self, word: u64) -> Result<(&Segment, u64, Header), IndexError> {
        let (segment, offset) = self.at(word)?;
        let header = segment.header(offset);
        header.map(|it| (segment, offset, it)).map_err(|error| outside(word, &error.to_string()))
    }
}

fn outside(word: u64, what: &str) -> IndexError {
    IndexError::Damaged { offset: word, what: what.to_owned() }
}

impl Records for Keys {
    fn key(&self, record: u64, out: &mut Vec<u8>) -> Result<(), IndexError> {
        let (segment, offset, header) = self.0.header(record)?;
        // Taken out and put back: in a simulated world threads share it.
        let mut plain = PLAIN.take();
        plain.clear();
        let at = offset + HEADER_BYTES as u64;
        let read = segment.read(at, header.key_bytes as usize, &mut plain);
        key::append(&plain, header.sequence, out);
        PLAIN.set(plain);
        read.map_err(|error| outside(record, &error.to_string()))
    }

    fn compare(&self, record: u64, key: &[u8]) -> Result<Ordering, IndexError> {
        let mut own = ENCODED.take();
        own.clear();
        let order = Records::key(self, record, &mut own).map(|()| own.as_slice().cmp(key));
        ENCODED.set(own);
        order
    }
}

impl Generation {
    /// A generation without segments, of which it may get so many bytes.
    pub(crate) fn new(bytes: u64) -> Generation {
        Generation {
            segments: Arc::new(Segments::new()),
            trees: RwLock::default(),
            pools: RwLock::default(),
            prefixes: RwLock::default(),
            reserve_bytes: (bytes * INDEX_RESERVE).max(INDEX_RESERVE_MIN),
        }
    }

    /// Its segments.
    pub(crate) fn segments(&self) -> &Segments {
        &self.segments
    }

    /// Adds a segment as the last one, and says which it is; none if there are too many. One thread
    /// at a time does so.
    pub(crate) fn add_segment(&self, segment: Arc<Segment>) -> Option<u32> {
        let place = self.segments.0.iter().position(|slot| slot.get().is_none())?;
        self.segments.0[place].set(segment).ok().map(|()| place as u32)
    }

    /// The `Kvs` that have data here.
    pub(crate) fn kvs(&self) -> Vec<KvsId> {
        let mut all: Vec<KvsId> = self.trees.read().keys().copied().collect();
        all.extend(self.prefixes.read().keys());
        all.sort_unstable();
        all.dedup();
        all
    }

    /// The bytes of the indexes, or of that of one `Kvs`.
    pub(crate) fn index_bytes(&self, of: Option<KvsId>) -> u64 {
        let pools = self.pools.read();
        let pools = pools.iter().filter(|(kvs, _)| of.is_none_or(|of| of == *kvs));
        pools.map(|(_, pool)| pool.region().len() - pool.free_chunk_bytes()).sum()
    }

    fn tree(&self, kvs: KvsId) -> Option<Arc<Tree>> {
        self.trees.read().get(&kvs).cloned()
    }

    fn tree_or_new(&self, kvs: KvsId) -> Result<Arc<Tree>, StoreError> {
        if let Some(tree) = self.tree(kvs) {
            return Ok(tree);
        }
        let mut trees = self.trees.write();
        if let Some(tree) = trees.get(&kvs) {
            return Ok(tree.clone());
        }
        let region = Direct::anonymous(self.reserve_bytes, false)?;
        let pool = Arc::new(Pool::create(Arc::new(region), PoolOptions::default())?);
        let tree = Arc::new(SvTree::open_with(&pool, 0, Outside(Keys(self.segments.clone())))?);
        trees.insert(kvs, tree.clone());
        self.pools.write().push((kvs, pool));
        Ok(tree)
    }

    /// Enters a record that lies at `offset` of the generation's segment `segment`.
    ///
    /// # Errors
    /// If there is no memory.
    pub(crate) fn enter(
        &self,
        draft: &Draft<'_>,
        sequence: Sequence,
        segment: u32,
        offset: u64,
    ) -> Result<(), StoreError> {
        if draft.kind == Kind::PrefixGone {
            self.prefixes_of(draft.kvs).add(draft.key, sequence);
            return Ok(());
        }
        let tree = self.tree_or_new(draft.kvs)?;
        let mut encoded = Vec::with_capacity(draft.key.len() + 10);
        key::append(draft.key, sequence, &mut encoded);
        tree.insert(&encoded, u64::from(segment) << 32 | offset)?;
        Ok(())
    }

    fn prefixes_of(&self, kvs: KvsId) -> Arc<Prefixes> {
        self.prefixes.write().entry(kvs).or_default().clone()
    }

    /// The prefixes that are gone in a `Kvs`.
    pub(crate) fn prefixes(&self, kvs: KvsId) -> Option<Arc<Prefixes>> {
        self.prefixes.read().get(&kvs).cloned()
    }

    /// The newest version of a key that is not above a sequence number.
    ///
    /// # Errors
    /// If a record is damaged.
    pub(crate) fn find(
        &self,
        kvs: KvsId,
        key: &[u8],
        at: Sequence,
    ) -> Result<Option<Found>, StoreError> {
        let Some(tree) = self.tree(kvs) else { return Ok(None) };
        let mut encoded = Vec::with_capacity(key.len() + 10);
        key::append(key, at, &mut encoded);
        let of_key = encoded.len() - 8;
        let mut found = None;
        tree.range(Bound::Included(&encoded), Direction::Forward, &mut |version, word| {
            if key::is_version_of(version, &encoded[..of_key]) {
                found = Some(word);
            }
            Flow::Stop
        })?;
        found.map(|word| Ok(self.found(word)?.0)).transpose()
    }

    /// The version that a word of the index leads to, and the segment and header of its record.
    fn found(&self, word: u64) -> Result<(Found, &Segment, Header), StoreError> {
        let (segment, offset, header) = self.segments.header(word)?;
        let mut expiry = Expiry::NEVER;
        if header.kind == Kind::PutUntil {
            let mut bytes = Vec::with_capacity(4);
            let at = offset + HEADER_BYTES as u64 + u64::from(header.key_bytes);
            segment.read(at, 4, &mut bytes)?;
            expiry = Expiry(u32_at(&bytes, 0).unwrap_or_default());
        }
        let bytes = header.bytes() as u32;
        let place = RecordPlace { segment: segment.number(), offset, bytes };
        let value = (header.kind != Kind::Gone).then_some(place);
        Ok((Found { sequence: header.sequence, expiry, value }, segment, header))
    }

    /// Shows versions from (key, sequence number) on, or downwards from before it, until `visit`
    /// stops it.
    ///
    /// # Errors
    /// If a record is damaged.
    pub(crate) fn walk(
        &self,
        kvs: KvsId,
        from: Bound<(&[u8], Sequence)>,
        direction: Direction,
        visit: &mut dyn FnMut(&[u8], Found) -> Flow,
    ) -> Result<(), StoreError> {
        let Some(tree) = self.tree(kvs) else { return Ok(()) };
        let mut encoded = Vec::new();
        let from = from.map(|(key, sequence)| {
            key::append(key, sequence, &mut encoded);
            encoded.as_slice()
        });
        let mut failed = None;
        let mut plain = Vec::new();
        tree.range(from, direction, &mut |_, word| {
            let shown = self.found(word).and_then(|(found, segment, header)| {
                plain.clear();
                let at = self.segments.at(word)?.1 + HEADER_BYTES as u64;
                segment.read(at, header.key_bytes as usize, &mut plain)?;
                Ok(visit(&plain, found))
            });
            shown.unwrap_or_else(|error| {
                failed = Some(error);
                Flow::Stop
            })
        })?;
        failed.map_or(Ok(()), Err)
    }
}
