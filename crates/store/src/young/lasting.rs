//! How a generation's image is made and used.

use std::sync::Arc;

use entresol_base::mutants::left_out;
use entresol_index::Flow;
use entresol_media::{Directory, PmemMode};

use super::Generation;
use super::image::{Left, Making, Owner};
use crate::StoreError;
use crate::entry::{SegmentNumber, Sequence};
use crate::log::record::{HEADER_BYTES, Kind};

/// So many records are entered into an image before it says so.
const RECORDS_AT_ONCE: usize = 4096;

impl Generation {
    /// Its first segment, by which its image is called.
    pub(crate) fn first_segment(&self) -> Option<SegmentNumber> {
        self.segments.iter().next().map(|segment| segment.number())
    }

    /// Whether there is a file with its image.
    pub(crate) fn has_image(&self) -> bool {
        self.image.get().is_some() || self.left.get().is_some()
    }

    /// Begins an image; there is none yet.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn begin_image(
        &self,
        directory: &Arc<dyn Directory>,
        store: u64,
        pmem: PmemMode,
    ) -> Result<(), StoreError> {
        let Some(segment) = self.first_segment() else { return Ok(()) };
        let owner = Owner { store, segment, first: self.first };
        let made = Making::create(directory, owner, self.bytes, pmem)?;
        // Only one thread makes images.
        let _ = self.image.set(made);
        Ok(())
    }

    /// Enters all records up to one, which counts, into the image, if one is made and `go_on`.
    ///
    /// # Errors
    /// If a record or the image is damaged.
    pub(crate) fn keep_image(
        &self,
        last: Sequence,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let Some(image) = self.image.get() else { return Ok(()) };
        while go_on() && image.enter(&self.segments, last, RECORDS_AT_ONCE)? {}
        Ok(())
    }

    /// Takes an image that a crash has left; all segments up to its watermark's are there, which
    /// is the last one.
    ///
    /// # Errors
    /// If it is damaged.
    pub(crate) fn take(&self, left: Left) -> Result<(), StoreError> {
        let last = self.segments.iter().count().saturating_sub(1) as u64;
        let last = last << 32 | left.watermark.offset;
        for (word, bits) in self.kvs.iter().zip(left.kvs()) {
            word.store(bits, std::sync::atomic::Ordering::Release);
        }
        // Those behind the watermark come with their records.
        for place in left.prefixes()?.into_iter().filter(|place| *place <= last) {
            let (segment, offset, header) = self.segments.header(place)?;
            if header.kind != Kind::PrefixGone {
                return Err(segment.damaged(offset, "its image says that a prefix goes here"));
            }
            let mut prefix = Vec::new();
            let begin = offset + HEADER_BYTES as u64;
            segment.read(begin, header.key_bytes as usize, &mut prefix)?;
            self.prefixes_of(header.kvs).add(&prefix, header.sequence);
        }
        let _ = self.left.set(left);
        Ok(())
    }

    /// Checks the records that nobody has read since the crash, whose checksums the opening did
    /// not look at.
    ///
    /// # Errors
    /// If one is damaged.
    pub(crate) fn check_unread(&self) -> Result<(), StoreError> {
        let Some(left) = self.left.get().filter(|_| !left_out()) else { return Ok(()) };
        let mut next = self.first;
        for segment in self.segments.iter() {
            let end = segment.scan(&mut |group| {
                for (_, record) in group {
                    if record.header.sequence != next {
                        return Ok(Flow::Stop);
                    }
                    next = Sequence(next.0 + 1);
                }
                Ok(Flow::On)
            })?;
            if next > left.watermark.sequence {
                return Ok(());
            }
            if !end.is_sealed {
                let what =
                    format!("there is no record, or a damaged one: write {} is lost", next.0);
                return Err(segment.damaged(end.offset, what));
            }
        }
        Ok(())
    }
}
