//! Policies of a single queue: FIFO, LRU, CLOCK and SIEVE.

use super::queues::Queues;
use super::{Access, Policy};

/// First in, first out.
#[derive(Debug)]
pub(super) struct Fifo {
    capacity: u64,
    queues: Queues<1>,
}

impl Fifo {
    pub(super) fn new(capacity: u64) -> Fifo {
        Fifo { capacity, queues: Queues::new() }
    }
}

impl Policy for Fifo {
    fn hit(&mut self, access: Access) -> bool {
        self.queues.queue_of(access.object).is_some()
    }

    fn admit(&mut self, access: Access) {
        if access.bytes > self.capacity {
            return;
        }
        while self.queues.bytes(0) + access.bytes > self.capacity
            && let Some(oldest) = self.queues.oldest(0)
        {
            self.queues.remove(oldest);
        }
        self.queues.push(0, access.object, access.bytes);
    }

    fn remove(&mut self, object: u32) {
        self.queues.remove(object);
    }
}

/// Least recently used.
#[derive(Debug)]
pub(super) struct Lru(Fifo);

impl Lru {
    pub(super) fn new(capacity: u64) -> Lru {
        Lru(Fifo::new(capacity))
    }
}

impl Policy for Lru {
    fn hit(&mut self, access: Access) -> bool {
        let is_held = self.0.hit(access);
        if is_held {
            self.0.queues.renew(0, access.object);
        }
        is_held
    }

    fn admit(&mut self, access: Access) {
        self.0.admit(access);
    }

    fn remove(&mut self, object: u32) {
        self.0.remove(object);
    }
}

/// FIFO with a second chance for objects that were read (one bit).
#[derive(Debug)]
pub(super) struct Clock {
    capacity: u64,
    queues: Queues<1>,
}

impl Clock {
    pub(super) fn new(capacity: u64) -> Clock {
        Clock { capacity, queues: Queues::new() }
    }
}

impl Policy for Clock {
    fn hit(&mut self, access: Access) -> bool {
        let is_held = self.queues.queue_of(access.object).is_some();
        if is_held {
            *self.queues.frequency(access.object) = 1;
        }
        is_held
    }

    fn admit(&mut self, access: Access) {
        if access.bytes > self.capacity {
            return;
        }
        while self.queues.bytes(0) + access.bytes > self.capacity
            && let Some(oldest) = self.queues.oldest(0)
        {
            if std::mem::take(self.queues.frequency(oldest)) > 0 {
                self.queues.renew(0, oldest);
            } else {
                self.queues.remove(oldest);
            }
        }
        self.queues.push(0, access.object, access.bytes);
    }

    fn remove(&mut self, object: u32) {
        self.queues.remove(object);
    }
}

/// SIEVE (Zhang et al., NSDI 2024): a hand passes over a FIFO queue, spares objects that were read
/// since its last pass, and evicts where it stands.
#[derive(Debug)]
pub(super) struct Sieve {
    capacity: u64,
    queues: Queues<1>,
    hand: Option<u32>,
}

impl Sieve {
    pub(super) fn new(capacity: u64) -> Sieve {
        Sieve { capacity, queues: Queues::new(), hand: None }
    }

    fn evict(&mut self) -> Option<()> {
        let mut at = self.hand.or(self.queues.oldest(0))?;
        while std::mem::take(self.queues.frequency(at)) > 0 {
            at = self.queues.newer(at).or(self.queues.oldest(0))?;
        }
        self.remove_at_hand(at);
        Some(())
    }

    fn remove_at_hand(&mut self, object: u32) {
        self.hand = self.queues.newer(object);
        self.queues.remove(object);
    }
}

impl Policy for Sieve {
    fn hit(&mut self, access: Access) -> bool {
        let is_held = self.queues.queue_of(access.object).is_some();
        if is_held {
            *self.queues.frequency(access.object) = 1;
        }
        is_held
    }

    fn admit(&mut self, access: Access) {
        if access.bytes > self.capacity {
            return;
        }
        while self.queues.bytes(0) + access.bytes > self.capacity {
            if self.evict().is_none() {
                break;
            }
        }
        self.queues.push(0, access.object, access.bytes);
    }

    fn remove(&mut self, object: u32) {
        if self.hand == Some(object) {
            self.remove_at_hand(object);
        } else {
            self.queues.remove(object);
        }
    }
}
