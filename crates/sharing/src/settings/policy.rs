//! Parameters of the policies.

use std::time::Duration;

use crate::error::SettingsError;

/// A policy with its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PolicySettings {
    /// Tenants are free, for comparison.
    #[default]
    None,
    /// Tenants use at most their share of a medium.
    Limit(LimitSettings),
    /// Tenants move at most the bytes a second of their limits; for comparison.
    Bandwidth(BandwidthSettings),
    /// Latency-critical tenants keep their targets.
    Qos(QosSettings),
    /// Tenants are slowed alike.
    Fair(FairSettings),
    /// Each tenant gets its weight's part, and what others leave.
    Proportional(ProportionalSettings),
}

/// Names of the policies in a configuration.
const NAMES: [&str; 7] = ["none", "limit", "bandwidth", "qos", "caladan", "fair", "proportional"];

impl PolicySettings {
    /// Policy of this name, with its defaults.
    ///
    /// # Errors
    /// When there is none; names the nearest one.
    pub fn named(name: &str) -> Result<PolicySettings, SettingsError> {
        Ok(match name {
            "none" => PolicySettings::None,
            "limit" => PolicySettings::Limit(LimitSettings::default()),
            "bandwidth" => PolicySettings::Bandwidth(BandwidthSettings::default()),
            "qos" => PolicySettings::Qos(QosSettings::default()),
            "caladan" => PolicySettings::Qos(QosSettings::caladan()),
            "fair" => PolicySettings::Fair(FairSettings::default()),
            "proportional" => PolicySettings::Proportional(ProportionalSettings::default()),
            name => {
                let hint = match entresol_base::suggest::nearest(name, NAMES) {
                    Some(nearest) => format!("did you mean '{nearest}'?"),
                    None => format!("write one of {}", NAMES.join(", ")),
                };
                return Err(SettingsError::UnknownPolicy { name: name.to_owned(), hint });
            }
        })
    }

    /// Name of the policy.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            PolicySettings::None => "none",
            PolicySettings::Limit(_) => "limit",
            PolicySettings::Bandwidth(_) => "bandwidth",
            PolicySettings::Qos(qos) if qos.choice == Choice::LargestBandwidth => "caladan",
            PolicySettings::Qos(_) => "qos",
            PolicySettings::Fair(_) => "fair",
            PolicySettings::Proportional(_) => "proportional",
        }
    }
}

/// Way of enforcing shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enforcement {
    /// The account's bucket: exact in every interval.
    #[default]
    Bucket,
    /// The paper's algorithm 1: a tenant that has used up its share of an epoch is stopped until
    /// the next one. It leaks use between two ticks, and at the border of two epochs.
    Epochs(EpochSettings),
}

/// Parameters of the paper's epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSettings {
    /// Interval between looks at the use.
    pub tick: Duration,
    /// Ticks in an epoch.
    pub ticks: u32,
}

impl Default for EpochSettings {
    fn default() -> EpochSettings {
        EpochSettings { tick: Duration::from_millis(10), ticks: 100 }
    }
}

impl EpochSettings {
    pub(crate) fn length(&self) -> Duration {
        self.tick * self.ticks
    }
}

/// Parameters of `limit`.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct LimitSettings {
    /// Way of enforcing the shares.
    pub enforcement: Enforcement,
}

/// Parameters of `bandwidth`.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthSettings {
    /// Interval at which the rate in bytes is translated into a share of the device.
    pub tick: Duration,
}

impl Default for BandwidthSettings {
    fn default() -> BandwidthSettings {
        BandwidthSettings { tick: Duration::from_millis(10) }
    }
}

/// Metric by which two situations of a tenant are compared.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Metric {
    /// Requests answered in a second.
    #[default]
    Throughput,
    /// Mean response time.
    Mean,
    /// Percentile of the response times, such as 99.0.
    Percentile(f64),
}

