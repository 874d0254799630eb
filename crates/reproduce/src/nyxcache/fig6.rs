//! Figure 6: a limit of resources, compared with a limit of bytes.

use entresol_measure::report::svg::Line;
use std::time::Duration;

use entresol_media::Access;
use entresol_sharing::{PolicySettings, TenantId, TenantSettings};

use super::scene::Phase;
use super::tenants::{
    Cast, Device, bytes_s, drawing, drawing_beside, level, line, mean, play, share, spread, tenant,
};
use crate::{Check, Outcome, Settings, Side};

/// Limited tenant and unlimited tenant.
pub(super) const L: TenantId = TenantId(1);
pub(super) const U: TenantId = TenantId(2);
/// Limit in gets of 4 KB per second, and the same in the bytes that the paper states.
pub(super) const LIMIT_OPERATIONS_S: f64 = 1.25e6;
const LIMIT_BYTES_S: f64 = LIMIT_OPERATIONS_S * 4096.0;
pub(super) const SLOWER: u32 = 25;
/// Loops of L, which reach the limit with any kind of request, and of U, which keep the device
/// busy.
pub(super) const L_THREADS: u32 = 64;
pub(super) const U_THREADS: u32 = 8;
pub(super) const SECONDS: f64 = 0.9;
pub(super) const WARM: f64 = 0.3;
/// Rate of the lighter U in part c: gets of 4 KB, a third of the device.
const LIGHT_OPERATIONS_S: f64 = 1.0e6;
const SIZES: [u64; 5] = [256, 512, 1024, 2048, 4096];

/// Result of one L under one policy.
struct Run {
    /// L's share of the device; the other fields are bytes per second of L and of U.
    share: f64,
    l_bytes_s: f64,
    u_bytes_s: f64,
}

#[derive(Clone, Copy)]
pub(super) enum Policy {
    Resources,
    Bytes,
}

pub(super) fn limit_share(device: &Device) -> f64 {
    device.share(Access::Read, 4096, LIMIT_OPERATIONS_S)
}

pub(super) fn limited(device: &Device, policy: Policy) -> (PolicySettings, TenantSettings) {
    match policy {
        Policy::Resources => (
            PolicySettings::Limit(Default::default()),
            TenantSettings { share_max: vec![Some(limit_share(device))], ..tenant(L, "L") },
        ),
        Policy::Bytes => (
            PolicySettings::Bandwidth(Default::default()),
            TenantSettings { bytes_s_max: Some(device.rate(LIMIT_BYTES_S)), ..tenant(L, "L") },
        ),
    }
}

fn beside(device: &Device, policy: Policy, l: Phase, u: Phase) -> Run {
    let (policy, limited) = limited(device, policy);
    let cast = Cast::default().with(limited, vec![l]).with(tenant(U, "U"), vec![u]);
    let story = play(&device.scene(policy, cast, SECONDS));
    let at = |id, of: fn(&_) -> f64| mean(&story, id, WARM..SECONDS, of);
    Run {
        share: at(L, share),
        l_bytes_s: device.printed(at(L, bytes_s)),
        u_bytes_s: device.printed(at(U, bytes_s)),
    }
}

/// Outcome for one request kind of tenant L, under both policies.
struct Row {
    name: String,
    resources: Run,
    bytes: Run,
}

fn row(device: &Device, name: String, l: Phase, u: Phase) -> Row {
    Row {
        name,
        resources: beside(device, Policy::Resources, l, u),
        bytes: beside(device, Policy::Bytes, l, u),
    }
}

pub(super) fn fig6a(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let u = device.gets(U_THREADS, 4096);
    let rows = |gets: bool| -> Vec<Row> {
        let one = |&bytes: &u64| {
            let l =
                if gets { device.gets(L_THREADS, bytes) } else { device.sets(L_THREADS, bytes) };
            row(&device, format!("{} of {bytes} B", if gets { "gets" } else { "sets" }), l, u)
        };
        SIZES.iter().map(one).collect()
    };
    let (gets, sets) = (rows(true), rows(false));
    let limit = limit_share(&device);
    let all = || gets.iter().chain(&sets);
    let mut checks = vec![Check::about("the limit, of the device", "%", 41.7, limit * 100.0, 15)];
    checks.extend(all().map(|row| share_held(row, limit)));
    let over: Vec<f64> = all().map(|row| row.bytes.share / limit).collect();
    let told = |rows: &[Row]| {
        let one = |row: &Row| format!("{}: {:.2}", row.name, row.bytes.share / limit);
        rows.iter().map(one).collect::<Vec<_>>().join(", ")
    };
    let most = gets.iter().max_by(|a, b| a.bytes.share.total_cmp(&b.bytes.share));
    checks.push(Check::shape(
        "under the limit of bytes, gets are over the limit most near 1 KB",
        "most noticeable when values are around 1 KB",
        told(&gets),
        most.is_some_and(|row| {
            row.name.contains("512 ") || row.name.contains("1024") || row.name.contains("2048")
        }) && over.iter().any(|over| *over > 1.05),
    ));
    checks.push(Check::shape(
        "under the limit of bytes, sets of every size are over the limit",
        "bandwidth does not see what writing costs",
        told(&sets),
        sets.iter().all(|row| row.bytes.share > limit * 1.05),
    ));
    let u_of =
        |of: fn(&Row) -> &Run| -> Vec<f64> { all().map(|row| of(row).u_bytes_s / 1e6).collect() };
    let (ours, theirs) = (u_of(|row| &row.resources), u_of(|row| &row.bytes));
    let ((_, ours_spread), (_, theirs_spread)) = (spread(&ours), spread(&theirs));
    let why = "depends on which requests of L are counted";
    checks.extend([
        Check::report("deviation of U, limit of resources", "MB/s", Some(130.0), ours_spread, why),
        Check::report("deviation of U, limit of bytes", "MB/s", Some(678.0), theirs_spread, why),
        Check::at_least("deviation of U, bytes / resources", "", 5.0, theirs_spread / ours_spread),
    ]);
    let by_gets: Vec<f64> = gets.iter().map(|row| row.bytes.u_bytes_s).collect();
    let (best, worst) = by_gets
        .iter()
        .fold((0.0_f64, f64::MAX), |(best, worst), &value| (best.max(value), worst.min(value)));
    checks.push(Check::about(
        "under the limit of bytes, what gets of L cost U by prefetching, at most",
        "%",
        45.0,
        (1.0 - worst / best) * 100.0,
        25,
    ));
    Outcome { scenario: scenario(&device), checks, drawings: drawings(&gets, &sets) }
}

