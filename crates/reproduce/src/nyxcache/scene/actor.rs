//! A tenant of a scene: closed loops of gets and sets that follow a schedule.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::world::World;
use entresol_base::{Clock, Nanos, Picos};
use entresol_media::model::memory::{Accessor, Fence, LINE_BYTES, MemoryAccess, MemoryOp};
use entresol_media::{Access, AccountHandle, Admission};
use entresol_sharing::TenantId;

use super::Scene;
use super::cached::{Client, Kept};
use super::stage::Stage;

/// Area of the device that each loop has for itself.
const AREA_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;
/// Access unit of the modelled media of byte-addressable memory.
const UNIT_BYTES: u64 = 256;
/// Interval at which idle loops look for work.
const LOOK: Duration = Duration::from_micros(20);

/// Load of a tenant from some moment on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Phase {
    /// Start, counted from the beginning of the scene.
    pub(crate) from: Duration,
    /// Number of loops.
    pub(crate) threads: u32,
    /// Part of the requests that read.
    pub(crate) gets: f64,
    /// Bytes that each request moves.
    pub(crate) bytes: u64,
    /// Time of a request beside its access: the processor's part, and the client's.
    pub(crate) think: Duration,
    /// Part of the requests that need the medium; the others are misses.
    pub(crate) hits: f64,
    /// Mean interval between the starts of a loop's requests. Each is drawn from half of it to one
    /// and a half; zero is no wait.
    pub(crate) period: Duration,
    /// Trick by which it tries to get more than it should.
    pub(crate) trick: Trick,
}

/// A trick by which a tenant may try to get more than it should.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) enum Trick {
    /// The tenant plays fair.
    #[default]
    None,
    /// More loops run while responses are faster than `below`, as they are while others are paused.
    Race {
        /// Number of further loops.
        threads: u32,
        /// Response time that it takes for the sign of a pause.
        below: Duration,
    },
    /// Accesses begin `bytes` behind a multiple of their size, and so touch more units of the
    /// medium than their size needs.
    Astride {
        /// Distance from the multiple.
        bytes: u64,
    },
    /// Each stored byte leaves `bytes` for the background to clean up later: to read and write
    /// again.
    Debt {
        /// Bytes to clean for each stored byte.
        bytes: f64,
    },
}

impl Phase {
    /// Loops of gets of this size, from the beginning on.
    #[must_use]
    pub(crate) fn gets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase {
            from: Duration::ZERO,
            threads,
            gets: 1.0,
            bytes,
            think,
            hits: 1.0,
            period: Duration::ZERO,
            trick: Trick::None,
        }
    }

    /// Loops of sets of this size, from the beginning on.
    #[must_use]
    pub(crate) fn sets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase { gets: 0.0, ..Phase::gets(threads, bytes, think) }
    }

    /// Sets the mean interval between the requests of a loop.
    #[must_use]
    pub(crate) fn every(self, period: Duration) -> Phase {
        Phase { period, ..self }
    }

    /// Sets the start of the phase.
    #[must_use]
    pub(crate) fn since(self, from: Duration) -> Phase {
        Phase { from, ..self }
    }

    /// Number of loops, those of a trick included.
    fn threads_max(&self) -> u32 {
        match self.trick {
            Trick::Race { threads, .. } => self.threads + threads,
            _ => self.threads,
        }
    }
}

/// A tenant and its schedule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Actor {
    /// Tenant of the scene.
    pub(crate) tenant: TenantId,
    /// Phases in the order of time; the tenant is idle before the first.
    pub(crate) phases: Vec<Phase>,
    /// Cache that answers its requests; without one they are accesses of the device.
    pub(crate) cache: Option<Kept>,
}

impl Actor {
    /// A tenant with one phase all the time.
    #[must_use]
    #[cfg(test)]
    pub(crate) fn steady(tenant: TenantId, phase: Phase) -> Actor {
        Actor { tenant, phases: vec![phase], cache: None }
    }

    pub(super) fn threads_max(&self) -> u32 {
        self.phases.iter().map(Phase::threads_max).max().unwrap_or(0)
    }

