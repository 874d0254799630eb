//! Against equal slow-downs: who sees that the others are paused, by its response times, races then
//! to look slowed ever after.

use std::time::Duration;

use entresol_sharing::scene::{Phase, Story, Trick};
use entresol_sharing::settings::{AloneSettings, FairSettings};
use entresol_sharing::{PolicySettings, TenantId};

use super::super::tenants::{Cast, Device, mean, operations_s, play, tenant};
use super::{H, LEFT, LONG, X};
use crate::reproduce::Check;

/// Somebody whose pauses are felt.
const W: TenantId = TenantId(3);
const BYTES: u64 = 4096;
const RACERS: u32 = 8;
/// What X takes for the sign of a pause.
const BELOW: Duration = Duration::from_nanos(1_300);
/// The policy has so long to settle.
const SETTLED: f64 = 5.0;

fn story(device: &Device, is_checked: bool, trick: Trick) -> Story {
    let alone = AloneSettings { is_checked, ..AloneSettings::default() };
    let fair = FairSettings { alone, ..FairSettings::default() };
    let phase = device.gets(2, BYTES);
    let cast = Cast::default()
        .with(tenant(X, "X"), vec![Phase { trick, ..phase }])
        .with(tenant(H, "H"), vec![phase])
        .with(tenant(W, "W"), vec![device.sets(4, BYTES)]);
    play(&device.scene(PolicySettings::Fair(fair), cast, SETTLED + LONG))
}

pub(super) fn checks(device: &Device) -> Vec<Check> {
    let race = Trick::Race { threads: RACERS, below: device.time(BELOW) };
    let rate = |story: &Story, id| mean(story, id, SETTLED..SETTLED + LONG, operations_s);
    // What each would have, were X honest.
    let all = |is_checked| {
        let (honest, racing) =
            (story(device, is_checked, Trick::None), story(device, is_checked, race));
        [X, H, W].map(|id| rate(&racing, id) / rate(&honest, id))
    };
    let ([x, h, w], paper) = (all(true), all(false));
    let less = "racing in pauses: requests in 30 s over those without, of";
    let reported = |who: &str, how: &str, ratio, why| {
        Check::report(format!("{less} {who}, {how}"), "", None, ratio, why)
    };
    let believed = "pauses believed as in the paper";
    // A race in pauses alone is held within a twentieth, which a test of the policy shows. This one
    // goes on whenever the device is quiet, so that its loops count as the tenant's own.
    let not_kept = "not kept within 5% yet: it races whenever the device is quiet";
    let of_its_own = "it has more loops whenever the device is quiet, and no limit";
    vec![
        reported("an honest reader", "ours", h, not_kept),
        reported("an honest reader", believed, paper[1], LEFT),
        reported("an honest writer", "ours", w, not_kept),
        reported("an honest writer", believed, paper[2], LEFT),
        reported("who races", "ours", x, of_its_own),
        reported("who races", believed, paper[0], LEFT),
    ]
}
