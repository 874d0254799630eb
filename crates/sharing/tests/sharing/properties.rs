//! Properties of every policy, whatever its tenants do.
//!
//! It ends what it began, stops no latency-critical tenant for good, and comes to rest under a
//! constant load. No report makes it panic or set what is not a share.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::common::{Bench, Load, MS, Rates, SECOND, device, seconds, tenant};
use entresol_base::Nanos;
use entresol_media::Usage;
use entresol_sharing::settings::{QosSettings, WatchSettings};
use entresol_sharing::{
    Action, Controller, MediumId, PolicySettings, Reading, Settings, Sketch, Target, TenantId,
    TenantSettings, Throttle,
};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// Every policy in our pace, with settings that give it something to do.
fn ours(name: &str, tenants: u32) -> Settings {
    let policy = match name {
        "qos" => {
            let watch = WatchSettings { tail_min: 10, ..WatchSettings::default() };
            PolicySettings::Qos(QosSettings { watch, ..QosSettings::default() })
        }
        name => PolicySettings::named(name).expect("a policy"),
    };
    let made = (1..=tenants).map(|id| match name {
        "qos" | "caladan" if id <= tenants.div_ceil(2) => {
            let latency = Duration::from_nanos(600 + 200 * u64::from(id));
            tenant(id).latency_critical(Target { percent: 99.0, latency })
        }
        "limit" => TenantSettings { share_max: vec![Some(1.0 / f64::from(tenants))], ..tenant(id) },
        "bandwidth" => TenantSettings { bytes_s_max: Some(1e8 * f64::from(id)), ..tenant(id) },
        "fair" if id == 1 => TenantSettings { slowdown_max: Some(1.3), ..tenant(id) },
        _ => TenantSettings { weight: f64::from(id), ..tenant(id) },
    });
    Settings::new("pmem", policy, made.collect())
}

const NAMES: [&str; 7] = ["none", "limit", "bandwidth", "qos", "caladan", "fair", "proportional"];

fn loads() -> impl Strategy<Value = Vec<Load>> {
    let load = (0.1f64..16.0, 0.0f64..2000.0, 20.0f64..400.0, any::<bool>(), 0.0f64..8.0);
    let load = load.prop_map(|(threads, think_ns, cost_ns, is_writing, disturbs)| Load {
        threads,
        think_ns,
        cost_ns,
        is_writing,
        disturbs,
        ..Load::READER
    });
    prop::collection::vec(load, 2..5)
}

/// A counter as a program that errs might report it.
fn counter() -> impl Strategy<Value = u64> {
    prop_oneof![Just(0), Just(1), Just(u64::MAX), 0u64..1_000_000_000, any::<u64>()]
}

fn nonsense() -> impl Strategy<Value = Reading> {
    let usage = (counter(), counter(), counter(), counter(), counter()).prop_map(
        |(used_ns, reads, writes, read_bytes, written_bytes)| Usage {
            used_ns,
            reads,
            writes,
            read_bytes,
            written_bytes,
        },
    );
    let used = prop::collection::vec(usage, 0..4);
    let times = prop::collection::vec(counter(), 0..5);
    (0u32..7, used, prop::option::of(counter()), times).prop_map(|(id, used, operations, times)| {
        let mut latency = Sketch::new();
        times.into_iter().for_each(|ns| latency.record(Duration::from_nanos(ns)));
        Reading { tenant: TenantId(id), used, operations, latency }
    })
}

