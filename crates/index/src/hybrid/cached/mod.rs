//! `Cached`: a bounded cache in DRAM over any index, filled in the background.
//!
//! A look-up asks the cache first. On a miss it asks the index, returns the value, and leaves it to
//! a thread to cache it; if that thread cannot keep up, some fills are lost. An insert leaves the
//! cache alone; an update and a removal change both before they return (ACS, the asynchronous cache
//! scheme, in «Rethinking Index Design Based on PM Device», section 3.2).
//!
//! In parallel mode, a helper searches the index while the cache is probed, so that a miss costs no
//! more than the index, and every look-up takes the index's time and bandwidth. An update goes to
//! the index in the same way while the cache is changed. By default the mode is on while most
//! look-ups miss. It pays if a search takes much longer than handing it over.
//!
//! The paper evicts the least recently used records. Ours is CLOCK, within sets of thirteen: a hit
//! sets a bit instead of moving links, which costs readers less and keeps as much or more; records
//! that were read only once go first. Sets are the cache's lock stripes as well.
//!
//! **No old value is ever returned, or cached.** Before a key is changed in the index it is removed
//! from the cache, and its set's version goes up. Until that change is done no value that was read
//! is put into the set, and a fill carries the version that it saw before it asked the index: if
//! that is no longer the set's, it is dropped. The thread that made a change puts the new value
//! back if there was no other change in the set meanwhile.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Bound;
use std::sync::Arc;

use entresol_base::clock::Picos;
use entresol_base::sync::Mutex;
use entresol_base::world::World;
use entresol_media::Region;

use crate::hybrid::queue::{Background, Queue};
use crate::hybrid::switch::{Switch, TOLD};
use crate::mix::mix;
use crate::{Direction, Flow, Index, IndexError, Persistent, Pool, Statistics};

mod helpers;
mod set;

use helpers::{Helpers, Ticket, Work};
use set::{Begun, Locked, Set, WAYS};

/// Choice of searching the index while the cache is probed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Probing {
    /// Parallel while most look-ups miss.
    #[default]
    ByMisses,
    /// Never parallel.
    Serial,
    /// Parallel if a helper is free.
    Parallel,
}

/// Options of a new cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheOptions {
    /// Most records that it holds, at least 13. Each takes about 20 bytes; if keys are of any
    /// length about 36, and the key.
    pub entries: usize,
    /// Most fills that may wait, at least 1; more are lost.
    pub fills_waiting: usize,
    /// Choice of searching the index while the cache is probed.
    pub probing: Probing,
    /// Number of helper threads. A look-up that finds none free does both itself.
    pub helpers: usize,
    /// Time of a probe in a simulated world, to which DRAM is free. Nothing elsewhere.
    pub probe: Picos,
    /// Time that a caller takes to wake a helper in a simulated world, to which threads are free.
    /// Nothing elsewhere.
    pub wake: Picos,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions {
            entries: 1 << 16,
            fills_waiting: 1024,
            probing: Probing::ByMisses,
            helpers: 1,
            probe: Picos::ZERO,
            wake: Picos::ZERO,
        }
    }
}

/// Counters of a cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct CacheCounts {
    /// Look-ups that the cache answered.
    pub hits: u64,
    /// Look-ups that the cache did not answer.
    pub misses: u64,
}

/// A key that a cache can hold.
pub trait CacheKey: Ord + ToOwned<Owned: Default + fmt::Debug + Send + Sync + 'static> {
    /// Returns a number that is spread evenly, whatever the keys.
    fn spread(&self) -> u64;

    /// Returns the bytes that a cached key takes beside its slot.
    fn bytes_apart(&self) -> u64;
}

impl CacheKey for u64 {
    #[inline]
    fn spread(&self) -> u64 {
        mix(*self)
    }

    fn bytes_apart(&self) -> u64 {
        0
    }
}

impl CacheKey for [u8] {
    fn spread(&self) -> u64 {
        let (words, rest) = self.as_chunks::<8>();
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        let words = words.iter().chain([&last]).map(|word| u64::from_le_bytes(*word));
        words.fold(self.len() as u64, |sum, word| mix(sum ^ word))
    }

    fn bytes_apart(&self) -> u64 {
        self.len() as u64
    }
}

/// Type of a key in the cache of an index.
type Owned<I> = <<I as Index>::Key as ToOwned>::Owned;

