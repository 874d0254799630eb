//! Throttles, the controller's output: how much of a medium a tenant may use.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use entresol_media::Limit;

use crate::tenant::{MediumId, TenantId};

/// Unit of the paper's delays.
pub const DELAY_UNIT: Duration = Duration::from_nanos(10);

/// Maximum number of digits behind the point when a share is printed.
const SHARE_DIGITS_MAX: usize = 6;

/// Throttle of a tenant on a medium.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Throttle {
    /// The tenant is not limited.
    #[default]
    Free,
    /// Limit to this share of the medium's time, kept by the bucket of its account.
    Share(f64),
    /// Delay of each access, in units of 10 ns. Only the paper's own variants use it; the account
    /// is left free.
    Delay(u32),
    /// Stopped until further notice.
    Stopped,
}

impl Throttle {
    /// Normalises a share: none, or no number, stops; all of the medium is free.
    #[must_use]
    pub fn share(share: f64) -> Throttle {
        match share {
            share if share.is_nan() || share <= 0.0 => Throttle::Stopped,
            share if share >= 1.0 => Throttle::Free,
            share => Throttle::Share(share),
        }
    }

    /// Limit to set on the tenant's account.
    #[must_use]
    pub fn limit(self) -> Limit {
        match self {
            Throttle::Free | Throttle::Delay(_) => Limit::Unlimited,
            Throttle::Share(share) => Limit::Share(share),
            Throttle::Stopped => Limit::Stopped,
        }
    }

    /// Delay of each access beside the limit.
    #[must_use]
    pub fn delay(self) -> Duration {
        match self {
            Throttle::Delay(units) => DELAY_UNIT * units,
            _ => Duration::ZERO,
        }
    }

    /// Largest share of the medium that it leaves, as far as that is known.
    #[must_use]
    pub fn share_max(self) -> f64 {
        match self {
            Throttle::Free | Throttle::Delay(_) => 1.0,
            Throttle::Share(share) => share,
            Throttle::Stopped => 0.0,
        }
    }

    /// Stricter one of a group's throttle and a policy's.
    #[must_use]
    pub(crate) fn and(self, other: Throttle) -> Throttle {
        match (self, other) {
            (Throttle::Stopped, _) | (_, Throttle::Stopped) => Throttle::Stopped,
            (Throttle::Free, other) | (other, Throttle::Free) => other,
            (Throttle::Share(a), Throttle::Share(b)) => Throttle::Share(a.min(b)),
            (Throttle::Delay(a), Throttle::Delay(b)) => Throttle::Delay(a.max(b)),
            // A share is exact; the effect of a delay is not known.
            (Throttle::Share(a), Throttle::Delay(_)) | (Throttle::Delay(_), Throttle::Share(a)) => {
                Throttle::Share(a)
            }
        }
    }
}

impl fmt::Display for Throttle {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Throttle::Free => write!(out, "free"),
            Throttle::Share(share) => {
                // Two significant digits: a thousandth of a percent is not nothing.
                let percent = share * 100.0;
                let (mut digits, mut scaled) = (1, percent);
                while scaled < 1.0 && digits < SHARE_DIGITS_MAX {
                    (digits, scaled) = (digits + 1, scaled * 10.0);
                }
                write!(out, "{percent:.digits$}%")
            }
            Throttle::Delay(units) => write!(out, "{} ns before each access", units * 10),
            Throttle::Stopped => write!(out, "stopped"),
        }
    }
}

/// An action: sets a tenant's throttle on a medium.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Action {
    /// Tenant to throttle.
    pub tenant: TenantId,
    /// Medium of the throttle.
    pub medium: MediumId,
    /// Throttle to set.
    pub throttle: Throttle,
}

/// Throttles of all tenants on all media. A tenant that is missing is free.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Throttles {
    set: BTreeMap<(TenantId, MediumId), Throttle>,
}

impl Throttles {
    pub(crate) fn get(&self, tenant: TenantId, medium: MediumId) -> Throttle {
        self.set.get(&(tenant, medium)).copied().unwrap_or_default()
    }

