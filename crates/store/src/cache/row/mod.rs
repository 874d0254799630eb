//! The row cache: entries that were read last, whole, so that a repeated read takes one lookup in
//! DRAM however many generations and runs there are. It also has the locks of keys, which keep it
//! in step with writes.
//!
//! A key's hash chooses a stripe. A stripe has a table of lines with eight slots each and a ring of
//! bytes, in which entries lie one behind the other ([`ring`]). A slot has some bits of the hash
//! and the place of an entry in the ring.
//!
//! **Admission.** Keys that are written or read one by one are admitted while there is room. Later,
//! a key is admitted if its name was left in the table by an earlier read. Keys that are read once
//! therefore evict nothing, and cursors do not fill the cache at all. The oldest entry makes room.
//! If it was found since it was put in or last stayed, it stays for another round.
//!
//! Who may do what:
//! 1. A writer holds the lock of its key's stripe from before its write gets a number until the
//!    write is published. It removes the key's entry before any reader can see the new version
//!    elsewhere, so no reader finds the old one here after that. If there was an entry, or if there
//!    is room, the writer puts the new one in once the write is published.
//! 2. Apart from writers, only a reader that fills a stripe changes it, and holds the lock as well.
//!    It has read the value without the lock. It therefore notes the number of writes before it
//!    reads ([`Ticket`]), and does not fill if there was another write since: an older value never
//!    comes back.
//! 3. Lookups take no lock. They copy an entry, and check that its slot is unchanged. The slot is
//!    emptied before the bytes are used again, and never gets its old contents again within the
//!    time of a read ([`slot`]).
//! 4. A range delete locks all stripes, but leaves the entries where they are. Each entry has the
//!    number of range deletes from before it was read. Lookups check the later ones, which are
//!    counted before they are published, for whether they cover it.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    fence,
};

use entresol_base::hash::KeyHasher;
use entresol_base::sync::{Mutex, MutexGuard, RwLock};
use serde::Serialize;

use crate::StoreError;
use crate::cache::budget::{Borrower, Room};
use crate::options::ROW_CACHE_BYTES_MIN;
use crate::segment::record::{Draft, Kind};
use crate::types::{Expiry, KvsId, Sequence};
use ring::{Header, Ring, Stripes};
use slot::Slot;

mod ring;
mod slot;

/// Number of locks.
pub(crate) const STRIPES: usize = 256;
// Each stripe has room for a few entries.
const _: () = assert!(ROW_CACHE_BYTES_MIN >= STRIPES as u64 * 8 * 64);
/// Most times that a lookup is repeated because its entry was moved.
const LOOKS: u32 = 4;
/// Most range deletes that are remembered, and most bytes of their prefixes.
const PREFIXES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 128 << 10;

/// The row cache, and the locks of keys.
#[derive(Debug)]
pub(crate) struct RowCache {
    hasher: NameHasher,
    locks: Box<[Stripe]>,
    /// Memory of the cache, or `None` if nothing is cached.
    stripes: Option<Stripes>,
    /// Stripe that next gives back borrowed memory.
    next: AtomicUsize,
    /// Number of range deletes so far.
    epoch: AtomicU32,
    gone: RwLock<RangeDeletes>,
}

/// Lock and counters of the keys whose hashes choose this stripe.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    ring: Mutex<Ring>,
    /// Number of writes, changed under the lock.
    writes: AtomicU64,
    /// Numbers of lookups. Two that count at once may count as one.
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The last range deletes, with their numbers.
#[derive(Debug, Default)]
struct RangeDeletes {
    last: VecDeque<(u32, KvsId, Vec<u8>)>,
    bytes: usize,
    /// Number of the last range delete that was forgotten. Entries that were read before it are not
    /// used any more.
    forgotten: u32,
}

/// Hash function for the keys of several `Kvs`.
#[derive(Debug)]
pub(crate) struct NameHasher(KeyHasher);

/// A key with its `Kvs` and hash.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) kvs: KvsId,
    pub(crate) key: &'a [u8],
    hash: u64,
}

impl Name<'_> {
    /// Returns the hash of the `Kvs` and the key.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// Version of a cached entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
}

/// Kind of a lookup.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// A read of this key by itself.
    ForIt,
    /// A cursor or another reader of several keys.
    Beside,
}

/// State that a reader notes before it reads a value to fill in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    writes: u64,
    epoch: u32,
}

/// Locks of the keys that a writer writes.
#[derive(Debug)]
pub(crate) struct KeyLocks<'a> {
    entries: &'a RowCache,
    guards: Guards<'a>,
    /// Slot that led to the entry of the key, if a single key is written.
    emptied: Option<Slot>,
}

