//! Options for opening stores and creating `Kvs`, and the limits on names, keys and values.

use std::time::Duration;

use entresol_base::ByteSize;
use entresol_media::PmemMode;

use crate::{Policy, StoreError};

/// Most bytes of a key.
pub const KEY_BYTES_MAX: usize = (64 << 10) - 1;
/// Most bytes of a value.
pub const VALUE_BYTES_MAX: usize = 1 << 30;
/// Most bytes that one group of writes takes in the log.
pub const GROUP_BYTES_MAX: u64 = (2 << 30) - (1 << 20);
/// Most bytes of a `Kvs`'s name.
pub const NAME_BYTES_MAX: usize = 64;
/// Most `Kvs` in a store at a time.
pub const KVS_MAX: usize = 1024;

/// Fewest bytes of a row cache that is not empty.
pub(crate) const ROW_CACHE_BYTES_MIN: u64 = 128 << 10;
/// Most range deletes of one run, all of which each reader holds in memory.
pub(crate) const PREFIXES_GONE_MAX: usize = 16 << 10;

/// Options with which a store is opened. The data on media do not depend on them: every option may
/// differ from the last time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct KvdbOptions {
    /// Most time that a crash of the machine may undo on a disk. Every write that is older survives
    /// it. A process that dies loses no writes.
    pub durability_interval: Duration,
    /// Age that an acknowledged write may reach before it is durable: where syncs of a disk fall
    /// behind, writers wait for them. At least `durability_interval`; `None` for twice that.
    pub durability_lag_max: Option<Duration>,
    /// Mode of persistent memory, or `None` for a store on disks.
    ///
    /// Segments are then mapped as persistent memory, and a write is durable when the call returns.
    /// In a store of several volumes, this holds for the volumes of the class `pmem`; once these
    /// have no room, each write waits for a sync of the next class. A file system that is not on
    /// persistent memory is refused, unless it is to stand in for one (`assume_dax`). Writes are
    /// then flushed as they would be on persistent memory, and survive the death of the process,
    /// but nothing is promised for a crash of the machine.
    pub pmem: Option<PmemMode>,
    /// Bytes of a segment of the log.
    pub segment_bytes: u64,
    /// Bytes of writes after which the memtables of all `Kvs` are closed. A background thread
    /// flushes them while writers go on.
    pub generation_bytes: u64,
    /// Closed generations that may wait for a flush before writers are stalled.
    pub generations_waiting_max: u32,
    /// Most bytes of DRAM that the store takes for itself. Mappings of its files do not count.
    ///
    /// - A quarter is for memtable indexes and for sorting them. A generation whose indexes have
    ///   grown to their share is flushed before `generation_bytes` are full.
    /// - An eighth, at most 8 MiB, is for buffers of flushes and compactions.
    /// - Three sixteenths, at most 12 MiB plus one sixteenth, are for memory that is not counted
    ///   piece by piece.
    /// - The block cache has what the row cache leaves of the rest.
    ///
    /// The block cache may grow while all runs fit into the unused part of the memtable indexes'
    /// quarter, the rest, and half of the row cache. Once readers have asked for enough of the
    /// runs, the missing pages are then read from front to back. Memory that snapshots and cursors
    /// hold of flushed data comes on top, and so do values while they are read.
    ///
    /// The bound is kept from 32 MiB on, if the program has called
    /// [`give_large_buffers_back`](entresol_media::machine::give_large_buffers_back) before:
    /// glibc's allocator, left alone, keeps much of the memory that was freed.
    pub memory_bytes: u64,
    /// Bytes of DRAM for the row cache, where a repeated read of a key takes one lookup. At least
    /// 128 KiB, or 0 for no row cache, and never more than a quarter of `memory_bytes`.
    ///
    /// Entries larger than a 2,800th of it may not be cached. The row cache borrows what memtable
    /// indexes and the block cache leave of their shares, and gives it back when they need it. It
    /// also gives half of its own share to the block cache while that lets all runs be cached.
    pub row_cache_bytes: u64,
    /// Most bytes on media for each byte of keys and values that can be read, beside 16 MiB, while
    /// values in segments are overwritten; `None` for no bound.
    ///
    /// Garbage is collected before that is reached, and writers are slowed down if they are faster.
    /// Values beside their keys may take as much again. Files that only snapshots, cursors and
    /// transactions hold come on top.
    pub space_amplification_max: Option<f64>,
    /// Bytes of values on media for each one that compactions have not found to be superseded,
    /// above which garbage is collected; at most `space_amplification_max`.
    pub space_amplification_target: f64,
    /// Share of a class of media that values may take there because they are read often, although
    /// they would otherwise lie on a slower class; 0 for none.
    pub hot_share: f64,
    /// Bytes of free space below which new values are refused. They are kept for deletes and
    /// compactions, which make room. A few MiB are needed, and more to compact large `Kvs`.
    pub reserve_bytes: u64,
    /// Most range deletes in one run, all of which a reader of the run holds in memory. Values
    /// below the largest, 16,384, are for trials: a flush with more range deletes writes several
    /// runs.
    pub range_deletes_per_run_max: u32,
}

