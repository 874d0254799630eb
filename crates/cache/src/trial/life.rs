//! Lives of a cache, and the images that are taken of its machine meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use entresol_base::rng::Rng;
use entresol_base::world::{Preemption, World, WorldFailure, WorldOptions};
use entresol_base::{ByteSize, Clock, ManualClock, Seconds, Stop, thread};
use entresol_simulated::crash::Report;
use entresol_simulated::disk::{
    Call, Calls, Effect, Failure, Fault, FaultPlan, Odds, OneIn, Repeat,
};

use super::act::Hand;
use super::machine::{Machine, SEGMENT_BYTES, SEGMENTS};
use super::model::Model;
use super::{End, Kind, Op, Trial, Trouble};
use crate::{Cache, OpenError};

/// Second at which a history begins.
const BEGIN: Seconds = Seconds(1_000_000);
/// Steps after which a life is taken for a livelock.
const STEPS_MAX: u64 = 20_000_000;
/// Largest number of steps between two images.
const STEPS_BETWEEN: u64 = 100;

/// State of a history between and during its lives.
struct Scene {
    trial: Trial,
    stop: Stop,
    model: Arc<Mutex<Model>>,
    /// Machine that the running or the next life has.
    machine: Mutex<Option<Machine>>,
    /// Second of the clock at the last moment that a cache noted it.
    clock: Mutex<Arc<ManualClock>>,
    report: Mutex<Report>,
    /// False once values may be damaged: the disk was in trouble, or files were damaged.
    is_sound: AtomicBool,
    /// First answer that is not allowed.
    wrong: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs a history.
pub(super) fn run(trial: &Trial, ops: &[Op], stop: &Stop) -> Result<Report, String> {
    let scene = Arc::new(Scene {
        trial: *trial,
        stop: stop.clone(),
        model: Arc::new(Mutex::new(Model::new())),
        machine: Mutex::new(None),
        clock: Mutex::new(Arc::new(ManualClock::at(BEGIN))),
        report: Mutex::default(),
        is_sound: AtomicBool::new(true),
        wrong: Mutex::default(),
    });
    let mut number = 0;
    let mut rest = ops;
    let last = Op::End { how: End::Stop, damage: false, back: false };
    while !rest.is_empty() {
        let len = rest.iter().position(|op| matches!(op, Op::End { .. }));
        let (of_life, after) = rest.split_at(len.unwrap_or(rest.len()));
        let end = after.first().copied().unwrap_or(last);
        rest = after.get(1..).unwrap_or_default();
        number += 1;
        scene.live(number, of_life, end)?;
        if stop.is_due() {
            lock(&scene.report).is_broken_off = true;
            break;
        }
    }
    let report = lock(&scene.report).clone();
    Ok(report)
}

impl Scene {
    /// Runs one life in a world of its own.
    fn live(self: &Arc<Self>, number: u64, ops: &[Op], end: Op) -> Result<(), String> {
        let mut rng = Rng::named(self.trial.seed, &format!("life {number}"));
        let is_trouble = |op: &Op| matches!(op, Op::Trouble(it) if *it != Trouble::None);
        if ops.iter().any(is_trouble) {
            self.is_sound.store(false, Ordering::Relaxed);
        }
        // Turns of a few steps, and turns in which a thread completes some commands.
        let turn = [2, 8, 60][rng.index(3)];
        let seed = rng.next_u64();
        let options = WorldOptions {
            preemption: Preemption::OneIn(turn),
            steps_max: Some(STEPS_MAX),
            ..WorldOptions::seeded(seed)
        };
        let world = World::new(options);
        let (scene, inner) = (Arc::clone(self), world.clone());
        let ops = ops.to_vec();
        let ran = world.run(move || scene.life(&inner, &ops, end));
        let text = |what: String| format!("life {number}: {what}");
        if let Some(wrong) = lock(&self.wrong).take() {
            return Err(text(wrong));
        }
        match ran {
            Ok(lived) => lived.map_err(text)?,
            Err(WorldFailure::Crashed) => {}
            Err(failure) => return Err(text(failure.to_string())),
        }
        self.between(number, end)
    }

