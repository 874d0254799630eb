//! W-TinyLFU (Einziger et al., ACM ToS 2017): a small LRU window, and a segmented LRU that admits
//! an object from the window if it is asked for more often than the one that it would replace.

use super::queues::Queues;
use super::{Access, Policy};

const WINDOW: usize = 0;
const PROBATION: usize = 1;
const PROTECTED: usize = 2;

/// Frequencies are counted exactly, one counter an object, as libCacheSim does with a sketch that
/// is too large for collisions. The window has 1% of the capacity, probation a fifth of the rest.
#[derive(Debug)]
pub(super) struct WTinyLfu {
    window_capacity: u64,
    main_capacity: u64,
    queues: Queues<3>,
    counts: Vec<u32>,
}

impl WTinyLfu {
    pub(super) fn new(capacity: u64) -> WTinyLfu {
        let window_capacity = capacity / 100;
        WTinyLfu {
            window_capacity,
            main_capacity: capacity - window_capacity,
            queues: Queues::new(),
            counts: Vec::new(),
        }
    }

    fn probation_capacity(&self) -> u64 {
        self.main_capacity / 5
    }

    fn main_bytes(&self) -> u64 {
        self.queues.bytes(PROBATION) + self.queues.bytes(PROTECTED)
    }

    fn count(&mut self, object: u32) {
        let at = object as usize;
        if at >= self.counts.len() {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }

    /// Moves the oldest protected objects to probation, and lets probation's oldest go for them.
    fn cool(&mut self) {
        let protected_capacity = self.main_capacity - self.probation_capacity();
        while self.queues.bytes(PROTECTED) > protected_capacity
            && let Some(oldest) = self.queues.oldest(PROTECTED)
        {
            self.queues.renew(PROBATION, oldest);
            while self.queues.bytes(PROBATION) > self.probation_capacity()
                && let Some(oldest) = self.queues.oldest(PROBATION)
            {
                self.queues.remove(oldest);
            }
        }
    }

    fn main_victim(&self) -> Option<u32> {
        self.queues.oldest(PROBATION).or(self.queues.oldest(PROTECTED))
    }

    fn admit_to_main(&mut self, object: u32) {
        let bytes = self.queues.size_of(object);
        self.queues.remove(object);
        while self.main_bytes() + bytes > self.main_capacity
            && let Some(victim) = self.main_victim()
        {
            self.queues.remove(victim);
        }
        let has_room = |queue, most| self.queues.bytes(queue) + bytes <= most;
        let protected_capacity = self.main_capacity - self.probation_capacity();
        let to_protected = !has_room(PROBATION, self.probation_capacity())
            && has_room(PROTECTED, protected_capacity);
        self.queues.push(if to_protected { PROTECTED } else { PROBATION }, object, bytes);
    }

    /// Lets one object go, and moves objects from the window to the main part until it has.
    fn evict(&mut self) {
        while let Some(candidate) = self.queues.oldest(WINDOW) {
            let bytes = self.queues.size_of(candidate);
            let fits = self.main_bytes() + bytes <= self.main_capacity;
            let wins = |victim: u32| self.counts[candidate as usize] > self.counts[victim as usize];
            let has_won = !fits && self.main_victim().is_some_and(wins);
            if fits || has_won {
                self.admit_to_main(candidate);
            } else {
                self.queues.remove(candidate);
            }
            self.count(candidate);
            if !fits {
                return;
            }
        }
        if let Some(victim) = self.main_victim() {
            self.queues.remove(victim);
        }
    }
}

impl Policy for WTinyLfu {
    fn hit(&mut self, access: Access) -> bool {
        let object = access.object;
        match self.queues.queue_of(object) {
            None => return false,
            Some(WINDOW) => self.queues.renew(WINDOW, object),
            Some(_) => {
                self.queues.renew(PROTECTED, object);
                self.cool();
                self.count(object);
            }
        }
        true
    }

    fn admit(&mut self, access: Access) {
        let too_large =
            access.bytes > self.window_capacity || access.bytes > self.probation_capacity();
        if too_large {
            return;
        }
        let capacity = self.window_capacity + self.main_capacity;
        while self.queues.bytes(WINDOW) + self.main_bytes() + access.bytes > capacity {
            self.evict();
        }
        self.queues.push(WINDOW, access.object, access.bytes);
        self.count(access.object);
    }

    fn remove(&mut self, object: u32) {
        self.queues.remove(object);
    }
}
