//! Groups: a policy between groups, and in each group a policy of its own.
//!
//! To the outer policy a group is one tenant with the sum of its tenants' use. Its allowance is
//! divided among them: each gets what it needs and what the inner policy allows, and the parts
//! never add up to more than the whole. Only one experiment or pause is under way at a time, since
//! two would measure each other.

use std::collections::BTreeMap;

use entresol_base::Nanos;

use super::Policy;
use super::divide::{Claim, divide};
use crate::decision::Decisions;
use crate::settings::Settings;
use crate::tenant::{MediumId, TenantId, TenantSettings};
use crate::throttle::{Throttle, Throttles};
use crate::tick::{Hands, Member, Tick};
use crate::window::Window;

/// Part of its allowance from which a tenant counts as busy and takes what it can get.
const BUSY: f64 = 0.9;
/// Factor by which the use of a tenant that is not busy may grow until the next tick.
const HEADROOM: f64 = 1.25;
const HEADROOM_MIN: f64 = 0.01;
/// Maximum number of decisions of the outer policy that are kept in one tick.
const OUTER_DECISIONS_MAX: usize = 64;

#[derive(Debug)]
pub(crate) struct Groups {
    outer: Box<dyn Policy>,
    /// Throttles of the groups, which are numbered by their place.
    outer_throttles: Throttles,
    inner: Vec<Inner>,
}

#[derive(Debug)]
struct Inner {
    whole: TenantSettings,
    policy: Box<dyn Policy>,
    /// Throttles that the inner policy asks for.
    throttles: Throttles,
}

impl Groups {
    pub(crate) fn new(outer: Box<dyn Policy>, settings: &Settings) -> Groups {
        let inner = settings.groups.iter().enumerate().map(|(index, group)| Inner {
            whole: TenantSettings { id: TenantId(index as u32), ..group.whole.clone() },
            policy: super::of(&group.policy, settings.seed.wrapping_add(1 + index as u64)),
            throttles: Throttles::default(),
        });
        Groups { outer, outer_throttles: Throttles::default(), inner: inner.collect() }
    }

    fn tick_outer(&mut self, tick: &Tick<'_>, parts: &[Tick<'_>], log: &mut Decisions) -> Nanos {
        let tenants = self.inner.iter().zip(parts).filter(|(_, part)| !part.tenants.is_empty());
        let tenants: BTreeMap<TenantId, Member<'_>> = tenants
            .map(|(inner, part)| {
                let mut window = Window::default();
                for member in part.tenants.values() {
                    window.elapsed = window.elapsed.max(member.window.elapsed);
                    window.add_beside(&member.window);
                }
                (inner.whole.id, Member { settings: &inner.whole, window })
            })
            .collect();
        let outer_tick = Tick { tenants, ..*tick };
        let mut said = Decisions::new(OUTER_DECISIONS_MAX);
        let mut hands = Hands { throttles: &mut self.outer_throttles, log: &mut said };
        let next = self.outer.tick(&outer_tick, &mut hands);
        for decision in said.iter() {
            let text = match decision.tenant {
                Some(group) => format!("group {} {}", outer_tick.name(group), decision.text),
                None => format!("between groups: {}", decision.text),
            };
            log.add(decision.at, None, text);
        }
        next
    }

    /// Gives each tenant the stricter of its group's allowance and its policy's throttle.
    fn compose(&self, tick: &Tick<'_>, parts: &[Tick<'_>], throttles: &mut Throttles) {
        for (inner, part) in self.inner.iter().zip(parts) {
            for medium in MediumId::all(tick.media) {
                let whole = self.outer_throttles.get(inner.whole.id, medium);
                let shares = match whole {
                    Throttle::Share(share) => {
                        divide(share, &claims(inner, part, medium, throttles))
                    }
                    _ => Vec::new(),
                };
                for (index, &tenant) in part.tenants.keys().enumerate() {
                    let outer = shares.get(index).copied().map_or(whole, Throttle::share);
                    throttles.set(tenant, medium, outer.and(inner.throttles.get(tenant, medium)));
                }
            }
        }
    }
}

/// Claims of a group's tenants until the next tick.
fn claims(inner: &Inner, part: &Tick<'_>, medium: MediumId, set: &Throttles) -> Vec<Claim> {
    let claim = |(&tenant, member): (&TenantId, &Member<'_>)| {
        let used = member.window.use_of(medium.0);
        let needs = match used >= BUSY * set.get(tenant, medium).share_max() {
            true => 1.0,
            false => used * HEADROOM + HEADROOM_MIN,
        };
        let allowed = inner.throttles.get(tenant, medium).share_max();
        Claim { weight: member.settings.weight, wanted: needs.min(allowed) }
    };
    part.tenants.iter().map(claim).collect()
}

impl Policy for Groups {
    fn tick(&mut self, tick: &Tick<'_>, hands: &mut Hands<'_>) -> Nanos {
        let belongs = |inner: &Inner| {
            let here = |member: &Member<'_>| {
                member.settings.group.as_deref() == Some(inner.whole.name.as_str())
            };
            let tenants = tick.tenants.iter().filter(|(_, member)| here(member));
            let tenants = tenants.map(|(id, member)| (*id, member.clone())).collect();
            Tick { tenants, ..*tick }
        };
        let parts: Vec<Tick<'_>> = self.inner.iter().map(belongs).collect();
        let trying = self.inner.iter().position(|inner| inner.policy.is_trying());
        let mut next = Nanos(u64::MAX);
        if trying.is_none() {
            next = self.tick_outer(tick, &parts, hands.log);
        }
        for (index, part) in parts.iter().enumerate() {
            let others_try = match trying {
                Some(trying) => trying != index,
                None => {
                    self.outer.is_trying()
                        || self.inner[..index].iter().any(|inner| inner.policy.is_trying())
                }
            };
            if others_try {
                continue;
            }
            let Inner { policy, throttles, .. } = &mut self.inner[index];
            let mut inside = Hands { throttles, log: hands.log };
            next = next.min(policy.tick(part, &mut inside));
        }
        self.compose(tick, &parts, hands.throttles);
        next
    }

    fn is_trying(&self) -> bool {
        self.outer.is_trying() || self.inner.iter().any(|inner| inner.policy.is_trying())
    }

    fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.inner.iter().find_map(|inner| inner.policy.slowdown(tenant))
    }
}