    /// Changes the machine while no process runs.
    fn between(&self, number: u64, end: Op) -> Result<(), String> {
        let mut model = lock(&self.model);
        model.prune();
        let Op::End { damage, back, .. } = end else { return Ok(()) };
        let mut machine = lock(&self.machine);
        let mut rng = Rng::named(self.trial.seed, &format!("between {number}"));
        if damage && let Some(there) = machine.take() {
            self.is_sound.store(false, Ordering::Relaxed);
            *machine = Some(self.damaged(there, &mut rng)?);
        }
        if back {
            // Earlier than every second that a cache can have noted.
            *lock(&self.clock) = Arc::new(ManualClock::at(Seconds(BEGIN.0 - number as u32)));
            model.clock_ran_back();
            model.order_flush(None);
        }
        Ok(())
    }

    /// Damages a machine. Calls of a model's drive take time, so they need a world that runs.
    fn damaged(&self, machine: Machine, rng: &mut Rng) -> Result<Machine, String> {
        if self.trial.model.is_none() {
            machine.damage(rng)?;
            return Ok(machine);
        }
        let mut rng = Rng::new(rng.next_u64());
        let world = World::new(WorldOptions::seeded(rng.next_u64()));
        let inner = world.clone();
        let damaged = world.run(move || {
            let machine = machine.killed(&inner)?;
            machine.damage(&mut rng)?;
            Ok(machine)
        });
        damaged.map_err(|failure| failure.to_string())?
    }

    /// Opens the cache; trouble with the disk ends if it is in the way.
    fn open(&self, machine: &Machine) -> Result<Arc<Cache>, String> {
        let clock = Arc::clone(&lock(&self.clock));
        let opened = machine.open(&clock).or_else(|_: OpenError| {
            machine.inject(FaultPlan::default());
            machine.open(&clock)
        });
        opened.map_err(|error| format!("the cache cannot be opened: {error}"))
    }

    fn life(self: Arc<Self>, world: &World, ops: &[Op], end: Op) -> Result<(), String> {
        let machine = lock(&self.machine).take();
        let machine = match machine {
            Some(machine) => machine.killed(world)?,
            None => Machine::new(&self.trial, world)?,
        };
        let Op::End { how, .. } = end else { return Ok(()) };
        let is_over = Arc::new(AtomicBool::new(false));
        let imager = self.start_imager(world, &machine, how, &is_over);
        let lived = self.serve(&machine, ops, how);
        // The imager's last image is that of the end; a cache that is dropped writes more.
        is_over.store(true, Ordering::Relaxed);
        let imaged = imager.join().unwrap_or(Ok(()));
        let cache = lived?;
        imaged?;
        drop(cache);
        if how == End::Stop {
            let mut machine = machine;
            if let Some(Op::Resize(segments)) = last_resize(ops) {
                machine.segments = u64::from(segments);
            }
            *lock(&self.machine) = Some(machine);
        }
        Ok(())
    }

