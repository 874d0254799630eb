//! Regions whose accesses are observed: by counters, by models of devices in virtual time, by the
//! recorder that yields crash images.
//!
//! [`Observed`] keeps its bytes in the process's own memory. Before each access it gives the
//! world's scheduler a chance to switch threads, then lets observers take (virtual) time, then
//! notifies them of the access and makes it; of an instruction that is itself a fence they also
//! learn the end. Between the notification and the access no other simulated thread runs.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use entresol_base::Place;
use entresol_base::mutants::{self, SiteKind};
use entresol_base::world::World;

use crate::region::{Direct, FlushKind, Region, RegionError};
use crate::streaming::{CopyStep, copy_steps};

/// Bytes of a line of the processor's cache.
pub const LINE_BYTES: u64 = 64;

/// Path of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StoreKind {
    /// Into the processor's caches.
    Cached,
    /// Past the caches.
    Streaming,
}

/// Instruction that orders stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FenceKind {
    /// A drain.
    Drain,
    /// A fence within [`Region::write_streaming`], behind each unit. It takes time, but promises
    /// the caller nothing before a drain, so crash suites ignore it.
    Copy,
    /// An atomic read-modify-write instruction, or a sequentially consistent store, which x86
    /// implements by one. The processor executes it only after everything this thread flushed has
    /// arrived.
    Locked,
}

/// An access that is about to be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// A load.
    Load {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
    },
    /// A store.
    Store {
        /// First byte.
        offset: u64,
        /// Number of bytes.
        len: usize,
        /// Path of the store.
        kind: StoreKind,
    },
    /// An atomic read-modify-write of a word, or a sequentially consistent store of it.
    Locked {
        /// Offset of the word.
        offset: u64,
        /// Its bytes.
        len: usize,
    },
    /// A flush of the lines of a range.
    Flush {
        /// First byte.
        offset: u64,
        /// Number of bytes, at least one.
        len: usize,
    },
    /// A drain by the thread.
    Drain,
}

/// An observer of a region. Everything is reported before it is done, except [`Observer::locked`].
pub trait Observer: Send + Sync {
    /// May let virtual time pass, in which other threads run: the step has not been reported yet.
    /// This is the only call in which an observer may wait.
    fn wait(&self, step: &Step) {
        let _ = step;
    }

    /// Reports a load of `len` bytes at `offset`.
    fn load(&self, offset: u64, len: usize, place: Place) {
        let _ = (offset, len, place);
    }

    /// Reports a store of `bytes` at `offset`.
    fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, place: Place) {
        let _ = (offset, bytes, kind, place);
    }

    /// Reports a flush of the lines of `len` bytes at `offset`, at least one byte.
    fn flush(&self, offset: u64, len: usize, kind: FlushKind, place: Place) {
        let _ = (offset, len, kind, place);
    }

    /// Reports that the thread waits for its flushes and streaming stores.
    fn fence(&self, kind: FenceKind, place: Place) {
        let _ = (kind, place);
    }

    /// Reports the end of a [`FenceKind::Locked`]: other threads see everything that this one has
    /// stored, including the word.
    fn locked(&self, place: Place) {
        let _ = place;
    }
}

impl Observer for () {}

impl<O: Observer + ?Sized> Observer for Arc<O> {
    fn wait(&self, step: &Step) {
        (**self).wait(step);
    }

    fn load(&self, offset: u64, len: usize, place: Place) {
        (**self).load(offset, len, place);
    }

    fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, place: Place) {
        (**self).store(offset, bytes, kind, place);
    }

    fn flush(&self, offset: u64, len: usize, kind: FlushKind, place: Place) {
        (**self).flush(offset, len, kind, place);
    }

    fn fence(&self, kind: FenceKind, place: Place) {
        (**self).fence(kind, place);
    }

    fn locked(&self, place: Place) {
        (**self).locked(place);
    }
}