#[derive(Debug)]
enum Guards<'a> {
    /// Lock of one key, with its hash.
    One(u64, MutexGuard<'a, Ring>),
    /// Locks by the numbers of their stripes, in their order.
    Several(Vec<(usize, MutexGuard<'a, Ring>)>),
}

/// Counters of the row cache, and its memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCacheCounts {
    /// Reads of single keys that it answered. The number is approximate if threads read at once.
    pub hits: u64,
    /// Reads of single keys that it did not answer.
    pub misses: u64,
    /// Most bytes of DRAM of its own, which it takes as it fills.
    pub cap_bytes: u64,
    /// Bytes that it borrowed from the shares of the block cache and the memtable indexes.
    pub borrowed_bytes: u64,
}

impl RowCache {
    /// Creates an empty cache of at most so many bytes, and those that it borrows. With 0 bytes,
    /// nothing is cached.
    ///
    /// # Errors
    /// Fails if the system has no address space.
    pub(crate) fn new(cap_bytes: u64, room: &Arc<Room>) -> Result<Arc<RowCache>, StoreError> {
        let stripes = match cap_bytes {
            0 => None,
            _ => Some(Stripes::new(STRIPES as u64, cap_bytes, room)?),
        };
        let locks = (0..STRIPES).map(|_| Stripe::default()).collect();
        let (epoch, gone, next) = (AtomicU32::new(0), RwLock::default(), AtomicUsize::new(0));
        let hasher = NameHasher::new();
        let entries = Arc::new(RowCache { hasher, locks, stripes, next, epoch, gone });
        let borrower = Arc::downgrade(&entries);
        room.lend_to(borrower);
        Ok(entries)
    }

    /// Returns its counters.
    pub(crate) fn counts(&self) -> RowCacheCounts {
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            self.locks.iter().map(|stripe| count(stripe).load(Relaxed)).sum()
        };
        let (hits, misses) = (sum(|it| &it.hits), sum(|it| &it.misses));
        let cap_bytes = self.stripes.as_ref().map_or(0, Stripes::bytes);
        let borrowed_bytes = self.stripes.as_ref().map_or(0, |it| it.room().borrowed());
        RowCacheCounts { hits, misses, cap_bytes, borrowed_bytes }
    }

    /// Returns a key with its hash.
    #[inline]
    pub(crate) fn name<'a>(&self, kvs: KvsId, key: &'a [u8]) -> Name<'a> {
        Name { kvs, key, hash: self.hasher.hash(kvs, key) }
    }

    /// Appends the value of a key to `out` if its newest version is cached and a reader at `at`
    /// sees it.
    #[inline]
    pub(crate) fn find(&self, name: &Name<'_>, at: Sequence, out: &mut Vec<u8>) -> Option<Cached> {
        let stripes = self.stripes.as_ref()?;
        let before = out.len();
        let found = self.look(stripes, name, Asks::ForIt, out).filter(|found| found.sequence <= at);
        let stripe = &self.locks[name.stripe()];
        let count = if found.is_some() { &stripe.hits } else { &stripe.misses };
        count.store(count.load(Relaxed) + 1, Relaxed);
        if found.is_none() {
            out.truncate(before);
        }
        found
    }

    /// Appends the value of a key to `out` if this version of it is cached, and returns true then.
    /// It is for readers of several keys: nothing is counted, and the entry is not kept any longer
    /// for it.
    pub(crate) fn peek(&self, name: &Name<'_>, version: Sequence, out: &mut Vec<u8>) -> bool {
        let Some(stripes) = &self.stripes else { return false };
        let before = out.len();
        let found = self.look(stripes, name, Asks::Beside, out);
        let is_it = found.is_some_and(|found| found.sequence == version);
        if !is_it {
            out.truncate(before);
        }
        is_it
    }

    /// Lets the processor fetch the slots of a key.
    #[inline]
    pub(crate) fn prefetch(&self, name: &Name<'_>) {
        if let Some(stripes) = &self.stripes {
            stripes.prefetch(name.stripe(), name.hash);
        }
    }

    /// Lets the processor fetch the entry of a key, once its slots are there.
    #[inline]
    pub(crate) fn prefetch_entry(&self, name: &Name<'_>) {
        if let Some(stripes) = &self.stripes {
            stripes.prefetch_entry(name.stripe(), name.hash);
        }
    }

    #[inline]
    fn look(
        &self,
        stripes: &Stripes,
        name: &Name<'_>,
        asks: Asks,
        out: &mut Vec<u8>,
    ) -> Option<Cached> {
        let before = out.len();
        let slots = stripes.slots(name.stripe(), name.hash);
        for _ in 0..LOOKS {
            let mut has_moved = false;
            for word in slots {
                let slot = Slot(word.load(Acquire));
                if !slot.is_entry_of(name.hash) {
                    continue;
                }
                let header = stripes.read(name.stripe(), slot, name, out);
                fence(Acquire);
                if !Slot(word.load(Relaxed)).is_same(slot) {
                    out.truncate(before);
                    has_moved = true;
                    break;
                }
                let Some(header) = header else { continue };
                if header.epoch != self.epoch.load(Acquire) && self.is_deleted(name, header.epoch) {
                    return None;
                }
                if asks == Asks::ForIt && !slot.was_found() {
                    // If the slot has changed meanwhile, the note is dropped.
                    let _ = word.compare_exchange(slot.0, slot.found().0, Relaxed, Relaxed);
                }
                return Some(Cached { sequence: header.sequence, expiry: header.expiry });
            }
            if !has_moved {
                return None;
            }
        }
        None
    }

    /// Returns true if a range delete since an entry was read covers its key.
    #[cold]
    fn is_deleted(&self, name: &Name<'_>, epoch: u32) -> bool {
        let gone = self.gone.read();
        let covers = |(number, kvs, prefix): &(u32, KvsId, Vec<u8>)| {
            *number > epoch && *kvs == name.kvs && name.key.starts_with(prefix)
        };
        epoch < gone.forgotten || gone.last.iter().any(covers)
    }

    /// Takes the ticket that a reader needs before it reads a value to fill in.
    #[inline]
    pub(crate) fn ticket(&self, name: &Name<'_>) -> Ticket {
        let epoch = self.epoch.load(Acquire);
        Ticket { writes: self.locks[name.stripe()].writes.load(Acquire), epoch }
    }

    /// Caches a value that was read, unless there was a write since the ticket was taken.
    pub(crate) fn fill(&self, name: &Name<'_>, ticket: Ticket, cached: Cached, value: &[u8]) {
        let Some(stripes) = &self.stripes else { return };
        let stripe = &self.locks[name.stripe()];
        // A writer that holds the lock now makes the value obsolete.
        let Some(mut ring) = stripe.ring.try_lock() else { return };
        if stripe.writes.load(Acquire) != ticket.writes || ticket.epoch == u32::MAX {
            return;
        }
        if stripes.is_let_in(name.stripe(), &mut ring, name.hash) {
            let header = Header::new(name, cached, ticket.epoch);
            stripes.put((name.stripe(), &mut ring), None, &header, (name.key, value));
        }
    }

    /// Locks a key.
    #[inline]
    pub(crate) fn lock(&self, name: &Name<'_>) -> KeyLocks<'_> {
        self.prefetch(name);
        let ring = self.locks[name.stripe()].ring.lock();
        KeyLocks { entries: self, guards: Guards::One(name.hash, ring), emptied: None }
    }

    /// Locks several keys, in the order of their stripes, which rules out deadlocks.
    pub(crate) fn lock_all<'a>(
        &self,
        keys: impl Iterator<Item = (KvsId, &'a [u8])>,
    ) -> KeyLocks<'_> {
        let mut stripes: Vec<usize> = keys.map(|(kvs, key)| self.name(kvs, key).stripe()).collect();
        stripes.sort_unstable();
        stripes.dedup();
        self.lock_stripes(stripes.into_iter())
    }

    /// Locks all keys.
    pub(crate) fn lock_every(&self) -> KeyLocks<'_> {
        self.lock_stripes(0..STRIPES)
    }

    fn lock_stripes(&self, stripes: impl Iterator<Item = usize>) -> KeyLocks<'_> {
        let guards = stripes.map(|stripe| (stripe, self.locks[stripe].ring.lock())).collect();
        KeyLocks { entries: self, guards: Guards::Several(guards), emptied: None }
    }

    /// Remembers a range delete.
    fn note_deleted(&self, kvs: KvsId, prefix: &[u8]) {
        let mut gone = self.gone.write();
        let number = self.epoch.load(Relaxed).saturating_add(1);
        gone.bytes += prefix.len();
        gone.last.push_back((number, kvs, prefix.to_vec()));
        while gone.last.len() > PREFIXES_MAX || gone.bytes > PREFIX_BYTES_MAX {
            let Some((number, _, prefix)) = gone.last.pop_front() else { break };
            gone.bytes -= prefix.len();
            gone.forgotten = number;
        }
        self.epoch.store(number, Release);
    }
}

