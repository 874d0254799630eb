//! Fair slowdown: one scripted case for each branch of algorithm 3, and the pauses by which
//! alone-performance is learnt.

use std::collections::BTreeMap;

use crate::common::{Bench, Load, MS, Rates, Slowed, device, millis, seconds, tenant};
use entresol_base::Nanos;
use entresol_base::rng::Rng;
use entresol_sharing::settings::{FairPace, FairSettings};
use entresol_sharing::{PolicySettings, TenantId, TenantSettings, Throttle};

fn bench(fair: FairSettings, tenants: Vec<TenantSettings>) -> Bench {
    Bench::new(PolicySettings::Fair(fair), tenants)
}

fn light() -> Load {
    Load { threads: 1.0, think_ns: 100.0, ..Load::READER }
}

fn intensive() -> Load {
    Load { threads: 16.0, disturbs: 1.5, ..Load::READER }
}

/// The largest weighted slowdown over the smallest.
fn unfairness(bench: &Bench, ids: &[u32]) -> f64 {
    let slowdowns: Vec<f64> =
        ids.iter().map(|id| bench.controller.slowdown(TenantId(*id)).unwrap_or(f64::NAN)).collect();
    let of = |pick: fn(f64, f64) -> f64| slowdowns.iter().copied().reduce(pick).unwrap_or(f64::NAN);
    of(f64::max) / of(f64::min)
}

#[test]
fn slowdowns_become_equal_and_stay_so() {
    let loads = [(1, light()), (2, intensive())];
    let mut bench = bench(FairSettings::default(), vec![tenant(1), tenant(2)]);
    bench.run(millis(150), |_, slowed| device(&loads, slowed));
    let before = unfairness(&bench, &[1, 2]);
    assert!(before > 1.3, "{before} {}", bench.log());
    bench.run(seconds(10), |_, slowed| device(&loads, slowed));
    let after = unfairness(&bench, &[1, 2]);
    assert!(after <= 1.05, "{after} {}", bench.log());
    assert!(matches!(bench.slowed.of(2), Throttle::Share(_)), "the least slowed is slowed");
    assert_eq!(bench.slowed.of(1), Throttle::Free, "the most slowed is released");
    let mut worst: f64 = 0.0;
    for _ in 0..120 {
        bench.run(seconds(1), |_, slowed| device(&loads, slowed));
        worst = worst.max(unfairness(&bench, &[1, 2]));
    }
    assert!(worst <= 1.12, "{worst} {}", bench.log());
}

#[test]
fn the_published_pace_slows_by_units_of_ten_nanoseconds() {
    let loads = [(1, light()), (2, intensive())];
    let fair = FairSettings { pace: FairPace::Delays(5), ..FairSettings::default() };
    let mut bench = bench(fair, vec![tenant(1), tenant(2)]);
    bench.run(seconds(20), |_, slowed| device(&loads, slowed));
    assert!(matches!(bench.slowed.of(2), Throttle::Delay(units) if units >= 5), "{}", bench.log());
    let after = unfairness(&bench, &[1, 2]);
    assert!(after <= 1.1, "{after} {}", bench.log());
}

#[test]
fn after_fair_rounds_all_are_released_a_step() {
    let loads = [(1, light()), (2, intensive())];
    let mut bench = bench(FairSettings::default(), vec![tenant(1), tenant(2)]);
    bench.run(seconds(20), |_, slowed| device(&loads, slowed));
    assert!(bench.said("all has been fair for a while"), "{}", bench.log());
    // The disturbance is over: the tenant slowed for it is free again before long.
    let alike = [(1, Load::READER), (2, Load::READER)];
    bench.run(seconds(120), |_, slowed| device(&alike, slowed));
    assert!(bench.slowed.of(2).share_max() > 0.4, "{}", bench.log());
}

#[test]
fn weights_make_slowdowns_unequal_by_as_much() {
    let loads = [(1, intensive()), (2, intensive())];
    let heavy = TenantSettings { weight: 1.5, ..tenant(1) };
    let mut bench = bench(FairSettings::default(), vec![heavy, tenant(2)]);
    bench.run(seconds(20), |_, slowed| device(&loads, slowed));
    let of = |id| bench.controller.slowdown(TenantId(id)).expect("known");
    let ratio = of(2) / of(1);
    assert!((ratio / 1.5 - 1.0).abs() <= 0.08, "{ratio} {}", bench.log());
}

