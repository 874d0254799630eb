//! Worth of squeezing a segment: how much comes free, for what is written, and how long it would
//! otherwise stay.
//!
//! Garbage stays for long in a segment whose values are seldom overwritten. A segment whose values
//! are often overwritten has more of it soon, at no cost. So what comes free for each byte that is
//! written is multiplied by the writes since the segment was written, as in the cleaner of Sprite's
//! log-structured file system.

use std::collections::BTreeMap;

use crate::types::{SegmentNumber, Sequence};
use crate::version::files::{LiveBytes, live_segments};
use crate::version::sample::Superseded;
use crate::version::view::View;

/// Samples that are added to those of a segment, as if they were not superseded. Of few samples,
/// many are superseded by chance.
const SAMPLES_OF_DOUBT: u64 = 4;

/// Segments as the last estimate and the squeezes since have found them.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    /// Newest write that was flushed at the last estimate.
    flushed: Option<Sequence>,
    /// Last write that was flushed before a segment was written. Of segments that an earlier
    /// process wrote, the age begins with the opening.
    since: BTreeMap<SegmentNumber, Sequence>,
    /// Errors of the estimate, by those who have read all of a segment.
    errors: BTreeMap<SegmentNumber, KnownError>,
}

/// Error of the estimate of what is live in a segment.
#[derive(Debug, Clone, Copy)]
struct KnownError {
    /// Bytes to which runs led. Once a compaction has changed that, it is nearer to the truth.
    led_to: u64,
    /// Bytes that are live beyond those of the estimate.
    bytes: i64,
}

/// Segment of which a part is superseded, by estimate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Squeezable {
    pub(crate) number: SegmentNumber,
    /// Bytes that are left of it, with some for doubt.
    pub(crate) left: u64,
    worth: f64,
}

impl Findings {
    /// Notes the segments of a view that are new, and forgets those that are gone.
    pub(crate) fn look(&mut self, view: &View) {
        let now = view.newest_flushed();
        let before = self.flushed.replace(now).unwrap_or(now);
        self.since.retain(|number, _| view.segments.contains_key(number));
        self.errors.retain(|number, _| view.segments.contains_key(number));
        for number in view.segments.keys() {
            self.since.entry(*number).or_insert(before);
        }
    }

    /// Notes that a segment was read, and has so many live bytes, of those to which the runs lead.
    pub(crate) fn has_live(
        &mut self,
        (leads, superseded): (&LiveBytes, &Superseded),
        number: SegmentNumber,
        live: u64,
    ) {
        let led_to = bytes_of(leads, number);
        let estimated = led_to.saturating_sub(bytes_of(&superseded.values, number));
        let error = KnownError { led_to, bytes: live as i64 - estimated as i64 };
        self.errors.insert(number, error);
    }

    /// Notes that a segment was written anew.
    pub(crate) fn is_squeezed(&mut self, number: SegmentNumber) {
        self.since.insert(number, self.flushed.unwrap_or_default());
    }

    /// Returns the live bytes of each segment: those to which the runs lead, without what is
    /// superseded.
    pub(crate) fn live(&self, leads: &LiveBytes, superseded: &Superseded) -> LiveBytes {
        let of_segment = |(number, led_to): (&SegmentNumber, &u64)| {
            let live = led_to.saturating_sub(bytes_of(&superseded.values, *number));
            let error = self.errors.get(number).filter(|error| error.led_to == *led_to);
            let live = error.map_or(live, |error| live.saturating_add_signed(error.bytes));
            (*number, live)
        };
        leads.iter().map(of_segment).collect()
    }

    /// Returns the segments of which one part in `parts` is superseded, the best first.
    pub(crate) fn squeezable(
        &self,
        view: &View,
        superseded: &Superseded,
        parts: u64,
    ) -> Vec<Squeezable> {
        let leads = live_segments(view);
        let live = self.live(&leads, superseded);
        let now = self.flushed.unwrap_or_default();
        let all = view.segments.iter().filter_map(|(number, segment)| {
            let bytes = segment.len();
            let live = bytes_of(&live, *number).min(bytes);
            if live * parts > bytes * (parts - 1) {
                return None;
            }
            let led_to = bytes_of(&leads, *number).clamp(live, bytes);
            let since = self.since.get(number).copied().unwrap_or(now);
            let age = now.0.saturating_sub(since.0) + 1;
            let left = left_of((bytes, led_to, live), superseded.bytes_per_sample);
            let worth = worth(bytes, left, age);
            Some(Squeezable { number: *number, left, worth })
        });
        let mut all: Vec<Squeezable> = all.collect();
        all.sort_by(|one, other| other.worth.total_cmp(&one.worth));
        all
    }
}

fn bytes_of(all: &LiveBytes, number: SegmentNumber) -> u64 {
    all.get(&number).copied().unwrap_or_default()
}

/// Returns the bytes that are left of a segment that has `bytes`, to `led_to` of which runs lead,
/// and `live` of which are live by an estimate from samples that stand for `per_sample` each.
fn left_of((bytes, led_to, live): (u64, u64, u64), per_sample: u64) -> u64 {
    let doubt = SAMPLES_OF_DOUBT * per_sample;
    let superseded = (led_to - live) as f64 * led_to as f64 / (led_to + doubt).max(1) as f64;
    // What runs do not lead to is no estimate.
    bytes - (bytes - led_to) - superseded as u64
}

/// Returns the worth of squeezing a segment of which so much is left, `age` writes after it was
/// written.
fn worth(bytes: u64, left: u64, age: u64) -> f64 {
    (bytes - left) as f64 / left.max(1) as f64 * age as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: SegmentNumber = SegmentNumber(1);

    #[test]
    fn garbage_that_would_stay_for_long_comes_first() {
        assert!(worth(1000, 500, 100) > worth(1000, 600, 100), "more comes free");
        assert!(worth(1000, 600, 200) > worth(1000, 500, 100), "it would stay");
        assert!(worth(1000, 0, 1) > worth(1000, 100, 90), "it costs nothing");
    }

    #[test]
    fn few_samples_are_doubted() {
        // Half of 100 samples, of 8 and of 2 is superseded.
        let left = [100, 8, 2].map(|samples| left_of((1000, 1000, 500), 1000 / samples));
        assert!(left[0] < 525 && (650..700).contains(&left[1]) && left[2] > 800, "{left:?}");
        assert_eq!(left_of((1000, 500, 500), 1000), 500, "what runs do not lead to is certain");
    }

    #[test]
    fn what_a_squeeze_has_found_corrects_the_estimate_until_a_compaction_shows_more() {
        let mut findings = Findings::default();
        let leads = LiveBytes::from([(ONE, 1000)]);
        let gone = |bytes| Superseded { values: LiveBytes::from([(ONE, bytes)]), ..<_>::default() };
        assert_eq!(findings.live(&leads, &gone(300))[&ONE], 700);
        findings.has_live((&leads, &gone(300)), ONE, 650);
        assert_eq!(findings.live(&leads, &gone(300))[&ONE], 650);
        assert_eq!(findings.live(&leads, &gone(400))[&ONE], 550);
        let compacted = LiveBytes::from([(ONE, 900)]);
        assert_eq!(findings.live(&compacted, &gone(200))[&ONE], 700);
    }
}
