//! The policies' parameters.

use std::time::Duration;

use crate::error::SettingsError;

/// Which promise is kept, and its parameters.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PolicySettings {
    /// Nothing is done; for comparison.
    #[default]
    None,
    /// No tenant uses more than its share of a medium.
    Limit(LimitSettings),
    /// No tenant moves more bytes than it may; for comparison.
    Bandwidth(BandwidthSettings),
    /// Latency-critical tenants keep their targets.
    Qos(QosSettings),
    /// All are slowed alike.
    Fair(FairSettings),
    /// Each gets what its weight says, and what others leave.
    Proportional(ProportionalSettings),
}

/// The names by which a configuration chooses.
const NAMES: [&str; 7] = ["none", "limit", "bandwidth", "qos", "caladan", "fair", "proportional"];

impl PolicySettings {
    /// The policy of this name, with its defaults.
    ///
    /// # Errors
    /// If there is none, with the nearest one.
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

    /// Its name.
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

/// How shares are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Enforcement {
    /// By the account's bucket: exact in every interval.
    #[default]
    Bucket,
    /// The paper's algorithm 1: whoever has used up the share of an epoch is stopped until the next
    /// one. It leaks by what is used between two ticks, and at the border of two epochs.
    Epochs(EpochSettings),
}

/// The paper's epochs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EpochSettings {
    /// How often use is looked at.
    pub tick: Duration,
    /// How many ticks make an epoch.
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
    /// How the shares are held.
    pub enforcement: Enforcement,
}

/// Parameters of `bandwidth`.
#[derive(Debug, Clone, PartialEq)]
pub struct BandwidthSettings {
    /// How often the rate in bytes is translated into a share of the device anew.
    pub tick: Duration,
}

impl Default for BandwidthSettings {
    fn default() -> BandwidthSettings {
        BandwidthSettings { tick: Duration::from_millis(10) }
    }
}

/// What is compared when two situations of a tenant are.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Metric {
    /// Requests answered in a second: the more the better.
    #[default]
    Throughput,
    /// The mean response time.
    Mean,
    /// This percentile of the response times, as 99.0.
    Percentile(f64),
}

/// How long something is watched before it is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WatchSettings {
    /// At least so long.
    pub shortest: Duration,
    /// At most so long, however few requests there were. The paper's 500 ms.
    pub longest: Duration,
    /// In between, until so many requests lie beyond the percentile that is watched.
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

/// What a candidate has to give up in an experiment, the same for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Expense {
    /// Bytes moved in a second: the paper's ExperimentStep.
    Bytes(f64),
    /// A share of the medium's time.
    Share(f64),
}

/// Who is slowed when a target is missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Choice {
    /// Whoever helps most for the same expense, by experiment.
    #[default]
    Interference,
    /// Whoever moves most bytes: Caladan's rule.
    LargestBandwidth,
}

/// How far a step goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Far when the target is far, little when it is near; a culprit once found is not looked for
    /// again while slowing it helps; a step that had to be taken back is tried again after ever
    /// longer pauses.
    #[default]
    Adaptive,
    /// The paper's: one expense at a time, an experiment before each.
    Published,
}

/// Parameters of `qos` and `caladan`.
#[derive(Debug, Clone, PartialEq)]
pub struct QosSettings {
    /// How often counters are read.
    pub tick: Duration,
    /// How long response times are watched before they are judged.
    pub watch: WatchSettings,
    /// Who is slowed.
    pub choice: Choice,
    /// How far a step goes.
    pub pace: Pace,
    /// What an experiment costs each candidate.
    pub expense: Expense,
    /// By what an experiment is judged; none stands for the percentile of the victim's target.
    pub metric: Option<Metric>,
    /// How many candidates, those with the largest use, are tried.
    pub candidates_max: usize,
    /// Tenants with more slack than this may be slowed; if all have it, all are released a step.
    pub slack_min: f64,
    /// Nobody is slowed below this share of a medium. Ours: a stopped tenant shows nothing.
    pub share_min: f64,
    /// What had to be taken back is tried again after at most this. Ours.
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

    /// The paper's comparison: always the largest bandwidth.
    #[must_use]
    pub fn caladan() -> QosSettings {
        QosSettings { choice: Choice::LargestBandwidth, ..QosSettings::published() }
    }
}

/// How the performance without the others is learnt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AloneSettings {
    /// How often, on average; the times themselves are random, so that nobody can wait for them.
    pub period: Duration,
    /// For how long the others are paused.
    pub pause: Duration,
    /// A pause in which fewer requests than this were answered goes on. Ours.
    pub operations_min: u64,
    /// But not for longer than this. Ours. On a slow medium `fair` makes pauses of 16 times this,
    /// as rare as keeps them all within 2.5% of the time.
    pub pause_max: Duration,
    /// A change of the mean size, the part of writes or the free-running throughput by more than
    /// this is a change of the load, after which the performance is learnt anew. Ours.
    pub change: f64,
    /// Whether what a pause shows is held against what the tenant did before it, lest it races in
    /// pauses only. Ours.
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

/// How `fair` slows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum FairPace {
    /// By shares, far when far from fair and little when near.
    #[default]
    Adaptive,
    /// The paper's: so many times 10 ns more or less in front of each access.
    Delays(u32),
}

/// Parameters of `fair`.
#[derive(Debug, Clone, PartialEq)]
pub struct FairSettings {
    /// How often counters are read.
    pub tick: Duration,
    /// How often slow-downs are compared. Ours; the paper has no number.
    pub interval: Duration,
    /// How alone-performance is learnt.
    pub alone: AloneSettings,
    /// What slow-down means.
    pub metric: Metric,
    /// The largest slow-down over the smallest, up to which it is fair. The paper prints no number;
    /// its figure 9 settles below this.
    pub unfairness_max: f64,
    /// After so many fair rounds all are released a step. Ours; the paper has no number.
    pub rounds: u32,
    /// Whether slow-downs are made equal at all; if not, only tenants' own limits are kept.
    pub equalise: bool,
    /// How it slows.
    pub pace: FairPace,
    /// How far below a tenant's own limit the others begin to be slowed. Ours.
    pub margin: f64,
    /// Nobody is slowed below this share of a medium. Ours.
    pub share_min: f64,
    /// What had to be taken back is tried again after at most this. Ours.
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

/// Who may use what its owner leaves idle.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Donation {
    /// Nobody.
    Never,
    /// Whoever needs it, all of it at once: the paper's option 1.
    Naive,
    /// Whoever needs it, a step at a time, as long as the owner's performance stays above its
    /// guarantee: the paper's option 2. The step is a part of what the owner has, the paper's 0.1.
    Steps(f64),
    /// The same with steps that are large while the guarantee is far and small when it is near.
    Adaptive,
}

/// Parameters of `proportional`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProportionalSettings {
    /// How often counters are read.
    pub tick: Duration,
    /// How often shares are assigned anew, if the bucket holds them; an epoch is the period if
    /// not. Ours.
    pub period: Duration,
    /// How the shares are held.
    pub enforcement: Enforcement,
    /// What happens to idle resources.
    pub donation: Donation,
    /// How alone-performance is learnt.
    pub alone: AloneSettings,
    /// What slow-down means.
    pub metric: Metric,
    /// How far below its guarantee an owner's slow-down stays. Read by `Donation::Adaptive`. Ours.
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
