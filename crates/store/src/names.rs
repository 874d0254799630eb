//! Names of a store's files: what each kind is called, and which file a name is.

use crate::types::{RunNumber, SegmentNumber};

/// Name of the manifest.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// Name of the label that each volume but the home has, which says whose it is.
pub(crate) const LABEL: &str = "PLACE";
/// Name of the file in the home that keeps the read frequencies.
pub(crate) const READ_FREQUENCY: &str = "HEAT";
/// Name of the mark of a copy that is being made.
pub(crate) const UNFINISHED: &str = "UNFINISHED";
/// Name of the manifest of such a copy.
pub(crate) const UNFINISHED_MANIFEST: &str = "UNFINISHED-MANIFEST";
/// End of a segment's name.
pub(crate) const SEGMENT_SUFFIX: &str = ".segment";
/// Beginning of a memtable image's name.
const IMAGE_PREFIX: &str = "image-";
/// Beginning of the name of a file that moves between volumes.
const ON_ITS_WAY: &str = "moving-";

/// Returns the name of a segment's file.
pub(crate) fn of_segment(number: SegmentNumber) -> String {
    format!("{:012}{SEGMENT_SUFFIX}", number.0)
}

/// Returns the number of the segment whose file has a name.
pub(crate) fn segment_number(name: &str) -> Option<SegmentNumber> {
    let number = name.strip_suffix(SEGMENT_SUFFIX)?.parse().ok().map(SegmentNumber)?;
    // Other files may have similar names; only a name that this store would give counts.
    (of_segment(number) == name).then_some(number)
}

/// Returns the name of a run's file.
pub(crate) fn of_run(number: RunNumber) -> String {
    format!("run-{:016x}", number.0)
}

/// Returns the number of the run whose file has a name.
pub(crate) fn run_number(name: &str) -> Option<RunNumber> {
    let digits = name.strip_prefix("run-")?;
    let number = RunNumber(u64::from_str_radix(digits, 16).ok()?);
    (of_run(number) == name).then_some(number)
}

/// Returns the name of the image of the memtable that begins with a segment.
pub(crate) fn of_image(first: SegmentNumber) -> String {
    format!("{IMAGE_PREFIX}{:012}", first.0)
}

/// Returns the first segment of the memtable whose image has a name.
pub(crate) fn image_number(name: &str) -> Option<SegmentNumber> {
    name.strip_prefix(IMAGE_PREFIX)?.parse().ok().map(SegmentNumber)
}

/// Returns true if a name is one that a store gives to its files.
pub(crate) fn is_own(name: &str) -> bool {
    let fixed = [MANIFEST, LABEL, READ_FREQUENCY, UNFINISHED, UNFINISHED_MANIFEST];
    let is_data = segment_number(name).is_some() || run_number(name).is_some();
    fixed.contains(&name) || is_data || image_number(name).is_some() || is_on_its_way(name)
}

/// Returns the name of a file while it moves between volumes.
pub(crate) fn on_its_way(name: &str) -> String {
    format!("{ON_ITS_WAY}{name}")
}

/// Returns true if a name is that of a file that moves between volumes.
pub(crate) fn is_on_its_way(name: &str) -> bool {
    name.starts_with(ON_ITS_WAY)
}
