//! Derives the sizes of segments, shards and the arena from a configuration, and refuses those that
//! cannot work.

use entresol_base::ByteSize;
use entresol_media::{MediumKind, machine};

use crate::config::{Config, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENTS_MIN};
use crate::error::{OpenError, ResizeError};
use crate::pieces::{Cut, VALUE_BYTES_MAX};
use crate::segment::CLASSES;

const PAGE: u64 = 4096;
/// Largest segment unless a larger one is asked for: one huge page.
const SEGMENT_BYTES_DEFAULT: u64 = 2 << 20;
/// Segments of a quota unless their size is given: eviction forgets whole segments, so that fewer
/// would cost hits, and what is open, spare or freed ahead is this small a part of the quota.
const SEGMENTS_DEFAULT: u64 = 128;
/// Fewest segments of a size that was chosen for another quota: as long as it has so many, a cache
/// whose quota was changed finds its state after a restart.
const SEGMENTS_SAVED_MIN: u64 = 64;
/// Smallest segment that is chosen for values elsewhere, where each costs a request to the medium.
const SEGMENT_BYTES_ELSEWHERE: u64 = 64 << 10;
/// Largest value that is accepted unless a limit is given: 1 MiB less a header, as in memcached,
/// which refuses a value of exactly 1 MiB.
const VALUE_BYTES_DEFAULT: u64 = (1 << 20) - 64;
/// Part of a small quota that a value may take, unless a limit is given.
const VALUE_SHARE_DEFAULT: u64 = 8;
/// Buffers for chunks of large values that a block file keeps take at most one part in this many of
/// the DRAM quota, and are at most so many.
const CHUNKS_SHARE: u64 = 64;
const CHUNK_BUFFERS_MAX: u64 = 64;
/// Part of a quota that a value may take if a limit is given, as in memcached.
const VALUE_SHARE: u64 = 2;
/// Part of a segment that the list of a value's pieces takes at most.
const LIST_SHARE: u64 = 4;
/// Fewest write buffers: one for each of a shard's logs, one for upkeep's, and one that is being
/// written.
const BUFFERS_MIN: u64 = 4;
/// Segments that a quota may always grow to without a restart, and the factor by which it may grow
/// if that is more: each takes some bytes of tables even before it is used.
const SEGMENTS_GROWTH: u64 = 1 << 10;
/// Open segments, and on a block file all write buffers, take at most one part in this many.
const OPEN_SHARE: u64 = 8;
/// Segments that stay open for values that are still to arrive are at most one part in this many,
/// and at most a quarter of the write buffers, of which there must be at least as many.
const RESERVED_SHARE: u64 = 16;
/// Largest arena: a location counts four-byte units in 39 bits; the 40th is kept for keys outside
/// of DRAM.
const ARENA_BYTES_MAX: u64 = 1 << 41;
/// Factor by which a medium's quota may grow without a restart.
const MEDIUM_GROWTH_MAX: u64 = 16;

/// Address space that every table may take, whatever the quota.
const TABLE_BYTES_LEAST: u64 = 64 << 20;

/// Sizes that a cache is built with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) segment_bytes: u64,
    pub(crate) stride_shift: u32,
    pub(crate) segments_max: u32,
    /// Segments that the quota holds.
    pub(crate) segments: u32,
    pub(crate) arena_bytes: u64,
    pub(crate) arena_huge_pages: bool,
    pub(crate) value_bytes_max: u64,
    /// Largest value that is accepted and lies in its record, or behind the other values of its
    /// segment.
    pub(crate) whole_bytes_max: u64,
    pub(crate) cut: Cut,
    pub(crate) table_bytes_max: u64,
    pub(crate) tags_bytes_max: u64,
    pub(crate) dram_bytes: u64,
    pub(crate) medium_bytes: u64,
    /// Largest quota of the medium that a later resize may set.
    pub(crate) medium_capacity: u64,
    pub(crate) shards: usize,
    /// Number of threads that hold a worker.
    pub(crate) workers: u64,
    /// Open segments of each log in a shard.
    pub(crate) open_slots: usize,
    /// Segments that are left over for evictions to copy items into.
    pub(crate) spare_segments: u64,
    /// Number of write buffers of a block file.
    pub(crate) buffers: u32,
    /// Number of buffers for chunks of large values that are kept.
    pub(crate) chunk_buffers: u32,
    /// Number of places that may be reserved for values that are still to arrive.
    pub(crate) reservations: u64,
    /// DRAM that is used even while nothing is stored.
    pub(crate) fixed_bytes: u64,
}

