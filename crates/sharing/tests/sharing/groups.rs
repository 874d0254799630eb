//! Groups: a policy among the tenants of a group under a policy between groups.

use std::time::Duration;

use crate::common::{Bench, Load, device, millis, seconds, tenant};
use entresol_sharing::settings::QosSettings;
use entresol_sharing::{
    GroupSettings, PolicySettings, Settings, Target, TenantId, TenantSettings, Throttle,
};

fn named(name: &str) -> PolicySettings {
    PolicySettings::named(name).expect("a policy")
}

fn inside(group: &str, tenant: TenantSettings) -> TenantSettings {
    TenantSettings { group: Some(group.to_owned()), ..tenant }
}

fn group(name: &str, change: TenantSettings, policy: PolicySettings) -> GroupSettings {
    GroupSettings { whole: TenantSettings { name: name.to_owned(), ..change }, policy }
}

fn busy() -> Load {
    Load { threads: 32.0, disturbs: 0.1, ..Load::READER }
}

#[test]
fn weights_inside_divide_what_weights_outside_allow() {
    let mut settings = Settings::new("pmem", named("proportional"), Vec::new());
    let weight = |weight, id| TenantSettings { weight, ..tenant(id) };
    settings.groups = vec![
        group("gold", weight(3.0, 0), named("proportional")),
        group("rest", weight(1.0, 0), PolicySettings::None),
    ];
    settings.tenants = vec![
        inside("gold", weight(1.0, 1)),
        inside("gold", weight(1.0, 2)),
        inside("rest", tenant(3)),
    ];
    let mut bench = Bench::of(settings);
    let loads = [(1, busy()), (2, busy()), (3, busy())];
    bench.run(seconds(10), |_, slowed| device(&loads, slowed));
    for (id, share) in [(1, 0.375), (2, 0.375), (3, 0.25)] {
        let ours = bench.slowed.of(id).share_max();
        assert!((ours - share).abs() < 1e-6, "{id}: {ours} {}", bench.log());
    }
    assert!(bench.said("group 'gold'"), "{}", bench.log());
}

#[test]
fn a_groups_limit_holds_for_its_tenants_together_however_they_divide_it() {
    let mut settings = Settings::new("pmem", named("limit"), Vec::new());
    let limited = TenantSettings { share_max: vec![Some(0.3)], ..tenant(0) };
    settings.groups = vec![
        group("small", limited, PolicySettings::None),
        group("large", tenant(0), PolicySettings::None),
    ];
    settings.tenants =
        vec![inside("small", tenant(1)), inside("small", tenant(2)), inside("large", tenant(3))];
    let mut bench = Bench::of(settings);
    for (one, two) in [(0.2, 8.0), (8.0, 8.0), (8.0, 0.2)] {
        let of = |threads| Load { threads, disturbs: 0.1, ..Load::READER };
        let loads = [(1, of(one)), (2, of(two)), (3, Load { threads: 0.5, ..Load::READER })];
        bench.run(seconds(2), |_, slowed| device(&loads, slowed));
        let shares = bench.slowed.of(1).share_max() + bench.slowed.of(2).share_max();
        assert!((shares - 0.3).abs() < 1e-9, "{shares}");
        let used = bench.last[&1].used() + bench.last[&2].used();
        // What one leaves the other has, but for the room that the first is left to grow.
        assert!(used <= 0.3 + 1e-9 && used > 0.27, "{used}");
        assert_eq!(bench.slowed.of(3), Throttle::Free);
    }
}

#[test]
fn a_target_inside_a_group_is_kept_by_the_group() {
    let mut settings = Settings::new("pmem", named("proportional"), Vec::new());
    settings.groups = vec![
        group("front", tenant(0), PolicySettings::Qos(QosSettings::default())),
        group("other", tenant(0), PolicySettings::None),
    ];
    let target = Target { percent: 99.0, latency: Duration::from_nanos(1000) };
    settings.tenants = vec![
        inside("front", tenant(1).latency_critical(target)),
        inside("front", tenant(2)),
        inside("other", tenant(3)),
    ];
    let mut bench = Bench::of(settings);
    let lc = Load { threads: 1.0, think_ns: 500.0, cost_ns: 80.0, ..Load::READER };
    let reader = Load { threads: 0.5, ..Load::READER };
    let loads = [(1, lc), (2, Load::WRITER), (3, reader)];
    bench.run(seconds(20), |_, slowed| device(&loads, slowed));
    let log = bench.log();
    assert!(bench.last[&1].latency_ns <= 1250.0, "{:?} {log}", bench.last);
    assert!(bench.slowed.of(2).share_max() < 0.3, "{log}");
    assert!(bench.slowed.of(3).share_max() >= 0.5 - 1e-9, "{log}");
}

#[test]
fn a_pause_between_groups_stops_whole_groups_and_leaves_no_trace() {
    let mut settings = Settings::new("pmem", named("fair"), Vec::new());
    settings.groups = vec![
        group("one", tenant(0), PolicySettings::None),
        group("two", tenant(0), named("proportional")),
    ];
    settings.tenants =
        vec![inside("one", tenant(1)), inside("two", tenant(2)), inside("two", tenant(3))];
    let mut bench = Bench::of(settings);
    let loads = [(1, busy()), (2, busy()), (3, busy())];
    let mut seen = [0; 2];
    for _ in 0..5_000 {
        bench.run(millis(1), |_, slowed| device(&loads, slowed));
        let stopped =
            |id: u32| bench.controller.throttle(TenantId(id), entresol_sharing::MediumId(0));
        let stopped = [1, 2, 3].map(|id| stopped(id) == Throttle::Stopped);
        match stopped {
            [false, true, true] => seen[0] += 1,
            [true, false, _] | [true, _, false] => seen[1] += 1,
            [false, true, false] | [false, false, true] => {}
            [false, false, false] => {}
            [true, true, true] => panic!("somebody always runs"),
        }
    }
    assert!(seen[0] > 0 && seen[1] > 0, "{seen:?}");
    assert!(!bench.controller.is_trying() || bench.actions > 0);
}
