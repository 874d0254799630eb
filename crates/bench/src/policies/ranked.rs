//! Policies that rank all objects: GDSF by frequency and size, and Belady's by the next request.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::{Access, Policy};

/// Held objects with a rank each. The heap keeps outdated entries until they surface.
#[derive(Debug)]
struct Ranked<R> {
    capacity: u64,
    bytes: u64,
    heap: BinaryHeap<(R, u32)>,
    held: Vec<Option<Held<R>>>,
}

#[derive(Debug, Clone, Copy)]
struct Held<R> {
    rank: R,
    bytes: u64,
    frequency: u32,
}

impl<R: Ord + Copy> Ranked<R> {
    fn new(capacity: u64) -> Ranked<R> {
        Ranked { capacity, bytes: 0, heap: BinaryHeap::new(), held: Vec::new() }
    }

    fn find(&mut self, object: u32) -> Option<&mut Held<R>> {
        self.held.get_mut(object as usize)?.as_mut()
    }

    fn rank(&mut self, object: u32, rank: R) {
        if let Some(held) = self.find(object) {
            held.rank = rank;
            self.heap.push((rank, object));
        }
    }

    fn insert(&mut self, object: u32, bytes: u64, rank: R) {
        let at = object as usize;
        if at >= self.held.len() {
            self.held.resize_with(at + 1, || None);
        }
        self.held[at] = Some(Held { rank, bytes, frequency: 1 });
        self.bytes += bytes;
        self.heap.push((rank, object));
    }

    fn remove(&mut self, object: u32) {
        if let Some(held) = self.held.get_mut(object as usize).and_then(Option::take) {
            self.bytes -= held.bytes;
        }
    }

    /// Removes the object of the greatest rank and returns that rank.
    fn evict(&mut self) -> Option<R> {
        while let Some((rank, object)) = self.heap.pop() {
            if self.find(object).is_some_and(|held| held.rank == rank) {
                self.remove(object);
                return Some(rank);
            }
        }
        None
    }

    fn lacks_room(&self, bytes: u64) -> bool {
        self.bytes + bytes > self.capacity
    }
}

/// Greedy dual size frequency (Cherkasova 1998): priority is the frequency over the size, plus the
/// priority of the object that was evicted last. The new object itself may be the one to go.
#[derive(Debug)]
pub(super) struct Gdsf {
    ranked: Ranked<Reverse<Priority>>,
    evicted: f64,
}

/// A finite priority; among equals the one that was given first goes first.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Priority {
    value: f64,
    given_at: u64,
}

impl Eq for Priority {}

impl PartialOrd for Priority {
    fn partial_cmp(&self, other: &Priority) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Priority {
    fn cmp(&self, other: &Priority) -> std::cmp::Ordering {
        self.value.total_cmp(&other.value).then(self.given_at.cmp(&other.given_at))
    }
}

impl Gdsf {
    pub(super) fn new(capacity: u64) -> Gdsf {
        Gdsf { ranked: Ranked::new(capacity), evicted: 0.0 }
    }

    fn priority(&self, frequency: u32, bytes: u64, given_at: u64) -> Reverse<Priority> {
        let value = self.evicted + f64::from(frequency) * 1e6 / bytes as f64;
        Reverse(Priority { value, given_at })
    }
}

impl Policy for Gdsf {
    fn hit(&mut self, access: Access) -> bool {
        let Some(held) = self.ranked.find(access.object) else { return false };
        held.frequency += 1;
        let (frequency, bytes) = (held.frequency, held.bytes);
        let priority = self.priority(frequency, bytes, access.number);
        self.ranked.rank(access.object, priority);
        true
    }

    fn admit(&mut self, access: Access) {
        if access.bytes > self.ranked.capacity {
            return;
        }
        let priority = self.priority(1, access.bytes, access.number);
        self.ranked.insert(access.object, access.bytes, priority);
        while self.ranked.lacks_room(0)
            && let Some(Reverse(priority)) = self.ranked.evict()
        {
            self.evicted = priority.value;
        }
    }

    fn remove(&mut self, object: u32) {
        self.ranked.remove(object);
    }
}

/// Belady's MIN: evicts the object whose next request is farthest away. With objects of equal size
/// no policy that admits everything misses less often.
#[derive(Debug)]
pub(super) struct Belady(Ranked<u64>);

impl Belady {
    pub(super) fn new(capacity: u64) -> Belady {
        Belady(Ranked::new(capacity))
    }
}

impl Policy for Belady {
    fn hit(&mut self, access: Access) -> bool {
        let is_held = self.0.find(access.object).is_some();
        if is_held {
            self.0.rank(access.object, access.next);
        }
        is_held
    }

    fn admit(&mut self, access: Access) {
        if access.bytes > self.0.capacity {
            return;
        }
        while self.0.lacks_room(access.bytes) && self.0.evict().is_some() {}
        self.0.insert(access.object, access.bytes, access.next);
    }

    fn remove(&mut self, object: u32) {
        self.0.remove(object);
    }
}