impl Plan {
    /// Derives the sizes; `saved` is the segment size of the state that a restart directory holds.
    pub(crate) fn make(config: &Config, saved: Option<u64>) -> Result<Plan, OpenError> {
        let machine_bytes = machine::memory_bytes();
        let inline = config.medium.kind() == MediumKind::Dram;
        let too_large = |quota, given, limit, available| OpenError::QuotaTooLarge {
            quota,
            tenant: config.name.clone(),
            given,
            limit,
            available: ByteSize(available),
        };
        if config.dram_bytes.0 > machine_bytes {
            return Err(too_large("DRAM quota", config.dram_bytes, "the machine", machine_bytes));
        }
        let (quota_name, quota) = if inline {
            ("DRAM quota", config.dram_bytes)
        } else {
            ("medium quota", config.medium_bytes)
        };
        if quota.0 > ARENA_BYTES_MAX {
            let limit = "one tenant's address space";
            return Err(too_large(quota_name, quota, limit, ARENA_BYTES_MAX));
        }
        let segment_bytes = segment_bytes(config, quota.0, saved)?;
        check_quota(config, quota_name, quota, segment_bytes)?;
        let value_bytes_max = value_bytes_max(config, (quota_name, quota.0), segment_bytes)?;
        let buffers = buffers(config, segment_bytes)?;
        let open_limit = match buffers {
            Some(buffers) => u64::from(buffers / 2).min(quota.0 / OPEN_SHARE / segment_bytes),
            None => quota.0 / OPEN_SHARE / segment_bytes,
        };
        // Each shard has open segments of both logs, and upkeep has one of the main log.
        let open_limit = open_limit.max(3) as usize;
        let shards = config.workers.clamp(1, (open_limit - 1) / 2);
        let stride = segment_bytes.next_power_of_two();
        let segments = quota.0 / segment_bytes;
        let most = (segments * MEDIUM_GROWTH_MAX).max(SEGMENTS_GROWTH);
        let segments_max = if inline {
            (machine_bytes / segment_bytes).min(most).max(segments)
        } else {
            segments * MEDIUM_GROWTH_MAX
        };
        let segments_max = segments_max.min(ARENA_BYTES_MAX / stride);
        let tables = table_bytes(config, inline, segments_max * segment_bytes);
        Ok(Plan {
            segment_bytes,
            stride_shift: stride.ilog2(),
            segments_max: segments_max as u32,
            segments: segments as u32,
            // A record's head may be read past its segment's end before the reader finds that it is
            // torn.
            arena_bytes: segments_max * stride + PAGE,
            arena_huge_pages: inline && config.huge_pages,
            value_bytes_max,
            whole_bytes_max: value_bytes_max.min(whole_bytes_max(config, segment_bytes)),
            cut: cut(config, segment_bytes),
            table_bytes_max: (machine_bytes / 2).min(tables.max(TABLE_BYTES_LEAST)),
            tags_bytes_max: (machine_bytes / 8).min((tables / 4).max(TABLE_BYTES_LEAST)),
            dram_bytes: config.dram_bytes.0,
            medium_bytes: config.medium_bytes.0,
            medium_capacity: segments_max * segment_bytes,
            shards,
            workers: config.workers.max(1) as u64,
            open_slots: (open_limit / (2 * shards + 1)).clamp(1, CLASSES),
            spare_segments: (segments / SEGMENTS_DEFAULT).clamp(1, shards as u64),
            buffers: buffers.unwrap_or(0),
            chunk_buffers: chunk_buffers(config, segment_bytes),
            reservations: reservations(segments, buffers),
            fixed_bytes: u64::from(buffers.unwrap_or(0)) * segment_bytes,
        })
    }

    /// Checks that the quotas can be changed to these sizes. The medium's counts only if values lie
    /// elsewhere than in DRAM.
    pub(crate) fn check_resize(
        segment_bytes: u64,
        elsewhere: bool,
        dram: ByteSize,
        medium: ByteSize,
        medium_capacity: u64,
    ) -> Result<(), ResizeError> {
        let least = ByteSize(SEGMENTS_MIN * segment_bytes);
        let check = |quota, given: ByteSize, most: u64| {
            if given < least {
                return Err(ResizeError::TooSmall { quota, given, least });
            }
            if given.0 > most {
                return Err(ResizeError::TooLarge { quota, given, most: ByteSize(most) });
            }
            Ok(())
        };
        if elsewhere {
            check("DRAM quota", dram, machine::memory_bytes())?;
            return check("medium quota", medium, medium_capacity);
        }
        check("DRAM quota", dram, machine::memory_bytes().min(medium_capacity))
    }
}

/// Returns the largest value that does not lie in pieces.
fn whole_bytes_max(config: &Config, segment_bytes: u64) -> u64 {
    cut(config, segment_bytes).whole_max()
}

/// Returns the manner in which large values are cut into pieces.
fn cut(config: &Config, segment_bytes: u64) -> Cut {
    match config.medium.kind() {
        MediumKind::File => Cut::on_file(segment_bytes),
        _ => Cut::into(segment_bytes),
    }
}

