//! Attack on equal slowdowns. A tenant recognises the pauses of the others by its response times
//! and sends more requests during them; later it appears slowed down.

use std::time::Duration;

use entresol_sharing::settings::{AloneSettings, FairSettings};
use entresol_sharing::{PolicySettings, TenantId};

use super::super::scene::{Phase, Story, Trick};
use super::super::tenants::{Cast, Device, mean, operations_s, play, tenant};
use super::{H, LEFT, LONG, X};
use crate::Check;

/// Third tenant, whose pauses are noticeable.
const W: TenantId = TenantId(3);
const BYTES: u64 = 4096;
const LOOPS: u32 = 2;
const RACERS: u32 = 8;
/// Response time below which X assumes a pause.
const BELOW: Duration = Duration::from_nanos(1_300);
/// Seconds that the policy has to settle.
const SETTLED: f64 = 5.0;

fn story(device: &Device, is_checked: bool, loops: u32, trick: Trick) -> Story {
    let alone = AloneSettings { is_checked, ..AloneSettings::default() };
    let fair = FairSettings { alone, ..FairSettings::default() };
    let cast = Cast::default()
        .with(tenant(X, "X"), vec![Phase { trick, ..device.gets(loops, BYTES) }])
        .with(tenant(H, "H"), vec![device.gets(LOOPS, BYTES)])
        .with(tenant(W, "W"), vec![device.sets(4, BYTES)]);
    play(&device.scene(PolicySettings::Fair(fair), cast, SETTLED + LONG))
}

pub(super) fn checks(device: &Device) -> Vec<Check> {
    let race = Trick::Race { threads: RACERS, below: device.time(BELOW) };
    let rates =
        |story: &Story| [X, H, W].map(|id| mean(story, id, SETTLED..SETTLED + LONG, operations_s));
    let honest = |is_checked, loops| rates(&story(device, is_checked, loops, Trick::None));
    let raced = |is_checked| rates(&story(device, is_checked, LOOPS, race));
    let over = |a: [f64; 3], b: [f64; 3]| [a[0] / b[0], a[1] / b[1], a[2] / b[2]];
    let ours = raced(true);
    let [x, h, w] = over(ours, honest(true, LOOPS));
    let [_, h_guaranteed, w_guaranteed] = over(ours, honest(true, LOOPS + RACERS));
    let paper = over(raced(false), honest(false, LOOPS));
    let less = "racing in pauses: requests in 30 s over those without, of";
    let reported = |who: &str, how: &str, ratio, why| {
        Check::report(format!("{less} {who}, {how}"), "", None, ratio, why)
    };
    let believed = "pauses believed as in the paper";
    // The loops that race while the device is quiet are real demand, in pauses or not. The
    // guarantee of the others is therefore their rate beside a tenant that declares all its loops.
    let kept = |who: &str, ratio| {
        let over = "racing in pauses: requests in 30 s over the guarantee, of";
        super::kept(format!("{over} {who}, ours"), ratio)
    };
    let more = "its loops are more whenever the device is quiet";
    vec![
        kept("an honest reader", h_guaranteed),
        kept("an honest writer", w_guaranteed),
        reported("an honest reader", "ours", h, more),
        reported("an honest reader", believed, paper[1], LEFT),
        reported("an honest writer", "ours", w, more),
        reported("an honest writer", believed, paper[2], LEFT),
        reported("who races", "ours", x, more),
        reported("who races", believed, paper[0], LEFT),
    ]
}
