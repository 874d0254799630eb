//! Counters of events, one set for each worker so that no cache line is shared, and their sum
//! beside the cache's contents in figures.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Events counted by one worker, or by the cache's own work. Written by one thread at a
        /// time, read by any.
        #[derive(Debug, Default)]
        #[repr(align(64))]
        pub(crate) struct Counters {
            $($(#[$doc])* pub(crate) $name: AtomicU64,)+
        }

        impl Counters {
            /// Sets all counters to zero.
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
            /// Adds what one set of counters has counted.
            pub(crate) fn add(&mut self, counters: &Counters) {
                $(self.$name += counters.$name.load(Ordering::Relaxed);)+
            }
        }
    };
}

counters! {
    /// Reads that found their item.
    hits,
    /// Reads that found no item.
    misses,
    /// Misses whose item was there, but had expired.
    expired_on_read,
    /// Misses whose item was there, but had been flushed.
    flushed_on_read,
    /// Reads that had to go to a block file.
    file_reads,
    /// Values that came back damaged, each answered as a miss.
    damaged,
    /// Items stored.
    stores,
    /// Items written over a dead record of the same size.
    stores_in_holes,
    /// Stores refused for want of memory.
    refused,
    /// Stores told to come again because all write buffers were being written.
    busy,
    /// Items deleted.
    deletes,
    /// Live items evicted.
    evicted_items,
    /// Live items evicted before any read.
    evicted_unread_items,
    /// Expired items freed.
    expired_items,
    /// Expired items freed before any read.
    expired_unread_items,
    /// Live items copied into another segment.
    merged_items,
    /// Bytes of live items copied into another segment.
    merged_bytes,
    /// Segments evicted whole.
    evicted_segments,
    /// Segments merged into others.
    merged_segments,
    /// Items dropped because displacement found no slot.
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

/// Contents of a cache in figures, and its events.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Statistics {
    /// Live items.
    pub items: u64,
    /// Items that the cache may hold; 0 is any number.
    pub keys_max: u64,
    /// Bytes of live items: headers, keys and values.
    pub item_bytes: u64,
    /// Quota of DRAM.
    pub dram_limit_bytes: u64,
    /// DRAM used: segments or records, tables, write buffers, metadata.
    pub dram_used_bytes: u64,
    /// DRAM used by the hash index.
    pub index_bytes: u64,
    /// DRAM used by segments' metadata.
    pub metadata_bytes: u64,
    /// DRAM used by ghost tags.
    pub tag_bytes: u64,
    /// Quota of the medium; 0 in DRAM.
    pub medium_limit_bytes: u64,
    /// Bytes used on the medium.
    pub medium_used_bytes: u64,
    /// Bytes of a segment.
    pub segment_bytes: u64,
    /// Segments in use.
    pub segments: u64,
    /// Segments in use that belong to the small log.
    pub segments_small: u64,
    /// Segments that are open.
    pub segments_open: u64,
    /// Segments that are being written to a block file.
    pub segments_writing: u64,
    /// Kind of medium: dram, pmem, file.
    pub medium: &'static str,
    /// Way the medium is reached: «anonymous memory», «dax», «emulated», «io_uring», «threads».
    pub access: &'static str,
    /// Items restored at the start.
    pub restored_items: u64,
    /// Saved segments that could not be restored at the start.
    pub lost_segments: u64,
    /// Device nanoseconds charged to the account.
    pub device_ns: u64,
    /// Counters of events.
    pub events: Events,
}
