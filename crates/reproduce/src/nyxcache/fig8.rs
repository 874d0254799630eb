//! Figure 8: a latency target beside one tenant that reads and one that writes.

use std::time::Duration;

use entresol_sharing::settings::{Expense, QosSettings};
use entresol_sharing::{PolicySettings, Target, TenantId, Throttle};

use super::scene::{Phase, Scene, Story, TenantMoment};
use super::tenants::{
    Cast, Device, bytes_s, drawing_beside, level, line, mean, play, spread, tenant, values,
};
use crate::{Check, Outcome, Settings, Side};

/// Tenant with the target, tenant that reads much, and tenant that writes much.
const LC: TenantId = TenantId(1);
pub(super) const BE1: TenantId = TenantId(2);
pub(super) const BE2: TenantId = TenantId(3);
const SLOWER: u32 = 50;
const TARGET: Duration = Duration::from_nanos(1_500);
const BE1_BYTES_S: f64 = 2.4e9;
/// Second at which BE2 begins to burst, and length of the run.
const BURST: f64 = 12.0;
const END: f64 = 30.0;
/// Seconds after the burst until LC is safe. The paper is settled by 28 s on its clock; tails that
/// are measured faster need less.
const PAPER_SETTLES: f64 = 16.0;
const OURS_SETTLES: f64 = 5.0;
/// Moments in a window over which the target is judged from outside.
const WINDOW: usize = 5;

/// Paces the loops of a phase to `bytes_s` bytes per second together.
fn paced(device: &Device, phase: Phase, bytes_s: f64) -> Phase {
    let per_loop = device.rate(bytes_s) / phase.bytes as f64 / f64::from(phase.threads);
    phase.every(Duration::from_secs_f64(1.0 / per_loop))
}

fn cast(device: &Device, burst: f64) -> Cast {
    let target = Target { percent: 99.0, latency: device.time(TARGET) };
    let lc = paced(device, device.gets(4, LC_BYTES), LC_BYTES_S);
    let be1 = paced(device, device.gets(8, BE1_BYTES), BE1_BYTES_S);
    let quiet = paced(device, device.sets(BE2_THREADS, BE2_BYTES), BE2_QUIET_BYTES_S);
    let loud = paced(device, device.sets(BE2_THREADS, BE2_BYTES), BE2_LOUD_BYTES_S);
    Cast::default()
        .with(tenant(LC, "LC").latency_critical(target), vec![lc])
        .with(tenant(BE1, "BE1"), vec![be1])
        .with(tenant(BE2, "BE2"), vec![quiet, loud.since(Duration::from_secs_f64(burst))])
}

const LC_BYTES_S: f64 = 0.8e9;
const LC_BYTES: u64 = 768;
const BE1_BYTES: u64 = 2048;
const BE2_BYTES: u64 = 2048;
const BE2_THREADS: u32 = 8;
const BE2_QUIET_BYTES_S: f64 = 0.02e9;
pub(super) const BE2_LOUD_BYTES_S: f64 = 1.55e9;

pub(super) fn scene(device: &Device, settings: Option<QosSettings>, burst: f64, end: f64) -> Scene {
    let policy = settings.map_or(PolicySettings::None, |mut settings| {
        if let Expense::Bytes(bytes_s) = settings.expense {
            settings.expense = Expense::Bytes(device.rate(bytes_s));
        }
        PolicySettings::Qos(settings)
    });
    let mut cast = cast(device, burst);
    if matches!(policy, PolicySettings::None) {
        for tenant in &mut cast.tenants {
            tenant.target = None;
            tenant.class = Default::default();
        }
    }
    device.scene(policy, cast, end)
}

/// Returns LC's tail latency in microseconds of the unslowed device, in windows of half a second.
pub(super) fn tails(device: &Device, story: &Story) -> Vec<(f64, f64)> {
    let us = |moment: &TenantMoment| {
        device.printed(1.0).recip() * moment.latency_ns_p99.unwrap_or(f64::NAN) / 1e3
    };
    let all: Vec<(f64, f64)> = values(story, LC, 0.0..f64::MAX, us).collect();
    let worst = |window: &[(f64, f64)]| {
        let mut tails: Vec<f64> = window.iter().map(|(_, us)| *us).collect();
        tails.sort_by(f64::total_cmp);
        (window[window.len() - 1].0, tails[tails.len() / 2])
    };
    all.chunks(WINDOW).map(worst).collect()
}