/// Drives a controller with anything and holds its answers against what they may be.
fn check_survives(name: &str, story: &[(u64, Vec<Reading>)]) {
    let mut settings = ours(name, 4);
    settings.media.push("ssd".to_owned());
    let mut controller = Controller::new(settings).expect("good settings");
    let mut set: BTreeMap<(TenantId, MediumId), Throttle> = BTreeMap::new();
    let mut time = 0;
    for (at, readings) in story {
        // Mostly forwards, at times backwards.
        time = if at % 7 == 0 { time / 2 } else { time + at % (200 * MS) };
        let turn = controller.tick(Nanos(time), readings);
        assert!(turn.next.0 <= 1 + u64::MAX / 2 + SECOND, "it comes again");
        for Action { tenant, medium, throttle } in turn.actions {
            assert!((1..=4).contains(&tenant.0) && medium.0 < 2);
            if let Throttle::Share(share) = throttle {
                assert!(share > 0.0 && share < 1.0, "{share}");
            }
            set.insert((tenant, medium), throttle);
        }
        for view in controller.views() {
            assert!(view.shares.iter().all(|share| share.is_finite()));
            assert!(view.slowdown.is_none_or(|slowdown| slowdown > 0.0));
        }
    }
    assert!(controller.decisions().iter().count() <= 256);
    for ((tenant, medium), throttle) in set {
        assert_eq!(controller.throttle(tenant, medium), throttle, "what is said is what is meant");
    }
}

/// Under a constant load: what is begun ends, no critical tenant is stopped, and actions become
/// rarer.
fn check_constant(name: &str, loads: &[Load]) {
    let named: Vec<(u32, Load)> = (1..).zip(loads.iter().copied()).collect();
    let settings = ours(name, loads.len() as u32);
    let critical: Vec<u32> =
        settings.tenants.iter().filter(|t| t.target.is_some()).map(|t| t.id.0).collect();
    let mut bench = Bench::of(settings);
    let mut stopped_since: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    let mut watch = |now: Nanos, slowed: &crate::common::Slowed| -> BTreeMap<u32, Rates> {
        for (id, _) in &named {
            if slowed.of(*id) == Throttle::Stopped {
                let since = *stopped_since.entry(*id).or_insert(now);
                longest = longest.max(now.since(since));
            } else {
                stopped_since.remove(id);
            }
        }
        for id in &critical {
            assert!(slowed.of(*id).share_max() >= 0.05, "{id} is left with next to nothing");
        }
        device(&named, slowed)
    };
    bench.run(seconds(30), &mut watch);
    let early = bench.controller.decisions().total();
    bench.run(seconds(30), &mut watch);
    let late = bench.controller.decisions().total() - early;
    assert!(longest <= Duration::from_millis(50), "{name}: stopped for {longest:?}");
    // A dozen in half a minute is what a patience that doubles leaves, for each of its reasons.
    assert!(late <= early.max(40), "{name}: {early}, then {late}\n{}", bench.log());
}

/// Configuration with the same cases at each run; PROPTEST_RNG_SEED draws others.
fn drawn(cases: u32) -> ProptestConfig {
    let usual = ProptestConfig::with_cases(cases);
    let rng_seed = match usual.rng_seed {
        RngSeed::Random => RngSeed::Fixed(1),
        given => given,
    };
    ProptestConfig { rng_seed, ..usual }
}

/// Presence of tenants in stretches of milliseconds: a bit for each tenant.
fn presence() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((1u64..400, 0u32..16), 5..60)
}

