//! A simulated world to try policies in: tenants on a model of a memory device in virtual time,
//! under the shipped controller.
//!
//! Each tenant is some closed loops of gets and sets. Every access is admitted by the tenant's
//! [`Account`](entresol_media::Account), carried out on the model, and charged; the controller runs
//! on a simulated thread of its own. One seed gives one story, on any machine. Nothing here is
//! measured on a device.
//!
//! A tenant may have a cache, the one that ships, whose values lie on the device. It then admits
//! and charges as in a server, evicts, and has upkeep of its own.

mod actor;
mod cached;
mod stage;
mod story;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use entresol_base::sync::Mutex;
use entresol_base::thread;
use entresol_base::world::{World, WorldOptions};
use entresol_base::{Nanos, Picos};
use entresol_media::CostTable;
use entresol_media::model::memory::Parameters;
use entresol_sharing::settings::FairPace;
use entresol_sharing::{Controller, PolicySettings, Settings, SettingsErrors};

pub(crate) use actor::{Actor, Phase, Trick};
pub(crate) use cached::Kept;
pub(crate) use story::{Story, TenantMoment};

use actor::{Cleaner, Loop};
use stage::Stage;

/// A device, its tenants, and their promises.
#[derive(Debug, Clone)]
pub(crate) struct Scene {
    /// Parameters of the device.
    pub(crate) device: Parameters,
    /// Cost table of its accesses.
    pub(crate) costs: Arc<CostTable>,
    /// Policy and promises. Its tenants are the actors, by number.
    pub(crate) settings: Settings,
    /// Tenants of the scene.
    pub(crate) actors: Vec<Actor>,
    /// Length of the scene.
    pub(crate) time: Duration,
    /// Interval between the moments of the story.
    pub(crate) moment: Duration,
    /// True to charge background work to the tenant that it is done for.
    pub(crate) background_is_charged: bool,
    /// True to charge accesses by the units that they touch, rather than by their size alone.
    pub(crate) units_are_charged: bool,
    /// Seed of all random numbers.
    pub(crate) seed: u64,
}

impl Scene {
    /// Plays the scene.
    ///
    /// # Errors
    /// All mistakes in the settings, with their fixes.
    ///
    /// # Panics
    /// If a simulated thread panics, which would be a bug here.
    pub(crate) fn play(&self) -> Result<Story, SettingsErrors> {
        let controller = Controller::new(self.settings.clone())?;
        let options = WorldOptions { steps_max: None, ..WorldOptions::seeded(self.seed) };
        let world = World::new(options);
        let caches = cached::open_all(&world, self);
        let upkeep: Vec<_> = caches.iter().flatten().map(|open| Arc::clone(open.cache())).collect();
        let stage = Arc::new(Mutex::new(Stage::new(self, caches)));
        let (inner, shared, scene) = (world.clone(), Arc::clone(&stage), self.clone());
        let ended = world.run(move || {
            let mut threads = Vec::new();
            for (place, actor) in scene.actors.iter().enumerate() {
                for index in 0..actor.threads_max() {
                    let turn = Loop::new(&inner, &shared, &scene, place, index);
                    let name = format!("tenant {} {index}", actor.tenant.0);
                    threads.push(thread::spawn(&name, move || turn.run()));
                }
                if actor.leaves_debt() {
                    let turn = Cleaner::new(&inner, &shared, &scene, place);
                    let name = format!("behind tenant {}", actor.tenant.0);
                    threads.push(thread::spawn(&name, move || turn.run()));
                }
            }
            for cache in upkeep {
                let (inner, end) = (inner.clone(), Picos::from(scene.time));
                threads.push(thread::spawn("upkeep", move || cached::keep_up(&inner, &cache, end)));
            }
            let controller = control(&inner, &shared, &scene, controller);
            for thread in threads {
                assert!(thread.join().is_ok(), "a simulated tenant panicked");
            }
            controller
        });
        let controller = match ended {
            Ok(controller) => controller,
            Err(failure) => unreachable!("the simulated world failed: {failure:?}"),
        };
        let moments = std::mem::take(&mut stage.lock().moments);
        let decisions = controller.decisions().iter().cloned().collect();
        let caches = stage.lock().kept();
        Ok(Story { moments, decisions, caches })
    }
}

impl Scene {
    fn has_delays(&self) -> bool {
        let delays = |policy: &PolicySettings| match policy {
            PolicySettings::Fair(fair) => fair.pace != FairPace::Adaptive,
            _ => false,
        };
        delays(&self.settings.policy)
            || self.settings.groups.iter().any(|group| delays(&group.policy))
    }
}

/// Drives the controller until the end.
fn control(
    world: &World,
    stage: &Mutex<Stage>,
    scene: &Scene,
    mut controller: Controller,
) -> Controller {
    let end = Picos::from(scene.time);
    loop {
        let now = Nanos::from(world.now());
        let readings = stage.lock().readings();
        let turn = controller.tick(now, &readings);
        let mut guard = stage.lock();
        guard.act(&turn.actions);
        guard.note(now, scene.moment, &controller);
        if world.now() >= end {
            return controller;
        }
        // An early tick does no harm.
        let next = Picos::from(turn.next.min(guard.note_at(scene.moment))).min(end);
        guard.next_tick = next;
        drop(guard);
        world.wait_until(next);
    }
}
