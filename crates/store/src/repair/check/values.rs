//! Verification of the values that runs refer to, file by file, each from beginning to end.
//!
//! Runs are in the order of keys and refer to scattered positions. The check therefore keeps as
//! many positions as memory permits, the first ones in the order of files, and reads them in that
//! order. It then goes through the runs again for the next positions. Of the record expected at a
//! position it keeps only a proof of 64 bits.

use crate::StoreError;
use crate::cache::row::NameHasher;
use crate::segment::Segment;
use crate::segment::record::Record;
use crate::types::{KvsId, RecordPlace, SegmentNumber, Sequence};

/// Number of positions kept at once. With room for as many more, they take 64 MiB.
pub(super) const LEADS_MAX: usize = 1 << 20;
/// Bytes of a segment read at once, unless a record is longer.
const READ_BYTES: u64 = 1 << 20;
/// Longest gap between records that is read along with them.
const GAP_BYTES: u64 = 64 << 10;

/// Position that a version refers to, with a proof of the record expected there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Lead {
    segment: SegmentNumber,
    offset: u64,
    bytes: u32,
    proof: u64,
}

/// Maker of proofs.
#[derive(Debug)]
pub(super) struct Proofs(NameHasher);

/// Collector of the first positions behind a given one.
#[derive(Debug)]
pub(super) struct Leads {
    all: Vec<Lead>,
    most: usize,
    behind: Option<Lead>,
    /// Last position to keep, once there are too many.
    up_to: Option<Lead>,
}

/// Part of a segment that was read.
#[derive(Debug, Default)]
struct Window {
    begin: u64,
    bytes: Vec<u8>,
}

impl Proofs {
    pub(super) fn new() -> Proofs {
        Proofs(NameHasher::new())
    }

    fn of(&self, kvs: KvsId, key: &[u8], sequence: Sequence) -> u64 {
        self.0.hash(kvs, key).rotate_left(32) ^ sequence.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }

    /// Returns a position with the proof of the record expected there.
    pub(super) fn lead(
        &self,
        place: RecordPlace,
        (kvs, key, sequence): (KvsId, &[u8], Sequence),
    ) -> Lead {
        let RecordPlace { segment, offset, bytes } = place;
        Lead { segment, offset, bytes, proof: self.of(kvs, key, sequence) }
    }

    fn are_of(&self, lead: &Lead, record: &Record<'_>) -> bool {
        let header = &record.header;
        self.of(header.kvs, record.key, header.sequence) == lead.proof
    }
}

impl Lead {
    pub(super) fn segment(&self) -> SegmentNumber {
        self.segment
    }

    fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes.into())
    }
}

impl Leads {
    /// Creates a collector for positions behind a given one: at least `most` of them, if they
    /// exist.
    pub(super) fn behind(behind: Option<Lead>, most: usize) -> Leads {
        Leads { all: Vec::new(), most, behind, up_to: None }
    }

    /// Keeps a position if it is one of the first.
    pub(super) fn add(&mut self, lead: Lead) {
        let is_done = self.behind.is_some_and(|behind| lead <= behind);
        if is_done || self.up_to.is_some_and(|last| lead > last) {
            return;
        }
        self.all.push(lead);
        if self.all.len() >= 2 * self.most {
            let (_, last, _) = self.all.select_nth_unstable(self.most - 1);
            self.up_to = Some(*last);
            self.all.truncate(self.most);
        }
    }

    /// Returns the kept positions in order, and the last of them if there may be more behind it.
    pub(super) fn finish(mut self) -> (Vec<Lead>, Option<Lead>) {
        self.all.sort_unstable();
        (self.all, self.up_to)
    }
}

impl Window {
    fn get(&self, lead: &Lead) -> Option<&[u8]> {
        let begin = usize::try_from(lead.offset.checked_sub(self.begin)?).ok()?;
        self.bytes.get(begin..begin.checked_add(lead.bytes as usize)?)
    }