    /// Opens the cache and carries out the commands; returns the cache, closed after a clean stop.
    fn serve(
        self: &Arc<Self>,
        machine: &Machine,
        ops: &[Op],
        how: End,
    ) -> Result<Arc<Cache>, String> {
        let cache = self.open(machine)?;
        forget_order(&cache, &self.model);
        let hands = (0..self.trial.threads).map(|number| {
            let (scene, cache, machine) = (Arc::clone(self), Arc::clone(&cache), machine.clone());
            let mine: Vec<Op> = ops.iter().copied().filter(|op| runs_on(op, number)).collect();
            thread::spawn(&format!("hand-{number}"), move || {
                scene.hand(&cache, &machine, number, &mine)
            })
        });
        let hands: Vec<_> = hands.collect();
        let is_done = Arc::new(AtomicBool::new(false));
        let upkeep = {
            let (cache, is_done) = (Arc::clone(&cache), Arc::clone(&is_done));
            let (clock, model) = (Arc::clone(&lock(&self.clock)), Arc::clone(&self.model));
            thread::spawn("upkeep", move || {
                while !is_done.load(Ordering::Relaxed) {
                    let now = clock.seconds();
                    let flush = lock(&model).flush_if_due(now);
                    cache.maintain(now);
                    if let Some(flush) = flush {
                        lock(&model).end_flush(&flush);
                    }
                    thread::sleep(Duration::from_millis(1));
                }
            })
        };
        let lived: Vec<_> = hands.into_iter().filter_map(|hand| hand.join().ok()).collect();
        is_done.store(true, Ordering::Relaxed);
        drop(upkeep.join());
        lived.into_iter().collect::<Result<(), String>>()?;
        cache.check_pieces()?;
        let damaged = cache.statistics().events.damaged;
        if self.is_sound.load(Ordering::Relaxed) && damaged > 0 {
            return Err(format!("{damaged} values are damaged, but nothing has damaged any"));
        }
        if how == End::Stop {
            // A snapshot that a full disk refuses is reported and leaves what a kill would.
            drop(cache.close());
        }
        Ok(cache)
    }

    /// Carries out one thread's operations.
    fn hand(
        &self,
        cache: &Arc<Cache>,
        machine: &Machine,
        number: u8,
        ops: &[Op],
    ) -> Result<(), String> {
        let clock = Arc::clone(&lock(&self.clock));
        let seed = self.trial.seed ^ lock(&self.model).tick() << 8;
        let rng = Rng::named(seed, &format!("hand {number}"));
        let mut hand = Hand::new(cache, &self.model, &clock, rng);
        for op in ops {
            if self.stop.is_due() {
                return Ok(());
            }
            match op {
                Op::Command(_, command) => hand.act(*command)?,
                Op::Sleep(seconds) => clock.advance(Duration::from_secs((*seconds).into())),
                Op::Resize(segments) => resize(cache, self.trial.kind, *segments),
                Op::Trouble(trouble) => machine.inject(plan(*trouble, self.trial.seed)),
                Op::End { .. } => {}
            }
        }
        Ok(())
    }

    /// Starts the thread that copies the machine at random steps. At the end of a life that is no
    /// clean stop it stops the world, and leaves the copy as the next life's machine.
    fn start_imager(
        self: &Arc<Self>,
        world: &World,
        machine: &Machine,
        how: End,
        is_over: &Arc<AtomicBool>,
    ) -> thread::JoinHandle<Result<(), String>> {
        let (scene, world) = (Arc::clone(self), world.clone());
        let (machine, is_over) = (machine.clone(), Arc::clone(is_over));
        thread::spawn("imager", move || {
            let done = scene.take_images(&world, &machine, how, &is_over);
            if let Err(what) = &done {
                lock(&scene.wrong).get_or_insert(what.clone());
                world.crash();
            }
            done
        })
    }

    fn take_images(
        &self,
        world: &World,
        machine: &Machine,
        how: End,
        is_over: &AtomicBool,
    ) -> Result<(), String> {
        let mut rng = world.rng("images");
        let last = match how {
            End::Stop => u64::MAX,
            End::Kill(steps) | End::Cut(steps) => u64::from(steps),
        };
        let mut taken = 0;
        let mut next = world.steps() + 1 + rng.below(STEPS_BETWEEN);
        let ends = loop {
            let over = is_over.load(Ordering::Relaxed);
            if over || world.steps() >= last {
                break how != End::Stop;
            }
            if world.steps() >= next && taken < self.trial.images && !self.stop.is_due() {
                self.try_image(machine, &mut rng)?;
                taken += 1;
                next = world.steps() + 1 + rng.below(STEPS_BETWEEN);
            }
            thread::yield_now();
        };
        self.try_image(machine, &mut rng)?;
        if ends {
            let left = match how {
                End::Cut(_) => machine.cut(world, &mut rng)?,
                End::Stop | End::Kill(_) => machine.killed(world)?,
            };
            *lock(&self.machine) = Some(left);
            if !is_over.load(Ordering::Relaxed) {
                world.crash();
            }
        }
        Ok(())
    }