#[test]
fn a_limit_of_slowdown_is_kept_at_the_others_cost_and_no_further() {
    let guarded = TenantSettings { slowdown_max: Some(1.5), ..tenant(1) };
    let fair = FairSettings { equalise: false, ..FairSettings::default() };
    let mut bench = bench(fair, vec![guarded, tenant(2), tenant(3)]);
    let night = [(1, light()), (2, Load::READER), (3, Load { threads: 0.1, ..Load::WRITER })];
    bench.run(seconds(5), |_, slowed| device(&night, slowed));
    assert!(bench.slowed.0.values().all(|throttle| *throttle == Throttle::Free));
    let day = [(1, light()), (2, intensive()), (3, Load::WRITER)];
    bench.run(seconds(5), |_, slowed| device(&day, slowed));
    let mut used = 0.0;
    for second in 0..30 {
        bench.run(seconds(1), |_, slowed| device(&day, slowed));
        let slowdown = bench.controller.slowdown(TenantId(1)).expect("known");
        assert!(slowdown <= 1.5, "{slowdown} in second {second} {}", bench.log());
        used += bench.last[&2].used() + bench.last[&3].used();
    }
    assert!(used / 30.0 > 0.1, "the others go on: {}", used / 30.0);
    bench.run(seconds(120), |_, slowed| device(&night, slowed));
    assert!(bench.slowed.of(2).share_max() > 0.3, "by night they are released: {}", bench.log());
}

#[test]
fn a_pause_stops_all_others_frees_the_one_and_leaves_no_trace() {
    let loads = [(1, light()), (2, intensive()), (3, Load::WRITER)];
    let fair = FairSettings { unfairness_max: 3.0, rounds: u32::MAX, ..FairSettings::default() };
    let mut bench = bench(fair, vec![tenant(1), tenant(2), tenant(3)]);
    bench.run(seconds(5), |_, slowed| device(&loads, slowed));
    // From now on nothing but pauses changes anything.
    let before = bench.slowed.0.clone();
    let (mut in_pause, mut pauses, mut paused_ms) = (false, 0, 0);
    for _ in 0..20_000 {
        bench.run(millis(1), |_, slowed| device(&loads, slowed));
        let trying = bench.controller.is_trying();
        let count = |throttle| bench.slowed.0.values().filter(|t| **t == throttle).count();
        if trying {
            let others = (count(Throttle::Stopped), count(Throttle::Free));
            assert_eq!(others, (2, 1), "{:?}", bench.slowed);
        } else {
            assert_eq!(bench.slowed.0, before, "restored to the bit");
        }
        pauses += u32::from(trying && !in_pause);
        paused_ms += u32::from(trying);
        in_pause = trying;
    }
    // Three tenants a second, each for a millisecond, in twenty seconds.
    assert!((40..90).contains(&pauses), "{pauses}");
    assert!(paused_ms <= 2 * pauses, "{paused_ms}");
}

#[test]
fn a_pause_ends_when_its_tenant_goes() {
    let loads = [(1, light()), (2, intensive())];
    let mut bench = bench(FairSettings::default(), vec![tenant(1), tenant(2)]);
    while !bench.controller.is_trying() {
        bench.run(millis(1), |_, slowed| device(&loads, slowed));
    }
    let gone = (1..=2).find(|id| bench.slowed.of(*id) == Throttle::Free).expect("measured");
    bench.run(millis(20), |_, slowed| {
        let mut rates = device(&loads, slowed);
        rates.remove(&gone);
        rates
    });
    let other = 3 - gone;
    assert_ne!(bench.slowed.of(other), Throttle::Stopped);
}

/// A drive on a busy machine. Each tenant's speed varies by a third either way, one of twenty
/// stretches of 30 ms serves none, and the writer's data in the drive's buffer disturbs the reader
/// for 55 ms after the writer has stopped.
struct Drive {
    loads: [(u32, Load); 2],
    stopped_at: Option<Nanos>,
}

const READS: u32 = 1;
const WRITES: u32 = 2;

impl Drive {
    fn new() -> Drive {
        let reader = Load {
            threads: 16.0,
            cost_ns: 13_000.0,
            base_ns: 250_000.0,
            bytes_each: 4096.0,
            disturbs: 0.3,
            ..Load::READER
        };
        let writer = Load { cost_ns: 60_000.0, is_writing: true, disturbs: 3.0, ..reader };
        Drive { loads: [(READS, reader), (WRITES, writer)], stopped_at: None }
    }

