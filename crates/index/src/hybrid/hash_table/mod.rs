//! `HashTable`: a hash table on the medium that grows a segment at a time.
//!
//! The first bits of a key's hash select its segment, the last ones its buckets there: four lines
//! of four records at most; one line is written for every change. A segment without room for a key
//! is split by one more bit of the hash: only records that move are written, and their old copies
//! are not cleared, since their hashes show that they belong elsewhere (CCEH: Nam, Cha, Choi, Noh,
//! Nam, «Write-optimized dynamic hashing for persistent memory», FAST 2019, section 4).
//!
//! Differences: the directory is in DRAM only. Segments lead from one to the next in the order of
//! their hashes, and a link and the depth, the number of bits that the segment's hashes share, are
//! one word. So one store is the whole split, and no crash leaves segments and directory at odds;
//! the directory is built from the links while the table is opened, a line for each segment. A slot
//! is taken by the store of its value and by nothing before it, so no crash leaves one half taken.
//!
//! It never shrinks. Readers take no lock of a segment, and prove afterwards that there was no
//! write; writers of different segments do not wait for one another; a split stops all.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use entresol_base::sync::RwLock;
use entresol_media::Region;

use crate::index::check_value;
use crate::latch::Latches;
use crate::mix::mix;
use crate::root::{Tag, durable};
use crate::settled::Settled;
use crate::{IndexError, Pool, Statistics};

mod segment;

use segment::{DEPTH_MAX, Found, Link, Segments};

const TAG: Tag = Tag(*b"HASHTAB1");
/// Words of the root block.
const BYTES_WORD: usize = 1;
const FIRST_WORD: usize = 2;
const SEED_WORD: usize = 3;

/// Options of a new [`HashTable`]. An existing one keeps those that it was made with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HashTableOptions {
    /// Bytes of a segment: a multiple of 64 from 128 to 16 KiB.
    pub segment_bytes: u64,
    /// Seed of the hashes. If strangers choose the keys, draw it at random: against a known seed
    /// they could choose keys that all collide.
    pub seed: u64,
}

impl Default for HashTableOptions {
    fn default() -> HashTableOptions {
        HashTableOptions { segment_bytes: 16 << 10, seed: 0 }
    }
}

/// A persistent hash table; see the head of the module.
#[derive(Debug)]
pub struct HashTable<R> {
    pool: Arc<Pool<R>>,
    root: u64,
    first: u64,
    seed: u64,
    segments: Segments,
    directory: RwLock<Directory>,
    latches: Latches,
    settled: Settled,
    splits: AtomicU64,
}

/// Segments by the first bits of hashes.
#[derive(Debug, Default)]
struct Directory {
    /// Number of bits of a hash that select a segment.
    depth: u32,
    segments: Vec<u64>,
}

impl Directory {
    /// Builds the directory of the segments from the first on.
    fn of(links: &[Link]) -> Directory {
        let depth = links.iter().map(|link| link.depth).max().unwrap_or(0);
        let mut segments = Vec::with_capacity(1 << depth);
        for link in links {
            segments.extend(std::iter::repeat_n(link.encode(), 1 << (depth - link.depth)));
        }
        Directory { depth, segments }
    }

    fn number(&self, hash: u64) -> usize {
        hash.checked_shr(64 - self.depth).unwrap_or(0) as usize
    }

    fn find(&self, hash: u64) -> Link {
        Link::decode(self.segments[self.number(hash)])
    }

    /// Enters the split of this hash's segment; `upper` has the upper half of its hashes.
    fn split(&mut self, hash: u64, lower: Link, upper: Link) {
        if lower.depth > self.depth {
            self.depth += 1;
            self.segments = self.segments.iter().flat_map(|&link| [link; 2]).collect();
        }
        let entries = 1 << (self.depth - lower.depth + 1);
        let begin = self.number(hash) & !(entries - 1);
        let leads = |&link: &u64| Link::decode(link).to == lower.to;
        assert!(
            lower.depth == upper.depth && self.segments[begin..begin + entries].iter().all(leads),
            "{entries} entries from {begin} on do not lead to {lower:?}, which {upper:?} halves",
        );
        let (below, above) = self.segments[begin..begin + entries].split_at_mut(entries / 2);
        below.fill(lower.encode());
        above.fill(upper.encode());
    }
}