/// An index with a cache; see the head of the module.
#[derive(Debug)]
pub struct Cached<I: Index<Key: CacheKey> + 'static> {
    shared: Arc<Shared<I, Owned<I>>>,
    helpers: Arc<Helpers<Owned<I>>>,
    /// The thread that fills, and the helpers.
    _background: Vec<Background>,
}

#[derive(Debug)]
struct Shared<I, K> {
    index: I,
    sets: Box<[Locked<K>]>,
    fills: Queue<Fill<K>>,
    probing: Probing,
    probe: Picos,
    wake: Picos,
    /// Switch that is on while most look-ups miss.
    misses_prevail: Switch,
}

/// A value that a look-up found in the index.
#[derive(Debug)]
struct Fill<K> {
    key: K,
    value: u64,
    /// Version of the key's set before the index was asked.
    version: u64,
}

impl<I: Index<Key: CacheKey>> Shared<I, Owned<I>> {
    fn set(&self, key: &I::Key) -> &Mutex<Set<Owned<I>>> {
        let sets = self.sets.len() as u128;
        &self.sets[((u128::from(key.spread()) * sets) >> 64) as usize].0
    }

    fn is_parallel(&self) -> bool {
        match self.probing {
            Probing::ByMisses => self.misses_prevail.is_on(),
            Probing::Serial => false,
            Probing::Parallel => true,
        }
    }

    fn fill(&self) {
        let _closing = self.fills.closing();
        let mut fills = Vec::new();
        while self.fills.take(&mut fills) {
            for Fill { key, value, version } in &fills {
                let key: &I::Key = key.borrow();
                self.set(key).lock().fill(key, *value, *version);
            }
            self.fills.done(fills.len());
            fills.clear();
        }
    }

    fn work(&self, work: Work, key: &I::Key) -> Result<Option<u64>, IndexError> {
        match work {
            Work::Get => self.index.get(key),
            Work::Upsert(value) => self.index.upsert(key, value),
            Work::Remove => self.index.remove(key),
        }
    }
}

impl<I: Index<Key: CacheKey> + 'static> Cached<I> {
    /// Makes an empty cache over an index that is changed only through it.
    ///
    /// # Errors
    /// If the options are impossible.
    pub fn new(index: I, options: &CacheOptions) -> Result<Cached<I>, IndexError> {
        let sets = options.entries / WAYS;
        if sets == 0 {
            let what = format!("a cache of {} records: give it at least {WAYS}", options.entries);
            return Err(IndexError::Options { what });
        }
        let shared = Arc::new(Shared {
            index,
            sets: (0..sets).map(|_| Locked::default()).collect(),
            fills: Queue::new(options.fills_waiting),
            probing: options.probing,
            probe: options.probe,
            wake: options.wake,
            misses_prevail: Switch::default(),
        });
        let count = if options.probing == Probing::Serial { 0 } else { options.helpers };
        let helpers = Arc::new(Helpers::new(count));
        let filler = Arc::clone(&shared);
        let mut background = vec![Background::start("filler of a cache", move || filler.fill())];
        background.extend((0..count).map(|number| {
            let (helpers, shared) = (Arc::clone(&helpers), Arc::clone(&shared));
            Background::start("helper of a cache", move || {
                helpers.run(number, |work, key: &Owned<I>| shared.work(work, key.borrow()));
            })
        }));
        Ok(Cached { shared, helpers, _background: background })
    }

    /// Returns the index.
    #[must_use]
    pub fn index(&self) -> &I {
        &self.shared.index
    }

    /// Returns the counters since the cache was made.
    #[must_use]
    pub fn counts(&self) -> CacheCounts {
        let counts = self.shared.sets.iter().map(|set| set.0.lock().counts);
        counts.fold(CacheCounts::default(), |all, one| CacheCounts {
            hits: all.hits + one.hits,
            misses: all.misses + one.misses,
        })
    }

    /// Returns true if the index is searched at present while the cache is probed.
    #[must_use]
    pub fn is_parallel(&self) -> bool {
        self.shared.is_parallel()
    }

    /// Waits until all values read so far are cached, or lost.
    pub fn settle(&self) {
        // If it is closed, nothing more comes: waiting fills are lost.
        let _is_done = self.shared.fills.settle();
    }

    /// Hands work to a helper if this is the mode and one is free.
    fn begin(&self, work: Work, key: &I::Key) -> Option<Ticket<'_, Owned<I>>> {
        let is_parallel = self.shared.is_parallel();
        let ticket = is_parallel.then(|| self.helpers.begin(work, key)).flatten()?;
        pass(self.shared.wake);
        Some(ticket)
    }

    /// Changes a key in the index, and in the cache if it is there.
    fn change(&self, work: Work, key: &I::Key) -> Result<Option<u64>, IndexError> {
        let set = self.shared.set(key);
        // No thread reads the set until the key is gone from it, so a helper may begin at once.
        let mut locked = set.lock();
        let ticket = self.begin(work, key);
        pass(self.shared.probe);
        let mut change = Change { set, key, begun: locked.begin(key), value: None };
        drop(locked);
        let answer = match ticket {
            Some(ticket) => ticket.wait(),
            None => self.shared.work(work, key),
        };
        change.value = match work {
            Work::Upsert(value) if answer.is_ok() => Some(value),
            _ => None,
        };
        answer
    }
}

