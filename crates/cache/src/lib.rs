//! The segment cache: index, keys and metadata in DRAM, values on any medium.
//!
//! The design is Segcache's (Yang, Yue, Rashmi: «Segcache», NSDI 2021) with NyxCache's split (Wu et
//! al., FAST 2022, section 3.5): items are appended to fixed-size segments, a segment holds items
//! of one time-to-live class and is freed as a whole; the hash index, keys and metadata lie in
//! DRAM, values in DRAM, persistent memory or on a block file.
//!
//! | module | holds |
//! |---|---|
//! | `index` | the hash index: cache-line buckets, lock-free readers, growth by single buckets |
//! | `record` | the layout of an item in a segment |
//! | `segment` | states of segments, queues and quotas |
//! | `values` | values and the media they lie on |
//! | `media` | media and files that the caller has opened |
//! | `label`, `restart` | marks by which a medium is recognised; state that survives a restart |
//! | `shared` | state shared by the threads: open segments and holes, sealing, eviction |
//! | `worker` | one thread's reads, stores, deletes, counting, touching, walks over all items |
//! | `cache` | the whole: opening, upkeep, saving items over a restart and restoring them |
//! | `trial` | seeded histories in a simulated world |
//!
//! Deliberately absent: sockets, protocols, threads (except one that writes segments to a block
//! file), and waiting: an operation answers at once, if need be with a read for the caller to do.
#![forbid(unsafe_code)]

mod cache;
mod config;
mod error;
mod index;
mod label;
pub mod media;
mod ops;
mod pieces;
mod record;
mod restart;
mod segment;
mod shared;
mod statistics;
#[cfg(any(test, feature = "trial"))]
pub mod trial;
mod values;
mod worker;

pub use cache::Cache;
pub use config::{Config, Favour, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN};
pub use error::{CloseError, OpenError, ResizeError};
pub use ops::{
    Arithmetic, Counted, DeleteOptions, Deleted, Expiry, GetOptions, ItemMeta, KeyHash, Lookup,
    OldValue, PendingRead, ReadFailure, Store, StoreMode, Stored, Win,
};
pub use pieces::VALUE_BYTES_MAX;
pub use record::KEY_BYTES_MAX;
pub use statistics::{Events, Statistics};
pub use worker::{
    Damaged, FileIo, Join, Pinned, Reservation, Reserved, StoredInPlace, Upload, Walk, Worker,
};
