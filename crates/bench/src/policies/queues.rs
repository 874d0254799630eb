//! Doubly linked queues over dense object numbers, and the size of each object that is held.

const NONE: u32 = u32::MAX;

/// Links and sizes of all objects; an object stands in at most one queue.
#[derive(Debug)]
pub(super) struct Queues<const N: usize> {
    slots: Vec<Slot>,
    ends: [Ends; N],
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    newer: u32,
    older: u32,
    bytes: u64,
    /// Number of the queue that holds the object.
    queue: Option<u8>,
    frequency: u32,
}

#[derive(Debug, Clone, Copy)]
struct Ends {
    newest: u32,
    oldest: u32,
    bytes: u64,
}

impl Default for Ends {
    fn default() -> Ends {
        Ends { newest: NONE, oldest: NONE, bytes: 0 }
    }
}

impl Default for Slot {
    fn default() -> Slot {
        Slot { newer: NONE, older: NONE, bytes: 0, queue: None, frequency: 0 }
    }
}

impl<const N: usize> Queues<N> {
    pub(super) fn new() -> Queues<N> {
        Queues { slots: Vec::new(), ends: [Ends::default(); N] }
    }

    /// Number of the queue that holds `object`, if one does.
    pub(super) fn queue_of(&self, object: u32) -> Option<usize> {
        self.slots.get(object as usize)?.queue.map(usize::from)
    }

    /// Size of an object that a queue holds.
    pub(super) fn size_of(&self, object: u32) -> u64 {
        self.slots[object as usize].bytes
    }

    /// Bytes of all objects in one queue.
    pub(super) fn bytes(&self, queue: usize) -> u64 {
        self.ends[queue].bytes
    }

    /// Frequency counter of an object that a queue holds.
    pub(super) fn frequency(&mut self, object: u32) -> &mut u32 {
        &mut self.slots[object as usize].frequency
    }

    pub(super) fn oldest(&self, queue: usize) -> Option<u32> {
        Some(self.ends[queue].oldest).filter(|&object| object != NONE)
    }

    /// Neighbour of a held object that entered its queue next after it.
    pub(super) fn newer(&self, object: u32) -> Option<u32> {
        Some(self.slots[object as usize].newer).filter(|&newer| newer != NONE)
    }

    /// Appends an object that no queue holds, with a frequency of 0.
    pub(super) fn push(&mut self, queue: usize, object: u32, bytes: u64) {
        let at = object as usize;
        if at >= self.slots.len() {
            self.slots.resize(at + 1, Slot::default());
        }
        debug_assert!(self.slots[at].queue.is_none(), "object {object} stands in a queue");
        let older = self.ends[queue].newest;
        self.slots[at] = Slot { newer: NONE, older, bytes, queue: Some(queue as u8), frequency: 0 };
        match older {
            NONE => self.ends[queue].oldest = object,
            older => self.slots[older as usize].newer = object,
        }
        self.ends[queue].newest = object;
        self.ends[queue].bytes += bytes;
    }

    /// Takes an object out of its queue; returns its size, or none if no queue holds it.
    pub(super) fn remove(&mut self, object: u32) -> Option<u64> {
        let queue = self.queue_of(object)?;
        let Slot { newer, older, bytes, .. } = self.slots[object as usize];
        match newer {
            NONE => self.ends[queue].newest = older,
            newer => self.slots[newer as usize].older = older,
        }
        match older {
            NONE => self.ends[queue].oldest = newer,
            older => self.slots[older as usize].newer = newer,
        }
        self.ends[queue].bytes -= bytes;
        self.slots[object as usize].queue = None;
        Some(bytes)
    }

    /// Makes a held object the newest of a queue; its frequency is kept.
    pub(super) fn renew(&mut self, queue: usize, object: u32) {
        let frequency = *self.frequency(object);
        if let Some(bytes) = self.remove(object) {
            self.push(queue, object, bytes);
            *self.frequency(object) = frequency;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Queues;

    #[test]
    fn objects_leave_in_the_order_in_which_they_came_unless_renewed_or_removed() {
        let mut queues = Queues::<2>::new();
        for object in [5, 3, 9, 1] {
            queues.push(0, object, 10 + u64::from(object));
        }
        queues.renew(0, 5);
        queues.renew(1, 9);
        assert_eq!(queues.remove(1), Some(11));
        assert_eq!(queues.remove(1), None);
        assert_eq!((queues.bytes(0), queues.bytes(1)), (15 + 13, 19));
        assert_eq!((queues.oldest(0), queues.newer(3), queues.newer(5)), (Some(3), Some(5), None));
        assert_eq!(queues.queue_of(9), Some(1));
    }
}
