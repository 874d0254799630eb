//! A tenant of a scene: closed loops of gets and sets that follow a schedule.

use std::sync::Arc;
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::sync::Mutex;
use entresol_base::world::World;
use entresol_base::{Nanos, Picos};
use entresol_media::model::memory::{Accessor, Fence, LINE_BYTES, MemoryAccess, MemoryOp};
use entresol_media::{Access, AccountHandle, Admission};

use super::Scene;
use super::stage::Stage;
use crate::tenant::TenantId;

/// Each loop has this much of the device for itself.
const AREA_BYTES: u64 = 1 << 30;
const PAGE_BYTES: u64 = 4096;
/// The unit of the media of byte-addressable memory that there are models of.
const UNIT_BYTES: u64 = 256;
/// How often loops that have nothing to do look again.
const LOOK: Duration = Duration::from_micros(20);

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
    /// What a set takes beyond that: its value has to come from the client.
    pub set_think: Duration,
    /// The part of all requests that need the medium at all; the others are misses.
    pub hits: f64,
    /// A loop begins no request sooner after its last than this, on average: anything from half of
    /// it to one and a half. Zero: at once.
    pub period: Duration,
    /// What it does to get more than it should.
    pub trick: Trick,
}

/// How a tenant may try to get more than it should.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub enum Trick {
    /// It does not.
    #[default]
    None,
    /// So many loops more work while its responses are faster than this, as they are while others
    /// are paused.
    Race {
        /// How many.
        threads: u32,
        /// What it takes for the sign of a pause.
        below: Duration,
    },
    /// Its accesses begin so many bytes behind a multiple of their size, and so touch more units of
    /// the medium than as many bytes need.
    Astride {
        /// How far behind.
        bytes: u64,
    },
    /// Each byte that it stores leaves so many to be cleaned up by the background later: read and
    /// written again.
    Debt {
        /// Bytes to clean for each that is stored.
        bytes: f64,
    },
}

impl Phase {
    /// So many loops of gets of this size, from the beginning on.
    #[must_use]
    pub fn gets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase {
            from: Duration::ZERO,
            threads,
            gets: 1.0,
            bytes,
            think,
            set_think: Duration::ZERO,
            hits: 1.0,
            period: Duration::ZERO,
            trick: Trick::None,
        }
    }

    /// The same as sets.
    #[must_use]
    pub fn sets(threads: u32, bytes: u64, think: Duration) -> Phase {
        Phase { gets: 0.0, ..Phase::gets(threads, bytes, think) }
    }

    /// The same, each loop a request in this period.
    #[must_use]
    pub fn every(self, period: Duration) -> Phase {
        Phase { period, ..self }
    }

    /// The same from some time on.
    #[must_use]
    pub fn since(self, from: Duration) -> Phase {
        Phase { from, ..self }
    }

    /// Loops, those of a trick included.
    fn threads_max(&self) -> u32 {
        match self.trick {
            Trick::Race { threads, .. } => self.threads + threads,
            _ => self.threads,
        }
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
        self.phases.iter().map(Phase::threads_max).max().unwrap_or(0)
    }

    /// Whether the background has to clean up behind it.
    pub(super) fn leaves_debt(&self) -> bool {
        self.phases.iter().any(|phase| matches!(phase.trick, Trick::Debt { .. }))
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
    /// Adds up the parts of gets; at one it is a get's turn.
    turn: f64,
    end: Picos,
    /// Whether throttles may be delays before each access.
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
        Loop {
            turn: rng.next_f64(),
            world: world.clone(),
            stage: Arc::clone(stage),
            actor: scene.actors[place].clone(),
            place,
            index,
            accessor,
            account: stage.lock().account(place).handle(),
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

    /// One request; no if the scene was over before it was admitted.
    fn request(&mut self, phase: Phase) -> bool {
        let began = self.world.now();
        let hit = phase.hits >= 1.0 || self.rng.next_f64() < phase.hits;
        let mut was_set = false;
        if !hit {
            self.stage.lock().answered(self.place, Picos::ZERO);
        } else if !self.is_admitted() {
            return false;
        } else {
            was_set = self.access(phase, began);
        }
        // Nobody is in step with anybody, as the requests of real clients are not.
        let gap = Picos::from(phase.period);
        let gap = if gap == Picos::ZERO { gap } else { Picos(gap.0 / 2 + self.rng.below(gap.0)) };
        let further = if was_set { phase.set_think } else { Duration::ZERO };
        let ready = self.world.now().after((phase.think + further).into());
        self.world.wait_until(ready.max(began.after(gap)));
        true
    }

    /// Says whether it was a set.
    fn access(&mut self, phase: Phase, began: Picos) -> bool {
        // Gets and sets come in turns, in their proportion.
        self.turn += phase.gets;
        let is_get = self.turn >= 1.0;
        self.turn -= if is_get { 1.0 } else { 0.0 };
        let op = if is_get { MemoryOp::Load } else { MemoryOp::NtStore };
        // What is stored is safe before a set is answered.
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
        !is_get
    }

    /// Where in the loop's area an access lies. Blocks of a power of two lie on multiples of
    /// themselves, other multiples of a unit on those, all others anywhere on the grid of lines:
    /// as in the profile that costs come from.
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
        if self.delays {
            let delay = self.stage.lock().delay(self.place);
            self.world.wait_until(self.world.now().after(delay.into()));
        }
        true
    }
}

/// The background that cleans up behind a tenant.
pub(super) struct Cleaner {
    world: World,
    stage: Arc<Mutex<Stage>>,
    place: usize,
    accessor: Accessor,
    /// Whose account pays; none: nobody's.
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
                    // It is not held up, but what it took must be in the bucket.
                    account.settle();
                }
            }
            at += PAGE_BYTES;
        }
    }
}
