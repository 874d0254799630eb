//! Waits of operations under a load at full rate, on the model of a drive.

use std::time::Duration;

use entresol_store::trial::load::{Load, load};

#[test]
fn no_operation_waits_longer_than_100_ms_under_a_sustained_load() {
    let model = "nvme-9300".parse().expect("is a model");
    let mut wanted = Load::of(1, model, Duration::from_millis(500));
    wanted.options.segment_bytes = 4 << 20;
    wanted.options.generation_bytes = 16 << 20;
    let outcome = load(wanted).expect("the store works");
    // Otherwise there was nothing to wait for.
    assert!(outcome.flush_bytes > 0 && outcome.compaction_bytes > 0, "{outcome}");
    assert!(outcome.user_bytes > 100 << 20, "{outcome}");
    assert!(outcome.longest_ms() <= 100.0, "{outcome}");
    // Forty segments fill up, eight between two syncs. None is spare before the first is full.
    assert!(outcome.stalls.segments_made_late <= 1, "{outcome}");
}
