//! The simulated world: tenants on a model of a device, under the shipped controller and accounts.

use std::sync::Arc;
use std::time::Duration;

use entresol_media::model::memory::AEP;
use entresol_media::{Access, CostTable};
use entresol_sharing::{PolicySettings, Settings, TenantId, TenantSettings};

use super::*;

const L: TenantId = TenantId(1);
const U: TenantId = TenantId(2);
const THINK: Duration = Duration::from_nanos(200);

fn scene(policy: PolicySettings, tenants: Vec<TenantSettings>, actors: Vec<Actor>) -> Scene {
    Scene {
        device: AEP,
        costs: Arc::new(CostTable::published()),
        settings: Settings::new("model:aep", policy, tenants),
        actors,
        time: Duration::from_millis(60),
        moment: Duration::from_millis(10),
        background_is_charged: true,
        units_are_charged: true,
        seed: 1,
    }
}

fn play(scene: &Scene) -> Story {
    scene.play().expect("good settings")
}

#[test]
fn a_limit_is_kept_to_the_grant_and_one_seed_is_one_story() {
    let limited = TenantSettings { share_max: vec![Some(0.2)], ..TenantSettings::new(L, "l") };
    let policy = PolicySettings::named("limit").expect("a policy");
    let actors = vec![
        Actor::steady(L, Phase::sets(4, 256, THINK)),
        Actor::steady(U, Phase::gets(2, 1024, THINK)),
    ];
    let scene = scene(policy, vec![limited, TenantSettings::new(U, "u")], actors);
    let story = play(&scene);
    let share = story.mean(L, Duration::from_millis(20), |m| m.share).expect("moments");
    assert!((share / 0.2 - 1.0).abs() < 0.01, "{share}");
    assert_eq!(story, play(&scene));
}

#[test]
fn pauses_show_how_fast_a_tenant_is_alone() {
    let tenants = vec![TenantSettings::new(L, "l"), TenantSettings::new(U, "u")];
    let actors = vec![
        Actor::steady(L, Phase::gets(1, 256, THINK)),
        Actor::steady(U, Phase::sets(8, 4096, THINK)),
    ];
    let none = scene(PolicySettings::None, tenants.clone(), actors.clone());
    let rate = |m: &TenantMoment| m.operations_s;
    let alone = Scene { actors: vec![actors[0].clone()], ..none.clone() };
    let warm = Duration::from_millis(20);
    let alone = play(&alone).mean(L, warm, rate).expect("moments");
    let shared = play(&none).mean(L, warm, rate).expect("moments");
    let fair = scene(PolicySettings::named("fair").expect("a policy"), tenants, actors);
    let story = play(&Scene { time: Duration::from_millis(150), ..fair });
    let first = story.of(L, warm).find_map(|(_, m)| m.slowdown).expect("found out");
    let real = alone / shared;
    assert!(real > 1.2, "{real}: it is disturbed");
    assert!((first / real - 1.0).abs() < 0.1, "{first}, really {real}");
}

#[test]
fn a_schedule_is_followed() {
    let early = Phase::gets(2, 256, THINK);
    let late = Phase { from: Duration::from_millis(30), threads: 0, ..early };
    let actors = vec![Actor { tenant: L, phases: vec![early, late], cache: None }];
    let scene = scene(PolicySettings::None, vec![TenantSettings::new(L, "l")], actors);
    let story = play(&scene);
    let went_on = |from_ms: u64, to_ms: u64| {
        let within = |at: u64| at > from_ms * 1_000_000 && at <= to_ms * 1_000_000;
        let mut moments = story.of(L, Duration::ZERO).filter(|(at, _)| within(at.0));
        moments.all(|(_, moment)| moment.operations_s > 0.0)
    };
    let stood_still = |from_ms: u64| {
        let mut moments = story.of(L, Duration::from_millis(from_ms));
        moments.all(|(_, moment)| moment.operations_s == 0.0)
    };
    // Requests that were under way when the loops ended may be answered a little later.
    assert!(went_on(0, 30) && stood_still(40), "{:?}", story.moments);
    assert_eq!(story.moments.len(), 6);
}

const X: TenantId = TenantId(1);
const LIMIT: f64 = 0.1;

/// X under a limit beside a reader, for 200 ms.
fn limited(phases: Vec<Phase>) -> Story {
    let x = TenantSettings { share_max: vec![Some(LIMIT)], ..TenantSettings::new(X, "x") };
    let reader = TenantId(2);
    let tenants = vec![x, TenantSettings::new(reader, "reader")];
    let policy = PolicySettings::named("limit").expect("a policy");
    let scene = Scene {
        device: AEP,
        costs: Arc::new(CostTable::published()),
        settings: Settings::new("model:aep", policy, tenants),
        actors: vec![
            Actor { tenant: X, phases, cache: None },
            Actor::steady(reader, Phase::gets(2, 1024, THINK)),
        ],
        time: Duration::from_millis(200),
        moment: Duration::from_millis(10),
        background_is_charged: true,
        units_are_charged: true,
        seed: 1,
    };
    scene.play().expect("good settings")
}

/// X's use over its limit, each request taking so much of the device.
fn use_over_limit(story: &Story, request_ns: f64) -> f64 {
    let used = story.mean(X, Duration::ZERO, |m| m.operations_s * request_ns / 1e9);
    used.expect("moments") / LIMIT
}

#[test]
fn nobody_gets_more_than_its_limit_by_bursts_borders_small_requests_or_debts() {
    let costs = CostTable::published();
    let write_ns = |bytes| costs.cost_ns(Access::Write, bytes);
    let set = Phase::sets(8, 256, THINK);
    // What 200 ms allow, the 10 ms that are saved up once included.
    let most = 1.02 * (1.0 + 10.0 / 200.0);
    let bursts = (0..8_u64).flat_map(|burst| {
        let from = |ms| Duration::from_millis(burst * 25 + ms);
        [set.since(from(0)), Phase { threads: 0, ..set.since(from(4)) }]
    });
    let astride = Phase { trick: Trick::Astride { bytes: 128 }, ..set };
    let debt = Phase { trick: Trick::Debt { bytes: 1.0 }, ..Phase::sets(4, 4096, THINK) };
    let debt_ns = 2.0 * write_ns(4096) + costs.cost_ns(Access::Read, 4096);
    for (what, phases, request_ns, least) in [
        ("full speed", vec![set], write_ns(256), 0.98),
        ("bursts", bursts.collect(), write_ns(256), 0.3),
        (
            "64 loops of 64 B",
            vec![Phase::gets(64, 64, THINK)],
            costs.cost_ns(Access::Read, 64),
            0.9,
        ),
        ("256 B astride two units", vec![astride], write_ns(512), 0.98),
        ("sets to be cleaned up later", vec![debt], debt_ns, 0.9),
    ] {
        let used = use_over_limit(&limited(phases), request_ns);
        assert!(used <= most, "{what}: {used}");
        assert!(used >= least, "{what}: {used}: it goes on, at its limit");
    }
}
