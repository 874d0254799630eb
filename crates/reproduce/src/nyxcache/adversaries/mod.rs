//! Tenants that try to get more than their due, which the paper leaves for later (section 5). Its
//! own algorithms run beside ours. No figure of the paper shows this.

mod limits;
mod shares;
mod slowdowns;
mod targets;

use std::time::Duration;

use entresol_measure::report::svg::bars;
use entresol_sharing::TenantId;

use super::tenants::Device;
use crate::{Check, Outcome, Settings, Side};

/// Attacking tenant and honest tenant.
const X: TenantId = TenantId(1);
const H: TenantId = TenantId(2);
const SLOWER: u32 = 50;
/// Factor by which the device of shares is slowed. It is less, since pauses that show performance
/// alone are stretched like the device, and each costs the owner its length of a second.
const SHARES_SLOWER: u32 = 10;
const SECONDS: f64 = 6.0;
/// Largest long-run use relative to the limit, apart from the bucket of 10 ms.
const MORE_MAX: f64 = 1.02;
/// Largest loss of an honest tenant's guarantee: in any second under limits and shares, in any half
/// minute under the policies that learn.
const LESS_MAX: f64 = 0.05;
/// Seconds of a run of the policies that learn, on a device that is slowed correspondingly.
const LONG: f64 = 30.0;
const LONG_SLOWER: u32 = 300;
/// Reason why the results of the paper's own algorithms are only reported.
const LEFT: &str = "the paper leaves attacks for later";

fn seconds(seconds: f64) -> Duration {
    Duration::from_secs_f64(seconds)
}

/// Checks the rate of an honest tenant relative to its guarantee.
fn kept(what: String, ours: f64) -> Check {
    Check::limit(what, "", Side::AtLeast, 1.0 - LESS_MAX, ours)
}

pub(super) fn adversaries(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let shares = Device::slower(SHARES_SLOWER, settings.seed);
    let long = Device::slower(LONG_SLOWER, settings.seed);
    let mut drawn = Vec::new();
    let mut checks = limits::checks(&device, &mut drawn);
    checks.extend(shares::checks(&shares));
    checks.extend(slowdowns::checks(&long));
    checks.extend(targets::checks(&long));
    Outcome {
        scenario: vec![
            "Limits: X tries to get more than its limit beside two loops of gets of 4 KB. Shares: \
             an owner of two thirds is idle, its share is lent to one that sets at full speed, \
             and comes back; and X, with a third, is idle and busy by turns of 150 ms."
                .to_owned(),
            device.told(),
            format!("That of shares is slowed {SHARES_SLOWER} times. {}", shares.told_pauses()),
            format!("Slowdowns and targets are watched for {LONG} s. {}", long.told()),
        ],
        checks,
        drawings: vec![bars("Use over limit (model)", "times", &drawn)],
    }
}
