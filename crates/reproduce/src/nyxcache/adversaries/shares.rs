//! Attacks on shares by weight. An owner that returns must get its share back, and a tenant that is
//! idle by turns must not borrow more than it left.

use entresol_sharing::settings::ProportionalSettings;
use entresol_sharing::{PolicySettings, TenantSettings};

use super::super::scene::{Phase, Story};
use super::super::tenants::{Cast, Device, mean, operations_s, play, share, tenant};
use super::{H, LEFT, MORE_MAX, SECONDS, X, kept, seconds};
use crate::{Check, Side};

/// Second at which the owner returns.
const BACK: f64 = 3.0;
/// Share of the honest tenant.
const OWNER: f64 = 2.0 / 3.0;
/// Seconds for which the attacker is idle and then busy, by turns.
const TURN: f64 = 0.15;
/// Seconds before lending is judged; both tenants begin with their shares by weight.
const WARM: f64 = 1.0;

fn both(device: &Device, policy: ProportionalSettings, x: Vec<Phase>, h: Vec<Phase>) -> Story {
    let cast = Cast::default()
        .with(TenantSettings { weight: 1.0, ..tenant(X, "X") }, x)
        .with(TenantSettings { weight: 2.0, ..tenant(H, "H") }, h);
    let policy = PolicySettings::Proportional(device.proportional(policy));
    play(&device.scene(policy, cast, SECONDS))
}

fn alone(device: &Device, phase: Phase) -> f64 {
    let alone = Cast::default().with(tenant(H, "H"), vec![phase]);
    mean(&play(&device.scene(PolicySettings::None, alone, 1.0)), H, 0.2..1.0, operations_s)
}

/// Returns H's rate in its worst second, divided by its guarantee.
fn least(story: &Story, from: f64, alone: f64) -> f64 {
    let windows = (from as u32..SECONDS as u32).map(f64::from);
    let rate = |from: f64| mean(story, H, from..from + 1.0, operations_s) / alone / OWNER;
    windows.map(rate).fold(f64::MAX, f64::min)
}

pub(super) fn checks(device: &Device) -> Vec<Check> {
    let busy = device.gets(16, 4096);
    let alone = alone(device, busy);
    let mut checks = Vec::new();
    // An owner that was idle has its guarantee from the second in which it returns.
    let back = |policy| {
        let owner = vec![busy.since(seconds(BACK))];
        least(&both(device, policy, vec![device.sets(16, 4096)], owner), BACK, alone)
    };
    let what = "an owner comes back: its worst second over its guarantee";
    checks.push(kept(format!("{what}, ours"), back(ProportionalSettings::default())));
    let paper = back(ProportionalSettings::published());
    checks.push(Check::report(format!("{what}, the paper's"), "", None, paper, LEFT));
    // The attacker is idle and busy by turns, as if it could borrow later what it left.
    let sets = device.sets(16, 4096);
    let turns = |turn: u32| {
        let phase = if turn.is_multiple_of(2) { sets } else { Phase { threads: 0, ..sets } };
        phase.since(seconds(f64::from(turn) * TURN))
    };
    let x: Vec<Phase> = (0..(SECONDS / TURN) as u32).map(turns).collect();
    let by_turns = |policy| {
        let story = both(device, policy, x.clone(), vec![busy]);
        (mean(&story, X, WARM..SECONDS, share) / (1.0 - OWNER), least(&story, WARM, alone))
    };
    let ours = by_turns(ProportionalSettings::default());
    let paper = by_turns(ProportionalSettings::published());
    let what = "idle by turns: use over its share by weight";
    checks.push(Check::limit(format!("{what}, ours"), "", Side::AtMost, MORE_MAX, ours.0));
    checks.push(Check::report(format!("{what}, the paper's"), "", None, paper.0, LEFT));
    let what = "idle by turns: the busy owner's worst second over its guarantee";
    checks.push(kept(format!("{what}, ours"), ours.1));
    checks.push(Check::report(format!("{what}, the paper's"), "", None, paper.1, LEFT));
    checks
}
