//! Segments behind the end that was found of a log. A crash leaves segments there that no sync had
//! reached yet. But a segment with the mark that all before it are durable was itself synced,
//! behind all of them. It proves that the log went on, and that the end that was found is damage or
//! a missing file. So does the mark of a sync in the segment in which the log ends, if it is behind
//! the end.

use entresol_base::mutation_site;

use super::chain::Chain;
use crate::StoreError;
use crate::names;
use crate::segment::{FIRST_RECORD, Segment};
use crate::types::{SegmentNumber, Sequence};
use crate::volumes::Volumes;

/// Position at which a log was found to end.
#[derive(Debug, Clone, Copy)]
pub(super) struct LogEnd {
    /// Segment in which no more records follow.
    pub(super) segment: SegmentNumber,
    /// Offset in the segment.
    pub(super) offset: u64,
    /// Description of what is there instead of a record.
    pub(super) why: &'static str,
}

impl LogEnd {
    /// Creates the end of a log whose last segment has no valid header: it was never finished, or
    /// has lost its header.
    pub(super) fn without_header(segment: SegmentNumber) -> LogEnd {
        LogEnd { segment, offset: 8, why: "the checksum of the header is wrong" }
    }

    /// Creates the end of a log whose last segment has records but no seal.
    pub(super) fn of_records(segment: SegmentNumber, offset: u64) -> LogEnd {
        LogEnd { segment, offset, why: "no record begins here, or it is damaged" }
    }
}

/// Durable writes that a log lacks.
#[derive(Debug)]
pub(super) struct LostWrites {
    /// Name of the file that is damaged or missing, and offset of the damage.
    pub(super) file: String,
    pub(super) offset: u64,
    /// Description of the damage.
    pub(super) what: String,
    /// A write that was durable.
    pub(super) durable: Sequence,
}

/// Returns the durable writes that a log lacks behind `last`, if a segment proves that there were
/// any. `chain` is the chain that was followed, and `open` the segment in which it ends, if that is
/// open. Segments behind the end are among `left`.
///
/// # Errors
/// Fails if the disk fails.
pub(super) fn lost(
    (volumes, store): (&Volumes, u64),
    last: Sequence,
    (chain, end, open): (&Chain, LogEnd, Option<&Segment>),
    left: &[SegmentNumber],
) -> Result<Option<LostWrites>, StoreError> {
    let look = |number| look_at(volumes, store, number);
    let at_end = match open {
        Some(segment) => SegmentEvidence::by(segment)?,
        None => look(end.segment)?,
    };
    if at_end.durable_up_to > end.offset
        && !mutation_site!("a log that ends before the mark of a sync is refused")
    {
        let (LogEnd { segment, offset, why }, synced) = (end, at_end.durable_up_to);
        let what = format!("{why}, but everything before offset {synced} was durable");
        let (file, durable) = (names::of_segment(segment), Sequence(last.0 + 1));
        return Ok(Some(LostWrites { file, offset, what, durable }));
    }
    // A segment gets its header before its first record, and a mark after that. A marked segment
    // without a header has lost it.
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
            names::of_segment(marked),
        ),
    };
    let before_marked = said.first.map_or(0, |first| first.0.saturating_sub(1));
    let durable = Sequence(before_marked.max(last.0 + 1));
    Ok(Some(LostWrites { file: names::of_segment(file), offset, what, durable }))
}

/// Evidence that one segment gives about others.
#[derive(Debug, Clone, Copy, Default)]
struct SegmentEvidence {
    /// True if it is marked: all segments before it are durable.
    is_marked: bool,
    /// Number of its first write.
    first: Option<Sequence>,
    /// Offset before which everything was durable.
    durable_up_to: u64,
}

impl SegmentEvidence {
    fn by(segment: &Segment) -> Result<SegmentEvidence, StoreError> {
        let is_marked = segment.is_durable_before()?;
        let durable_up_to = segment.durable_up_to()?;
        Ok(SegmentEvidence { is_marked, first: segment.first_write()?, durable_up_to })
    }
}

/// Reads the evidence of a segment. A file that is not a segment gives none.
fn look_at(
    volumes: &Volumes,
    store: u64,
    number: SegmentNumber,
) -> Result<SegmentEvidence, StoreError> {
    let directory = volumes.directory_of(&names::of_segment(number));
    let opened = Segment::open_unchecked(&*directory, store, number);
    match opened.map_err(StoreError::of_own_file) {
        Ok(segment) => SegmentEvidence::by(&segment),
        Err(error) if error.is_damage() => Ok(SegmentEvidence::default()),
        Err(error) => Err(error),
    }
}
