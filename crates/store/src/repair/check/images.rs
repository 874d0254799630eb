//! Check of the memtable images that an opening would use.

use std::sync::Arc;

use super::{CheckReport, Checker};
use crate::manifest::Manifest;
use crate::memtable::Generation;
use crate::memtable::image::{Owner, RecoveredImage};
use crate::names;
use crate::segment::Segment;
use crate::types::{SegmentNumber, Sequence};
use crate::volumes::Volumes;

impl Checker<'_> {
    /// Checks each image: by its checksum if the store was closed, otherwise against the log, which
    /// must be whole.
    pub(super) fn images(&mut self, manifest: &Manifest) {
        let names = self.volumes.names();
        for name in &names {
            let number = names::image_number(name);
            let Some(number) = number.filter(|it| it.0 >= manifest.log.first_segment) else {
                continue;
            };
            look_at(self.volumes, manifest, (name, number), &mut self.report);
        }
    }
}

fn look_at(
    volumes: &Volumes,
    manifest: &Manifest,
    (name, number): (&str, SegmentNumber),
    report: &mut CheckReport,
) {
    let found = RecoveredImage::find_any(&*volumes.directory_of(name), number, None);
    let Some((image, owner)) = found.filter(|(_, owner)| owner.store == manifest.store) else {
        let what = "has no valid watermark and is not used: the next opening reads the log instead";
        report.remarks.push(format!("{name} {what}"));
        return;
    };
    if image.is_changed() {
        let what = "it was changed since the store was closed".to_owned();
        let lost = "nothing is lost: the log is read instead".to_owned();
        report.find(name, 0, what, lost);
        return;
    }
    // A log that ends too early is reported already.
    let Some(log) = generation_of(volumes, manifest, (owner, &image), &names_of(volumes)) else {
        return;
    };
    if let Err(error) = image.compare(owner, &log) {
        let lost = "an opening on persistent memory may answer with older values until the log was \
                    read; `salvage` goes by the log";
        report.find(name, error.offset(), error.reason(), lost.to_owned());
    }
}

fn names_of(volumes: &Volumes) -> Vec<SegmentNumber> {
    let names = volumes.names();
    let numbers = names.iter().filter_map(|name| names::segment_number(name));
    let mut numbers: Vec<SegmentNumber> = numbers.filter(|number| number.is_of_log()).collect();
    numbers.sort_unstable();
    numbers
}

/// Returns the generation of an image, if the log has all of its records up to the watermark. It
/// has the segments behind that one as well which the image leads to.
fn generation_of(
    volumes: &Volumes,
    manifest: &Manifest,
    (owner, image): (Owner, &RecoveredImage),
    numbers: &[SegmentNumber],
) -> Option<Generation> {
    let Owner { segment, first, .. } = owner;
    let generation = Generation::new(1, first);
    let (mut next, segments) = (first, image.segments_reached());
    for (place, &number) in numbers.iter().filter(|number| **number >= segment).enumerate() {
        if number > image.watermark.segment && place >= segments {
            break;
        }
        let directory = volumes.directory_of(&names::of_segment(number));
        let segment = Segment::open_mapped(&*directory, manifest.store, number, None, true);
        let Ok(Some(segment)) = segment.map(|it| it.map(Arc::new)) else { break };
        let scanned = segment.scan(&mut |group| {
            for (_, record) in group {
                if record.header.sequence != next {
                    return Ok(entresol_index::Flow::Stop);
                }
                next = Sequence(next.0 + 1);
            }
            Ok(entresol_index::Flow::On)
        });
        generation.add_segment(segment)?;
        if scanned.is_err() {
            break;
        }
    }
    (next > image.watermark.sequence).then_some(generation)
}
