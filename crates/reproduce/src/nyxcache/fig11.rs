//! Figure 11: idle shares, and the cost to their owner of lending them.

use std::time::Duration;

use entresol_sharing::settings::{Donation, ProportionalSettings};
use entresol_sharing::{PolicySettings, TenantId, TenantSettings};

use super::scene::{Phase, Story};
use super::tenants::{
    Cast, Device, drawing_beside, level, line, mean, operations_s, play, tenant, values,
};
use crate::{Check, Outcome, Settings, Side};

/// Owner of idle shares, and the tenant that can use them.
pub(super) const A: TenantId = TenantId(1);
pub(super) const B: TenantId = TenantId(2);
const SLOWER: u32 = 50;
const WEIGHTS: [f64; 2] = [2.0, 1.0];
/// A's part by weight.
pub(super) const PART: f64 = 2.0 / 3.0;
/// A's rate alone divided by its rate at that part.
pub(super) const SLOWDOWN_MAX: f64 = 1.5;
/// Loops of B: sets saturate the device, gets leave time for the requests of A.
const B_SETTERS: u32 = 16;
const B_GETTERS: u32 = 4;
const B_GET_BYTES: u64 = 1024;
const BYTES: u64 = 4096;
/// Seconds after which the policy must have settled; the measurement lasts from then to the end.
const SETTLED: f64 = 3.0;
const END: f64 = 8.0;
/// Seconds of a window; every window is judged by itself.
const WINDOW: f64 = 1.0;

/// Returns A's phase: gets at a rate that uses the share `used` of A's part.
pub(super) fn a(device: &Device, used: f64) -> Phase {
    let rate = device.rate(used * PART * device.most(entresol_media::Access::Read, BYTES));
    // The number of loops lets each spend a good part of its time on requests.
    let threads = ((used * 5.0).round() as u32).max(1);
    let each = Duration::from_secs_f64(f64::from(threads) / rate);
    Phase { think: each.saturating_sub(device.time(LATENCY)), ..device.gets(threads, BYTES) }
}

/// Time of a get of 4 KB on the idle device.
const LATENCY: Duration = Duration::from_nanos(1_220);

pub(super) fn b(device: &Device, gets: bool) -> Phase {
    if gets { device.gets(B_GETTERS, B_GET_BYTES) } else { device.sets(B_SETTERS, BYTES) }
}

pub(super) fn policy(donation: Donation) -> ProportionalSettings {
    match donation {
        Donation::Adaptive => ProportionalSettings::default(),
        donation => ProportionalSettings { donation, ..ProportionalSettings::default() },
    }
}

pub(super) fn both(
    device: &Device,
    policy: ProportionalSettings,
    phases: [Phase; 2],
    end: f64,
) -> Story {
    let weighted = |id, name, weight| TenantSettings { weight, ..tenant(id, name) };
    let cast = Cast::default()
        .with(weighted(A, "A", WEIGHTS[0]), vec![phases[0]])
        .with(weighted(B, "B", WEIGHTS[1]), vec![phases[1]]);
    play(&device.scene(PolicySettings::Proportional(policy), cast, end))
}

pub(super) fn alone(device: &Device, phase: Phase) -> f64 {
    let cast = Cast::default().with(tenant(A, "A"), vec![phase]);
    mean(&play(&device.scene(PolicySettings::None, cast, 2.0)), A, 0.5..2.0, operations_s)
}

/// Returns a tenant's lowest rate in any second after settling, divided by `whole`.
fn least(story: &Story, id: TenantId, whole: f64) -> f64 {
    let seconds = (SETTLED as u32..END as u32).map(|second| {
        let from = f64::from(second);
        mean(story, id, from..from + WINDOW, operations_s) / whole
    });
    seconds.fold(f64::MAX, f64::min)
}

fn settled(story: &Story, id: TenantId) -> f64 {
    mean(story, id, SETTLED..END, operations_s)
}

