//! Attacks on limits: bursts, small requests, requests across two units, and garbage that is
//! cleaned up later.

use entresol_measure::report::svg::Bar;
use entresol_media::Access;
use entresol_sharing::settings::{Enforcement, EpochSettings, LimitSettings};
use entresol_sharing::{PolicySettings, TenantSettings};

use super::super::scene::{Phase, Scene, Story, TenantMoment, Trick};
use super::super::tenants::{Cast, Device, mean, play, tenant, values};
use super::{H, MORE_MAX, SECONDS, X, seconds};
use crate::{Check, Side};

/// Attack on a limit.
struct Attack {
    name: &'static str,
    limit: f64,
    phases: Vec<Phase>,
    /// Device time that a request really takes, if it is more than its size implies.
    real_ns: Option<f64>,
}

/// Returns bursts around the boundaries of the paper's epochs of a second. A burst uses the
/// allowance at the very end of an epoch and again at the beginning of the next, and lasts a little
/// longer, until the next tick.
fn bursts(busy: Phase, limit: f64) -> Vec<Phase> {
    let idle = Phase { threads: 0, ..busy };
    let mut phases = vec![idle];
    for border in (1..=SECONDS as u32).map(f64::from) {
        phases.push(busy.since(seconds(border - limit)));
        phases.push(idle.since(seconds(border + limit + 0.02)));
    }
    phases
}

fn attacks(device: &Device) -> Vec<Attack> {
    let busy = device.gets(32, 4096);
    let debt = Phase { trick: Trick::Debt { bytes: 1.0 }, ..device.sets(8, 4096) };
    let astride = Phase { trick: Trick::Astride { bytes: 128 }, ..device.sets(16, 256) };
    let set_ns = |bytes| device.cost_ns(Access::Write, bytes);
    let attack = |name, limit, phases| Attack { name, limit, phases, real_ns: None };
    vec![
        attack("full speed, 1%", 0.01, vec![busy]),
        attack("bursts across epochs, 1%", 0.01, bursts(busy, 0.01)),
        attack("bursts across epochs, 10%", 0.10, bursts(busy, 0.10)),
        attack("64 loops of 64 B, 1%", 0.01, vec![device.gets(64, 64)]),
        Attack {
            // Each byte is read and written again.
            real_ns: Some(2.0 * set_ns(4096) + device.cost_ns(Access::Read, 4096)),
            ..attack("sets to be cleaned up later, 20%", 0.20, vec![debt])
        },
        Attack {
            real_ns: Some(set_ns(512)),
            ..attack("256 B astride two units, 20%", 0.20, vec![astride])
        },
    ]
}

/// Plays an attack. Our limit charges whole units; the paper charges by size, and it charges no
/// tenant for background work.
fn under(device: &Device, attack: &Attack, enforcement: Enforcement) -> Story {
    let is_ours = enforcement == Enforcement::Bucket;
    let policy = PolicySettings::Limit(LimitSettings { enforcement });
    let limited = TenantSettings { share_max: vec![Some(attack.limit)], ..tenant(X, "X") };
    let cast = Cast::default()
        .with(limited, attack.phases.clone())
        .with(tenant(H, "H"), vec![device.gets(2, 4096)]);
    let scene = device.scene(policy, cast, SECONDS);
    play(&Scene { units_are_charged: is_ours, background_is_charged: is_ours, ..scene })
}

/// Returns the long-run use divided by the limit, and the largest share in any tenth of a second.
/// Requests that take more than their size implies count with their real time.
fn used(story: &Story, attack: &Attack) -> (f64, f64) {
    let of = |moment: &TenantMoment| match attack.real_ns {
        Some(ns) => moment.operations_s * ns / 1e9,
        None => moment.share,
    };
    let most = values(story, X, 0.0..SECONDS, of).map(|(_, share)| share).fold(0.0, f64::max);
    (mean(story, X, 0.0..SECONDS, of) / attack.limit, most)
}

pub(super) fn checks(device: &Device, drawn: &mut Vec<Bar>) -> Vec<Check> {
    let mut checks = Vec::new();
    for attack in attacks(device) {
        let name = attack.name;
        let ours = used(&under(device, &attack, Enforcement::Bucket), &attack);
        let epochs = Enforcement::Epochs(EpochSettings::default());
        let paper = used(&under(device, &attack, epochs), &attack);
        // The bucket holds 10 ms of the limit once.
        let (what, bucket) = (format!("{name}: use over limit, less the bucket"), 0.01 / SECONDS);
        checks.push(Check::limit(what, "", Side::AtMost, MORE_MAX, ours.0 - bucket));
        let what = format!("{name}: use over limit, the paper's epochs and costs");
        checks.push(Check::report(what, "", None, paper.0, super::LEFT));
        let what = format!("{name}: most of the device in 100 ms, ours");
        checks.push(Check::report(what, "%", None, ours.1 * 100.0, "follows from the limit"));
        let what = format!("{name}: the same, the paper's epochs");
        checks.push(Check::report(what, "%", None, paper.1 * 100.0, super::LEFT));
        for (series, (who, (over, _))) in
            [("ours", ours), ("epochs", paper)].into_iter().enumerate()
        {
            drawn.push(Bar { label: format!("{who}: {name}"), value: over, series });
        }
    }
    checks
}