    /// Returns true if the background has to clean up behind it.
    pub(super) fn leaves_debt(&self) -> bool {
        self.phases.iter().any(|phase| matches!(phase.trick, Trick::Debt { .. }))
    }

    /// Phase at a moment, and the start of the next one.
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
    /// Place of the tenant in the scene.
    place: usize,
    index: u32,
    accessor: Accessor,
    account: AccountHandle,
    /// Client of the tenant's cache.
    client: Option<Client>,
    rng: Rng,
    /// Sum of the parts of gets; a get is due when it reaches one.
    turn: f64,
    end: Picos,
    /// True if throttles may be delays before each access.
    delays: bool,
    charges_units: bool,
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
        let mut rng = world.rng(&format!("loop {}", accessor.0));
        let account = stage.lock().account(place).handle();
        let client = stage.lock().client(place, scene.seed.wrapping_add(1 + u64::from(accessor.0)));
        Loop {
            turn: rng.next_f64(),
            world: world.clone(),
            stage: Arc::clone(stage),
            actor: scene.actors[place].clone(),
            place,
            index,
            accessor,
            account,
            client,
            rng,
            end: Picos::from(scene.time),
            delays: scene.has_delays(),
            charges_units: scene.units_are_charged,
        }
    }

    pub(super) fn run(mut self) {
        while self.world.now() < self.end {
            match self.actor.at(self.world.now()) {
                (Some(phase), next) if self.index < phase.threads_max() => {
                    if self.index >= phase.threads && !self.sees_a_pause(phase) {
                        self.account.settle();
                        let soon = self.world.now().after(LOOK.into());
                        self.world.wait_until(soon.min(next).min(self.end));
                    } else if !self.request(phase) {
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

    fn sees_a_pause(&self, phase: Phase) -> bool {
        let Trick::Race { below, .. } = phase.trick else { return false };
        self.stage.lock().last_response(self.place) < Picos::from(below)
    }

    /// Does one request; returns false if the scene ended before it was admitted.
    fn request(&mut self, phase: Phase) -> bool {
        let began = self.world.now();
        let hit = phase.hits >= 1.0 || self.rng.next_f64() < phase.hits;
        if self.client.is_some() {
            if !self.is_admitted() {
                return false;
            }
            self.ask(phase, began);
        } else if !hit {
            self.stage.lock().answered(self.place, Picos::ZERO);
        } else if !self.is_admitted() {
            return false;
        } else {
            self.access(phase, began);
        }
        // Requests of different loops are out of step, as those of real clients are.
        let gap = Picos::from(phase.period);
        let gap = if gap == Picos::ZERO { gap } else { Picos(gap.0 / 2 + self.rng.below(gap.0)) };
        let ready = self.world.now().after(phase.think.into());
        self.world.wait_until(ready.max(began.after(gap)));
        true
    }

    /// Returns true if a get is due: gets and sets alternate in their proportion.
    fn is_get_due(&mut self, phase: Phase) -> bool {
        self.turn += phase.gets;
        let is_get = self.turn >= 1.0;
        self.turn -= if is_get { 1.0 } else { 0.0 };
        is_get
    }

    /// Sends a request to the tenant's cache, if it has one.
    fn ask(&mut self, phase: Phase, began: Picos) {
        let is_get = self.is_get_due(phase);
        let now = self.world.seconds();
        let Some(client) = &mut self.client else { return };
        let found = match is_get {
            true => client.get(now),
            false => client.set(now, phase.bytes as usize),
        };
        let took = self.world.now().since(began);
        self.stage.lock().asked(self.place, took, is_get.then_some(found));
    }

    /// Accesses the device.
    fn access(&mut self, phase: Phase, began: Picos) {
        let is_get = self.is_get_due(phase);
        let op = if is_get { MemoryOp::Load } else { MemoryOp::NtStore };
        // A set is durable before it is answered.
        let fence = if is_get { Fence::None } else { Fence::AtEnd };
        let offset = u64::from(self.accessor.0) * AREA_BYTES + self.position(phase);
        let access = MemoryAccess { op, offset, bytes: phase.bytes, fence };
        let mut transfer = None;
        loop {
            let mut stage = self.stage.lock();
            let transfer = transfer.get_or_insert_with(|| stage.model.begin(self.accessor, access));
            let now = self.world.now();
            let Some(later) = stage.model.advance(now, transfer) else {
                stage.answered(self.place, now.since(began));
                if let (Trick::Debt { bytes }, false) = (phase.trick, is_get) {
                    stage.owe(self.place, phase.bytes as f64 * bytes);
                }
                break;
            };
            drop(stage);
            self.world.wait_until(later);
        }
        let kind = if is_get { Access::Read } else { Access::Write };
        match self.charges_units {
            true => self.account.charge_units(kind, offset, phase.bytes as usize),
            false => self.account.charge(kind, phase.bytes as usize),
        }
    }

    /// Position of an access in the loop's area. Blocks of a power of two are aligned to their
    /// size, other multiples of a unit to units, and all others to lines, as in the profile that
    /// costs come from.
    fn position(&mut self, phase: Phase) -> u64 {
        let grid = match phase.bytes {
            bytes if bytes.is_power_of_two() => bytes.clamp(LINE_BYTES, PAGE_BYTES),
            bytes if bytes.is_multiple_of(UNIT_BYTES) => UNIT_BYTES,
            _ => LINE_BYTES,
        };
        let astride = match phase.trick {
            Trick::Astride { bytes } => bytes,
            _ => 0,
        };
        self.rng.below((AREA_BYTES - phase.bytes - PAGE_BYTES) / grid) * grid + astride
    }

    fn is_admitted(&mut self) -> bool {
        loop {
            let now = self.world.now();
            let admission = match &mut self.client {
                Some(client) => client.admit(Nanos::from(now)),
                None => self.account.admit(Nanos::from(now)),
            };
            let until = match admission {
                Admission::Go => break,
                // Nanoseconds are rounded down: a whole one later is late enough.
                Admission::Wait { until } => Picos::from(until),
                // Nothing changes before the controller's next tick.
                Admission::Stopped => self.stage.lock().next_tick,
            };
            if now >= self.end {
                return false;
            }
            self.world.wait_until(until.max(now.after(Picos::from_nanos(1))));
        }
        if self.delays {
            let delay = self.stage.lock().delay(self.place);
            self.world.wait_until(self.world.now().after(delay.into()));
        }
        true
    }
}

/// Background that cleans up behind a tenant.
pub(super) struct Cleaner {
    world: World,
    stage: Arc<Mutex<Stage>>,
    place: usize,
    accessor: Accessor,
    /// Account that pays, if any does.
    account: Option<AccountHandle>,
    end: Picos,
}

impl Cleaner {
    pub(super) fn new(
        world: &World,
        stage: &Arc<Mutex<Stage>>,
        scene: &Scene,
        place: usize,
    ) -> Cleaner {
        let loops: u32 = scene.actors.iter().map(Actor::threads_max).sum();
        let account = stage.lock().account(place).handle();
        Cleaner {
            world: world.clone(),
            stage: Arc::clone(stage),
            place,
            accessor: Accessor(loops + place as u32),
            account: scene.background_is_charged.then_some(account),
            end: Picos::from(scene.time),
        }
    }

    pub(super) fn run(mut self) {
        let mut at = u64::from(self.accessor.0) * AREA_BYTES;
        while self.world.now() < self.end {
            let owed = self.stage.lock().take_debt(self.place, PAGE_BYTES);
            if !owed {
                self.world.wait_until(self.world.now().after(LOOK.into()));
                continue;
            }
            for (op, kind) in [(MemoryOp::Load, Access::Read), (MemoryOp::NtStore, Access::Write)] {
                let fence = Fence::None;
                let access = MemoryAccess { op, offset: at, bytes: PAGE_BYTES, fence };
                let done = self.stage.lock().model.access(self.world.now(), self.accessor, access);
                self.world.wait_until(done);
                if let Some(account) = &mut self.account {
                    account.charge(kind, PAGE_BYTES as usize);
                    // The cleaner is not held up, but its use must reach the bucket.
                    account.settle();
                }
            }
            at += PAGE_BYTES;
        }
    }
}
