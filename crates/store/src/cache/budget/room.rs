//! What all may take together who take more or less by the time: indexes of the youngest data come
//! first, which nobody can do without; then pages of runs; what they leave the cache of entries
//! borrows, and gives back when they want it. What pages and entries lie in is mapped by itself,
//! and so goes back to the system at once.
//!
//! **BlockCache and entries.** A page holds what is near to a key as well as the key: where all
//! runs fit, nothing is ever read twice, and entries, which hold the same once more, are only
//! faster. So pages may take all then. Where runs are larger, much of a page is not asked for, and
//! entries hold more of what is: from there on the pages' part becomes smaller, down to their
//! share where half as much again would be needed.

use std::fmt;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// This part of the room is not lent: what grows a little does not want back at once what was lent
/// just now, and trees that readers make are counted only when somebody writes again.
const KEPT_PART: u64 = 8;
/// To cache a run takes this part of its bytes beside them.
const PAGES_PART: u64 = 16;

/// The shares of those who take of it, and what is taken.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: u64,
    pages_share: u64,
    /// Bytes of all runs that are read.
    runs: AtomicU64,
    pages: AtomicU64,
    /// Less than nothing for a moment where one who takes less overtakes one who takes more.
    young: AtomicI64,
    borrowed: AtomicU64,
    entries: OnceLock<Weak<dyn Borrower>>,
    blocks: OnceLock<Weak<dyn Borrower>>,
}

/// Who takes what others leave.
pub(crate) trait Borrower: Send + Sync + fmt::Debug {
    /// Gives so many bytes back, or a little more; fewer if they are in use.
    fn give_back(&self, bytes: u64);
}

/// Bytes of the room that somebody takes for himself, which are not lent.
#[derive(Debug)]
pub(crate) struct Taken {
    room: Arc<Room>,
    bytes: AtomicU64,
}

impl Room {
    /// The room of those who may take so many bytes together; pages may always have their share.
    pub(crate) fn new(bytes: u64, pages_share: u64) -> Arc<Room> {
        Arc::new(Room { bytes, pages_share, ..Room::default() })
    }

    /// What all may take together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is borrowed.
    pub(crate) fn borrowed(&self) -> u64 {
        self.borrowed.load(Relaxed)
    }

    /// Says who borrows for entries.
    pub(crate) fn lend_to(&self, borrower: Weak<dyn Borrower>) {
        // There is one.
        let _ = self.entries.set(borrower);
    }

    /// Says whose pages are counted.
    pub(crate) fn is_of(&self, blocks: Weak<dyn Borrower>) {
        // There is one.
        let _ = self.blocks.set(blocks);
    }

    /// Lends so many bytes, if they are left.
    pub(crate) fn borrow(&self, bytes: u64) -> bool {
        let taken = self.taken() + self.bytes / KEPT_PART;
        let more = |now: u64| now.checked_add(bytes).filter(|sum| sum + taken <= self.bytes);
        self.borrowed.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes back what was borrowed.
    pub(crate) fn give_back(&self, bytes: u64) {
        let before = self.borrowed.fetch_sub(bytes, Relaxed);
        assert!(bytes <= before, "{bytes} bytes are given back, and {before} were borrowed");
    }

    /// What pages take.
    pub(crate) fn pages(&self) -> &AtomicU64 {
        &self.pages
    }

    /// Says how many bytes the runs have that are read.
    pub(crate) fn set_runs(&self, bytes: u64) {
        self.runs.store(bytes, Relaxed);
    }

    /// The most that pages may take now.
    pub(crate) fn pages_cap(&self) -> u64 {
        let most = self.pages_most();
        let over = self.pages_wanted().saturating_sub(most);
        let lent = most - self.pages_share;
        let left = (most / 2).saturating_sub(over);
        let part = u128::from(lent) * u128::from(left) / u128::from((most / 2).max(1));
        self.pages_share + part as u64
    }

    /// Whether all runs have room among the pages.
    pub(crate) fn do_runs_fit(&self) -> bool {
        self.pages_wanted() <= self.pages_most()
    }

    /// What caching all runs takes.
    pub(crate) fn pages_wanted(&self) -> u64 {
        let runs = self.runs.load(Relaxed);
        runs + runs / PAGES_PART
    }

    fn pages_most(&self) -> u64 {
        self.bytes.saturating_sub(self.young()).max(self.pages_share)
    }

    /// Wants back of what others have taken if it is more than there is. Whoever calls it may hold
    /// locks of keys.
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
    /// Nothing yet, for the youngest data.
    pub(crate) fn of_memtables(room: &Arc<Room>) -> Taken {
        Taken { room: Arc::clone(room), bytes: AtomicU64::new(0) }
    }

    /// How many bytes it is.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Says how many bytes it is now.
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

    /// Gives back what it is asked for, as long as it may.
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
        // The youngest data come first, but for the share.
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
