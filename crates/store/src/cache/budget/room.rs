//! Memory whose uses vary over time. Memtable indexes come first, since the store cannot do without
//! them, then the block cache. The row cache borrows what these leave, and gives it back when they
//! want it. Both caches map their memory separately, so that it goes back to the system at once.
//!
//! **Blocks and entries.** A block holds the neighbours of a key as well as the key. Where all runs
//! fit, nothing is ever read twice, and entries, which hold the same data again, are only faster.
//! The block cache may then take everything. Where runs are larger, much of a block is not asked
//! for, and entries make better use of memory. The block cache's part then becomes smaller, down to
//! its share where half as much again would be needed.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// One part in so many is not lent. A use that grows a little need not take back at once what was
/// lent just now. Besides, trees that readers create are only counted when a writer writes again.
const KEPT_PART: u64 = 8;
/// Caching a run takes one part in so many of its bytes in addition.
const PAGES_PART: u64 = 16;

/// The shares of the uses, and the bytes that each of them has taken.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: u64,
    pages_share: u64,
    /// Bytes of all runs that are read.
    runs: AtomicU64,
    pages: AtomicU64,
    /// Bytes of memtable indexes. Negative for a moment if a decrease overtakes an increase.
    young: AtomicI64,
    borrowed: AtomicU64,
    entries: OnceLock<Weak<dyn Borrower>>,
    blocks: OnceLock<Weak<dyn Borrower>>,
}

/// A use that takes what others leave.
pub(crate) trait Borrower: Send + Sync + fmt::Debug {
    /// Gives so many bytes back, or a little more; fewer if they are in use.
    fn give_back(&self, bytes: u64);
}

/// Bytes of a memtable index, which are not lent.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: AtomicU64,
}

impl Room {
    /// Creates a budget of so many bytes, of which the block cache may always have its share.
    pub(crate) fn new(bytes: u64, pages_share: u64) -> Arc<Room> {
        Arc::new(Room { bytes, pages_share, ..Room::default() })
    }

    /// Returns the bytes of the budget.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the bytes that are borrowed.
    pub(crate) fn borrowed(&self) -> u64 {
        self.borrowed.load(Relaxed)
    }

    /// Sets the row cache, which borrows.
    pub(crate) fn lend_to(&self, borrower: Weak<dyn Borrower>) {
        // There is only one.
        let _ = self.entries.set(borrower);
    }

    /// Sets the block cache, whose bytes are counted here.
    pub(crate) fn is_of(&self, blocks: Weak<dyn Borrower>) {
        // There is only one.
        let _ = self.blocks.set(blocks);
    }

    /// Lends so many bytes if they are left. Returns false if they are not.
    pub(crate) fn borrow(&self, bytes: u64) -> bool {
        let taken = self.taken() + self.bytes / KEPT_PART;
        let more = |now: u64| now.checked_add(bytes).filter(|sum| sum + taken <= self.bytes);
        self.borrowed.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes back borrowed bytes.
    pub(crate) fn give_back(&self, bytes: u64) {
        let before = self.borrowed.fetch_sub(bytes, Relaxed);
        assert!(bytes <= before, "{bytes} bytes are given back, and {before} were borrowed");
    }

    /// Returns the bytes that the block cache has taken.
    pub(crate) fn pages(&self) -> &AtomicU64 {
        &self.pages
    }

    /// Sets the bytes of all runs that are read.
    pub(crate) fn set_runs(&self, bytes: u64) {
        self.runs.store(bytes, Relaxed);
    }

    /// Returns the most bytes that the block cache may take now.
    pub(crate) fn pages_cap(&self) -> u64 {
        let most = self.pages_most();
        let over = self.pages_wanted().saturating_sub(most);
        let lent = most - self.pages_share;
        let left = (most / 2).saturating_sub(over);
        let part = u128::from(lent) * u128::from(left) / u128::from((most / 2).max(1));
        self.pages_share + part as u64
    }

    /// Returns true if all runs fit in the block cache.
    pub(crate) fn do_runs_fit(&self) -> bool {
        self.pages_wanted() <= self.pages_most()
    }

    /// Returns the bytes that caching all runs takes.
    pub(crate) fn pages_wanted(&self) -> u64 {
        let runs = self.runs.load(Relaxed);
        runs + runs / PAGES_PART
    }

    fn pages_most(&self) -> u64 {
        self.bytes.saturating_sub(self.young()).max(self.pages_share)
    }

    /// Wants memory back from the caches if more is taken than there is. The caller may hold locks
    /// of keys.
    #[inline]
    pub(crate) fn settle(&self) {
        let over = (self.taken() + self.borrowed()).saturating_sub(self.bytes);
        if over > 0 {
            self.want_back(over);
        }
    }

    #[cold]
    fn want_back(&self, bytes: u64) {
        let lent = [
            (&self.entries, self.borrowed()),
            (&self.blocks, self.pages.load(Relaxed).saturating_sub(self.pages_share)),
        ];
        let mut rest = bytes;
        for (borrower, lent) in lent {
            let bytes = rest.min(lent);
            let borrower = borrower.get().and_then(Weak::upgrade).filter(|_| bytes > 0);
            if let Some(borrower) = borrower {
                borrower.give_back(bytes);
            }
            rest -= bytes;
        }
    }

    fn taken(&self) -> u64 {
        self.pages.load(Relaxed) + self.young()
    }

    fn young(&self) -> u64 {
        self.young.load(Relaxed).max(0) as u64
    }
}

impl Taken {
    /// Creates a count for a memtable index, which is 0 at first.
    pub(crate) fn of_memtables(room: &Arc<Room>) -> Taken {
        Taken { room: Arc::clone(room), bytes: AtomicU64::new(0) }
    }