/// Length of a watch before it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchSettings {
    /// Minimum length.
    pub shortest: Duration,
    /// Maximum length, however few requests there were; the paper's 500 ms.
    pub longest: Duration,
    /// Number of requests beyond the watched percentile that ends a watch between the two.
    pub tail_min: u64,
}

impl Default for WatchSettings {
    fn default() -> WatchSettings {
        WatchSettings {
            shortest: Duration::from_millis(20),
            longest: Duration::from_millis(500),
            tail_min: 100,
        }
    }
}

/// Amount that each candidate gives up in an experiment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expense {
    /// Bytes a second: the paper's ExperimentStep.
    Bytes(f64),
    /// Share of the medium's time.
    Share(f64),
}

/// Choice of the tenant that is slowed when a target is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// The one whose slowing helps most for the same expense, by experiment.
    #[default]
    Interference,
    /// The one that moves most bytes: Caladan's rule.
    LargestBandwidth,
}

/// Size of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Large far from the target, small near it. A known culprit is slowed again without an
    /// experiment while that helps. A step that had to be taken back is tried again after ever
    /// longer waits.
    #[default]
    Adaptive,
    /// The paper's: one expense at a time, with an experiment before each.
    Published,
}

/// Parameters of `qos` and `caladan`.
#[derive(Debug, Clone, PartialEq)]
pub struct QosSettings {
    /// Interval between readings of the counters.
    pub tick: Duration,
    /// Length of a watch before it is judged.
    pub watch: WatchSettings,
    /// Choice of the tenant that is slowed.
    pub choice: Choice,
    /// Size of a step.
    pub pace: Pace,
    /// Amount that an experiment costs each candidate.
    pub expense: Expense,
    /// Metric of an experiment; none stands for the percentile of the victim's target.
    pub metric: Option<Metric>,
    /// Number of candidates that are tried, those with the largest use.
    pub candidates_max: usize,
    /// Slack above which a tenant may be slowed; if all have it, all are released by a step.
    pub slack_min: f64,
    /// Share of a medium below which no tenant is slowed. Ours: a stopped tenant shows nothing.
    pub share_min: f64,
    /// Maximum wait before a step that was taken back is tried again. Ours.
    pub patience_max: Duration,
}

impl Default for QosSettings {
    fn default() -> QosSettings {
        QosSettings {
            tick: Duration::from_millis(10),
            watch: WatchSettings::default(),
            choice: Choice::Interference,
            pace: Pace::Adaptive,
            expense: Expense::Bytes(500e6),
            metric: None,
            candidates_max: 3,
            slack_min: 0.2,
            share_min: 0.002,
            patience_max: Duration::from_secs(600),
        }
    }
}

impl QosSettings {
    /// The paper's algorithm 2 as printed, with the windows of section 4.3.
    #[must_use]
    pub fn published() -> QosSettings {
        let longest = WatchSettings::default().longest;
        QosSettings {
            pace: Pace::Published,
            watch: WatchSettings { shortest: longest, ..WatchSettings::default() },
            ..QosSettings::default()
        }
    }

    /// The paper's comparison, which always slows the largest bandwidth.
    #[must_use]
    pub fn caladan() -> QosSettings {
        QosSettings { choice: Choice::LargestBandwidth, ..QosSettings::published() }
    }
}

/// Measurement of performance alone.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AloneSettings {
    /// Mean interval between pauses; the times are random, so that no tenant can wait for them.
    pub period: Duration,
    /// Length of a pause of the others.
    pub pause: Duration,
    /// Requests below which a pause is prolonged. Ours.
    pub operations_min: u64,
    /// Maximum length of a pause. Ours. On a slow medium `fair` makes pauses of 16 times this, rare
    /// enough that all together take 2.5% of the time.
    pub pause_max: Duration,
    /// Relative change of the mean size, the part of writes or the free-running throughput that
    /// makes another load, whose performance is measured anew. Ours.
    pub change: f64,
    /// True to compare a pause with the tenant's load before it, lest it races in pauses only.
    /// Ours.
    pub is_checked: bool,
}

