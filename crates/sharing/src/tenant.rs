//! Tenants and media as the controller knows them: numbers, names, and what each was promised.

use std::time::Duration;

/// A tenant, or a group of them where a policy stands between groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct TenantId(pub u32);

/// A medium: its place in [`Settings::media`](crate::Settings).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MediumId(pub usize);

impl MediumId {
    /// The first so many media.
    pub(crate) fn all(count: usize) -> impl Iterator<Item = MediumId> {
        (0..count).map(MediumId)
    }
}

/// What a tenant's requests are to its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Class {
    /// They must be answered in time.
    LatencyCritical,
    /// They take what is left.
    #[default]
    BestEffort,
}

/// A promised response time.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Target {
    /// Which percentile has to keep it, as 99.0.
    pub percent: f64,
    /// The time.
    pub latency: Duration,
}

/// What a tenant was promised and what it must keep to. Each policy reads its own part.
#[derive(Debug, Clone, PartialEq)]
pub struct TenantSettings {
    /// Its number.
    pub id: TenantId,
    /// Its name, for the log.
    pub name: String,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// Whether it has a target. Read by `qos` and `caladan`.
    pub class: Class,
    /// Its target. Read by `qos` and `caladan`.
    pub target: Option<Target>,
    /// Its importance beside others: twice the weight is twice the share under `proportional`, and
    /// half the slow-down under `fair`.
    pub weight: f64,
    /// The most of each medium's time that it may use, in the order of the media; what is missing
    /// is unlimited. Read by `limit`.
    pub share_max: Vec<Option<f64>>,
    /// The most bytes a second that it may move on each medium. Read by `bandwidth`.
    pub bytes_s_max: Option<f64>,
    /// It must never be slowed more than this, compared with being alone. Read by `fair`.
    pub slowdown_max: Option<f64>,
}

impl TenantSettings {
    /// A best-effort tenant of weight 1 to which nothing was promised.
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

    /// The same, but it has a target.
    #[must_use]
    pub fn latency_critical(self, target: Target) -> TenantSettings {
        TenantSettings { class: Class::LatencyCritical, target: Some(target), ..self }
    }

    /// The target, if it is the tenant's to have.
    pub(crate) fn promised(&self) -> Option<Target> {
        self.target.filter(|_| self.class == Class::LatencyCritical)
    }
}
