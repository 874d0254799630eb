//! Figure 6: why queue depth misleads, a worked example, simulated and by Little's law.

use entresol_base::Picos;
use entresol_base::rng::Rng;

use crate::{Check, Outcome, Settings};

const HOST: Picos = Picos::from_micros(10);
const REQUESTS: u64 = 200_000;

/// Measurements of one case.
#[derive(Debug, Clone, Copy)]
pub(super) struct Seen {
    /// Requests in the drive, averaged over time.
    pub(super) in_drive: f64,
    /// Requests in host and drive, averaged over time.
    pub(super) in_system: f64,
    /// Share of the time in which the drive is idle.
    pub(super) idle: f64,
}

/// Counts requests in the drive over time. They arrive every `gap`, or with that mean if `rng` is
/// given.
pub(super) fn simulate(drive: Picos, gap: Picos, mut rng: Option<Rng>) -> Seen {
    let half = Picos(HOST.0 / 2);
    let mut at = Picos::ZERO;
    let (mut drive_time, mut system_time, mut busy, mut busy_until) = (0, 0, 0, Picos::ZERO);
    for _ in 0..REQUESTS {
        let (enters, leaves) = (at.after(half), at.after(half).after(drive));
        drive_time += leaves.since(enters).0;
        system_time += leaves.after(half).since(at).0;
        busy += leaves.since(enters.max(busy_until)).0;
        busy_until = busy_until.max(leaves);
        at = at.after(match &mut rng {
            Some(rng) => rng.poisson_gap(gap),
            None => gap,
        });
    }
    let whole = at.0 as f64;
    Seen {
        in_drive: drive_time as f64 / whole,
        in_system: system_time as f64 / whole,
        idle: 1.0 - busy as f64 / whole,
    }
}

pub(super) fn fig6(settings: &Settings) -> Outcome {
    let us = Picos::from_micros;
    let mut checks = Vec::new();
    for (case, drive, gap, in_drive, in_system) in [
        ("a: drive of 100 us, one per 20 us", us(100), us(20), 5.0, 5.5),
        ("b: drive of 10 us, one per 20 us", us(10), us(20), 0.5, 1.0),
        ("c: drive of 10 us, one per 4 us", us(10), us(4), 2.5, 5.0),
    ] {
        let even = simulate(drive, gap, None);
        let poisson = simulate(drive, gap, Some(Rng::named(settings.seed, "004-fig6")));
        let little = drive.0 as f64 / gap.0 as f64;
        checks.push(Check::about(format!("{case}: in the drive"), "", in_drive, even.in_drive, 1));
        checks.push(Check::about(
            format!("{case}: in the drive, Poisson"),
            "",
            in_drive,
            poisson.in_drive,
            1,
        ));
        checks.push(Check::about(
            format!("{case}: in the drive, rate x time"),
            "",
            in_drive,
            little,
            1,
        ));
        checks.push(Check::about(
            format!("{case}: in host and drive"),
            "",
            in_system,
            even.in_system,
            1,
        ));
        if in_drive < 1.0 {
            checks.push(Check::about(format!("{case}: idle share"), "", 0.5, even.idle, 1));
        }
    }
    let scenario = vec![
        "10 us of host time, half before and half after the drive; requests come evenly."
            .to_owned(),
        "The paper prints 5, 0.5 and 2.5 in the drive and 5 in the system of case c; the other \
         two follow."
            .to_owned(),
    ];
    Outcome { scenario, checks, drawings: Vec::new() }
}
