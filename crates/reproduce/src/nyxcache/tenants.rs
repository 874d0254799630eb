//! Common parts of the figures about sharing: the slowed device, its costs, scenes of tenants on
//! it, and figures taken from their stories. Only a slowed device can be simulated for seconds.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use entresol_base::Picos;
use entresol_measure::report::svg::{Axis, Line, Scale, lines_beside};
use entresol_media::cost::{CostSource, LARGE_SIZES, MeasuredCosts};
use entresol_media::model::memory::{AEP2, Further, MemoryOp, Module, Parameters, Processor};
use entresol_media::{Access, CostTable};
use entresol_sharing::settings::{AloneSettings, FairSettings, ProportionalSettings};
use entresol_sharing::{PolicySettings, Settings, TenantId, TenantSettings};

use super::core::{Accesses, Scene as Alone, run};
use super::scene::{Actor, Kept, Phase, Scene, Story, TenantMoment};

/// Threads with which the rate of accesses is measured, as in figure 3.
const THREADS: u32 = 128;
/// Accesses of a measurement. Its seed is constant, since a machine is profiled once.
const ACCESSES: u64 = 6_000;
const SEED: u64 = 1;
const LARGE_ACCESSES: u64 = 200;

/// Time that a client and the processor add to each request, before the device is slowed.
pub(super) const THINK: Duration = Duration::from_nanos(100);

/// Two modules, slowed by a factor; a second of them takes that much less to simulate. All times of
/// the device and its costs are stretched alike, those of the controller are not.
pub(super) struct Device {
    slower: u32,
    seed: u64,
    parameters: Parameters,
    costs: Arc<CostTable>,
}

impl Device {
    pub(super) fn slower(slower: u32, seed: u64) -> Device {
        let costs = scaled(measured(), f64::from(slower));
        Device {
            slower,
            seed,
            parameters: stretched(AEP2, u64::from(slower)),
            costs: Arc::new(costs),
        }
    }

    /// Changes the share that reads keep beside writes; the costs stay.
    #[cfg(test)]
    pub(super) fn with_read_share(mut self, milli: u64) -> Device {
        self.parameters.module.read_share_milli = milli;
        self
    }

    /// Converts a time of the paper to this device.
    pub(super) fn time(&self, time: Duration) -> Duration {
        time * self.slower
    }

    /// Converts a rate of the paper to this device.
    pub(super) fn rate(&self, per_second: f64) -> f64 {
        per_second / f64::from(self.slower)
    }

    /// Converts a rate of this device to one that the paper would print.
    pub(super) fn printed(&self, per_second: f64) -> f64 {
        per_second * f64::from(self.slower)
    }

    /// Returns the share of the device that a rate takes, given in the paper's numbers.
    pub(super) fn share(&self, access: Access, bytes: u64, per_second: f64) -> f64 {
        self.rate(per_second) * self.costs.cost_ns(access, bytes as usize) / 1e9
    }

    /// Returns the cost of an access to this device.
    pub(super) fn cost_ns(&self, access: Access, bytes: u64) -> f64 {
        self.costs.cost_ns(access, bytes as usize)
    }

    /// Returns the largest rate of accesses, as the paper would print it.
    pub(super) fn most(&self, access: Access, bytes: u64) -> f64 {
        self.printed(1e9 / self.costs.cost_ns(access, bytes as usize))
    }

    pub(super) fn gets(&self, threads: u32, bytes: u64) -> Phase {
        Phase::gets(threads, bytes, self.time(THINK))
    }

    pub(super) fn sets(&self, threads: u32, bytes: u64) -> Phase {
        Phase::sets(threads, bytes, self.time(THINK))
    }

    pub(super) fn scene(&self, policy: PolicySettings, cast: Cast, seconds: f64) -> Scene {
        Scene {
            device: self.parameters,
            costs: Arc::clone(&self.costs),
            settings: Settings::new("model:aep2", policy, cast.tenants),
            actors: cast.actors,
            time: Duration::from_secs_f64(seconds),
            moment: Duration::from_millis(100),
            background_is_charged: true,
            // The paper's costs depend on the size only, not on the alignment of an access.
            units_are_charged: false,
            seed: self.seed,
        }
    }

