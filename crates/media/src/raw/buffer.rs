//! Buffers for direct disk reads and writes: aligned, and movable between owners without a copy.
//!
//! Access rule: a buffer's bytes belong to the owner of the [`IoBuffer`], wherever they lie. The
//! slots of a pool are disjoint, and a slot is in at most one buffer: it leaves the free lists when
//! the buffer is made and returns when the buffer is dropped. A slot that is being returned to the
//! system is in no list meanwhile. Spare memory moves between its list and one buffer as a whole.

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::mm::Advice;

use super::mapping::Mapping;

/// Alignment of every buffer, sufficient for any disk.
pub const BUFFER_ALIGNMENT: usize = 4096;

/// Bytes of a slot that is registered with the kernel: most values fit, with the blocks around
/// them.
pub(crate) const SLOT_BYTES: usize = 32 << 10;
/// Most bytes of larger buffers that a queue keeps for its next requests.
const SPARE_BYTES_MAX: usize = 8 << 20;

/// Aligned bytes that start as zeroes.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to its owner like a `Box<[u8]>`.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(bytes: usize) -> Memory {
        let rounded = bytes.max(1).next_multiple_of(BUFFER_ALIGNMENT);
        let Ok(layout) = Layout::from_size_align(rounded, BUFFER_ALIGNMENT) else {
            handle_alloc_error(Layout::new::<[u8; BUFFER_ALIGNMENT]>());
        };
        // SAFETY: the layout is not empty.
        let start = unsafe { alloc_zeroed(layout) };
        let start = NonNull::new(start).unwrap_or_else(|| handle_alloc_error(layout));
        Memory { start, layout }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: allocated with this layout, and freed here only.
        unsafe { dealloc(self.start.as_ptr(), self.layout) }
    }
}

/// Slots of equal size in one piece of memory, which can be registered with the kernel once. A slot
/// takes up memory from its first use until it is returned to the system.
#[derive(Debug)]
pub struct SlotPool {
    memory: Mapping,
    slot_bytes: usize,
    free: Mutex<Free>,
}

/// Slots that are in no buffer, but for one whose memory is just being given back.
#[derive(Debug)]
struct Free {
    /// Slots that take up memory and hold old bytes.
    kept: Vec<u32>,
    /// Slots that were returned to the system and take up no memory.
    bare: Vec<u32>,
    /// First slot that was never used; neither were those after it.
    unused: u32,
    /// Number of all slots.
    count: u32,
}

impl SlotPool {
    /// Makes a pool of `slots` slots of `slot_bytes`, rounded up to the alignment.
    ///
    /// # Errors
    /// If the system has no address space for them.
    pub fn new(slots: u32, slot_bytes: usize) -> io::Result<Arc<SlotPool>> {
        let slot_bytes = slot_bytes.max(1).next_multiple_of(BUFFER_ALIGNMENT);
        let bytes = slot_bytes.checked_mul(slots.max(1) as usize);
        let memory = Mapping::anonymous(bytes.ok_or(io::ErrorKind::OutOfMemory)?, false)?;
        let free = Free { kept: Vec::new(), bare: Vec::new(), unused: 0, count: slots };
        Ok(Arc::new(SlotPool { memory, slot_bytes, free: Mutex::new(free) }))
    }

    /// Returns a buffer of `len` bytes in a slot, if a slot is large enough and one is free. It
    /// holds old bytes, or zeroes.
    #[must_use]
    pub fn buffer(self: &Arc<Self>, len: usize) -> Option<IoBuffer> {
        self.kept_buffer(len).or_else(|| self.bare_buffer(len))
    }

    /// Returns a buffer of `len` bytes in a free slot that already takes up memory, if there is
    /// one.
    #[must_use]
    pub fn kept_buffer(self: &Arc<Self>, len: usize) -> Option<IoBuffer> {
        (len <= self.slot_bytes)
            .then(|| self.free().kept.pop())
            .flatten()
            .map(|it| self.at(it, len))
    }

    /// Returns a buffer of `len` bytes in a free slot that takes up no memory yet, if there is one.
    #[must_use]
    pub fn bare_buffer(self: &Arc<Self>, len: usize) -> Option<IoBuffer> {
        if len > self.slot_bytes {
            return None;
        }
        let mut free = self.free();
        let slot = match free.bare.pop() {
            Some(slot) => slot,
            None if free.unused < free.count => {
                free.unused += 1;
                free.unused - 1
            }
            None => return None,
        };
        Some(self.at(slot, len))
    }

    /// Returns the number of slots that take up memory and are in no buffer.
    #[must_use]
    pub fn kept(&self) -> usize {
        self.free().kept.len()
    }

