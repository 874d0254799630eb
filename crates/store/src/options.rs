//! How a store and its tables are made and opened.

use std::time::Duration;

use entresol_base::ByteSize;
use entresol_media::PmemMode;

use crate::cache::row::ROW_CACHE_BYTES_MIN;
use crate::run::PREFIXES_GONE_MAX;
use crate::{Policy, StoreError};

/// The longest key.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 1;
/// The longest value.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// The most bytes that one group of writes takes in the log.
pub const GROUP_BYTES_MAX: u64 = (2 << 30) - (1 << 20);
/// The longest name of a `Kvs`.
pub const NAME_BYTES_MAX: usize = 64;
/// The most `Kvs` of a store.
pub const KVS_MAX: usize = 1024;

/// How a store is opened. What it contains does not depend on it: every one may differ from the
/// last time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvdbOptions {
    /// On a disk, as long a machine's crash may reach back: after it all writes that are older are
    /// there. A process that dies loses none.
    pub durability_interval: Duration,
    /// The directory lies on persistent memory: segments are mapped as such, and a write is
    /// durable when the call returns. Of a store in several volumes, those of the class are; where
    /// they have no room, each write waits for a sync of the next class. A file system that is
    /// none is refused, unless it is to stand in for one (`assume_dax`): then writes are flushed
    /// as they would be there, and survive the death of the process, but no crash of the machine
    /// is promised anything. None is a disk.
    pub pmem: Option<PmemMode>,
    /// The bytes of a segment of the log.
    pub segment_bytes: u64,
    /// After so many bytes the youngest data are closed, and flushed behind the writers' backs.
    pub generation_bytes: u64,
    /// Generations that may wait to be flushed before writers wait for them.
    pub generations_waiting_max: u32,
    /// The most bytes of DRAM that the store takes for itself; mappings of its files are not among
    /// them. A quarter is for indexes of the youngest data and for sorting them: what has grown
    /// to that is flushed before `generation_bytes` are full. An eighth is for what flushing and
    /// merging write (8 MiB at most), and three sixteenths (at most 12 MiB and one sixteenth) for
    /// what is not counted one by one; what the cache of entries leaves of the rest holds pages of
    /// runs. As long as all runs fit in what the indexes do not take of theirs, in the rest and in
    /// half of the cache of entries, pages may take that, and what is missing is read from front
    /// to back once enough of it was asked for. What snapshots and cursors hold of data that have
    /// been flushed meanwhile comes on top, and so do values while they are read.
    ///
    /// It is kept from 32 MiB on, by a program that has called
    /// [`give_large_buffers_back`](entresol_media::machine::give_large_buffers_back) before:
    /// glibc's allocator, left alone, keeps much of what was freed.
    pub memory_bytes: u64,
    /// The bytes of DRAM for entries that were read or written one by one: a key that is read
    /// again is found there by one look. At least 128 KiB, or 0 for none, and never more than a
    /// quarter of `memory_bytes`; what takes more than a 2,800th of it may not be kept there. What
    /// indexes of the youngest data and pages of runs leave of theirs it borrows, and gives back
    /// when they want it, and so it does with half of its own where that lets all runs be cached.
    pub row_cache_bytes: u64,
    /// Bytes on media for each byte that is live: above it, merging makes room.
    pub space_amplification_max: f64,
    /// The share of a class of media that values may take there because they are read often, though
    /// they would lie on a slower one otherwise; 0 for none.
    pub hot_share: f64,
    /// With less room than this on the medium values are refused; what is left is for deleting and
    /// merging, by which room is made. A few MiB are needed, and more for merging large `Kvs`.
    pub reserve_bytes: u64,
    /// The most removed prefixes that one run says; each reader holds them in memory. Less than the
    /// 16,384 that there may be is for trials: where there are more, flushing writes several runs.
    pub range_deletes_per_run_max: u32,
}

impl Default for KvdbOptions {
    fn default() -> KvdbOptions {
        KvdbOptions {
            durability_interval: Duration::from_millis(100),
            pmem: None,
            segment_bytes: 16 << 20,
            generation_bytes: 64 << 20,
            generations_waiting_max: 4,
            memory_bytes: 192 << 20,
            row_cache_bytes: 32 << 20,
            space_amplification_max: 1.5,
            hot_share: 0.1,
            reserve_bytes: 64 << 20,
            range_deletes_per_run_max: PREFIXES_GONE_MAX as u32,
        }
    }
}

