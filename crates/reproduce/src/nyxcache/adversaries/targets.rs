//! Attacks on targets. One tenant misses its target by its own load, and others are slowed for it.
//! One tenant disturbs in bursts that end before it is found.

use std::time::Duration;

use entresol_sharing::settings::{Expense, QosSettings};
use entresol_sharing::{PolicySettings, Target, TenantId, TenantSettings};

use super::super::scene::{Phase, Story};
use super::super::tenants::{Cast, Device, mean, operations_s, play, tenant, values};
use super::{H, LEFT, LONG, X, seconds};
use crate::Check;

/// Honest tenant with a target.
const L: TenantId = TenantId(3);
const TARGET: Duration = Duration::from_nanos(2_000);
const EXPENSE_BYTES_S: f64 = 500e6;
/// Seconds that the policy has to settle.
const SETTLED: f64 = 5.0;
/// Length of a burst and interval between two bursts, in seconds.
const BURST: f64 = 0.05;
const EVERY: f64 = 0.5;
/// Moments in a window of half a second.
const WINDOW: usize = 5;

fn critical(device: &Device, id: TenantId, name: &str) -> TenantSettings {
    let target = Target { percent: 99.0, latency: device.time(TARGET) };
    tenant(id, name).latency_critical(target)
}

fn policy(device: &Device, qos: QosSettings) -> PolicySettings {
    let expense = Expense::Bytes(device.rate(EXPENSE_BYTES_S));
    PolicySettings::Qos(QosSettings { expense, ..qos })
}

/// Returns the share of all half seconds in which L meets its target.
fn kept(device: &Device, story: &Story) -> f64 {
    let target_ns = device.time(TARGET).as_nanos() as f64;
    let p99 = values(story, L, SETTLED..SETTLED + LONG, |m| m.latency_ns_p99.unwrap_or(f64::MAX));
    let p99: Vec<f64> = p99.map(|(_, ns)| ns).collect();
    let median = |window: &[f64]| {
        let mut sorted = window.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted[sorted.len() / 2]
    };
    let kept = p99.chunks(WINDOW).filter(|window| median(window) <= target_ns * 1.02).count();
    kept as f64 / p99.chunks(WINDOW).count() as f64
}

/// Plays a tenant X that requests so much at once that its replies exceed its target on their own.
/// The best-effort tenant H is not to blame.
fn by_itself(device: &Device, qos: Option<QosSettings>) -> Story {
    let settings = [critical(device, X, "X"), tenant(H, "H"), critical(device, L, "L")];
    let phases = [device.gets(1, 65536), device.gets(2, 1024), device.gets(1, 256)];
    let cast = settings.into_iter().zip(phases).fold(Cast::default(), |cast, (mut who, phase)| {
        if qos.is_none() {
            who = TenantSettings { target: None, class: Default::default(), ..who };
        }
        cast.with(who, vec![phase])
    });
    let policy = qos.map_or(PolicySettings::None, |qos| policy(device, qos));
    play(&device.scene(policy, cast, SETTLED + LONG))
}

/// Plays a tenant X that sets at full speed for a moment twice a second, while H reads
/// continuously.
fn in_bursts(device: &Device, qos: QosSettings) -> Story {
    let busy = device.sets(16, 2048);
    let idle = Phase { threads: 0, ..busy };
    let count = ((SETTLED + LONG) / EVERY) as u32;
    let begin = |burst: u32| f64::from(burst) * EVERY;
    let burst =
        |burst| [busy.since(seconds(begin(burst))), idle.since(seconds(begin(burst) + BURST))];
    let cast = Cast::default()
        .with(tenant(X, "X"), (0..count).flat_map(burst).collect())
        .with(tenant(H, "H"), vec![device.gets(4, 2048)])
        .with(critical(device, L, "L"), vec![device.gets(1, 256)]);
    play(&device.scene(policy(device, qos), cast, SETTLED + LONG))
}

pub(super) fn checks(device: &Device) -> Vec<Check> {
    let rate = |story: &Story| mean(story, H, SETTLED..SETTLED + LONG, operations_s);
    let free = rate(&by_itself(device, None));
    let (ours, paper) = (
        by_itself(device, Some(QosSettings::default())),
        by_itself(device, Some(QosSettings::published())),
    );
    let what = "slow by itself: best effort in 30 s over what it has without a policy";
    let bursts = "disturbing in bursts: half seconds in which another's target is kept";
    let of_bursts = |qos| kept(device, &in_bursts(device, qos));
    vec![
        super::kept(format!("{what}, ours"), rate(&ours) / free),
        Check::report(format!("{what}, the paper's"), "", None, rate(&paper) / free, LEFT),
        super::kept(
            "slow by itself: half seconds in which another's target is kept, ours".to_owned(),
            kept(device, &ours),
        ),
        super::kept(format!("{bursts}, ours"), of_bursts(QosSettings::default())),
        Check::report(
            format!("{bursts}, the paper's"),
            "",
            None,
            of_bursts(QosSettings::published()),
            LEFT,
        ),
    ]
}
