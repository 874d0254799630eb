//! What pages of runs and indexes of the youngest data leave of their shares, which the cache of
//! entries borrows and gives back when they want it: its memory is mapped by itself, and so goes
//! back to the system at once.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock, Weak};

/// This part of the room is not lent: what grows a little does not want back at once what was lent
/// just now, and trees that readers make are counted only when somebody writes again.
const KEPT_PART: u64 = 8;

/// The shares of those who lend, and what is taken of them.
#[derive(Debug, Default)]
pub(crate) struct Room {
    bytes: u64,
    pages: AtomicU64,
    young: AtomicU64,
    borrowed: AtomicU64,
    borrower: OnceLock<Weak<dyn Borrower>>,
}

/// Who borrows.
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
    /// The room of those who may take so many bytes together.
    pub(crate) fn new(bytes: u64) -> Arc<Room> {
        Arc::new(Room { bytes, ..Room::default() })
    }

    /// What all may take together.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// What is borrowed.
    pub(crate) fn borrowed(&self) -> u64 {
        self.borrowed.load(Relaxed)
    }

    /// Says who borrows.
    pub(crate) fn lend_to(&self, borrower: Weak<dyn Borrower>) {
        // There is one.
        let _ = self.borrower.set(borrower);
    }

    /// Lends so many bytes, if they are left.
    pub(crate) fn borrow(&self, bytes: u64) -> bool {
        let taken = self.taken() + self.bytes / KEPT_PART;
        let more = |now: u64| now.checked_add(bytes).filter(|sum| sum + taken <= self.bytes);
        self.borrowed.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Takes back what was borrowed.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.borrowed.fetch_sub(bytes, Relaxed);
    }

    /// What pages take.
    pub(crate) fn pages(&self) -> &AtomicU64 {
        &self.pages
    }

    /// Wants back what is lent of what the others have taken meanwhile. Whoever calls it may hold
    /// locks of keys.
    #[inline]
    pub(crate) fn settle(&self) {
        let borrowed = self.borrowed();
        let over = (self.taken() + borrowed).saturating_sub(self.bytes);
        if over > 0 && borrowed > 0 {
            self.want_back(over.min(borrowed));
        }
    }

    #[cold]
    fn want_back(&self, bytes: u64) {
        if let Some(borrower) = self.borrower.get().and_then(Weak::upgrade) {
            borrower.give_back(bytes);
        }
    }

    fn taken(&self) -> u64 {
        self.pages.load(Relaxed) + self.young.load(Relaxed)
    }
}

impl Taken {
    /// Nothing yet, for the youngest data.
    pub(crate) fn of_young(room: &Arc<Room>) -> Taken {
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
        if bytes >= before {
            self.room.young.fetch_add(bytes - before, Relaxed);
            self.room.settle();
        } else {
            self.room.young.fetch_sub(before - bytes, Relaxed);
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
        let room = Room::new(1600);
        let gives = Arc::new(Gives(Arc::clone(&room), AtomicU64::new(0)));
        let borrower: Weak<Gives> = Arc::downgrade(&gives);
        room.lend_to(borrower);
        let young = Taken::of_young(&room);
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
}