/// Returns the largest value that a cache with segments of this size accepts.
fn value_bytes_max(
    config: &Config,
    (quota_name, quota): (&'static str, u64),
    segment_bytes: u64,
) -> Result<u64, OpenError> {
    let too_large = |given, most, because: String| OpenError::ValueTooLarge {
        tenant: config.name.clone(),
        given,
        most: ByteSize(most),
        because,
    };
    let listed = cut(config, segment_bytes).value_bytes_for(segment_bytes / LIST_SHARE);
    let Some(given) = config.value_bytes_max else {
        return Ok(VALUE_BYTES_DEFAULT.min(quota / VALUE_SHARE_DEFAULT).min(listed));
    };
    let (half, segment) = (quota / VALUE_SHARE, ByteSize(segment_bytes));
    let limits = [
        (VALUE_BYTES_MAX.0, "no value may be larger".to_owned()),
        (half, format!("a value may take half of the {quota_name}")),
        (listed, format!("segments have {segment}, and larger ones allow more")),
    ];
    match limits.into_iter().find(|(most, _)| given.0 > *most) {
        Some((most, because)) => Err(too_large(given, most, because)),
        None => Ok(given.0),
    }
}

/// Returns the address space of the tables. It follows the quota: what that may grow to, and so
/// many items.
fn table_bytes(config: &Config, inline: bool, capacity: u64) -> u64 {
    let dram = config.dram_bytes.0.saturating_mul(MEDIUM_GROWTH_MAX);
    if inline { capacity / 2 } else { dram }
}

/// Chooses the bytes of a segment for a quota: a power of two, so that a changed quota seldom
/// changes it.
fn default_segment_bytes(config: &Config, quota: u64) -> u64 {
    let power = |bytes: u64| 1 << bytes.max(1).ilog2();
    let chosen = power(quota / SEGMENTS_DEFAULT).min(SEGMENT_BYTES_DEFAULT);
    match config.medium.kind() {
        MediumKind::Dram => chosen.max(SEGMENT_BYTES_MIN.0),
        MediumKind::File => {
            let buffered = power(config.dram_bytes.0 / OPEN_SHARE / (2 * BUFFERS_MIN));
            chosen.min(buffered).max(SEGMENT_BYTES_ELSEWHERE)
        }
        _ => chosen.max(SEGMENT_BYTES_ELSEWHERE),
    }
}

fn segment_bytes(config: &Config, quota: u64, saved: Option<u64>) -> Result<u64, OpenError> {
    let saved = saved.filter(|saved| {
        saved.is_power_of_two()
            && (SEGMENT_BYTES_MIN.0..=SEGMENT_BYTES_DEFAULT).contains(saved)
            && *saved <= quota / SEGMENTS_SAVED_MIN
    });
    let chosen = match config.segment_bytes {
        Some(given) => given.0,
        None => saved.unwrap_or_else(|| default_segment_bytes(config, quota)),
    };
    if config.segment_bytes.is_some()
        && (!chosen.is_multiple_of(PAGE)
            || !(SEGMENT_BYTES_MIN.0..=SEGMENT_BYTES_MAX.0).contains(&chosen))
    {
        return Err(OpenError::SegmentBytes {
            tenant: config.name.clone(),
            given: ByteSize(chosen),
            least: SEGMENT_BYTES_MIN,
            most: SEGMENT_BYTES_MAX,
        });
    }
    Ok(chosen)
}

fn check_quota(
    config: &Config,
    name: &'static str,
    quota: ByteSize,
    segment_bytes: u64,
) -> Result<(), OpenError> {
    let least = SEGMENTS_MIN * segment_bytes;
    if quota.0 >= least {
        return Ok(());
    }
    Err(OpenError::QuotaTooSmall {
        quota: name,
        tenant: config.name.clone(),
        given: quota,
        segment: ByteSize(segment_bytes),
        least_segments: SEGMENTS_MIN,
        least: ByteSize(least),
    })
}

/// Returns the number of a block file's segments that are kept in DRAM until they are written.
fn buffers(config: &Config, segment_bytes: u64) -> Result<Option<u32>, OpenError> {
    if config.medium.kind() != MediumKind::File {
        return Ok(None);
    }
    let buffers = config.dram_bytes.0 / OPEN_SHARE / segment_bytes;
    if buffers < 2 {
        return Err(OpenError::QuotaTooSmall {
            quota: "DRAM quota",
            tenant: config.name.clone(),
            given: config.dram_bytes,
            segment: ByteSize(segment_bytes),
            least_segments: 2 * OPEN_SHARE,
            least: ByteSize(2 * OPEN_SHARE * segment_bytes),
        });
    }
    // Half of the buffers are open, half are being written; writers cannot use more open ones.
    let useful = 2 * ((2 * config.workers.max(1) + 1) * CLASSES) as u64;
    Ok(Some(buffers.clamp(BUFFERS_MIN, useful) as u32))
}

/// Returns the number of places that may be reserved at once, each perhaps in a segment of its own
/// that stays open for it.
fn reservations(segments: u64, buffers: Option<u32>) -> u64 {
    match buffers {
        Some(buffers) if u64::from(buffers) < RESERVED_SHARE => 0,
        Some(buffers) => (u64::from(buffers) / 4).min(segments / RESERVED_SHARE),
        None => segments / RESERVED_SHARE,
    }
}

/// Returns the number of buffers for chunks of large values that a block file keeps.
fn chunk_buffers(config: &Config, segment_bytes: u64) -> u32 {
    let chunk = cut(config, segment_bytes).chunk_max();
    (config.dram_bytes.0 / CHUNKS_SHARE / chunk).min(CHUNK_BUFFERS_MAX) as u32
}
