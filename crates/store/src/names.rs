//! Names of a store's files: what each kind is called, and which file a name is.

use crate::types::{RunNumber, SegmentNumber};

/// Name of the manifest.
pub(crate) const MANIFEST: &str = "MANIFEST";
/// Name of the label that each volume but the home has, which says whose it is.
pub const LABEL: &str = "PLACE";
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
    let number = name.strip_prefix(IMAGE_PREFIX)?.parse().ok().map(SegmentNumber)?;
    (of_image(number) == name).then_some(number)
}

/// Returns true if a name is that of a segment or a run.
pub(crate) fn is_data(name: &str) -> bool {
    segment_number(name).is_some() || run_number(name).is_some()
}

/// Returns true if a name is one that a store gives to its files.
pub(crate) fn is_own(name: &str) -> bool {
    let fixed = [MANIFEST, LABEL, READ_FREQUENCY, UNFINISHED, UNFINISHED_MANIFEST];
    let is_numbered = is_data(name) || image_number(name).is_some() || is_on_its_way(name);
    fixed.contains(&name) || is_numbered
}

/// Returns the name of a file while it moves between volumes.
pub(crate) fn on_its_way(name: &str) -> String {
    format!("{ON_ITS_WAY}{name}")
}

/// Returns true if a name is that of a file that moves between volumes.
pub(crate) fn is_on_its_way(name: &str) -> bool {
    name.strip_prefix(ON_ITS_WAY).is_some_and(is_data)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_others_are_not_the_stores() {
        let (segment, run) = (of_segment(SegmentNumber(7)), of_run(RunNumber(0x1f)));
        let image = of_image(SegmentNumber(7));
        for own in [&segment, &run, &image, &on_its_way(&run), &on_its_way(&segment), MANIFEST] {
            assert!(is_own(own), "{own}");
        }
        for other in [
            "moving-pictures",
            "moving-",
            "image-1",
            "image-7.png",
            "run-1",
            "run-+00000000000000f",
        ] {
            assert!(!is_own(other), "{other}");
        }
    }
}