/// Returns the seconds after the burst from which LC keeps its target, or `None` if it misses it at
/// the end.
fn safe_after(tails: &[(f64, f64)], burst: f64) -> Option<f64> {
    let target = TARGET.as_nanos() as f64 / 1e3;
    let last_miss = tails.iter().rev().find(|(_, us)| *us > target * 1.02);
    let safe = last_miss.map_or(burst, |(at, _)| *at);
    let end = tails.last().map_or(0.0, |(at, _)| *at);
    (safe < end).then_some((safe - burst).max(0.0))
}

/// Returns the seconds after the burst until LC first keeps its target in two successive windows.
pub(super) fn kept_after(tails: &[(f64, f64)], burst: f64) -> Option<f64> {
    let target = TARGET.as_nanos() as f64 / 1e3;
    let mut pairs = tails.windows(2).filter(|pair| pair[0].0 > burst + 0.5);
    let first = pairs.find(|pair| pair.iter().all(|(_, us)| *us <= target * 1.02))?;
    Some(first[0].0 - burst)
}

pub(super) fn gb_s(device: &Device, story: &Story, id: TenantId, from: f64, to: f64) -> f64 {
    device.printed(mean(story, id, from..to, bytes_s)) / 1e9
}

fn throttled_at_end(story: &Story, id: TenantId) -> bool {
    let last = story.moments.last().and_then(|moment| moment.tenants.get(&id));
    last.is_some_and(|moment| moment.throttle != Throttle::Free)
}

pub(super) fn fig8(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let run = |settings| play(&scene(&device, settings, BURST, END));
    let none = play(&scene(&device, None, BURST, BURST + 4.0));
    let caladan = run(Some(QosSettings::caladan()));
    let published = run(Some(QosSettings::published()));
    let ours = run(Some(QosSettings::default()));
    let p99 = |story: &Story, from: f64, to: f64| {
        let tails = tails(&device, story);
        let within: Vec<f64> =
            tails.iter().filter(|(at, _)| *at > from && *at <= to).map(|(_, us)| *us).collect();
        spread(&within).0
    };
    let us = TARGET.as_nanos() as f64 / 1e3;
    let be1 = |story: &Story| gb_s(&device, story, BE1, END - 6.0, END);
    let before = p99(&ours, 1.0, BURST);
    let after = p99(&none, BURST + 0.5, BURST + 4.0);
    let mut checks = vec![
        Check::limit("LC's p99 before the burst", "us", Side::AtMost, us, before),
        Check::limit("without control: LC's p99 after the burst", "us", Side::Above, 3.0, after)
            .published(),
        Check::about("without control: the same, about", "us", 3.0, after, 25).published(),
        Check::about(
            "what the Caladan-like policy leaves BE1: a sixth",
            "GB/s",
            0.4,
            be1(&caladan),
            20,
        )
        .published(),
        Check::at_least("ours: BE1 over 2.4 GB/s, in the end", "", 1.0, be1(&ours) / 2.4),
        Check::at_least(
            "ours: BE1 over what the Caladan-like policy leaves it",
            "",
            6.0,
            be1(&ours) / be1(&caladan),
        ),
    ];
    let only_be2 = throttled_at_end(&ours, BE2) && !throttled_at_end(&ours, BE1);
    checks.push(Check::shape(
        "ours: who is slowed in the end",
        "only BE2",
        if only_be2 { "only BE2" } else { "others as well" },
        only_be2,
    ));
    checks.extend([
        safe_within(&device, "the Caladan-like policy", &caladan, PAPER_SETTLES).published(),
        safe_within(&device, "the paper's", &published, PAPER_SETTLES).published(),
        safe_within(&device, "ours", &ours, OURS_SETTLES),
    ]);
    let why = "the paper prints no number";
    let paper = be1(&published) / 2.4;
    let what = "the paper's: BE1 over 2.4 GB/s, in the end";
    checks.push(Check::report(what, "", None, paper, why).published());
    Outcome {
        scenario: scenario(&device),
        checks,
        drawings: drawings(
            &device,
            &[("Caladan-like", &caladan), ("the paper's", &published), ("ours", &ours)],
        ),
    }
}

/// Checks that LC keeps its target from at most `within` seconds after the burst.
fn safe_within(device: &Device, name: &str, story: &Story, within: f64) -> Check {
    let safe = safe_after(&tails(device, story), BURST);
    let what = format!("{name}: LC keeps its target from so long after the burst on");
    // A target that is never met counts as infinitely late.
    Check::at_most(what, "s", within, safe.unwrap_or(f64::INFINITY))
}

