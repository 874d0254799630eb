//! A read-only scan over a log that may be damaged, which reports its contents. Nothing is changed
//! or kept.

use entresol_index::Flow;

use super::behind::{LogEnd, LostWrites, lost};
use super::chain::Chain;
use crate::StoreError;
use crate::manifest::Manifest;
use crate::memtable::image::RecoveredImage;
use crate::names;
use crate::segment::groups::{PAGE_BYTES, Window};
use crate::segment::record::{HEADER_BYTES, Kind, Record};
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{RecordPlace, SegmentNumber, Sequence};
use crate::volumes::Volumes;

/// Result of a scan.
#[derive(Debug, Default)]
pub(crate) struct LogScan {
    /// The last published write.
    pub(crate) last: Sequence,
    /// Number of published writes.
    pub(crate) records: u64,
    /// Number of writes behind damage, which were published once.
    pub(crate) behind: u64,
    /// Number of segments that were scanned, and their bytes.
    pub(crate) files: u64,
    pub(crate) bytes: u64,
    /// True if the log ends before a write that was durable, and nothing else is wrong with it.
    pub(crate) is_short: bool,
    /// True if the log is known to end where it was found to, even though volumes are missing.
    pub(crate) is_over: bool,
    /// Damage: the file, the offset and a description.
    pub(crate) damage: Option<(String, u64, String)>,
    /// Files behind the end with names of segments that are not segments: the file, the offset and
    /// a description.
    pub(crate) strangers: Vec<(String, u64, String)>,
}

type Visit<'a> = dyn FnMut(&Record<'_>) -> Result<(), StoreError> + 'a;