    /// Returns the fair policy with pauses that are stretched like the device.
    pub(super) fn fair(&self) -> FairSettings {
        FairSettings { alone: self.pauses(AloneSettings::default()), ..FairSettings::default() }
    }

    /// Stretches pauses that show performance alone like the device, so that one holds as many
    /// requests as on the paper's, which found a millisecond to be enough there (4.1). In a
    /// millisecond of a slowed device a tenant is answered a few dozen times, beside writes of the
    /// others that are still in the device's buffers.
    pub(super) fn pauses(&self, usual: AloneSettings) -> AloneSettings {
        let (pause, pause_max) = (self.time(usual.pause), self.time(usual.pause_max));
        AloneSettings { pause, pause_max, ..usual }
    }

    /// Returns a policy of shares with pauses that are stretched like the device.
    pub(super) fn proportional(&self, usual: ProportionalSettings) -> ProportionalSettings {
        ProportionalSettings { alone: self.pauses(usual.alone), ..usual }
    }

    /// Describes the pauses of the fair policy for the scenarios.
    pub(super) fn told_pauses(&self) -> String {
        let pause = self.fair().alone.pause.as_millis();
        format!(
            "Pauses that show performance alone are stretched too: {pause} ms for the paper's 1."
        )
    }

    /// Describes the scale for the scenarios.
    pub(super) fn told(&self) -> String {
        format!(
            "The device is slowed {} times, so that {} s of it are as much work as one; the \
             controller's times are not. Rates are printed as those of the whole device.",
            self.slower, self.slower
        )
    }
}

/// Tenants and their actions.
#[derive(Clone, Default)]
pub(super) struct Cast {
    pub(super) tenants: Vec<TenantSettings>,
    pub(super) actors: Vec<Actor>,
}

impl Cast {
    pub(super) fn with(mut self, tenant: TenantSettings, phases: Vec<Phase>) -> Cast {
        self.actors.push(Actor { tenant: tenant.id, phases, cache: None });
        self.tenants.push(tenant);
        self
    }

    /// Adds a tenant whose requests a cache answers.
    pub(super) fn with_cache(
        mut self,
        tenant: TenantSettings,
        phases: Vec<Phase>,
        cache: Kept,
    ) -> Cast {
        self.actors.push(Actor { tenant: tenant.id, phases, cache: Some(cache) });
        self.tenants.push(tenant);
        self
    }
}

pub(super) fn tenant(id: TenantId, name: &str) -> TenantSettings {
    TenantSettings::new(id, name)
}

/// Plays a scene. Its settings come from this program; an error in them is a bug.
pub(super) fn play(scene: &Scene) -> Story {
    match scene.play() {
        Ok(story) => story,
        Err(errors) => unreachable!("{errors}"),
    }
}

/// Returns a tenant's mean of a figure over a range of seconds, or NaN if it has no moment.
pub(super) fn mean(
    story: &Story,
    tenant: TenantId,
    seconds: Range<f64>,
    of: impl Fn(&TenantMoment) -> f64,
) -> f64 {
    let values: Vec<f64> = values(story, tenant, seconds, of).map(|(_, value)| value).collect();
    values.iter().sum::<f64>() / values.len() as f64
}

/// Returns a figure of a tenant for each moment: seconds and values.
pub(super) fn values<'a>(
    story: &'a Story,
    tenant: TenantId,
    seconds: Range<f64>,
    of: impl Fn(&TenantMoment) -> f64 + 'a,
) -> impl Iterator<Item = (f64, f64)> + 'a {
    story
        .of(tenant, Duration::ZERO)
        .map(move |(at, moment)| (at.0 as f64 / 1e9, of(moment)))
        .filter(move |(at, _)| *at > seconds.start + 1e-9 && *at <= seconds.end + 1e-9)
}

pub(super) fn operations_s(moment: &TenantMoment) -> f64 {
    moment.operations_s
}

pub(super) fn bytes_s(moment: &TenantMoment) -> f64 {
    moment.bytes_s
}

pub(super) fn share(moment: &TenantMoment) -> f64 {
    moment.share
}

/// Returns the mean and the standard deviation.
pub(super) fn spread(values: &[f64]) -> (f64, f64) {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let squares: f64 = values.iter().map(|value| (value - mean) * (value - mean)).sum();
    (mean, (squares / values.len() as f64).sqrt())
}