/// Implements the trait for tuples of observers, each of which is notified in order.
macro_rules! side_by_side {
    ($($name:ident $index:tt),+) => {
        impl<$($name: Observer),+> Observer for ($($name,)+) {
            fn wait(&self, step: &Step) {
                $(self.$index.wait(step);)+
            }

            fn load(&self, offset: u64, len: usize, place: Place) {
                $(self.$index.load(offset, len, place);)+
            }

            fn store(&self, offset: u64, bytes: &[u8], kind: StoreKind, place: Place) {
                $(self.$index.store(offset, bytes, kind, place);)+
            }

            fn flush(&self, offset: u64, len: usize, kind: FlushKind, place: Place) {
                $(self.$index.flush(offset, len, kind, place);)+
            }

            fn fence(&self, kind: FenceKind, place: Place) {
                $(self.$index.fence(kind, place);)+
            }

            fn locked(&self, place: Place) {
                $(self.$index.locked(place);)+
            }
        }
    };
}

side_by_side!(A 0, B 1);
side_by_side!(A 0, B 1, C 2);
side_by_side!(A 0, B 1, C 2, D 3);

/// A region in the process's own memory whose every access `O` observes.
pub struct Observed<O> {
    bytes: Arc<Direct>,
    flush_kind: FlushKind,
    observer: O,
    /// World whose threads access it, if it was made in one.
    world: Option<World>,
}

impl<O: Observer> Observed<O> {
    /// Makes a region of `len` zero bytes, rounded up to whole pages, that claims to be flushed by
    /// `clwb`.
    ///
    /// # Errors
    /// If the system refuses the memory.
    pub fn new(len: u64, observer: O) -> Result<Observed<O>, RegionError> {
        let bytes = Arc::new(Direct::anonymous(len, false)?);
        Ok(Observed::over(bytes, FlushKind::Clwb, observer))
    }

    /// Makes a region over existing bytes. If made within a world, it belongs to that world: each
    /// access is a step, and after the world has crashed no access has an effect.
    #[must_use]
    pub fn over(bytes: Arc<Direct>, flush_kind: FlushKind, observer: O) -> Observed<O> {
        Observed { bytes, flush_kind, observer, world: World::current() }
    }

    /// Returns the observer.
    #[must_use]
    pub fn observer(&self) -> &O {
        &self.observer
    }

    /// Returns the bytes. Accesses to them are not observed.
    #[must_use]
    pub fn bytes(&self) -> &Arc<Direct> {
        &self.bytes
    }

    /// Returns false if the machine has crashed and the access must have no effect.
    #[inline]
    #[track_caller]
    fn before(&self, step: &Step) -> bool {
        if let Some(world) = &self.world {
            world.step();
            if world.crashed() {
                return false;
            }
        }
        self.observer.wait(step);
        true
    }

    #[inline]
    #[track_caller]
    fn loading(&self, offset: u64, len: usize) {
        if self.before(&Step::Load { offset, len }) {
            self.observer.load(offset, len, Location::caller());
        }
    }

    #[inline]
    #[track_caller]
    fn storing(&self, offset: u64, bytes: &[u8], kind: StoreKind) -> bool {
        self.assert_inside(offset, bytes.len());
        let alive = self.before(&Step::Store { offset, len: bytes.len(), kind });
        if alive {
            self.observer.store(offset, bytes, kind, Location::caller());
        }
        alive
    }

    /// Stores a word by `change`. On x86 a sequentially consistent store is an exchange.
    #[inline]
    #[track_caller]
    fn store_word(&self, offset: u64, word: &[u8], order: Ordering, change: impl FnOnce(&Direct)) {
        if order != Ordering::SeqCst {
            if self.storing(offset, word, StoreKind::Cached) {
                change(&self.bytes);
            }
            return;
        }
        self.assert_inside(offset, word.len());
        if self.before(&Step::Locked { offset, len: word.len() }) {
            let place = Location::caller();
            self.observer.fence(FenceKind::Locked, place);
            self.observer.store(offset, word, StoreKind::Cached, place);
            change(&self.bytes);
            self.observer.locked(place);
        }
    }

