//! Sharing, live: a thread that gives the controller its readings and applies its actions to the
//! tenants' accounts.
//!
//! The thread reads counters that the event loops write anyway (accounts, response times). It
//! therefore takes no lock that a request waits for, except an account's own for the time of a sum.
//! When a tenant may use more than before, the loops are told, since connections may be waiting.

mod follow;
mod logged;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use entresol_base::sync::{Condvar, Mutex};
use entresol_sharing::{
    Controller, PolicySettings, Reading, Settings as SharingSettings, SettingsErrors, TenantId,
};

use crate::registry::Registry;
use crate::tenant::Tenant;
use crate::threads;
use follow::Followed;
use logged::Logged;

/// Maximum pause of the thread, so that it notices tenants that came or left.
const REST_MAX: Duration = Duration::from_secs(1);

/// Call to the event loops, whose connections may be waiting for a limit that was raised.
pub type Released = Box<dyn Fn() + Send + Sync>;

/// Controller and its inputs, shared by the sharing thread, reloads and readers of the view.
pub struct Sharing {
    state: Mutex<State>,
    bell: Condvar,
    registry: Arc<Registry>,
    /// Called once a tenant may use more than before.
    released: Released,
    seed: u64,
}

struct State {
    controller: Controller,
    /// Number of each name, fixed when the name is first seen, so that a reload does not mix them
    /// up.
    ids: BTreeMap<String, TenantId>,
    followed: Vec<Followed>,
    /// Tenants at the last update of the list; none once the settings have changed.
    seen: Option<Vec<Arc<Tenant>>>,
    /// State of the decision log.
    logged: Logged,
    stop: bool,
}

/// Running thread; stops when dropped.
pub struct SharingThread {
    sharing: Arc<Sharing>,
    thread: Option<JoinHandle<()>>,
}

impl Sharing {
    /// Creates a controller for these settings; no tenant is slowed before its thread runs.
    ///
    /// # Errors
    /// When the settings are invalid; those of a checked configuration are valid.
    pub fn new(
        settings: &SharingSettings,
        registry: Arc<Registry>,
        released: Released,
    ) -> Result<Arc<Sharing>, SettingsErrors> {
        // A tenant must not be able to guess when performance alone is measured.
        let seed = RandomState::new().hash_one(std::process::id());
        let mut ids = BTreeMap::new();
        let controller = Controller::new(numbered(settings, &mut ids, seed))?;
        let state = State {
            controller,
            ids,
            followed: Vec::new(),
            seen: None,
            logged: Logged::default(),
            stop: false,
        };
        Ok(Arc::new(Sharing {
            state: Mutex::new(state),
            bell: Condvar::new(),
            registry,
            released,
            seed,
        }))
    }

    /// Changes the settings. The registry must hold the tenants that they name.
    ///
    /// # Errors
    /// When the settings are invalid; nothing has changed then.
    pub fn replace(&self, settings: &SharingSettings) -> Result<(), SettingsErrors> {
        let mut state = self.state.lock();
        let mut ids = state.ids.clone();
        state.controller.replace(numbered(settings, &mut ids, self.seed))?;
        state.ids = ids;
        state.seen = None;
        self.bell.notify_all();
        Ok(())
    }

    /// Gives `at` a consistent look at the controller and the tenants' numbers.
    pub fn look<T>(&self, at: impl FnOnce(&Controller, &BTreeMap<String, TenantId>) -> T) -> T {
        let state = self.state.lock();
        at(&state.controller, &state.ids)
    }

    /// Does one turn, readings in and limits out. Returns the pause before the next.
    fn turn(&self, state: &mut State) -> Duration {
        let tenants = self.registry.tenants();
        let State { controller, ids, followed, seen, logged, .. } = state;
        let same = |before: &Vec<Arc<Tenant>>| {
            before.len() == tenants.len()
                && before.iter().zip(&tenants).all(|(before, now)| Arc::ptr_eq(before, now))
        };
        // With a thousand tenants, looking each up at each tick takes a third of a processor.
        if !seen.as_ref().is_some_and(same) {
            follow::keep_up(followed, &tenants, ids, &controller.settings().media);
            *seen = Some(tenants);
        }
        let readings: Vec<Reading> =
            followed.iter_mut().map(|one| one.read(controller.settings().media.len())).collect();
        let now = self.registry.clock.now();
        let turn = controller.tick(now, &readings);
        logged.log(now, controller.decisions(), ids);
        let mut released = false;
        for one in followed {
            released |= one.slow(controller.throttle(one.id, one.medium));
        }
        if released {
            (self.released)();
        }
        let settings = controller.settings();
        if matches!(settings.policy, PolicySettings::None) && settings.groups.is_empty() {
            // Only views want the readings, and show whole seconds.
            return REST_MAX;
        }
        turn.next.since(self.registry.clock.now()).min(REST_MAX)
    }

    fn run(&self) {
        let mut state = self.state.lock();
        while !state.stop {
            let rest = self.turn(&mut state);
            if !state.stop {
                self.bell.wait_timeout(&mut state, rest);
            }
        }
    }
}

/// Gives every tenant of the settings the number that its name was first given.
fn numbered(
    settings: &SharingSettings,
    ids: &mut BTreeMap<String, TenantId>,
    seed: u64,
) -> SharingSettings {
    let mut settings = SharingSettings { seed, ..settings.clone() };
    for tenant in &mut settings.tenants {
        let next = ids.values().map(|id| id.0 + 1).max().unwrap_or(0);
        tenant.id = *ids.entry(tenant.name.clone()).or_insert(TenantId(next));
    }
    settings
}

impl SharingThread {
    /// Starts the thread of `sharing`.
    ///
    /// # Errors
    /// Fails if the system has no thread left.
    pub fn start(sharing: Arc<Sharing>) -> io::Result<SharingThread> {
        let runs = Arc::clone(&sharing);
        let run = move || {
            runs.run();
            Ok(())
        };
        let thread = threads::supervised("sharing", Arc::clone(&sharing.registry), run)?;
        Ok(SharingThread { sharing, thread: Some(thread) })
    }

    /// Controller of this thread.
    #[must_use]
    pub fn sharing(&self) -> &Arc<Sharing> {
        &self.sharing
    }
}

impl Drop for SharingThread {
    fn drop(&mut self) {
        self.sharing.state.lock().stop = true;
        self.sharing.bell.notify_all();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the sharing thread panicked; limits no longer change");
        }
    }
}