pub(super) fn fig11a(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let a = a(&device, 0.25);
    let alone = alone(&device, a);
    let mut checks = Vec::new();
    let mut drawings = Vec::new();
    for (gets, what) in [(true, "gets"), (false, "sets")] {
        let phases = [a, b(&device, gets)];
        let run = |donation| both(&device, policy(donation), phases, END);
        let (never, naive) = (run(Donation::Never), run(Donation::Naive));
        let (published, ours) = (
            both(&device, ProportionalSettings::published(), phases, END),
            run(Donation::Adaptive),
        );
        let gained = settled(&naive, B) / settled(&never, B);
        let kept = settled(&naive, A) / alone;
        if gets {
            let what = "naive, B gets: A, which loses little";
            let check = Check::limit(what, "of alone", Side::AtLeast, 0.9, kept);
            checks.push(check.beside("nominally less").published());
            let what = "naive, B gets: B, which gains much";
            let check = Check::limit(what, "times", Side::AtLeast, 1.5, gained);
            checks.push(check.beside("much more").published());
        } else {
            let what = "naive, B sets: A's slowdown, below two thirds of alone";
            let check = Check::limit(what, "times", Side::Above, SLOWDOWN_MAX, 1.0 / kept);
            let gained = format!("B at {gained:.2} times");
            checks.push(check.beside("below its floor").published().noting(gained));
        }
        let name = format!("A's slowdown in the worst second, B {what}");
        checks.push(floor(name, least(&ours, A, alone)));
        let name = format!("B {what}: B with donation over without");
        let over = settled(&ours, B) / settled(&never, B);
        checks.push(Check::limit(name, "", Side::AtLeast, 1.0, over).beside("not below"));
        let paper = least(&published, A, alone);
        let why = "the paper's epochs and steps, for comparison";
        let name = format!("as published: A in the worst second, B {what}");
        checks.push(Check::report(name, "of alone", None, paper, why).published());
        let series = |story: &Story, id, whole: f64| -> Vec<(f64, f64)> {
            values(story, id, 0.0..END, move |m| m.operations_s / whole).collect()
        };
        let b_alone = settled(&naive, B).max(settled(&ours, B));
        for (name, story) in [("naive", &naive), ("ours", &ours)] {
            drawings.push(drawing_beside(
                &format!("B {what}, {name} donation (model)"),
                ("seconds", "of alone; B: of its best"),
                &[line("A", series(story, A, alone)), line("B", series(story, B, b_alone))],
                &[level("A's floor", 0.0, END, 1.0 / SLOWDOWN_MAX)],
            ));
        }
    }
    Outcome { scenario: scenario(&device), checks, drawings }
}

/// Checks the floor of two thirds, without grace.
fn floor(what: String, ours: f64) -> Check {
    Check::limit(what, "times", Side::AtMost, SLOWDOWN_MAX, 1.0 / ours)
}

pub(super) fn scenario(device: &Device) -> Vec<String> {
    vec![
        format!(
            "A: gets of 4 KB, weight 2, with so few loops and so long thinking that it uses a \
             part of its share alone; B: {B_GETTERS} loops of gets of 1 KB or {B_SETTERS} of sets \
             of 4 KB, weight 1 (loops and sizes chosen). Judged from {SETTLED} s on, second by \
             second."
        ),
        device.told(),
    ]
}

pub(super) fn fig11b(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let mut checks = Vec::new();
    let (mut naive_worst, mut rows): (f64, [Vec<(f64, f64)>; 3]) = (0.0, Default::default());
    for idle in [0, 25, 50, 75] {
        let a = a(&device, 1.0 - f64::from(idle) / 100.0);
        let alone = alone(&device, a);
        let run = |donation, gets| both(&device, policy(donation), [a, b(&device, gets)], END);
        let [never, naive, ours] = [Donation::Never, Donation::Naive, Donation::Adaptive]
            .map(|donation| run(donation, false));
        let slowdown = |story: &Story| 1.0 / least(story, A, alone);
        naive_worst = naive_worst.max(slowdown(&naive));
        let what = format!("A's slowdown in the worst second, {idle}% idle, B sets");
        checks.push(floor(what, 1.0 / slowdown(&ours)));
        let gain = settled(&ours, B) / settled(&never, B);
        let what = format!("B with donation over without, {idle}% idle, B sets");
        checks.push(Check::at_least(what, "", 1.0, gain));
        for (row, story) in rows.iter_mut().zip([&never, &naive, &ours]) {
            row.push((f64::from(idle), slowdown(story)));
        }
        let (naive, ours) = (run(Donation::Naive, true), run(Donation::Adaptive, true));
        let near = settled(&ours, B) / settled(&naive, B);
        let what = format!("B over naive donation, {idle}% idle, B gets");
        checks.push(Check::at_least(what, "", 1.0, near));
    }
    checks.insert(
        0,
        Check::limit(
            "naive: A's slowdown in the worst second, B sets, in at least one case",
            "times",
            Side::Above,
            SLOWDOWN_MAX,
            naive_worst,
        )
        .published(),
    );
    let [never, naive, ours] = rows;
    Outcome {
        scenario: scenario(&device),
        checks,
        drawings: vec![drawing_beside(
            "A's slowdown in the worst second (model)",
            ("% of A's share that is idle", "times"),
            &[line("no donation", never), line("naive", naive), line("ours", ours)],
            &[level("A's floor", 0.0, 75.0, SLOWDOWN_MAX)],
        )],
    }
}