impl Borrower for RowCache {
    fn give_back(&self, bytes: u64) {
        let Some(stripes) = &self.stripes else { return };
        let (mut given, part) = (0, bytes / STRIPES as u64);
        loop {
            let before = given;
            for _ in 0..STRIPES {
                let stripe = self.next.fetch_add(1, Relaxed) % STRIPES;
                // The caller may hold some of the locks, so this must not wait for any.
                if let Some(mut ring) = self.locks[stripe].ring.try_lock() {
                    given += stripes.give_back(stripe, &mut ring, part);
                }
                if given >= bytes {
                    return;
                }
            }
            // All other stripes are locked.
            if given == before {
                return;
            }
        }
    }
}

impl NameHasher {
    /// Creates the hash function, which is the same in all stores.
    pub(crate) fn new() -> NameHasher {
        NameHasher(KeyHasher::seeded(0))
    }

    /// Returns the hash of a `Kvs` and a key.
    #[inline]
    pub(crate) fn hash(&self, kvs: KvsId, key: &[u8]) -> u64 {
        let of_kvs = u64::from(kvs.0).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.0.hash(key).wrapping_add(of_kvs)
    }
}

impl Name<'_> {
    #[inline]
    fn stripe(&self) -> usize {
        stripe_of(self.hash)
    }
}

