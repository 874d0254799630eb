//! Derives the sizes of segments, shards and the arena from a configuration, and refuses those that
//! cannot work.

use entresol_base::ByteSize;
use entresol_media::{MediumKind, machine};

use crate::config::{
    Config, SEGMENT_BYTES_MAX, SEGMENT_BYTES_MIN, SEGMENT_OVERHEAD_BYTES, SEGMENTS_MIN,
};
use crate::error::{OpenError, ResizeError};
use crate::segment::CLASSES;

const PAGE: u64 = 4096;
/// Default bytes of a segment, where the quota holds enough of them: one huge page.
const SEGMENT_BYTES_DEFAULT: u64 = 2 << 20;
/// Open segments, and on a block file all write buffers, take at most one part in this many.
const OPEN_SHARE: u64 = 8;
/// Largest arena: a location counts four-byte units in 40 bits.
const ARENA_BYTES_MAX: u64 = 1 << 42;
/// Factor by which a medium's quota may grow without a restart.
const MEDIUM_GROWTH_MAX: u64 = 16;

/// Sizes that a cache is built with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) segment_bytes: u64,
    pub(crate) stride_shift: u32,
    pub(crate) segments_max: u32,
    pub(crate) arena_bytes: u64,
    pub(crate) arena_huge_pages: bool,
    pub(crate) table_bytes_max: u64,
    pub(crate) dram_bytes: u64,
    pub(crate) medium_bytes: u64,
    /// Largest quota of the medium that a later resize may set.
    pub(crate) medium_capacity: u64,
    pub(crate) shards: usize,
    pub(crate) open_slots: usize,
    /// Number of write buffers of a block file.
    pub(crate) buffers: u32,
    /// DRAM that is used even while nothing is stored.
    pub(crate) fixed_bytes: u64,
}

impl Plan {
    pub(crate) fn make(config: &Config) -> Result<Plan, OpenError> {
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
            return Err(too_large(
                quota_name,
                quota,
                "one tenant's address space",
                ARENA_BYTES_MAX,
            ));
        }
        let segment_bytes = segment_bytes(config, quota.0)?;
        check_quota(config, quota_name, quota, segment_bytes)?;
        let buffers = buffers(config, segment_bytes)?;
        let open_limit = match buffers {
            Some(buffers) => u64::from(buffers / 2).min(quota.0 / OPEN_SHARE / segment_bytes),
            None => quota.0 / OPEN_SHARE / segment_bytes,
        };
        let open_limit = open_limit.max(1) as usize;
        let shards = config.workers.clamp(1, open_limit);
        let stride = segment_bytes.next_power_of_two();
        let capacity = if inline { machine_bytes } else { quota.0 * MEDIUM_GROWTH_MAX };
        let segments_max = (capacity / segment_bytes).min(ARENA_BYTES_MAX / stride);
        Ok(Plan {
            segment_bytes,
            stride_shift: stride.ilog2(),
            segments_max: segments_max as u32,
            // A record's head may be read past its segment's end before the reader finds that it is
            // torn.
            arena_bytes: segments_max * stride + PAGE,
            arena_huge_pages: inline && config.huge_pages,
            table_bytes_max: machine_bytes / 2,
            dram_bytes: config.dram_bytes.0,
            medium_bytes: config.medium_bytes.0,
            medium_capacity: segments_max * segment_bytes,
            shards,
            open_slots: (open_limit / shards).clamp(1, CLASSES),
            buffers: buffers.unwrap_or(0),
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
        check("DRAM quota", dram, machine::memory_bytes())?;
        if elsewhere {
            check("medium quota", medium, medium_capacity)?;
        }
        Ok(())
    }
}

fn segment_bytes(config: &Config, quota: u64) -> Result<u64, OpenError> {
    let least = (config.value_bytes_max.0 + SEGMENT_OVERHEAD_BYTES).next_multiple_of(PAGE);
    let chosen = match config.segment_bytes {
        Some(given) => given.0,
        None if quota >= SEGMENTS_MIN * SEGMENT_BYTES_DEFAULT => least.max(SEGMENT_BYTES_DEFAULT),
        None => least.max(SEGMENT_BYTES_MIN.0),
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
    if least > chosen || chosen > SEGMENT_BYTES_MAX.0 {
        let segment = chosen.min(SEGMENT_BYTES_MAX.0);
        return Err(OpenError::ValueTooLarge {
            tenant: config.name.clone(),
            given: config.value_bytes_max,
            segment: ByteSize(segment),
            most: ByteSize(segment - SEGMENT_OVERHEAD_BYTES),
            segment_max: SEGMENT_BYTES_MAX,
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

/// Returns the number of a block file's segments that are kept in DRAM until they are written: at
/// least two, so that one can be filled while another is written.
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
    let useful = 2 * (config.workers.max(1) * CLASSES) as u64;
    Ok(Some(buffers.min(useful) as u32))
}
