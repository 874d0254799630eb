//! Figure 12: the request mixes of three of Twitter's caches.
//!
//! The traces themselves are not available. The mixes follow their sizes and shares of gets, as
//! table 3 and Twitter's published statistics of clusters 29, 4 and 50 (March 2020, CC-BY) state
//! them.

use std::time::Duration;

use entresol_base::ByteSize;
use entresol_measure::popularity::Popularity;
use entresol_media::Access;
use entresol_sharing::settings::{BandwidthSettings, FairSettings, LimitSettings};
use entresol_sharing::{PolicySettings, TenantId, TenantSettings};

use super::scene::{Kept, Phase, Story};
use super::tenants::{
    Cast, Device, bytes_s, drawing_beside, level, line, mean, operations_s, over_time, play,
    tenant, values,
};
use crate::{Check, Outcome, Settings, Side};

const S1: TenantId = TenantId(1);
const C1: TenantId = TenantId(2);
const C2: TenantId = TenantId(3);
const SLOWER: u32 = 50;
/// Limit of C2 in gets of 4 KB per second, which the paper calls 4 GB/s.
const LIMIT_OPERATIONS_S: f64 = 1e6;
const LIMIT_BYTES_S: f64 = LIMIT_OPERATIONS_S * 4096.0;
/// Beginning and end of the spike of C2's sets.
const SPIKE: (f64, f64) = (2.0, 4.0);
const END: f64 = 5.0;

/// Statistics of a trace: the bytes of a key and of a value, and the share of gets. Keys are in
/// DRAM.
struct Mix {
    key_bytes: usize,
    bytes: u64,
    gets: f64,
    /// Quota of the cache.
    quota: ByteSize,
}

const S1_MIX: Mix = Mix { key_bytes: 36, bytes: 799, gets: 0.86, quota: ByteSize::mib(32) };
const C1_MIX: Mix = Mix { key_bytes: 67, bytes: 2_439, gets: 0.93, quota: ByteSize::mib(32) };
const C2_MIX: Mix = Mix { key_bytes: 18, bytes: 67_485, gets: 0.52, quota: ByteSize::mib(64) };
/// Values of all keys, in per cent of the quota of their cache. The paper loops over a million
/// operations of each trace, which move 67 GB at most, and has 256 GB: its caches hold everything.
const FOOTPRINT_PERCENT: u64 = 50;

/// Subject of a scene: accesses of the mixes' sizes, or caches that get and set.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Subject {
    Accesses,
    Caches,
}

impl Subject {
    fn prefix(self) -> &'static str {
        match self {
            Subject::Accesses => "",
            Subject::Caches => "the cache itself: ",
        }
    }

    /// Adds a tenant of a mix.
    fn join(self, cast: Cast, tenant: TenantSettings, mix: &Mix, phases: Vec<Phase>) -> Cast {
        match self {
            Subject::Accesses => cast.with(tenant, phases),
            Subject::Caches => cast.with_cache(tenant, phases, mix.kept()),
        }
    }
}

impl Mix {
    /// Returns the cache of the mix, which holds all keys when the scene begins.
    fn kept(&self) -> Kept {
        let keys = self.quota.0 * FOOTPRINT_PERCENT / 100 / self.bytes;
        Kept {
            quota: self.quota,
            key_bytes: self.key_bytes,
            value_bytes: self.bytes as usize,
            keys,
            // Of a cache so much smaller than the paper's, the processor's would hold what is
            // popular.
            popularity: Popularity::Uniform,
            stored: keys,
        }
    }

    fn phase(&self, device: &Device, threads: u32) -> Phase {
        Phase { gets: self.gets, ..device.gets(threads, self.bytes) }
    }

    /// Returns a phase of `per_second` requests, a rate as the paper would print it.
    fn paced(&self, device: &Device, threads: u32, per_second: f64) -> Phase {
        let each = f64::from(threads) / device.rate(per_second);
        self.phase(device, threads).every(Duration::from_secs_f64(each))
    }
}