pub(super) fn scenario(device: &Device) -> Vec<String> {
    vec![
        format!(
            "LC: 4 loops of gets of {LC_BYTES} B, {} GB/s, p99 within 1.5 us; BE1: 8 loops of \
             gets of {BE1_BYTES} B, 2.4 GB/s; BE2: {BE2_THREADS} loops of sets of {BE2_BYTES} B, \
             {} GB/s, and from the burst on {} GB/s (loops, sizes and rates of LC and BE2 \
             chosen). ExperimentStep 500 MB/s.",
            LC_BYTES_S / 1e9,
            BE2_QUIET_BYTES_S / 1e9,
            BE2_LOUD_BYTES_S / 1e9,
        ),
        "LC is safe once the median of five tails, each of 100 ms, stays within 2% of its target."
            .to_owned(),
        device.told(),
    ]
}

fn drawings(device: &Device, stories: &[(&str, &Story)]) -> Vec<String> {
    let tails = stories.iter().map(|(name, story)| line(name, tails(device, story)));
    let mut drawings = vec![drawing_beside(
        "LC's p99 (model)",
        ("seconds", "us of the whole device"),
        &tails.collect::<Vec<_>>(),
        &[level("LC's target", 0.0, END, 1.5)],
    )];
    for (name, story) in stories {
        let rate = |id| -> Vec<(f64, f64)> {
            let points = values(story, id, 0.0..END, bytes_s);
            points.map(|(at, bytes_s)| (at, device.printed(bytes_s) / 1e9)).collect()
        };
        let rows = [("LC", LC), ("BE1", BE1), ("BE2", BE2)].map(|(name, id)| line(name, rate(id)));
        // The text prints what BE1 asks for, and that the Caladan-like policy leaves it a sixth.
        let mut papers = vec![(1, line("paper: BE1 before", [(0.0, 2.4), (BURST, 2.4)]))];
        if *name == "Caladan-like" {
            papers.push((1, line("paper: BE1 in the end", [(END, 0.4)])));
        } else {
            papers.push((1, line("paper: BE1 in the end", [(END, 2.4)])));
        }
        let title = format!("{name} (model)");
        drawings.push(drawing_beside(&title, ("seconds", "GB/s"), &rows, &papers));
    }
    drawings
}

/// Returns LC's tail latency in microseconds beside constant loads of BE1 and BE2, without a
/// policy.
#[cfg(test)]
pub(super) fn p99_beside(device: &Device, be1_bytes_s: f64, be2_bytes_s: f64) -> f64 {
    let lc = paced(device, device.gets(4, LC_BYTES), LC_BYTES_S);
    let be1 = paced(device, device.gets(8, BE1_BYTES), be1_bytes_s);
    let be2 = paced(device, device.sets(BE2_THREADS, BE2_BYTES), be2_bytes_s);
    let cast = Cast::default()
        .with(tenant(LC, "LC"), vec![lc])
        .with(tenant(BE1, "BE1"), vec![be1])
        .with(tenant(BE2, "BE2"), vec![be2]);
    let story = play(&device.scene(PolicySettings::None, cast, 4.0));
    let all = tails(device, &story);
    spread(&all.iter().filter(|(at, _)| *at > 1.0).map(|(_, us)| *us).collect::<Vec<_>>()).0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Proves the reason in `expected-failures.toml`: the Caladan-like policy slows both until LC
    /// keeps its target, and then releases both by a whole step each, since the slack is above
    /// 20%. With more slack to ask for, or half the step, it stays where the paper's does.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_the_caladan_like_policy_releases_both_by_too_large_a_step() {
        let device = Device::slower(SLOWER, 1);
        let run = |step: f64, slack_min: f64| {
            let expense = Expense::Bytes(step);
            let settings = QosSettings { slack_min, expense, ..QosSettings::caladan() };
            let story = play(&scene(&device, Some(settings), BURST, END));
            let be1 = gb_s(&device, &story, BE1, END - 6.0, END);
            let safe = safe_after(&tails(&device, &story), BURST);
            let since = (END - 6.0) as u64 * 1_000_000_000;
            let late = story.decisions.iter().filter(|it| it.at.0 > since);
            let released = late.filter(|it| it.text.contains("all targets are kept")).count();
            println!(
                "steps of {} MB/s, released from a slack of {slack_min} on: BE1 has {be1:.3} GB/s \
                 in the end, LC is safe after {safe:?} s; released {released} times in the end",
                step / 1e6,
            );
            (be1, safe, released)
        };
        let (be1, safe, released) = run(500e6, 0.2);
        assert!(be1 > 0.4 * 1.2 && safe.is_none() && released > 4, "{be1}, {safe:?}, {released}");
        for (step, slack_min) in [(500e6, 0.4), (250e6, 0.2)] {
            let (be1, safe, released) = run(step, slack_min);
            assert!((0.32..0.48).contains(&be1) && 2.4 / be1 > 6.0 * 0.95, "{be1}");
            assert!(safe.is_some_and(|safe| safe <= PAPER_SETTLES), "{safe:?}, {released}");
        }
    }
}
