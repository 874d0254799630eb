//! Check of a memtable image against the log: each lookup that recovery would answer from the image
//! gives the newest record up to its watermark.

use std::collections::HashMap;

use super::image::{LINK, Owner, PLACE, RecoveredImage, TAG_SHIFT, tag};
use super::{Generation, Position};
use crate::StoreError;
use crate::segment::record::{HEADER_BYTES, Kind};
use crate::types::KvsId;

/// Number that stands for a key of a `Kvs`: its hash, and its first bytes with its length.
type KeyNumber = (u64, u64);

impl RecoveredImage {
    /// Compares the image with the log's records up to its watermark, which the segments of the
    /// generation must reach.
    ///
    /// # Errors
    /// Fails if a record cannot be read, or if the image leads elsewhere than the log says.
    pub(crate) fn compare(&self, owner: Owner, log: &Generation) -> Result<(), StoreError> {
        let newest = self.newest(owner, log)?;
        let mut at = Position::first(owner.first);
        let mut key = Vec::new();
        while let Some((word, segment, header)) =
            log.segments().next(&mut at, self.watermark.sequence)?
        {
            if header.kind == Kind::RangeDelete {
                continue;
            }
            key.clear();
            let begin = (word & u64::from(u32::MAX)) + HEADER_BYTES as u64;
            segment.read(begin, header.key_bytes as usize, &mut key)?;
            if newest.get(&self.number(header.kvs, &key)) != Some(&word) {
                continue;
            }
            let found = self.find((header.kvs, &key), log.segments())?;
            // A newer record may be entered behind the watermark.
            if found.is_none_or(|found| found < word) {
                return Err(self.damaged("an entry is lost, or leads to an older record"));
            }
        }
        self.compare_slots(log)
    }

    fn number(&self, kvs: KvsId, key: &[u8]) -> KeyNumber {
        let mut first = [0; 8];
        first.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
        (self.lines.hash(kvs, key), u64::from_le_bytes(first) ^ (key.len() as u64) << 32)
    }

    /// Returns the place of the newest record of each key up to the watermark, and checks the range
    /// deletes and the bits of the `Kvs`.
    fn newest(
        &self,
        owner: Owner,
        log: &Generation,
    ) -> Result<HashMap<KeyNumber, u64>, StoreError> {
        let (mut newest, mut prefixes, mut key) = (HashMap::new(), Vec::new(), Vec::new());
        let (mut at, bits) = (Position::first(owner.first), self.kvs());
        let last = self.watermark.sequence;
        while let Some((word, segment, header)) = log.segments().next(&mut at, last)? {
            let bit =
                bits.get(header.kvs.0 as usize / 64).map_or(0, |it| it >> (header.kvs.0 % 64));
            if bit & 1 == 0 {
                return Err(self.damaged("it lacks a Kvs that has records"));
            }
            if header.kind == Kind::RangeDelete {
                prefixes.push(word);
                continue;
            }
            key.clear();
            let begin = (word & u64::from(u32::MAX)) + HEADER_BYTES as u64;
            segment.read(begin, header.key_bytes as usize, &mut key)?;
            newest.insert(self.number(header.kvs, &key), word);
        }
        if at.next <= last {
            return Err(self.damaged("its watermark is behind the end of the log"));
        }
        let last = self.watermark_word(log);
        let mut found = self.prefixes()?;
        found.retain(|place| *place <= last);
        match found == prefixes {
            true => Ok(newest),
            false => Err(self.damaged("its range deletes are not those of the log")),
        }
    }

    fn watermark_word(&self, log: &Generation) -> u64 {
        let of_watermark = self.watermark.segment;
        let place = log.segments().iter().position(|it| it.number() == of_watermark);
        (place.unwrap_or_default() as u64) << 32 | self.watermark.offset
    }

    /// Checks that each slot that a lookup reaches leads to a record that belongs there.
    fn compare_slots(&self, log: &Generation) -> Result<(), StoreError> {
        let mut key = Vec::new();
        for bucket in 1..=self.lines.buckets {
            let mut line = Some(bucket);
            while let Some(number) = line {
                let words = self.lines.get(number);
                let mut slots = words[..LINK].iter().take_while(|slot| **slot != 0);
                slots.try_for_each(|slot| {
                    let place = slot & PLACE;
                    if !log.segments().has(place) {
                        return Err(self.damaged("an entry leads behind the end of the log"));
                    }
                    let (segment, offset, header) = log.segments().header(place)?;
                    key.clear();
                    let begin = offset + HEADER_BYTES as u64;
                    segment.read(begin, header.key_bytes as usize, &mut key)?;
                    let hash = self.lines.hash(header.kvs, &key);
                    let is_its = self.lines.bucket(hash) == bucket
                        && tag(hash) == slot >> TAG_SHIFT
                        && header.kind != Kind::RangeDelete;
                    match is_its {
                        true => Ok(()),
                        false => Err(self.damaged("an entry leads to the record of another key")),
                    }
                })?;
                let is_full = words[..LINK].iter().all(|slot| *slot != 0);
                line = if is_full { self.lines.next(number, &words)? } else { None };
            }
        }
        Ok(())
    }

    fn damaged(&self, what: &str) -> StoreError {
        let path = self.lines.file.path().to_owned();
        StoreError::Damaged { path, offset: 0, what: what.to_owned() }
    }
}
