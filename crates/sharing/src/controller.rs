//! The controller: told what each tenant did, it says how each is to be slowed, and when to be told
//! again. It has no thread, no clock and no I/O, so the server and the simulated world drive the
//! same code, and the same readings give the same actions.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use entresol_base::Nanos;

use crate::decision::Decisions;
use crate::error::SettingsErrors;
use crate::policy::{self, Hands, Member, Policy, Tick};
use crate::reading::{Meters, Reading};
use crate::settings::Settings;
use crate::tenant::{MediumId, TenantId, TenantSettings};
use crate::throttle::{Action, Throttle, Throttles};
use crate::view::{Recent, TenantView};

/// It wants to be told at least so often, so that views stay fresh.
const NEXT_MAX: Duration = Duration::from_secs(1);
/// And never more often than this.
const NEXT_MIN: Duration = Duration::from_micros(10);

/// What is to be done, and when to come again.
#[derive(Debug, Clone, PartialEq)]
pub struct Turn {
    /// In the order of tenants and media; what is not named stays as it is.
    pub actions: Vec<Action>,
    /// When the next tick is due. Later is allowed, and makes pauses as much longer.
    pub next: Nanos,
}

/// Keeps the policy's promise.
#[derive(Debug)]
pub struct Controller {
    settings: Settings,
    by_id: BTreeMap<TenantId, TenantSettings>,
    policy: Box<dyn Policy>,
    meters: Meters,
    now: Nanos,
    /// What the policy wants, and what has been said.
    wanted: Throttles,
    said: Throttles,
    /// Who was there at the last tick.
    here: BTreeSet<TenantId>,
    /// Whoever reported without being known, so that it is said once.
    strangers: BTreeSet<TenantId>,
    recent: BTreeMap<TenantId, Recent>,
    decisions: Decisions,
}

impl Controller {
    /// A controller that slows nobody yet.
    ///
    /// # Errors
    /// Every mistake in the settings, with the fix.
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

    /// Changes the settings live. Changed tenants alone leave the policy what it has learnt;
    /// another policy, or other parameters, begin anew with everybody free.
    ///
    /// # Errors
    /// Every mistake in the settings, with the fix; then nothing has changed.
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

    /// The settings in force.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Looks at everybody's readings. Whoever is not among them is taken to hang or to be gone: it
    /// is left as it is, and nobody waits for it.
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
            let text = "reports, but is in no configuration; it is left alone".to_owned();
            self.decisions.add(self.now, Some(tenant), text);
        }
        known
    }

    /// What has to be done so that the world is as it is wanted.
    fn say(&mut self, here: BTreeSet<TenantId>) -> Vec<Action> {
        self.wanted.retain(|tenant| self.by_id.contains_key(&tenant));
        self.recent.retain(|tenant, _| self.by_id.contains_key(tenant));
        let mut actions = self.wanted.changes_since(&self.said);
        for &tenant in here.difference(&self.here) {
            // Whatever it was told before, its accounts may be new ones.
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

    /// How a tenant is slowed on a medium.
    #[must_use]
    pub fn throttle(&self, tenant: TenantId, medium: MediumId) -> Throttle {
        self.wanted.get(tenant, medium)
    }

    /// How much slower a tenant is than alone, if the policy has found out.
    #[must_use]
    pub fn slowdown(&self, tenant: TenantId) -> Option<f64> {
        self.policy.slowdown(tenant)
    }

    /// Whether an experiment or a pause is under way.
    #[must_use]
    pub fn is_trying(&self) -> bool {
        self.policy.is_trying()
    }

    /// What was decided and why.
    #[must_use]
    pub fn decisions(&self) -> &Decisions {
        &self.decisions
    }

    /// Each tenant's last second, for those who watch.
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