/// Returns the stripe of keys with a hash.
#[inline]
pub(crate) fn stripe_of(hash: u64) -> usize {
    (hash >> 56) as usize % STRIPES
}

impl KeyLocks<'_> {
    /// Returns the hash of the key, if it is a single one.
    #[inline]
    pub(crate) fn hash(&self) -> Option<u64> {
        match &self.guards {
            Guards::One(hash, _) => Some(*hash),
            Guards::Several(_) => None,
        }
    }

    /// Removes the entries of keys whose new versions are about to be visible.
    #[inline]
    pub(crate) fn remove(&mut self, drafts: &[Draft<'_>]) {
        let Some(stripes) = &self.entries.stripes else { return };
        if let (Guards::One(hash, ring), [_]) = (&self.guards, drafts) {
            self.emptied = match ring.is_empty() {
                true => None,
                false => stripes.remove(stripe_of(*hash), *hash),
            };
            return;
        }
        for draft in drafts {
            if draft.kind == Kind::RangeDelete {
                self.entries.note_deleted(draft.kvs, draft.key);
            } else {
                let name = self.entries.name(draft.kvs, draft.key);
                stripes.remove(name.stripe(), name.hash);
            }
        }
    }

    /// Caches a version that was written, if its key was cached or nothing has to make room for it.
    #[inline]
    pub(crate) fn put(&mut self, draft: &Draft<'_>, sequence: Sequence) {
        let epoch = self.entries.epoch.load(Acquire);
        let (Some(stripes), Guards::One(hash, ring)) = (&self.entries.stripes, &mut self.guards)
        else {
            return;
        };
        let bytes = draft.key.len() + draft.value.len();
        if self.emptied.is_none() && !stripes.has_room(ring, bytes) {
            return;
        }
        if matches!(draft.kind, Kind::Put | Kind::PutUntil) && epoch != u32::MAX {
            let name = Name { kvs: draft.kvs, key: draft.key, hash: *hash };
            debug_assert_eq!(
                name.hash,
                self.entries.name(draft.kvs, draft.key).hash,
                "the lock that is held is not that of the key that was written",
            );
            let header = Header::new(&name, Cached { sequence, expiry: draft.expiry }, epoch);
            let stripe = (name.stripe(), &mut **ring);
            stripes.put(stripe, self.emptied.take(), &header, (draft.key, draft.value));
        }
    }
}

impl Guards<'_> {
    fn stripes(&self) -> impl Iterator<Item = usize> {
        let (one, several) = match self {
            Guards::One(hash, _) => (Some(stripe_of(*hash)), &[][..]),
            Guards::Several(all) => (None, all.as_slice()),
        };
        one.into_iter().chain(several.iter().map(|(stripe, _)| *stripe))
    }
}

impl Drop for KeyLocks<'_> {
    fn drop(&mut self) {
        for stripe in self.guards.stripes() {
            let writes = &self.entries.locks[stripe].writes;
            writes.store(writes.load(Relaxed) + 1, Release);
        }
    }
}

#[cfg(test)]
mod tests;