    /// Opens the machine as the death of the process or a power cut would leave it now.
    fn try_image(&self, machine: &Machine, rng: &mut Rng) -> Result<(), String> {
        let is_cut = rng.one_in(4);
        let clock = Arc::clone(&lock(&self.clock));
        let (machine, mut rng) = (machine.clone(), Rng::new(rng.next_u64()));
        let model = lock(&self.model).clone();
        let ran = World::new(WorldOptions::seeded(rng.next_u64())).run(move || {
            let world = World::current().ok_or("no world")?;
            let image = match is_cut {
                true => machine.cut(&world, &mut rng)?,
                false => machine.killed(&world)?,
            };
            check_image(&image, &clock, model, rng)
        });
        {
            let mut report = lock(&self.report);
            report.points += 1;
            report.images += 1;
        }
        let what = match ran {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(what)) => what,
            Err(failure) => failure.to_string(),
        };
        let event = if is_cut { "a power cut" } else { "the death of the process" };
        Err(format!("after {event}: {what}"))
    }
}

/// Forgets an ordered flush if the cache starts empty: there is nothing left for it.
fn forget_order(cache: &Cache, model: &Mutex<Model>) {
    if cache.statistics().restored_items == 0 {
        lock(model).order_flush(None);
    }
}

/// Opens an image and reads all keys.
fn check_image(
    image: &Machine,
    clock: &Arc<ManualClock>,
    model: Model,
    rng: Rng,
) -> Result<(), String> {
    let cache = image.open(clock).map_err(|error| error.to_string())?;
    let model = Arc::new(Mutex::new(model));
    forget_order(&cache, &model);
    let mut hand = Hand::new(&cache, &model, clock, rng);
    let now = clock.seconds();
    let flush = lock(&model).flush_if_due(now);
    if let Some(flush) = flush {
        lock(&model).end_flush(&flush);
    }
    hand.read_all(now)?;
    cache.check_pieces()
}

/// Returns true if a thread carries out an operation.
fn runs_on(op: &Op, number: u8) -> bool {
    match op {
        Op::Command(thread, _) => *thread == number,
        _ => number == 0,
    }
}

fn last_resize(ops: &[Op]) -> Option<Op> {
    ops.iter().rev().find(|op| matches!(op, Op::Resize(_))).copied()
}

/// Changes the quota; a size that the cache refuses is no failure.
fn resize(cache: &Cache, kind: Kind, segments: u8) {
    let bytes = u64::from(segments).clamp(SEGMENTS.0, SEGMENTS.1) * SEGMENT_BYTES;
    let dram = cache.statistics().dram_limit_bytes;
    let dram = if kind == Kind::Dram { bytes } else { dram };
    drop(cache.resize(ByteSize(dram), ByteSize(bytes)));
}

fn plan(trouble: Trouble, seed: u64) -> FaultPlan {
    let always = |calls: &[Call], failure| Fault {
        calls: Calls::of(calls),
        nth: 1,
        repeat: Repeat::EverAfter,
        effect: Effect::Fail(failure),
    };
    match trouble {
        Trouble::None => FaultPlan::default(),
        Trouble::Failing => {
            let odds = Odds { fail: OneIn(4), short: OneIn(10), ..Odds::default() };
            FaultPlan { seed, odds, ..FaultPlan::default() }
        }
        Trouble::Lying => {
            let odds = Odds {
                flip: OneIn(4),
                lose_sector: OneIn(4),
                misdirect: OneIn(6),
                ..Odds::default()
            };
            FaultPlan { seed, odds, ..FaultPlan::default() }
        }
        Trouble::Full => {
            let full = [Call::Write, Call::Create, Call::Allocate];
            FaultPlan::one(always(&full, Failure::NoSpace))
        }
    }
}