/// Plays S1 and C1 unchanged beside C2, which has a spike of sets and is limited by `limited`.
fn with_spike(
    device: &Device,
    subject: Subject,
    policy: PolicySettings,
    limited: TenantSettings,
) -> Story {
    let calm = C2_MIX.paced(device, 8, 40e3);
    let spike = Phase { gets: 0.05, ..C2_MIX.phase(device, 8) };
    let phases = vec![
        calm,
        spike.since(Duration::from_secs_f64(SPIKE.0)),
        calm.since(Duration::from_secs_f64(SPIKE.1)),
    ];
    let s1 = vec![S1_MIX.paced(device, 8, 1.5e6)];
    let cast = subject.join(Cast::default(), tenant(S1, "S1"), &S1_MIX, s1);
    let c1 = vec![C1_MIX.paced(device, 8, 0.8e6)];
    let cast = subject.join(cast, tenant(C1, "C1"), &C1_MIX, c1);
    let cast = subject.join(cast, limited, &C2_MIX, phases);
    play(&device.scene(policy, cast, END))
}

/// Returns the reduction in per cent of a tenant's answered requests during the spike.
fn drop(story: &Story, id: TenantId) -> f64 {
    let before = mean(story, id, 0.5..SPIKE.0, operations_s);
    let within = mean(story, id, SPIKE.0 + 0.2..SPIKE.1, operations_s);
    (1.0 - within / before) * 100.0
}

/// Plays the spike under both limits; returns the checks and the drawings.
fn spike(device: &Device, subject: Subject) -> (Vec<Check>, Vec<String>) {
    let share = device.share(Access::Read, 4096, LIMIT_OPERATIONS_S);
    let in_bytes = with_spike(
        device,
        subject,
        PolicySettings::Bandwidth(BandwidthSettings::default()),
        TenantSettings { bytes_s_max: Some(device.rate(LIMIT_BYTES_S)), ..tenant(C2, "C2") },
    );
    let ours = with_spike(
        device,
        subject,
        PolicySettings::Limit(LimitSettings::default()),
        TenantSettings { share_max: vec![Some(share)], ..tenant(C2, "C2") },
    );
    let prefix = subject.prefix();
    let mut checks = Vec::new();
    for (name, id) in [("S1", S1), ("C1", C1)] {
        let (theirs, less) = (drop(&in_bytes, id), drop(&ours, id));
        let what = format!("{prefix}limit of bytes: {name} in C2's spike, less");
        let check = Check::limit(what, "%", Side::AtLeast, 20.0, theirs);
        checks.push(check.beside("suffers").published().noting(told(&in_bytes, id)));
        let what = format!("{prefix}limit of resources: {name} in C2's spike, less");
        let check = Check::limit(what, "%", Side::AtMost, 5.0, less);
        checks.push(check.noting(told(&ours, id)));
    }
    let panel = |title: &str, story: &Story| {
        let rate = |id| -> Vec<(f64, f64)> {
            let points = values(story, id, 0.0..END, bytes_s);
            points.map(|(at, bytes_s)| (at, device.printed(bytes_s) / 1e9)).collect()
        };
        let rows = [("S1", S1), ("C1", C1), ("C2", C2)].map(|(name, id)| line(name, rate(id)));
        over_time(&format!("{prefix}{title}"), "GB/s", rows.to_vec())
    };
    let drawings = vec![
        panel("Limit of bytes (model)", &in_bytes),
        panel("Limit of resources (model)", &ours),
    ];
    (checks, drawings)
}

/// Tells the hits and evictions of a tenant's cache; nothing if it has none.
fn told(story: &Story, id: TenantId) -> String {
    story.caches.get(&id).map_or(String::new(), |cache| {
        let hits = cache.hits as f64 / cache.gets.max(1) as f64;
        format!("hits {:.1}%, {} items evicted", hits * 100.0, cache.evicted)
    })
}

/// Describes the caches for the scenarios.
fn caches() -> String {
    format!(
        "The cache itself: each tenant has the shipped one, with all values in it when the scene \
         begins; quotas of {}, {} and {}, keys of {}, {} and {} B, all equally likely, since the \
         processor's cache would hold the popular ones of so few; their values are \
         {FOOTPRINT_PERCENT}% of the quota, as the paper's million operations of each trace, 67 \
         GB at most, fit into its 256 GB.",
        S1_MIX.quota,
        C1_MIX.quota,
        C2_MIX.quota,
        S1_MIX.key_bytes,
        C1_MIX.key_bytes,
        C2_MIX.key_bytes
    )
}