/// Draws lines over time.
pub(super) fn over_time(title: &str, what: &str, rows: Vec<Line>) -> String {
    drawing(title, "seconds", what, rows)
}

pub(super) fn drawing(title: &str, x: &str, y: &str, rows: Vec<Line>) -> String {
    drawing_beside(title, (x, y), &rows, &[])
}

/// Draws lines over named axes, and the paper's with the indices of the lines whose colours they
/// share.
pub(super) fn drawing_beside(
    title: &str,
    (x, y): (&str, &str),
    rows: &[Line],
    papers: &[(usize, Line)],
) -> String {
    let axis =
        |label: &str| Axis { label: label.to_owned(), scale: Scale::Linear, ticks: Vec::new() };
    lines_beside(title, &axis(x), &axis(y), rows, papers)
}

/// Creates a line at one number of the paper, in a colour of its own.
pub(super) fn level(label: &str, from: f64, to: f64, value: f64) -> (usize, Line) {
    (7, line(&format!("paper: {label}"), [(from, value), (to, value)]))
}

pub(super) fn line(label: &str, points: impl IntoIterator<Item = (f64, f64)>) -> Line {
    Line { label: label.to_owned(), points: points.into_iter().collect() }
}

/// Returns the device's parameters with every time stretched.
fn stretched(parameters: Parameters, by: u64) -> Parameters {
    let slow = |time: Picos| Picos(time.0 * by);
    let Parameters { processor, module, interleave, prefetch, further } = parameters;
    Parameters {
        processor: Processor {
            cached_word: slow(processor.cached_word),
            cached_line: slow(processor.cached_line),
            store_line: slow(processor.store_line),
            store_pace: slow(processor.store_pace),
            ..processor
        },
        module: Module {
            unit_read: slow(module.unit_read),
            jump: slow(module.jump),
            unit_read_ahead: slow(module.unit_read_ahead),
            line_read: slow(module.line_read),
            buffered_line: slow(module.buffered_line),
            store_latency: slow(module.store_latency),
            partial_line: slow(module.partial_line),
            read_bytes_s: module.read_bytes_s / by,
            write_bytes_s: module.write_bytes_s / by,
            ..module
        },
        interleave,
        prefetch: prefetch.map(|prefetch| entresol_media::model::memory::Prefetch {
            unit_pace: slow(prefetch.unit_pace),
            ..prefetch
        }),
        further: further
            .map(|further| Further { past_caches: slow(further.past_caches), ..further }),
    }
}

/// Returns 1 / MaxIOPS of every size, measured as in figure 3.
fn measured() -> &'static MeasuredCosts {
    static COSTS: OnceLock<MeasuredCosts> = OnceLock::new();
    COSTS.get_or_init(|| {
        let cost = |op, bytes: u64, count| {
            let scene = Alone { threads: THREADS, ..Alone::alone(Accesses { op, bytes }, count) };
            1e9 / run(&AEP2, &scene, SEED).per_second
        };
        let row = |op| (1..=64).map(|lines| cost(op, lines * 64, ACCESSES)).collect();
        let large = |op| LARGE_SIZES.map(|bytes| cost(op, bytes as u64, LARGE_ACCESSES)).to_vec();
        MeasuredCosts {
            read_ns: row(MemoryOp::Load),
            write_ns: row(MemoryOp::NtStore),
            read_large_ns: large(MemoryOp::Load),
            write_large_ns: large(MemoryOp::NtStore),
        }
    })
}

fn scaled(costs: &MeasuredCosts, by: f64) -> CostTable {
    let row = |row: &[f64]| row.iter().map(|ns| ns * by).collect();
    let costs = MeasuredCosts {
        read_ns: row(&costs.read_ns),
        write_ns: row(&costs.write_ns),
        read_large_ns: row(&costs.read_large_ns),
        write_large_ns: row(&costs.write_large_ns),
    };
    let source = CostSource {
        medium: "model:aep2".to_owned(),
        machine: String::new(),
        date: String::new(),
        spread: 0.0,
        method: format!("random accesses by {THREADS} threads, all times {by} times as long"),
    };
    match CostTable::from_measured(source, &costs) {
        Ok(table) => table,
        Err(error) => unreachable!("{error}"),
    }
}