/// Lets time pass in a simulated world.
fn pass(time: Picos) {
    if time > Picos::ZERO
        && let Some(world) = World::current()
    {
        world.spend(time);
    }
}

/// A change in progress. It ends when this is dropped, also by a panic of the index.
struct Change<'a, K: CacheKey + ?Sized> {
    set: &'a Mutex<Set<K::Owned>>,
    key: &'a K,
    begun: Begun,
    value: Option<u64>,
}

impl<K: CacheKey + ?Sized> Drop for Change<'_, K> {
    fn drop(&mut self) {
        self.set.lock().end(self.key, self.begun, self.value);
    }
}

impl<I: Index<Key: CacheKey> + 'static> Index for Cached<I> {
    type Key = I::Key;

    fn insert(&self, key: &I::Key, value: u64) -> Result<bool, IndexError> {
        // A key that is not in the index is not in the cache.
        self.shared.index.insert(key, value)
    }

    fn upsert(&self, key: &I::Key, value: u64) -> Result<Option<u64>, IndexError> {
        self.change(Work::Upsert(value), key)
    }

    fn get(&self, key: &I::Key) -> Result<Option<u64>, IndexError> {
        let shared = &self.shared;
        let mut set = shared.set(key).lock();
        // The version is seen before the helper asks the index.
        let version = set.version_to_fill();
        let ticket = self.begin(Work::Get, key);
        pass(shared.probe);
        let hit = set.get(key);
        let told = set.take_misses(TOLD);
        drop(set);
        if let Some(misses) = told {
            shared.misses_prevail.tell(TOLD, misses);
        }
        if hit.is_some() {
            return Ok(hit);
        }
        let found = match ticket {
            Some(ticket) => ticket.wait()?,
            None => shared.index.get(key)?,
        };
        if let (Some(value), Some(version)) = (found, version) {
            // Lost if too many wait: the reader does not.
            shared.fills.offer(Fill { key: key.to_owned(), value, version });
        }
        Ok(found)
    }

    fn remove(&self, key: &I::Key) -> Result<Option<u64>, IndexError> {
        self.change(Work::Remove, key)
    }

    fn range(
        &self,
        from: Bound<&I::Key>,
        direction: Direction,
        visit: &mut dyn FnMut(&I::Key, u64) -> Flow,
    ) -> Result<(), IndexError> {
        self.shared.index.range(from, direction, visit)
    }

    fn statistics(&self) -> Result<Statistics, IndexError> {
        let mut statistics = self.shared.index.statistics()?;
        let apart = |key: &Owned<I>| Borrow::<I::Key>::borrow(key).bytes_apart();
        let of_set = |set: &Locked<Owned<I>>| set.0.lock().keys().iter().map(apart).sum::<u64>();
        let keys: u64 = self.shared.sets.iter().map(of_set).sum();
        statistics.volatile_bytes +=
            size_of_val(&*self.shared.sets) as u64 + keys + self.shared.fills.bytes();
        Ok(statistics)
    }
}

impl<R: Region, I: Persistent<R, Key: CacheKey> + 'static> Persistent<R> for Cached<I> {
    type Options = (I::Options, CacheOptions);

    fn open(
        pool: &Arc<Pool<R>>,
        root: usize,
        options: &(I::Options, CacheOptions),
    ) -> Result<Cached<I>, IndexError> {
        Cached::new(I::open(pool, root, &options.0)?, &options.1)
    }

    fn blocks(&self, visit: &mut dyn FnMut(u64)) -> Result<(), IndexError> {
        self.shared.index.blocks(visit)
    }
}

impl<I: Index<Key: CacheKey> + 'static> Drop for Cached<I> {
    fn drop(&mut self) {
        self.shared.fills.close();
        self.helpers.close();
    }
}

#[cfg(test)]
mod tests;
