//! The cache of entries: what was read last, whole, so that a key that is read again is found by
//! one look in DRAM however many generations and runs there are; and the locks of keys, under which
//! it is kept in step with what is written.
//!
//! A key's hash says which stripe it belongs to. A stripe has a table of lines with eight slots
//! each and a ring of bytes, in which entries lie one behind the other ([`ring`]). A slot has some
//! bits of the hash and the place of an entry in the ring.
//!
//! **What is let in.** Keys that are written or asked for one by one, as long as there is room;
//! later a key whose name was left in the table when it was asked for before. So what is read once
//! drives nothing out, and cursors do not come here at all. The oldest entry makes room, unless it
//! was found since it came or stayed: then it stays for another round.
//!
//! Who may do what:
//! 1. Who writes a key holds its stripe's lock from before the write gets a number until it counts.
//!    He removes the key's entry before anybody can see the new version elsewhere: nobody finds the
//!    old one here after that. If there was one, or there is room, he puts the new one in when the
//!    write counts.
//! 2. Nobody else writes to a stripe but who fills it, and he holds the lock as well. He has read
//!    without it; so he notes before he reads how many writes there were ([`Ticket`]), and lets it
//!    be if there was one since: an older value never comes back.
//! 3. Readers take no lock. They copy an entry, and look whether its slot is still what it was: the
//!    slot is emptied before the bytes are used again, and never becomes what it was within the
//!    time of a read ([`slot`]).
//! 4. While a prefix is removed all stripes are locked, but entries are left where they are. Each
//!    bears the number of prefixes that had been removed before it was read; those removed since
//!    then, which are counted before they count, are asked whether they cover it.

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
use crate::types::{Expiry, KvsId, Sequence};
use crate::wal::record::{Draft, Kind};
use ring::{Header, Ring, Stripes};
use slot::Slot;

mod ring;
mod slot;

/// How many locks there are.
pub(crate) const STRIPES: usize = 256;
/// The least bytes of a cache, unless there is none.
pub(crate) const ROW_CACHE_BYTES_MIN: u64 = STRIPES as u64 * 8 * 64;
/// How often a reader looks again whose entry was moved.
const LOOKS: u32 = 4;
/// So many prefixes that were removed are remembered, and so many bytes of them.
const PREFIXES_MAX: usize = 64;
const PREFIX_BYTES_MAX: usize = 128 << 10;

/// The cache of entries, and the locks of keys.
#[derive(Debug)]
pub(crate) struct RowCache {
    hasher: NameHasher,
    locks: Box<[Stripe]>,
    /// None: nothing is cached.
    stripes: Option<Stripes>,
    /// The stripe that gives back next what was borrowed.
    next: AtomicUsize,
    /// How many prefixes were removed.
    epoch: AtomicU32,
    gone: RwLock<Gone>,
}

/// A part of the keys.
#[derive(Debug, Default)]
#[repr(align(128))]
struct Stripe {
    ring: Mutex<Ring>,
    /// How many writes there were: changed by who holds the lock.
    writes: AtomicU64,
    /// Two who count at once may count as one.
    hits: AtomicU64,
    misses: AtomicU64,
}

/// The prefixes that were removed last, by number.
#[derive(Debug, Default)]
struct Gone {
    last: VecDeque<(u32, KvsId, Vec<u8>)>,
    bytes: usize,
    /// Entries read before this one was removed are not believed any more.
    forgotten: u32,
}

/// Hashes keys of several `Kvs`.
#[derive(Debug)]
pub(crate) struct NameHasher(KeyHasher);

/// A key, and where it belongs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Name<'a> {
    pub(crate) kvs: KvsId,
    pub(crate) key: &'a [u8],
    hash: u64,
}

impl Name<'_> {
    /// The hash of both.
    pub(crate) fn hash(&self) -> u64 {
        self.hash
    }
}

/// What was found, beside the value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cached {
    pub(crate) sequence: Sequence,
    pub(crate) expiry: Expiry,
}

/// Who looks for a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asks {
    /// Somebody who asks for it by itself.
    ForIt,
    /// Somebody who passes by.
    Beside,
}

/// What somebody noted before he read what he is going to fill in.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ticket {
    writes: u64,
    epoch: u32,
}

/// Keys that are locked by who writes them.
#[derive(Debug)]
pub(crate) struct Held<'a> {
    entries: &'a RowCache,
    guards: Guards<'a>,
    /// The slot that led to the key that is written, if it is one.
    emptied: Option<Slot>,
}

