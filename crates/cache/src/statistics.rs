//! Counters of events, one set a worker so that nobody shares a cache line, and the sum of them
//! with what the cache holds.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

use crate::cache::Shared;
use crate::segment::State;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Events counted by one worker, or by the cache's own work. Written by one thread at a
        /// time, read by anybody.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            /// Sets all to zero.
            pub(crate) fn reset(&self) {
                $(self.$name.store(0, Ordering::Relaxed);)+
            }
        }

        /// Events since the start or the last reset.
        #[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
        pub struct Events {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Events {
            fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.load(Ordering::Relaxed);)+
            }
        }
    };
}

counters! {
    /// Reads that found their item.
    hits,
    /// Reads that did not.
    misses,
    /// Of the misses: the item was there, but had expired.
    expired_on_read,
    /// Of the misses: the item was there, but had been flushed.
    flushed_on_read,
    /// Reads that had to go to a block file.
    file_reads,
    /// Values that were not what was written, each answered as a miss.
    damaged,
    /// Items stored.
    stores,
    /// Items that were overwritten in the room of another of the same size.
    stores_in_holes,
    /// Stores refused for want of memory.
    refused,
    /// Stores told to come again because all write buffers were on their way.
    busy,
    /// Items deleted.
    deletes,
    /// Live items given up to make room.
    evicted_items,
    /// Of them: never read.
    evicted_unread_items,
    /// Expired items freed.
    expired_items,
    /// Of them: never read.
    expired_unread_items,
    /// Live items carried into another segment.
    merged_items,
    /// Bytes of them.
    merged_bytes,
    /// Segments given up whole.
    evicted_segments,
    /// Segments merged into others.
    merged_segments,
    /// Items that gave way because displacement found no slot.
    displaced_out,
    /// Segments that could not be written to their block file.
    write_errors,
}

/// Adds to a counter that only this thread writes.
#[inline]
pub(crate) fn count(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// Adds to a counter that several threads write.
pub(crate) fn count_shared(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// What a cache holds and has done.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Live items.
    pub items: u64,
    /// Bytes of their headers, keys and values.
    pub item_bytes: u64,
    /// The DRAM quota.
    pub dram_limit_bytes: u64,
    /// DRAM used: segments or records, tables, write buffers, metadata.
    pub dram_used_bytes: u64,
    /// Of it: the hash index.
    pub index_bytes: u64,
    /// Of it: segments' metadata.
    pub metadata_bytes: u64,
    /// The medium's quota; 0 in DRAM.
    pub medium_limit_bytes: u64,
    /// What is used of it.
    pub medium_used_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Of them: open.
    pub segments_open: u64,
    /// Of them: on their way to a block file.
    pub segments_writing: u64,
    /// The medium: dram, pmem, file.
    pub medium: &'static str,
    /// How the medium is reached: «anonymous memory», «dax», «emulated», «io_uring», «threads».
    pub access: &'static str,
    /// Items brought back at the start.
    pub restored_items: u64,
    /// Device nanoseconds charged to the account.
    pub device_ns: u64,
    /// Events.
    pub events: Events,
}

impl Statistics {
    pub(crate) fn gather(shared: &Shared) -> Self {
        let mut events = Events::default();
        events.add(&shared.counters);
        for counters in shared.worker_counters.lock().iter() {
            events.add(counters);
        }
        let high_water = shared.queues.lock().high_water();
        let flushed_below = shared.flushed_below();
        let (mut items, mut item_bytes) = (0, 0);
        let (mut segments, mut segments_open, mut segments_writing) = (0, 0, 0);
        for id in 0..high_water {
            let segment = shared.segments.get(id);
            let state = segment.state();
            if state == State::Free {
                continue;
            }
            segments += 1;
            segments_open += u64::from(state == State::Open);
            segments_writing += u64::from(state == State::Writing);
            if segment.sequence.load(Ordering::SeqCst) >= flushed_below {
                items += segment.live_items();
                item_bytes += segment.live_bytes();
            }
        }
        let elsewhere = shared.values.is_elsewhere();
        let metadata_bytes = shared.segments.bytes();
        Statistics {
            items,
            item_bytes,
            dram_limit_bytes: shared.dram.limit(),
            dram_used_bytes: shared.dram.used() + metadata_bytes,
            index_bytes: shared.index.bytes(),
            metadata_bytes,
            medium_limit_bytes: if elsewhere { shared.segment_quota().limit() } else { 0 },
            medium_used_bytes: if elsewhere { shared.segment_quota().used() } else { 0 },
            segment_bytes: shared.segment_bytes,
            segments,
            segments_open,
            segments_writing,
            medium: shared.values.kind().name(),
            access: shared.values.access(),
            restored_items: shared.restart.as_ref().map_or(0, |restart| restart.restored_items()),
            device_ns: shared.account.used_ns(),
            events,
        }
    }
}