impl<R: Region> HashTable<R> {
    /// Opens the table at this root of the pool, after a crash or not, or makes an empty one if the
    /// root is 0.
    ///
    /// # Errors
    /// If the options are impossible, there is no room, or damage is found.
    pub fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &HashTableOptions,
    ) -> Result<HashTable<R>, IndexError> {
        let (root, words) = match TAG.find(pool, root)? {
            Some(found) => found,
            None => make(pool, root, options)?,
        };
        let segments = Segments::new(words[BYTES_WORD]);
        let mut table = HashTable {
            pool: Arc::clone(pool),
            root,
            first: words[FIRST_WORD],
            seed: words[SEED_WORD],
            segments: segments.map_err(|what| IndexError::damaged(root, what))?,
            directory: RwLock::default(),
            latches: Latches::new(),
            settled: Settled::new(pool, words[BYTES_WORD].max(64))?,
            splits: AtomicU64::new(0),
        };
        let links = table.links()?;
        // From now on the directory replaces the links, and these may not be durable.
        links.iter().for_each(|link| table.region().flush(link.to, 64));
        table.region().drain();
        durable(table.region())?;
        table.directory = RwLock::new(Directory::of(&links));
        Ok(table)
    }

    pub(crate) fn region(&self) -> &R {
        self.pool.region()
    }

    /// Returns the links to all segments, in the order of hashes, as they are on the medium.
    fn links(&self) -> Result<Vec<Link>, IndexError> {
        let mut links = Vec::new();
        let (mut at, mut prefix) = (self.first, Some(0u64));
        while let Some(from) = prefix {
            self.pool.check(at, self.segments.bytes())?;
            let link = Segments::link(self.region(), at, from)?;
            links.push(Link { to: at, depth: link.depth });
            at = link.to;
            // The first hash behind this segment's; none is left when that overflows.
            prefix = 1u64.checked_shl(64 - link.depth).and_then(|len| from.checked_add(len));
        }
        Ok(links)
    }

    /// Ensures that a segment's visible contents are durable.
    #[inline]
    fn make_sure(&self, segment: u64) -> Result<(), IndexError> {
        if self.settled.has(segment) {
            return Ok(());
        }
        let _held = self.latches.lock(segment);
        self.settled.settle(self.region(), segment)
    }

    #[inline]
    fn hash(&self, key: u64) -> u64 {
        mix(key ^ self.seed)
    }

    /// Changes the record of a key, or fills its free slot. Returns the result of `with`; if that
    /// is `None`, room is made first.
    fn change<T>(
        &self,
        key: u64,
        mut with: impl FnMut(&R, Found) -> Option<T>,
    ) -> Result<T, IndexError> {
        let hash = self.hash(key);
        loop {
            {
                let directory = self.directory.read();
                let segment = directory.find(hash);
                self.make_sure(segment.to)?;
                let _held = self.latches.lock(segment.to);
                let hashed = |key| self.hash(key);
                let found = self.segments.find(self.region(), segment, key, hashed);
                if let Some(answer) = with(self.region(), found) {
                    durable(self.region())?;
                    return Ok(answer);
                }
            }
            self.split(key)?;
        }
    }

    /// Makes room for a key if there is none.
    fn split(&self, key: u64) -> Result<(), IndexError> {
        let (region, hash) = (self.region(), self.hash(key));
        let mut directory = self.directory.write();
        let old = directory.find(hash);
        let hashed = |key| self.hash(key);
        if !matches!(self.segments.find(region, old, key, hashed), Found::Full) {
            return Ok(());
        }
        let depth = old.depth + 1;
        if depth > DEPTH_MAX {
            return Err(IndexError::Alike { key, bits: DEPTH_MAX });
        }
        let new = self.pool.allocate(self.segments.bytes())?;
        let prefix = hash & !(u64::MAX >> old.depth);
        let next = Segments::link(region, old.to, prefix)?.to;
        let upper = prefix | 1 << (64 - depth);
        let link = Link { to: next, depth };
        self.segments.write(region, new, link, upper, Some(old.to), hashed);
        self.settled.add(new);
        // The split: from here on the upper half counts there, and no more here.
        Segments::set_link(region, old.to, Link { to: new, depth });
        directory.split(hash, Link { to: old.to, depth }, Link { to: new, depth });
        self.splits.fetch_add(1, Relaxed);
        durable(region)
    }

    /// Adds a key unless it is there; returns true if it was added.
    ///
    /// # Errors
    /// If there is no room, the value cannot be kept, or damage is found.
    pub fn insert(&self, key: u64, value: u64) -> Result<bool, IndexError> {
        check_value(value)?;
        self.change(key, |region, found| match found {
            Found::Record { .. } => Some(false),
            Found::Place { at, is_blank } => {
                Segments::put(region, at, is_blank, key, value);
                Some(true)
            }
            Found::Full => None,
        })
    }

    /// Sets the value of a key, adding the key if it is absent; returns its old value.
    ///
    /// # Errors
    /// If there is no room, the value cannot be kept, or damage is found.
    pub fn upsert(&self, key: u64, value: u64) -> Result<Option<u64>, IndexError> {
        check_value(value)?;
        self.change(key, |region, found| match found {
            Found::Record { at, value: old } => {
                Segments::set_value(region, at, value);
                Some(Some(old))
            }
            Found::Place { at, is_blank } => {
                Segments::put(region, at, is_blank, key, value);
                Some(None)
            }
            Found::Full => None,
        })
    }

    /// Removes a key; returns its old value.
    ///
    /// # Errors
    /// If the change may not be durable.
    pub fn remove(&self, key: u64) -> Result<Option<u64>, IndexError> {
        self.change(key, |region, found| match found {
            Found::Record { at, value } => {
                Segments::set_value(region, at, 0);
                Some(Some(value))
            }
            Found::Place { .. } | Found::Full => Some(None),
        })
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// If stores that a killed process left cannot be made durable.
    pub fn get(&self, key: u64) -> Result<Option<u64>, IndexError> {
        let hash = self.hash(key);
        let directory = self.directory.read();
        let at = directory.find(hash).to;
        self.make_sure(at)?;
        loop {
            let seen = self.latches.read(at);
            let value = self.segments.get(self.region(), at, key, hash);
            if self.latches.is_unchanged(at, seen) {
                return Ok(value);
            }
        }
    }

    /// Appends the records, in no order, of the segment that has the hash `from`; returns the hash
    /// at which to go on. Begun at 0, it yields every record that is there all the time once.
    ///
    /// # Errors
    /// As [`HashTable::get`].
    pub(crate) fn scan(
        &self,
        from: u64,
        out: &mut Vec<(u64, u64)>,
    ) -> Result<Option<u64>, IndexError> {
        let directory = self.directory.read();
        let segment = directory.find(from);
        self.make_sure(segment.to)?;
        let _held = self.latches.lock(segment.to);
        self.segments.records(self.region(), segment, from, |key| self.hash(key), out);
        let prefix = from & !u64::MAX.checked_shr(segment.depth).unwrap_or(0);
        Ok(1u64.checked_shl(64 - segment.depth).and_then(|len| prefix.checked_add(len)))
    }

    /// Computes sizes and counters by a walk over the whole table.
    ///
    /// # Errors
    /// As [`HashTable::get`].
    pub fn statistics(&self) -> Result<Statistics, IndexError> {
        let (mut keys, mut nodes, mut records) = (0, 0, Vec::new());
        let mut next = Some(0);
        while let Some(from) = next {
            next = self.scan(from, &mut records)?;
            keys += records.drain(..).count() as u64;
            nodes += 1;
        }
        Ok(Statistics {
            nodes,
            bytes: nodes * self.segments.bytes() + 64,
            volatile_bytes: 8 * self.directory.read().segments.capacity() as u64,
            height: 1,
            keys,
            splits: self.splits.load(Relaxed),
            ..Statistics::default()
        })
    }

    /// Passes every block that the table occupies in the pool to `visit`.
    ///
    /// # Errors
    /// If damage is found.
    pub fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        let _directory = self.directory.read();
        visit(self.root);
        self.links()?.iter().for_each(|link| visit(link.to));
        Ok(())
    }
}

/// Makes an empty table; returns its root block and the words in it.
fn make<R: Region>(
    pool: &Pool<R>,
    root: usize,
    options: &HashTableOptions,
) -> Result<(u64, [u64; 8]), IndexError> {
    let segments = Segments::new(options.segment_bytes);
    let segments = segments.map_err(|what| IndexError::Options { what })?;
    let first = pool.allocate(segments.bytes())?;
    segments.write(pool.region(), first, Link { to: 0, depth: 0 }, 0, None, mix);
    let mut words = [0; 8];
    words[BYTES_WORD] = options.segment_bytes;
    (words[FIRST_WORD], words[SEED_WORD]) = (first, options.seed);
    Ok((TAG.make(pool, root, words)?, words))
}

#[cfg(test)]
mod tests;
