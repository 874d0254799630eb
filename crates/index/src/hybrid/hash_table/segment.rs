//! Segments: a line with their hashes and their successor, then buckets, a line each, of four
//! records.

use std::sync::atomic::Ordering::{Relaxed, Release};

use entresol_media::Region;

use crate::IndexError;

/// Offset of the link: the next segment, a multiple of 64, and in the bits below it the number of
/// hash bits that all keys of this one share.
const LINK: u64 = 0;
const PREFIX: u64 = 8;
const BUCKETS: u64 = 64;
const BUCKET_BYTES: u64 = 64;
const RECORD_BYTES: u64 = 16;
/// Number of buckets that may hold a key; its hash selects the first.
const PROBES: u64 = 4;
/// Largest depth: beyond it the directory would be larger than 128 MiB.
pub(super) const DEPTH_MAX: u32 = 24;

/// A segment and its depth, from the segment's first line or from the directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) to: u64,
    pub(super) depth: u32,
}

impl Link {
    pub(super) fn encode(self) -> u64 {
        self.to | u64::from(self.depth)
    }

    pub(super) fn decode(word: u64) -> Link {
        Link { to: word & !63, depth: (word & 63) as u32 }
    }
}

/// Layout of segments.
#[derive(Debug, Clone, Copy)]
pub(super) struct Segments {
    bytes: u64,
    buckets: u64,
}

/// Result of a search for a key.
#[derive(Debug, Clone, Copy)]
pub(super) enum Found {
    /// Slot of its record, and its value.
    Record { at: u64, value: u64 },
    /// A slot for it; `is_blank` if its value is 0.
    Place { at: u64, is_blank: bool },
    /// Neither.
    Full,
}

/// Returns true if two hashes begin with the same `depth` bits.
fn agree(one: u64, other: u64, depth: u32) -> bool {
    (one ^ other).leading_zeros() >= depth
}

impl Segments {
    pub(super) fn new(bytes: u64) -> Result<Segments, String> {
        match bytes {
            128..=16384 if bytes.is_multiple_of(64) => {
                Ok(Segments { bytes, buckets: bytes / BUCKET_BYTES - 1 })
            }
            _ => Err(format!(
                "segments of {bytes} bytes are not supported: use a multiple of 64 from 128 to \
                 16384"
            )),
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the buckets in which a key may be.
    fn buckets(&self, at: u64, hash: u64) -> impl Iterator<Item = u64> {
        let first = ((hash & u64::from(u32::MAX)) * self.buckets) >> 32;
        let buckets = self.buckets;
        (0..PROBES.min(buckets))
            .map(move |probe| at + BUCKETS + BUCKET_BYTES * ((first + probe) % buckets))
    }

    /// Looks for a key in its segment, or for a slot for it. Records whose hashes begin otherwise
    /// moved away when the segment was split: their slots are free.
    pub(super) fn find<R: Region>(
        &self,
        region: &R,
        segment: Link,
        key: u64,
        hashed: impl Fn(u64) -> u64,
    ) -> Found {
        let hash = hashed(key);
        let mut place = Found::Full;
        for bucket in self.buckets(segment.to, hash) {
            for (at, record) in records(region, bucket) {
                if record.1 != 0 && record.0 == key {
                    return Found::Record { at, value: record.1 };
                }
                let is_blank = record.1 == 0;
                if matches!(place, Found::Full)
                    && (is_blank || !agree(hash, hashed(record.0), segment.depth))
                {
                    place = Found::Place { at, is_blank };
                }
            }
        }
        place
    }

    /// Returns the value of a key in its segment.
    pub(super) fn get<R: Region>(&self, region: &R, at: u64, key: u64, hash: u64) -> Option<u64> {
        let mut buckets = self.buckets(at, hash);
        buckets.find_map(|bucket| {
            let mut all = records(region, bucket);
            all.find(|(_, it)| it.1 != 0 && it.0 == key).map(|(_, it)| it.1)
        })
    }

    /// Returns all records of a segment whose hashes begin as this one does.
    pub(super) fn records<R: Region>(
        &self,
        region: &R,
        segment: Link,
        prefix: u64,
        hashed: impl Fn(u64) -> u64,
        out: &mut Vec<(u64, u64)>,
    ) {
        for bucket in 0..self.buckets {
            let all = records(region, segment.to + BUCKETS + BUCKET_BYTES * bucket);
            let all = all.map(|(_, record)| record);
            let is_here = |it: &(u64, u64)| it.1 != 0 && agree(prefix, hashed(it.0), segment.depth);
            out.extend(all.filter(is_here));
        }
    }

    /// Puts a record into a free slot, durably: it counts as soon as its value is there. The slot's
    /// old value must be cleared first, lest it be taken for the key's.
    pub(super) fn put<R: Region>(region: &R, at: u64, is_blank: bool, key: u64, value: u64) {
        if !is_blank {
            region.store_u64(at + 8, 0, Release);
        }
        region.store_u64(at, key, Release);
        Segments::set_value(region, at, value);
    }

    /// Gives a record another value, durably; 0 removes it.
    pub(super) fn set_value<R: Region>(region: &R, at: u64, value: u64) {
        region.store_u64(at + 8, value, Release);
        region.persist(at, RECORD_BYTES as usize);
    }

    /// Writes a segment that no link leads to, durably, with those records of `from`, if any, whose
    /// hashes begin as `prefix` does, in their old slots. Past the caches: it is large.
    pub(super) fn write<R: Region>(
        &self,
        region: &R,
        at: u64,
        link: Link,
        prefix: u64,
        from: Option<u64>,
        hashed: impl Fn(u64) -> u64,
    ) {
        let mut words = vec![0; self.bytes as usize / 8];
        words[LINK as usize / 8] = link.encode();
        words[PREFIX as usize / 8] = prefix;
        for bucket in 0..from.map_or(0, |_| self.buckets) {
            let offset = BUCKETS + BUCKET_BYTES * bucket;
            let old = region.load_line(from.unwrap_or(at) + offset);
            let new = &mut words[offset as usize / 8..][..8];
            for (old, new) in old.chunks_exact(2).zip(new.chunks_exact_mut(2)) {
                if old[1] != 0 && agree(prefix, hashed(old[0]), link.depth) {
                    new.copy_from_slice(old);
                }
            }
        }
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        region.write_streaming(at, &bytes);
        region.drain();
    }

    /// Changes the next segment and the depth, in one store, durably.
    pub(super) fn set_link<R: Region>(region: &R, at: u64, link: Link) {
        region.store_u64(at + LINK, link.encode(), Release);
        region.persist(at + LINK, 8);
    }

    /// Returns the next segment and the depth of a segment that must have the hashes from `prefix`
    /// on.
    pub(super) fn link<R: Region>(region: &R, at: u64, prefix: u64) -> Result<Link, IndexError> {
        let link = Link::decode(region.load_u64(at + LINK, Relaxed));
        let found = region.load_u64(at + PREFIX, Relaxed);
        if link.depth > DEPTH_MAX || found != prefix || prefix << link.depth != 0 {
            let what = format!("this is no segment for hashes from {prefix:#x} on");
            return Err(IndexError::damaged(at, what));
        }
        Ok(link)
    }
}

/// Returns the slots of a bucket, with their keys and values.
fn records<R: Region>(region: &R, bucket: u64) -> impl Iterator<Item = (u64, (u64, u64))> {
    let words = region.load_line(bucket);
    (0..4).map(move |it| (bucket + RECORD_BYTES * it as u64, (words[2 * it], words[2 * it + 1])))
}
