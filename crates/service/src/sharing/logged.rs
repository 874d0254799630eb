//! The policy's decisions in the server's log.
//!
//! Only a few are logged in each second, so that the log stays readable. All are counted in
//! `/metrics`, and the newest are in `/sharing.json`.

use std::collections::BTreeMap;
use std::time::Duration;

use entresol_base::Nanos;
use entresol_sharing::{Decision, Decisions, TenantId};

/// Maximum number of decisions logged in one second.
const LOGGED_MAX: u64 = 10;
const SECOND: Duration = Duration::from_secs(1);

/// State of the log.
#[derive(Debug, Default)]
pub(super) struct Logged {
    /// Decisions seen, logged or not.
    seen: u64,
    /// Start of the current second of the log.
    second: Nanos,
    in_second: u64,
    left_out: u64,
}

impl Logged {
    /// Logs the decisions since the last call.
    pub(super) fn log(
        &mut self,
        now: Nanos,
        decisions: &Decisions,
        ids: &BTreeMap<String, TenantId>,
    ) {
        let total = decisions.total();
        let fresh = total - std::mem::replace(&mut self.seen, total);
        let (some, left_out) = self.allow(now, fresh);
        if left_out > 0 {
            tracing::info!(left_out, "decisions were left out; the newest are in /sharing.json");
        }
        if some == 0 {
            return;
        }
        let old = (decisions.iter().count() as u64).saturating_sub(fresh);
        for Decision { tenant, text, .. } in decisions.iter().skip(old as usize).take(some as usize)
        {
            let known = tenant.and_then(|tenant| ids.iter().find(|(_, id)| **id == tenant));
            match known {
                Some((name, _)) => tracing::info!(tenant = %name, "{text}"),
                None => tracing::info!("sharing: {text}"),
            }
        }
    }

    /// Returns how many of `fresh` decisions may be logged, and how many were left out in the
    /// second before.
    fn allow(&mut self, now: Nanos, fresh: u64) -> (u64, u64) {
        let mut left_out = 0;
        if now.since(self.second) >= SECOND {
            (self.second, self.in_second) = (now, 0);
            left_out = std::mem::take(&mut self.left_out);
        }
        let some = fresh.min(LOGGED_MAX - self.in_second);
        self.in_second += some;
        self.left_out += fresh - some;
        (some, left_out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_gets_a_few_in_each_second_and_the_number_of_the_others() {
        let mut logged = Logged::default();
        let mut allow = |ms: u64, fresh| logged.allow(Nanos(ms * 1_000_000), fresh);
        assert_eq!(allow(5_000, 3), (3, 0));
        assert_eq!(allow(5_010, 20), (LOGGED_MAX - 3, 0));
        assert_eq!(allow(5_900, 1), (0, 0));
        assert_eq!(allow(6_000, 0), (0, 14));
        assert_eq!(allow(6_010, 2), (2, 0));
    }
}
