//! Tenants and media of a controller: numbers, names and promises.

use std::time::Duration;

/// Number of a tenant, or of a group where a policy stands between groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TenantId(pub u32);

/// Number of a medium: its place in [`Settings::media`](crate::Settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MediumId(pub usize);

impl MediumId {
    /// The first `count` media.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = MediumId> {
        (0..count).map(MediumId)
    }
}

/// Class of a tenant.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// Requests must be answered in time.
    LatencyCritical,
    /// Requests get what is left.
    #[default]
    BestEffort,
}

/// A promised response time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Percentile that has to keep it, such as 99.0.
    pub percent: f64,
    /// Response time.
    pub latency: Duration,
}

/// Promises to a tenant and limits on it. Each policy reads its own part.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantSettings {
    /// Number of the tenant.
    pub id: TenantId,
    /// Name of the tenant, for the log.
    pub name: String,
    /// Group that it belongs to.
    pub group: Option<String>,
    /// Class of the tenant. Read by `qos` and `caladan`.
    pub class: Class,
    /// Target of a latency-critical tenant. Read by `qos` and `caladan`.
    pub target: Option<Target>,
    /// Weight beside others: twice the weight is twice the share under `proportional`, and half the
    /// slowdown under `fair`.
    pub weight: f64,
    /// Maximum share of each medium's time, in the order of the media; a missing one is unlimited.
    /// Read by `limit`.
    pub share_max: Vec<Option<f64>>,
    /// Maximum bytes a second that it may move on each medium. Read by `bandwidth`.
    pub bytes_s_max: Option<f64>,
    /// Maximum slowdown compared with being alone. Read by `fair`.
    pub slowdown_max: Option<f64>,
}

impl TenantSettings {
    /// Creates a best-effort tenant of weight 1 without promises.
    #[must_use]
    pub fn new(id: TenantId, name: impl Into<String>) -> TenantSettings {
        TenantSettings {
            id,
            name: name.into(),
            group: None,
            class: Class::BestEffort,
            target: None,
            weight: 1.0,
            share_max: Vec::new(),
            bytes_s_max: None,
            slowdown_max: None,
        }
    }

    /// Makes the tenant latency-critical, with this target.
    #[must_use]
    pub fn latency_critical(self, target: Target) -> TenantSettings {
        TenantSettings { class: Class::LatencyCritical, target: Some(target), ..self }
    }

    /// Target, if the tenant's class entitles it to one.
    pub(crate) fn promised(&self) -> Option<Target> {
        self.target.filter(|_| self.class == Class::LatencyCritical)
    }
}
