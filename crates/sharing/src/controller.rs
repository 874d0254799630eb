//! The controller: readings of the tenants in, throttles and the time of the next tick out.
//!
//! It has no thread, no clock and no I/O, so the server and the simulated world drive the same
//! code, and the same readings give the same actions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use entresol_base::Nanos;

use crate::decision::Decisions;
use crate::error::SettingsErrors;
use crate::policy::{self, Policy};
use crate::reading::{Meters, Reading};
use crate::settings::Settings;
use crate::tenant::{MediumId, TenantId, TenantSettings};
use crate::throttle::{Action, Throttle, Throttles};
use crate::tick::{Hands, Member, Tick};
use crate::view::{Recent, TenantView};

/// Longest time to the next tick, so that views stay fresh.
const NEXT_MAX: Duration = Duration::from_secs(1);
/// Shortest time to the next tick.
const NEXT_MIN: Duration = Duration::from_micros(10);

/// Result of a tick: the actions to take, and the time of the next tick.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// Actions in the order of tenants and media. A throttle without an action stays as it is.
    pub actions: Vec<Action>,
    /// Time at which the next tick is due. A later tick is allowed, and prolongs pauses by as much.
    pub next: Nanos,
}

/// Keeps the promise of one policy.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    by_id: BTreeMap<TenantId, TenantSettings>,
    policy: Box<dyn Policy>,
    meters: Meters,
    now: Nanos,
    /// Throttles that the policy wants, and those already handed out as actions.
    wanted: Throttles,
    said: Throttles,
    /// Tenants that reported at the last tick.
    here: BTreeSet<TenantId>,
    /// Unknown tenants that have reported, so that each is logged once.
    strangers: BTreeSet<TenantId>,
    recent: BTreeMap<TenantId, Recent>,
    decisions: Decisions,
}

impl Controller {
    /// Creates a controller; no tenant is throttled yet.
    ///
    /// # Errors
    /// All mistakes in the settings, with their fixes.
    pub fn new(settings: Settings) -> Result<Controller, SettingsErrors> {
        settings.check()?;
        Ok(Controller {
            by_id: by_id(&settings),
            policy: policy::of_settings(&settings),
            meters: Meters::default(),
            now: Nanos(0),
            wanted: Throttles::default(),
            said: Throttles::default(),
            here: BTreeSet::new(),
            strangers: BTreeSet::new(),
            recent: BTreeMap::new(),
            decisions: Decisions::new(settings.decisions_max),
            settings,
        })
    }

    /// Changes the settings live. If only tenants changed, the policy keeps what it has learnt.
    /// Another policy or other parameters begin anew, with all tenants free.
    ///
    /// # Errors
    /// All mistakes in the settings, with their fixes; nothing has changed then.
    pub fn replace(&mut self, settings: Settings) -> Result<(), SettingsErrors> {
        settings.check()?;
        let same = settings.policy == self.settings.policy
            && settings.groups == self.settings.groups
            && settings.media == self.settings.media;
        if !same {
            self.policy = policy::of_settings(&settings);
            self.wanted = Throttles::default();
            let text = format!("policy '{}' from now on", settings.policy.name());
            self.decisions.add(self.now, None, text);
        }
        self.by_id = by_id(&settings);
        self.settings = settings;
        Ok(())
    }

    /// Settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Takes the readings of all tenants. A tenant that is missing hangs or has left: its throttles
    /// stay as they are, and the policy does not wait for it.
    pub fn tick(&mut self, now: Nanos, readings: &[Reading]) -> Turn {
        self.now = self.now.max(now);
        let mut windows = self.meters.read(self.now, readings);
        windows.retain(|tenant, _| self.is_known(*tenant));
        let mut tick = Tick {
            now: self.now,
            media: self.settings.media.len(),
            media_names: &self.settings.media,
            tenants: BTreeMap::new(),
        };
        for (tenant, window) in windows {
            if let Some(settings) = self.by_id.get(&tenant) {
                self.recent.entry(tenant).or_default().add(&window);
                tick.tenants.insert(tenant, Member { settings, window });
            }
        }
        let mut hands = Hands { throttles: &mut self.wanted, log: &mut self.decisions };
        let next = self.policy.tick(&tick, &mut hands);
        let here: BTreeSet<TenantId> = tick.tenants.keys().copied().collect();
        let actions = self.say(here);
        let next = next.max(self.now.after(NEXT_MIN)).min(self.now.after(NEXT_MAX));
        Turn { actions, next }
    }

    fn is_known(&mut self, tenant: TenantId) -> bool {
        let known = self.by_id.contains_key(&tenant);
        if !known
            && self.strangers.len() < self.settings.decisions_max
            && self.strangers.insert(tenant)
        {
            let text = "reports, but is not configured; its reports are ignored".to_owned();
            self.decisions.add(self.now, Some(tenant), text);
        }
        known
    }

    /// Returns the actions that bring the tenants' throttles to the wanted ones.
    fn say(&mut self, here: BTreeSet<TenantId>) -> Vec<Action> {
        self.wanted.retain(|tenant| self.by_id.contains_key(&tenant));
        self.recent.retain(|tenant, _| self.by_id.contains_key(tenant));
        let mut actions = self.wanted.changes_since(&self.said);
        for &tenant in here.difference(&self.here) {
            // The tenant may have new accounts, whatever throttle the old ones had.
            actions.retain(|action| action.tenant != tenant);
            for medium in MediumId::all(self.settings.media.len()) {
                let throttle = self.wanted.get(tenant, medium);
                actions.push(Action { tenant, medium, throttle });
            }
        }
        for action in &actions {
            self.said.set(action.tenant, action.medium, action.throttle);
        }
        debug_assert!(
            self.wanted.changes_since(&self.said).is_empty(),
            "{:?} is wanted, {:?} was said",
            self.wanted,
            self.said
        );
        self.here = here;
        actions
    }

    /// Throttle of a tenant on a medium.
    #[must_use]
    pub fn throttle(&self, tenant: TenantId, medium: MediumId) -> Throttle {
        self.wanted.get(tenant, medium)
    }

    /// Slowdown of a tenant compared with being alone, if the policy has measured it.
    #[must_use]
    pub fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.policy.slowdown(tenant)
    }

    /// Returns true while an experiment or a pause is under way.
    #[must_use]
    pub fn is_trying(&self) -> bool {
        self.policy.is_trying()
    }

    /// Decisions and their reasons.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// View of each tenant's last second.
    #[must_use]
    pub fn views(&self) -> Vec<TenantView> {
        let media = self.settings.media.len();
        let view = |(id, settings): (&TenantId, &TenantSettings)| {
            let mut view = self.recent.get(id).map(Recent::view).unwrap_or_default();
            view.shares.resize(media, 0.0);
            TenantView {
                tenant: *id,
                name: settings.name.clone(),
                is_here: self.here.contains(id),
                slowdown: self.slowdown(*id),
                throttles: MediumId::all(media).map(|m| self.wanted.get(*id, m)).collect(),
                last_decision: self.decisions.last_about(*id).cloned(),
                ..view
            }
        };
        self.by_id.iter().map(view).collect()
    }
}

fn by_id(settings: &Settings) -> BTreeMap<TenantId, TenantSettings> {
    settings.tenants.iter().map(|tenant| (tenant.id, tenant.clone())).collect()
}