    /// Reads the first position, and following ones that are close enough.
    fn read(&mut self, segment: &Segment, leads: &[Lead]) -> Result<(), StoreError> {
        let Some(first) = leads.first() else { return Ok(()) };
        let mut end = first.end();
        for next in leads {
            if next.offset > end.saturating_add(GAP_BYTES)
                || next.end().saturating_sub(first.offset) > READ_BYTES
            {
                break;
            }
            end = end.max(next.end());
        }
        let bytes = end.min(segment.len()).saturating_sub(first.offset);
        self.begin = first.offset;
        self.bytes.clear();
        segment.read(first.offset, bytes as usize, &mut self.bytes)
    }
}

/// Returns the positions at which records lie in their file, in the order of the given ones.
fn lie_at(segment: &Segment, leads: &[Lead]) -> Vec<Lead> {
    let lies = |lead: &Lead| {
        let offset = segment.locate(lead.offset).unwrap_or(u64::MAX - u64::from(lead.bytes));
        Lead { offset, ..*lead }
    };
    leads.iter().map(lies).collect()
}

/// Reads the given positions of a segment, which are in order, and reports to `wrong` each at which
/// the expected record is missing.
pub(super) fn verify(
    segment: &Segment,
    leads: &[Lead],
    proofs: &Proofs,
    wrong: &mut dyn FnMut(&Lead),
) {
    let (mut window, mut alone_until) = (Window::default(), 0);
    let all = lie_at(segment, leads);
    for (number, (lead, lies)) in leads.iter().zip(&all).enumerate() {
        if window.get(lies).is_none() && lies.offset >= alone_until {
            let rest = all.get(number..).unwrap_or_default();
            if window.read(segment, rest).is_err() {
                // After a failed read, the records nearby are read one by one.
                window = Window::default();
                alone_until = lies.offset.saturating_add(READ_BYTES);
            }
        }
        let is_right = match window.get(lies) {
            Some(bytes) => is_it(segment, lead, bytes, proofs),
            None => {
                let mut bytes = Vec::new();
                let read = segment.read(lies.offset, lead.bytes as usize, &mut bytes);
                read.is_ok() && is_it(segment, lead, &bytes, proofs)
            }
        };
        if !is_right {
            wrong(lead);
        }
    }
}