    /// Reports that a word will be read and perhaps written, atomically.
    #[inline]
    #[track_caller]
    fn locking(&self, offset: u64, len: usize) -> bool {
        self.assert_inside(offset, len);
        let alive = self.before(&Step::Locked { offset, len });
        if alive {
            self.observer.load(offset, len, Location::caller());
            self.observer.fence(FenceKind::Locked, Location::caller());
        }
        alive
    }

    /// Changes a word by `change`, an atomic operation, from an old value to `new` of it.
    #[inline]
    #[track_caller]
    fn locked_u64(
        &self,
        offset: u64,
        new: impl FnOnce(u64) -> u64,
        change: impl FnOnce(&Direct) -> u64,
    ) -> u64 {
        let alive = self.locking(offset, 8);
        let old = self.bytes.load_u64(offset, Ordering::Relaxed);
        if !alive {
            return old;
        }
        let (new, place) = (new(old).to_le_bytes(), Location::caller());
        self.observer.store(offset, &new, StoreKind::Cached, place);
        let old = change(&self.bytes);
        self.observer.locked(place);
        old
    }

    #[inline]
    fn assert_inside(&self, offset: u64, len: usize) {
        let inside = self.bytes.len().checked_sub(len as u64).is_some_and(|last| offset <= last);
        assert!(inside || len == 0, "{len} bytes at {offset} are outside of the region");
    }
}

impl<O: Observer> Region for Observed<O> {
    fn len(&self) -> u64 {
        self.bytes.len()
    }

    fn flush_kind(&self) -> FlushKind {
        self.flush_kind
    }

    fn load_u8(&self, offset: u64, order: Ordering) -> u8 {
        self.loading(offset, 1);
        self.bytes.load_u8(offset, order)
    }

    fn load_u32(&self, offset: u64, order: Ordering) -> u32 {
        self.loading(offset, 4);
        self.bytes.load_u32(offset, order)
    }

    fn load_u64(&self, offset: u64, order: Ordering) -> u64 {
        self.loading(offset, 8);
        self.bytes.load_u64(offset, order)
    }

    fn load_line(&self, offset: u64) -> [u64; 8] {
        self.loading(offset, LINE_BYTES as usize);
        self.bytes.load_line(offset)
    }

    fn read(&self, offset: u64, out: &mut [u8]) {
        self.loading(offset, out.len());
        self.bytes.read(offset, out);
    }

    fn append_to(&self, offset: u64, len: usize, out: &mut Vec<u8>) {
        self.loading(offset, len);
        self.bytes.append_to(offset, len, out);
    }

    fn equals(&self, offset: u64, bytes: &[u8]) -> bool {
        self.loading(offset, bytes.len());
        self.bytes.equals(offset, bytes)
    }

    fn prefetch(&self, offset: u64) {
        self.bytes.prefetch(offset);
    }

    fn store_u8(&self, offset: u64, value: u8, order: Ordering) {
        let change = |bytes: &Direct| bytes.store_u8(offset, value, order);
        self.store_word(offset, &[value], order, change);
    }

    fn store_u32(&self, offset: u64, value: u32, order: Ordering) {
        let change = |bytes: &Direct| bytes.store_u32(offset, value, order);
        self.store_word(offset, &value.to_le_bytes(), order, change);
    }

    fn store_u64(&self, offset: u64, value: u64, order: Ordering) {
        let change = |bytes: &Direct| bytes.store_u64(offset, value, order);
        self.store_word(offset, &value.to_le_bytes(), order, change);
    }

