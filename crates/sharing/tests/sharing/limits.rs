//! Limits of resources, by bucket and by the paper's epochs, and limits of bytes.

use std::collections::BTreeMap;

use crate::common::{Bench, Load, MS, Rates, Slowed, device, millis, seconds, tenant};
use entresol_base::Nanos;
use entresol_sharing::settings::{Enforcement, EpochSettings, LimitSettings};
use entresol_sharing::{PolicySettings, TenantSettings, Throttle};

fn limited(id: u32, share: f64) -> TenantSettings {
    TenantSettings { share_max: vec![Some(share)], ..tenant(id) }
}

fn epochs() -> PolicySettings {
    let enforcement = Enforcement::Epochs(EpochSettings::default());
    PolicySettings::Limit(LimitSettings { enforcement })
}

fn named(name: &str) -> PolicySettings {
    PolicySettings::named(name).expect("a policy")
}

#[test]
fn the_share_is_what_the_account_is_given_and_nobody_else_is_touched() {
    let mut bench = Bench::new(named("limit"), vec![limited(1, 0.42), tenant(2)]);
    let loads = [(1, Load::WRITER), (2, Load::READER)];
    bench.run(seconds(3), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.slowed.of(1), Throttle::Share(0.42));
    assert_eq!(bench.slowed.of(2), Throttle::Free);
    assert!((bench.last[&1].used() - 0.42).abs() < 1e-6);
    let settled = bench.actions;
    bench.run(seconds(60), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.actions, settled, "a limit needs nothing done once it is set");
}

#[test]
fn a_share_of_nothing_stops_and_a_change_is_in_force_at_the_next_tick() {
    let mut bench = Bench::new(named("limit"), vec![limited(1, 0.0)]);
    let loads = [(1, Load::READER)];
    bench.run(seconds(1), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.slowed.of(1), Throttle::Stopped);
    assert_eq!(bench.last[&1].operations_s, 0.0);
    let mut settings = bench.controller.settings().clone();
    settings.tenants = vec![limited(1, 0.3)];
    bench.controller.replace(settings).expect("good settings");
    bench.run(millis(11), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.slowed.of(1), Throttle::Share(0.3));
}

#[test]
fn another_policy_frees_everybody_of_the_first_ones_limits() {
    let mut bench = Bench::new(named("limit"), vec![limited(1, 0.1)]);
    let loads = [(1, Load::READER)];
    bench.run(seconds(1), |_, slowed| device(&loads, slowed));
    let mut settings = bench.controller.settings().clone();
    settings.policy = PolicySettings::None;
    assert!(bench.controller.replace(settings.clone()).is_err(), "a limit that nobody reads");
    settings.tenants = vec![tenant(1)];
    bench.controller.replace(settings).expect("good settings");
    bench.run(millis(500), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.slowed.of(1), Throttle::Free);
    assert!(bench.said("policy 'none' from now on"));
}

/// Runs a tenant that takes all it can for whole epochs and yields its largest use in one of them.
fn used_in_epochs(share: f64, count: usize) -> Vec<f64> {
    let mut bench = Bench::new(epochs(), vec![limited(1, share)]);
    let mut used = vec![0.0; count];
    let greedy = |slowed: &Slowed| {
        let operations_s = if slowed.of(1) == Throttle::Stopped { 0.0 } else { 1e7 };
        let rates = Rates { operations_s, cost_ns: 100.0, ..Rates::default() };
        BTreeMap::from([(1, rates)])
    };
    for used in &mut used {
        let mut before = Nanos(0);
        let mut last = 0.0;
        bench.run(seconds(1), |now, slowed| {
            // What was used since the moment before, at the rate of that moment.
            *used += last * now.since(before).as_secs_f64() * f64::from(u8::from(before.0 > 0));
            let rates = greedy(slowed);
            last = rates[&1].used();
            before = now;
            rates
        });
    }
    used
}

#[test]
fn under_epochs_an_honest_tenant_overshoots_by_at_most_one_tick() {
    for share in [0.01, 0.1, 0.42, 0.9] {
        for (epoch, used) in used_in_epochs(share, 5).into_iter().enumerate() {
            assert!(used <= share + 0.021, "{share}: {used} in epoch {epoch}");
            assert!(used >= share - 0.021, "{share}: {used} in epoch {epoch}");
        }
    }
}

#[test]
fn under_epochs_everybody_is_free_when_a_new_one_begins() {
    let mut bench = Bench::new(epochs(), vec![limited(1, 0.1), tenant(2)]);
    let loads = [(1, Load::READER), (2, Load::READER)];
    bench.run(millis(500), |_, slowed| device(&loads, slowed));
    assert_eq!(bench.slowed.of(1), Throttle::Stopped);
    assert_eq!(bench.slowed.of(2), Throttle::Free, "no limit, no stop");
    let log = bench.log();
    assert!(log.contains("of the 10.00% of this epoch"), "{log}");
    let mut freed = false;
    bench.run(millis(550), |now, slowed| {
        freed |= now.0 >= 1000 * MS && slowed.of(1) == Throttle::Free;
        device(&loads, slowed)
    });
    assert!(freed && bench.said("a new epoch begins"));
}

#[test]
fn equal_bytes_are_unequal_shares() {
    let moved = |load: Load| {
        let some = TenantSettings { bytes_s_max: Some(200e6), ..tenant(1) };
        let mut bench = Bench::new(named("bandwidth"), vec![some, tenant(2)]);
        bench.run(seconds(2), |_, slowed| device(&[(1, load), (2, Load::READER)], slowed));
        let rates = bench.last[&1];
        assert!((rates.operations_s * rates.bytes_each / 200e6 - 1.0).abs() < 0.02, "{rates:?}");
        rates.used()
    };
    assert!(moved(Load::WRITER) > 3.0 * moved(Load::READER));
}