/// Checks a policy whose tenants come and leave in the middle of experiments and pauses. No present
/// tenant is stopped for longer than a pause, no critical tenant has less than its floor, and once
/// all are back the policy comes to rest.
fn check_presence(name: &str, loads: &[Load], presence: &[(u64, u32)]) {
    let named: Vec<(u32, Load)> = (1..).zip(loads.iter().copied()).collect();
    let settings = ours(name, loads.len() as u32);
    let critical: Vec<u32> =
        settings.tenants.iter().filter(|t| t.target.is_some()).map(|t| t.id.0).collect();
    let mut bench = Bench::of(settings);
    let mut stopped_since: BTreeMap<u32, Nanos> = BTreeMap::new();
    let mut longest = Duration::ZERO;
    let all = (SECOND / MS * 20, u32::MAX);
    for &(ms, who) in presence.iter().chain([&all]) {
        bench.run(Duration::from_millis(ms), |now, slowed| {
            let here: Vec<(u32, Load)> =
                named.iter().filter(|(id, _)| who & (1 << (id - 1)) != 0).copied().collect();
            for (id, _) in &named {
                let is_here = here.iter().any(|(other, _)| other == id);
                if is_here && slowed.of(*id) == Throttle::Stopped {
                    let since = *stopped_since.entry(*id).or_insert(now);
                    longest = longest.max(now.since(since));
                } else {
                    stopped_since.remove(id);
                }
            }
            for id in critical.iter().filter(|id| here.iter().any(|(other, _)| other == *id)) {
                assert!(slowed.of(*id).share_max() >= 0.05, "{name}: {id} has next to nothing");
            }
            device(&here, slowed)
        });
    }
    assert!(longest <= Duration::from_millis(50), "{name}: stopped for {longest:?}");
    // In a single tick a tenant may be stopped for a pause.
    let mut goes_on = BTreeSet::new();
    bench.run(Duration::from_millis(100), |_, slowed| {
        let rates = device(&named, slowed);
        goes_on.extend(rates.iter().filter(|(_, it)| it.operations_s > 0.0).map(|(id, _)| *id));
        rates
    });
    assert_eq!(goes_on.len(), named.len(), "{name}: all go on");
}

proptest! {
    #![proptest_config(drawn(48))]
    #[test]
    fn nonsense_is_survived(
        which in 0..NAMES.len(),
        story in prop::collection::vec(
            (any::<u64>(), prop::collection::vec(nonsense(), 0..6)),
            1..60,
        ),
    ) {
        check_survives(NAMES[which], &story);
    }
}

proptest! {
    #![proptest_config(drawn(12))]
    // Not `caladan`, which is as published: it slows and releases by turns for ever.
    #[test]
    fn a_constant_load_comes_to_rest(
        which in prop::sample::select(vec!["limit", "bandwidth", "qos", "proportional"]),
        loads in loads(),
    ) {
        check_constant(which, &loads);
    }

    #[test]
    fn a_constant_load_comes_to_rest_under_fair_as_well(loads in loads()) {
        check_constant("fair", &loads);
    }

    #[test]
    fn whoever_comes_goes_and_hangs_stops_nobody_for_good(
        which in 0..NAMES.len(),
        loads in loads(),
        presence in presence(),
    ) {
        check_presence(NAMES[which], &loads, &presence);
    }

    #[test]
    fn the_same_readings_give_the_same_actions(
        which in 0..NAMES.len(),
        loads in loads(),
    ) {
        let named: Vec<(u32, Load)> = (1..).zip(loads.iter().copied()).collect();
        let run = || {
            let mut bench = Bench::of(ours(NAMES[which], loads.len() as u32));
            bench.run(seconds(3), |_, slowed| device(&named, slowed));
            (bench.slowed.0.clone(), bench.actions, bench.log())
        };
        prop_assert_eq!(run(), run());
    }
}

#[test]
fn whoever_comes_back_is_told_anew_how_it_is_slowed() {
    let mut bench = Bench::of(ours("limit", 2));
    let both = [(1, Load::READER), (2, Load::READER)];
    bench.run(seconds(1), |_, slowed| device(&both, slowed));
    bench.run(seconds(1), |_, slowed| device(&both[1..], slowed));
    let before = bench.actions;
    bench.run(seconds(1), |_, slowed| device(&both, slowed));
    assert_eq!(bench.actions - before, 1, "its account may be a new one");
    assert_eq!(bench.slowed.of(1), Throttle::Share(0.5));
}

#[test]
fn a_stranger_is_left_alone_and_named_once() {
    let mut bench = Bench::of(ours("fair", 2));
    let three = [(1, Load::READER), (2, Load::READER), (9, Load::WRITER)];
    bench.run(seconds(3), |_, slowed| device(&three, slowed));
    assert_eq!(bench.slowed.of(9), Throttle::Free);
    assert_eq!(bench.log().matches("is not configured").count(), 1);
}
