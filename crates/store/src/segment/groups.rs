//! A scan over the records of a segment, one whole group at a time.

use entresol_base::mutation_site;
use entresol_index::Flow;

use super::record::{HEADER_BYTES, Header, Kind, Record};
use super::{FIRST_RECORD, Segment};
use crate::StoreError;
use crate::types::RecordPlace;

/// Callback that gets a group of records, and stops the scan by returning `Flow::Stop`.
pub(crate) type Visit<'a> =
    dyn FnMut(&[(RecordPlace, Record<'_>)]) -> Result<Flow, StoreError> + 'a;

/// End of the records of a segment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    /// Offset behind the last record of a whole group.
    pub(crate) offset: u64,
    /// True if a seal follows there.
    pub(crate) is_sealed: bool,
}

/// Bytes that are read at once, unless a group is longer. They are few enough to stay in the
/// processor's cache until they are parsed.
const WINDOW_BYTES: u64 = 64 << 10;

/// Smallest unit that a disk loses.
pub(crate) const PAGE_BYTES: u64 = 4096;

/// A part of a segment that was read by system calls.
#[derive(Debug, Default)]
pub(crate) struct Window {
    begin: u64,
    bytes: Vec<u8>,
}

impl Window {
    /// Returns a range of the segment if all of it was read.
    fn get(&self, offset: u64, len: u64) -> Option<&[u8]> {
        let begin = usize::try_from(offset.checked_sub(self.begin)?).ok()?;
        self.bytes.get(begin..begin.checked_add(usize::try_from(len).ok()?)?)
    }

    /// Returns the header at an offset, if its bytes form one. Its checksum is not verified yet.
    fn header(&self, segment: &Segment, offset: u64) -> Result<Option<Header>, StoreError> {
        let mut bytes = Vec::new();
        let found = match self.get(offset, HEADER_BYTES as u64) {
            Some(found) => found,
            // Of a long record, only the header is read to learn its length.
            None => {
                segment.read_by_call(offset, HEADER_BYTES, &mut bytes)?;
                &bytes
            }
        };
        Ok(found.first_chunk().and_then(Header::decode))
    }

    /// Returns a range of a segment, and reads it first with some of the bytes behind it.
    ///
    /// # Errors
    /// Fails if the disk fails, or if the segment is shorter.
    pub(crate) fn read(
        &mut self,
        segment: &Segment,
        offset: u64,
        len: u64,
    ) -> Result<&[u8], StoreError> {
        if self.get(offset, len).is_none() {
            let room = segment.len().saturating_sub(offset);
            let page = PAGE_BYTES - offset % PAGE_BYTES;
            let more = |bytes: u64| len.max(bytes.min(room)) as usize;
            self.begin = offset;
            self.bytes.clear();
            segment
                .read_by_call(offset, more(WINDOW_BYTES), &mut self.bytes)
                .or_else(|_| segment.read_by_call(offset, more(page), &mut self.bytes))
                .or_else(|_| segment.read_by_call(offset, len as usize, &mut self.bytes))?;
        }
        Ok(self.get(offset, len).unwrap_or_default())
    }

    /// Returns the record at an offset, if there is one that is whole and can be read.
    ///
    /// # Errors
    /// Fails if not even a header can be read.
    pub(crate) fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<Option<Record<'_>>, StoreError> {
        let header = self.read(segment, offset, HEADER_BYTES as u64)?;
        let Some(header) = header.first_chunk().and_then(Header::decode) else { return Ok(None) };
        if header.bytes() > segment.len() - offset {
            return Ok(None);
        }
        let bytes = self.read(segment, offset, header.bytes()).unwrap_or_default();
        Ok(Record::decode(segment.address(offset), bytes))
    }
}

impl Segment {
    /// Passes the records of the segment to `visit`, one whole group at a time. It ends at a seal,
    /// at bytes that are not a whole group, or when `visit` stops it.
    ///
    /// # Errors
    /// Fails if the disk or `visit` fails.
    pub(crate) fn scan(&self, visit: &mut Visit<'_>) -> Result<End, StoreError> {
        self.scan_from(FIRST_RECORD, visit)
    }

    /// Passes the records from an offset on to `visit`, as [`scan`](Segment::scan) does.
    ///
    /// # Errors
    /// Fails if the disk or `visit` fails.
    pub(crate) fn scan_from(&self, offset: u64, visit: &mut Visit<'_>) -> Result<End, StoreError> {
        let mut end = End { offset, is_sealed: false };
        let (mut window, mut volumes) = (Window::default(), Vec::new());
        while self.group(end.offset, &window, &mut volumes)? {
            let len = volumes.iter().map(|place| u64::from(place.bytes)).sum();
            let bytes = window.read(self, end.offset, len)?;
            let record = |place: RecordPlace| {
                let begin = (place.offset - end.offset) as usize;
                let of_record = bytes.get(begin..begin + place.bytes as usize)?;
                Some((place, Record::decode(self.address(place.offset), of_record)?))
            };
            // Most groups have one record, for which nothing is allocated.
            let (one, several);
            let records = match volumes[..] {
                [place] => {
                    one = record(place);
                    one.as_slice()
                }
                _ => {
                    several = volumes.iter().map_while(|&place| record(place)).collect::<Vec<_>>();
                    several.as_slice()
                }
            };
            if records.len() < volumes.len() {
                break;
            }
            if records.iter().any(|(_, record)| record.header.kind == Kind::Seal) {
                end.is_sealed = true;
                break;
            }
            if visit(records)? == Flow::Stop {
                break;
            }
            end.offset += len;
        }
        Ok(end)
    }

    /// Collects the places of the records of the group at an offset, by their headers, whose
    /// checksums are not verified yet. Returns false if there is no whole group.
    fn group(
        &self,
        offset: u64,
        window: &Window,
        volumes: &mut Vec<RecordPlace>,
    ) -> Result<bool, StoreError> {
        volumes.clear();
        let mut at = offset;
        loop {
            let room = self.len() - at;
            if room < HEADER_BYTES as u64 {
                return Ok(false);
            }
            let Some(header) = window.header(self, at)? else { return Ok(false) };
            let bytes = header.bytes();
            if bytes > room || bytes > u64::from(u32::MAX) {
                return Ok(false);
            }
            volumes.push(RecordPlace { segment: self.number(), offset: at, bytes: bytes as u32 });
            at += bytes;
            let is_last = !header.more_follow;
            if is_last || mutation_site!("a group counts only when all its records are whole") {
                return Ok(true);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use entresol_media::LocalDirectory;

    use super::super::record::Draft;
    use super::*;
    use crate::types::{Expiry, KvsId, SegmentNumber, Sequence};

    const BYTES: u64 = 4 << 20;
    /// Lengths below, at and above the size of a read.
    const VALUES: [usize; 7] = [0, 100, 65_000, 65_536, 9, 200_000, 1000];

    /// Returns the lengths of the values in each group that a scan shows.
    fn shown(segment: &Segment) -> (Vec<Vec<usize>>, End) {
        let mut groups = Vec::new();
        let end = segment.scan(&mut |group| {
            for (place, record) in group {
                let mut scratch = Vec::new();
                let read = segment.record(*place, &mut scratch).expect("whole");
                assert_eq!(&read, record, "it lies elsewhere");
            }
            groups.push(group.iter().map(|(_, record)| record.value.len()).collect());
            Ok(Flow::On)
        });
        (groups, end.expect("readable"))
    }

    #[test]
    fn groups_of_any_length_are_shown_up_to_the_first_that_is_not_whole() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = LocalDirectory::open(scratch.path()).expect("a directory");
        let segment = Segment::create(&directory, 7, SegmentNumber(3), BYTES, None).expect("room");
        let (mut at, mut number, mut ends, mut groups) = (FIRST_RECORD, 0, vec![], vec![]);
        for records in [1, 1, 3, 1, 2, 7, 1, 1, 3] {
            let mut bytes = Vec::new();
            let values = (0..records).map(|record| VALUES[(number + record) % VALUES.len()]);
            let values: Vec<usize> = values.collect();
            for (record, len) in values.iter().enumerate() {
                let value = vec![number as u8; *len];
                let draft = Draft::put(KvsId(1), b"key", &value, Expiry::NEVER);
                let address = segment.address(at + bytes.len() as u64);
                let sequence = Sequence(1 + number as u64);
                draft.encode(address, sequence, record + 1 < records, &mut bytes);
                number += 1;
            }
            segment.write(at, &bytes).expect("mapped");
            at += bytes.len() as u64;
            ends.push(at);
            groups.push(values);
        }
        assert_eq!(shown(&segment), (groups.clone(), End { offset: at, is_sealed: false }));
        segment.seal(at, Sequence(1 + number as u64)).expect("room");
        assert_eq!(shown(&segment), (groups.clone(), End { offset: at, is_sealed: true }));
        // Damages the last byte of a group, whose earlier records stay whole.
        for (whole, end) in ends.iter().enumerate().rev() {
            let mut byte = Vec::new();
            segment.read(end - 1, 1, &mut byte).expect("inside");
            segment.write(end - 1, &[byte[0] ^ 1]).expect("mapped");
            let offset = if whole == 0 { FIRST_RECORD } else { ends[whole - 1] };
            let expected = (groups[..whole].to_vec(), End { offset, is_sealed: false });
            assert_eq!(shown(&segment), expected, "group {whole}");
        }
    }
}
