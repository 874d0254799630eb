//! How a generation's image is made and used.

use std::sync::Arc;

use entresol_base::mutation_site;
use entresol_index::Flow;
use entresol_media::{Directory, PmemMode};

use super::Generation;
use super::image::{Left, Making, Owner};
use crate::StoreError;
use crate::types::{SegmentNumber, Sequence};
use crate::wal::record::{HEADER_BYTES, Kind};

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

    /// Whether it has writes, if all up to one count.
    pub(crate) fn has_records(&self, published: Sequence) -> bool {
        published >= self.first
    }

    /// How many of its writes, up to one, are in no image.
    pub(crate) fn writes_missing(&self, last: Sequence) -> u64 {
        let entered = match (self.image.get(), self.left.get()) {
            (Some(image), _) => image.entered(),
            (None, Some(left)) => left.watermark.sequence,
            (None, None) => Sequence(self.first.0 - 1),
        };
        last.0.saturating_sub(entered.0)
    }

    /// By how many writes the image that is made is behind one of them, if writers are to care.
    pub(crate) fn image_lag(&self, last: Sequence) -> u64 {
        self.image.get().map_or(0, |image| image.lag(last))
    }

    /// Makes an image, in which nothing is entered yet, of the generation that begins with a
    /// segment.
    ///
    /// # Errors
    /// If there is no room.
    pub(crate) fn make_image(
        &self,
        directory: &Arc<dyn Directory>,
        (store, segment): (u64, SegmentNumber),
        pmem: PmemMode,
    ) -> Result<Making, StoreError> {
        let owner = Owner { store, segment, first: self.first };
        Making::create(directory, owner, self.bytes, pmem)
    }

    /// Takes an image that was made; there is none yet, and only one thread makes any.
    pub(crate) fn set_image(&self, made: Making) {
        let _ = self.image.set(made);
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

    /// The same with all records, so that this survives a crash of the machine as well.
    ///
    /// # Errors
    /// If a record or the image is damaged.
    pub(crate) fn complete_image(&self, last: Sequence) -> Result<(), StoreError> {
        self.keep_image(last, &|| true)?;
        self.image.get().map_or(Ok(()), Making::settle)
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

    /// Checks the records that nobody has read since the crash, whose checksums the opening did
    /// not look at.
    ///
    /// # Errors
    /// If one is damaged.
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