    /// Returns the counted bytes.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Sets the bytes that the index takes now.
    pub(crate) fn set(&self, bytes: u64) {
        let before = self.bytes.swap(bytes, Relaxed);
        self.room.young.fetch_add(bytes as i64 - before as i64, Relaxed);
        if bytes >= before {
            self.room.settle();
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A borrower that gives back what it is asked for, as long as it has any.
    #[derive(Debug)]
    struct Gives(Arc<Room>, AtomicU64);

    impl Borrower for Gives {
        fn give_back(&self, bytes: u64) {
            self.1.fetch_add(1, Relaxed);
            self.0.give_back(bytes);
        }
    }

    #[test]
    fn what_others_take_is_given_back() {
        let room = Room::new(1600, 0);
        let gives = Arc::new(Gives(Arc::clone(&room), AtomicU64::new(0)));
        let borrower: Weak<Gives> = Arc::downgrade(&gives);
        room.lend_to(borrower);
        let young = Taken::of_memtables(&room);
        young.set(300);
        room.pages().store(200, Relaxed);
        assert!(!room.borrow(901), "an eighth is kept");
        assert!(room.borrow(500) && room.borrow(400) && !room.borrow(1));
        young.set(500);
        room.settle();
        assert_eq!((room.borrowed(), gives.1.load(Relaxed)), (900, 0), "all is taken, not more");
        young.set(550);
        assert_eq!(room.borrowed(), 850);
        room.pages().store(1300, Relaxed);
        room.settle();
        assert_eq!(room.borrowed(), 0, "all that there is");
        drop(young);
        room.pages().store(0, Relaxed);
        assert!(room.borrow(1400));
    }

    #[test]
    fn pages_may_take_what_all_runs_need_and_less_the_less_of_them_fit() {
        const MIB: u64 = 1 << 20;
        let room = Room::new(100 * MIB, 20 * MIB);
        let young = Taken::of_memtables(&room);
        young.set(4 * MIB);
        let cap = |runs| {
            room.set_runs(runs * MIB);
            (room.pages_cap() / MIB, room.do_runs_fit())
        };
        assert_eq!(cap(0), (96, true));
        // With a sixteenth more they need 95.6.
        assert_eq!(cap(90), (96, true));
        assert!(!cap(91).1 && cap(91).0 >= 94, "{:?}", cap(91));
        let large = Room::new(100 << 40, 20 << 40);
        large.set_runs(100 << 40);
        assert_eq!(large.pages_cap() >> 40, 90, "a part of what cannot be multiplied");
        let caps: Vec<u64> = (90..140).map(|runs| cap(runs).0).collect();
        assert!(caps.is_sorted_by(|one, next| one >= next), "{caps:?}");
        assert_eq!(cap(136), (20, false));
        assert_eq!(cap(1 << 30), (20, false));
        // Memtable indexes come first, but leave the share.
        young.set(50 * MIB);
        assert_eq!(cap(40), (50, true));
        young.set(90 * MIB);
        assert_eq!(cap(1), (20, true));
    }

    #[test]
    fn pages_give_back_when_entries_have_nothing_any_more() {
        let room = Room::new(1000, 100);
        let entries = Arc::new(Gives(Arc::clone(&room), AtomicU64::new(0)));
        let of_entries: Weak<Gives> = Arc::downgrade(&entries);
        room.lend_to(of_entries);
        let blocks = Arc::new(GivesPages(Arc::clone(&room)));
        let of_blocks: Weak<GivesPages> = Arc::downgrade(&blocks);
        room.is_of(of_blocks);
        room.pages().store(600, Relaxed);
        assert!(room.borrow(200));
        let young = Taken::of_memtables(&room);
        young.set(300);
        assert_eq!((room.borrowed(), room.pages().load(Relaxed)), (100, 600));
        young.set(700);
        assert_eq!((room.borrowed(), room.pages().load(Relaxed)), (0, 300));
        young.set(950);
        assert_eq!(room.pages().load(Relaxed), 100, "their share is theirs");
    }

    #[derive(Debug)]
    struct GivesPages(Arc<Room>);

    impl Borrower for GivesPages {
        fn give_back(&self, bytes: u64) {
            self.0.pages().fetch_sub(bytes, Relaxed);
        }
    }
}
