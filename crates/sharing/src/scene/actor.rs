//! A tenant of a scene: closed loops of gets and sets that follow a schedule.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::world::World;
use entresol_base::{Nanos, Picos};
use entresol_media::model::memory::{Accessor, Fence, MemoryAccess, MemoryOp};
use entresol_media::{Access, AccountHandle, Admission};

use super::Scene;
use super::stage::Stage;
use crate::tenant::TenantId;

/// Each loop has this much of the device for itself.
const AREA_BYTES: u64 = 1 << 30;

/// What a tenant does from some moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phase {
    /// From when on, since the scene's beginning.
    pub from: Duration,
    /// How many loops there are.
    pub threads: u32,
    /// The part of all requests that read.
    pub gets: f64,
    /// What each request moves.
    pub bytes: u64,
    /// What a request takes beside its access: the processor's part, and the client's.
    pub think: Duration,
}

impl Phase {
    /// So many loops of gets of this size, from the beginning on.
    #[must_use]
    pub fn gets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase { from: Duration::ZERO, threads, gets: 1.0, bytes, think }
    }

    /// The same as sets.
    #[must_use]
    pub fn sets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase { gets: 0.0, ..Phase::gets(threads, bytes, think) }
    }
}

/// A tenant and its schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Actor {
    /// Which.
    pub tenant: TenantId,
    /// What it does, in the order of time; nothing before the first.
    pub phases: Vec<Phase>,
}

impl Actor {
    /// One that does the same all the time.
    #[must_use]
    pub fn steady(tenant: TenantId, phase: Phase) -> Actor {
        Actor { tenant, phases: vec![phase] }
    }

    pub(super) fn threads_max(&self) -> u32 {
        self.phases.iter().map(|phase| phase.threads).max().unwrap_or(0)
    }

    /// The phase at a moment, and when the next one begins.
    fn at(&self, now: Picos) -> (Option<Phase>, Picos) {
        let begins = |phase: &Phase| Picos::from(phase.from);
        let current = self.phases.iter().rev().find(|phase| begins(phase) <= now);
        let next = self.phases.iter().map(begins).find(|from| *from > now);
        (current.copied(), next.unwrap_or(Picos::MAX))
    }
}

/// One loop of a tenant.
pub(super) struct Loop {
    world: World,
    stage: Arc<Mutex<Stage>>,
    actor: Actor,
    /// The tenant's place in the scene, and the loop's within the tenant.
    place: usize,
    index: u32,
    accessor: Accessor,
    account: AccountHandle,
    rng: Rng,
    end: Picos,
}

impl Loop {
    pub(super) fn new(
        world: &World,
        stage: &Arc<Mutex<Stage>>,
        scene: &Scene,
        place: usize,
        index: u32,
    ) -> Loop {
        let before: u32 = scene.actors[..place].iter().map(Actor::threads_max).sum();
        let accessor = Accessor(before + index);
        Loop {
            world: world.clone(),
            stage: Arc::clone(stage),
            actor: scene.actors[place].clone(),
            place,
            index,
            accessor,
            account: stage.lock().account(place).handle(),
            rng: world.rng(&format!("loop {}", accessor.0)),
            end: Picos::from(scene.time),
        }
    }

    pub(super) fn run(mut self) {
        while self.world.now() < self.end {
            match self.actor.at(self.world.now()) {
                (Some(phase), _) if self.index < phase.threads => {
                    if !self.request(phase) {
                        return;
                    }
                }
                (_, next) => {
                    self.account.settle();
                    self.world.wait_until(next.min(self.end));
                }
            }
        }
    }

    /// One request; no if the scene was over before it was admitted.
    fn request(&mut self, phase: Phase) -> bool {
        let began = self.world.now();
        if !self.is_admitted() {
            return false;
        }
        let is_get = self.rng.next_f64() < phase.gets;
        let op = if is_get { MemoryOp::Load } else { MemoryOp::NtStore };
        // What is stored is safe before a set is answered.
        let fence = if is_get { Fence::None } else { Fence::AtEnd };
        let grid = phase.bytes.next_power_of_two().clamp(64, 4096);
        let within = self.rng.below((AREA_BYTES - phase.bytes) / grid) * grid;
        let offset = u64::from(self.accessor.0) * AREA_BYTES + within;
        let access = MemoryAccess { op, offset, bytes: phase.bytes, fence };
        let mut transfer = self.stage.lock().model.begin(self.accessor, access);
        loop {
            let later = self.stage.lock().model.advance(self.world.now(), &mut transfer);
            let Some(later) = later else { break };
            self.world.wait_until(later);
        }
        let kind = if is_get { Access::Read } else { Access::Write };
        self.account.charge(kind, phase.bytes as usize);
        let took = self.world.now().since(began);
        self.stage.lock().answered(self.place, took);
        self.world.wait_until(self.world.now().after(phase.think.into()));
        true
    }

    fn is_admitted(&mut self) -> bool {
        loop {
            let now = self.world.now();
            let until = match self.account.admit(Nanos::from(now)) {
                Admission::Go => break,
                // Nanoseconds are rounded down: a whole one later is late enough.
                Admission::Wait { until } => Picos::from(until),
                // Nothing changes before the controller has looked again.
                Admission::Stopped => self.stage.lock().next_tick,
            };
            if now >= self.end {
                return false;
            }
            self.world.wait_until(until.max(now.after(Picos::from_nanos(1))));
        }
        let delay = self.stage.lock().delay(self.place);
        if !delay.is_zero() {
            self.world.wait_until(self.world.now().after(delay.into()));
        }
        true
    }
}
