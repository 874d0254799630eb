//! Figure 7: a limit of resources when only some requests hit. It applies to accesses that reach
//! the medium; requests that miss are free.

use std::time::Duration;

use entresol_base::ByteSize;
use entresol_measure::popularity::Popularity;
use entresol_media::Access;

use super::fig6::{
    L, L_THREADS, Policy, SECONDS, SLOWER, U, U_THREADS, WARM, limit_share, limited,
};
use super::scene::{Kept, Phase};
use super::tenants::{Cast, Device, drawing, line, mean, operations_s, play, share, tenant};
use crate::{Check, Outcome, Settings, Side};

/// Bytes of L's values and of U's.
const L_BYTES: u64 = 1024;
const U_BYTES: u64 = 4096;
const PERCENTS: [u32; 6] = [10, 20, 40, 60, 80, 100];
/// Quota of each cache, and the bytes of values that are stored in it.
const QUOTA: ByteSize = ByteSize::mib(32);
const STORED_BYTES: u64 = 24 << 20;

/// Returns a cache of values of `bytes`; so many percent of the keys are stored.
fn kept(bytes: u64, percent: u32) -> Kept {
    let stored = STORED_BYTES / bytes;
    Kept {
        quota: QUOTA,
        key_bytes: 16,
        value_bytes: bytes as usize,
        keys: stored * 100 / u64::from(percent),
        popularity: Popularity::Uniform,
        stored,
    }
}

/// One hit ratio.
struct Run {
    percent: u32,
    /// Share of L's gets that hit.
    hits: f64,
    /// L's share of the device.
    share: f64,
    /// Requests of L in a second, as the paper would print them.
    answered: f64,
}

/// Processor time of a request: it bounds the rate of those that miss.
fn think(device: &Device) -> Duration {
    device.time(Duration::from_nanos(1_000))
}

/// Runs one hit ratio, on the shipped cache or on accesses alone.
fn run(device: &Device, percent: u32, is_cache: bool) -> Run {
    let hits = f64::from(percent) / 100.0;
    let l = Phase { hits, think: think(device), ..device.gets(L_THREADS, L_BYTES) };
    let u = device.gets(U_THREADS, U_BYTES);
    let (policy, limited) = limited(device, Policy::Resources);
    let cast =
        match is_cache {
            false => Cast::default().with(limited, vec![l]).with(tenant(U, "U"), vec![u]),
            true => Cast::default()
                .with_cache(limited, vec![l], kept(L_BYTES, percent))
                .with_cache(tenant(U, "U"), vec![u], kept(U_BYTES, 100)),
        };
    let story = play(&device.scene(policy, cast, SECONDS));
    let found = story.caches.get(&L).map(|cache| cache.hits as f64 / cache.gets.max(1) as f64);
    Run {
        percent,
        hits: found.unwrap_or(hits),
        share: mean(&story, L, WARM..SECONDS, share),
        answered: device.printed(mean(&story, L, WARM..SECONDS, operations_s)),
    }
}

/// Checks one hit ratio. Returns the expected rate as well.
fn checks(device: &Device, prefix: &str, run: &Run) -> (Vec<Check>, f64) {
    let limit = limit_share(device);
    let expected = limit * device.most(Access::Read, L_BYTES) / run.hits;
    let misses_s = device.printed(f64::from(L_THREADS) / think(device).as_secs_f64());
    let over = (run.share - limit) * 100.0;
    let what = format!("{prefix}L's share over its limit, {}% hits", run.percent);
    let held = Check::limit(what, "points", Side::AtMost, 1.0, over).beside(1.0);
    let what = format!("{prefix}requests a second / (limit / hit ratio), {}% hits", run.percent);
    let ratio = run.answered / expected;
    let rate = if expected > 0.75 * misses_s {
        Check::report(what, "", None, ratio, "bound by the processor, not by the limit")
    } else {
        Check::about(what, "", 1.0, ratio, 5)
    };
    (vec![held, rate], expected.min(misses_s))
}

pub(super) fn fig7(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let mut all = Vec::new();
    let mut lines = Vec::new();
    let kinds = [("", false, "L"), ("the cache itself: ", true, "L, the cache itself")];
    for (prefix, is_cache, label) in kinds {
        let (mut ours, mut ideal) = (Vec::new(), Vec::new());
        for percent in PERCENTS {
            let run = run(&device, percent, is_cache);
            let (checks, expected) = checks(&device, prefix, &run);
            all.extend(checks);
            ours.push((f64::from(percent), run.answered / 1e6));
            ideal.push((f64::from(percent), expected / 1e6));
        }
        if !is_cache {
            lines.push(line("the limit over the hit ratio, or the processor", ideal));
        }
        lines.push(line(label, ours));
    }
    Outcome {
        scenario: vec![
            "L: 1 KB gets under the limit of figure 6, of which so many hit; misses are answered \
             by the processor and insert nothing; U: gets of 4 KB, without a limit."
                .to_owned(),
            format!(
                "The cache itself: L and U have the shipped one, each with a quota of {QUOTA} and \
                 {} MiB of values; so many percent of the keys that L asks for are stored.",
                STORED_BYTES >> 20
            ),
            device.told(),
        ],
        checks: all,
        drawings: vec![drawing("Requests of L a second (model)", "% of hits", "million/s", lines)],
    }
}