/// Passes the records of a log that are not flushed to `visit`, in their order. If the log ends
/// before a write that was durable, it goes on with whatever records can still be found behind the
/// end.
///
/// # Errors
/// Fails if the directory cannot be read, or if `visit` fails.
pub(crate) fn scan(
    volumes: &Volumes,
    manifest: &Manifest,
    visit: &mut Visit<'_>,
) -> Result<LogScan, StoreError> {
    let names = volumes.names();
    let numbers = names.iter().filter_map(|name| names::segment_number(name));
    let is_of_log = |it: &SegmentNumber| it.is_of_log() && it.0 >= manifest.log.first_segment;
    let mut numbers: Vec<SegmentNumber> = numbers.filter(is_of_log).collect();
    numbers.sort_unstable();
    let mut scan = Scan { volumes, manifest, visit, found: LogScan::default(), end: None };
    scan.found.last = Sequence(manifest.log.flushed);
    scan.found.files = numbers.len() as u64;
    let mut behind = Vec::new();
    let mut chain = Chain::from(SegmentNumber(manifest.log.first_segment));
    for &number in &numbers {
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
    let next = names::of_segment(chain.next());
    match volumes.refuse_other(&next) {
        Ok(()) => {}
        Err(error) if error.is_of_surroundings() => return Err(error),
        Err(error) => {
            scan.found.damage.get_or_insert((next, error.offset(), error.reason()));
        }
    }
    if scan.found.damage.is_none() {
        scan.look_for_more(&chain, &numbers)?;
    }
    let is_damaged = scan.found.damage.is_some();
    for (number, from) in behind {
        match is_damaged {
            true => scan.search(number, from)?,
            false => scan.look_for_stranger(number)?,
        }
    }
    Ok(scan.found)
}

/// Returns the memtable image with the newest watermark, and the write that this names. Records are
/// durable before they are entered, so the log must reach at least that far.
fn newest_image(volumes: &Volumes, manifest: &Manifest) -> Option<(String, Sequence)> {
    let names = volumes.names();
    let images = names.iter().filter_map(|name| {
        let segment = names::image_number(name).filter(|it| it.0 >= manifest.log.first_segment)?;
        let (image, owner) = RecoveredImage::find_any(&*volumes.directory_of(name), segment, None)?;
        (owner.store == manifest.store).then(|| (name.clone(), image.watermark.sequence))
    });
    images.max_by_key(|(_, sequence)| *sequence)
}

struct Scan<'a, 'v> {
    volumes: &'a Volumes,
    manifest: &'a Manifest,
    visit: &'a mut Visit<'v>,
    found: LogScan,
    /// End of the log.
    end: Option<LogEnd>,
}

impl Scan<'_, '_> {
    /// Scans a segment. Returns the offset at which the log ends, if it ends there.
    fn segment(&mut self, number: SegmentNumber) -> Result<Option<u64>, StoreError> {
        let name = names::of_segment(number);
        // A file that is only read may be mapped as an ordinary one, whatever medium it lies on.
        let (store, directory) = (self.manifest.store, self.volumes.directory_of(&name));
        let segment = match Segment::open_mapped(&*directory, store, number, None, true) {
            Ok(Some(segment)) => segment,
            Ok(None) => {
                self.end = Some(LogEnd::without_header(number));
                return Ok(Some(FIRST_RECORD));
            }
            Err(error) if error.is_of_surroundings() => return Err(error),
            Err(error) => {
                self.found.damage = Some((name, error.offset(), error.reason()));
                self.end = Some(LogEnd::without_header(number));
                return Ok(Some(FIRST_RECORD));
            }
        };
        self.found.bytes += segment.len();
        let (mut at, mut failed) = (FIRST_RECORD, None);
        let end = segment.scan(&mut |group| match (self.group(group), group.last()) {
            (Ok(Flow::On), Some((last, _))) => {
                at = last.offset + u64::from(last.bytes);
                Ok(Flow::On)
            }
            (Err(error), _) => {
                failed = Some(error);
                Ok(Flow::Stop)
            }
            _ => Ok(Flow::Stop),
        });
        if let Some(error) = failed {
            return Err(error);
        }
        let end = match end {
            Ok(end) if end.is_sealed => return Ok(None),
            Ok(end) => end,
            Err(error) if error.is_of_surroundings() => return Err(error),
            Err(error) => {
                self.found.damage = Some((name, error.offset(), error.reason()));
                self.end = Some(LogEnd::of_records(number, at));
                return Ok(Some(at));
            }
        };
        if let Some(error) = segment.cut_short(end) {
            self.found.damage = Some((name, error.offset(), error.reason()));
        }
        self.end = Some(LogEnd::of_records(number, end.offset));
        Ok(Some(end.offset))
    }

    /// Looks for proof in the manifest, and in segments behind the end, that the log lacks durable
    /// writes.
    fn look_for_more(
        &mut self,
        chain: &Chain,
        numbers: &[SegmentNumber],
    ) -> Result<(), StoreError> {
        let Scan { volumes, manifest, found, end, .. } = self;
        let of = (*volumes, manifest.store);
        match end.map(|end| lost(of, found.last, (chain, end, None), numbers)) {
            Some(Ok(Some(LostWrites { file, offset, what, .. }))) => {
                (found.is_short, found.damage) = (true, Some((file, offset, what)));
                return Ok(());
            }
            Some(Err(error)) if error.is_of_surroundings() => return Err(error),
            Some(Err(error)) => {
                let file = error.file().unwrap_or_default();
                found.damage = Some((file, error.offset(), error.reason()));
                return Ok(());
            }
            _ => {}
        }
        let last = found.last.0;
        let image = newest_image(volumes, manifest).filter(|(_, has)| has.0 > last);
        let least = match &image {
            None if last >= manifest.log.durable => None,
            None => Some(format!("write {} was durable", manifest.log.durable)),
            Some((name, has)) => Some(format!("{name} has write {}", has.0)),
        };
        if let Some(least) = least {
            let first = LogEnd {
                segment: SegmentNumber(manifest.log.first_segment),
                offset: 0,
                why: "it is missing",
            };
            let LogEnd { segment, offset, why } = end.unwrap_or(first);
            let what = format!("{why}: the log ends with write {last}, but {least}");
            let file = names::of_segment(segment);
            (found.is_short, found.damage) = (true, Some((file, offset, what)));
        }
        Ok(())
    }

    /// Reports a file at the end or behind it that is not a segment.
    fn look_for_stranger(&mut self, number: SegmentNumber) -> Result<(), StoreError> {
        let name = names::of_segment(number);
        let directory = self.volumes.directory_of(&name);
        match Segment::is_ours(&*directory, self.manifest.store, number) {
            Ok(_) => {}
            Err(error) if error.is_of_surroundings() => return Err(error),
            Err(error) => self.found.strangers.push((name, error.offset(), error.reason())),
        }
        Ok(())
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

    /// Passes all records to `visit` that can be found behind an offset, wherever they begin.
    fn search(&mut self, number: SegmentNumber, from: u64) -> Result<(), StoreError> {
        let directory = self.volumes.directory_of(&names::of_segment(number));
        let segment = match Segment::open_unchecked(&*directory, self.manifest.store, number) {
            Ok(segment) => segment,
            Err(error) if error.is_of_surroundings() => return Err(error),
            Err(_) => return Ok(()),
        };
        let (mut at, mut window) = (from, Window::default());
        while at + HEADER_BYTES as u64 <= segment.len() {
            let found = match window.record(&segment, at) {
                Ok(found) => found,
                Err(error) if error.is_of_surroundings() => return Err(error),
                Err(_) => {
                    at = (at + 1).next_multiple_of(PAGE_BYTES);
                    continue;
                }
            };
            let is_new = |record: &Record<'_>| {
                record.header.kind != Kind::Seal && record.header.sequence > self.found.last
            };
            let Some(record) = found.filter(is_new) else {
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
}