    pub(crate) fn set(&mut self, tenant: TenantId, medium: MediumId, throttle: Throttle) {
        debug_assert!(
            throttle.share_max() > 0.0 && throttle.share_max() <= 1.0
                || throttle == Throttle::Stopped,
            "tenant {tenant:?} is given {throttle:?} of a medium"
        );
        match throttle {
            Throttle::Free => self.set.remove(&(tenant, medium)),
            throttle => self.set.insert((tenant, medium), throttle),
        };
    }

    /// Sets the throttle on every medium. With at most this share of each, a tenant has at most
    /// this dominant share.
    pub(crate) fn set_all(&mut self, tenant: TenantId, media: usize, throttle: Throttle) {
        for medium in MediumId::all(media) {
            self.set(tenant, medium, throttle);
        }
    }

    /// Strictest throttle of a tenant on any medium.
    pub(crate) fn of(&self, tenant: TenantId) -> Throttle {
        let first = (tenant, MediumId(0));
        let last = (tenant, MediumId(usize::MAX));
        self.set.range(first..=last).fold(Throttle::Free, |all, (_, one)| all.and(*one))
    }

    pub(crate) fn is_throttled(&self, tenant: TenantId) -> bool {
        self.of(tenant) != Throttle::Free
    }

    /// Returns all throttles except `Free`, with their tenants and media.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantId, MediumId, Throttle)> {
        self.set.iter().map(|(&(tenant, medium), &throttle)| (tenant, medium, throttle))
    }

    /// Forgets the tenants that `keep` does not want.
    pub(crate) fn retain(&mut self, keep: impl Fn(TenantId) -> bool) {
        self.set.retain(|(tenant, _), _| keep(*tenant));
    }

    /// Actions that lead from `before` to these throttles, in the order of tenants and media.
    pub(crate) fn changes_since(&self, before: &Throttles) -> Vec<Action> {
        let places: std::collections::BTreeSet<_> =
            self.set.keys().chain(before.set.keys()).copied().collect();
        places
            .into_iter()
            .map(|(tenant, medium)| Action { tenant, medium, throttle: self.get(tenant, medium) })
            .filter(|action| before.get(action.tenant, action.medium) != action.throttle)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_put_in_order() {
        for (share, throttle) in [
            (f64::NAN, Throttle::Stopped),
            (-1.0, Throttle::Stopped),
            (0.0, Throttle::Stopped),
            (0.25, Throttle::Share(0.25)),
            (1.0, Throttle::Free),
            (f64::INFINITY, Throttle::Free),
        ] {
            assert_eq!(Throttle::share(share), throttle);
        }
        assert_eq!(Throttle::Stopped.limit(), Limit::Stopped);
        assert_eq!(Throttle::Delay(7).limit(), Limit::Unlimited);
        assert_eq!(Throttle::Delay(7).delay(), Duration::from_nanos(70));
    }

    #[test]
    fn a_small_share_is_not_shown_as_none() {
        let check = |share, text: &str| assert_eq!(Throttle::Share(share).to_string(), text);
        check(0.125, "12.5%");
        check(0.01, "1.0%");
        check(0.002, "0.20%");
        check(0.00001, "0.0010%");
        check(1e-12, "0.000000%");
    }

    #[test]
    fn changes_lead_from_one_state_to_the_other_and_back() {
        let (a, b) = (TenantId(1), TenantId(2));
        let mut before = Throttles::default();
        before.set_all(a, 2, Throttle::Share(0.5));
        let mut after = before.clone();
        after.set_all(a, 2, Throttle::Free);
        after.set(b, MediumId(1), Throttle::Stopped);
        let there = after.changes_since(&before);
        assert_eq!(there.len(), 3);
        let mut walked = before.clone();
        for action in &there {
            walked.set(action.tenant, action.medium, action.throttle);
        }
        assert_eq!(walked, after);
        assert!(after.changes_since(&after).is_empty());
        assert_eq!(after.of(b), Throttle::Stopped);
        assert!(!after.is_throttled(a));
    }
}