    /// Returns the memory of one such slot to the system; false if there is none.
    pub fn give_back(&self) -> bool {
        let Some(slot) = self.free().kept.pop() else { return false };
        let offset = u64::from(slot) * self.slot_bytes as u64;
        // If the system refuses, the old bytes stay.
        let _ = self.memory.advise(offset, self.slot_bytes, Advice::LinuxDontNeed);
        let mut free = self.free();
        free.assert_taken(slot);
        free.bare.push(slot);
        true
    }

    /// Returns the whole memory, for registering it with the kernel.
    pub(crate) fn span(&self) -> (*mut u8, usize) {
        (self.memory.start().as_ptr(), self.memory.len())
    }

    /// Makes a buffer in a slot that the caller has taken out of a list.
    fn at(self: &Arc<Self>, slot: u32, len: usize) -> IoBuffer {
        // SAFETY: the slot is one of the pool's, all of which lie in the memory.
        let start = unsafe { self.memory.start().add(slot as usize * self.slot_bytes) };
        let home = Home::Slot { pool: Arc::clone(self), slot };
        IoBuffer { start, len, capacity: self.slot_bytes, home }
    }

    fn free(&self) -> MutexGuard<'_, Free> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Free {
    /// A slot that comes back was taken, and by one owner: it is in neither list.
    fn assert_taken(&self, slot: u32) {
        let (free, used) = (self.kept.len() + self.bare.len(), self.unused);
        assert!(slot < used && free < used as usize, "slot {slot}, {free} of {used} are free");
        debug_assert!(
            !self.kept.contains(&slot) && !self.bare.contains(&slot),
            "slot {slot} came back twice"
        );
    }
}

/// Memory of buffers that were dropped, for the next ones: the system clears fresh memory page by
/// page, which takes longer than to copy a value out of it.
#[derive(Debug, Default)]
pub(crate) struct SpareBuffers(Mutex<Spares>);

#[derive(Debug, Default)]
struct Spares {
    memories: Vec<Memory>,
    bytes: usize,
}

impl SpareBuffers {
    /// Returns a buffer of `len` bytes, which are zeroes or old bytes.
    pub(crate) fn buffer(self: &Arc<Self>, len: usize) -> IoBuffer {
        if len <= SLOT_BYTES {
            return IoBuffer::new(len);
        }
        let memory = self.spares().take(len).unwrap_or_else(|| Memory::new(len));
        let (start, capacity) = (memory.start, memory.layout.size());
        let home = Home::Spare { memory: Some(memory), list: Arc::clone(self) };
        IoBuffer { start, len, capacity, home }
    }

    fn put(&self, memory: Memory) {
        let mut spares = self.spares();
        let bytes = spares.bytes + memory.layout.size();
        if bytes <= SPARE_BYTES_MAX {
            spares.bytes = bytes;
            spares.memories.push(memory);
        }
    }

    fn spares(&self) -> MutexGuard<'_, Spares> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Spares {
    /// Takes the smallest memory that holds `len` bytes.
    fn take(&mut self, len: usize) -> Option<Memory> {
        let sizes = self.memories.iter().map(|it| it.layout.size()).enumerate();
        let (place, bytes) = sizes.filter(|(_, size)| *size >= len).min_by_key(|(_, it)| *it)?;
        self.bytes -= bytes;
        Some(self.memories.swap_remove(place))
    }
}

#[derive(Debug)]
enum Home {
    /// Freed with the buffer.
    Own {
        _memory: Memory,
    },
    /// Taken only when the buffer is dropped.
    Spare {
        memory: Option<Memory>,
        list: Arc<SpareBuffers>,
    },
    Slot {
        pool: Arc<SlotPool>,
        slot: u32,
    },
}

/// Bytes for direct disk reads and writes, used like a slice. A buffer from a queue may be one of a
/// few that are registered with the kernel, which are faster; dropping it returns it.
#[derive(Debug)]
pub struct IoBuffer {
    start: NonNull<u8>,
    len: usize,
    capacity: usize,
    home: Home,
}

// SAFETY: a buffer owns its bytes (see the head of this file).
unsafe impl Send for IoBuffer {}
// SAFETY: as above; shared, they can only be read.
unsafe impl Sync for IoBuffer {}

impl IoBuffer {
    /// Makes a buffer of `len` zeroes.
    #[must_use]
    pub fn new(len: usize) -> IoBuffer {
        let memory = Memory::new(len);
        let capacity = memory.layout.size();
        IoBuffer { start: memory.start, len, capacity, home: Home::Own { _memory: memory } }
    }

