//! Tenants that try to get more than they should, each against the policy that it games. The whole
//! suite, with the paper's algorithms beside ours, is `entresol reproduce 002-adversaries`.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{Bench, Load, Rates, device, seconds, tenant};
use entresol_sharing::settings::{FairSettings, QosSettings, WatchSettings};
use entresol_sharing::{PolicySettings, Target, Throttle};

#[test]
fn who_misses_its_target_by_itself_has_nobody_slowed_for_it_and_hides_nobody() {
    let target = |us| Target { percent: 99.0, latency: Duration::from_micros(us) };
    let watch = WatchSettings { tail_min: 10, ..WatchSettings::default() };
    let qos = PolicySettings::Qos(QosSettings { watch, ..QosSettings::default() });
    let tenants = vec![
        tenant(1).latency_critical(target(1)),
        tenant(2).latency_critical(target(1)),
        tenant(3),
        tenant(4),
    ];
    let mut bench = Bench::new(qos, tenants);
    let rate = |used: f64, us: f64, is_writing| Rates {
        operations_s: used * 1e7,
        cost_ns: 100.0,
        bytes_each: 1000.0,
        is_writing,
        latency_ns: us * 1e3,
    };
    // Tenant 1 needs 20 us whatever the others do; tenant 2 is disturbed by the writer, 4, alone.
    let scene = |writes: bool| {
        move |slowed: &crate::common::Slowed| {
            let share = |id, most: f64| slowed.of(id).share_max().min(most);
            let writer = if writes { share(4, 0.3) } else { 0.0 };
            BTreeMap::from([
                (1, rate(share(1, 0.3), 20.0, false)),
                (2, rate(share(2, 0.1), 0.5 + 3.0 * writer, false)),
                (3, rate(share(3, 0.2), 1.0, false)),
                (4, rate(writer, 1.0, true)),
            ])
        }
    };
    let mut served = 0.0;
    for _ in 0..30 {
        bench.run(seconds(1), |_, slowed| scene(false)(slowed));
        served += bench.last[&3].used() / 0.2 / 30.0;
    }
    assert!(
        served >= 0.95,
        "{served}: best effort pays for somebody else's misses\n{}",
        bench.log()
    );
    assert!(bench.said("slowing others does not help"), "{}", bench.log());
    bench.run(seconds(20), |_, slowed| scene(true)(slowed));
    assert!(bench.last[&2].latency_ns <= 1e3, "{:?} {}", bench.last[&2], bench.log());
    assert!(bench.slowed.of(4).share_max() < 0.2 && bench.slowed.of(3) == Throttle::Free);
}

/// Slow-downs of an honest tenant beside one that has `more` times its loops while the other is
/// paused.
fn beside_a_racer(more: f64) -> f64 {
    let loads = |threads| [(1, Load { threads, ..Load::READER }), (2, Load::READER)];
    let fair = PolicySettings::Fair(FairSettings::default());
    let mut bench = Bench::new(fair, vec![tenant(1), tenant(2)]);
    let mut served = 0.0;
    for _ in 0..30 {
        bench.run(seconds(1), |_, slowed| {
            let pause = slowed.of(2) == Throttle::Stopped;
            device(&loads(if pause { 4.0 * more } else { 4.0 }), slowed)
        });
        served += bench.last[&2].operations_s / 30.0;
    }
    served
}

#[test]
fn racing_while_the_others_are_paused_costs_no_honest_tenant_more_than_a_twentieth() {
    let (honest, raced) = (beside_a_racer(1.0), beside_a_racer(4.0));
    assert!(raced >= 0.95 * honest, "{raced} of {honest}");
}