pub(super) fn fig12a(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let (mut checks, mut drawings) = spike(&device, Subject::Accesses);
    let (of_caches, further) = spike(&device, Subject::Caches);
    checks.extend(of_caches);
    drawings.extend(further);
    Outcome {
        scenario: vec![
            format!(
                "S1: values of 799 B, 86% gets, 1.5 M/s; C1: 2,439 B, 93% gets, 0.8 M/s; C2: \
                 67,485 B, 52% gets, 40 k/s, and from {} to {} s 8 loops of 95% sets; C2 limited \
                 to 1 M gets of 4 KB a second, or to 4.1 GB/s (rates and loops chosen; sizes and \
                 parts: Twitter's clusters 29, 4 and 50).",
                SPIKE.0, SPIKE.1
            ),
            caches(),
            device.told(),
        ],
        checks,
        drawings,
    }
}

/// Beginning and end of the day; night lies before and after it.
const DAY: (f64, f64) = (2.0, 8.0);
const NIGHT_END: f64 = 10.0;
/// Slowdown of the device, with which ten seconds of caches can be simulated.
const SLOWER_OF_DAYS: u32 = 20;
const SLOWDOWN_MAX: f64 = 1.5;
/// Seconds for the policy to settle after a change.
const SETTLING: f64 = 1.5;
const WINDOW: f64 = 0.5;
/// Seeds with which the limited day is played: the worst of few half seconds hangs on the seed.
const DAYS: u64 = 3;

fn day_and_night(
    device: &Device,
    subject: Subject,
    policy: PolicySettings,
    s1: TenantSettings,
) -> Story {
    let from = |seconds: f64| Duration::from_secs_f64(seconds);
    let with_days = |mix: &Mix, night: u32, day: u32| {
        let (light, heavy) = (mix.phase(device, night), mix.phase(device, day));
        vec![light, heavy.since(from(DAY.0)), light.since(from(DAY.1))]
    };
    let cast = subject.join(Cast::default(), s1, &S1_MIX, vec![S1_MIX.phase(device, 4)]);
    let c1 = with_days(&C1_MIX, 1, 12);
    let cast = subject.join(cast, tenant(C1, "C1"), &C1_MIX, c1);
    let c2 = with_days(&C2_MIX, 0, 4);
    let cast = subject.join(cast, tenant(C2, "C2"), &C2_MIX, c2);
    play(&device.scene(policy, cast, NIGHT_END))
}

/// Plays days without a policy and under a limit of S1's slowdown; returns checks and drawing.
fn days(seed: u64, subject: Subject) -> (Vec<Check>, String) {
    let device = &Device::slower(SLOWER_OF_DAYS, seed);
    let s1 = vec![S1_MIX.phase(device, 4)];
    let cast = subject.join(Cast::default(), tenant(S1, "S1"), &S1_MIX, s1);
    let alone = play(&device.scene(PolicySettings::None, cast, 1.0));
    let alone = mean(&alone, S1, 0.2..1.0, operations_s);
    let none = day_and_night(device, subject, PolicySettings::None, tenant(S1, "S1"));
    let fair = FairSettings { equalise: false, ..device.fair() };
    let limited = TenantSettings { slowdown_max: Some(SLOWDOWN_MAX), ..tenant(S1, "S1") };
    let day = |day: u64| {
        let device = Device::slower(SLOWER_OF_DAYS, seed + day);
        day_and_night(&device, subject, PolicySettings::Fair(fair.clone()), limited.clone())
    };
    let ours: Vec<Story> = (0..DAYS).map(day).collect();
    let slowdown =
        |story: &Story, from: f64| alone / mean(story, S1, from..from + WINDOW, operations_s);
    let windows = |from: f64, to: f64| {
        let count = ((to - from) / WINDOW).round() as u32;
        (0..count).map(move |window| from + f64::from(window) * WINDOW)
    };
    let by_day = mean(&none, S1, DAY.0 + SETTLING..DAY.1, operations_s);
    let settled = [(SETTLING, DAY.0), (DAY.0 + SETTLING, DAY.1), (DAY.1 + SETTLING, NIGHT_END)];
    let worst = settled
        .into_iter()
        .flat_map(|(from, to)| windows(from, to))
        .flat_map(|from| ours.iter().map(move |day| slowdown(day, from)))
        .fold(0.0, f64::max);
    let prefix = subject.prefix();
    let what = format!("{prefix}without a policy, S1's slowdown by day");
    let without = Check::limit(what, "times", Side::Above, SLOWDOWN_MAX, alone / by_day);
    let what = format!("{prefix}ours: S1's slowdown in the worst half second after settling");
    let with = Check::limit(what, "times", Side::AtMost, SLOWDOWN_MAX, worst);
    let checks = vec![without.published().noting(told(&none, S1)), with.noting(told(&ours[0], S1))];
    let series = |story: &Story| -> Vec<(f64, f64)> {
        windows(0.0, NIGHT_END).map(|from| (from + WINDOW, slowdown(story, from))).collect()
    };
    let drawing = drawing_beside(
        &format!("{prefix}S1's slowdown (model)"),
        ("seconds", "times"),
        &[line("no policy", series(&none)), line("slowdown limited", series(&ours[0]))],
        &[level("the limit", 0.0, NIGHT_END, SLOWDOWN_MAX)],
    );
    (checks, drawing)
}

