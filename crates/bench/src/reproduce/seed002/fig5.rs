//! Figure 5, part b: what learning each tenant's performance alone costs all of them.

use std::time::Duration;

use entresol_sharing::settings::{AloneSettings, FairSettings};
use entresol_sharing::{PolicySettings, TenantId};

use super::tenants::{Cast, Device, drawing, line, mean, operations_s, play, tenant};
use crate::reproduce::{Check, Outcome, Settings};

const SLOWER: u32 = 50;
const COUNTS: [u32; 4] = [2, 4, 8, 12];
/// How often each tenant's performance alone is refreshed, in seconds.
const PERIODS: [f64; 3] = [0.5, 1.0, 10.0];
const BYTES: u64 = 1024;
/// The first pauses are over by then.
const WARM: f64 = 0.5;

/// Requests a second of all tenants together; with pauses in this period, or without.
fn rate(device: &Device, count: u32, period: Option<f64>) -> f64 {
    let policy = period.map_or(PolicySettings::None, |period| {
        let alone = AloneSettings {
            period: Duration::from_secs_f64(period),
            // The device is slowed: as many requests as in a millisecond of the real one are not
            // waited for, so that a pause lasts what the paper's do.
            operations_min: 1,
            ..AloneSettings::default()
        };
        PolicySettings::Fair(FairSettings { alone, equalise: false, ..FairSettings::default() })
    });
    let ids = || (1..=count).map(TenantId);
    let cast = ids().fold(Cast::default(), |cast, id| {
        cast.with(tenant(id, &format!("tenant {}", id.0)), vec![device.gets(1, BYTES)])
    });
    // Whole periods, so that each tenant is alone as often as it should be.
    let seconds = period.map_or(1.0, |period| period.max(4.0));
    let story = play(&device.scene(policy, cast, WARM + seconds));
    ids().map(|id| mean(&story, id, WARM..WARM + seconds, operations_s)).sum()
}

pub(super) fn fig5b(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let mut rows: Vec<Vec<(f64, f64)>> = vec![Vec::new(); PERIODS.len()];
    for count in COUNTS {
        let free = rate(&device, count, None);
        for (row, period) in rows.iter_mut().zip(PERIODS) {
            // Ten seconds are as good as nothing, and long: with all tenants only.
            if period < 10.0 || count == 12 {
                let cost = (1.0 - rate(&device, count, Some(period)) / free) * 100.0;
                row.push((f64::from(count), cost));
            }
        }
    }
    let of_twelve = |row: usize| rows[row].last().map_or(f64::NAN, |(_, cost)| *cost);
    let check = |what: &str, most: f64, ours: f64| Check {
        tolerance: format!("below {most}%"),
        pass: ours < most,
        ..Check::at_most(format!("cost of pauses, 12 tenants, {what}"), "%", most, ours)
    };
    let checks = vec![
        check("every 0.5 s", 2.5, of_twelve(0)),
        check("every second", 2.0, of_twelve(1)),
        check("every 10 s", 2.0, of_twelve(2)),
    ];
    let lines = rows
        .into_iter()
        .zip(PERIODS)
        .map(|(row, period)| line(&format!("every {period} s"), row))
        .collect();
    Outcome {
        scenario: vec![
            "Each tenant is a loop of gets of 1 KB (chosen); pauses of 1 ms, one tenant at a time, \
             at random times around the period; the cost is requests of all tenants together \
             against no pauses."
                .to_owned(),
            device.told(),
        ],
        checks,
        drawings: vec![drawing("Cost of pauses (model)", "tenants", "% of requests", lines)],
    }
}