    fn compare_exchange_u32(
        &self,
        offset: u64,
        current: u32,
        new: u32,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u32, u32> {
        let alive = self.locking(offset, 4);
        let found = self.bytes.load_u32(offset, Ordering::Relaxed);
        if !alive {
            return Err(found);
        }
        let place = Location::caller();
        if found == current {
            self.observer.store(offset, &new.to_le_bytes(), StoreKind::Cached, place);
        }
        let done = self.bytes.compare_exchange_u32(offset, current, new, success, failure);
        self.observer.locked(place);
        done
    }

    fn compare_exchange_u64(
        &self,
        offset: u64,
        current: u64,
        new: u64,
        success: Ordering,
        failure: Ordering,
    ) -> Result<u64, u64> {
        let alive = self.locking(offset, 8);
        let found = self.bytes.load_u64(offset, Ordering::Relaxed);
        if !alive {
            return Err(found);
        }
        let place = Location::caller();
        if found == current {
            self.observer.store(offset, &new.to_le_bytes(), StoreKind::Cached, place);
        }
        let done = self.bytes.compare_exchange_u64(offset, current, new, success, failure);
        self.observer.locked(place);
        done
    }

    fn swap_u64(&self, offset: u64, new: u64, order: Ordering) -> u64 {
        self.locked_u64(offset, |_| new, |bytes| bytes.swap_u64(offset, new, order))
    }

    fn fetch_add_u64(&self, offset: u64, value: u64, order: Ordering) -> u64 {
        self.locked_u64(
            offset,
            |old| old.wrapping_add(value),
            |bytes| bytes.fetch_add_u64(offset, value, order),
        )
    }

    fn fetch_or_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.locked_u64(offset, |old| old | bits, |bytes| bytes.fetch_or_u64(offset, bits, order))
    }

    fn fetch_and_u64(&self, offset: u64, bits: u64, order: Ordering) -> u64 {
        self.locked_u64(offset, |old| old & bits, |bytes| bytes.fetch_and_u64(offset, bits, order))
    }

    fn write(&self, offset: u64, bytes: &[u8]) {
        if !bytes.is_empty() && self.storing(offset, bytes, StoreKind::Cached) {
            self.bytes.write(offset, bytes);
        }
    }

    fn write_streaming(&self, offset: u64, bytes: &[u8]) {
        for step in copy_steps(offset as usize, bytes.len()) {
            match step {
                CopyStep::Part(part) => {
                    self.write_and_flush(offset + part.start as u64, &bytes[part]);
                }
                CopyStep::Lines(part) => {
                    let (at, lines) = (offset + part.start as u64, &bytes[part]);
                    if self.storing(at, lines, StoreKind::Streaming) {
                        self.bytes.write(at, lines);
                    }
                }
                CopyStep::Fence => {
                    if self.before(&Step::Drain) {
                        self.observer.fence(FenceKind::Copy, Location::caller());
                    }
                }
            }
        }
    }

    fn zero(&self, offset: u64, len: u64) {
        self.write(offset, &vec![0; len as usize]);
    }

    fn flush(&self, offset: u64, len: usize) {
        if !mutants::removed(SiteKind::Flush, Location::caller()) {
            self.flushing(offset, len);
        }
    }

    fn drain(&self) {
        if !mutants::removed(SiteKind::Drain, Location::caller()) && self.before(&Step::Drain) {
            self.observer.fence(FenceKind::Drain, Location::caller());
        }
    }
}

impl<O: Observer> Observed<O> {
    #[track_caller]
    fn flushing(&self, offset: u64, len: usize) {
        self.assert_inside(offset, len);
        if len > 0 && self.before(&Step::Flush { offset, len }) {
            self.observer.flush(offset, len, self.flush_kind, Location::caller());
        }
    }

    /// Stores and flushes the partial lines at both ends, as [`Direct::write_streaming`] does.
    #[track_caller]
    fn write_and_flush(&self, offset: u64, bytes: &[u8]) {
        Region::write(self, offset, bytes);
        self.flushing(offset, bytes.len());
    }
}

impl<O: fmt::Debug> fmt::Debug for Observed<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.bytes.len();
        f.debug_struct("Observed").field("len", &len).field("observer", &self.observer).finish()
    }
}

#[cfg(test)]
mod tests;