    fn rates(&mut self, now: Nanos, slowed: &Slowed) -> BTreeMap<u32, Rates> {
        let is_stopped = slowed.of(WRITES) == Throttle::Stopped;
        self.stopped_at = is_stopped.then(|| self.stopped_at.unwrap_or(now));
        let is_draining = self.stopped_at.is_some_and(|at| now.since(at) < millis(55));
        let mut seen = slowed.clone();
        if is_draining {
            seen.0.insert(TenantId(WRITES), Throttle::Free);
        }
        let mut rates = device(&self.loads, &seen);
        for (&id, rates) in &mut rates {
            let mut rng =
                Rng::named(now.0 / (30 * MS), if id == READS { "reads" } else { "writes" });
            let stall = Rng::named(now.0 / (30 * MS), "all").next_f64() < 0.05;
            let part = if stall { 0.0 } else { 0.67 + 0.66 * rng.next_f64() };
            rates.operations_s *= if is_draining && id == WRITES { 0.0 } else { part };
        }
        rates
    }

    /// Slowdown of each tenant compared with being alone, without the variations.
    fn slowdowns(&self, slowed: &Slowed) -> BTreeMap<u32, f64> {
        let together = device(&self.loads, slowed);
        let alone = |load| device(&[load], &Slowed::default());
        let of = |load: &(u32, Load)| {
            let id = load.0;
            (id, alone(*load)[&id].operations_s / together[&id].operations_s)
        };
        self.loads.iter().map(of).collect()
    }
}

#[test]
fn on_a_restless_drive_slowdowns_are_shown_right_and_a_constant_load_comes_to_rest() {
    let mut drive = Drive::new();
    let mut bench = bench(FairSettings::default(), vec![tenant(READS), tenant(WRITES)]);
    bench.run(seconds(60), |now, slowed| drive.rates(now, slowed));
    let settled = bench.controller.decisions().total();
    let (mut shown, mut truly) = ([0.0; 2], [0.0; 2]);
    let (mut worst, mut count) = (1.0_f64, 0.0);
    while count < 60.0 {
        bench.run(seconds(1), |now, slowed| drive.rates(now, slowed));
        if bench.controller.is_trying() {
            continue;
        }
        count += 1.0;
        let right = drive.slowdowns(&bench.slowed);
        for (place, id) in [READS, WRITES].into_iter().enumerate() {
            let of = bench.controller.slowdown(TenantId(id)).expect("known");
            shown[place] += of;
            truly[place] += right[&id];
            worst = worst.max(of / right[&id]).max(right[&id] / of);
        }
    }
    for place in 0..2 {
        let ratio = shown[place] / truly[place];
        assert!((0.85..1.15).contains(&ratio), "{ratio}: {shown:?} {truly:?} {}", bench.log());
    }
    assert!(worst < 1.4, "{worst} {}", bench.log());
    let unfairness = truly[0].max(truly[1]) / truly[0].min(truly[1]);
    assert!(unfairness < 1.2, "{unfairness} {}", bench.log());
    let decisions = bench.controller.decisions().total() - settled;
    assert!(decisions <= 60, "{decisions} in a minute: {}", bench.log());
}

#[test]
fn on_a_slow_drive_pauses_are_long_and_take_a_fortieth_of_the_time() {
    let mut drive = Drive::new();
    let mut bench = bench(FairSettings::default(), vec![tenant(READS), tenant(WRITES)]);
    bench.run(seconds(30), |now, slowed| drive.rates(now, slowed));
    let (mut in_pause, mut pauses, mut paused_ms) = (false, 0, 0);
    for _ in 0..120_000 {
        bench.run(millis(1), |now, slowed| drive.rates(now, slowed));
        let trying = bench.controller.is_trying();
        pauses += u32::from(trying && !in_pause);
        paused_ms += u32::from(trying);
        in_pause = trying;
    }
    let part = f64::from(paused_ms) / 120_000.0;
    assert!((0.018..0.029).contains(&part), "{part} in {pauses} pauses");
    let each_ms = f64::from(paused_ms) / f64::from(pauses);
    assert!((75.0..95.0).contains(&each_ms), "{each_ms} ms each");
}
