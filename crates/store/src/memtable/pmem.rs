//! Creation and use of a generation's memtable image.

use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_index::Flow;
use entresol_media::{Directory, PmemMode};

use super::Generation;
use super::image::{NewImage, Owner, RecoveredImage};
use crate::StoreError;
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::{SegmentNumber, Sequence};

/// Records that are entered into an image between two watermarks.
const RECORDS_AT_ONCE: usize = 4096;

impl Generation {
    /// Returns the first segment, after which the image is named.
    pub(crate) fn first_segment(&self) -> Option<SegmentNumber> {
        self.segments.iter().next().map(|segment| segment.number())
    }

    /// Returns true if there is a file with the image.
    pub(crate) fn has_image(&self) -> bool {
        self.image.get().is_some() || self.left.get().is_some()
    }

    /// Returns true if the generation has writes, given the last published one.
    pub(crate) fn has_records(&self, published: Sequence) -> bool {
        published >= self.first
    }

    /// Returns the number of writes up to `last` that are in no image.
    pub(crate) fn writes_missing(&self, last: Sequence) -> u64 {
        let entered = match (self.image.get(), self.left.get()) {
            (Some(image), _) => image.entered(),
            (None, Some(left)) => left.watermark.sequence,
            (None, None) => Sequence(self.first.0 - 1),
        };
        last.0.saturating_sub(entered.0)
    }

    /// Returns the number of writes by which the image lags behind `last`, or 0 if writers need not
    /// wait for it.
    pub(crate) fn image_lag(&self, last: Sequence) -> u64 {
        self.image.get().map_or(0, |image| image.lag(last))
    }

    /// Creates an empty image of the generation, which begins with a segment.
    ///
    /// # Errors
    /// Fails if there is no room.
    pub(crate) fn make_image(
        &self,
        directory: &Arc<dyn Directory>,
        (store, segment): (u64, SegmentNumber),
        pmem: PmemMode,
    ) -> Result<NewImage, StoreError> {
        let owner = Owner { store, segment, first: self.first };
        NewImage::create(directory, owner, self.bytes, pmem)
    }

    /// Sets the image. There is none yet, and only one thread creates any.
    pub(crate) fn set_image(&self, made: NewImage) {
        let _ = self.image.set(made);
    }

    /// Enters all records up to `last`, which is published, into the image if there is one, while
    /// `go_on` returns true.
    ///
    /// # Errors
    /// Fails if a record or the image is damaged.
    pub(crate) fn keep_image(
        &self,
        last: Sequence,
        go_on: &dyn Fn() -> bool,
    ) -> Result<(), StoreError> {
        let Some(image) = self.image.get() else { return Ok(()) };
        while go_on() && image.enter(&self.segments, last, RECORDS_AT_ONCE)? {}
        Ok(())
    }

    /// Enters all records up to `last` into the image, and makes its last watermark durable, so
    /// that it survives a crash of the machine.
    ///
    /// # Errors
    /// Fails if a record or the image is damaged.
    pub(crate) fn complete_image(&self, last: Sequence) -> Result<(), StoreError> {
        self.keep_image(last, &|| true)?;
        self.image.get().map_or(Ok(()), NewImage::settle)
    }

    /// Sets the image that a crash has left. All segments up to that of its watermark are there,
    /// and this one is the last.
    ///
    /// # Errors
    /// Fails if the image is damaged.
    pub(crate) fn take(&self, left: RecoveredImage) -> Result<(), StoreError> {
        let last = self.segments.iter().count().saturating_sub(1) as u64;
        let last = last << 32 | left.watermark.offset;
        for (word, bits) in self.kvs.iter().zip(left.kvs()) {
            word.store(bits, std::sync::atomic::Ordering::Release);
        }
        // Range deletes behind the watermark are entered with their records.
        for place in left.prefixes()?.into_iter().filter(|place| *place <= last) {
            let (segment, offset, header) = self.segments.header(place)?;
            if header.kind != Kind::RangeDelete {
                return Err(segment.damaged(offset, "its memtable image has a range delete here"));
            }
            let mut prefix = Vec::new();
            let begin = offset + HEADER_BYTES as u64;
            segment.read(begin, header.key_bytes as usize, &mut prefix)?;
            self.add_prefix(header.kvs, &prefix, header.sequence);
        }
        let _ = self.left.set(left);
        Ok(())
    }

    /// Returns true if the image that a crash has left leads to segments behind the last one.
    pub(crate) fn is_image_ahead(&self) -> bool {
        let segments = self.segments.iter().count();
        self.left.get().is_some_and(|left| left.segments_reached() > segments)
    }

    /// Verifies the checksums of the records that recovery did not read, because the image leads to
    /// them.
    ///
    /// # Errors
    /// Fails if a record is damaged.
    pub(crate) fn check_unread(&self) -> Result<(), StoreError> {
        let Some(left) = self.left.get() else { return Ok(()) };
        if mutation_site!("records that an image leads to are checked before they are flushed") {
            return Ok(());
        }
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
                    format!("there is no record, or it is damaged: write {} is lost", next.0);
                return Err(segment.damaged(end.offset, what));
            }
        }
        Ok(())
    }
}