impl Default for AloneSettings {
    fn default() -> AloneSettings {
        AloneSettings {
            period: Duration::from_secs(1),
            pause: Duration::from_millis(1),
            operations_min: 32,
            pause_max: Duration::from_millis(5),
            change: 0.25,
            is_checked: true,
        }
    }
}

/// Way in which `fair` slows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FairPace {
    /// Shares, changed in steps that are large far from fair and small near it.
    #[default]
    Adaptive,
    /// Delays before each access, changed by this many times 10 ns: the paper's.
    Delays(u32),
}

/// Parameters of `fair`.
#[derive(Debug, Clone, PartialEq)]
pub struct FairSettings {
    /// Interval between readings of the counters.
    pub tick: Duration,
    /// Interval between comparisons of slowdowns. Ours; the paper has no number.
    pub interval: Duration,
    /// Measurement of performance alone.
    pub alone: AloneSettings,
    /// Metric of slowdown.
    pub metric: Metric,
    /// Largest slowdown over the smallest, up to which sharing counts as fair. The paper prints no
    /// number; its figure 9 settles below this.
    pub unfairness_max: f64,
    /// Fair rounds after which all are released by a step. Ours; the paper has no number.
    pub rounds: u32,
    /// True to make slowdowns equal, rather than only keep tenants' own limits.
    pub equalise: bool,
    /// Way of slowing.
    pub pace: FairPace,
    /// Distance below a tenant's own limit at which the others begin to be slowed. Ours.
    pub margin: f64,
    /// Share of a medium below which no tenant is slowed. Ours.
    pub share_min: f64,
    /// Maximum wait before a step that was taken back is tried again. Ours.
    pub patience_max: Duration,
}

impl Default for FairSettings {
    fn default() -> FairSettings {
        FairSettings {
            tick: Duration::from_millis(10),
            interval: Duration::from_millis(100),
            alone: AloneSettings::default(),
            metric: Metric::Throughput,
            unfairness_max: 1.05,
            rounds: 10,
            equalise: true,
            pace: FairPace::Adaptive,
            margin: 0.05,
            share_min: 0.002,
            patience_max: Duration::from_secs(600),
        }
    }
}

/// Use of a share that its owner leaves idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Donation {
    /// The share stays idle.
    Never,
    /// Tenants that need it get all of it at once: the paper's option 1.
    Naive,
    /// Tenants that need it get it by steps, as long as the owner's performance stays above its
    /// guarantee: the paper's option 2. The step is a part of the owner's share, the paper's 0.1.
    Steps(f64),
    /// Tenants that need it get it by steps, large while the guarantee is far and small when it is
    /// near.
    Adaptive,
}

/// Parameters of `proportional`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProportionalSettings {
    /// Interval between readings of the counters.
    pub tick: Duration,
    /// Interval between assignments of shares if the bucket holds them; otherwise it is an epoch.
    /// Ours.
    pub period: Duration,
    /// Way of enforcing the shares.
    pub enforcement: Enforcement,
    /// Use of idle shares.
    pub donation: Donation,
    /// Measurement of performance alone.
    pub alone: AloneSettings,
    /// Metric of slowdown.
    pub metric: Metric,
    /// Distance that an owner's slowdown keeps below its guarantee. Read by `Donation::Adaptive`.
    /// Ours.
    pub margin: f64,
}

impl Default for ProportionalSettings {
    fn default() -> ProportionalSettings {
        ProportionalSettings {
            tick: Duration::from_millis(10),
            period: Duration::from_millis(200),
            enforcement: Enforcement::Bucket,
            donation: Donation::Adaptive,
            alone: AloneSettings::default(),
            metric: Metric::Throughput,
            margin: 0.05,
        }
    }
}

impl ProportionalSettings {
    /// The paper's algorithm 4 as printed.
    #[must_use]
    pub fn published() -> ProportionalSettings {
        ProportionalSettings {
            enforcement: Enforcement::Epochs(EpochSettings::default()),
            donation: Donation::Steps(0.1),
            ..ProportionalSettings::default()
        }
    }
}