fn is_it(segment: &Segment, lead: &Lead, bytes: &[u8], proofs: &Proofs) -> bool {
    let record = Record::decode(segment.address(lead.offset), bytes);
    record.is_some_and(|record| proofs.are_of(lead, &record))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use entresol_base::rng::Rng;
    use entresol_media::LocalDirectory;

    use super::*;
    use crate::names;
    use crate::segment::FIRST_RECORD;
    use crate::segment::record::Draft;
    use crate::types::Expiry;

    /// Creates a segment with records of given lengths. Also returns their positions.
    fn segment_of(directory: &LocalDirectory, lengths: &[usize]) -> (Segment, Vec<RecordPlace>) {
        let number = SegmentNumber(3);
        let bytes = FIRST_RECORD + lengths.iter().map(|len| *len as u64 + 64).sum::<u64>();
        let written = Segment::create(directory, 7, number, bytes, None).expect("room");
        let (mut at, mut volumes) = (FIRST_RECORD, Vec::new());
        for (number_of_record, len) in (0..).zip(lengths) {
            let (value, mut bytes) = (vec![number_of_record as u8; *len], Vec::new());
            let draft = Draft::put(KvsId(1), b"key", &value, Expiry::NEVER);
            draft.encode(written.address(at), Sequence(number_of_record), false, &mut bytes);
            written.write(at, &bytes).expect("mapped");
            volumes.push(RecordPlace { segment: number, offset: at, bytes: bytes.len() as u32 });
            at += bytes.len() as u64;
        }
        written.persist(0, bytes).expect("durable");
        drop(written);
        (Segment::open_blocks(directory, 7, number).expect("is there"), volumes)
    }

    /// Values of all lengths follow each other. The check reads the file once, in large parts, and
    /// skips records that no version refers to. It reports wrong records, and nothing else.
    #[test]
    fn a_file_is_read_once_and_each_wrong_record_is_told() {
        let scratch = tempfile::tempdir().expect("a directory");
        let directory = LocalDirectory::open(scratch.path()).expect("a directory");
        let mut lengths = vec![1000; 4000];
        lengths.extend([3_000_000, 0, 70_000, 1_200_000, 5, 9]);
        let (segment, volumes) = segment_of(&directory, &lengths);
        let proofs = Proofs::new();
        let lead = |number: u64, place: &RecordPlace| {
            proofs.lead(*place, (KvsId(1), b"key", Sequence(number)))
        };
        let leads: Vec<Lead> = (0..).zip(&volumes).map(|(number, it)| lead(number, it)).collect();
        let verified = |leads: &[Lead]| {
            let (mut wrong, before) = (Vec::new(), segment.bytes_read());
            verify(&segment, leads, &proofs, &mut |lead| wrong.push(*lead));
            (wrong, segment.bytes_read() - before)
        };
        let (wrong, read) = verified(&leads);
        assert_eq!(wrong, []);
        assert!(read < segment.len() + (64 << 10), "{read} of {}", segment.len());
        let sparse: Vec<Lead> = leads[..4000].iter().copied().step_by(1000).collect();
        assert!(verified(&sparse).1 < 4 * (1000 + 3 * 4096), "what nobody leads to is read");
        // Another sequence number, another key, and a record beyond the end.
        let mut others = leads.clone();
        others[5] = lead(6, &volumes[5]);
        others[7] = proofs.lead(volumes[7], (KvsId(1), b"kez", Sequence(7)));
        others[4001] = proofs.lead(volumes[4001], (KvsId(2), b"key", Sequence(4001)));
        others[4005].bytes += 1000;
        let expected = [others[5], others[7], others[4001], others[4005]];
        assert_eq!(verified(&others).0, expected);
        let mut byte = Vec::new();
        for number in [0, 9, 3999, 4000, 4002, 4005] {
            let (place, expected) = (volumes[number], leads[number]);
            let middle = place.offset + u64::from(place.bytes) / 2;
            byte.clear();
            segment.read(middle, 1, &mut byte).expect("inside");
            let path = scratch.path().join(names::of_segment(SegmentNumber(3)));
            #[expect(clippy::disallowed_methods, reason = "a disk flips the bit")]
            let file = std::fs::File::options().write(true).open(path).expect("there");
            file.write_at(&[byte[0] ^ 4], middle).expect("is written");
            assert_eq!(verified(&leads).0, [expected], "record {number}");
            file.write_at(&byte, middle).expect("is written");
        }
        assert_eq!(verified(&leads).0, []);
    }

    /// All positions come once and in order, however few are kept at once, and memory needs room
    /// for only twice as many.
    #[test]
    fn all_places_come_in_order_a_few_at_a_time() {
        let mut rng = Rng::new(1);
        for most in [1, 2, 7, 100] {
            let proofs = Proofs::new();
            let leads = (0..200).map(|number: u64| {
                let segment = SegmentNumber(rng.below(5));
                let place = RecordPlace { segment, offset: 40 * number, bytes: 40 };
                proofs.lead(place, (KvsId(1), &number.to_le_bytes(), Sequence(number)))
            });
            let mut all: Vec<Lead> = leads.collect();
            let (mut seen, mut behind, mut rounds) = (Vec::new(), None, 0);
            loop {
                let mut leads = Leads::behind(behind, most);
                for lead in &all {
                    leads.add(*lead);
                    assert!(leads.all.len() < 2 * most);
                }
                let (volumes, last) = leads.finish();
                seen.extend(volumes);
                rounds += 1;
                match last {
                    Some(_) => behind = last,
                    None => break,
                }
            }
            assert!(rounds >= 200 / (2 * most) && rounds <= 200 / most + 1, "{rounds} of {most}");
            all.sort_unstable();
            assert_eq!(seen, all);
        }
    }
}
