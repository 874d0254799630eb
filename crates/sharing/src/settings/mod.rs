//! The configuration of a controller: media, tenants, groups, and the policy with its parameters.
//!
//! Every parameter that the paper names is here with the paper's default. Where the paper has no
//! number, the default is ours and its comment says so.

mod check;
mod policy;

pub use policy::{
    AloneSettings, BandwidthSettings, Choice, Donation, Enforcement, EpochSettings, Expense,
    FairPace, FairSettings, LimitSettings, Metric, Pace, PolicySettings, ProportionalSettings,
    QosSettings, WatchSettings,
};

use crate::error::SettingsErrors;
use crate::tenant::TenantSettings;

/// How many decisions the log keeps unless told otherwise.
const DECISIONS_MAX: usize = 256;

/// Some tenants under a policy of their own. Beside other groups it is treated as one tenant.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupSettings {
    /// What the group is to the policy between groups. Its name is what its tenants refer to.
    pub whole: TenantSettings,
    /// The policy among its tenants.
    pub policy: PolicySettings,
}

/// What a controller is made of.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// The media's names.
    pub media: Vec<String>,
    /// The policy between all tenants, or between all groups if there are any.
    pub policy: PolicySettings,
    /// The tenants.
    pub tenants: Vec<TenantSettings>,
    /// The groups; none, or every tenant is in one.
    pub groups: Vec<GroupSettings>,
    /// Seed of what must not be guessed: the times at which a tenant's alone-performance is taken.
    pub seed: u64,
    /// How many decisions the log keeps.
    pub decisions_max: usize,
}

impl Settings {
    /// This policy for these tenants on one medium.
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

    /// Looks for mistakes.
    ///
    /// # Errors
    /// All of them, each with what is wrong and the fix.
    pub fn check(&self) -> Result<(), SettingsErrors> {
        let mistakes = check::mistakes(self);
        if mistakes.is_empty() { Ok(()) } else { Err(SettingsErrors(mistakes)) }
    }
}
