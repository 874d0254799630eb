//! Figure 10: proportional shares of two greedy tenants, compared with shares of bytes.

use entresol_media::Access;
use entresol_sharing::settings::{BandwidthSettings, ProportionalSettings};
use entresol_sharing::{PolicySettings, TenantId, TenantSettings};

use super::scene::Phase;
use super::tenants::{Cast, Device, bytes_s, drawing, line, mean, play, tenant};
use crate::{Check, Outcome, Settings};

const A: TenantId = TenantId(1);
const B: TenantId = TenantId(2);
const SLOWER: u32 = 25;
const SECONDS: f64 = 1.2;
const WARM: f64 = 0.4;
const WEIGHTS: [(f64, f64); 5] = [(1.0, 3.0), (1.0, 2.0), (1.0, 1.0), (2.0, 1.0), (3.0, 1.0)];

/// Load of a tenant: a name for it, the kind of request and the bytes of each.
#[derive(Clone, Copy)]
struct Ask {
    what: &'static str,
    gets: bool,
    bytes: u64,
    threads: u32,
}

impl Ask {
    fn phase(self, device: &Device) -> Phase {
        if self.gets {
            device.gets(self.threads, self.bytes)
        } else {
            device.sets(self.threads, self.bytes)
        }
    }
}

/// Rates of both tenants in bytes per second.
type Pair = [f64; 2];

/// Rates at the same weights under both policies. The ideal is each tenant's rate alone, times its
/// part by weight.
struct Row {
    weights: (f64, f64),
    ideal: Pair,
    ours: Pair,
    bytes: Pair,
}

impl Row {
    fn name(&self) -> String {
        format!("{}:{}", self.weights.0, self.weights.1)
    }

    fn of_ideal(&self, pair: Pair) -> Pair {
        [pair[0] / self.ideal[0], pair[1] / self.ideal[1]]
    }
}

fn rates(device: &Device, policy: PolicySettings, cast: Cast) -> Pair {
    let story = play(&device.scene(policy, cast, SECONDS));
    [A, B].map(|id| device.printed(mean(&story, id, WARM..SECONDS, bytes_s)))
}

fn rows(device: &Device, a: Ask, b: Ask) -> Vec<Row> {
    let alone = |id, ask: Ask| {
        let cast = Cast::default().with(tenant(id, "alone"), vec![ask.phase(device)]);
        rates(device, PolicySettings::None, cast)
    };
    let alone = [alone(A, a)[0], alone(B, b)[1]];
    let most = device.rate(device.most(Access::Read, 4096) * 4096.0);
    let row = |weights: (f64, f64)| {
        let parts = [weights.0, weights.1].map(|weight| weight / (weights.0 + weights.1));
        let both = |of: &dyn Fn(TenantSettings, usize) -> TenantSettings| {
            Cast::default()
                .with(of(tenant(A, "A"), 0), vec![a.phase(device)])
                .with(of(tenant(B, "B"), 1), vec![b.phase(device)])
        };
        let weighted = both(&|tenant, place| TenantSettings { weight: parts[place], ..tenant });
        let in_bytes = both(&|tenant, place| TenantSettings {
            bytes_s_max: Some(parts[place] * most),
            ..tenant
        });
        let ours = PolicySettings::Proportional(ProportionalSettings::default());
        let bytes = PolicySettings::Bandwidth(BandwidthSettings::default());
        Row {
            weights,
            ideal: [alone[0] * parts[0], alone[1] * parts[1]],
            ours: rates(device, ours, weighted),
            bytes: rates(device, bytes, in_bytes),
        }
    };
    WEIGHTS.into_iter().map(row).collect()
}

fn checks_of_ours(rows: &[Row]) -> Vec<Check> {
    let check = |row: &Row| {
        let near = row.of_ideal(row.ours);
        ["A", "B"]
            .into_iter()
            .zip(near)
            .map(|(name, ratio)| {
                let what = format!("{name} over its ideal, weights {}", row.name());
                Check::about(what, "", 1.0, ratio, 3)
            })
            .collect::<Vec<_>>()
    };
    rows.iter().flat_map(check).collect()
}