pub(super) fn fig12b(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER_OF_DAYS, settings.seed);
    let (mut checks, drawing) = days(settings.seed, Subject::Accesses);
    let (of_caches, further) = days(settings.seed, Subject::Caches);
    checks.extend(of_caches);
    Outcome {
        scenario: vec![
            format!(
                "S1: 4 loops; C1: 1 loop by night and 12 by day, C2: none by night and 4 by day, \
                 which is from {} to {} s; the mixes are those of part a (loops and times chosen). \
                 S1 is to be slowed 1.5 times at most; {SETTLING} s to settle after each change. \
                 The worst half second is that of {DAYS} days, each with a seed of its own; the \
                 first is drawn.",
                DAY.0, DAY.1
            ),
            caches(),
            device.told(),
            device.told_pauses(),
        ],
        checks,
        drawings: vec![drawing, further],
    }
}

#[cfg(test)]
mod tests {
    use entresol_sharing::settings::AloneSettings;

    use super::*;

    /// Proves the reason in `expected-failures.toml`: S1 stands still in the pauses of the others,
    /// which take twenty times the part of the time that they take on the paper's device. With
    /// fewer of them, and nothing else changed, it keeps its limit. Short ones show too little.
    #[test]
    #[ignore = "run by .ci/slow: slow tests"]
    fn slow_s1_stands_still_in_the_pauses_of_the_others() {
        let device = &Device::slower(SLOWER_OF_DAYS, 1);
        let s1 = vec![S1_MIX.phase(device, 4)];
        let cast = Subject::Caches.join(Cast::default(), tenant(S1, "S1"), &S1_MIX, s1);
        let alone = play(&device.scene(PolicySettings::None, cast, 1.0));
        let alone = mean(&alone, S1, 0.2..1.0, operations_s);
        let worst = |what: &str, pauses: AloneSettings| {
            let fair = FairSettings { equalise: false, alone: pauses, ..FairSettings::default() };
            let limited = TenantSettings { slowdown_max: Some(SLOWDOWN_MAX), ..tenant(S1, "S1") };
            let fair = PolicySettings::Fair(fair);
            let story = day_and_night(device, Subject::Caches, fair, limited);
            let windows = (7..16).map(|half| f64::from(half) * WINDOW);
            let slowed = windows.map(|from| {
                let window = from..from + WINDOW;
                let slowed = alone / mean(&story, S1, window.clone(), operations_s);
                (slowed, mean(&story, S1, window, |moment| moment.slowdown.unwrap_or(1.0)))
            });
            let (slowed, believed) = slowed.max_by(|a, b| a.0.total_cmp(&b.0)).expect("windows");
            println!("{what}: by day S1 is slowed {slowed:.2} times, {believed:.2} by its pauses");
            (slowed, believed)
        };
        let stretched = device.fair().alone;
        let rare = AloneSettings { period: Duration::from_secs(5), ..stretched };
        let (short, believed) = worst("pauses of 1 ms each second", AloneSettings::default());
        assert!(short > SLOWDOWN_MAX && believed < short * 0.95, "{short}, {believed}");
        let (each_second, believed) = worst("20 ms each second", stretched);
        assert!(each_second > SLOWDOWN_MAX && believed < SLOWDOWN_MAX, "{each_second}");
        let (slowed, _) = worst("20 ms each five seconds", rare);
        assert!(slowed < SLOWDOWN_MAX, "{slowed}");
    }
}