impl KvdbOptions {
    /// The least bytes of a segment.
    pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
    /// The most.
    pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
    /// The least memory.
    pub const MEMORY_BYTES_MIN: u64 = 512 << 10;

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        let refuse = |what: String| Err(StoreError::Options { what });
        let segments = Self::SEGMENT_BYTES_MIN..=Self::SEGMENT_BYTES_MAX;
        if !segments.contains(&self.segment_bytes) || !self.segment_bytes.is_multiple_of(4096) {
            return refuse(format!(
                "segment_bytes is {}: use a multiple of 4 KiB from {} to {}",
                self.segment_bytes,
                ByteSize(*segments.start()),
                ByteSize(*segments.end()),
            ));
        }
        if self.generation_bytes < self.segment_bytes || self.generation_bytes > 64 << 30 {
            return refuse(format!(
                "generation_bytes is {}: use at least segment_bytes, and at most 64GiB",
                ByteSize(self.generation_bytes)
            ));
        }
        if self.generations_waiting_max == 0 {
            return refuse("generations_waiting_max is 0: use at least 1".to_owned());
        }
        if !(Self::MEMORY_BYTES_MIN..=1 << 44).contains(&self.memory_bytes) {
            return refuse(format!(
                "memory_bytes is {}: use {} to 16TiB",
                ByteSize(self.memory_bytes),
                ByteSize(Self::MEMORY_BYTES_MIN)
            ));
        }
        let entries = ROW_CACHE_BYTES_MIN..=1 << 44;
        if self.row_cache_bytes != 0 && !entries.contains(&self.row_cache_bytes) {
            return refuse(format!(
                "row_cache_bytes is {}: use {} to {}, or 0 for no row cache",
                self.row_cache_bytes,
                ByteSize(*entries.start()),
                ByteSize(*entries.end()),
            ));
        }
        let interval = Duration::from_millis(1)..=Duration::from_secs(3600);
        if !interval.contains(&self.durability_interval) {
            return refuse(format!(
                "durability_interval is {:?}: use 1ms to 1h",
                self.durability_interval
            ));
        }
        if !(1.1..=100.0).contains(&self.space_amplification_max) {
            return refuse(format!(
                "space_amplification_max is {}: use 1.1 to 100",
                self.space_amplification_max
            ));
        }
        if !(0.0..=0.5).contains(&self.hot_share) {
            return refuse(format!("hot_share is {}: use 0 to 0.5", self.hot_share));
        }
        if !(1..=PREFIXES_GONE_MAX as u32).contains(&self.range_deletes_per_run_max) {
            return refuse(format!(
                "range_deletes_per_run_max is {}: use 1 to {PREFIXES_GONE_MAX}",
                self.range_deletes_per_run_max
            ));
        }
        Ok(())
    }
}

/// How a `Kvs` is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvsOptions {
    /// Values of at most so many bytes lie beside their keys once they are flushed.
    pub inline_bytes: u32,
    /// How long a key lives if its write does not say; none is for ever. It is rounded up to whole
    /// seconds, at least one, and counts from the second in which the key is written: the key goes
    /// up to a second early.
    pub time_to_live: Option<Duration>,
    /// On which classes of media its keys and values lie.
    pub policy: Policy,
}

impl Default for KvsOptions {
    fn default() -> KvsOptions {
        KvsOptions { inline_bytes: 256, time_to_live: None, policy: Policy::default() }
    }
}

impl KvsOptions {
    /// The most bytes that may lie beside a key.
    pub const INLINE_BYTES_MAX: u32 = 64 << 10;

    pub(crate) fn check(&self) -> Result<(), StoreError> {
        if self.inline_bytes > Self::INLINE_BYTES_MAX {
            let what = format!(
                "inline_bytes is {}: use at most {}",
                self.inline_bytes,
                Self::INLINE_BYTES_MAX
            );
            return Err(StoreError::Options { what });
        }
        Ok(())
    }
}

/// A time to live, rounded up: less than a second is one.
pub(crate) fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// Refuses names that could not be typed.
pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(good) {
        return Err(StoreError::KvsName { name: name.to_owned() });
    }
    Ok(())
}

/// Refuses prefixes that no key can begin with, and the one that all do.
pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), StoreError> {
    if prefix.is_empty() || prefix.len() > KEY_BYTES_MAX {
        return Err(StoreError::Prefix { bytes: prefix.len(), most: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Refuses keys and values that cannot be kept.
pub(crate) fn check_sizes(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(StoreError::Key { bytes: key.len(), most: KEY_BYTES_MAX });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(StoreError::Value { bytes: value.len(), most: VALUE_BYTES_MAX });
    }
    Ok(())
}