fn drawings(gets: &[Row], sets: &[Row]) -> Vec<String> {
    let points = |rows: &[Row], of: fn(&Row) -> f64| -> Vec<(f64, f64)> {
        rows.iter().zip(SIZES).map(|(row, bytes)| (bytes as f64, of(row) / 1e9)).collect()
    };
    let panel = |title: &str, of: [fn(&Row) -> f64; 2], papers: &[(usize, Line)]| {
        let rows = vec![
            line("gets, resources", points(gets, of[0])),
            line("gets, bytes", points(gets, of[1])),
            line("sets, resources", points(sets, of[0])),
            line("sets, bytes", points(sets, of[1])),
        ];
        drawing_beside(title, ("bytes of L's values", "GB/s"), &rows, papers)
    };
    let ends = (SIZES[0] as f64, SIZES[SIZES.len() - 1] as f64);
    let limit = level("limit of bytes", ends.0, ends.1, 5.0);
    let l: [fn(&Row) -> f64; 2] = [|row| row.resources.l_bytes_s, |row| row.bytes.l_bytes_s];
    let u: [fn(&Row) -> f64; 2] = [|row| row.resources.u_bytes_s, |row| row.bytes.u_bytes_s];
    vec![panel("L (model)", l, &[limit]), panel("U beside it (model)", u, &[])]
}

/// Checks that a limit is exceeded by at most one hundredth of the device, as in the paper's ticks.
fn share_held(row: &Row, limit: f64) -> Check {
    let over = (row.resources.share - limit) * 100.0;
    let what = format!("L's share over its limit, {}", row.name);
    Check::limit(what, "points", Side::AtMost, 1.0, over).beside(1.0)
}

fn scenario(device: &Device) -> Vec<String> {
    vec![
        format!(
            "L: {L_THREADS} loops of one kind of request, limited to 1.25 M gets of 4 KB a second; \
             U: gets of 4 KB, {U_THREADS} loops, no limit (loops and sizes chosen)."
        ),
        device.told(),
    ]
}

pub(super) fn fig6c(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    // U is lighter than in the other parts and cannot use everything that L leaves.
    let period = Duration::from_secs_f64(f64::from(U_THREADS) / device.rate(LIGHT_OPERATIONS_S));
    let u = device.gets(U_THREADS, 4096).every(period);
    let mut checks = Vec::new();
    let mut drawings = Vec::new();
    for bytes in [1024, 4096] {
        let mix = |percent: u32| {
            let l = Phase { gets: f64::from(percent) / 100.0, ..device.gets(L_THREADS, bytes) };
            row(&device, format!("{percent}% gets of {bytes} B"), l, u)
        };
        let percents = [10, 30, 50, 70, 90];
        let rows: Vec<Row> = percents.into_iter().map(mix).collect();
        let limit = limit_share(&device);
        checks.extend(rows.iter().map(|row| share_held(row, limit)));
        let part = |of: fn(&Row) -> f64| {
            let values: Vec<f64> = rows.iter().map(of).collect();
            let most = values.iter().copied().fold(0.0, f64::max);
            let least = values.iter().copied().fold(f64::MAX, f64::min);
            (most / least - 1.0) * 100.0
        };
        let ours = part(|row| row.resources.u_bytes_s);
        let theirs = part(|row| row.bytes.u_bytes_s);
        let what = format!("U beside L of {bytes} B, 10 to 90% gets: range of its rate");
        let stable = "stable whatever L does";
        checks.push(Check::limit(&what, "%", Side::AtMost, 5.0, ours).beside(stable));
        let what = format!("{what}, by bytes over by resources");
        let check = Check::limit(what, "times", Side::AtLeast, 3.0, theirs / ours);
        checks.push(check.noting(format!("by bytes {theirs:.1}%")));
        let points = |of: fn(&Row) -> f64| -> Vec<(f64, f64)> {
            rows.iter().zip(percents).map(|(row, p)| (f64::from(p), of(row) / 1e9)).collect()
        };
        drawings.push(drawing(
            &format!("U beside L of {bytes} B (model)"),
            "% of gets in L",
            "GB/s",
            vec![
                line("limit of resources", points(|row| row.resources.u_bytes_s)),
                line("limit of bytes", points(|row| row.bytes.u_bytes_s)),
            ],
        ));
    }
    let mut scenario = scenario(&device);
    scenario.push(
        "Part c: U asks for 1 M gets of 4 KB a second, a third of the device (chosen).".to_owned(),
    );
    Outcome { scenario, checks, drawings }
}
