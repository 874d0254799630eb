//! What lies behind the end that was found of a log. A crash leaves segments there that no sync had
//! come to. One that says that all before it are durable was synced itself, behind all of them: it
//! proves that the log went on, and that what was found to be its end is damage, or that a file is
//! missing.

use super::chain::Chain;
use super::segment::{self, FIRST_RECORD, Segment};
use crate::StoreError;
use crate::types::{SegmentNumber, Sequence};
use crate::volumes::Volumes;

/// Where a log was found to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogEnd {
    /// The segment that has nothing more.
    pub(super) segment: SegmentNumber,
    /// Where in it.
    pub(super) offset: u64,
    /// What is there instead.
    pub(super) why: &'static str,
}

impl LogEnd {
    /// In a segment that never became one, or has lost its header.
    pub(super) fn without_header(segment: SegmentNumber) -> LogEnd {
        LogEnd { segment, offset: 8, why: "the checksum of the header is wrong" }
    }

    /// Where a segment's records end without a seal.
    pub(super) fn of_records(segment: SegmentNumber, offset: u64) -> LogEnd {
        LogEnd { segment, offset, why: "no record begins here, or it is damaged" }
    }
}

/// What is missing of a log.
#[derive(Debug)]
pub(super) struct Lost {
    /// The file that is damaged or missing, and where.
    pub(super) file: String,
    pub(super) offset: u64,
    /// What is wrong.
    pub(super) what: String,
    /// A write that was durable.
    pub(super) durable: Sequence,
}

/// What is missing of a log that was found to end with a write, if something proves it. The chain
/// is the one that was followed; the segment in which it ends may be open. Those behind that are
/// among the segments that are left.
///
/// # Errors
/// If the disk fails.
pub(super) fn lost(
    (volumes, store): (&Volumes, u64),
    last: Sequence,
    (chain, end, open): (&Chain, LogEnd, Option<&Segment>),
    left: &[SegmentNumber],
) -> Result<Option<Lost>, StoreError> {
    let look = |number| look_at(volumes, store, number);
    let at_end = match open {
        Some(segment) => Said::by(segment)?,
        None => look(end.segment)?,
    };
    // A segment has no header only if nothing was written to it, and is marked behind that.
    let has_lost_header = end.offset < FIRST_RECORD;
    let is_gap = end.offset == FIRST_RECORD && at_end.first.is_some_and(|it| it.0 > last.0 + 1);
    let is_proof = at_end.is_marked && (has_lost_header || is_gap);
    let mut marked = is_proof.then_some((end.segment, at_end));
    for &number in left.iter().filter(|number| **number > end.segment) {
        let said = look(number)?;
        marked = if said.is_marked { Some((number, said)) } else { marked };
    }
    let Some((marked, said)) = marked else { return Ok(None) };
    let (file, offset, why) = match is_gap && end.segment != chain.next() {
        true => (chain.next(), 0, "it is missing"),
        false => (end.segment, end.offset, end.why),
    };
    let what = match marked == file {
        true => format!("{why}, but it was written to"),
        false => format!(
            "{why}: the log ends with write {}, but {} says that all writes before it were durable",
            last.0,
            segment::file_name(marked),
        ),
    };
    let before_marked = said.first.map_or(0, |first| first.0.saturating_sub(1));
    let durable = Sequence(before_marked.max(last.0 + 1));
    Ok(Some(Lost { file: segment::file_name(file), offset, what, durable }))
}

/// What a segment says of others.
#[derive(Debug, Clone, Copy, Default)]
struct Said {
    /// That all before it are durable.
    is_marked: bool,
    /// Its first write.
    first: Option<Sequence>,
}

impl Said {
    fn by(segment: &Segment) -> Result<Said, StoreError> {
        let is_marked = segment.is_durable_before()?;
        Ok(Said { is_marked, first: segment.first_write()? })
    }
}

/// What a segment says; nothing if it is none.
fn look_at(volumes: &Volumes, store: u64, number: SegmentNumber) -> Result<Said, StoreError> {
    let directory = volumes.directory_of(&segment::file_name(number));
    match Segment::open_unchecked(&*directory, store, number) {
        Ok(segment) => Said::by(&segment),
        Err(error) if error.is_damage() => Ok(Said::default()),
        Err(error) => Err(error),
    }
}
