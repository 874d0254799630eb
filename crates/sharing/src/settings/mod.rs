//! The configuration of a controller: media, tenants, groups, and the policy with its parameters.
//!
//! Every parameter that the paper names has the paper's default. Where the paper has no number, the
//! default is ours and its comment says so.

mod check;
mod policy;

pub use policy::{
    AloneSettings, BandwidthSettings, Choice, Donation, Enforcement, EpochSettings, Expense,
    FairPace, FairSettings, LimitSettings, Metric, Pace, PolicySettings, ProportionalSettings,
    QosSettings, WatchSettings,
};

use crate::error::SettingsErrors;
use crate::tenant::TenantSettings;

/// Default number of decisions that are kept.
const DECISIONS_MAX: usize = 256;

/// Some tenants under a policy of their own, which count as one tenant beside other groups.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    /// Settings of the group in the policy between groups. Its tenants refer to it by the name.
    pub whole: TenantSettings,
    /// Policy among its tenants.
    pub policy: PolicySettings,
}

/// Settings of a controller.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Names of the media.
    pub media: Vec<String>,
    /// Policy between all tenants, or between all groups if there are any.
    pub policy: PolicySettings,
    /// All tenants.
    pub tenants: Vec<TenantSettings>,
    /// Groups. If there are any, every tenant is in one.
    pub groups: Vec<GroupSettings>,
    /// Seed of the times at which performance alone is measured, which tenants must not guess.
    pub seed: u64,
    /// Number of decisions that are kept.
    pub decisions_max: usize,
}

impl Settings {
    /// Settings of a policy for these tenants on one medium.
    #[must_use]
    pub fn new(
        medium: impl Into<String>,
        policy: PolicySettings,
        tenants: Vec<TenantSettings>,
    ) -> Settings {
        Settings {
            media: vec![medium.into()],
            policy,
            tenants,
            groups: Vec::new(),
            seed: 1,
            decisions_max: DECISIONS_MAX,
        }
    }

    /// Checks the settings.
    ///
    /// # Errors
    /// All mistakes, each with its fix.
    pub fn check(&self) -> Result<(), SettingsErrors> {
        let mistakes = check::mistakes(self);
        if mistakes.is_empty() { Ok(()) } else { Err(SettingsErrors(mistakes)) }
    }
}