fn drawings(rows: &[Row], a: Ask, b: Ask) -> Vec<String> {
    let panel = |place: usize, name: &str, ask: Ask| {
        let points = |of: fn(&Row) -> Pair| -> Vec<(f64, f64)> {
            let part = |row: &Row| row.weights.0 / (row.weights.0 + row.weights.1);
            rows.iter().map(|row| (part(row) * 100.0, of(row)[place] / 1e9)).collect()
        };
        drawing(
            &format!("{name}: {} (model)", ask.what),
            "A's part, %",
            "GB/s",
            vec![
                line("shares of the device", points(|row| row.ours)),
                line("shares of bytes", points(|row| row.bytes)),
                line("ideal", points(|row| row.ideal)),
            ],
        )
    };
    vec![panel(0, "A", a), panel(1, "B", b)]
}

fn scenario(device: &Device, a: Ask, b: Ask) -> Vec<String> {
    vec![
        format!(
            "A: {}, B: {}, so many loops that either keeps the device busy alone; ideal is \
             the weight's part of what each has alone. Shares of bytes are parts of the 13 GB/s \
             that gets of 4 KB reach (loops, weights and sizes chosen).",
            a.what, b.what
        ),
        device.told(),
    ]
}

pub(super) fn fig10a(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let a = Ask { what: "24 loops of gets of 4 KB", gets: true, bytes: 4096, threads: 24 };
    let b = Ask { what: "24 loops of sets of 4 KB", gets: false, bytes: 4096, threads: 24 };
    let rows = rows(&device, a, b);
    let most = rows.iter().map(|row| row.of_ideal(row.bytes)[1]).fold(0.0, f64::max);
    let equal = rows.iter().find(|row| row.weights == (1.0, 1.0));
    let lost = equal.map_or(f64::NAN, |row| (1.0 - row.of_ideal(row.bytes)[0]) * 100.0);
    let mut checks = vec![
        Check::about("shares of bytes: B over its ideal, at most", "", 3.0, most, 25),
        Check::about("shares of bytes: A loses of its ideal, equal weights", "%", 40.0, lost, 25),
    ];
    checks.extend(checks_of_ours(&rows));
    Outcome { scenario: scenario(&device, a, b), checks, drawings: drawings(&rows, a, b) }
}

pub(super) fn fig10b(settings: &Settings) -> Outcome {
    let device = Device::slower(SLOWER, settings.seed);
    let a = Ask { what: "24 loops of gets of 4 KB", gets: true, bytes: 4096, threads: 24 };
    let b = Ask { what: "128 loops of gets of 1 KB", gets: true, bytes: 1024, threads: 128 };
    let rows = rows(&device, a, b);
    let told: Vec<String> = rows
        .iter()
        .map(|row| {
            let [a, b] = row.of_ideal(row.bytes);
            format!("{}: A {a:.2}, B {b:.2}", row.name())
        })
        .collect();
    // If B's part in bytes is more than it can use, both tenants come near their ideals.
    let apart = |row: &&Row| {
        let [a, b] = row.of_ideal(row.bytes);
        (b / a - 1.0).abs() > 0.05
    };
    let ahead = |row: &Row| row.of_ideal(row.bytes)[1] > row.of_ideal(row.bytes)[0];
    let favoured = rows.iter().filter(apart).all(ahead) && rows.iter().filter(apart).count() >= 3;
    let mut checks = vec![Check::shape(
        "shares of bytes favour B, over their ideals",
        "B, which wastes what is prefetched, gets more",
        told.join("; "),
        favoured,
    )];
    checks.extend(checks_of_ours(&rows));
    Outcome { scenario: scenario(&device, a, b), checks, drawings: drawings(&rows, a, b) }
}