    /// Returns the maximum length of the buffer.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Changes the buffer's length; added bytes hold old content.
    ///
    /// # Panics
    /// If `len` exceeds the capacity.
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.capacity, "a buffer of {} bytes cannot hold {len}", self.capacity);
        self.len = len;
    }

    /// Returns true if the buffer is one of this pool's.
    pub(crate) fn is_of(&self, of: &Arc<SlotPool>) -> bool {
        matches!(&self.home, Home::Slot { pool, .. } if Arc::ptr_eq(pool, of))
    }

    /// Returns the address of the bytes.
    pub(crate) fn start(&mut self) -> *mut u8 {
        self.start.as_ptr()
    }
}

impl Deref for IoBuffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        // SAFETY: the buffer owns at least `len` bytes from `start`, which began as zeroes.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for IoBuffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `self` is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        match &mut self.home {
            Home::Own { .. } => {}
            Home::Spare { memory, list } => {
                if let Some(memory) = memory.take() {
                    list.put(memory);
                }
            }
            Home::Slot { pool, slot } => {
                let mut free = pool.free();
                free.assert_taken(*slot);
                free.kept.push(*slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_aligned_zero_and_as_long_as_asked() {
        for len in [0, 1, 512, 4096, 100_000] {
            let mut buffer = IoBuffer::new(len);
            assert_eq!(buffer.as_ptr().align_offset(BUFFER_ALIGNMENT), 0);
            assert!(buffer.len() == len && buffer.iter().all(|&byte| byte == 0));
            buffer.set_len(buffer.capacity());
            buffer.fill(7);
        }
    }

    #[test]
    fn a_pool_hands_each_slot_to_one_owner_at_a_time() {
        let pool = SlotPool::new(3, 5000).expect("address space");
        let mut taken: Vec<_> = (0..3).map(|_| pool.buffer(8192).expect("a slot")).collect();
        assert!(pool.buffer(1).is_none(), "all are taken");
        for (number, buffer) in taken.iter_mut().enumerate() {
            buffer.fill(number as u8);
        }
        for (number, buffer) in taken.iter().enumerate() {
            assert!(buffer.iter().all(|&byte| usize::from(byte) == number));
        }
        taken.pop();
        let again = pool.buffer(100).expect("one is back");
        assert!(again.is_of(&pool) && !IoBuffer::new(1).is_of(&pool));
        drop(again);
        assert!(pool.buffer(8193).is_none(), "too long for a slot");
    }

    #[test]
    fn a_buffer_keeps_its_pool_alive() {
        let pool = SlotPool::new(1, 4096).expect("address space");
        let mut buffer = pool.buffer(4096).expect("a slot");
        drop(pool);
        buffer.fill(9);
        assert_eq!(buffer[4095], 9);
    }

    #[test]
    fn memory_of_large_buffers_is_kept_for_the_next_ones_up_to_a_bound() {
        let list = Arc::new(SpareBuffers::default());
        let mut large = list.buffer(SPARE_BYTES_MAX / 2 + BUFFER_ALIGNMENT);
        large.fill(7);
        let at = large.as_ptr();
        drop(large);
        drop(list.buffer(SLOT_BYTES));
        assert_eq!(list.spares().memories.len(), 1, "a small one is not kept");
        let pair = (list.buffer(SPARE_BYTES_MAX / 2), list.buffer(SPARE_BYTES_MAX / 2));
        assert!(pair.0.as_ptr() == at && pair.0.iter().all(|&byte| byte == 7));
        assert!(pair.1.iter().all(|&byte| byte == 0), "there was one");
        drop(pair.1);
        let bytes = list.spares().bytes;
        drop(pair.0);
        assert_eq!((bytes, list.spares().bytes), (SPARE_BYTES_MAX / 2, bytes), "two are too many");
        let two = (list.buffer(2 * SLOT_BYTES), list.buffer(2 * SLOT_BYTES));
        drop(two);
        let _small = list.buffer(2 * SLOT_BYTES);
        assert_eq!(list.spares().bytes, bytes, "the smallest that is long enough");
    }

    #[test]
    fn what_is_given_back_is_zero_again_and_counted() {
        let pool = SlotPool::new(2, 4096).expect("address space");
        let mut buffer = pool.bare_buffer(4096).expect("a slot");
        buffer.fill(7);
        assert!(!pool.give_back() && pool.kept_buffer(1).is_none(), "it is in use");
        drop(buffer);
        assert_eq!(pool.kept(), 1);
        assert_eq!(pool.kept_buffer(4096).expect("it is kept")[..], [7; 4096]);
        assert!(pool.give_back() && !pool.give_back());
        let all: Vec<_> = (0..2).map(|_| pool.bare_buffer(4096).expect("a slot")).collect();
        assert!(all.iter().all(|buffer| buffer[..] == [0; 4096]));
        assert!(pool.bare_buffer(1).is_none() && pool.kept() == 0);
    }
}
