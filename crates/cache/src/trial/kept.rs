//! Large values and the death of the process: all that could be read before it can be read after
//! it, however few there are.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use entresol_base::rng::Rng;
use entresol_base::world::{World, WorldOptions};
use entresol_base::{Clock, ManualClock, Seconds};

use super::act::Hand;
use super::machine::{LARGE_BYTES_MAX, Machine, SEGMENT_BYTES};
use super::model::Model;
use super::{Command, Trial, Ttl};
use crate::GetOptions;

/// Keys of a scene, and commands between two looks at what the process would leave.
const KEYS: u64 = 12;
const COMMANDS_BETWEEN: u32 = 4;

/// Stores large and small values, and looks at times; returns the number of large values that were
/// found.
pub(super) fn run(trial: &Trial, rounds: u32) -> Result<u64, String> {
    let world = World::new(WorldOptions::seeded(trial.seed));
    let (inner, trial) = (world.clone(), *trial);
    let ran = world.run(move || live(&trial, &inner, rounds));
    ran.map_err(|failure| failure.to_string())?
}

fn live(trial: &Trial, world: &World, rounds: u32) -> Result<u64, String> {
    let machine = Machine::new(trial, world)?;
    let clock = Arc::new(ManualClock::at(Seconds(1_000_000)));
    let cache = machine.open(&clock).map_err(|error| error.to_string())?;
    let model = Arc::new(Mutex::new(Model::new()));
    let mut rng = Rng::named(trial.seed, "kept");
    let mut hand = Hand::new(&cache, &model, &clock, Rng::new(rng.next_u64()));
    let mut large = BTreeSet::new();
    let mut found = 0;
    for round in 0..rounds {
        for _ in 0..COMMANDS_BETWEEN {
            let key = rng.below(KEYS) as u8;
            let command = match rng.below(8) {
                0..3 => {
                    large.insert(key);
                    let len = rng.range(SEGMENT_BYTES / 2..LARGE_BYTES_MAX / 2) as u32;
                    Command::Set(key, len, Ttl::Never, false)
                }
                3..6 => {
                    large.remove(&key);
                    Command::Set(key, rng.below(20_000) as u32, Ttl::Never, false)
                }
                6 => Command::Delete(key, false),
                _ => Command::Get(key, false),
            };
            hand.act(command)?;
        }
        let (now, options) = (clock.seconds(), GetOptions::default());
        let mut present = Vec::new();
        for key in &large {
            if hand.read(*key, now, &options)?.is_some() {
                present.push(*key);
            }
        }
        found += present.len() as u64;
        let seen = model.lock().map_err(|error| error.to_string())?.clone();
        look(&machine, &clock, seen, present).map_err(|what| format!("round {round}: {what}"))?;
    }
    Ok(found)
}

/// Opens the machine as the death of the process leaves it now, and looks for some keys.
fn look(
    machine: &Machine,
    clock: &Arc<ManualClock>,
    model: Model,
    present: Vec<u8>,
) -> Result<(), String> {
    let (machine, clock) = (machine.clone(), Arc::clone(clock));
    let ran = World::new(WorldOptions::seeded(1)).run(move || {
        let image = machine.killed(&World::current().ok_or("no world")?)?;
        let cache = image.open(&clock).map_err(|error| error.to_string())?;
        let model = Arc::new(Mutex::new(model));
        let mut hand = Hand::new(&cache, &model, &clock, Rng::new(1));
        for key in present {
            if hand.read(key, clock.seconds(), &GetOptions::default())?.is_none() {
                let why = cache.restore_remarks();
                return Err(format!("the large value of key {key} is lost: {why:?}"));
            }
        }
        cache.check_pieces()
    });
    ran.map_err(|failure| failure.to_string())?
}
