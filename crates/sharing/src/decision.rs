//! Log of decisions: what was done to a tenant and why, in words. It is bounded; the oldest are
//! dropped.

use std::collections::VecDeque;
use std::fmt;

use entresol_base::Nanos;

use crate::tenant::TenantId;

/// A decision and its reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Time of the decision.
    pub at: Nanos,
    /// Tenant concerned; none if it concerns all of them.
    pub tenant: Option<TenantId>,
    /// Text with the reason, a sentence without the tenant's name.
    pub text: String,
}

impl fmt::Display for Decision {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{:.3} s: ", self.at.0 as f64 / 1e9)?;
        match self.tenant {
            Some(TenantId(id)) => write!(out, "tenant {id} {}", self.text),
            None => write!(out, "{}", self.text),
        }
    }
}

/// Log of the last decisions.
#[derive(Debug)]
pub struct Decisions {
    kept: VecDeque<Decision>,
    kept_max: usize,
    total: u64,
}

impl Decisions {
    pub(crate) fn new(kept_max: usize) -> Decisions {
        Decisions { kept: VecDeque::new(), kept_max, total: 0 }
    }

    pub(crate) fn add(&mut self, at: Nanos, tenant: Option<TenantId>, text: String) {
        self.total += 1;
        if self.kept_max == 0 {
            return;
        }
        if self.kept.len() >= self.kept_max {
            self.kept.pop_front();
        }
        self.kept.push_back(Decision { at, tenant, text });
    }

    /// Iterates over the decisions that are kept, the oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Decision> {
        self.kept.iter()
    }

    /// Last decision about a tenant.
    #[must_use]
    pub fn last_about(&self, tenant: TenantId) -> Option<&Decision> {
        self.kept.iter().rev().find(|decision| decision.tenant == Some(tenant))
    }

    /// Number of decisions ever added.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_go_and_the_count_stays() {
        let mut log = Decisions::new(2);
        for id in 0..5 {
            log.add(Nanos(u64::from(id)), Some(TenantId(id)), format!("said {id}"));
        }
        assert_eq!(log.total(), 5);
        assert_eq!(log.iter().count(), 2);
        assert_eq!(log.last_about(TenantId(1)), None);
        let last = log.last_about(TenantId(4)).expect("kept");
        assert_eq!(last.to_string(), "0.000 s: tenant 4 said 4");
        let mut mute = Decisions::new(0);
        mute.add(Nanos(0), None, String::new());
        assert_eq!((mute.iter().count(), mute.total()), (0, 1));
    }
}