#[derive(Debug)]
enum Guards<'a> {
    /// Of one key, with its hash.
    One(u64, MutexGuard<'a, Ring>),
    /// By the numbers of stripes, in their order.
    Several(Vec<(usize, MutexGuard<'a, Ring>)>),
}

/// What the cache of entries has done so far, and what it takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RowCacheCounts {
    /// Reads of single keys that were answered by it; about, if threads read at once.
    pub hits: u64,
    /// Reads of single keys that were not.
    pub misses: u64,
    /// The most bytes of DRAM that it has for itself; it takes them as it fills.
    pub cap_bytes: u64,
    /// What it has taken beside these of what cached blocks and indexes of the youngest data leave
    /// of their shares.
    pub borrowed_bytes: u64,
}

impl RowCache {
    /// An empty cache of at most so many bytes, and those that it borrows; none if they are 0.
    ///
    /// # Errors
    /// If the system has no address space.
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

    /// What it has done so far.
    pub(crate) fn counts(&self) -> RowCacheCounts {
        let sum = |count: fn(&Stripe) -> &AtomicU64| {
            self.locks.iter().map(|stripe| count(stripe).load(Relaxed)).sum()
        };
        let (hits, misses) = (sum(|it| &it.hits), sum(|it| &it.misses));
        let cap_bytes = self.stripes.as_ref().map_or(0, Stripes::bytes);
        let borrowed_bytes = self.stripes.as_ref().map_or(0, |it| it.room().borrowed());
        RowCacheCounts { hits, misses, cap_bytes, borrowed_bytes }
    }

    /// A key, with its hash.
    #[inline]
    pub(crate) fn name<'a>(&self, kvs: KvsId, key: &'a [u8]) -> Name<'a> {
        Name { kvs, key, hash: self.hasher.hash(kvs, key) }
    }

    /// The newest version of a key, if it is cached and was written by a time; its value is
    /// appended to `out`.
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

    /// Appends the value of a version of a key to `out`, if it is that which is cached, and says
    /// so. Nobody asked for that key by itself: nothing is counted.
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

    /// Asks the processor to fetch what leads to a key that may be cached.
    #[inline]
    pub(crate) fn prefetch(&self, name: &Name<'_>) {
        if let Some(stripes) = &self.stripes {
            stripes.prefetch(name.stripe(), name.hash);
        }
    }

    /// Asks the processor to fetch the entry of such a key, if what leads to it is there by now.
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
                    // Who comes too late is not missed.
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

    /// Whether a prefix of a key was removed since an entry was read.
    #[cold]
    fn is_deleted(&self, name: &Name<'_>, epoch: u32) -> bool {
        let gone = self.gone.read();
        let covers = |(number, kvs, prefix): &(u32, KvsId, Vec<u8>)| {
            *number > epoch && *kvs == name.kvs && name.key.starts_with(prefix)
        };
        epoch < gone.forgotten || gone.last.iter().any(covers)
    }

    /// What must be noted before a key is read that is to be filled in.
    #[inline]
    pub(crate) fn ticket(&self, name: &Name<'_>) -> Ticket {
        let epoch = self.epoch.load(Acquire);
        Ticket { writes: self.locks[name.stripe()].writes.load(Acquire), epoch }
    }

    /// Caches what was read, unless something was written since the ticket was taken.
    pub(crate) fn fill(&self, name: &Name<'_>, ticket: Ticket, cached: Cached, value: &[u8]) {
        let Some(stripes) = &self.stripes else { return };
        let stripe = &self.locks[name.stripe()];
        // Who writes now makes what was read old.
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
    pub(crate) fn lock(&self, name: &Name<'_>) -> Held<'_> {
        self.prefetch(name);
        let ring = self.locks[name.stripe()].ring.lock();
        Held { entries: self, guards: Guards::One(name.hash, ring), emptied: None }
    }

    /// Locks several keys, in an order that all agree on.
    pub(crate) fn lock_all<'a>(&self, keys: impl Iterator<Item = (KvsId, &'a [u8])>) -> Held<'_> {
        let mut stripes: Vec<usize> = keys.map(|(kvs, key)| self.name(kvs, key).stripe()).collect();
        stripes.sort_unstable();
        stripes.dedup();
        self.lock_stripes(stripes.into_iter())
    }

    /// Locks all keys.
    pub(crate) fn lock_every(&self) -> Held<'_> {
        self.lock_stripes(0..STRIPES)
    }

    fn lock_stripes(&self, stripes: impl Iterator<Item = usize>) -> Held<'_> {
        let guards = stripes.map(|stripe| (stripe, self.locks[stripe].ring.lock())).collect();
        Held { entries: self, guards: Guards::Several(guards), emptied: None }
    }

    /// Remembers a prefix that was removed.
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
                // Who asks may hold some of the locks, and waits for none.
                if let Some(mut ring) = self.locks[stripe].ring.try_lock() {
                    given += stripes.give_back(stripe, &mut ring, part);
                }
                if given >= bytes {
                    return;
                }
            }
            // All the rest is locked.
            if given == before {
                return;
            }
        }
    }
}

impl NameHasher {
    /// The same in all stores.
    pub(crate) fn new() -> NameHasher {
        NameHasher(KeyHasher::seeded(0))
    }

    /// The hash of a key.
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

/// The number of the lock of keys with a hash.
#[inline]
pub(crate) fn stripe_of(hash: u64) -> usize {
    (hash >> 56) as usize % STRIPES
}

impl Held<'_> {
    /// Removes what is cached of what is going to be seen.
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

    /// Caches what was written to a key that had been cached, or for which nothing has to make
    /// room.
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

impl Drop for Held<'_> {
    fn drop(&mut self) {
        for stripe in self.guards.stripes() {
            let writes = &self.entries.locks[stripe].writes;
            writes.store(writes.load(Relaxed) + 1, Release);
        }
    }
}

#[cfg(test)]
mod tests;