impl Default for KvdbOptions {
    fn default() -> KvdbOptions {
        KvdbOptions {
            durability_interval: Duration::from_millis(100),
            durability_lag_max: None,
            pmem: None,
            segment_bytes: 16 << 20,
            generation_bytes: 64 << 20,
            generations_waiting_max: 4,
            memory_bytes: 192 << 20,
            row_cache_bytes: 32 << 20,
            space_amplification_max: None,
            space_amplification_target: 1.5,
            hot_share: 0.1,
            reserve_bytes: 64 << 20,
            range_deletes_per_run_max: PREFIXES_GONE_MAX as u32,
        }
    }
}

impl KvdbOptions {
    /// Fewest bytes of a segment.
    pub const SEGMENT_BYTES_MIN: u64 = 16 << 10;
    /// Most bytes of a segment.
    pub const SEGMENT_BYTES_MAX: u64 = 1 << 30;
    /// Fewest bytes of memory.
    pub const MEMORY_BYTES_MIN: u64 = 512 << 10;

    /// Returns the bytes of values for each live one above which garbage is collected.
    pub(crate) fn amplification_target(&self) -> f64 {
        let target = self.space_amplification_target;
        self.space_amplification_max.map_or(target, |most| target.min(most))
    }

    /// Returns the age that an acknowledged write may reach before it is durable.
    pub(crate) fn lag_max(&self) -> Duration {
        self.durability_lag_max.unwrap_or(2 * self.durability_interval)
    }

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
        if self.lag_max() < self.durability_interval {
            return refuse(format!(
                "durability_lag_max is {:?}: use at least durability_interval, which is {:?}",
                self.lag_max(),
                self.durability_interval,
            ));
        }
        for (name, ratio) in [
            ("space_amplification_max", self.space_amplification_max),
            ("space_amplification_target", Some(self.space_amplification_target)),
        ] {
            if ratio.is_some_and(|ratio| !(1.1..=100.0).contains(&ratio)) {
                return refuse(format!("{name} is {}: use 1.1 to 100", ratio.unwrap_or_default()));
            }
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

/// Options with which a `Kvs` is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KvsOptions {
    /// Most bytes of a value that a flush stores beside its key.
    pub inline_bytes: u32,
    /// Time to live of a key whose write names none; `None` is forever. It is rounded up to whole
    /// seconds, at least one, and counts from the second in which the key is written, so a key may
    /// expire up to one second early.
    pub time_to_live: Option<Duration>,
    /// Classes of media on which the keys and values lie.
    pub policy: Policy,
}

impl Default for KvsOptions {
    fn default() -> KvsOptions {
        KvsOptions { inline_bytes: 256, time_to_live: None, policy: Policy::default() }
    }
}

impl KvsOptions {
    /// Most bytes of a value that may be stored beside its key.
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

/// Rounds a time to live up to whole seconds, at least one.
pub(crate) fn whole_seconds(time: Duration) -> u32 {
    let seconds = time.as_secs().saturating_add(u64::from(time.subsec_nanos() > 0));
    u32::try_from(seconds).unwrap_or(u32::MAX).max(1)
}

/// Refuses names that are empty, too long or hard to type.
pub(crate) fn check_name(name: &str) -> Result<(), StoreError> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.bytes().all(good) {
        return Err(StoreError::KvsName { name: name.to_owned() });
    }
    Ok(())
}

/// Refuses prefixes that are longer than any key, and the empty one, which every key begins with.
pub(crate) fn check_prefix(prefix: &[u8]) -> Result<(), StoreError> {
    if prefix.is_empty() || prefix.len() > KEY_BYTES_MAX {
        return Err(StoreError::Prefix { bytes: prefix.len(), most: KEY_BYTES_MAX });
    }
    Ok(())
}

/// Refuses keys and values of a size that cannot be stored.
pub(crate) fn check_sizes(key: &[u8], value: &[u8]) -> Result<(), StoreError> {
    if key.is_empty() || key.len() > KEY_BYTES_MAX {
        return Err(StoreError::Key { bytes: key.len(), most: KEY_BYTES_MAX });
    }
    if value.len() > VALUE_BYTES_MAX {
        return Err(StoreError::Value { bytes: value.len(), most: VALUE_BYTES_MAX });
    }
    Ok(())
}
