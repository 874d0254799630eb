//! Tenants that try to get more than they should, which the paper leaves for later (section 5): its
//! own algorithms beside ours. No figure shows this. Limits and shares only: who games slow-downs
//! or targets is not tried here.

use std::time::Duration;

use entresol_sharing::scene::{Phase, Story, Trick};
use entresol_sharing::settings::{Enforcement, EpochSettings, LimitSettings, ProportionalSettings};
use entresol_sharing::{PolicySettings, TenantId, TenantSettings};

use super::tenants::{Cast, Device, mean, operations_s, play, share, tenant, values};
use crate::report::svg::{Bar, bars};
use crate::reproduce::{Check, Outcome, Settings};

/// Who tries, and who is honest.
const X: TenantId = TenantId(1);
const H: TenantId = TenantId(2);
const SLOWER: u32 = 50;
const SECONDS: f64 = 6.0;
/// What nobody may get more of than its limit, in the long run, beside the bucket of 10 ms.
const MORE_MAX: f64 = 1.02;
/// What no honest tenant may lose of its guarantee in any second.
const LESS_MAX: f64 = 0.05;

/// What is tried against a limit.
struct Attack {
    name: &'static str,
    limit: f64,
    phases: Vec<Phase>,
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Nothing but bursts around the borders of the paper's epochs of a second: what an epoch allows at
/// its very end, and again as the next one begins, and a little more until the next tick.
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
    vec![
        Attack { name: "full speed, 1%", limit: 0.01, phases: vec![busy] },
        Attack { name: "bursts across epochs, 1%", limit: 0.01, phases: bursts(busy, 0.01) },
        Attack { name: "bursts across epochs, 10%", limit: 0.10, phases: bursts(busy, 0.10) },
        Attack { name: "64 loops of 64 B, 1%", limit: 0.01, phases: vec![device.gets(64, 64)] },
        Attack { name: "sets to be cleaned up later, 20%", limit: 0.20, phases: vec![debt] },
    ]
}

fn under(device: &Device, attack: &Attack, enforcement: Enforcement) -> Story {
    let policy = PolicySettings::Limit(LimitSettings { enforcement });
    let limited = TenantSettings { share_max: vec![Some(attack.limit)], ..tenant(X, "X") };
    let cast = Cast::default()
        .with(limited, attack.phases.clone())
        .with(tenant(H, "H"), vec![device.gets(2, 4096)]);
    play(&device.scene(policy, cast, SECONDS))
}

/// Long-run use over the limit, and the largest share in any tenth of a second.
fn used(story: &Story, limit: f64) -> (f64, f64) {
    let most = values(story, X, 0.0..SECONDS, share).map(|(_, share)| share).fold(0.0, f64::max);
    (mean(story, X, 0.0..SECONDS, share) / limit, most)
}

pub(super) fn adversaries(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let mut checks = Vec::new();
    let mut drawn = Vec::new();
    for attack in attacks(&device) {
        let ours = used(&under(&device, &attack, Enforcement::Bucket), attack.limit);
        let epochs = Enforcement::Epochs(EpochSettings::default());
        let paper = used(&under(&device, &attack, epochs), attack.limit);
        // The bucket holds 10 ms of the limit once.
        let most = MORE_MAX + 0.01 / SECONDS;
        checks.push(Check {
            tolerance: "1.02 and the bucket".to_owned(),
            pass: ours.0 <= most,
            ..Check::at_most(format!("{}: use over limit", attack.name), "", most, ours.0)
        });
        let what = format!("{}: use over limit, the paper's epochs", attack.name);
        checks.push(Check::report(what, "", None, paper.0, "the paper leaves attacks for later"));
        let what = format!("{}: most of the device in 100 ms, ours", attack.name);
        checks.push(Check::report(what, "%", None, ours.1 * 100.0, "follows from the limit"));
        let what = format!("{}: the same, the paper's epochs", attack.name);
        checks.push(Check::report(what, "%", None, paper.1 * 100.0, "the paper leaves attacks"));
        for (series, (name, (over, _))) in
            [("ours", ours), ("epochs", paper)].into_iter().enumerate()
        {
            drawn.push(Bar { label: format!("{name}: {}", attack.name), value: over, series });
        }
    }
    checks.extend(returning_owner(&device));
    Outcome {
        scenario: vec![
            "X tries to get more than its limit beside two loops of gets of 4 KB; and an owner of \
             two thirds is idle, its share is lent to one that sets at full speed, and comes back."
                .to_owned(),
            device.told(),
        ],
        checks,
        drawings: vec![bars("Use over limit (model)", "times", &drawn)],
    }
}

/// When the owner comes back.
const BACK: f64 = 3.0;
const OWNER: f64 = 2.0 / 3.0;

/// An owner that was idle has its guarantee from the second on in which it comes back.
fn returning_owner(device: &Device) -> Vec<Check> {
    let busy = device.gets(16, 4096);
    let owner = vec![busy.since(seconds(BACK))];
    let alone = Cast::default().with(tenant(H, "H"), vec![busy]);
    let alone = play(&device.scene(PolicySettings::None, alone, 1.0));
    let alone = mean(&alone, H, 0.2..1.0, operations_s);
    let least = |policy: ProportionalSettings| {
        let cast = Cast::default()
            .with(TenantSettings { weight: 1.0, ..tenant(X, "X") }, vec![device.sets(16, 4096)])
            .with(TenantSettings { weight: 2.0, ..tenant(H, "H") }, owner.clone());
        let policy = PolicySettings::Proportional(policy);
        let story = play(&device.scene(policy, cast, SECONDS));
        let windows = (BACK as u32..SECONDS as u32).map(f64::from);
        let rate = |from: f64| mean(&story, H, from..from + 1.0, operations_s) / alone / OWNER;
        windows.map(rate).fold(f64::MAX, f64::min)
    };
    let ours = least(ProportionalSettings::default());
    let paper = least(ProportionalSettings::published());
    let what = "an owner comes back: its worst second over its guarantee";
    let why = "the paper leaves attacks for later";
    vec![
        Check {
            tolerance: "at least 0.95".to_owned(),
            pass: ours >= 1.0 - LESS_MAX,
            ..Check::at_least(format!("{what}, ours"), "", 1.0 - LESS_MAX, ours)
        },
        Check::report(format!("{what}, the paper's"), "", None, paper, why),
    ]
}
