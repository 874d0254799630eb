//! Going through a log to say what is in it, where it may be damaged; nothing is changed or held.

use entresol_index::Flow;

use super::chain::Chain;
use super::record::{HEADER_BYTES, Header, Kind, Record};
use super::segment::{self, FIRST_RECORD, Segment};
use crate::StoreError;
use crate::entry::{RecordPlace, SegmentNumber, Sequence};
use crate::manifest::Manifest;
use crate::places::Places;

/// What was found of a log.
#[derive(Debug, Default)]
pub(crate) struct LogScan {
    /// The last write that counts.
    pub(crate) last: Sequence,
    /// Writes that count.
    pub(crate) records: u64,
    /// Writes behind damage, which counted once.
    pub(crate) behind: u64,
    /// Segments that were looked at, and their bytes.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// Whether it ends before a write that was durable, and nothing else is wrong with it.
    pub(crate) is_short: bool,
    /// Whether it is known to end where it was found to, if places are missing.
    pub(crate) is_over: bool,
    /// What is damaged: the file, where, and what.
    pub(crate) damage: Option<(String, u64, String)>,
}

type Visit<'a> = dyn FnMut(&Record<'_>) -> Result<(), StoreError> + 'a;

/// Shows the records of a log that are not frozen, in their order. If the log ends before a write
/// that was durable, it shows behind that whatever records can still be found.
///
/// # Errors
/// If the directory cannot be read, or `visit` fails.
pub(crate) fn scan(
    places: &Places,
    manifest: &Manifest,
    visit: &mut Visit<'_>,
) -> Result<LogScan, StoreError> {
    let names = places.names();
    let numbers = names.iter().filter_map(|name| segment::number_of(name));
    let is_of_log = |it: &SegmentNumber| it.is_of_log() && it.0 >= manifest.log.first_segment;
    let mut numbers: Vec<SegmentNumber> = numbers.filter(is_of_log).collect();
    numbers.sort_unstable();
    let mut scan = Scan { places, manifest, visit, found: LogScan::default(), end: None };
    scan.found.last = Sequence(manifest.log.frozen);
    scan.found.files = numbers.len() as u64;
    let mut behind = Vec::new();
    let mut chain = Chain::from(SegmentNumber(manifest.log.first_segment));
    for number in numbers {
        let last_before = scan.found.last;
        if scan.end.is_some() {
            behind.push((number, FIRST_RECORD));
        } else if let Some(from) = scan.segment(number)? {
            chain.ends_in(number, scan.found.last > last_before);
            behind.push((number, from));
        } else {
            chain.goes_on_behind(number);
        }
    }
    scan.found.is_over = chain.is_over;
    let LogScan { last, damage, is_short, .. } = &mut scan.found;
    if last.0 < manifest.log.durable && damage.is_none() {
        *is_short = true;
        let (file, offset, why) = scan.end.take().unwrap_or_else(|| {
            (segment::file_name(SegmentNumber(manifest.log.first_segment)), 0, "it is missing")
        });
        let (last, durable) = (last.0, manifest.log.durable);
        let what = format!("{why}: the log ends with write {last}, {durable} was durable");
        *damage = Some((file, offset, what));
    }
    if scan.found.damage.is_some() {
        for (number, from) in behind {
            scan.search(number, from)?;
        }
    }
    Ok(scan.found)
}

struct Scan<'a, 'v> {
    places: &'a Places,
    manifest: &'a Manifest,
    visit: &'a mut Visit<'v>,
    found: LogScan,
    /// Where the log ends, and why there.
    end: Option<(String, u64, &'static str)>,
}

impl Scan<'_, '_> {
    /// Goes through a segment; if the log ends in it, answers behind where.
    fn segment(&mut self, number: SegmentNumber) -> Result<Option<u64>, StoreError> {
        let name = segment::file_name(number);
        // What is only read may be mapped as an ordinary file, whatever it lies on.
        let (store, directory) = (self.manifest.store, self.places.directory_of(&name));
        let segment = match Segment::open_mapped(&*directory, store, number, None, true) {
            Ok(Some(segment)) => segment,
            Ok(None) => {
                self.end = Some((name, 8, "the checksum of the header is wrong"));
                return Ok(Some(FIRST_RECORD));
            }
            Err(error) if error.is_refused() => return Err(error),
            Err(error) => {
                self.found.damage = Some((name.clone(), error.offset(), error.reason()));
                self.end = Some((name, 0, "it cannot be opened"));
                return Ok(Some(FIRST_RECORD));
            }
        };
        self.found.bytes += segment.len();
        let end = segment.scan(&mut |group| self.group(group))?;
        if end.is_sealed {
            return Ok(None);
        }
        if let Some(error) = segment.cut_short(end) {
            self.found.damage = Some((name.clone(), error.offset(), error.reason()));
        }
        self.end = Some((name, end.offset, "no record begins here, or a damaged one"));
        Ok(Some(end.offset))
    }

    fn group(&mut self, group: &[(RecordPlace, Record<'_>)]) -> Result<Flow, StoreError> {
        let numbers = group.iter().zip(self.found.last.0 + 1..);
        if numbers.into_iter().any(|((_, record), number)| record.header.sequence.0 != number) {
            return Ok(Flow::Stop);
        }
        for (_, record) in group {
            (self.visit)(record)?;
            self.found.last = record.header.sequence;
            self.found.records += 1;
        }
        Ok(Flow::On)
    }

    /// Shows what records there are behind a place, wherever they begin.
    fn search(&mut self, number: SegmentNumber, from: u64) -> Result<(), StoreError> {
        let directory = self.places.directory_of(&segment::file_name(number));
        let Ok(segment) = Segment::open_unchecked(&*directory, self.manifest.store, number) else {
            return Ok(());
        };
        let (mut at, mut bytes) = (from, Vec::new());
        while at + HEADER_BYTES as u64 <= segment.len() {
            let header = segment.header(at).ok().filter(|header| {
                let fits = header.bytes() <= segment.len() - at;
                fits && header.kind != Kind::Seal && header.sequence > self.found.last
            });
            let found = header.and_then(|header| self.record(&segment, at, header, &mut bytes));
            let Some(record) = found else {
                at += 1;
                continue;
            };
            (self.visit)(&record)?;
            self.found.last = record.header.sequence;
            self.found.behind += 1;
            at += record.header.bytes();
        }
        Ok(())
    }

    fn record<'a>(
        &self,
        segment: &Segment,
        offset: u64,
        header: Header,
        bytes: &'a mut Vec<u8>,
    ) -> Option<Record<'a>> {
        let bytes_of_record = u32::try_from(header.bytes()).ok()?;
        let place = RecordPlace { segment: segment.number(), offset, bytes: bytes_of_record };
        segment.record(place, bytes).ok()
    }
}
