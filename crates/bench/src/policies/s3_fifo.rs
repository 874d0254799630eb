//! S3-FIFO (Yang et al., SOSP 2023): a small queue for new objects, a main queue for those that
//! were read twice in it, and a ghost queue of what left the small one.

use super::queues::Queues;
use super::{Access, Policy};

const SMALL: usize = 0;
const MAIN: usize = 1;

/// Reads in the small queue that earn a place in the main one.
const READS_FOR_MAIN: u32 = 2;
/// Most reads that the main queue remembers.
const FREQUENCY_MAX: u32 = 3;

/// Parameters are those of the authors' simulator: a small queue of 10% of the capacity, a ghost
/// of 90% of it in bytes, and until the first eviction new objects fill the main queue as well.
#[derive(Debug)]
pub(super) struct S3Fifo {
    capacity: u64,
    queues: Queues<2>,
    ghost: Queues<1>,
    was_in_ghost: Option<u32>,
    has_evicted: bool,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64) -> S3Fifo {
        S3Fifo {
            capacity,
            queues: Queues::new(),
            ghost: Queues::new(),
            was_in_ghost: None,
            has_evicted: false,
        }
    }

    fn small_capacity(&self) -> u64 {
        self.capacity / 10
    }

    fn bytes(&self) -> u64 {
        self.queues.bytes(SMALL) + self.queues.bytes(MAIN)
    }

    fn evict(&mut self) {
        self.has_evicted = true;
        let main_capacity = self.capacity - self.small_capacity();
        if self.queues.bytes(MAIN) > main_capacity || self.queues.bytes(SMALL) == 0 {
            self.evict_from_main();
        } else {
            self.evict_from_small();
        }
    }

    fn evict_from_small(&mut self) {
        while let Some(oldest) = self.queues.oldest(SMALL) {
            if *self.queues.frequency(oldest) >= READS_FOR_MAIN {
                *self.queues.frequency(oldest) = 0;
                self.queues.renew(MAIN, oldest);
                continue;
            }
            if let Some(bytes) = self.queues.remove(oldest) {
                self.remember(oldest, bytes);
            }
            return;
        }
    }

    fn evict_from_main(&mut self) {
        while let Some(oldest) = self.queues.oldest(MAIN) {
            let frequency = self.queues.frequency(oldest);
            if *frequency == 0 {
                self.queues.remove(oldest);
                return;
            }
            *frequency = (*frequency).min(FREQUENCY_MAX) - 1;
            self.queues.renew(MAIN, oldest);
        }
    }

    fn remember(&mut self, object: u32, bytes: u64) {
        let capacity = self.capacity / 10 * 9;
        if bytes > capacity {
            return;
        }
        while self.ghost.bytes(0) + bytes > capacity
            && let Some(oldest) = self.ghost.oldest(0)
        {
            self.ghost.remove(oldest);
        }
        self.ghost.push(0, object, bytes);
    }
}

impl Policy for S3Fifo {
    fn hit(&mut self, access: Access) -> bool {
        if self.queues.queue_of(access.object).is_some() {
            *self.queues.frequency(access.object) += 1;
            return true;
        }
        self.was_in_ghost = self.ghost.remove(access.object).map(|_| access.object);
        false
    }

    fn admit(&mut self, access: Access) {
        let from_ghost = self.was_in_ghost.take() == Some(access.object);
        let small = self.small_capacity();
        if access.bytes > small {
            return;
        }
        while self.bytes() + access.bytes > self.capacity {
            self.evict();
        }
        let fills_main = !self.has_evicted && self.queues.bytes(SMALL) >= small;
        if !from_ghost && access.bytes == small {
            return;
        }
        let queue = if from_ghost || fills_main { MAIN } else { SMALL };
        self.queues.push(queue, access.object, access.bytes);
    }

    fn remove(&mut self, object: u32) {
        self.queues.remove(object);
        self.ghost.remove(object);
    }
}
